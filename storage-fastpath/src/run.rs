//! CRC32C of bytes that lie in several slices from the checksums of these, not from the bytes.

use crate::slice::{ChunkId, SLICE_BYTES, slice_place};
use towpath_base::crc::{PAGE_BYTES, crc32c_change};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::slice_crc;
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
}
