//! The free slots of a pool: a stack without locks, so that the slot freed last is the next taken.
//!
//! What was freed last is still in the cache; a queue would walk through all of the pool's memory.

use crate::sync::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::atomic::Ordering;

/// Not a slot: the end of the list.
const END: u32 = u32::MAX;

/// A stack of slot numbers.
///
/// The head holds the top slot and a tag that every change counts up: a thread that read an old
/// head cannot put it back, even when the same slot is on top again (the ABA problem; it would
/// take 2^32 changes between a read and its exchange).
pub(crate) struct FreeSlots {
    head: AtomicU64,
    /// What lies below each slot that is on the stack.
    below: Box<[AtomicU32]>,
    len: AtomicUsize,
}

impl FreeSlots {
    /// All of `count` slots are free; slot 0 is on top.
    pub(crate) fn full(count: u32) -> Self {
        debug_assert!(count > 0 && count < END);
        let below = (1..=count).map(|next| AtomicU32::new(if next < count { next } else { END }));
        Self {
            head: AtomicU64::new(0),
            below: below.collect(),
            len: AtomicUsize::new(count as usize),
        }
    }

    /// Takes the slot that was freed last.
    pub(crate) fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let slot = head as u32;
            let below = self.below.get(slot as usize)?.load(Ordering::Relaxed);
            match self.swap_head(head, below) {
                Ok(()) => {
                    self.len.fetch_sub(1, Ordering::Relaxed);
                    return Some(slot);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Frees a slot that was taken.
    pub(crate) fn push(&self, slot: u32) {
        // Counted first, so that no pop of this slot makes the count run below zero.
        self.len.fetch_add(1, Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            self.below[slot as usize].store(head as u32, Ordering::Relaxed);
            match self.swap_head(head, slot) {
                Ok(()) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Puts `slot` on top if the head is still `head`; else says what it is now. The release half
    /// publishes the slot's bytes and what lies below it to whoever takes it. All are in one order
    /// with [`is_empty`](Self::is_empty), so that whoever waits for a slot misses none.
    fn swap_head(&self, head: u64, slot: u32) -> Result<(), u64> {
        let tag = (head >> 32).wrapping_add(1) << 32;
        let new = tag | u64::from(slot);
        self.head.compare_exchange_weak(head, new, Ordering::SeqCst, Ordering::Acquire).map(|_| ())
    }

    /// Whether no slot is free.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst) as u32 == END
    }

    /// How many are free; a moment's view while other threads take and free.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// How many slots there are, free or not.
    pub(crate) fn count(&self) -> usize {
        self.below.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_slot_freed_last_is_taken_next() {
        let free = FreeSlots::full(3);
        assert_eq!((free.pop(), free.pop(), free.len()), (Some(0), Some(1), 1));
        free.push(0);
        assert_eq!((free.pop(), free.pop(), free.pop()), (Some(0), Some(2), None));
        free.push(2);
        assert_eq!((free.len(), free.count(), free.pop()), (1, 3, Some(2)));
    }

    #[test]
    fn no_slot_is_ever_out_twice_with_threads_taking_and_freeing() {
        let (free, rounds) = (FreeSlots::full(8), if cfg!(miri) { 100 } else { 20_000 });
        let out: Vec<AtomicBool> = (0..8).map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let Some(slot) = free.pop() else { continue };
                        assert!(!out[slot as usize].swap(true, Ordering::AcqRel));
                        out[slot as usize].store(false, Ordering::Release);
                        free.push(slot);
                    }
                });
            }
        });
        assert_eq!(free.len(), 8);
        assert_eq!(std::iter::from_fn(|| free.pop()).count(), 8);
    }
}
