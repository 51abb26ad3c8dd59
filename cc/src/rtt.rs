//! The round-trip estimator and the retransmission timeout (RFC 6298, in nanoseconds).

use towpath_base::Nanos;

use crate::ConfigError;
use crate::limits::{
    RTO_GRANULARITY_DEFAULT, RTO_INITIAL_DEFAULT, RTO_MAX_DEFAULT, RTO_MIN_DEFAULT,
    RTT_MIN_WINDOW_SAMPLES, RTT_RECENT_SAMPLES, RTT_SAMPLE_MAX,
};

/// Settings of the retransmission timeout, tuned for hosts within one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttConfig {
    rto_min: Nanos,
    rto_max: Nanos,
    rto_initial: Nanos,
    granularity: Nanos,
}

impl RttConfig {
    /// Bounds of every timeout, backed off or not (default 1 ms to 1 s). A low floor repeats
    /// chunks that were only late; a high one stalls on the loss of a tail and its probe.
    ///
    /// # Errors
    /// [`ConfigError::RtoRange`] where `rto_min` is zero or above `rto_max`.
    pub fn with_rto_range(self, rto_min: Nanos, rto_max: Nanos) -> Result<Self, ConfigError> {
        if rto_min == Nanos::ZERO || rto_min > rto_max {
            return Err(ConfigError::RtoRange);
        }
        Ok(Self { rto_min, rto_max, ..self })
    }

    /// The timeout before the first sample, without the hold time (default 20 ms).
    #[must_use]
    pub fn with_rto_initial(self, rto_initial: Nanos) -> Self {
        Self { rto_initial, ..self }
    }

    /// The least margin above the smoothed round trip (default 50 us): how finely timers fire.
    #[must_use]
    pub fn with_granularity(self, granularity: Nanos) -> Self {
        Self { granularity, ..self }
    }
}

impl Default for RttConfig {
    fn default() -> Self {
        Self {
            rto_min: RTO_MIN_DEFAULT,
            rto_max: RTO_MAX_DEFAULT,
            rto_initial: RTO_INITIAL_DEFAULT,
            granularity: RTO_GRANULARITY_DEFAULT,
        }
    }
}

/// The round trips of one path, or of several together.
///
/// Feed it fabric round trips: the receiver's hold time taken out, and every sample clean. The
/// rule of Karn (RFC 6298 section 3: no samples from retransmitted segments) is the caller's to
/// keep, and needs nothing here: each transmission has its own number, so an ack always says
/// which transmission it answers.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    config: RttConfig,
    /// Eight times the smoothed round trip: the shift keeps what the division by 8 would drop.
    srtt_x8_ns: u64,
    /// Four times the mean deviation, for the same reason.
    rttvar_x4_ns: u64,
    recent: [Nanos; RTT_RECENT_SAMPLES],
    /// Samples ever taken, saturating; the next place in `recent` follows from it.
    samples: u64,
    min_now: Nanos,
    min_before: Nanos,
    min_samples: u32,
}

impl RttEstimator {
    /// An estimator without samples.
    #[must_use]
    pub fn new(config: RttConfig) -> Self {
        Self {
            config,
            srtt_x8_ns: 0,
            rttvar_x4_ns: 0,
            recent: [Nanos::ZERO; RTT_RECENT_SAMPLES],
            samples: 0,
            min_now: Nanos(u64::MAX),
            min_before: Nanos(u64::MAX),
            min_samples: 0,
        }
    }

    /// Takes in one clean sample; one above [`RTT_SAMPLE_MAX`] counts as that.
    pub fn update(&mut self, rtt: Nanos) {
        let rtt = rtt.min(RTT_SAMPLE_MAX);
        self.smooth(rtt.0);
        self.recent[(self.samples % RTT_RECENT_SAMPLES as u64) as usize] = rtt;
        self.samples = self.samples.saturating_add(1);
        if self.min_samples == RTT_MIN_WINDOW_SAMPLES {
            self.min_before = self.min_now;
            self.min_now = Nanos(u64::MAX);
            self.min_samples = 0;
        }
        self.min_now = self.min_now.min(rtt);
        self.min_samples += 1;
    }

    fn smooth(&mut self, rtt_ns: u64) {
        if self.samples == 0 {
            // RFC 6298 (2.2): "SRTT <- R", "RTTVAR <- R/2".
            self.srtt_x8_ns = rtt_ns * 8;
            self.rttvar_x4_ns = rtt_ns * 2;
            return;
        }
        // RFC 6298 (2.3): "RTTVAR <- (1 - beta) * RTTVAR + beta * |SRTT - R'|", beta 1/4, before
        // "SRTT <- (1 - alpha) * SRTT + alpha * R'", alpha 1/8.
        let deviation_ns = (self.srtt_x8_ns / 8).abs_diff(rtt_ns);
        self.rttvar_x4_ns = self.rttvar_x4_ns - self.rttvar_x4_ns / 4 + deviation_ns;
        self.srtt_x8_ns = self.srtt_x8_ns - self.srtt_x8_ns / 8 + rtt_ns;
    }

