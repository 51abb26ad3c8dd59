//! Four bytes of a slice by which parity is checked: a secret linear function of its bytes.

use crate::linear::Linear;
use alloc::boxed::Box;
use alloc::vec;
use rusty_erasure::gf;
use rusty_erasure::kernel::Kernels;
use towpath_base::Prng;

/// Bytes of a sketch: two slices that differ have the same one with probability `2^-32`.
pub const SKETCH_BYTES: usize = 4;

/// Bytes of which one sketch is made at most: a slice of the store. Longer ranges have a sketch for
/// each slice.
pub const SKETCHED_BYTES_MAX: usize = 4096;

/// Bytes of a piece of a slice: what the vector instructions take at a time.
const PIECE_BYTES: usize = 32;

/// Pieces of a slice.
const PIECES: usize = SKETCHED_BYTES_MAX / PIECE_BYTES;

/// Random sums of all pieces that the sketch is made of. A slice that is not zero makes all of them
/// zero with probability `2^(-8 * FOLDS)`, which is small beside that of the sketch; more would
/// take longer.
const FOLDS: usize = 5;

/// What a byte of the folds gives to the sketch, by its low and its high half.
type Halves = [[u32; 16]; 2];

/// A linear function from a slice to four bytes, drawn by a seed.
///
/// The sketch of parity is the parity of sketches: those of the same slice of all shards of a
/// stripe are the shards of a stripe themselves, which [`crate::Code::check`] takes. If it finds
/// them right, a stripe that is not has slipped through with probability `2^-32`, provided that
/// nobody knew the seed when the shards were written. Each check draws its own.
#[derive(Clone, Debug)]
pub struct Sketch {
    folds: Linear,
    halves: Box<[Halves]>,
}

/// A slice is longer than [`SKETCHED_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a sketch of {bytes} bytes, of which {SKETCHED_BYTES_MAX} are allowed")]
pub struct SketchError {
    /// Its length.
    pub bytes: usize,
}

impl Sketch {
    /// The function of a seed. It takes some ten microseconds to make.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_kernels(seed, rusty_erasure::best_kernels())
    }

    pub(crate) fn with_kernels(seed: u64, kernels: Kernels) -> Self {
        let mut prng = Prng::new(seed);
        let mut coefficients = vec![0; FOLDS * PIECES];
        prng.fill(&mut coefficients);
        let folds = Linear::new(kernels, (FOLDS, PIECES), coefficients);
        let halves = (0..FOLDS * PIECE_BYTES).map(|_| halves(prng.next_u32().to_le_bytes()));
        Self { folds, halves: halves.collect() }
    }

    /// The sketch of a slice. A short one counts as if zeros followed it.
    ///
    /// # Errors
    /// [`SketchError`] if it is longer than [`SKETCHED_BYTES_MAX`].
    pub fn of(&self, slice: &[u8]) -> Result<[u8; SKETCH_BYTES], SketchError> {
        if slice.len() > SKETCHED_BYTES_MAX {
            return Err(SketchError { bytes: slice.len() });
        }
        let (whole, rest) = slice.as_chunks::<PIECE_BYTES>();
        let mut last = [0; PIECE_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        let zeros = [0; PIECE_BYTES];
        let mut pieces = [&zeros[..]; PIECES];
        for (piece, bytes) in pieces.iter_mut().zip(whole) {
            *piece = bytes;
        }
        if let Some(piece) = pieces.get_mut(whole.len()) {
            *piece = &last;
        }
        let mut folded = [[0; PIECE_BYTES]; FOLDS];
        let mut outputs = folded.each_mut().map(|fold| &mut fold[..]);
        // The buffers above have the right number and length.
        let fits = self.folds.apply(&pieces, &mut outputs);
        debug_assert!(fits.is_ok());
        let bytes = folded.as_flattened().iter().zip(&self.halves);
        let sum = bytes.fold(0, |sum, (byte, [low, high])| {
            sum ^ low[usize::from(byte & 15)] ^ high[usize::from(byte >> 4)]
        });
        Ok(sum.to_le_bytes())
    }
}

/// Every half byte times four coefficients.
fn halves(coefficients: [u8; SKETCH_BYTES]) -> Halves {
    let times = |byte| u32::from_le_bytes(coefficients.map(|one| gf::mul(one, byte)));
    [
        core::array::from_fn(|half| times(half as u8)),
        core::array::from_fn(|half| times((half as u8) << 4)),
    ]
}

#[cfg(test)]
mod tests;
