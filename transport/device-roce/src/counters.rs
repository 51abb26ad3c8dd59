//! Counters of a device: what it moved, and why it dropped what it dropped.

/// A snapshot of a device's counters; each only grows. Drops are silent on the wire, so this is
/// where they can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoceCounters {
    /// Packets that the link took.
    pub packets_sent: u64,
    /// Packets that came in, dropped ones included.
    pub packets_received: u64,
    /// Messages whose last packet the link took.
    pub messages_sent: u64,
    /// Messages that landed whole.
    pub messages_received: u64,
    /// Shorter than its headers, or of a length that no packet has.
    pub too_short: u64,
    /// A transport version other than 0.
    pub bad_version: u64,
    /// An opcode that does not exist, or not for this type of queue pair.
    pub bad_opcode: u64,
    /// The ICRC does not match.
    pub bad_icrc: u64,
    /// Accepted because some IP ID explains its ICRC (foreign peers over IPv4).
    pub icrc_by_ip_id: u64,
    /// Another partition key than the default one.
    pub bad_pkey: u64,
    /// No queue pair of that number.
    pub unknown_qp: u64,
    /// The queue pair cannot receive yet, or any more.
    pub not_rtr: u64,
    /// From another IP address than the peer's.
    pub wrong_source: u64,
    /// UD: another queue key.
    pub bad_qkey: u64,
    /// MIDDLE or LAST out of order or of no message under way; the rest of its message is dropped.
    pub psn_mismatch: u64,
    /// FIRST or ONLY at another PSN than expected: something before it was lost. Accepted.
    pub resyncs: u64,
    /// Messages that were under way when another one started, or a packet of theirs was missing.
    pub messages_lost: u64,
    /// No receive work request was posted.
    pub no_recv_wqe: u64,
    /// The payload's length fits neither the path MTU nor the message's length.
    pub length_error: u64,
    /// The message was longer than the receive work request (completed with an error).
    pub recv_too_long: u64,
    /// WRITE to a key or range that is not open for it.
    pub bad_rkey: u64,
    /// Completions lost because their queue was full.
    pub cq_overruns: u64,
    /// Device events lost because nobody polled them.
    pub events_lost: u64,
}

impl RoceCounters {
    /// Packets that were received and dropped, whatever the reason.
    #[must_use]
    pub fn packets_dropped(&self) -> u64 {
        [
            self.too_short,
            self.bad_version,
            self.bad_opcode,
            self.bad_icrc,
            self.bad_pkey,
            self.unknown_qp,
            self.not_rtr,
            self.wrong_source,
            self.bad_qkey,
            self.psn_mismatch,
            self.no_recv_wqe,
            self.length_error,
            self.recv_too_long,
            self.bad_rkey,
        ]
        .iter()
        .sum()
    }
}
