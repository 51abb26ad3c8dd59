//! The moving bitmap against a plain set, driven by operations read from the input.

use crate::class;
use std::collections::BTreeSet;
use towpath_base::WindowBitmap;

/// Where the window starts: near a 32-bit wrap, so that crossing it is common.
const BASE: u64 = u32::MAX as u64 - 200;
const SPAN: usize = 256;

/// Most operations of one input: enough to pass the window several times over.
const OPERATIONS_MAX: usize = 512;

/// Three bytes are one operation: a kind and a 16-bit distance from the base.
pub(crate) fn run(input: &[u8]) -> u64 {
    let mut map = WindowBitmap::new(BASE, SPAN);
    let mut model = Model { base: BASE, set: BTreeSet::new() };
    let (mut fresh, mut refused) = (0, 0);
    for operation in input.as_chunks::<3>().0.iter().take(OPERATIONS_MAX) {
        let [kind, low, high] = *operation;
        let number = map.base() + u64::from(u16::from_le_bytes([low, high]) % 600);
        if kind & 0x0f == 0 {
            map.advance_to(number);
            model.advance_to(number);
        } else {
            let inserted = map.insert(number);
            assert_eq!(inserted, model.insert(number), "insert {number}");
            fresh += u64::from(inserted);
            refused += u64::from(!inserted);
        }
        assert_eq!(map.base(), model.base, "base after {kind:#x} {number}");
        let word = map.word_at(number);
        for i in 0..64 {
            let expected = model.contains(number + i);
            assert_eq!(map.contains(number + i), expected, "contains {number} + {i}");
            assert_eq!(word >> i & 1 == 1, expected, "word at {number} + {i}");
        }
    }
    let log = |count: u64| u64::from(count.checked_ilog2().map_or(0, |log| log + 1));
    class(&[log(fresh), log(refused), log(map.base() - BASE), model.set.len() as u64 / 16])
}

/// What the bitmap is meant to be.
struct Model {
    base: u64,
    set: BTreeSet<u64>,
}

impl Model {
    fn contains(&self, number: u64) -> bool {
        number < self.base || self.set.contains(&number)
    }

    fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) || number - self.base >= SPAN as u64 {
            return false;
        }
        self.set.insert(number);
        self.advance_to(self.base);
        true
    }

    fn advance_to(&mut self, base: u64) {
        self.base = self.base.max(base);
        self.set = self.set.split_off(&self.base);
        while self.set.remove(&self.base) {
            self.base += 1;
        }
    }
}