    /// The smoothed round trip, or `None` before the first sample.
    #[must_use]
    pub fn smoothed(&self) -> Option<Nanos> {
        (self.samples > 0).then_some(Nanos(self.srtt_x8_ns / 8))
    }

    /// The smoothed mean deviation; zero before the first sample.
    #[must_use]
    pub fn variance(&self) -> Nanos {
        Nanos(self.rttvar_x4_ns / 4)
    }

    /// The least of the last [`RTT_MIN_WINDOW_SAMPLES`] samples, or of up to twice as many.
    #[must_use]
    pub fn min(&self) -> Option<Nanos> {
        (self.samples > 0).then_some(self.min_now.min(self.min_before))
    }

    /// The newest sample.
    #[must_use]
    pub fn latest(&self) -> Option<Nanos> {
        let newest = self.samples.checked_sub(1)?;
        Some(self.recent[(newest % RTT_RECENT_SAMPLES as u64) as usize])
    }

    /// The median of the last [`RTT_RECENT_SAMPLES`] samples, the lower one of two: what a
    /// controller should see where samples of several paths mix, because one slow path does not
    /// move it.
    #[must_use]
    pub fn median(&self) -> Option<Nanos> {
        let count = self.samples.min(RTT_RECENT_SAMPLES as u64) as usize;
        let mut sorted = self.recent;
        sorted[..count].sort_unstable();
        Some(sorted[count.checked_sub(1)? / 2])
    }

    /// The retransmission timeout where the receiver may hold an ack for up to `hold_max`:
    /// `SRTT + max(G, 4 * RTTVAR) + hold_max` (RFC 6298 (2.3), with the hold added because it is
    /// not in the samples), within the configured bounds.
    #[must_use]
    pub fn rto(&self, hold_max: Nanos) -> Nanos {
        let fabric = match self.smoothed() {
            Some(smoothed) => smoothed + Nanos(self.rttvar_x4_ns).max(self.config.granularity),
            None => self.config.rto_initial,
        };
        (fabric + hold_max).clamp(self.config.rto_min, self.config.rto_max)
    }

    /// The timeout after `timeouts` of them in a row without an ack: doubled each time (RFC 6298
    /// (5.5)), up to the configured bound. The caller counts, and starts again at zero with the
    /// next ack.
    #[must_use]
    pub fn rto_backed_off(&self, hold_max: Nanos, timeouts: u32) -> Nanos {
        let factor = 1u64.checked_shl(timeouts).unwrap_or(u64::MAX);
        self.rto(hold_max).saturating_mul(factor).min(self.config.rto_max)
    }
}

#[cfg(test)]
mod tests {
    use towpath_base::Prng;

    use super::*;

    fn after(samples_us: &[u64]) -> RttEstimator {
        let mut rtt = RttEstimator::new(RttConfig::default());
        for &sample in samples_us {
            rtt.update(Nanos::from_micros(sample));
        }
        rtt
    }

    #[test]
    fn the_smoothing_and_the_timeout_follow_the_rfc_by_hand() {
        // 1000: SRTT 1000, RTTVAR 500. 1800: |SRTT - R| 800, RTTVAR 575, SRTT 1100.
        // 300: |SRTT - R| 800, RTTVAR 631.25, SRTT 1000. 1000: 0, 473.4375, 1000.
        let samples = [1_000, 1_800, 300, 1_000];
        for (taken, srtt_ns, rttvar_ns, rto_ns) in [
            (1, 1_000_000, 500_000, 3_000_000),
            (2, 1_100_000, 575_000, 3_400_000),
            (3, 1_000_000, 631_250, 3_525_000),
            (4, 1_000_000, 473_437, 2_893_750),
        ] {
            let rtt = after(&samples[..taken]);
            assert_eq!(rtt.smoothed(), Some(Nanos(srtt_ns)), "after {taken}");
            assert_eq!(rtt.variance(), Nanos(rttvar_ns), "after {taken}");
            assert_eq!(rtt.rto(Nanos::ZERO), Nanos(rto_ns), "after {taken}");
            assert_eq!(rtt.rto(Nanos(77)), Nanos(rto_ns + 77), "after {taken}");
        }
    }

