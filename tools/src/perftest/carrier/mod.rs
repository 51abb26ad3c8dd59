//! What carries messages: one trait; Towpath (messages, and one-sided operations on a lane), plain
//! verbs and kernel TCP behind it.

pub(crate) mod lane;
pub(crate) mod raw;
pub(crate) mod tcp;
pub(crate) mod towpath;

use super::error::RunError;
use towpath_base::Nanos;
use towpath_status::PathStatus;
use towpath_transport::Ride;

/// What happened in one look at a carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Messages that the peer now has; of plain verbs on UC and UD, that have left.
    pub(crate) completed: u64,
    /// Messages that came from the peer, whole.
    pub(crate) received: u64,
    /// The peer says in-band that it sends nothing more.
    pub(crate) ended: bool,
}

/// What a row needs of a carrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowPlan {
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Messages under way, over all channels.
    pub(crate) depth: u32,
    /// Content is checked.
    pub(crate) validate: bool,
    /// Each message under way has memory of its own; otherwise all are sent from the same.
    pub(crate) apart: bool,
    /// A message completes when the peer has it; off where its answer says so.
    pub(crate) confirm: bool,
}

/// Counters of a carrier; each only grows. And how it stands now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// None where the device does not tell.
    pub(crate) packets_lost: Option<u64>,
    /// With those that were sent again.
    pub(crate) chunks_sent: u64,
    pub(crate) chunks_retransmitted: u64,
    /// In frames of their own.
    pub(crate) acks_sent: u64,
    pub(crate) tail_probes: u64,
    pub(crate) rtos: u64,
    pub(crate) chunks_duplicate: u64,
    /// Times that traffic, or the acks of it, left a path for another.
    pub(crate) reroutes: u64,
    /// The smoothed round trip, once there is one.
    pub(crate) rtt: Option<Nanos>,
    /// What may be in flight.
    pub(crate) window_bytes: u64,
}

impl Counters {
    /// What was counted since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            packets_lost: self.packets_lost.zip(earlier.packets_lost).map(|(now, then)| now - then),
            chunks_sent: self.chunks_sent - earlier.chunks_sent,
            chunks_retransmitted: self.chunks_retransmitted - earlier.chunks_retransmitted,
            acks_sent: self.acks_sent - earlier.acks_sent,
            tail_probes: self.tail_probes - earlier.tail_probes,
            rtos: self.rtos - earlier.rtos,
            chunks_duplicate: self.chunks_duplicate - earlier.chunks_duplicate,
            reroutes: self.reroutes - earlier.reroutes,
            ..self
        }
    }
}

/// Carries messages of one size at a time, both ways.
///
/// A turn is: [`post`](Self::post) what there is room for, [`flush`](Self::flush),
/// [`poll`](Self::poll).
pub(crate) trait Carrier {
    /// Makes ready for a row; nothing may be under way.
    fn prepare(&mut self, row: &RowPlan) -> Result<(), RunError>;

    /// Takes up to `count` messages for sending; returns how many. The caller means to post `after`
    /// more before it next polls.
    fn post(&mut self, count: u64, after: u64) -> Result<u64, RunError>;

    /// Sends what was taken, as far as it goes.
    fn flush(&mut self) -> Result<(), RunError>;

    /// Says to the peer, where the carrier needs that, that nothing more is posted in this row.
    fn end_posting(&mut self) -> Result<(), RunError>;

    /// Takes in what has happened.
    fn poll(&mut self) -> Result<Turn, RunError>;

    /// Whether [`poll`](Self::poll) blocks while nothing happens.
    fn blocks(&self) -> bool;

    /// Whether nothing has come for so long that each turn waits for a while.
    fn waits(&self) -> bool;

    /// The digests of what was sent and received in this row: see
    /// [`Content`](super::content::Content).
    fn digests(&self) -> (u64, u64);

    /// Counters since the carrier was made; none where the carrier cannot know.
    fn counters(&self) -> Option<Counters>;

    /// How the paths of its link stand; none where it has no link.
    fn paths(&self) -> Vec<PathStatus> {
        Vec::new()
    }

    /// The carriers that its link went to.
    fn rides(&self) -> Vec<Ride> {
        Vec::new()
    }
}
