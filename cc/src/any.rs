//! Any of the algorithms, as one type.

use towpath_base::{Nanos, Time};

use crate::{AckSample, Controller, FixedWindow, LossSample, Rate, Swift};

/// Any of the algorithms, dispatched by a match instead of a pointer.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each path, and no allocator for a box")]
pub enum AnyController {
    /// A constant window.
    Fixed(FixedWindow),
    /// Delay targets for fabric and hosts.
    Swift(Swift),
}

impl Controller for AnyController {
    fn on_ack(&mut self, sample: &AckSample) {
        match self {
            Self::Fixed(fixed) => fixed.on_ack(sample),
            Self::Swift(swift) => swift.on_ack(sample),
        }
    }

    fn on_loss(&mut self, sample: &LossSample) {
        match self {
            Self::Fixed(fixed) => fixed.on_loss(sample),
            Self::Swift(swift) => swift.on_loss(sample),
        }
    }

    fn on_rto(&mut self, now: Time) {
        match self {
            Self::Fixed(fixed) => fixed.on_rto(now),
            Self::Swift(swift) => swift.on_rto(now),
        }
    }

    fn on_false_rto(&mut self) {
        if let Self::Swift(swift) = self {
            swift.on_false_rto();
        }
    }

    fn set_away(&mut self, away: Nanos) {
        if let Self::Swift(swift) = self {
            swift.set_away(away);
        }
    }

    fn set_packet_bytes(&mut self, packet_bytes: u32) {
        if let Self::Swift(swift) = self {
            swift.set_packet_bytes(packet_bytes);
        }
    }

    fn window_bytes(&self) -> u64 {
        match self {
            Self::Fixed(fixed) => fixed.window_bytes(),
            Self::Swift(swift) => swift.window_bytes(),
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        match self {
            Self::Fixed(fixed) => fixed.pacing_rate(),
            Self::Swift(swift) => swift.pacing_rate(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Fixed(fixed) => fixed.name(),
            Self::Swift(swift) => swift.name(),
        }
    }
}
