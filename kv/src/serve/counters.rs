//! What a server counts, over all threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counts.
#[derive(Debug, Default)]
pub struct Counters {
    pub(super) connected: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) slow: AtomicU64,
    pub(super) tls_failed: AtomicU64,
    pub(super) crowded: AtomicU64,
    /// Bytes that connections hold beyond the share of each.
    pub(super) buffers: AtomicU64,
    connected_max: AtomicU64,
    /// Connections that were numbered.
    numbered: AtomicU64,
}

/// What a server has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Connections now.
    pub connected: u64,
    /// Connections that there may be.
    pub connected_max: u64,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were not, because there were as many as may be, or as many handshakes.
    pub turned_away: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Connections that were closed for what has no meaning.
    pub malformed: u64,
    /// Connections that were closed because the client was too slow.
    pub slow: u64,
    /// Connections that ended before their TLS handshake was over.
    pub tls_failed: u64,
    /// Connections that were closed because all together held too many bytes.
    pub crowded: u64,
}

pub(super) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}

impl Counters {
    /// None yet, of a server that takes so many connections.
    #[must_use]
    pub fn new(connected_max: usize) -> Self {
        Self { connected_max: AtomicU64::new(connected_max as u64), ..Self::default() }
    }

    /// Connections that there may be.
    pub(super) fn connected_max(&self) -> u64 {
        self.connected_max.load(Relaxed)
    }

    /// Counts a connection, unless there are as many as may be.
    pub(crate) fn connect(&self) -> bool {
        let max = self.connected_max.load(Relaxed);
        let more = |connected| (connected < max).then_some(connected + 1);
        let is_one = self.connected.fetch_update(Relaxed, Relaxed, more).is_ok();
        add(if is_one { &self.accepted } else { &self.turned_away }, 1);
        is_one
    }

    /// The number of a connection, from 1 on.
    pub(crate) fn number_connection(&self) -> u64 {
        self.numbered.fetch_add(1, Relaxed) + 1
    }

    /// A connection has ended.
    pub(crate) fn disconnect(&self) {
        self.connected.fetch_sub(1, Relaxed);
    }

    /// Counts a message, which was a request or was none.
    pub(crate) fn count_message(&self, is_sound: bool) {
        add(if is_sound { &self.requests } else { &self.malformed }, 1);
    }

    /// What was counted.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        Counted {
            connected: of(&self.connected),
            connected_max: of(&self.connected_max),
            accepted: of(&self.accepted),
            turned_away: of(&self.turned_away),
            requests: of(&self.requests),
            malformed: of(&self.malformed),
            slow: of(&self.slow),
            tls_failed: of(&self.tls_failed),
            crowded: of(&self.crowded),
        }
    }
}
