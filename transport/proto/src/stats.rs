//! Counters of a link; each only grows.

/// What a link has done and seen since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// DATA chunks sent, retransmissions included.
    pub chunks_sent: u64,
    /// DATA chunks sent again.
    pub chunks_retransmitted: u64,
    /// Frames in the DATA chunks sent: messages, or pieces and parts of them.
    pub frames_sent: u64,
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
    /// Transmissions declared lost because their path was silent for too long, or has failed. Where
    /// the peer was only slow they count as `losses_spurious` too, when their acks come.
    pub losses_by_timeout: u64,
    /// Transmissions that the peer did not take although they had come, or may have: on a reliable
    /// carrier, or of a message that was given up.
    pub refused_by_peer: u64,
    /// Tail-loss probes sent.
    pub tail_probes: u64,
    /// Retransmission timeouts.
    pub rtos: u64,
    /// Numbers acknowledged after they were declared lost, by a gap or a timeout; and those of
    /// which it will not be known because no path answered at all.
    pub losses_spurious: u64,
    /// Retransmission timeouts for nothing: all that they declared lost was acknowledged.
    pub rtos_spurious: u64,
    /// Paths whose queue pair has failed, here or at the peer.
    pub paths_failed: u64,
    /// Paths whose queue pair was made anew.
    pub paths_renewed: u64,
    /// Times that the link went to a worse carrier.
    pub carrier_falls: u64,
    /// Times that it went to a better one again.
    pub carrier_returns: u64,
    /// Credit probes sent.
    pub credit_probes: u64,
    /// Paths that were doubted: times that traffic left a path.
    pub path_doubts: u64,
    /// Paths that were put in quarantine, or put back there.
    pub path_retirements: u64,
    /// Paths that were good again after a quarantine.
    pub path_returns: u64,
    /// Changes of a path's source port.
    pub path_moves: u64,
    /// Probes of paths sent.
    pub path_probes: u64,
    /// Times that acks went another way because the peer repeated itself.
    pub ack_reroutes: u64,
    /// Times that traffic or acks left a path that was only late, or whose acks had got through.
    pub reroutes_in_vain: u64,
    /// Times that a path was found to swallow packets of its size, while short ones got through.
    pub mtu_lowered: u64,
    /// Times that a path was found to carry longer packets than before.
    pub mtu_raised: u64,
    /// DATA chunks accepted.
    pub chunks_received: u64,
    /// Frames accepted.
    pub frames_received: u64,
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

impl LinkStats {
    /// Chunks sent, of all kinds and again.
    #[must_use]
    pub const fn transmissions(&self) -> u64 {
        self.chunks_sent + self.control_sent + self.path_probes
    }

    /// Those of them that are known or taken to be lost now: it falls when one was only late.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        (self.losses_by_gap + self.losses_by_timeout).saturating_sub(self.losses_spurious)
    }

    /// Times that traffic, or the acks of it, left a path for another.
    #[must_use]
    pub const fn reroutes(&self) -> u64 {
        self.path_doubts + self.paths_failed + self.ack_reroutes
    }
}

impl core::ops::AddAssign for LinkStats {
    /// Counters of several links, or of several lives of one, together.
    #[expect(clippy::too_many_lines, reason = "two lines for each counter, and no more")]
    fn add_assign(&mut self, other: Self) {
        // Taken apart by name, so that a new counter cannot be forgotten.
        let Self {
            chunks_sent,
            chunks_retransmitted,
            frames_sent,
            bytes_sent,
            bytes_retransmitted,
            control_sent,
            acks_sent,
            acks_piggybacked,
            losses_by_gap,
            losses_by_timeout,
            refused_by_peer,
            tail_probes,
            rtos,
            losses_spurious,
            rtos_spurious,
            paths_failed,
            paths_renewed,
            carrier_falls,
            carrier_returns,
            credit_probes,
            path_doubts,
            path_retirements,
            path_returns,
            path_moves,
            path_probes,
            ack_reroutes,
            reroutes_in_vain,
            mtu_lowered,
            mtu_raised,
            chunks_received,
            frames_received,
            bytes_received,
            chunks_duplicate,
            chunks_stale,
            headers_bad,
            payloads_bad,
            violations,
            acks_received,
            acks_bad,
            messages_delivered,
            messages_abandoned,
            messages_received,
        } = other;
        self.chunks_sent += chunks_sent;
        self.chunks_retransmitted += chunks_retransmitted;
        self.frames_sent += frames_sent;
        self.bytes_sent += bytes_sent;
        self.bytes_retransmitted += bytes_retransmitted;
        self.control_sent += control_sent;
        self.acks_sent += acks_sent;
        self.acks_piggybacked += acks_piggybacked;
        self.losses_by_gap += losses_by_gap;
        self.losses_by_timeout += losses_by_timeout;
        self.refused_by_peer += refused_by_peer;
        self.tail_probes += tail_probes;
        self.rtos += rtos;
        self.losses_spurious += losses_spurious;
        self.rtos_spurious += rtos_spurious;
        self.paths_failed += paths_failed;
        self.paths_renewed += paths_renewed;
        self.carrier_falls += carrier_falls;
        self.carrier_returns += carrier_returns;
        self.credit_probes += credit_probes;
        self.path_doubts += path_doubts;
        self.path_retirements += path_retirements;
        self.path_returns += path_returns;
        self.path_moves += path_moves;
        self.path_probes += path_probes;
        self.ack_reroutes += ack_reroutes;
        self.reroutes_in_vain += reroutes_in_vain;
        self.mtu_lowered += mtu_lowered;
        self.mtu_raised += mtu_raised;
        self.chunks_received += chunks_received;
        self.frames_received += frames_received;
        self.bytes_received += bytes_received;
        self.chunks_duplicate += chunks_duplicate;
        self.chunks_stale += chunks_stale;
        self.headers_bad += headers_bad;
        self.payloads_bad += payloads_bad;
        self.violations += violations;
        self.acks_received += acks_received;
        self.acks_bad += acks_bad;
        self.messages_delivered += messages_delivered;
        self.messages_abandoned += messages_abandoned;
        self.messages_received += messages_received;
    }
}
