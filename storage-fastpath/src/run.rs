//! CRC32C of bytes that lie in several slices from the checksums of these, not from the bytes.

use crate::slice::{ChunkId, SLICE_BYTES, Span, fragment_place, slice_place};
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

/// CRC32C of the bytes of each of the whole slices from `first` on, whose checksums
/// ([`slice_crc`](crate::slice::slice_crc)) are `crcs`.
pub fn content_crcs(
    chunk: ChunkId,
    first: u64,
    crcs: impl IntoIterator<Item = u32>,
) -> impl Iterator<Item = u32> {
    let (mut slice, mut place) = (first, slice_place(chunk, first));
    crcs.into_iter().map(move |crc| {
        let content = crc ^ place;
        // No chunk has a slice of the largest index.
        place ^= STEPS[(slice.trailing_ones() as usize).min(STEPS.len() - 1)];
        slice = slice.wrapping_add(1);
        content
    })
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

/// CRC32C of `bytes`, which a writer puts at `offset`, from the `crcs` that it sends with them
/// ([`writer_crcs`](crate::slice::writer_crcs)). Of the bytes it reads only those of the last
/// slice, and these where that is not covered whole and is not the first. None when the number of
/// checksums does not fit.
#[must_use]
pub fn range_crc(chunk: ChunkId, offset: u64, bytes: &[u8], crcs: &[u32]) -> Option<u32> {
    if bytes.is_empty() {
        return crcs.is_empty().then_some(0);
    }
    let span = Span::new(offset, bytes.len() as u64);
    if span.count() != crcs.len() as u64 {
        return None;
    }
    let (mut crc, mut first, mut rest, mut slices) = (0, span.first(), bytes, crcs);
    if !span.covers(first) {
        let (from, length) = span.part(first);
        let (head, after) = slices.split_first()?;
        crc = head ^ fragment_place(chunk, first, from as u32, length as u32);
        (first, rest, slices) = (first + 1, &rest[length..], after);
    }
    let (pages, tail) = rest.as_chunks::<SLICE_BYTES>();
    let whole = slices.get(..pages.len())?.iter().copied();
    crc = content_crcs(chunk, first, whole).fold(crc, crc32c_then_page);
    if tail.is_empty() {
        return Some(crc);
    }
    let mut crc = Crc32c::resume(crc);
    crc.update(tail);
    Some(crc.value())
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
            let found = range_crc(chunk, index + offset, bytes, &crcs);
            assert_eq!(found, Some(crc32c(bytes)), "round {round}: {offset} {length}");
            let spare = [&crcs[..], &[0]].concat();
            assert_eq!(range_crc(chunk, index + offset, bytes, &spare), None, "round {round}");
        }
    }

    #[test]
    fn only_the_bytes_behind_the_last_whole_slice_are_read() {
        let mut bytes = vec![3; 3 * SLICE_BYTES + 200];
        let (chunk, offset) = (ChunkId(4), 4096 - 100);
        let (crcs, expected) = (writer_crcs(chunk, offset, &bytes), crc32c(&bytes));
        let tail = 3 * SLICE_BYTES + 100;
        bytes[..tail].fill(0);
        assert_eq!(range_crc(chunk, offset, &bytes, &crcs), Some(expected));
        bytes[tail] ^= 1;
        assert_ne!(range_crc(chunk, offset, &bytes, &crcs), Some(expected));
    }
}
