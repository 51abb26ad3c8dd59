//! Which parts of a piece are there, where a piece travels in several frames.

use crate::limits::FRAME_ALIGN_BYTES;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes that one bit stands for: parts begin at multiples of them, and end there or with the
/// piece.
const GRAIN: u32 = FRAME_ALIGN_BYTES as u32;

/// Which bytes of one piece are there.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    piece_len: u32,
    missing: u32,
    words: Vec<u64>,
}

impl Parts {
    /// Nothing of a piece of so many bytes.
    pub(crate) fn new(piece_len: u32) -> Self {
        let grains = piece_len.div_ceil(GRAIN);
        Self { piece_len, missing: grains, words: vec![0; grains.div_ceil(64) as usize] }
    }

    /// Bytes of the whole piece.
    pub(crate) fn piece_len(&self) -> u32 {
        self.piece_len
    }

    /// The bits that stand for a part, word by word.
    fn masks(start: u32, length: u32) -> impl Iterator<Item = (usize, u64)> {
        let (first, end) = (start / GRAIN, (start + length).div_ceil(GRAIN));
        (first / 64..end.div_ceil(64)).map(move |word| {
            let (from, to) =
                (first.max(word * 64) - word * 64, end.min(word * 64 + 64) - word * 64);
            let below = |bit: u32| if bit == 64 { u64::MAX } else { (1 << bit) - 1 };
            (word as usize, below(to) & !below(from))
        })
    }

    /// Whether all of a part is there.
    pub(crate) fn has(&self, start: u32, length: u32) -> bool {
        Self::masks(start, length)
            .all(|(word, mask)| self.words.get(word).is_some_and(|&there| there & mask == mask))
    }

    /// Takes in a part, which lies within the piece.
    pub(crate) fn insert(&mut self, start: u32, length: u32) {
        for (word, mask) in Self::masks(start, length) {
            let Some(there) = self.words.get_mut(word) else { continue };
            self.missing -= (mask & !*there).count_ones();
            *there |= mask;
        }
    }

    /// Whether the whole piece is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    #[test]
    fn parts_in_any_order_and_overlapping_make_the_piece_as_a_list_of_bytes_says() {
        for seed in 0..300 {
            let mut prng = Prng::new(seed);
            let len = prng.between(1, 3_000) as u32;
            let (mut parts, mut bytes) = (Parts::new(len), vec![false; len as usize]);
            while !parts.is_complete() {
                let start = prng.below(u64::from(len.div_ceil(GRAIN))) as u32 * GRAIN;
                let most = len - start;
                let length = prng.between(1, u64::from(most)) as u32;
                let length = length.next_multiple_of(GRAIN).min(most);
                let range = start as usize..(start + length) as usize;
                let had = bytes[range.clone()].iter().all(|&there| there);
                assert_eq!(parts.has(start, length), had, "seed {seed}");
                parts.insert(start, length);
                bytes[range].fill(true);
                assert!(parts.has(start, length));
                assert_eq!(parts.is_complete(), bytes.iter().all(|&there| there), "seed {seed}");
            }
        }
    }
}
