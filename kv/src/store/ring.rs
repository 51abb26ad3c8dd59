//! The keys of a store in a ring, by which the least recently used are found, approximately.
//!
//! A hand goes around (the algorithm CLOCK): what was used since the hand last came by stays, what
//! was not is evicted. Only new keys, removals and evictions take its lock.

use slab::Slab;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The place of a key in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(usize);

/// The ring.
#[derive(Debug, Default)]
pub(super) struct Ring(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    keys: Slab<Arc<[u8]>>,
    hand: usize,
}

impl Ring {
    fn keys(&self) -> MutexGuard<'_, Keys> {
        // Nothing that is done under the lock leaves it half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a key, behind the hand where a place is free there.
    pub(super) fn add(&self, key: &[u8]) -> Slot {
        Slot(self.keys().keys.insert(key.into()))
    }

    /// Whoever took a key out of the table takes its slot out of here, once.
    pub(super) fn remove(&self, slot: Slot) {
        self.keys().keys.try_remove(slot.0);
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
        keys.get(found).map(|key| (Slot(found), Arc::clone(key)))
    }
}
