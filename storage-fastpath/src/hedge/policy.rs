//! When a second replica is asked, and how often at most.

use std::collections::VecDeque;
use std::str::FromStr;
use towpath_transport::Nanos;

/// Latencies that the percentile is taken of. Short enough to follow a change within seconds of a
/// busy client, long enough that the 99th percentile has ten above it.
const LATENCIES_MAX: usize = 1000;

/// Latencies without which there is no percentile yet.
const LATENCIES_MIN: usize = 32;

/// After how many new latencies the percentile is taken again: it is a selection among a thousand.
const REFRESH: u32 = 32;

/// The delay while there are too few latencies: beyond a healthy read of a flash store, below what
/// a user sees.
const DELAY_FIRST: Nanos = Nanos::from_millis(10);

/// Hedges that may be saved up while all is well, to be spent when a server begins to stall: the
/// requests that a client usually has under way.
const SAVED_MAX: f64 = 16.0;

/// How long a server is avoided after its first trouble: as long as the longest wait before a lost
/// link is made again.
const AVOID_FOR: Nanos = Nanos::from_secs(1);

/// When a second replica is asked for what the first has not answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HedgeAfter {
    /// This long after the first.
    Fixed(Nanos),
    /// When so many per cent of this client's recent reads had their answer.
    Percentile(f64),
}

/// No delay or percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("microseconds, as 500, or a percentile above p50 and below p100, as p95")]
pub struct ParseHedgeAfterError;

impl FromStr for HedgeAfter {
    type Err = ParseHedgeAfterError;

    /// Microseconds, as `500`; or a percentile, as `p95` or `p99.9`.
    fn from_str(text: &str) -> Result<Self, ParseHedgeAfterError> {
        if let Some(percent) = text.strip_prefix('p') {
            let percent = percent.parse().map_err(|_| ParseHedgeAfterError)?;
            // Below the median a hedge is not for what is late.
            let fits = percent > 50.0 && percent < 100.0;
            return if fits { Ok(Self::Percentile(percent)) } else { Err(ParseHedgeAfterError) };
        }
        let us: u32 = text.parse().map_err(|_| ParseHedgeAfterError)?;
        Ok(Self::Fixed(Nanos::from_micros(us.into())))
    }
}

/// Settings of hedged reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HedgeConfig {
    after: HedgeAfter,
    budget_percent: f64,
    avoid_for: Nanos,
}

impl Default for HedgeConfig {
    fn default() -> Self {
        Self { after: HedgeAfter::Percentile(95.0), budget_percent: 5.0, avoid_for: AVOID_FOR }
    }
}

impl HedgeConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// When the second replica is asked. Default: the 95th percentile of this client's recent
    /// reads.
    #[must_use]
    pub fn after(mut self, after: HedgeAfter) -> Self {
        self.after = after;
        self
    }

    /// How many hedges there may be for a hundred reads, 0 to 100. Default 5: what asking at the
    /// 95th percentile comes to by itself. When a whole server is slow every read would be asked
    /// twice without it, which doubles the load just when there is too much.
    #[must_use]
    pub fn budget_percent(mut self, percent: f64) -> Self {
        self.budget_percent = if percent.is_finite() { percent.clamp(0.0, 100.0) } else { 0.0 };
        self
    }

    /// How long a server is avoided after its first trouble; after each further trouble within a
    /// minute twice as long, up to 64 times. Default 1 s.
    #[must_use]
    pub fn avoid_for(mut self, span: Nanos) -> Self {
        self.avoid_for = span;
        self
    }
}

/// Decides when to hedge, from what this client has seen.
#[derive(Debug)]
pub(crate) struct Policy {
    config: HedgeConfig,
    /// The newest last.
    latencies: VecDeque<Nanos>,
    fresh: u32,
    delay: Nanos,
    /// Hedges that may be sent.
    saved: f64,
    scratch: Vec<Nanos>,
}

impl Policy {
    /// How long a server is avoided after its first trouble.
    pub(crate) fn avoid_for(&self) -> Nanos {
        self.config.avoid_for
    }

