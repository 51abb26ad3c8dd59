//! The settings of Swift and their text form.

use core::fmt;
use core::str::FromStr;

use towpath_base::Nanos;

use crate::ConfigError;
use crate::limits::{
    SWIFT_DECREASE_MAX_PERCENT_DEFAULT, SWIFT_DECREASE_PERCENT_DEFAULT, SWIFT_ENDPOINT_DEFAULT,
    SWIFT_HOP_DEFAULT, SWIFT_INCREASE_PERCENT_DEFAULT, SWIFT_SCALING_DEFAULT, TARGET_MAX,
};
use crate::text::{Span, parse_percent, parse_span};

const SPAN_MIN: Nanos = Nanos::from_micros(1);
const HOPS_MAX: u32 = 64;
const INCREASE_PERCENT_MAX: u32 = 1600;
const DECREASE_MAX_PERCENT_MAX: u32 = 90;

/// Settings of [`Swift`](crate::Swift); as text `base=50us,increase=50%`.
///
/// The values are our defaults, each with its reason in [`limits`](crate::limits): the published
/// algorithm names most of its constants without giving them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwiftConfig {
    pub(super) base: Option<Nanos>,
    pub(super) endpoint: Nanos,
    pub(super) scaling: Nanos,
    pub(super) hops: u32,
    pub(super) hop: Nanos,
    pub(super) increase_percent: u32,
    pub(super) decrease_percent: u32,
    pub(super) decrease_max_percent: u32,
}

impl Default for SwiftConfig {
    fn default() -> Self {
        Self {
            base: None,
            endpoint: SWIFT_ENDPOINT_DEFAULT,
            scaling: SWIFT_SCALING_DEFAULT,
            hops: 0,
            hop: SWIFT_HOP_DEFAULT,
            increase_percent: SWIFT_INCREASE_PERCENT_DEFAULT,
            decrease_percent: SWIFT_DECREASE_PERCENT_DEFAULT,
            decrease_max_percent: SWIFT_DECREASE_MAX_PERCENT_DEFAULT,
        }
    }
}

fn span(value: &str) -> Result<Nanos, ConfigError> {
    parse_span(value, SPAN_MIN, TARGET_MAX).ok_or(ConfigError::Span)
}

fn percent(value: &str, max: u32) -> Result<u32, ConfigError> {
    parse_percent(value, 1, max).ok_or(ConfigError::Percent)
}

impl FromStr for SwiftConfig {
    type Err = ConfigError;

    /// `name=value` with commas between; what is not named stays at its default.
    ///
    /// - `base`: the target of the fabric's delay, round trip included, without what `scaling`
    ///   adds; `auto` (the default) is 25 us and that, or 15 us above the least round trip seen,
    ///   whichever is more, and what the device declares as noise on top.
    /// - `endpoint`: the target of the hosts' own delay.
    /// - `scaling`: the most that the base target grows by while the window is small.
    /// - `hops`, `hop`: switches on the way, and what each adds to the base target.
    /// - `increase`: of a packet per round trip; `decrease`: of the share of the delay above the
    ///   target; `decrease-max`: the most that one decrease takes.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for setting in text.split(',') {
            let (name, value) = setting.split_once('=').ok_or(ConfigError::Setting)?;
            match name {
                "base" if value == "auto" => config.base = None,
                "base" => config.base = Some(span(value)?),
                "endpoint" => config.endpoint = span(value)?,
                "scaling" => config.scaling = span(value)?,
                "hops" => {
                    let hops = value.parse().ok().filter(|&hops| hops <= HOPS_MAX);
                    config.hops = hops.ok_or(ConfigError::Count)?;
                }
                "hop" => config.hop = span(value)?,
                "increase" => config.increase_percent = percent(value, INCREASE_PERCENT_MAX)?,
                "decrease" => config.decrease_percent = percent(value, 100)?,
                "decrease-max" => {
                    config.decrease_max_percent = percent(value, DECREASE_MAX_PERCENT_MAX)?;
                }
                _ => return Err(ConfigError::Setting),
            }
        }
        Ok(config)
    }
}

impl fmt::Display for SwiftConfig {
    /// What differs from the defaults; all defaults together are `base=auto`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Self::default();
        let mut comma = "";
        let mut put = |changed: bool, name: &str, value: fmt::Arguments<'_>| {
            if changed {
                write!(f, "{comma}{name}={value}")?;
                comma = ",";
            }
            Ok(())
        };
        if let Some(base) = self.base {
            put(true, "base", format_args!("{}", Span(base)))?;
        }
        put(*self == usual, "base", format_args!("auto"))?;
        for (name, span, usual) in [
            ("endpoint", self.endpoint, usual.endpoint),
            ("scaling", self.scaling, usual.scaling),
            ("hop", self.hop, usual.hop),
        ] {
            put(span != usual, name, format_args!("{}", Span(span)))?;
        }
        put(self.hops != usual.hops, "hops", format_args!("{}", self.hops))?;
        for (name, percent, usual) in [
            ("increase", self.increase_percent, usual.increase_percent),
            ("decrease", self.decrease_percent, usual.decrease_percent),
            ("decrease-max", self.decrease_max_percent, usual.decrease_max_percent),
        ] {
            put(percent != usual, name, format_args!("{percent}%"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn every_setting_survives_its_text_form() {
        for text in [
            "base=auto",
            "base=25us",
            "base=1500ns",
            "base=1s",
            "endpoint=2ms,scaling=1us,hop=3us,hops=5",
            "increase=50%,decrease=100%,decrease-max=30%",
        ] {
            let config: SwiftConfig = text.parse().unwrap();
            assert_eq!(config.to_string(), text);
        }
        let shown = SwiftConfig::default().to_string();
        assert_eq!(shown.parse(), Ok(SwiftConfig::default()));
    }

    #[test]
    fn a_setting_without_unit_or_out_of_range_is_refused_by_its_kind() {
        for (text, error) in [
            ("", ConfigError::Setting),
            ("base", ConfigError::Setting),
            ("speed=1us", ConfigError::Setting),
            ("base=25us,", ConfigError::Setting),
            ("base=25", ConfigError::Span),
            ("base=0us", ConfigError::Span),
            ("base=2s", ConfigError::Span),
            ("base=-1us", ConfigError::Span),
            ("hops=65", ConfigError::Count),
            ("hops=1us", ConfigError::Count),
            ("increase=0%", ConfigError::Percent),
            ("increase=1", ConfigError::Percent),
            ("decrease=101%", ConfigError::Percent),
            ("decrease-max=91%", ConfigError::Percent),
        ] {
            assert_eq!(text.parse::<SwiftConfig>(), Err(error), "{text:?}");
        }
    }
}
