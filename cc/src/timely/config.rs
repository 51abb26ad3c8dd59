//! The settings of Timely and their text form.

use core::fmt;
use core::str::FromStr;

use towpath_base::Nanos;

use crate::limits::{
    TARGET_MAX, TIMELY_BAND_DEFAULT, TIMELY_LOW_DEFAULT, TIMELY_QUEUE_DEFAULT,
    TIMELY_STEP_DEFAULT_BYTES_PER_S,
};
use crate::text::{Span, parse_span};
use crate::{ConfigError, Rate};

/// Settings of [`Timely`](crate::Timely); as text `low=25us,high=250us,step=100Mbps`, where each
/// bound may be `auto`.
///
/// The values are our defaults, each with its reason in [`limits`](crate::limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelyConfig {
    pub(super) low: Option<Nanos>,
    pub(super) high: Option<Nanos>,
    pub(super) step: Rate,
}

impl Default for TimelyConfig {
    fn default() -> Self {
        Self { low: None, high: None, step: Rate(TIMELY_STEP_DEFAULT_BYTES_PER_S) }
    }
}

impl TimelyConfig {
    /// The two bounds where the least round trip seen is `floor` and delays are off by `noise`.
    pub(super) fn bounds(&self, floor: Nanos, noise: Nanos) -> (Nanos, Nanos) {
        let usual = || TIMELY_LOW_DEFAULT.max(floor + TIMELY_QUEUE_DEFAULT);
        let low = self.low.unwrap_or_else(usual) + noise;
        let high = self.high.map_or(low + TIMELY_BAND_DEFAULT, |high| high + noise);
        // A path may be longer than whoever set the upper bound alone thought.
        (low, high.max(low + Nanos(1)))
    }
}

impl FromStr for TimelyConfig {
    type Err = ConfigError;

    /// `name=value` with commas between; what is not named stays at its default.
    ///
    /// - `low`: the round trip below which the rate only grows; `auto` (the default) is 25 us, or
    ///   15 us above the least round trip seen, whichever is more. What the device declares as
    ///   noise comes on top of it and of `high`.
    /// - `high`: the round trip above which the rate only falls; `auto` is 225 us above `low`.
    /// - `step`: the additive increase.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let span =
            |value| parse_span(value, Nanos::from_micros(1), TARGET_MAX).ok_or(ConfigError::Span);
        for setting in text.split(',') {
            let (name, value) = setting.split_once('=').ok_or(ConfigError::Setting)?;
            match name {
                "low" if value == "auto" => config.low = None,
                "low" => config.low = Some(span(value)?),
                "high" if value == "auto" => config.high = None,
                "high" => config.high = Some(span(value)?),
                "step" => config.step = value.parse()?,
                _ => return Err(ConfigError::Setting),
            }
        }
        match (config.low, config.high) {
            (Some(low), Some(high)) if high <= low => Err(ConfigError::TimelyRange),
            _ => Ok(config),
        }
    }
}

impl fmt::Display for TimelyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, bound) in [("low", self.low), ("high", self.high)] {
            match bound {
                Some(bound) => write!(f, "{name}={},", Span(bound))?,
                None => write!(f, "{name}=auto,")?,
            }
        }
        write!(f, "step={}", self.step)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn the_settings_survive_their_text_form_and_bad_ones_are_refused_by_kind() {
        for text in ["low=20us,high=1ms,step=40Mbps", "low=auto,high=2ms,step=1Gbps"] {
            let config: TimelyConfig = text.parse().unwrap();
            assert_eq!(config.to_string(), text);
        }
        for (text, error) in [
            ("low=250us,high=250us", ConfigError::TimelyRange),
            ("low=1", ConfigError::Span),
            ("step=0bps", ConfigError::Rate),
            ("gain=1", ConfigError::Setting),
        ] {
            assert_eq!(text.parse::<TimelyConfig>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn the_automatic_bounds_lie_above_the_least_round_trip_and_the_noise() {
        let us = Nanos::from_micros;
        let bounds = |text: &str, floor, noise| {
            let config: TimelyConfig = text.parse().unwrap();
            config.bounds(us(floor), us(noise))
        };
        assert_eq!(bounds("low=auto", 5, 0), (us(25), us(250)));
        assert_eq!(bounds("low=auto", 40, 0), (us(55), us(280)));
        assert_eq!(bounds("high=auto", 5, 200), (us(225), us(450)));
        assert_eq!(bounds("low=30us,high=60us", 40, 1), (us(31), us(61)));
        assert_eq!(bounds("high=50us", 1_000, 0), (us(1_015), us(1_015) + Nanos(1)));
    }
}