    pub(crate) fn new(config: HedgeConfig) -> Self {
        let delay = match config.after {
            HedgeAfter::Fixed(delay) => delay,
            HedgeAfter::Percentile(_) => DELAY_FIRST,
        };
        Self {
            config,
            latencies: VecDeque::with_capacity(LATENCIES_MAX),
            fresh: 0,
            delay,
            // The first may be hedged, unless none may.
            saved: if config.budget_percent > 0.0 { 1.0 } else { 0.0 },
            scratch: Vec::with_capacity(LATENCIES_MAX),
        }
    }

    /// How long after a read its hedge goes.
    pub(crate) fn delay(&self) -> Nanos {
        self.delay
    }

    /// A read begins: it earns its share of a hedge.
    pub(crate) fn on_read(&mut self) {
        self.saved = (self.saved + self.config.budget_percent / 100.0).min(SAVED_MAX);
    }

    /// Takes a hedge from what was saved; false when there is none.
    pub(crate) fn spend(&mut self) -> bool {
        let may = self.saved >= 1.0;
        self.saved -= if may { 1.0 } else { 0.0 };
        may
    }

    /// How long the first replica took. Of one that a hedge beat, how long it has taken so far:
    /// without those the percentile would sink with every hedge.
    pub(crate) fn on_latency(&mut self, latency: Nanos) {
        let HedgeAfter::Percentile(percent) = self.config.after else { return };
        if self.latencies.len() == LATENCIES_MAX {
            self.latencies.pop_front();
        }
        self.latencies.push_back(latency);
        self.fresh += 1;
        if self.fresh < REFRESH || self.latencies.len() < LATENCIES_MIN {
            return;
        }
        self.fresh = 0;
        self.scratch.clear();
        self.scratch.extend(&self.latencies);
        let rank = (self.scratch.len() as f64 * percent / 100.0).ceil() as usize;
        let place = rank.clamp(1, self.scratch.len()) - 1;
        self.delay = *self.scratch.select_nth_unstable(place).1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_follows_the_percentile_of_recent_reads() {
        let mut policy = Policy::new(HedgeConfig::new().after(HedgeAfter::Percentile(90.0)));
        assert_eq!(policy.delay(), DELAY_FIRST);
        (1..=20).for_each(|us| policy.on_latency(Nanos::from_micros(us)));
        assert_eq!(policy.delay(), DELAY_FIRST, "too few");
        (21..=320).for_each(|us| policy.on_latency(Nanos::from_micros(us)));
        assert_eq!(policy.delay(), Nanos::from_micros(288));
        for _ in 0..2 * LATENCIES_MAX {
            policy.on_latency(Nanos::from_micros(7));
        }
        assert_eq!(policy.delay(), Nanos::from_micros(7), "the old ones are forgotten");
    }

    #[test]
    fn hedges_are_a_bounded_share_of_the_reads() {
        for percent in [0.0, 5.0, 100.0] {
            let mut policy = Policy::new(HedgeConfig::new().budget_percent(percent));
            let mut hedges = 0;
            for _ in 0..10_000 {
                policy.on_read();
                hedges += u32::from(policy.spend());
            }
            let wanted = (100.0 * percent) as u32;
            let first = u32::from(percent > 0.0);
            assert!((wanted..=wanted + first).contains(&hedges), "{hedges} at {percent} %");
        }
        let mut policy = Policy::new(HedgeConfig::new());
        (0..100_000).for_each(|_| policy.on_read());
        let burst = (0..1000).filter(|_| policy.spend()).count();
        assert_eq!(burst as f64, SAVED_MAX, "what is saved up is bounded");
    }

    #[test]
    fn delays_are_read_as_people_write_them() {
        let fixed = |us| Ok(HedgeAfter::Fixed(Nanos::from_micros(us)));
        assert_eq!("500".parse(), fixed(500));
        assert_eq!("0".parse(), fixed(0));
        assert_eq!("p95".parse(), Ok(HedgeAfter::Percentile(95.0)));
        assert_eq!("p99.9".parse(), Ok(HedgeAfter::Percentile(99.9)));
        for wrong in ["", "p", "p50", "p100", "pNaN", "-1", "5us", "p-3"] {
            assert_eq!(wrong.parse::<HedgeAfter>(), Err(ParseHedgeAfterError), "{wrong}");
        }
    }
}
