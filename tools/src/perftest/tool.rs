//! Which tool runs, and what differs between them.

/// What a tool does with messages: the verb in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Send,
    Write,
    Read,
    Atomic,
}

/// One of the perftest-style tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `tow_send_bw`: bandwidth of SEND.
    SendBw,
    /// `tow_send_lat`: latency of SEND.
    SendLat,
    /// `tow_write_bw`: bandwidth of WRITE.
    WriteBw,
    /// `tow_write_lat`: latency of WRITE.
    WriteLat,
    /// `tow_read_bw`: bandwidth of READ.
    ReadBw,
    /// `tow_read_lat`: latency of READ.
    ReadLat,
    /// `tow_atomic_bw`: rate of atomics.
    AtomicBw,
    /// `tow_atomic_lat`: latency of atomics.
    AtomicLat,
}

impl Tool {
    /// The name of its program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SendBw => "tow_send_bw",
            Self::SendLat => "tow_send_lat",
            Self::WriteBw => "tow_write_bw",
            Self::WriteLat => "tow_write_lat",
            Self::ReadBw => "tow_read_bw",
            Self::ReadLat => "tow_read_lat",
            Self::AtomicBw => "tow_atomic_bw",
            Self::AtomicLat => "tow_atomic_lat",
        }
    }

    /// Its verb.
    pub(crate) fn op(self) -> Op {
        match self {
            Self::SendBw | Self::SendLat => Op::Send,
            Self::WriteBw | Self::WriteLat => Op::Write,
            Self::ReadBw | Self::ReadLat => Op::Read,
            Self::AtomicBw | Self::AtomicLat => Op::Atomic,
        }
    }

    /// Whether it measures latency, and not bandwidth.
    pub(crate) fn is_latency(self) -> bool {
        matches!(self, Self::SendLat | Self::WriteLat | Self::ReadLat | Self::AtomicLat)
    }

    /// Whether its verb brings an answer, so that one end alone does everything.
    pub(crate) fn fetches(self) -> bool {
        matches!(self.op(), Op::Read | Op::Atomic)
    }

    /// Bytes of a message unless `-s` says otherwise, as in perftest.
    pub(crate) fn default_size(self) -> &'static str {
        match (self.op(), self.is_latency()) {
            (Op::Atomic, _) => "8",
            (_, false) => "65536",
            (_, true) => "2",
        }
    }

    /// Messages unless `-n` says otherwise, as in perftest.
    pub(crate) fn default_iters(self) -> &'static str {
        if self == Self::WriteBw { "5000" } else { "1000" }
    }
}
