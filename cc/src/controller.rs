//! The controller trait, the samples that it is fed, and the enum of all algorithms.

use towpath_base::{Nanos, Time};

use crate::{FixedWindow, Rate};

/// What one processed ack newly says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSample {
    /// The sender's clock when the ack was processed; never less than in an earlier sample.
    pub now: Time,
    /// The fabric's round trip, the receiver's hold time already taken out. Every transmission
    /// has its own number, so a retransmission never blurs it; `None` where the ack timed nothing.
    pub rtt: Option<Nanos>,
    /// How long the receiver held the newest acknowledged chunk before it acked.
    pub hold: Nanos,
    /// Bytes that this ack newly acknowledged.
    pub acked_bytes: u64,
    /// Chunks that this ack newly acknowledged.
    pub acked_chunks: u32,
    /// Bytes in flight before this ack was taken into account.
    pub in_flight_bytes: u64,
    /// Since the last ack the window, not the application, held the sender back.
    pub window_limited: bool,
    /// The size of a full chunk at present, in bytes.
    pub chunk_bytes: u32,
}

/// What was found lost at one moment, by gap or by tail probe; a timeout is not reported here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossSample {
    /// The sender's clock when the loss was found.
    pub now: Time,
    /// Bytes newly declared lost.
    pub lost_bytes: u64,
    /// Chunks newly declared lost.
    pub lost_chunks: u32,
    /// Bytes in flight before the loss was taken into account.
    pub in_flight_bytes: u64,
}

/// An algorithm: samples in, window and rate out.
///
/// The window counts the bytes in flight. A sender with nothing in flight may always send one
/// chunk, however small the window: a chunk cannot be cut, and without it no ack would come.
/// A window below one chunk therefore only has effect through [`pacing_rate`](Self::pacing_rate).
pub trait Controller {
    /// Takes in one ack. The window may grow only if [`AckSample::window_limited`] is set.
    fn on_ack(&mut self, sample: &AckSample);

    /// Takes in a loss. Loss by itself need not be congestion; the algorithm decides.
    fn on_loss(&mut self, sample: &LossSample);

    /// The retransmission timer fired at `now`: nothing was heard for a whole timeout.
    fn on_rto(&mut self, now: Time);

    /// The window in bytes; never zero.
    fn window_bytes(&self) -> u64;

    /// The rate to send at, or `None` where sends are not paced; never a rate of zero.
    fn pacing_rate(&self) -> Option<Rate>;

    /// The algorithm's word, as on command lines.
    fn name(&self) -> &'static str;

    /// What may still be sent with `in_flight_bytes` in flight; zero where the window shrank
    /// below it.
    fn room_bytes(&self, in_flight_bytes: u64) -> u64 {
        self.window_bytes().saturating_sub(in_flight_bytes)
    }
}

/// Any of the algorithms, dispatched by a match instead of a pointer.
#[derive(Clone, Debug)]
pub enum AnyController {
    /// A constant window.
    Fixed(FixedWindow),
}

impl Controller for AnyController {
    fn on_ack(&mut self, sample: &AckSample) {
        match self {
            Self::Fixed(fixed) => fixed.on_ack(sample),
        }
    }

    fn on_loss(&mut self, sample: &LossSample) {
        match self {
            Self::Fixed(fixed) => fixed.on_loss(sample),
        }
    }

    fn on_rto(&mut self, now: Time) {
        match self {
            Self::Fixed(fixed) => fixed.on_rto(now),
        }
    }

    fn window_bytes(&self) -> u64 {
        match self {
            Self::Fixed(fixed) => fixed.window_bytes(),
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        match self {
            Self::Fixed(fixed) => fixed.pacing_rate(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Fixed(fixed) => fixed.name(),
        }
    }
}
