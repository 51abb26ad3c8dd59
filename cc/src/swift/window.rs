//! One of Swift's two windows: additive increase below its target, one decrease per round trip.

use towpath_base::{Nanos, Time};

use crate::limits::{SWIFT_SCALING_PACKETS, SWIFT_SMALL_GROWTH, SWIFT_TIMEOUTS_TO_RESET};

/// How a window moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// Packets per round trip.
    pub(super) increase: f64,
    /// Of the share of the delay that is above the target.
    pub(super) decrease: f64,
    /// The most that one decrease takes.
    pub(super) decrease_max: f64,
    /// What delays and losses leave at least. A timeout may leave less, and then acks bring the
    /// window back whatever the delay.
    pub(super) packets_min: f64,
    /// The largest window.
    pub(super) packets_max: f64,
}

/// What an ack tells a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    /// Full packets that have as many bytes.
    pub(super) packets: f64,
    /// Packets that were sent, short ones among them.
    pub(super) sent: f64,
    /// How many steps a round trip is worth.
    pub(super) round_trips: f64,
}

/// A window in packets. It is a fraction: whole packets, or bytes, would round the increase away.
#[derive(Clone, Debug)]
pub(super) struct DelayWindow {
    steps: Steps,
    packets: f64,
    /// No delay has reached the target yet: the window doubles each round trip.
    starting: bool,
    decreased_at: Option<Time>,
    /// Whether it doubled before the timeouts of which it is not known whether they were false.
    starting_before: bool,
    /// The delay was at or above the target when it was last looked at.
    late: bool,
}

impl DelayWindow {
    pub(super) fn new(steps: Steps) -> Self {
        Self {
            steps,
            packets: steps.packets_min.max(1.0),
            starting: true,
            decreased_at: None,
            starting_before: false,
            late: false,
        }
    }

    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    /// Counts in packets of another length from now on: each old packet is `by` new ones.
    pub(super) fn scale(&mut self, by: f64) {
        self.packets *= by;
        self.steps.packets_max *= by;
    }

    #[cfg(test)]
    pub(super) fn set_packets(&mut self, packets: f64) {
        self.packets = packets;
    }

    /// Moves by one ack that saw `delay` where `target` is wanted.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        rtt: Nanos,
        (delay, target): (Nanos, Nanos),
        acked: Acked,
        may_grow: bool,
    ) {
        self.late = delay >= target && self.packets >= self.steps.packets_min;
        if !self.late {
            if may_grow {
                self.grow(acked);
            }
            return;
        }
        self.starting = false;
        let above = delay.0.saturating_sub(target.0) as f64 / delay.0.max(1) as f64;
        self.decrease(now, rtt, self.steps.decrease * above);
    }

    /// A loss: it counts only where the delay, too, says that there is a queue.
    pub(super) fn on_loss(&mut self, now: Time, rtt: Nanos) {
        if self.late {
            self.decrease(now, rtt, self.steps.decrease_max);
        }
    }

    /// A timeout, the last of `in_a_row`.
    pub(super) fn on_rto(&mut self, now: Time, rtt: Nanos, in_a_row: u32) {
        let before = if in_a_row == 1 { self.starting } else { self.starting_before };
        self.starting = false;
        if in_a_row >= SWIFT_TIMEOUTS_TO_RESET {
            self.packets = self.steps.packets_min.min(1.0);
            self.decreased_at = Some(now);
        } else {
            self.decrease(now, rtt, self.steps.decrease_max);
        }
        self.starting_before = before;
    }

    /// The timeouts were false, as on a path that is longer than the first of them: a window that
    /// doubled goes on to. What they took is not given back: beside a path that may be dark it
    /// would all be sent at once.
    pub(super) fn on_false_rto(&mut self) {
        self.starting |= core::mem::take(&mut self.starting_before);
    }

    fn grow(&mut self, acked: Acked) {
        // However many steps: no more than twice the window in a round trip.
        let increase = self.steps.increase * acked.round_trips.min(self.packets.max(1.0));
        // An ack of more than the window is of chunks that were sent before it shrank.
        let acked = acked.packets.min(self.packets.max(1.0));
        let by = if self.starting || self.packets < self.steps.packets_min {
            acked
        } else if self.packets >= 1.0 {
            increase * acked / self.packets
        } else {
            let part = SWIFT_SMALL_GROWTH * self.packets.max(SWIFT_SCALING_PACKETS.0);
            increase * acked * part.min(1.0)
        };
        self.packets = (self.packets + by).min(self.steps.packets_max);
    }

    /// Gives up `share` of the window unless that has happened within the last round trip: what
    /// is seen until then is still the old window's doing.
    fn decrease(&mut self, now: Time, rtt: Nanos, share: f64) {
        if self.decreased_at.is_some_and(|at| now.since(at) < rtt) {
            return;
        }
        self.decreased_at = Some(now);
        self.starting_before = false;
        let kept = 1.0 - share.clamp(0.0, self.steps.decrease_max);
        // A timeout may have left less than that.
        let least = self.steps.packets_min.min(self.packets);
        self.packets = (self.packets * kept).max(least);
    }
}
