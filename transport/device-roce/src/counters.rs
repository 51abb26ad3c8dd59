//! Counters of a device: what it moved, and why it dropped what it dropped.

/// A snapshot of a device's counters; each only grows. Drops are silent on the wire, so this is
/// where they can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoceCounters {
    /// Packets that the link took.
    pub packets_sent: u64,
    /// Packets that came in, dropped ones included.
    pub packets_received: u64,
    /// Messages whose last packet the link took; on RC, those that were acknowledged.
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
    /// UC: MIDDLE or LAST out of order or of no message under way; the rest of its message is
    /// dropped. RC: a request ahead of the expected PSN.
    pub psn_mismatch: u64,
    /// FIRST or ONLY at another PSN than expected: something before it was lost. Accepted.
    pub resyncs: u64,
    /// Messages that were under way when another one started, or a packet of theirs was missing.
    pub messages_lost: u64,
    /// No receive work request was posted; on RC the peer was told to wait.
    pub no_recv_wqe: u64,
    /// The payload's length fits neither the path MTU nor the message's length.
    pub length_error: u64,
    /// The message was longer than the receive work request (completed with an error).
    pub recv_too_long: u64,
    /// WRITE, READ or atomic to a key or range that is not open for it.
    pub bad_rkey: u64,
    /// RC: an opcode that does not go on with the message under way, or that the queue pair does
    /// not offer; refused.
    pub bad_sequences: u64,
    /// RC: requests that had come before; answered again.
    pub duplicates: u64,
    /// RC: duplicates of READs and atomics that were not answered again: too many at once, or
    /// unknown.
    pub repeats_refused: u64,
    /// RC: NAKs decided on, RNR NAKs left out.
    pub naks_sent: u64,
    /// RC: how often a peer was told to wait for a receive work request.
    pub rnr_naks_sent: u64,
    /// RC: NAKs that came in, RNR NAKs left out.
    pub naks_received: u64,
    /// RC: RNR NAKs that came in.
    pub rnr_naks_received: u64,
    /// RC: how often a NAK, or an answer that was missing, made a requester go back.
    pub go_backs: u64,
    /// RC: how often silence made a requester go back, or give up.
    pub ack_timeouts: u64,
    /// RC: packets of requests that were sent again.
    pub retransmitted: u64,
    /// RC: answers to what was acknowledged already or never sent.
    pub stale_answers: u64,
    /// RC: answers that break the rules.
    pub bad_answers: u64,
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
            self.bad_sequences,
            self.repeats_refused,
            self.stale_answers,
            self.bad_answers,
        ]
        .iter()
        .sum()
    }
}
