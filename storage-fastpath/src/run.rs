//! CRC32C of bytes that lie in several slices from the checksums of these, not from the bytes.

use crate::slice::{ChunkId, SLICE_BYTES, Span, slice_place};
use smallvec::SmallVec;
use towpath_base::crc::{Crc32c, PAGE_BYTES, crc32c_change, crc32c_then_page};
use towpath_transport::PageCrcs;

const _: () = assert!(SLICE_BYTES == PAGE_BYTES);

/// By what the place of a slice changes from the slice before, by the ones at the end of that one's
/// index: adding one flips them and the zero in front of them.
const STEPS: [u32; 64] = {
    let mut steps = [0; 64];
    let mut ones = 0;
    while ones < 64 {
        steps[ones] = crc32c_change(u64::MAX >> (63 - ones));
        ones += 1;
    }
    steps
};

/// The parts of the checksums of whole slices that do not depend on their bytes, slice after slice.
pub(crate) struct Places {
    slice: u64,
    place: u32,
}

impl Places {
    pub(crate) fn from(chunk: ChunkId, first: u64) -> Self {
        Self { slice: first, place: slice_place(chunk, first) }
    }

    /// That of a slice which is not in front of the one before.
    pub(crate) fn of(&mut self, slice: u64) -> u32 {
        while self.slice < slice {
            // No chunk has a slice of the largest index.
            self.place ^= STEPS[(self.slice.trailing_ones() as usize).min(STEPS.len() - 1)];
            self.slice += 1;
        }
        self.place
    }
}

/// CRC32C of the bytes of each of the whole slices from `first` on, whose checksums
/// ([`slice_crc`](crate::slice::slice_crc)) are `crcs`.
pub fn content_crcs(
    chunk: ChunkId,
    first: u64,
    crcs: impl IntoIterator<Item = u32>,
) -> impl Iterator<Item = u32> {
    let mut places = Places::from(chunk, first);
    (first..).zip(crcs).map(move |(slice, crc)| crc ^ places.of(slice))
}

/// CRC32C of each whole page of `length` bytes from `offset` on, from the checksum of each slice
/// that they touch: none where pages do not begin where slices do.
#[must_use]
pub fn page_crcs(chunk: ChunkId, offset: u64, length: usize, crcs: &[u32]) -> PageCrcs {
    let is_aligned = offset.is_multiple_of(SLICE_BYTES as u64);
    let pages = if is_aligned { length / SLICE_BYTES } else { 0 };
    let whole = crcs.iter().copied().take(pages);
    content_crcs(chunk, offset / SLICE_BYTES as u64, whole).collect()
}

/// CRC32C of what has `front` and `bytes` behind it, which a writer puts at `offset`, from the
/// `crcs` that it sends with them ([`writer_crcs`](crate::slice::writer_crcs)). Of the bytes it
/// reads only those of slices that are not covered whole. None when the number of checksums does
/// not fit.
#[must_use]
pub fn range_crc(
    front: u32,
    chunk: ChunkId,
    offset: u64,
    bytes: &[u8],
    crcs: &[u32],
) -> Option<u32> {
    if bytes.is_empty() {
        return crcs.is_empty().then_some(front);
    }
    let span = Span::new(offset, bytes.len() as u64);
    if span.count() != crcs.len() as u64 {
        return None;
    }
    let (head, first) = match span.part(span.first()) {
        (_, SLICE_BYTES) => (0, span.first()),
        (_, length) => (length, span.first() + 1),
    };
    let (head, rest) = bytes.split_at(head);
    let (pages, _) = rest.as_chunks::<SLICE_BYTES>();
    let whole = crcs.iter().copied().skip((first - span.first()) as usize).take(pages.len());
    let pages: SmallVec<[u32; 16]> = content_crcs(chunk, first, whole).collect();
    Some(crc_of_pages(crc_behind(front, head), rest, &pages))
}

/// CRC32C of what has `front` and `bytes` behind it, from the CRC32C of their whole pages as far as
/// these are known. It reads the bytes behind.
#[must_use]
pub fn crc_of_pages(front: u32, bytes: &[u8], pages: &[u32]) -> u32 {
    let rest = bytes.get(pages.len() * PAGE_BYTES..).unwrap_or(&[]);
    debug_assert!(pages.len() * PAGE_BYTES <= bytes.len(), "pages lie in the bytes");
    crc_behind(pages.iter().copied().fold(front, crc32c_then_page), rest)
}

fn crc_behind(front: u32, bytes: &[u8]) -> u32 {
    if bytes.is_empty() {
        return front;
    }
    let mut crc = Crc32c::resume(front);
    crc.update(bytes);
    crc.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::{slice_crc, writer_crcs};
    use towpath_base::Prng;
    use towpath_base::crc::crc32c;

    #[test]
    fn a_slice_gives_up_the_crc_of_its_bytes_at_any_place() {
        let seed = 11;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let edges = (0..64).map(|bit| (1_u64 << bit) - 1).chain([u64::MAX - 9]);
        for first in edges.map(|edge| edge.saturating_sub(3)) {
            let chunk = ChunkId(u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64()));
            let mut bytes = vec![0; 8 * SLICE_BYTES];
            prng.fill(&mut bytes);
            let slices = bytes.chunks(SLICE_BYTES);
            let bound = (first..).zip(slices.clone()).map(|(at, part)| slice_crc(chunk, at, part));
            let found: Vec<_> = content_crcs(chunk, first, bound).collect();
            assert_eq!(found, slices.map(crc32c).collect::<Vec<_>>(), "{first:#x}");
        }
    }

    #[test]
    fn the_crc_of_a_range_follows_from_what_its_writer_sends_wherever_it_begins_and_ends() {
        let seed = 12;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mut bytes = vec![0; 5 * SLICE_BYTES];
        prng.fill(&mut bytes);
        let chunk = ChunkId(u128::from(prng.next_u64()));
        for round in 0..3_000 {
            let near = |prng: &mut Prng| prng.below(4) * 4096 + prng.below(3) * prng.below(2048);
            let (offset, length) = (near(&mut prng), near(&mut prng) as usize);
            let (bytes, index) = (&bytes[..length], prng.below(1 << 30) * 4096);
            let crcs = writer_crcs(chunk, index + offset, bytes);
            let found = range_crc(crc32c(b"front"), chunk, index + offset, bytes, &crcs);
            let expected = crc32c(&[b"front", bytes].concat());
            assert_eq!(found, Some(expected), "round {round}: {offset} {length}");
            let spare = [&crcs[..], &[0]].concat();
            assert_eq!(range_crc(0, chunk, index + offset, bytes, &spare), None, "round {round}");
        }
    }

    #[test]
    fn only_the_bytes_of_slices_that_are_not_whole_are_read() {
        let mut bytes = vec![3; 3 * SLICE_BYTES + 200];
        let (chunk, offset) = (ChunkId(4), 4096 - 100);
        let (crcs, expected) = (writer_crcs(chunk, offset, &bytes), Some(crc32c(&bytes)));
        let whole = 100..3 * SLICE_BYTES + 100;
        bytes[whole.clone()].fill(0);
        assert_eq!(range_crc(0, chunk, offset, &bytes, &crcs), expected);
        for at in [whole.start - 1, whole.end] {
            bytes[at] ^= 1;
            assert_ne!(range_crc(0, chunk, offset, &bytes, &crcs), expected);
            bytes[at] ^= 1;
        }
    }
}
