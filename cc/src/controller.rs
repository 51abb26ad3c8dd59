//! The controller trait, and the samples that it is fed.

use towpath_base::{Nanos, Time};

use crate::Rate;
use crate::limits::PACKET_BYTES_DEFAULT;

/// What a path is like: what a controller is told once, when it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFacts {
    /// What a full packet counts against the window, in bytes (default 4,096);
    /// [`Controller::set_packet_bytes`] changes it later.
    pub packet_bytes: u32,
    /// How far delays may be off at most although nothing is queued: zero (the default) with
    /// timestamps of a NIC, a scheduler's work where hosts share cores and the kernel does the
    /// sending. More than zero also says that the path may be an ordinary network, where TCP fills
    /// the queues. How noisy delays are within this bound is for the controller to measure.
    pub delay_noise: Nanos,
}

impl Default for PathFacts {
    fn default() -> Self {
        Self { packet_bytes: PACKET_BYTES_DEFAULT, delay_noise: Nanos::ZERO }
    }
}

/// What one processed ack newly says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSample {
    /// The sender's clock when the ack was processed; never less than in an earlier sample.
    pub now: Time,
    /// The fabric's round trip, the hosts' own delay already taken out as far as it was measured.
    /// Every transmission has its own number, so a retransmission never blurs it; `None` where the
    /// ack timed nothing.
    pub rtt: Option<Nanos>,
    /// What the hosts took themselves: from the newest chunk's arrival to its ack, and from the
    /// ack's arrival to `now`.
    pub endpoint: Nanos,
    /// Bytes that this ack newly acknowledged.
    pub acked_bytes: u64,
    /// Chunks that this ack newly acknowledged.
    pub acked_chunks: u32,
    /// Bytes in flight before this ack was taken into account.
    pub in_flight_bytes: u64,
    /// The window or the pacing rate, not the application, held the sender back when it last
    /// looked for something to send; or as much was in flight as a chunk may have of the window.
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
    /// Chunks newly declared lost: of each one packet at least.
    pub lost_chunks: u32,
    /// Bytes in flight before the loss was taken into account.
    pub in_flight_bytes: u64,
}

/// An algorithm: samples in, window and rate out.
///
/// The window counts the bytes in flight. A sender with nothing in flight may always send one
/// chunk, however small the window, which may be below a packet: without it no ack would come.
/// A window below one chunk therefore only has effect through [`pacing_rate`](Self::pacing_rate).
pub trait Controller {
    /// Takes in one ack. The window may grow only if [`AckSample::window_limited`] is set.
    fn on_ack(&mut self, sample: &AckSample);

    /// Takes in a loss. Loss by itself need not be congestion; the algorithm decides.
    fn on_loss(&mut self, sample: &LossSample);

    /// The retransmission timer fired at `now`: nothing was heard for a whole timeout.
    fn on_rto(&mut self, now: Time);

    /// What [`on_rto`](Self::on_rto) took for lost had come: the acks were late, and nothing else.
    fn on_false_rto(&mut self) {}

    /// The sender's host is away for up to `away` at a time of late: nothing is sent then, and acks
    /// wait until it looks. Whoever measures that says so when it changes; zero until then.
    fn set_away(&mut self, _away: Nanos) {}

    /// A full packet counts `packet_bytes` against the window on the path of the samples that
    /// follow. The window keeps its bytes: only steps, floors and shares are of other packets.
    fn set_packet_bytes(&mut self, _packet_bytes: u32) {}

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
