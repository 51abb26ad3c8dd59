//! What is measured, over stripes in memory.

use std::hint::black_box;
use std::time::Instant;

use towpath_base::Prng;
use towpath_ec::{
    BufferError, Code, Decoder, SHARDS_MAX, SKETCHED_BYTES_MAX, Shape, ShardSet, Sketch, add,
};
use towpath_lab::studies::StudyError;

/// Bytes that a measurement goes over at least, in several passes if there are fewer: some
/// milliseconds.
const PASSED_BYTES_MIN: usize = 64 << 20;

/// What is done with stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Each data shard is copied, by the copy of the standard library: what others are compared
    /// with.
    Copy,
    /// All parity of all data.
    Encode,
    /// As many data shards as there is parity for, at most all, from the others and the parity.
    Decode,
    /// What each data shard contributes to each parity shard.
    Contributions,
    /// A data shard is added to a sum: what a parity node does with a contribution.
    Add,
    /// The sketch of each slice of each data shard.
    Sketch,
}

impl Work {
    /// In the order in which they are measured.
    pub(super) const ALL: [Self; 6] =
        [Self::Copy, Self::Encode, Self::Decode, Self::Contributions, Self::Add, Self::Sketch];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Encode => "encode",
            Self::Decode => "decode",
            Self::Contributions => "contributions",
            Self::Add => "add",
            Self::Sketch => "sketch",
        }
    }
}

/// Bytes of data a second, of each work.
pub(super) type Speeds = [f64; Work::ALL.len()];

/// A shape, a length and a memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) shape: Shape,
    pub(super) shard_bytes: usize,
    stripes: usize,
}

impl Point {
    pub(super) fn new(shape: Shape, shard_bytes: usize, memory: usize) -> Self {
        let stripes = (memory / (shape.k() * shard_bytes)).max(1);
        Self { shape, shard_bytes, stripes }
    }

    /// Bytes of data that a pass goes over.
    pub(super) fn data_bytes(&self) -> usize {
        self.stripes * self.shape.k() * self.shard_bytes
    }

    /// Does each work once, over the same buffers.
    pub(super) fn measure(&self) -> Result<Speeds, StudyError> {
        let failed = |error| StudyError::run("set-up", error);
        let mut stripes = Stripes::new(*self).map_err(|error| failed(error.to_string()))?;
        let passes = PASSED_BYTES_MIN.div_ceil(self.data_bytes());
        let mut speeds = [0.0; Work::ALL.len()];
        for (work, speed) in Work::ALL.into_iter().zip(&mut speeds) {
            let from = Instant::now();
            for _ in 0..passes {
                stripes.pass(work).map_err(|error| failed(error.to_string()))?;
            }
            let seconds = from.elapsed().as_secs_f64();
            *speed = (passes * self.data_bytes()) as f64 / seconds;
        }
        Ok(speeds)
    }
}

/// Buffers, and what is ready to work on them.
struct Stripes {
    point: Point,
    code: Code,
    decoder: Decoder,
    sketch: Sketch,
    /// Shards behind one another, stripe by stripe.
    data: Vec<u8>,
    parity: Vec<u8>,
    /// As many bytes as there are of data, and of the longer of data and parity in a stripe.
    copy: Vec<u8>,
}

impl Stripes {
    fn new(point: Point) -> Result<Self, towpath_ec::DecoderError> {
        let shape = point.shape;
        let lost: ShardSet = (0..shape.k().min(shape.m())).collect();
        let code = Code::new(shape);
        let decoder = Decoder::new(&code, shape.all().without(lost), lost)?;
        let mut data = vec![0; point.data_bytes()];
        Prng::new(1).fill(&mut data);
        // Written, so that the system has given the memory before anything is measured.
        let parity = vec![1; point.stripes * shape.m() * point.shard_bytes];
        let copy = vec![1; data.len()];
        Ok(Self { point, code, decoder, sketch: Sketch::new(1), data, parity, copy })
    }

    /// One pass over all stripes.
    fn pass(&mut self, work: Work) -> Result<(), BufferError> {
        let (shape, bytes) = (self.point.shape, self.point.shard_bytes);
        let (k, m) = (shape.k(), shape.m());
        for stripe in 0..self.point.stripes {
            let data = &self.data[stripe * k * bytes..][..k * bytes];
            let parity = &mut self.parity[stripe * m * bytes..][..m * bytes];
            let copy = &mut self.copy[stripe * k * bytes..][..k * bytes];
            match work {
                Work::Copy => {
                    for (copy, shard) in copy.chunks_mut(bytes).zip(data.chunks(bytes)) {
                        copy.copy_from_slice(shard);
                    }
                }
                Work::Encode => {
                    self.code
                        .encode(&views(data, bytes)[..k], &mut views_mut(parity, bytes)[..m])?;
                }
                Work::Decode => decode(&self.decoder, bytes, (data, parity), copy)?,
                Work::Contributions => {
                    let mut outputs = views_mut(parity, bytes);
                    for (at, shard) in data.chunks(bytes).enumerate() {
                        self.code.encode_part(at, shard, &mut outputs[..m])?;
                    }
                }
                Work::Add => {
                    for (sum, shard) in copy.chunks_mut(bytes).zip(data.chunks(bytes)) {
                        add(sum, shard)?;
                    }
                }
                Work::Sketch => {
                    for slice in data.chunks(SKETCHED_BYTES_MAX.min(bytes)) {
                        // Slices are not longer than a sketch takes.
                        let _ = black_box(self.sketch.of(slice));
                    }
                }
            }
            black_box((&parity, &copy));
        }
        Ok(())
    }
}

/// The sources of a decoder are the last shards of a stripe, in order.
fn decode(
    decoder: &Decoder,
    bytes: usize,
    (data, parity): (&[u8], &[u8]),
    made: &mut [u8],
) -> Result<(), BufferError> {
    let wanted = decoder.wanted().len();
    let (data, parity) = (views(data, bytes), views(parity, bytes));
    let k = decoder.sources().len();
    let mut sources = [&[][..]; SHARDS_MAX];
    for (source, shard) in sources.iter_mut().zip(decoder.sources().iter()) {
        *source = if shard < k { data[shard] } else { parity[shard - k] };
    }
    decoder.decode(&sources[..k], &mut views_mut(made, bytes)[..wanted])
}

/// Shards that lie behind one another.
fn views(shards: &[u8], bytes: usize) -> [&[u8]; SHARDS_MAX] {
    let mut each = shards.chunks(bytes);
    std::array::from_fn(|_| each.next().unwrap_or_default())
}

fn views_mut(shards: &mut [u8], bytes: usize) -> [&mut [u8]; SHARDS_MAX] {
    let mut each = shards.chunks_mut(bytes);
    std::array::from_fn(|_| each.next().unwrap_or_default())
}
