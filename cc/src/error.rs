//! Why a setting was refused.

use core::fmt;

/// Why a setting was refused. The text says what would be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// A count is no whole number, or out of range.
    Count,
    /// No algorithm has this name.
    Name,
    /// A share is no whole number of percent, or out of range.
    Percent,
    /// The rate is not a positive whole number with a unit.
    Rate,
    /// The least retransmission timeout is zero, or above the largest.
    RtoRange,
    /// The algorithm has no such setting, or it has no value.
    Setting,
    /// A span is no whole number with a unit, or out of range.
    Span,
    /// The window is no size, or outside the bounds of [`limits`](crate::limits).
    Window,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "bad count: use a whole number, hops 0 to 64",
            Self::Name => {
                "unknown congestion control: use swift or fixed, or one with settings: \
                 swift:base=25us, fixed:WINDOW, fixed:WINDOW@RATE"
            }
            Self::Percent => {
                "bad share: use a whole number with %: increase 1% to 1600%, decrease 1% to 100%, \
                 decrease-max 1% to 90%"
            }
            Self::Rate => "bad rate: use a positive whole number with Gbps, Mbps, kbps or bps",
            Self::RtoRange => "bad timeout range: the least must be above zero, not above the most",
            Self::Setting => {
                "unknown setting: swift has base, endpoint, scaling, hops, hop, increase, decrease \
                 and decrease-max; write name=value,name=value"
            }
            Self::Span => "bad span: use 1us to 1s, as a whole number with ns, us, ms or s",
            Self::Window => "bad window: use 1B to 1GiB, as whole B, KiB, MiB or GiB",
        })
    }
}

impl core::error::Error for ConfigError {}
