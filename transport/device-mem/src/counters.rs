//! Counters of a device: what it moved, and why it dropped what it dropped.

/// A snapshot of a device's counters; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemCounters {
    /// Messages that were sent.
    pub messages_sent: u64,
    /// Messages that landed whole.
    pub messages_received: u64,
    /// No queue pair of that number.
    pub unknown_qp: u64,
    /// The queue pair cannot receive yet, or any more, or is of another type.
    pub not_rtr: u64,
    /// UD: another queue key.
    pub bad_qkey: u64,
    /// No receive work request was posted.
    pub no_recv_wqe: u64,
    /// The message was longer than the receive work request (completed with an error).
    pub recv_too_long: u64,
    /// WRITE to a key or range that is not open for it.
    pub bad_rkey: u64,
    /// Completions lost because their queue was full.
    pub cq_overruns: u64,
    /// Device events lost because nobody polled them.
    pub events_lost: u64,
}

impl MemCounters {
    /// Messages that were received and dropped, whatever the reason.
    #[must_use]
    pub fn messages_dropped(&self) -> u64 {
        [
            self.unknown_qp,
            self.not_rtr,
            self.bad_qkey,
            self.no_recv_wqe,
            self.recv_too_long,
            self.bad_rkey,
        ]
        .iter()
        .sum()
    }
}
