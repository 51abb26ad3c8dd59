//! Parts compared without moving them: four bytes of each slice stand for it.

use std::ops::Range;

use towpath_ec::{ShardSet, crc_of_sum};
use towpath_fastpath::limits::{IO_BYTES_MAX, SKETCHED_BYTES_MAX};
use towpath_fastpath::{ChunkId, Client, ClientError, ErrorKind, ErrorReply, Pending, SLICE_BYTES};

use crate::coder::Units;
use crate::error::PartError;
use crate::layout::{Layout, Node};
use crate::race::Race;
use crate::servers::Servers;
use crate::state::Part;

/// Bytes of each part that are compared together: what 32 parts have of it is 128 KiB of marks.
pub(crate) const WINDOW_BYTES: u64 = 4 << 20;

const SLICE: u64 = SLICE_BYTES as u64;

/// Bytes of a mark.
pub(crate) const MARK_BYTES: usize = 4;

/// What stands for a slice. That of a sum of slices is the sum of theirs.
type Mark = [u8; MARK_BYTES];

/// What marks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Checksums, which servers have in memory: they read nothing, and see no damage. They follow
    /// those of sums, and not those of products: of copies, and of the data and the first parity.
    Digest,
    /// Sketches that this seed draws: servers read the slices, and find those that are damaged.
    Sketch(u64),
}

/// A part that is looked at.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) client: Client,
    pub(crate) chunk: ChunkId,
    /// Its version: nothing is compared of another one.
    pub(crate) version: u64,
    pub(crate) byte_len: u64,
}

impl Layout {
    /// Parts that are whole, to be looked at.
    pub(crate) fn subjects(&self, parts: Vec<Part>) -> Vec<Result<Subject, PartError>> {
        let byte_len = self.stripes().part_bytes();
        let subject = |(node, part): (&Node, Part)| {
            let (client, version) = (part?, node.version.ok_or(PartError::NotWhole)?);
            Ok(Subject { client, chunk: node.chunk, version, byte_len })
        };
        self.nodes.iter().zip(parts).map(subject).collect()
    }
}

/// The marks of some slices of each part: none of what a part does not have, or has damaged.
pub(crate) struct Marks {
    of: Vec<Vec<Option<Mark>>>,
    slices: usize,
}

impl Marks {
    fn none(parts: usize, slices: usize) -> Self {
        Self { of: vec![vec![None; slices]; parts], slices }
    }

    /// How many slices.
    pub(crate) fn slices(&self) -> usize {
        self.slices
    }

    pub(crate) fn get(&self, part: usize, slice: usize) -> Option<Mark> {
        self.of[part][slice]
    }

    /// The parts that have a slice.
    fn present(&self, slice: usize, among: ShardSet) -> ShardSet {
        let has = |part: &usize| self.of.get(*part).is_some_and(|marks| marks[slice].is_some());
        among.iter().filter(has).collect()
    }

    /// All slices, cut into runs that the same parts of some have.
    pub(crate) fn runs(&self, among: ShardSet) -> Vec<(Range<usize>, ShardSet)> {
        let mut runs: Vec<(Range<usize>, ShardSet)> = Vec::new();
        for slice in 0..self.slices {
            let present = self.present(slice, among);
            match runs.last_mut() {
                Some((run, parts)) if *parts == present => run.end = slice + 1,
                _ => runs.push((slice..slice + 1, present)),
            }
        }
        runs
    }

    /// The marks of a run of slices that these parts have.
    pub(crate) fn units(&self, slices: &Range<usize>, parts: ShardSet) -> Units {
        let mut units = Units::new(self.of.len());
        for part in parts.iter() {
            let marks = self.of[part][slices.clone()].iter().flatten();
            units.of[part] = Some(marks.flatten().copied().collect());
        }
        units
    }
}

/// Marks that were asked for.
#[derive(Clone, Copy)]
struct Ask {
    part: usize,
    offset: u64,
    bytes: u64,
}

