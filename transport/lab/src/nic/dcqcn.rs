//! DCQCN: the rate of one queue pair, by marks of congestion.
//!
//! After Y. Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015),
//! section 3. The defaults are the paper's.

use towpath_base::{Nanos, Time};

/// The settings of DCQCN in a network card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcqcnConfig {
    /// The receiver sends at most one notification to a queue pair in so long (N).
    pub notify_every: Nanos,
    /// The weight of one notification in the estimate of congestion (g).
    pub gain: f64,
    /// Without a notification for so long the estimate decays (K).
    pub alpha_timer: Nanos,
    /// The rate increases after each such span (T).
    pub rate_timer: Nanos,
    /// The rate increases after so many bytes too (B).
    pub rate_bytes: u64,
    /// Increases of fast recovery, which go half of the way back (F).
    pub recovery_steps: u32,
    /// What an additive increase adds to the target, in bits a second (R_AI).
    pub additive_bits_per_s: f64,
    /// What the first hyper increase adds to the target, in bits a second (R_HAI).
    pub hyper_bits_per_s: f64,
    /// The rate never falls below this, in bits a second.
    pub rate_min_bits_per_s: f64,
}

impl Default for DcqcnConfig {
    fn default() -> Self {
        Self {
            notify_every: Nanos::from_micros(50),
            gain: 1.0 / 256.0,
            alpha_timer: Nanos::from_micros(55),
            rate_timer: Nanos::from_micros(55),
            rate_bytes: 10_000_000,
            recovery_steps: 5,
            additive_bits_per_s: 40e6,
            // The paper names no value; ten times R_AI is an assumption.
            hyper_bits_per_s: 400e6,
            rate_min_bits_per_s: 10e6,
        }
    }
}

/// The rate of one queue pair. It has line rate until the first notification.
#[derive(Clone, Debug)]
pub struct DcqcnRate {
    config: DcqcnConfig,
    line: f64,
    current: f64,
    target: f64,
    /// The estimate of congestion, from 0 to 1.
    alpha: f64,
    /// When the estimate decays next.
    alpha_at: Time,
    /// When the timer increases the rate next.
    increase_at: Time,
    /// Increases by the timer since the last notification.
    timer_steps: u32,
    /// Bytes left until the next increase by bytes.
    bytes_left: u64,
    /// Increases by bytes since the last notification.
    byte_steps: u32,
}

impl DcqcnRate {
    /// At line rate.
    #[must_use]
    pub fn new(config: DcqcnConfig, line_bits_per_s: u64) -> Self {
        let line = line_bits_per_s as f64;
        Self {
            config,
            line,
            current: line,
            target: line,
            alpha: 1.0,
            alpha_at: Time::NEVER,
            increase_at: Time::NEVER,
            timer_steps: 0,
            bytes_left: config.rate_bytes,
            byte_steps: 0,
        }
    }

    /// The rate now, in bits a second.
    #[must_use]
    pub fn bits_per_s(&self) -> f64 {
        self.current
    }

    /// When a timer changes the rate next.
    #[must_use]
    pub fn next_time(&self) -> Time {
        self.increase_at
    }

    /// Lets the timers of the time up to `now` expire.
    pub fn advance(&mut self, now: Time) {
        while self.alpha_at.min(self.increase_at) <= now {
            if self.alpha_at <= self.increase_at {
                self.alpha *= 1.0 - self.config.gain;
                self.alpha_at += self.config.alpha_timer;
            } else {
                self.increase_at += self.config.rate_timer;
                self.timer_steps += 1;
                self.increase();
            }
        }
    }

    /// A notification of congestion has come.
    pub fn on_notification(&mut self, now: Time) {
        self.advance(now);
        self.target = self.current;
        self.current =
            (self.current * (1.0 - self.alpha / 2.0)).max(self.config.rate_min_bits_per_s);
        self.alpha = (1.0 - self.config.gain) * self.alpha + self.config.gain;
        self.alpha_at = now + self.config.alpha_timer;
        self.increase_at = now + self.config.rate_timer;
        self.bytes_left = self.config.rate_bytes;
        (self.timer_steps, self.byte_steps) = (0, 0);
    }

