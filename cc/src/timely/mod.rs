//! Timely: a rate that follows the gradient of the round trip, with the patch that makes it settle.

mod config;
#[cfg(test)]
mod tests;

pub use config::TimelyConfig;

use towpath_base::{Nanos, Time};

use crate::delay::DelayFloor;
use crate::limits::{
    RTT_SAMPLE_MAX, TIMELY_GRADIENT_WEIGHT, TIMELY_HIGH_DECREASE, TIMELY_LOW_STEPS,
    TIMELY_PATCHED_DECREASE, TIMELY_RATE_MAX_BYTES_PER_S, TIMELY_RATE_MIN_BYTES_PER_S,
    WINDOW_BYTES_MAX, WINDOW_BYTES_MIN,
};
use crate::{AckSample, Controller, LossSample, PathFacts, Rate};

/// Congestion control by the gradient of the delay, after Mittal et al., "TIMELY: RTT-based
/// Congestion Control for the Datacenter" (SIGCOMM 2015), with the patch of Zhu et al., "ECN or
/// Delay" (CoNEXT 2016): between the two bounds the rate moves by a weight of the gradient and by
/// how far the round trip is from the lower bound, so that flows settle at one point; the
/// original has none.
///
/// Sends are paced at the rate. The window is what the rate sends in a round trip at the upper
/// bound: it holds back a sender whose acks stop coming. Ours are also the start (the rate
/// doubles each round trip below the lower bound, until the first one above it), that no change
/// takes more than half, and that loss says nothing: only delay and timeouts do.
#[derive(Clone, Debug)]
pub struct Timely {
    config: TimelyConfig,
    declared_noise: Nanos,
    noise: Nanos,
    /// The bounds for the least round trip seen.
    low: Nanos,
    high: Nanos,
    step: f64,
    floor: DelayFloor,
    /// Bytes per second, as a fraction: a step's share of a round trip may be less than one.
    rate: f64,
    starting: bool,
    /// The last round trip and when it was seen.
    last: Option<(Time, Nanos)>,
    /// Smoothed differences of round trips, in nanoseconds.
    difference_ns: f64,
}

impl Timely {
    /// The word for it on command lines.
    pub const NAME: &str = "timely";

    /// A controller that starts with one packet in each round trip at the lower bound.
    #[must_use]
    pub fn new(config: TimelyConfig, now: Time, path: &PathFacts) -> Self {
        let (low, high) = config.bounds(Nanos::ZERO, path.delay_noise);
        let rate = f64::from(path.packet_bytes) / low.as_secs_f64();
        Self {
            config,
            declared_noise: path.delay_noise,
            noise: path.delay_noise,
            low,
            high,
            step: config.step.0 as f64,
            floor: DelayFloor::new(now),
            rate: rate.clamp(TIMELY_RATE_MIN_BYTES_PER_S, TIMELY_RATE_MAX_BYTES_PER_S),
            starting: true,
            last: None,
            difference_ns: 0.0,
        }
    }

    /// The rate that `rtt` asks for; `share` is how much of a round trip it speaks for.
    fn wanted(&mut self, rtt: Nanos, gradient: f64, share: f64) -> f64 {
        if rtt < self.low {
            let by = if self.starting { self.rate } else { TIMELY_LOW_STEPS * self.step };
            return self.rate + by * share;
        }
        self.starting = false;
        if rtt > self.high {
            let above = 1.0 - self.high.0 as f64 / rtt.0 as f64;
            return self.rate * (1.0 - share * TIMELY_HIGH_DECREASE * above);
        }
        let weight = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
        let error = (rtt.0 - self.low.0) as f64 / self.low.0.max(1) as f64;
        let kept = 1.0 - share * TIMELY_PATCHED_DECREASE * weight * error;
        self.step * (1.0 - weight) * share + self.rate * kept
    }

    fn set_rate(&mut self, wanted: f64, may_grow: bool) {
        let wanted = if may_grow { wanted } else { wanted.min(self.rate) };
        self.rate = wanted
            .max(self.rate / 2.0)
            .clamp(TIMELY_RATE_MIN_BYTES_PER_S, TIMELY_RATE_MAX_BYTES_PER_S);
    }
}

impl Controller for Timely {
    fn on_ack(&mut self, sample: &AckSample) {
        let Some(rtt) = sample.rtt else { return };
        let rtt = rtt.min(RTT_SAMPLE_MAX);
        let floor = self.floor.with(sample.now, rtt);
        let bounds = self.config.bounds(floor, self.noise);
        // The window follows the upper one, and grows only while it is the limit.
        if sample.window_limited || bounds.1 < self.high {
            (self.low, self.high) = bounds;
        }
        // A floor of zero is a receiver's claim, not a round trip.
        let floor_ns = floor.0.max(1_000) as f64;
        let (seen_at, before) = self.last.replace((sample.now, rtt)).unwrap_or((Time::ZERO, rtt));
        let difference_ns = rtt.0 as f64 - before.0 as f64;
        self.difference_ns = (1.0 - TIMELY_GRADIENT_WEIGHT) * self.difference_ns
            + TIMELY_GRADIENT_WEIGHT * difference_ns;
        let share = (sample.now.since(seen_at).0 as f64 / floor_ns).min(1.0);
        let wanted = self.wanted(rtt, self.difference_ns / floor_ns, share);
        self.set_rate(wanted, sample.window_limited);
    }

    fn on_loss(&mut self, _sample: &LossSample) {}

    fn on_rto(&mut self, _now: Time) {
        self.starting = false;
        self.set_rate(self.rate / 2.0, false);
    }

    fn set_away(&mut self, away: Nanos) {
        self.noise = self.declared_noise.max(away.min(RTT_SAMPLE_MAX));
    }

    fn window_bytes(&self) -> u64 {
        let bytes = self.rate * self.high.as_secs_f64();
        (bytes as u64).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(Rate(self.rate as u64))
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }
}
