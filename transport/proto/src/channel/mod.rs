//! Messages of one channel: cutting, reassembly, credit, giving up.

mod growing;
mod incoming;
mod outgoing;
mod queue;
mod request;
mod runs;
mod rx;
mod spans;
mod tx;

pub(crate) use growing::PieceSizes;
pub use growing::SupplyError;
pub(crate) use incoming::{Incoming, Reading, Stage};
pub(crate) use outgoing::{Outgoing, SendState};
pub use request::{CancelError, SendError, SendRequest};
pub(crate) use runs::Misfit;
pub(crate) use rx::{ChannelRx, Closed, Place, RxViolation};
pub(crate) use tx::ChannelTx;

/// Where a channel is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelState {
    /// We sent OPEN and wait for OPENED.
    Opening,
    /// Both ways.
    Open,
    /// We want to close: CLOSE goes out when everything sent has had its outcome.
    Closing,
    /// CLOSE is on its way; the channel ends when it is acknowledged.
    CloseSent,
    /// Ended; its place is kept until the application has given all its buffers back.
    Drained,
}

/// One channel of a link.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The whole id, life included: its place may have had others before.
    pub(crate) id: u32,
    pub(crate) state: ChannelState,
    pub(crate) ordered: bool,
    /// It carries one-sided operations, and is no channel of the application.
    pub(crate) for_lane: bool,
    /// The longest message that the peer takes.
    pub(crate) peer_message_max: u32,
    pub(crate) tx: ChannelTx,
    pub(crate) rx: ChannelRx,
}

impl Channel {
    /// Whether messages of the peer are taken.
    pub(crate) fn takes_data(&self) -> bool {
        use ChannelState::{CloseSent, Closing, Open};
        matches!(self.state, Open | Closing | CloseSent)
    }
}
