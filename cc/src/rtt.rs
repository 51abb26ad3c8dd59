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
