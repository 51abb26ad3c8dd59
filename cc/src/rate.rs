//! A rate in bytes per second.

use core::fmt;
use core::str::FromStr;

use towpath_base::Nanos;

use crate::error::ConfigError;
use crate::text::split_unit;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Units of the text form, largest first, in bits per second.
const UNITS: [(&str, u64); 4] =
    [("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("kbps", 1_000), ("bps", 1)];

/// Bytes per second. As text it is in bits per second, as networks are sold: `10Gbps`, `2500Mbps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

impl Rate {
    /// `gbps` times 10^9 bits per second, saturating.
    #[must_use]
    pub const fn from_gbps(gbps: u64) -> Self {
        Self(gbps.saturating_mul(125_000_000))
    }

    /// `mbps` times 10^6 bits per second, saturating.
    #[must_use]
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps.saturating_mul(125_000))
    }

    /// The rate that sends `bytes` in every `span`, rounded up so that it is zero only where
    /// `bytes` is, and saturating (at a span of zero, too): a window over a round trip, say.
    #[must_use]
    pub fn from_bytes_per(bytes: u64, span: Nanos) -> Self {
        let per_sec = (u128::from(bytes) * NANOS_PER_SEC).div_ceil(u128::from(span.0.max(1)));
        Self(u64::try_from(per_sec).unwrap_or(u64::MAX))
    }

    /// How long `bytes` take at this rate, rounded up to whole nanoseconds and saturating; for
    /// ever at a rate of zero.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Nanos {
        match (bytes, self.0) {
            (0, _) => Nanos::ZERO,
            (_, 0) => Nanos(u64::MAX),
            (bytes, rate) => {
                let span = (u128::from(bytes) * NANOS_PER_SEC).div_ceil(u128::from(rate));
                Nanos(u64::try_from(span).unwrap_or(u64::MAX))
            }
        }
    }
}

impl fmt::Display for Rate {
    /// In the largest unit that shows the rate exactly, so that parsing gives it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from(self.0) * 8;
        let exact = |&&(_, unit): &&(&str, u64)| bits.is_multiple_of(u128::from(unit));
        let (word, unit) = UNITS.iter().find(exact).copied().unwrap_or(("bps", 1));
        write!(f, "{}{word}", bits / u128::from(unit))
    }
}

impl FromStr for Rate {
    type Err = ConfigError;

    /// A whole number and one of `Gbps`, `Mbps`, `kbps`, `bps`, in any case; what is no whole
    /// number of bytes per second is rounded down. Zero is refused: nothing would ever be sent.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let bits = split_unit(text, &UNITS).ok_or(ConfigError::Rate)?;
        match u64::try_from(bits / 8) {
            Ok(rate) if rate > 0 => Ok(Self(rate)),
            _ => Err(ConfigError::Rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use towpath_base::Prng;

    use super::*;

    #[test]
    fn a_rate_is_bits_in_text_and_bytes_inside() {
        assert_eq!("10Gbps".parse(), Ok(Rate::from_gbps(10)));
        assert_eq!("2500mbps".parse(), Ok(Rate::from_mbps(2_500)));
        assert_eq!(Rate::from_gbps(10), Rate(1_250_000_000));
        assert_eq!(Rate::from_mbps(2_500).to_string(), "2500Mbps");
        assert_eq!(Rate(1).to_string(), "8bps");
    }

    #[test]
    fn every_rate_survives_its_text_form() {
        let mut prng = Prng::new(11);
        for _ in 0..1_000 {
            let rate = Rate((prng.next_u64() >> prng.below(64)).max(1));
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "10", "Gbps", "-1Gbps", "+1Gbps", "1.5Gbps", "0Gbps", "7bps", "10GB"] {
            assert_eq!(text.parse::<Rate>(), Err(ConfigError::Rate), "{text:?}");
        }
    }

    #[test]
    fn time_is_rounded_up_and_saturates() {
        assert_eq!(Rate::from_gbps(8).time_for(4_096), Nanos(4_096));
        assert_eq!(Rate(3_000_000_000).time_for(1), Nanos(1));
        assert_eq!(Rate(1).time_for(u64::MAX), Nanos(u64::MAX));
        assert_eq!(Rate(0).time_for(1), Nanos(u64::MAX));
        assert_eq!(Rate(0).time_for(0), Nanos::ZERO);
    }

    #[test]
    fn a_window_over_a_round_trip_is_a_rate_and_never_rounds_to_zero() {
        assert_eq!(Rate::from_bytes_per(1 << 20, Nanos::from_secs(1)), Rate(1 << 20));
        assert_eq!(Rate::from_bytes_per(1, Nanos::from_secs(3)), Rate(1));
        assert_eq!(Rate::from_bytes_per(0, Nanos::from_secs(3)), Rate(0));
        assert_eq!(Rate::from_bytes_per(u64::MAX, Nanos::ZERO), Rate(u64::MAX));
    }
}
