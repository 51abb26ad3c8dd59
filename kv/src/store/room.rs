//! How many bytes a store has in use, and how many it may have.

use crate::limits::ENTRY_COST_BYTES;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use towpath_base::Time;

/// What a store has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Keys that are there, those included that have expired and were not found to have.
    pub keys: u64,
    /// Bytes in use, with what each entry costs.
    pub bytes: u64,
    /// Bytes that may be in use.
    pub bytes_max: u64,
    /// Entries that were evicted.
    pub evicted: u64,
    /// Entries that expired and were removed.
    pub expired: u64,
    /// Changes that were refused for want of room.
    pub refused: u64,
}

/// The count of bytes and keys, shared by threads.
#[derive(Debug)]
pub(super) struct Room {
    bytes: AtomicU64,
    bytes_max: AtomicU64,
    keys: AtomicU64,
    /// Whether an entry may be there that expires.
    has_expiring: AtomicBool,
    pub(super) evicted: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) refused: AtomicU64,
}

/// Bytes that an entry counts for.
pub(super) fn cost(key: &[u8], value: &[u8]) -> u64 {
    key.len() as u64 + value.len() as u64 + ENTRY_COST_BYTES
}

impl Room {
    pub(super) fn new(bytes_max: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            bytes: zero(),
            bytes_max: AtomicU64::new(bytes_max),
            keys: zero(),
            has_expiring: AtomicBool::new(false),
            evicted: zero(),
            expired: zero(),
            refused: zero(),
        }
    }

    pub(super) fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Takes bytes, unless that would be too many.
    fn take(&self, bytes: u64) -> bool {
        let max = self.bytes_max.load(Relaxed);
        let more = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= max);
        bytes == 0 || self.bytes.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// An entry of this cost is there no more.
    pub(super) fn forget(&self, cost: u64) {
        self.give_back(cost);
        self.keys.fetch_sub(1, Relaxed);
    }

    /// An entry that expires then is there.
    pub(super) fn note_expiry(&self, expires: Time) {
        if expires != Time::NEVER && !self.has_expiring.load(Relaxed) {
            self.has_expiring.store(true, Relaxed);
        }
    }

    /// Whether entries must be looked through for those that have expired. Who does notes those
    /// that are left.
    pub(super) fn take_expiring(&self) -> bool {
        self.has_expiring.swap(false, Relaxed)
    }

    pub(super) fn figures(&self) -> Figures {
        Figures {
            keys: self.keys.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            bytes_max: self.bytes_max.load(Relaxed),
            evicted: self.evicted.load(Relaxed),
            expired: self.expired.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }
}

/// Bytes taken for a change that is not made yet; given back if it never is.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    room: &'a Room,
    bytes: u64,
}

impl<'a> Claim<'a> {
    pub(super) fn new(room: &'a Room) -> Self {
        Self { room, bytes: 0 }
    }

    /// Claims at least what replacing `old` by `new` takes. It never gives back what was claimed
    /// before: the table may yet make a change that it computed earlier.
    pub(super) fn cover(&mut self, old: u64, new: u64) -> bool {
        let bytes = new.saturating_sub(old);
        if bytes > self.bytes {
            if !self.room.take(bytes - self.bytes) {
                return false;
            }
            self.bytes = bytes;
        }
        true
    }

    /// The change was made: an entry of `new` stands where one of `old` did, or none.
    pub(super) fn keep(mut self, old: Option<u64>, new: u64) {
        let claimed = std::mem::take(&mut self.bytes);
        debug_assert!(claimed >= new.saturating_sub(old.unwrap_or_default()), "not covered");
        self.room.give_back((claimed + old.unwrap_or_default()).saturating_sub(new));
        if old.is_none() {
            self.room.keys.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.room.give_back(self.bytes);
    }
}
