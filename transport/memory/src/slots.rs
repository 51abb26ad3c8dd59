//! Who has the bytes of each slot of a mapping: its owner, devices, or readers on both sides.
//!
//! One word for each slot. Its owner lends the slot, a device takes a hold on it for each entry of
//! a work request that names it, and the owner gets the slot back only while there is no hold.
//! Whoever asks for a hold on a slot that is not lent is refused, so that a gather entry, which is
//! only numbers, gives no access to memory that somebody has as a slice.
//!
//! The owner of a slot writes its word by plain stores. Words of slots that are lent are changed by
//! way of their [`Home`], which takes no atomic step while one thread alone does so.

use crate::home::Home;
use crate::sync::AtomicU64;
use std::sync::atomic::Ordering;

/// Bits that count holds: more than all queues of a process have room for.
const HOLDS: u64 = (1 << 29) - 1;

/// The first hold ends the lending for all but its device: when the last hold is gone the slot is
/// its owner's, who then need not write the word to get it back.
const ONCE: u64 = 1 << 29;

/// Devices may take a hold though there is none.
const OPEN: u64 = 1 << 30;

/// All may read and nobody may write. Without it one device at a time may do both: two would write
/// from two threads.
const READING: u64 = 1 << 31;

/// From here on: who holds it, or, while all may read, how many parts of it are out.
const UPPER_BITS: u32 = 32;
const PART: u64 = 1 << UPPER_BITS;

/// What devices may do with a slot that is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lending {
    /// One device, until all of its holds are gone.
    Once,
    /// One device at a time, until it is taken back.
    Many,
    /// Any device may read it until it is taken back.
    Reading,
}

/// The slots of a mapping.
pub(crate) struct Slots {
    slot_bytes: usize,
    /// Of the slot's bytes, which are `odd << shift`.
    shift: u32,
    /// 2^64 / `odd`, less than that: multiplies in place of a division.
    inverse: u64,
    words: Box<[AtomicU64]>,
    home: Home,
}

/// The state of one slot.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'s> {
    word: &'s AtomicU64,
    home: &'s Home,
}

impl Slots {
    /// All of a mapping of which no buffers are made: it is lent to devices.
    pub(crate) fn whole(bytes: usize) -> Self {
        Self::new(bytes, 1, OPEN)
    }

    /// Buffers, which have their owners.
    pub(crate) fn carved(slot_bytes: usize, count: usize) -> Self {
        Self::new(slot_bytes, count, 0)
    }

    /// The same where all threads share the words from the beginning.
    #[cfg(all(loom, test))]
    pub(crate) fn shared(self) -> Self {
        Self { home: Home::shared(), ..self }
    }

    fn new(slot_bytes: usize, count: usize, word: u64) -> Self {
        let shift = slot_bytes.trailing_zeros();
        let inverse = u64::MAX / (slot_bytes as u64 >> shift);
        let words = (0..count).map(|_| AtomicU64::new(word)).collect();
        Self { slot_bytes, shift, inverse, words, home: Home::new() }
    }

    /// The slot by its number, which is one of those that there are.
    #[inline]
    pub(crate) fn at(&self, number: u32) -> Slot<'_> {
        Slot { word: &self.words[number as usize], home: &self.home }
    }

    /// The number of the slot that has all of `len` bytes at `offset`, one at least.
    #[inline]
    pub(crate) fn find(&self, offset: usize, len: usize) -> Option<u32> {
        // With n = offset >> shift and e = 2^64 - inverse * odd, between 1 and odd, the product is
        // (n + 1) / odd - (n + 1) * e / odd / 2^64 of 2^64, and what is taken off is less than
        // 1 / odd as long as (n + 1) * odd is below 2^64: its whole part is that of n / odd.
        let product = u128::from((offset as u64 >> self.shift) + 1) * u128::from(self.inverse);
        let number = (product >> u64::BITS) as usize;
        let within = offset - number * self.slot_bytes;
        let fits = number < self.words.len() && len <= self.slot_bytes - within;
        fits.then_some(number as u32)
    }

    /// Whether a device has a hold on any of them.
    pub(crate) fn any_held(&self) -> bool {
        self.words.iter().any(|word| word.load(Ordering::Acquire) & HOLDS > 0)
    }
}