/// Parts that are looked at, window by window.
pub(crate) struct Survey<'a> {
    servers: &'a Servers,
    layout: &'a Layout,
    by: By,
    /// By part; why it is not looked at, or not any more.
    pub(crate) subjects: Vec<Result<Subject, PartError>>,
    /// Bytes of marks that came.
    pub(crate) bytes: u64,
}

impl<'a> Survey<'a> {
    pub(crate) fn new(
        servers: &'a Servers,
        layout: &'a Layout,
        by: By,
        subjects: Vec<Result<Subject, PartError>>,
    ) -> Self {
        Self { servers, layout, by, subjects, bytes: 0 }
    }

    /// The parts that are not looked at, or not any more.
    pub(crate) fn lost(&self) -> ShardSet {
        let lost = self.subjects.iter().enumerate().filter(|(_, subject)| subject.is_err());
        lost.map(|(part, _)| part).collect()
    }

    /// The marks of the same bytes of each part, asked for at once: of whole slices.
    pub(crate) fn look(&mut self, offset: u64, bytes: u64) -> Marks {
        let at = |bytes: usize| bytes as u64;
        match self.by {
            By::Digest => {
                // The CRC of nothing but zeros: without it they are linear.
                let zeros = crc_of_sum(SLICE_BYTES as u32, []);
                self.gather(
                    (offset, bytes, at(IO_BYTES_MAX)),
                    |of, offset, bytes| of.client.digest(of.chunk, offset, bytes),
                    |digest| {
                        let marks = digest.content().map(|crc| (crc ^ zeros).to_le_bytes());
                        (digest.version(), marks.collect())
                    },
                )
            }
            By::Sketch(seed) => self.gather(
                (offset, bytes, at(SKETCHED_BYTES_MAX)),
                |of, offset, bytes| of.client.sketch(of.chunk, offset, bytes, seed),
                |sketches| (sketches.version(), sketches.sketches().collect()),
            ),
        }
    }

    fn gather<T>(
        &mut self,
        (start, bytes, most): (u64, u64, u64),
        ask: impl Fn(&Subject, u64, usize) -> Pending<T>,
        take: impl Fn(T) -> (u64, Vec<Mark>),
    ) -> Marks {
        let mut marks = Marks::none(self.subjects.len(), (bytes / SLICE) as usize);
        let mut race = Race::new();
        let add = |race: &mut Race<Ask, T>, subject: &Subject, asked: Ask| {
            race.add(asked, ask(subject, asked.offset, asked.bytes as usize));
        };
        for (part, subject) in self.subjects.iter().enumerate() {
            let Ok(subject) = subject else { continue };
            // What a part has of a slice in part, it does not have.
            let end = (start + bytes).min(subject.byte_len / SLICE * SLICE);
            let all = Ask { part, offset: start, bytes: end.saturating_sub(start) };
            cut(all, most).for_each(|asked| add(&mut race, subject, asked));
        }
        while let Some((asked, result)) = race.next(None) {
            let Ask { part, offset, bytes } = asked;
            let Ok(subject) = &self.subjects[part] else { continue };
            match checked(subject, bytes, result.map(&take)) {
                Ok(found) => {
                    self.bytes += (found.len() * MARK_BYTES) as u64;
                    let first = ((offset - start) / SLICE) as usize;
                    let places = marks.of[part][first..].iter_mut();
                    places.zip(found).for_each(|(place, mark)| *place = Some(mark));
                }
                Err(error) => match around(asked, &error) {
                    Some(rest) => {
                        rest.into_iter().for_each(|asked| add(&mut race, subject, asked));
                    }
                    None => {
                        self.servers.note(self.layout.nodes[part].server, &error);
                        self.subjects[part] = Err(error);
                    }
                },
            }
        }
        for part in self.lost().iter() {
            marks.of[part].fill(None);
        }
        marks
    }
}

