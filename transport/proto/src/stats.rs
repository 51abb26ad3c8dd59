//! Counters of a link; each only grows.

/// Makes a struct of counters that can be added up: each is named once.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $counter:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$of])* pub $counter: u64,)+ }

        impl core::ops::AddAssign for $name {
            /// Counters of several links, or of several lives of one, together.
            fn add_assign(&mut self, other: Self) {
                $(self.$counter += other.$counter;)+
            }
        }
    };
}

counters! {
    /// What a link has done and seen since it began.
    LinkStats {
        /// DATA chunks sent, retransmissions included.
        chunks_sent,
        /// DATA chunks sent again.
        chunks_retransmitted,
        /// Frames in the DATA chunks sent: messages, or pieces and parts of them.
        frames_sent,
        /// Payload bytes sent, retransmissions included.
        bytes_sent,
        /// Payload bytes sent again.
        bytes_retransmitted,
        /// Control chunks sent, retransmissions included.
        control_sent,
        /// Ack frames sent.
        acks_sent,
        /// Acks that rode on reverse data.
        acks_piggybacked,
        /// Transmissions found lost by a gap.
        losses_by_gap,
        /// Transmissions declared lost because their path was silent for too long, or has failed.
        /// Where the peer was only slow they count as `losses_spurious` too, when their acks come.
        losses_by_timeout,
        /// Transmissions that the peer did not take although they had come, or may have: on a
        /// reliable carrier, or of a message that was given up.
        refused_by_peer,
        /// Tail-loss probes sent.
        tail_probes,
        /// Retransmission timeouts.
        rtos,
        /// Numbers acknowledged after they were declared lost, by a gap or a timeout; and those of
        /// which it will not be known because no path answered at all.
        losses_spurious,
        /// Retransmission timeouts for nothing: all that they declared lost was acknowledged.
        rtos_spurious,
        /// Paths whose queue pair has failed here, or that the peer has made anew.
        paths_failed,
        /// Paths whose queue pair was made anew.
        paths_renewed,
        /// Times that the link went to a worse carrier.
        carrier_falls,
        /// Times that it went to a better one again.
        carrier_returns,
        /// Credit probes sent.
        credit_probes,
        /// Paths that were doubted: times that traffic left a path.
        path_doubts,
        /// Paths that were put in quarantine, or put back there.
        path_retirements,
        /// Paths that were good again after a quarantine.
        path_returns,
        /// Changes of a path's source port, by a new queue pair or while one runs.
        path_moves,
        /// Probes of paths sent.
        path_probes,
        /// Times that acks went another way because the peer repeated itself.
        ack_reroutes,
        /// Times that traffic or acks left a path that was only late, or whose acks had got
        /// through.
        reroutes_in_vain,
        /// Times that a path was found to swallow packets of its size, while short ones got
        /// through.
        mtu_lowered,
        /// Times that a path was found to carry longer packets than before.
        mtu_raised,
        /// DATA chunks accepted.
        chunks_received,
        /// Frames accepted.
        frames_received,
        /// Payload bytes accepted.
        bytes_received,
        /// DATA chunks that had been accepted before.
        chunks_duplicate,
        /// Chunks of another generation.
        chunks_stale,
        /// Chunks with a bad header.
        headers_bad,
        /// Chunks whose payload did not match its checksum or length.
        payloads_bad,
        /// Chunks that broke a rule of the protocol.
        violations,
        /// Acks taken in.
        acks_received,
        /// Acks that were stale, old or bad.
        acks_bad,
        /// Messages delivered to the peer.
        messages_delivered,
        /// Messages abandoned.
        messages_abandoned,
        /// Messages handed to the application (streamed ones when complete).
        messages_received,
    }
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
