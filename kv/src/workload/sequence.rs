//! The keys that there are while clients insert more.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The numbers of keys, which all clients share. A key may be read when it and all before it were
/// inserted.
#[derive(Debug)]
pub struct Sequence {
    next: AtomicU64,
    /// Keys below this are all there.
    there: AtomicU64,
    /// Keys beyond that are there before one that is not: as many as inserts are under way at most.
    early: Mutex<BTreeSet<u64>>,
}

impl Sequence {
    /// Of which the keys below `there` are there.
    #[must_use]
    pub fn new(there: u64) -> Self {
        let early = Mutex::new(BTreeSet::new());
        Self { next: AtomicU64::new(there), there: AtomicU64::new(there), early }
    }

    /// The number of a key that nobody had.
    pub fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// This key is there now.
    pub fn inserted(&self, key: u64) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let mut there = self.there.load(Ordering::Relaxed);
        if key >= there {
            early.insert(key);
        }
        while early.remove(&there) {
            there += 1;
        }
        self.there.store(there, Ordering::Release);
    }

    /// All keys below this are there.
    pub fn there(&self) -> u64 {
        self.there.load(Ordering::Acquire)
    }
}
