//! Several operations as one: nothing else happens to the store between them.
//!
//! An operation on one key needs no gate: it takes effect at one moment by itself. A transaction
//! excludes all others while it runs. So each thread that serves requests holds a lock of its own
//! while it does, which costs it nothing that other threads notice, and a transaction takes the
//! locks of all.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks: more than most machines have threads that serve; where there are more threads, some
/// share one.
const LOCKS: usize = 64;

/// Counts of changes: with few watched keys hardly two share one.
const COUNTS: usize = 1024;

/// A lock in memory that no other lock is near: threads would take it from each other's caches.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lock(RwLock<()>);

/// The gate of a store.
#[derive(Debug)]
pub struct Gate {
    locks: Box<[Lock]>,
    /// Those that want changes to be counted.
    watchers: AtomicUsize,
    /// How often a key changed, of all keys that share the place.
    changes: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            locks: (0..LOCKS).map(|_| Lock::default()).collect(),
            watchers: AtomicUsize::new(0),
            changes: (0..COUNTS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }
}

/// A thread's place among the locks.
fn place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static PLACE: Cell<usize> = const { Cell::new(usize::MAX) });
    PLACE.with(|place| {
        if place.get() == usize::MAX {
            place.set(NEXT.fetch_add(1, Relaxed) % LOCKS);
        }
        place.get()
    })
}

impl Gate {
    /// Lets a thread work on the store, until it drops this, beside others that do. A thread has
    /// one at a time: a second may wait for a transaction that waits for the first.
    #[must_use]
    pub fn enter(&self) -> Pass<'_> {
        Pass { gate: self, shared: Some(self.share()), is_alone: false }
    }

    fn share(&self) -> RwLockReadGuard<'_, ()> {
        // Nothing is behind the lock that a panic could have left half done.
        self.locks[place()].0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each thread takes them in the same order, and has none before.
    fn take_all(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        let locks = self.locks.iter();
        locks.map(|lock| lock.0.write().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    fn count_of(&self, key: &[u8]) -> &AtomicU64 {
        &self.changes[self.hasher.hash_one(key) as usize % COUNTS]
    }

    /// Has changes counted until [`unwatch`](Self::unwatch). Whoever calls it is
    /// [`alone`](Pass::alone): no change that is under way goes uncounted.
    pub(crate) fn watch(&self) {
        self.watchers.fetch_add(1, Relaxed);
    }

    /// The other end of [`watch`](Self::watch).
    pub(crate) fn unwatch(&self) {
        self.watchers.fetch_sub(1, Relaxed);
    }

    /// How often a key, or one that shares its place, changed while somebody watched.
    pub(crate) fn changes(&self, key: &[u8]) -> u64 {
        self.count_of(key).load(Relaxed)
    }

    /// A key was put or removed.
    pub(super) fn note_change(&self, key: &[u8]) {
        // Whoever begins to watch is alone: a change is before that, or sees that it watches.
        if self.watchers.load(Relaxed) > 0 {
            self.count_of(key).fetch_add(1, Relaxed);
        }
    }

    /// All keys were removed.
    pub(super) fn note_clear(&self) {
        if self.watchers.load(Relaxed) > 0 {
            for count in &self.changes {
                count.fetch_add(1, Relaxed);
            }
        }
    }
}

/// The right to work on a store.
#[derive(Debug)]
pub struct Pass<'a> {
    gate: &'a Gate,
    shared: Option<RwLockReadGuard<'a, ()>>,
    is_alone: bool,
}

impl Pass<'_> {
    /// Does something while no other thread that entered works on the store.
    pub fn alone<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        if self.is_alone {
            return work(self);
        }
        self.shared = None;
        let all = self.gate.take_all();
        self.is_alone = true;
        let done = work(self);
        self.is_alone = false;
        drop(all);
        self.shared = Some(self.gate.share());
        done
    }
}
