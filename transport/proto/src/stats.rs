//! Counters of a link; each only grows.

/// What a link has done and seen since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// DATA chunks sent, retransmissions included.
    pub chunks_sent: u64,
    /// DATA chunks sent again.
    pub chunks_retransmitted: u64,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retransmitted: u64,
    /// Control chunks sent, retransmissions included.
    pub control_sent: u64,
    /// Ack frames sent.
    pub acks_sent: u64,
    /// Acks that rode on reverse data.
    pub acks_piggybacked: u64,
    /// Transmissions found lost by a gap.
    pub losses_by_gap: u64,
    /// Tail-loss probes sent.
    pub tail_probes: u64,
    /// Retransmission timeouts.
    pub rtos: u64,
    /// Numbers acknowledged after they were declared lost.
    pub losses_spurious: u64,
    /// Credit probes sent.
    pub credit_probes: u64,
    /// DATA chunks accepted.
    pub chunks_received: u64,
    /// Payload bytes accepted.
    pub bytes_received: u64,
    /// DATA chunks that had been accepted before.
    pub chunks_duplicate: u64,
    /// Chunks of another generation.
    pub chunks_stale: u64,
    /// Chunks with a bad header.
    pub headers_bad: u64,
    /// Chunks whose payload did not match its checksum or length.
    pub payloads_bad: u64,
    /// Chunks that broke a rule of the protocol.
    pub violations: u64,
    /// Acks taken in.
    pub acks_received: u64,
    /// Acks that were stale, old or bad.
    pub acks_bad: u64,
    /// Messages delivered to the peer.
    pub messages_delivered: u64,
    /// Messages abandoned.
    pub messages_abandoned: u64,
    /// Messages handed to the application (streamed ones when complete).
    pub messages_received: u64,
}