    #[test]
    fn steady_samples_are_reached_exactly_from_either_side() {
        for start_us in [1, 1_000_000] {
            let mut rtt = after(&[start_us]);
            for _ in 0..500 {
                rtt.update(Nanos(33_333));
            }
            assert_eq!(rtt.smoothed(), Some(Nanos(33_333)));
            assert_eq!(rtt.variance(), Nanos::ZERO);
        }
    }

    #[test]
    fn without_variance_the_margin_is_the_granularity() {
        let config = RttConfig::default().with_rto_range(Nanos(1), Nanos::from_secs(1)).unwrap();
        let mut rtt = RttEstimator::new(config.with_granularity(Nanos(700)));
        for _ in 0..200 {
            rtt.update(Nanos(20_000));
        }
        assert_eq!(rtt.rto(Nanos(5_000)), Nanos(25_700));
    }

    #[test]
    fn before_any_sample_there_is_only_the_initial_timeout() {
        let rtt = after(&[]);
        assert_eq!(
            (rtt.smoothed(), rtt.min(), rtt.latest(), rtt.median()),
            (None, None, None, None)
        );
        assert_eq!(rtt.variance(), Nanos::ZERO);
        assert_eq!(rtt.rto(Nanos(9)), RTO_INITIAL_DEFAULT + Nanos(9));
    }

    #[test]
    fn the_timeout_stays_within_its_bounds_and_doubles_up_to_the_upper_one() {
        assert_eq!(after(&[10]).rto(Nanos::ZERO), RTO_MIN_DEFAULT);
        assert_eq!(after(&[900_000]).rto(Nanos::ZERO), RTO_MAX_DEFAULT);
        assert_eq!(after(&[10]).rto(Nanos(u64::MAX)), RTO_MAX_DEFAULT);
        let rtt = after(&[1_000]);
        let backed_off = |timeouts| rtt.rto_backed_off(Nanos::ZERO, timeouts);
        assert_eq!([0, 1, 2, 8].map(backed_off), [3, 6, 12, 768].map(Nanos::from_millis));
        assert_eq!([9, 63, 64, u32::MAX].map(backed_off), [RTO_MAX_DEFAULT; 4]);
    }

    #[test]
    fn a_timeout_range_that_is_empty_or_starts_at_zero_is_refused() {
        let range = |min, max| RttConfig::default().with_rto_range(Nanos(min), Nanos(max));
        assert!(range(5, 5).is_ok());
        assert_eq!(range(6, 5), Err(ConfigError::RtoRange));
        assert_eq!(range(0, 5), Err(ConfigError::RtoRange));
    }

    #[test]
    fn the_median_of_recent_samples_shrugs_off_one_slow_path() {
        assert_eq!(after(&[10, 20]).median(), Some(Nanos::from_micros(10)));
        let rtt = after(&[900, 20, 900, 21, 22, 900, 23, 24, 900]);
        assert_eq!(rtt.median(), Some(Nanos::from_micros(24)));
        assert_eq!(rtt.latest(), Some(Nanos::from_micros(900)));
        // Expect: the tenth sample drives out the first, and the eleventh the second.
        assert_eq!(after(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 90]).median(), Some(Nanos::from_micros(6)));
        let rtt = after(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 90, 91]);
        assert_eq!(rtt.median(), Some(Nanos::from_micros(7)));
    }

    #[test]
    fn the_minimum_is_kept_for_a_window_and_forgotten_after_two() {
        let mut rtt = after(&[5]);
        for _ in 0..2 * RTT_MIN_WINDOW_SAMPLES - 1 {
            assert_eq!(rtt.min(), Some(Nanos::from_micros(5)));
            rtt.update(Nanos::from_micros(9));
        }
        assert_eq!(rtt.min(), Some(Nanos::from_micros(5)));
        rtt.update(Nanos::from_micros(9));
        assert_eq!(rtt.min(), Some(Nanos::from_micros(9)));
    }

    #[test]
    fn any_samples_keep_the_estimates_within_what_was_seen() {
        for seed in 0..200 {
            let mut prng = Prng::new(seed);
            let mut rtt = RttEstimator::new(RttConfig::default());
            let (mut low, mut high) = (RTT_SAMPLE_MAX, Nanos::ZERO);
            for _ in 0..1_000 {
                let sample = Nanos(prng.next_u64() >> prng.below(64));
                rtt.update(sample);
                low = low.min(sample);
                high = high.max(sample.min(RTT_SAMPLE_MAX));
                let (smoothed, median) = (rtt.smoothed().unwrap(), rtt.median().unwrap());
                assert!((low..=high).contains(&smoothed), "seed {seed}: {smoothed}");
                assert!((low..=high).contains(&median), "seed {seed}: {median}");
                assert!((low..=median).contains(&rtt.min().unwrap()), "seed {seed}");
            }
        }
    }
}
