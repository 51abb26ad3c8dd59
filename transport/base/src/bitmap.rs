//! A bitmap over a window of 64-bit numbers that only moves forward.

use alloc::boxed::Box;
use alloc::vec;

/// Which of the numbers `base..base + span` are set; everything below `base` counts as set.
///
/// The bits sit in a ring of words, so moving the base costs the words passed over and no copy.
#[derive(Clone, Debug)]
pub struct WindowBitmap {
    words: Box<[u64]>,
    base: u64,
}

impl WindowBitmap {
    /// An empty bitmap whose window is at least `span` numbers wide and starts at `base`.
    ///
    /// The width is rounded up to a power of two of at least 64.
    #[must_use]
    pub fn new(base: u64, span: usize) -> Self {
        let words = span.next_power_of_two().max(64) / 64;
        Self { words: vec![0; words].into_boxed_slice(), base }
    }

    /// Empties the bitmap and starts its window at `base`, keeping its memory.
    pub fn reset(&mut self, base: u64) {
        self.words.fill(0);
        self.base = base;
    }

    /// How many numbers the window holds.
    #[must_use]
    pub fn span(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    /// The lowest number that is not known to be set.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base
    }

    fn locate(&self, number: u64) -> (usize, u64) {
        ((number / 64) as usize & (self.words.len() - 1), 1 << (number % 64))
    }

    /// Whether `number` fits in the window or lies below it.
    #[must_use]
    pub fn reaches(&self, number: u64) -> bool {
        number < self.base || number - self.base < self.span()
    }

    /// Whether `number` is set. Numbers beyond the window are not.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        // The base itself is the one that is mostly asked for, and clear.
        if number <= self.base { number < self.base } else { self.contains_ahead(number) }
    }

    #[inline(never)]
    fn contains_ahead(&self, number: u64) -> bool {
        let (word, bit) = self.locate(number);
        self.reaches(number) && self.words[word] & bit != 0
    }

    /// Sets `number`; true when it was not set before. A number beyond the window is refused
    /// (false): ask [`reaches`](Self::reaches) first where that must be told apart.
    #[inline(always)]
    pub fn insert(&mut self, number: u64) -> bool {
        if number != self.base {
            return self.insert_ahead(number);
        }
        // Its bit is clear, and stays so for the number one window later.
        self.base += 1;
        if self.is_base_set() {
            self.advance_over_set();
        }
        true
    }

    #[inline(never)]
    fn insert_ahead(&mut self, number: u64) -> bool {
        if number < self.base || !self.reaches(number) {
            return false;
        }
        let (word, bit) = self.locate(number);
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    /// Moves the base up to `base`: everything below counts as set from now on.
    #[inline]
    pub fn advance_to(&mut self, base: u64) {
        if base > self.base {
            self.advance_far(base);
        }
    }

    #[inline(never)]
    fn advance_far(&mut self, base: u64) {
        if base - self.base >= self.span() {
            self.words.fill(0);
            self.base = base;
            return;
        }
        while self.base < base {
            self.clear_base_bits(base - self.base);
        }
        self.advance_over_set();
    }

    /// Clears bits from the base on, at most to the end of its word, and moves the base past them.
    fn clear_base_bits(&mut self, most: u64) {
        let start = self.base % 64;
        let count = most.min(64 - start);
        let mask = if count == 64 { u64::MAX } else { ((1 << count) - 1) << start };
        let (word, _) = self.locate(self.base);
        self.words[word] &= !mask;
        self.base += count;
    }

    #[inline]
    fn is_base_set(&self) -> bool {
        let (word, bit) = self.locate(self.base);
        self.words[word] & bit != 0
    }

    #[inline(never)]
    fn advance_over_set(&mut self) {
        while self.is_base_set() {
            let (word, _) = self.locate(self.base);
            let run = (self.words[word] >> (self.base % 64)).trailing_ones();
            self.clear_base_bits(run.into());
        }
    }

    /// 64 bits from `number` on, bit 0 for `number` itself. Bits below the base read as set, bits
    /// beyond the window as clear.
    #[must_use]
    pub fn word_at(&self, number: u64) -> u64 {
        let mut bits = 0;
        let (word, _) = self.locate(number);
        let start = number % 64;
        if number >= self.base && self.reaches(number + 63) {
            bits |= self.words[word] >> start;
            if start != 0 {
                let (next, _) = self.locate(number + 63);
                bits |= self.words[next] << (64 - start);
            }
            return bits;
        }
        for i in 0..64 {
            if self.contains(number + i) {
                bits |= 1 << i;
            }
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;
    use alloc::collections::BTreeSet;

    #[test]
    fn the_base_moves_over_everything_that_is_set() {
        let mut map = WindowBitmap::new(10, 64);
        assert!(map.insert(12) && map.insert(11));
        assert_eq!(map.base(), 10);
        assert!(map.insert(10));
        assert_eq!(map.base(), 13);
        assert!(!map.insert(11), "below the base everything is set");
    }

    #[test]
    fn the_last_number_of_the_window_fits_and_the_next_does_not() {
        let mut map = WindowBitmap::new(5, 64);
        assert!(map.insert(68));
        assert!(!map.reaches(69));
        assert!(!map.insert(69));
        assert!(!map.contains(69));
    }

    #[test]
    fn agrees_with_a_plain_set_over_random_inserts_and_advances() {
        let mut prng = Prng::new(3);
        let mut map = WindowBitmap::new(u64::from(u32::MAX) - 100, 256);
        let mut model = BTreeSet::new();
        for _ in 0..20_000 {
            let number = map.base() + prng.below(280);
            if prng.chance(0.02) {
                map.advance_to(number);
                model.extend((0..number).rev().take(600));
            } else if number - map.base() < 256 {
                assert_eq!(map.insert(number), model.insert(number));
            }
            let probe = map.base() + prng.below(256);
            assert_eq!(map.contains(probe), model.contains(&probe));
            let word = map.word_at(probe);
            for i in 0..64 {
                assert_eq!(word >> i & 1 == 1, map.contains(probe + i), "{probe} + {i}");
            }
        }
    }
}
