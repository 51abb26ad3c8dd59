//! The keys of a store in a ring, by which the least recently used are found, approximately.
//!
//! A hand goes around (the algorithm CLOCK): what was used since the hand last came by stays, what
//! was not is evicted. Only new keys, removals and evictions take its lock.

use slab::Slab;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The place of a key in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(NonZeroU32);

/// The ring.
#[derive(Debug, Default)]
pub(super) struct Ring(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    keys: Slab<Arc<[u8]>>,
    hand: usize,
}

impl Slot {
    /// Of a place; none beyond what 32 bits number: four thousand million keys.
    fn of(place: usize) -> Option<Self> {
        u32::try_from(place).ok()?.checked_add(1).and_then(NonZeroU32::new).map(Self)
    }

    fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl Ring {
    fn keys(&self) -> MutexGuard<'_, Keys> {
        // Nothing that is done under the lock leaves it half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a key; none where there are more than any memory holds.
    pub(super) fn add(&self, key: &[u8]) -> Option<Slot> {
        let mut keys = self.keys();
        let slot = Slot::of(keys.keys.vacant_key())?;
        keys.keys.insert(key.into());
        Some(slot)
    }

    /// Whoever took a key out of the table takes its slot out of here, once.
    pub(super) fn remove(&self, slot: Slot) {
        self.keys().keys.try_remove(slot.place());
    }

    /// Moves the hand to the next key.
    pub(super) fn next(&self) -> Option<(Slot, Arc<[u8]>)> {
        let mut keys = self.keys();
        let Keys { keys, hand } = &mut *keys;
        if keys.is_empty() {
            return None;
        }
        // Where most places are free this is long, but as many keys were removed before.
        let places = keys.capacity();
        let found =
            (0..places).map(|step| (*hand + step) % places).find(|&at| keys.contains(at))?;
        *hand = (found + 1) % places;
        Some((Slot::of(found)?, Arc::clone(keys.get(found)?)))
    }
}
