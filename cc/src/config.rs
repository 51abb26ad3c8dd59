//! Which algorithm to build, with its settings and its text form for command lines.

use core::fmt;
use core::str::FromStr;

use towpath_base::Time;

use crate::{
    AnyController, ConfigError, FixedWindow, FixedWindowConfig, PathFacts, Swift, SwiftConfig,
};

/// The choice of an algorithm and its settings.
///
/// As text it is the algorithm's word, and after a colon its settings: `fixed`, `fixed:1MiB`,
/// `fixed:1MiB@10Gbps`, `swift`, `swift:base=50us,increase=50%`. The default is Swift with its
/// default settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerConfig {
    /// A constant window: see [`FixedWindow`].
    Fixed(FixedWindowConfig),
    /// Delay targets for fabric and hosts: see [`Swift`].
    Swift(SwiftConfig),
}

impl ControllerConfig {
    /// The words of all algorithms, each of which parses to its default settings.
    pub const NAMES: [&str; 2] = [FixedWindow::NAME, Swift::NAME];

    /// A fresh controller of this kind for a path, at the state before any sample.
    #[must_use]
    pub fn build(&self, now: Time, path: &PathFacts) -> AnyController {
        match self {
            Self::Fixed(config) => AnyController::Fixed(FixedWindow::new(*config, now)),
            Self::Swift(config) => AnyController::Swift(Swift::new(*config, now, path)),
        }
    }
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self::Swift(SwiftConfig::default())
    }
}

impl fmt::Display for ControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(config) => write!(f, "{}:{config}", FixedWindow::NAME),
            Self::Swift(config) if *config == SwiftConfig::default() => f.write_str(Swift::NAME),
            Self::Swift(config) => write!(f, "{}:{config}", Swift::NAME),
        }
    }
}

impl FromStr for ControllerConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (name, settings) = match text.split_once(':') {
            Some((name, settings)) => (name, Some(settings)),
            None => (text, None),
        };
        match name {
            FixedWindow::NAME => {
                let config = settings.map(str::parse).transpose()?;
                Ok(Self::Fixed(config.unwrap_or_default()))
            }
            Swift::NAME => {
                let config = settings.map(str::parse).transpose()?;
                Ok(Self::Swift(config.unwrap_or_default()))
            }
            _ => Err(ConfigError::Name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;
    use crate::{Controller, Rate};

    fn fixed(window_bytes: u64) -> FixedWindowConfig {
        FixedWindowConfig::new(window_bytes).unwrap()
    }

    #[test]
    fn the_text_form_gives_the_settings_and_back() {
        let paced = fixed(1 << 20).with_rate(Rate::from_gbps(10)).unwrap();
        for (text, config, shown) in [
            ("fixed", FixedWindowConfig::default(), "fixed:512KiB"),
            ("fixed:1MiB", fixed(1 << 20), "fixed:1MiB"),
            ("fixed:1536kib", fixed(3 << 19), "fixed:1536KiB"),
            ("fixed:1000B", fixed(1000), "fixed:1000B"),
            ("fixed:1GiB", fixed(1 << 30), "fixed:1GiB"),
            ("fixed:1MiB@10Gbps", paced, "fixed:1MiB@10Gbps"),
        ] {
            assert_eq!(text.parse(), Ok(ControllerConfig::Fixed(config)), "{text}");
            assert_eq!(ControllerConfig::Fixed(config).to_string(), shown);
            assert_eq!(shown.parse(), Ok(ControllerConfig::Fixed(config)), "{shown}");
        }
    }

    #[test]
    fn what_is_no_config_is_refused_with_the_part_that_is_wrong() {
        for (text, error) in [
            ("", ConfigError::Name),
            ("cubic", ConfigError::Name),
            ("Fixed", ConfigError::Name),
            ("fixed:", ConfigError::Window),
            ("fixed:1", ConfigError::Window),
            ("fixed:0B", ConfigError::Window),
            ("fixed:-1MiB", ConfigError::Window),
            ("fixed:1025MiB", ConfigError::Window),
            ("fixed:340282366920938463463374607431768211456GiB", ConfigError::Window),
            ("fixed:1MiB@", ConfigError::Rate),
            ("fixed:1MiB@0Gbps", ConfigError::Rate),
            ("fixed:1MiB@1Gbps@1Gbps", ConfigError::Rate),
        ] {
            assert_eq!(text.parse::<ControllerConfig>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn every_name_parses_and_builds_the_controller_of_that_name() {
        for name in ControllerConfig::NAMES {
            let config: ControllerConfig = name.parse().unwrap();
            assert_eq!(config.build(Time::ZERO, &PathFacts::default()).name(), name);
        }
    }
}
