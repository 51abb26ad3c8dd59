//! What round trips show: their floor, the delay of the last round, and how noisy they are.

use towpath_base::{Nanos, Time};

use crate::delay::DelayFloor;
use crate::limits::RTT_SAMPLE_MAX;

/// The samples of one round.
#[derive(Clone, Copy, Debug)]
struct Samples {
    least: Nanos,
    second: Nanos,
    sum_ns: u64,
    count: u32,
}

impl Samples {
    const NONE: Self =
        Self { least: Nanos(u64::MAX), second: Nanos(u64::MAX), sum_ns: 0, count: 0 };

    fn note(&mut self, rtt: Nanos) {
        self.second = self.second.min(rtt.max(self.least));
        self.least = self.least.min(rtt);
        self.sum_ns = self.sum_ns.saturating_add(rtt.0);
        self.count = self.count.saturating_add(1);
    }

    /// The least sample, unless it is the only one so short: that may be an accident, as where the
    /// sender's thread was away after the packet had left and before it looked at its clock.
    fn floor(&self) -> Nanos {
        if self.count > 1 { self.second } else { self.least }
    }

    /// How far samples are above the least one on average: what hosts and passing bursts add.
    fn spread(&self) -> Nanos {
        Nanos(self.sum_ns / u64::from(self.count.max(1))) - self.least
    }
}

/// Round trips in rounds of about one round trip each.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    begins_at: Time,
    ends_at: Time,
    samples: Samples,
    floor: DelayFloor,
    /// What the floor was at the end of the last round.
    base: Nanos,
    delay: Nanos,
    noise: Nanos,
    noise_max: Nanos,
}

impl Delays {
    pub(super) fn new(now: Time, noise_max: Nanos) -> Self {
        Self {
            begins_at: now,
            ends_at: now,
            samples: Samples::NONE,
            floor: DelayFloor::new(now),
            base: Nanos(u64::MAX),
            delay: Nanos::ZERO,
            noise: Nanos::ZERO,
            noise_max,
        }
    }

    /// The least round trip of late, as far as that is known.
    pub(super) fn base(&self) -> Option<Nanos> {
        (self.base < Nanos(u64::MAX)).then_some(self.base)
    }

    /// The least round trip of the last round.
    pub(super) fn delay(&self) -> Nanos {
        self.delay
    }

    /// How long the queue is that the last round has shown.
    pub(super) fn queue(&self) -> Nanos {
        self.delay - self.base
    }

    /// How far samples of a round trip are above the least of them, as measured.
    pub(super) fn noise(&self) -> Nanos {
        self.noise
    }

    pub(super) fn note(&mut self, now: Time, rtt: Nanos) {
        if now >= self.begins_at {
            self.samples.note(rtt.min(RTT_SAMPLE_MAX));
        }
    }

    pub(super) fn is_over(&self, now: Time) -> bool {
        now >= self.ends_at && self.samples.count > 0
    }

    /// A round begins at this time: what comes before it does not count.
    pub(super) fn begin(&mut self, at: Time, span: Nanos) {
        (self.begins_at, self.ends_at) = (at, at + span);
        self.samples = Samples::NONE;
    }

    /// Judges the round, and begins the next one.
    pub(super) fn end(&mut self, now: Time, span: Nanos) {
        self.delay = self.samples.least;
        self.base = self.floor.with(now, self.samples.floor());
        let noise = Nanos(self.noise.0 - self.noise.0 / 8 + self.samples.spread().0 / 8);
        self.noise = noise.min(self.noise_max);
        self.begin(now, span);
    }
}