/// Whether the owner has it.
#[inline]
fn is_owned(word: u64) -> bool {
    // What was not lent for reading may still name who held it.
    word & (HOLDS | OPEN) == 0 && (word & READING == 0 || word < PART)
}

impl Slot<'_> {
    /// Lends a slot that its owner has; false when a device still holds it, or parts are out.
    #[inline]
    pub(crate) fn lend(self, lending: Lending) -> bool {
        if !is_owned(self.word.load(Ordering::Acquire)) {
            return false;
        }
        let word = match lending {
            Lending::Once => OPEN | ONCE,
            Lending::Many => OPEN,
            Lending::Reading => OPEN | READING,
        };
        // Nobody but the owner changes the word of an owned slot. What the owner has written is
        // seen by whoever takes a hold.
        self.word.store(word, Ordering::Release);
        true
    }

    /// Gives the slot back to its owner; false while a device holds it, or a part is out. What the
    /// devices have done is seen after it.
    #[inline]
    pub(crate) fn take_back(self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        if is_owned(word) || word & HOLDS > 0 || word & OPEN == 0 {
            return is_owned(word);
        }
        let closed = |word| (word & HOLDS == 0 && word & OPEN > 0).then_some(0);
        let is_closed = self.home.update(self.word, closed).is_some();
        is_closed || is_owned(self.word.load(Ordering::Acquire))
    }

    /// Takes a hold for `holder`, which will `write`; false where the slot is not lent for that.
    #[inline]
    pub(crate) fn hold(self, holder: u32, write: bool) -> bool {
        self.home.update(self.word, move |word| held_once_more(word, holder, write)).is_some()
    }

    /// Gives a hold up.
    #[inline]
    pub(crate) fn release(self) {
        let before = self.home.update(self.word, |word| Some(word.wrapping_sub(1)));
        debug_assert!(before.is_some_and(|word| word & HOLDS > 0), "a hold is given up once");
    }

    /// Runs `read`, which reads the slot, with a hold of `holder` for as long as that takes; false,
    /// without running it, where the slot is not lent for that. Such a hold does not end a lending:
    /// several entries of a work request may name a slot.
    #[inline]
    pub(crate) fn read_by(self, holder: u32, mut read: impl FnMut()) -> bool {
        let at_home = self.home.at_home(|| {
            // Nobody else changes the word meanwhile: the hold need not be counted.
            let word = self.word.load(Ordering::Acquire);
            let may_read = held_once_more(word, holder, false).is_some();
            if may_read {
                read();
            }
            may_read
        });
        at_home.unwrap_or_else(|| self.read_from_elsewhere(holder, read))
    }

    /// The same by a hold that is counted.
    #[inline(never)]
    fn read_from_elsewhere(self, holder: u32, mut read: impl FnMut()) -> bool {
        let counted = |word| {
            let held = held_once_more(word, holder, false)?;
            Some(held | word & OPEN)
        };
        let is_held = self.home.update(self.word, counted).is_some();
        if is_held {
            read();
            self.release();
        }
        is_held
    }

    /// A part of a buffer that its owner has goes out to readers, devices among them; false when
    /// the buffer is lent.
    pub(crate) fn begin_part(self) -> bool {
        let with_part = |word| {
            let is_read = word & (READING | OPEN) == READING;
            let first = is_owned(word).then_some(READING | PART);
            if is_read { Some(word + PART) } else { first }
        };
        self.home.update(self.word, with_part).is_some()
    }

    /// A part is not out any more; false when no other is and a device reads the buffer still.
    pub(crate) fn end_part(self) -> bool {
        let before = self.home.update(self.word, |word| Some(word.wrapping_sub(PART)));
        before.is_some_and(|before| before - PART >= PART || before & HOLDS == 0)
    }
}

/// The word with one hold more, where that may be had.
#[inline]
fn held_once_more(word: u64, holder: u32, write: bool) -> Option<u64> {
    let holds = word & HOLDS;
    if word & (HOLDS | OPEN | READING) == OPEN {
        // With `ONCE`, which is the bit below, it is not open any more.
        let open = word & OPEN & !((word & ONCE) << 1);
        return Some(u64::from(holder) << UPPER_BITS | open | 1);
    }
    let may_hold = if word & READING > 0 {
        let is_lent = word & OPEN > 0 || holds > 0 || word >= PART;
        is_lent && !write
    } else {
        holds > 0 && word >> UPPER_BITS == u64::from(holder)
    };
    (may_hold && holds < HOLDS).then_some(word + 1)
}

