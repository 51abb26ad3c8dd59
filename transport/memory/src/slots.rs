//! Who has the bytes of each slot of a mapping: its owner, devices, or readers on both sides.
//!
//! One word for each slot. Its owner lends the slot, a device takes a hold on it for each entry of
//! a work request that names it, and the owner gets the slot back only while there is no hold.
//! Whoever asks for a hold on a slot that is not lent is refused, so that a gather entry, which is
//! only numbers, gives no access to memory that somebody has as a slice.

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
    /// Where the slot of an offset is found by a shift.
    shift: Option<u32>,
    words: Box<[AtomicU64]>,
}

/// The state of one slot.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'s>(&'s AtomicU64);

impl Slots {
    /// All of a mapping of which no buffers are made: it is lent to devices.
    pub(crate) fn whole(bytes: usize) -> Self {
        Self::new(bytes, 1, OPEN)
    }

    /// Buffers, which have their owners.
    pub(crate) fn carved(slot_bytes: usize, count: usize) -> Self {
        Self::new(slot_bytes, count, 0)
    }

    fn new(slot_bytes: usize, count: usize, word: u64) -> Self {
        let shift = slot_bytes.is_power_of_two().then(|| slot_bytes.trailing_zeros());
        Self { slot_bytes, shift, words: (0..count).map(|_| AtomicU64::new(word)).collect() }
    }

    /// The slot by its number, which is one of those that there are.
    #[inline]
    pub(crate) fn at(&self, number: u32) -> Slot<'_> {
        Slot(&self.words[number as usize])
    }

    /// The number of the slot that has all of `len` bytes at `offset`, one at least.
    #[inline]
    pub(crate) fn find(&self, offset: usize, len: usize) -> Option<u32> {
        let number = match self.shift {
            Some(shift) => offset >> shift,
            None => offset / self.slot_bytes,
        };
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
fn is_owned(word: u64) -> bool {
    let is_read = word & READING > 0 && word >= PART;
    word & (HOLDS | OPEN) == 0 && !is_read
}

impl Slot<'_> {
    /// Lends a slot that its owner has; false when a device still holds it, or parts are out.
    #[inline]
    pub(crate) fn lend(self, lending: Lending) -> bool {
        if !is_owned(self.0.load(Ordering::Acquire)) {
            return false;
        }
        let word = match lending {
            Lending::Once => OPEN | ONCE,
            Lending::Many => OPEN,
            Lending::Reading => OPEN | READING,
        };
        // Nobody but the owner changes the word of an owned slot. What the owner has written is
        // seen by whoever takes a hold.
        self.0.store(word, Ordering::Release);
        true
    }

    /// Gives the slot back to its owner; false while a device holds it, or a part is out. What the
    /// devices have done is seen after it.
    #[inline]
    pub(crate) fn take_back(self) -> bool {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if is_owned(word) {
                return true;
            }
            if word & HOLDS > 0 || word & OPEN == 0 {
                return false;
            }
            match self.0.compare_exchange_weak(word, 0, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Takes a hold for `holder`, which will `write`; false where the slot is not lent for that.
    #[inline]
    pub(crate) fn hold(self, holder: u32, write: bool) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let Some(held) = held_once_more(word, holder, write) else { return false };
            match self.0.compare_exchange_weak(word, held, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Gives a hold up.
    #[inline]
    pub(crate) fn release(self) {
        let before = self.0.fetch_sub(1, Ordering::Release);
        debug_assert!(before & HOLDS > 0, "each hold is given up once");
    }

    /// A part of a buffer that its owner has goes out to readers, devices among them; false when
    /// the buffer is lent.
    pub(crate) fn begin_part(self) -> bool {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let is_read = word & (READING | OPEN) == READING;
            if !is_read && !is_owned(word) {
                return false;
            }
            let more = if is_read { word + PART } else { READING | PART };
            match self.0.compare_exchange_weak(word, more, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// A part is not out any more; false when no other is and a device reads the buffer still.
    pub(crate) fn end_part(self) -> bool {
        let word = self.0.fetch_sub(PART, Ordering::Release) - PART;
        word >= PART || word & HOLDS == 0
    }
}

/// The word with one hold more, where that may be had.
#[inline]
fn held_once_more(word: u64, holder: u32, write: bool) -> Option<u64> {
    let holds = word & HOLDS;
    if word & READING > 0 {
        let is_lent = word & OPEN > 0 || holds > 0 || word >= PART;
        return (is_lent && !write && holds < HOLDS).then_some(word + 1);
    }
    if holds > 0 {
        let is_ours = word >> UPPER_BITS == u64::from(holder);
        return (is_ours && holds < HOLDS).then_some(word + 1);
    }
    let first = u64::from(holder) << UPPER_BITS | 1;
    match word & (OPEN | ONCE) {
        OPEN => Some(first | OPEN),
        0 | ONCE => None,
        _ => Some(first),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
