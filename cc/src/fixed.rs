//! A constant window: the simplest controller, and the baseline of every other.

use core::fmt;
use core::str::FromStr;

use towpath_base::Time;

use crate::error::ConfigError;
use crate::limits::{
    CHUNK_BYTES_INITIAL, FIXED_WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN,
};
use crate::text::split_unit;
use crate::{AckSample, Controller, LossSample, Rate};

/// Units of a window's text form, largest first, in bytes.
const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Settings of a [`FixedWindow`]; as text `1MiB` or `1MiB@10Gbps`.
///
/// The defaults are tuned for two hosts with stock socket buffers and tens of microseconds
/// between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowConfig {
    window_bytes: u64,
    rate: Option<Rate>,
}

impl FixedWindowConfig {
    /// A window of `window_bytes` (default 512 KiB), not paced. The window is what each link may
    /// put into the network's buffers at once; too large a one makes a standing queue there.
    ///
    /// # Errors
    /// [`ConfigError::Window`] outside [`WINDOW_BYTES_MIN`] to [`WINDOW_BYTES_MAX`].
    pub fn new(window_bytes: u64) -> Result<Self, ConfigError> {
        if !(WINDOW_BYTES_MIN..=WINDOW_BYTES_MAX).contains(&window_bytes) {
            return Err(ConfigError::Window);
        }
        Ok(Self { window_bytes, rate: None })
    }

    /// The same window, its sends paced at `rate` (default: not paced).
    ///
    /// # Errors
    /// [`ConfigError::Rate`] for a rate of zero, at which nothing would ever be sent.
    pub fn with_rate(self, rate: Rate) -> Result<Self, ConfigError> {
        if rate.0 == 0 {
            return Err(ConfigError::Rate);
        }
        Ok(Self { rate: Some(rate), ..self })
    }
}

impl Default for FixedWindowConfig {
    fn default() -> Self {
        Self { window_bytes: FIXED_WINDOW_BYTES_DEFAULT, rate: None }
    }
}

impl fmt::Display for FixedWindowConfig {
    /// In the largest unit that shows the window exactly, so that parsing gives it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |&&(_, unit): &&(&str, u64)| self.window_bytes.is_multiple_of(unit);
        let (word, unit) = UNITS.iter().find(exact).copied().unwrap_or(("B", 1));
        write!(f, "{}{word}", self.window_bytes / unit)?;
        match self.rate {
            Some(rate) => write!(f, "@{rate}"),
            None => Ok(()),
        }
    }
}

impl FromStr for FixedWindowConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (window, rate) = match text.split_once('@') {
            Some((window, rate)) => (window, Some(rate)),
            None => (text, None),
        };
        let bytes = split_unit(window, &UNITS).ok_or(ConfigError::Window)?;
        let config = Self::new(u64::try_from(bytes).map_err(|_| ConfigError::Window)?)?;
        rate.map_or(Ok(config), |rate| config.with_rate(rate.parse()?))
    }
}

/// A window that stays as configured, but for the recovery from a timeout.
///
/// Loss does not shrink it: a chunk that is found lost by a gap was lost while later chunks
/// still came through, which random loss does as well as a full buffer, and halving on it would
/// give up half the line at 1 % of loss. A timeout is another matter: nothing came through for a
/// whole round trip with its variance, so the path is either gone or badly overfilled, and a
/// whole window would go to waste or keep it so. The window then falls to one chunk and grows by
/// the bytes that are acked (one chunk for each full chunk: it doubles each round) until it is
/// whole again. It grows only while it is the limit, because acks of a trickle tell nothing of
/// what the path can carry.
#[derive(Clone, Debug)]
pub struct FixedWindow {
    config: FixedWindowConfig,
    /// Whole bytes are exact here: every increase is a whole number of acked bytes.
    window_bytes: u64,
    /// Full chunk as of the latest ack: what the window falls to on a timeout.
    chunk_bytes: u64,
}

impl FixedWindow {
    /// The word for it on command lines.
    pub const NAME: &str = "fixed";

    /// A controller whose window is whole from the start; the time plays no part in it.
    #[must_use]
    pub fn new(config: FixedWindowConfig, _now: Time) -> Self {
        Self { config, window_bytes: config.window_bytes, chunk_bytes: CHUNK_BYTES_INITIAL }
    }
}

impl Controller for FixedWindow {
    fn on_ack(&mut self, sample: &AckSample) {
        self.chunk_bytes = u64::from(sample.chunk_bytes).max(WINDOW_BYTES_MIN);
        if sample.window_limited {
            let grown = self.window_bytes.saturating_add(sample.acked_bytes);
            self.window_bytes = grown.min(self.config.window_bytes);
        }
    }

