//! The settings of Timely and their text form.

use core::fmt;
use core::str::FromStr;

use towpath_base::Nanos;

use crate::limits::{
    TARGET_MAX, TIMELY_HIGH_DEFAULT, TIMELY_LOW_DEFAULT, TIMELY_STEP_DEFAULT_BYTES_PER_S,
};
use crate::text::{Span, parse_span};
use crate::{ConfigError, Rate};

/// Settings of [`Timely`](crate::Timely); as text `low=25us,high=250us,step=100Mbps`.
///
/// The values are our defaults, each with its reason in [`limits`](crate::limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelyConfig {
    pub(super) low: Nanos,
    pub(super) high: Nanos,
    pub(super) step: Rate,
}

impl Default for TimelyConfig {
    fn default() -> Self {
        Self {
            low: TIMELY_LOW_DEFAULT,
            high: TIMELY_HIGH_DEFAULT,
            step: Rate(TIMELY_STEP_DEFAULT_BYTES_PER_S),
        }
    }
}

impl FromStr for TimelyConfig {
    type Err = ConfigError;

    /// `name=value` with commas between; what is not named stays at its default.
    ///
    /// - `low`: the round trip below which the rate only grows; what the device declares as noise
    ///   comes on top of it and of `high`.
    /// - `high`: the round trip above which the rate only falls.
    /// - `step`: the additive increase.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let span =
            |value| parse_span(value, Nanos::from_micros(1), TARGET_MAX).ok_or(ConfigError::Span);
        for setting in text.split(',') {
            let (name, value) = setting.split_once('=').ok_or(ConfigError::Setting)?;
            match name {
                "low" => config.low = span(value)?,
                "high" => config.high = span(value)?,
                "step" => config.step = value.parse()?,
                _ => return Err(ConfigError::Setting),
            }
        }
        if config.high <= config.low {
            return Err(ConfigError::TimelyRange);
        }
        Ok(config)
    }
}

impl fmt::Display for TimelyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "low={},high={},step={}", Span(self.low), Span(self.high), self.step)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn the_settings_survive_their_text_form_and_bad_ones_are_refused_by_kind() {
        let text = "low=20us,high=1ms,step=40Mbps";
        let config: TimelyConfig = text.parse().unwrap();
        assert_eq!(config.to_string(), text);
        for (text, error) in [
            ("low=250us", ConfigError::TimelyRange),
            ("low=1", ConfigError::Span),
            ("step=0bps", ConfigError::Rate),
            ("gain=1", ConfigError::Setting),
        ] {
            assert_eq!(text.parse::<TimelyConfig>(), Err(error), "{text:?}");
        }
    }
}