const _: () = assert!(ONCE << 1 == OPEN);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_an_offset_is_the_one_that_a_division_finds() {
        for slot_bytes in [1, 3, 64, 4096, 3 * 4096, 57_344, 1_052_672, 4_294_963_200, 1 << 40] {
            let slots = Slots::carved(slot_bytes, 7);
            let edges = (0..8).map(|number| number * slot_bytes);
            for offset in edges.flat_map(|edge| [edge.saturating_sub(1), edge, edge + 1]) {
                let number = (offset / slot_bytes) as u32;
                let expected = Some(number).filter(|&number| number < 7);
                assert_eq!(slots.find(offset, 1), expected, "{offset} of {slot_bytes}");
            }
        }
    }

    fn slot() -> Slots {
        Slots::carved(64, 1)
    }

    #[test]
    fn a_slot_that_is_not_lent_is_held_by_nobody() {
        let slots = slot();
        let slot = slots.at(0);
        assert!(!slot.hold(1, false) && !slot.hold(1, true));
        for lending in [Lending::Once, Lending::Many, Lending::Reading] {
            assert!(slot.lend(lending) && !slot.lend(lending), "{lending:?}");
            assert!(slot.take_back());
            assert!(!slot.hold(1, false), "{lending:?}");
        }
    }

    #[test]
    fn a_slot_comes_back_only_when_the_last_hold_is_gone() {
        for lending in [Lending::Once, Lending::Many, Lending::Reading] {
            let slots = slot();
            let slot = slots.at(0);
            assert!(slot.lend(lending));
            assert!(slot.hold(1, false) && slot.hold(1, false), "{lending:?}");
            slot.release();
            assert!(!slot.take_back() && !slot.lend(lending) && slots.any_held(), "{lending:?}");
            slot.release();
            let again = slot.hold(1, false);
            assert_eq!(again, lending != Lending::Once, "{lending:?}");
            if again {
                slot.release();
            }
            assert!(slot.take_back() && !slots.any_held() && slot.lend(lending), "{lending:?}");
        }
    }

    #[test]
    fn one_device_at_a_time_writes_and_nobody_what_all_read() {
        let slots = slot();
        let slot = slots.at(0);
        assert!(slot.lend(Lending::Many) && slot.hold(1, true));
        assert!(!slot.hold(2, false) && slot.hold(1, false));
        (0..2).for_each(|_| slot.release());
        assert!(slot.hold(2, true), "the other is done");
        slot.release();
        assert!(slot.take_back() && slot.lend(Lending::Reading));
        assert!(slot.hold(1, false) && slot.hold(2, false) && !slot.hold(1, true));
    }

    #[test]
    fn parts_are_read_by_devices_and_the_last_of_them_tells_of_holds() {
        let slots = slot();
        let slot = slots.at(0);
        assert!(slot.begin_part() && slot.begin_part());
        assert!(!slot.lend(Lending::Once) && !slot.take_back() && !slot.hold(1, true));
        assert!(slot.hold(1, false));
        assert!(slot.end_part(), "another part is out");
        assert!(!slot.end_part(), "a device reads it");
        slot.release();
        assert!(!slot.hold(1, false));
        assert!(slot.lend(Lending::Once) && !slot.begin_part());
    }

    #[test]
    fn a_range_is_of_one_slot_or_of_none() {
        for slot_bytes in [64, 3 * 4096] {
            let slots = Slots::carved(slot_bytes, 3);
            for number in 0..3 {
                let start = number * slot_bytes;
                assert_eq!(slots.find(start, slot_bytes), Some(number as u32));
                assert_eq!(slots.find(start + slot_bytes - 1, 1), Some(number as u32));
                assert_eq!(slots.find(start + 1, slot_bytes), None);
            }
            assert_eq!(slots.find(3 * slot_bytes, 1), None);
        }
    }
}
