//! Whether the least round trip seen is the path's or the queue's: now and then a sender lets go.

use towpath_base::{Nanos, Time};

use crate::limits::{
    SWIFT_PROBE_LEAVES, SWIFT_PROBE_ROUNDS, SWIFT_PROBE_ROUNDS_MAX, SWIFT_PROBE_SPAN_ROUNDS,
};

/// A sender that comes when others keep a queue takes that queue for part of its path, aims at as
/// much again on top of it, and drives out all who know better. So one whose path seems long gives
/// up most of its window for two round trips: the queue that it keeps, if it is one, runs empty,
/// and its next packets see the path itself. What finds nothing is done half as often each time.
#[derive(Clone, Debug)]
pub(super) struct FloorProbe {
    /// The next one begins, or this one ends.
    turns_at: Time,
    is_on: bool,
    rounds: u32,
    /// The least round trip before this one.
    floor_before: Nanos,
}

impl FloorProbe {
    pub(super) fn new(now: Time) -> Self {
        let (rounds, floor_before) = (0, Nanos(u64::MAX));
        Self { turns_at: now, is_on: false, rounds, floor_before }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// What a probe leaves of a window of `packets`.
    pub(super) fn leave(&self, packets: f64) -> f64 {
        packets.min((packets * SWIFT_PROBE_LEAVES).max(1.0))
    }

    /// Begins or ends a probe if it is time; `floor` is the least round trip seen by now.
    pub(super) fn turn(&mut self, now: Time, rtt: Nanos, floor: Nanos, may_be_queue: bool) {
        if now < self.turns_at {
            return;
        }
        let begins = !self.is_on && may_be_queue && self.rounds > 0;
        if self.is_on || self.rounds == 0 {
            // An eighth less is more than noise: there was a queue, and there may be more of it.
            let found = floor < self.floor_before - Nanos(self.floor_before.0 / 8);
            let twice = (self.rounds * 2).clamp(SWIFT_PROBE_ROUNDS, SWIFT_PROBE_ROUNDS_MAX);
            self.rounds = if found { SWIFT_PROBE_ROUNDS } else { twice };
        }
        self.is_on = begins;
        self.floor_before = floor;
        let rounds = if begins { SWIFT_PROBE_SPAN_ROUNDS } else { self.rounds };
        self.turns_at = now + rtt.saturating_mul(u64::from(rounds));
    }
}