    fn on_loss(&mut self, _sample: &LossSample) {}

    fn on_rto(&mut self, _now: Time) {
        self.window_bytes = self.window_bytes.min(self.chunk_bytes);
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.config.rate
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use towpath_base::Nanos;

    use super::*;

    const CHUNK: u64 = 57_344;

    fn fixed(window_bytes: u64) -> FixedWindow {
        FixedWindow::new(FixedWindowConfig::new(window_bytes).unwrap(), Time::ZERO)
    }

    fn ack_of(chunks: u64, window_limited: bool) -> AckSample {
        AckSample {
            now: Time::ZERO,
            rtt: Some(Nanos::from_micros(30)),
            endpoint: Nanos::ZERO,
            acked_bytes: chunks * CHUNK,
            acked_chunks: chunks as u32,
            in_flight_bytes: chunks * CHUNK,
            window_limited,
            chunk_bytes: CHUNK as u32,
        }
    }

    /// The window in chunks after each of `rounds` rounds in which all that it let out was acked.
    fn rounds(fixed: &mut FixedWindow, rounds: usize, window_limited: bool) -> Vec<u64> {
        let round = |_| {
            for _ in 0..fixed.window_bytes() / CHUNK {
                fixed.on_ack(&ack_of(1, window_limited));
            }
            fixed.window_bytes() / CHUNK
        };
        (0..rounds).map(round).collect()
    }

    #[test]
    fn after_a_timeout_the_window_doubles_each_round_until_it_is_whole() {
        let mut fixed = fixed(24 * CHUNK);
        assert_eq!(rounds(&mut fixed, 2, true), [24, 24]);
        fixed.on_rto(Time::ZERO);
        assert_eq!(fixed.window_bytes(), CHUNK);
        assert_eq!(rounds(&mut fixed, 6, true), [2, 4, 8, 16, 24, 24]);
    }

    #[test]
    fn a_second_timeout_in_recovery_starts_it_again() {
        let mut fixed = fixed(24 * CHUNK);
        fixed.on_ack(&ack_of(1, true));
        fixed.on_rto(Time::ZERO);
        assert_eq!(rounds(&mut fixed, 2, true), [2, 4]);
        fixed.on_rto(Time::ZERO);
        fixed.on_rto(Time::ZERO);
        assert_eq!(rounds(&mut fixed, 2, true), [2, 4]);
    }

    #[test]
    fn recovery_waits_while_the_window_is_not_the_limit() {
        let mut fixed = fixed(24 * CHUNK);
        fixed.on_ack(&ack_of(1, true));
        fixed.on_rto(Time::ZERO);
        assert_eq!(rounds(&mut fixed, 3, false), [1, 1, 1]);
        assert_eq!(rounds(&mut fixed, 1, true), [2]);
    }

    #[test]
    fn loss_leaves_the_window_alone() {
        let mut fixed = fixed(24 * CHUNK);
        fixed.on_loss(&LossSample {
            now: Time::ZERO,
            lost_bytes: 24 * CHUNK,
            lost_chunks: 24,
            in_flight_bytes: 24 * CHUNK,
        });
        assert_eq!(fixed.window_bytes(), 24 * CHUNK);
    }

    #[test]
    fn a_timeout_before_any_ack_leaves_one_packet_and_never_more_than_the_window() {
        let mut wide = fixed(1 << 20);
        wide.on_rto(Time::ZERO);
        assert_eq!(wide.window_bytes(), CHUNK_BYTES_INITIAL);
        let mut narrow = fixed(1_000);
        narrow.on_rto(Time::ZERO);
        assert_eq!(narrow.window_bytes(), 1_000);
    }

    #[test]
    fn increases_of_single_bytes_are_not_lost() {
        let mut fixed = fixed(1 << 20);
        fixed.on_rto(Time::ZERO);
        for _ in 0..1_000 {
            fixed.on_ack(&AckSample { acked_bytes: 1, ..ack_of(1, true) });
        }
        assert_eq!(fixed.window_bytes(), CHUNK_BYTES_INITIAL + 1_000);
    }

    #[test]
    fn the_bounds_of_the_window_are_kept_at_configuration() {
        assert_eq!(FixedWindowConfig::new(0), Err(ConfigError::Window));
        assert!(FixedWindowConfig::new(WINDOW_BYTES_MIN).is_ok());
        assert!(FixedWindowConfig::new(WINDOW_BYTES_MAX).is_ok());
        assert_eq!(FixedWindowConfig::new(WINDOW_BYTES_MAX + 1), Err(ConfigError::Window));
        assert_eq!(FixedWindowConfig::default().with_rate(Rate(0)), Err(ConfigError::Rate));
    }
}
