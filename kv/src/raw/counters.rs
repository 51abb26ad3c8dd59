//! What a server counts of its queue pairs, beside what every server counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counts, over all threads.
#[derive(Debug, Default)]
pub struct RawCounters {
    pub(super) failed: AtomicU64,
    pub(super) strangers: AtomicU64,
    pub(super) oversized: AtomicU64,
    pub(super) too_long: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) wakes: AtomicU64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawCounted {
    /// Clients whose queue pair failed.
    pub failed: u64,
    /// Datagrams of nobody who has connected, dropped.
    pub strangers: u64,
    /// Datagrams that are longer than any that the server takes, dropped.
    pub oversized: u64,
    /// Replies that the transport does not carry, and errors in place of them.
    pub too_long: u64,
    /// Clients that were refused, whatever the reason, or said nothing in time.
    pub refused: u64,
    /// Times that a thread which slept was woken, by a message or a client that came or went.
    pub wakes: u64,
}

pub(super) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}

impl RawCounters {
    /// What was counted.
    #[must_use]
    pub fn counted(&self) -> RawCounted {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        RawCounted {
            failed: of(&self.failed),
            strangers: of(&self.strangers),
            oversized: of(&self.oversized),
            too_long: of(&self.too_long),
            refused: of(&self.refused),
            wakes: of(&self.wakes),
        }
    }
}