/// Marks that a server has given, if they are of the version that is looked at, and all of them.
fn checked(
    subject: &Subject,
    bytes: u64,
    result: Result<(u64, Vec<Mark>), ClientError>,
) -> Result<Vec<Mark>, PartError> {
    let (found, marks) = result?;
    let expected = subject.version;
    if found != expected {
        return Err(PartError::OtherVersion { expected, found });
    }
    if marks.len() as u64 != bytes / SLICE {
        let found = marks.len() as u64 * SLICE;
        return Err(PartError::OtherLength { expected: bytes, found });
    }
    Ok(marks)
}

/// Cuts what is asked for where that is too much at once.
fn cut(asked: Ask, most: u64) -> impl Iterator<Item = Ask> {
    let Ask { part, offset, bytes } = asked;
    (0..bytes.div_ceil(most)).map(move |index| {
        let from = index * most;
        Ask { part, offset: offset + from, bytes: (bytes - from).min(most) }
    })
}

/// What is to be asked for instead of what was refused; none where the part is lost. Each time it
/// is less than before.
fn around(asked: Ask, error: &PartError) -> Option<Vec<Ask>> {
    let Ask { part, offset, bytes } = asked;
    let PartError::Client(ClientError { kind: ErrorKind::Refused(reply), .. }) = error else {
        return None;
    };
    match *reply {
        ErrorReply::SliceCorrupt { slice, .. } => {
            let bad = slice.checked_mul(SLICE)?;
            let before = bad.checked_sub(offset)?;
            let after = bytes.checked_sub(before)?.checked_sub(SLICE)?;
            let before = Ask { part, offset, bytes: before };
            let after = Ask { part, offset: bad + SLICE, bytes: after };
            Some([before, after].into_iter().filter(|asked| asked.bytes > 0).collect())
        }
        ErrorReply::TooLong { max } => {
            let most = max / SLICE * SLICE;
            (most > 0 && most < bytes).then(|| cut(asked, most).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_fastpath::Method;

    #[test]
    fn what_is_refused_for_one_slice_is_asked_for_around_it() {
        let asked = Ask { part: 3, offset: 8_192, bytes: 12_288 };
        let around = |reply| {
            let kind = ErrorKind::Refused(reply);
            let error = ClientError { method: Method::Sketch, chunk: None, offset: None, kind };
            let rest = around(asked, &PartError::Client(error))?;
            Some(rest.iter().map(|ask| (ask.offset, ask.bytes)).collect::<Vec<_>>())
        };
        let corrupt = |slice| around(ErrorReply::SliceCorrupt { chunk: ChunkId(1), slice });
        assert_eq!(corrupt(2), Some(vec![(12_288, 8_192)]));
        assert_eq!(corrupt(3), Some(vec![(8_192, 4_096), (16_384, 4_096)]));
        assert_eq!(corrupt(4), Some(vec![(8_192, 8_192)]));
        // A server that says so of others would keep us here for ever.
        assert_eq!([0, 1, 5, u64::MAX].map(corrupt), [None, None, None, None]);
        let too_long = |max| around(ErrorReply::TooLong { max });
        assert_eq!(too_long(9_000), Some(vec![(8_192, 8_192), (16_384, 4_096)]));
        assert_eq!([0, 4_095, 12_288, u64::MAX].map(too_long), [None, None, None, None]);
        assert_eq!(around(ErrorReply::Busy), None);
    }

    #[test]
    fn slices_are_cut_into_runs_that_the_same_parts_have() {
        let mut marks = Marks::none(3, 4);
        for (part, slice) in [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (2, 3)] {
            marks.of[part][slice] = Some([part as u8, slice as u8, 0, 0]);
        }
        let among = ShardSet::from_bits(0b011);
        let runs = marks.runs(among);
        assert_eq!(runs, [(0..2, among), (2..4, ShardSet::NONE)]);
        let units = marks.units(&(0..2), among);
        assert_eq!(
            units.of,
            [Some(vec![0, 0, 0, 0, 0, 1, 0, 0]), Some(vec![1, 0, 0, 0, 1, 1, 0, 0]), None]
        );
    }
}