    /// So many bytes were sent.
    pub fn on_sent(&mut self, bytes: u64) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        if self.bytes_left == 0 {
            self.bytes_left = self.config.rate_bytes;
            if self.increase_at < Time::NEVER {
                self.byte_steps += 1;
                self.increase();
            }
        }
    }

    /// Fast recovery first, then additive increase, and hyper increase where both the timer and
    /// the byte counter are past fast recovery.
    fn increase(&mut self) {
        let config = &self.config;
        let (most, least) =
            (self.timer_steps.max(self.byte_steps), self.timer_steps.min(self.byte_steps));
        if least > config.recovery_steps {
            let step = f64::from(least - config.recovery_steps);
            self.target += step * config.hyper_bits_per_s;
        } else if most > config.recovery_steps {
            self.target += config.additive_bits_per_s;
        }
        self.target = self.target.min(self.line);
        self.current = (self.current + self.target) / 2.0;
        // Half of the way never ends: what is within one additive step of line rate is line rate,
        // and the timer of increases rests until the next notification.
        if self.line - self.current <= config.additive_bits_per_s {
            (self.current, self.target) = (self.line, self.line);
            self.increase_at = Time::NEVER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 40_000_000_000;

    fn cut() -> DcqcnRate {
        let mut rate = DcqcnRate::new(DcqcnConfig::default(), LINE);
        rate.on_notification(Time(1_000_000));
        rate
    }

    #[test]
    fn the_first_notification_halves_the_rate_and_five_steps_go_back_to_a_thirty_second() {
        let mut rate = cut();
        assert_eq!(rate.bits_per_s(), 20e9);
        rate.advance(Time(1_000_000 + 5 * 55_000));
        assert!((rate.bits_per_s() - 40e9 * (1.0 - 1.0 / 64.0)).abs() < 1.0, "{rate:?}");
    }

    #[test]
    fn notifications_cut_less_when_congestion_was_rare() {
        let mut rate = cut();
        // The estimate decays by 1/256 in each 55 us: to a half in 177 such spans.
        rate.advance(Time(1_000_000 + 177 * 55_000));
        assert!((rate.alpha - 0.5).abs() < 0.001, "{rate:?}");
        assert_eq!(rate.bits_per_s(), 40e9);
        rate.on_notification(Time(1_000_000 + 177 * 55_000));
        assert!((rate.bits_per_s() - 30e9).abs() < 40e6, "{rate:?}");
    }

    #[test]
    fn bytes_increase_the_rate_as_the_timer_does_and_both_together_faster() {
        let mut by_bytes = cut();
        by_bytes.on_sent(10_000_000);
        assert_eq!(by_bytes.bits_per_s(), 30e9);
        let mut config = DcqcnConfig { rate_timer: Nanos::from_millis(100), ..Default::default() };
        config.recovery_steps = 0;
        let mut slow = DcqcnRate::new(config, LINE);
        slow.on_notification(Time::ZERO);
        slow.on_notification(Time::ZERO);
        assert_eq!((slow.bits_per_s(), slow.target), (10e9, 20e9));
        slow.on_sent(10_000_000);
        assert_eq!(slow.target, 20e9 + 40e6, "additive");
        slow.advance(Time(100_000_000));
        assert_eq!(slow.target, 20e9 + 40e6 + 400e6, "hyper");
    }

    #[test]
    fn the_rate_keeps_its_least_and_its_line() {
        let mut rate = cut();
        for at in 0..1_000 {
            rate.on_notification(Time(1_000_000 + at));
        }
        assert_eq!(rate.bits_per_s(), 10e6);
        rate.advance(Time(1_000_000_000));
        assert_eq!((rate.bits_per_s(), rate.next_time()), (40e9, Time::NEVER));
    }
}
