//! MULTI and WATCH: commands that wait for EXEC, and keys whose change forbids it.

use crate::limits::{
    KEY_BYTES_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_COMMANDS_MAX, WATCHED_KEYS_MAX,
};
use crate::store::Store;
use std::fmt;
use std::sync::Arc;
use towpath_base::Time;

/// The commands since MULTI.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Their bytes, as they came.
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
    /// One of them was none: EXEC carries out nothing.
    pub(super) is_aborted: bool,
}

impl Queue {
    /// Adds a command; false, and it is aborted, where there are too many.
    pub(super) fn push(&mut self, command: &[u8]) -> bool {
        let fits = self.bytes.len() + command.len() <= TRANSACTION_BYTES_MAX
            && self.count < TRANSACTION_COMMANDS_MAX;
        if !fits {
            *self = Self { is_aborted: true, ..Self::default() };
        } else if !self.is_aborted {
            self.bytes.extend_from_slice(command);
            self.count += 1;
        }
        fits
    }

    /// EXEC carries out nothing.
    pub(super) fn abort(&mut self) {
        *self = Self { is_aborted: true, ..Self::default() };
    }
}

/// Keys whose changes are counted until this is dropped.
pub(super) struct Watch {
    store: Arc<dyn Store>,
    keys: Vec<Watched>,
}

/// A key, and what it was when it was first watched.
struct Watched {
    key: Box<[u8]>,
    changes: u64,
    was_there: bool,
}

impl Watch {
    /// Watches nothing yet. Whoever makes it is alone with the store, and whoever adds and asks.
    pub(super) fn new(store: &Arc<dyn Store>) -> Self {
        store.gate().watch();
        Self { store: Arc::clone(store), keys: Vec::new() }
    }

    /// Adds a key; false where there are too many.
    pub(super) fn add(&mut self, key: &[u8], now: Time) -> bool {
        // One that is longer than any is never there, and is not kept for that.
        let is_watched = |watched: &Watched| *watched.key == *key;
        if key.len() > KEY_BYTES_MAX || self.keys.iter().any(is_watched) {
            return true;
        }
        if self.keys.len() >= WATCHED_KEYS_MAX {
            return false;
        }
        let changes = self.store.gate().changes(key);
        let was_there = self.store.get(key, now, &mut |_| ());
        self.keys.push(Watched { key: key.into(), changes, was_there });
        true
    }

    /// Whether no key was changed, and none has expired or was evicted.
    pub(super) fn holds(&self, now: Time) -> bool {
        self.keys.iter().all(|Watched { key, changes, was_there }| {
            self.store.gate().changes(key) == *changes
                && (!was_there || self.store.get(key, now, &mut |_| ()))
        })
    }

    /// Bytes of memory that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(|watched| watched.key.len()).sum();
        keys + self.keys.capacity() * size_of::<Watched>()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.store.gate().unwatch();
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}
