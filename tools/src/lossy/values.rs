//! Shares, spans of time, rates and faults as people write them.

use core::num::NonZeroU64;
use core::str::FromStr;

use towpath_base::Nanos;
use towpath_sim::{Burst, Outage};

use crate::cli::bytes::parse_size;

/// A value does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ValueError {
    #[error("a share is written as 1% or 0.01, and 1 as 100%")]
    Share,
    #[error("a time is a number and ns, us, ms, s or min, as 20ms or 1.5s")]
    Span,
    #[error("a rate is a number and kbit, Mbit or Gbit (a second), as 100Mbit")]
    Rate,
    #[error("expected {0}")]
    Form(&'static str),
    #[error("expected a whole number of frames, 1 or more")]
    Frames,
}

/// Units of time, in nanoseconds.
const SPANS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("min", 60e9), ("s", 1e9)];

/// Units of rates, in bits per second.
const RATES: [(&str, f64); 4] = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];

/// Reads `1%` or `0.01`. A bare 1 could mean either, so it is refused.
pub(super) fn parse_share(text: &str) -> Result<f64, ValueError> {
    let text = text.trim();
    let (digits, scale, whole) = match text.strip_suffix('%') {
        Some(digits) => (digits, 100.0, 100.0),
        None => (text, 1.0, 0.999_999_999),
    };
    let value = number(digits).filter(|value| *value <= whole).ok_or(ValueError::Share)?;
    Ok(value / scale)
}

/// Reads `20ms` and the like; a bare 0 is no time.
pub(super) fn parse_span(text: &str) -> Result<Nanos, ValueError> {
    if text.trim() == "0" {
        return Ok(Nanos::ZERO);
    }
    let ns = with_unit(text, &SPANS).ok_or(ValueError::Span)?;
    Ok(Nanos(ns.round() as u64))
}

/// Reads `100Mbit`, `100Mbit/s` or `1.5Gbit`, in bits per second; units are powers of 1,000.
pub(super) fn parse_rate(text: &str) -> Result<NonZeroU64, ValueError> {
    let lower = text.trim().to_ascii_lowercase();
    let plain = lower.strip_suffix("/s").unwrap_or(&lower);
    let bits = with_unit(plain, &RATES).ok_or(ValueError::Rate)?;
    NonZeroU64::new(bits.round() as u64).ok_or(ValueError::Rate)
}

fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    // "ms" and "ns" end in "s" too, so the first that leaves a number is meant.
    units.iter().find_map(|(unit, scale)| Some(number(text.strip_suffix(unit)?)? * scale))
}

/// A plain number that is not negative.
fn number(text: &str) -> Option<f64> {
    let text = text.trim_end();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|value: &f64| is_plain && value.is_finite())
}

fn frames(text: &str) -> Result<u32, ValueError> {
    u32::from_str(text).ok().filter(|frames| *frames > 0).ok_or(ValueError::Frames)
}

/// `P:FRAMES[:LOSS]`: with probability P a frame begins a burst, which is FRAMES long on average
/// and loses LOSS of its frames.
pub(super) fn parse_burst(text: &str) -> Result<Burst, ValueError> {
    let mut parts = text.split(':');
    let (Some(enter), Some(length)) = (parts.next(), parts.next()) else {
        return Err(ValueError::Form("P:FRAMES or P:FRAMES:LOSS, as 0.1%:20"));
    };
    let loss = parts.next().map_or(Ok(1.0), parse_share)?;
    end(parts)?;
    Ok(Burst { enter: parse_share(enter)?, leave: 1.0 / f64::from(frames(length)?), loss })
}

/// Copies of frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dup {
    pub(super) p: f64,
    pub(super) delay_max: Nanos,
}

/// `P[:SPAN]`.
pub(super) fn parse_dup(text: &str) -> Result<Dup, ValueError> {
    let mut parts = text.split(':');
    let p = parse_share(parts.next().unwrap_or_default())?;
    let delay_max = parts.next().map_or(Ok(Nanos::ZERO), parse_span)?;
    end(parts)?;
    Ok(Dup { p, delay_max })
}

/// Frames that others overtake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reorder {
    pub(super) p: f64,
    pub(super) frames_max: u32,
    pub(super) wait_max: Nanos,
}

/// `P[:FRAMES[:SPAN]]`.
pub(super) fn parse_reorder(text: &str) -> Result<Reorder, ValueError> {
    let mut parts = text.split(':');
    let p = parse_share(parts.next().unwrap_or_default())?;
    let frames_max = parts.next().map_or(Ok(5), frames)?;
    let wait_max = parts.next().map_or(Ok(Nanos::from_millis(10)), parse_span)?;
    end(parts)?;
    Ok(Reorder { p, frames_max, wait_max })
}

/// Frames that come much later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Late {
    pub(super) p: f64,
    pub(super) low: Nanos,
    pub(super) high: Nanos,
}

/// `P:SPAN[:SPAN]`.
pub(super) fn parse_late(text: &str) -> Result<Late, ValueError> {
    let mut parts = text.split(':');
    let (Some(p), Some(low)) = (parts.next(), parts.next()) else {
        return Err(ValueError::Form("P:TIME or P:TIME:TIME, as 0.1%:100ms:1s"));
    };
    let low = parse_span(low)?;
    let high = parts.next().map_or(Ok(low), parse_span)?;
    end(parts)?;
    Ok(Late { p: parse_share(p)?, low, high })
}

/// An outage, and what it begins after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its `after` counts from the beginning of the wire, or from the moment that the bytes came.
    pub(super) outage: Outage,
    /// Bytes of frames that came into the wire before it, both ways together; `None` for none.
    pub(super) moved: Option<u64>,
}

/// `SPAN@START[/EVERY]`; START is a time, or a size with its unit.
pub(super) fn parse_cut(text: &str) -> Result<Cut, ValueError> {
    const FORM: ValueError =
        ValueError::Form("SPAN@START or SPAN@START/EVERY, as 5s@10s or 5s@10MiB");
    let (span, rest) = text.split_once('@').ok_or(FORM)?;
    let (start, every) = rest.split_once('/').unwrap_or((rest, "0"));
    let (span, every) = (parse_span(span)?, parse_span(every)?);
    if every != Nanos::ZERO && every <= span {
        return Err(ValueError::Form("an EVERY that is longer than the SPAN"));
    }
    let is_size = start.trim_end().ends_with(['B', 'b']);
    let moved = is_size.then(|| parse_size(start.trim()).map_err(|_| FORM)).transpose()?;
    let after = if is_size { Nanos::ZERO } else { parse_span(start)? };
    Ok(Cut { outage: Outage { after, span, every }, moved })
}

fn end<'a>(mut parts: impl Iterator<Item = &'a str>) -> Result<(), ValueError> {
    match parts.next() {
        None => Ok(()),
        Some(_) => Err(ValueError::Form("fewer parts between colons")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_per_cent_or_below_one() {
        for (text, share) in
            [("1%", 0.01), ("0.01", 0.01), ("0", 0.0), ("100%", 1.0), ("12.5 %", 0.125)]
        {
            assert_eq!(parse_share(text), Ok(share), "{text}");
        }
        for text in ["1", "101%", "-1%", "", "%", "x", "nan", "1e-3", "inf"] {
            assert_eq!(parse_share(text), Err(ValueError::Share), "{text}");
        }
    }

    #[test]
    fn spans_and_rates_need_their_units() {
        for (text, ns) in [
            ("20ms", 20_000_000),
            ("1.5s", 1_500_000_000),
            ("7 us", 7_000),
            ("30ns", 30),
            ("2min", 120_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_span(text), Ok(Nanos(ns)), "{text}");
        }
        for text in ["20", "ms", "-1s", "1h", ""] {
            assert_eq!(parse_span(text), Err(ValueError::Span), "{text}");
        }
        for (text, bits) in [
            ("100Mbit", 100_000_000),
            ("1Gbit/s", 1_000_000_000),
            ("56kbit", 56_000),
            ("2.5gbit", 2_500_000_000),
            ("9bit", 9),
        ] {
            assert_eq!(parse_rate(text).map(NonZeroU64::get), Ok(bits), "{text}");
        }
        for text in ["100", "100MB", "0Mbit", "Mbit"] {
            assert_eq!(parse_rate(text), Err(ValueError::Rate), "{text}");
        }
    }

    #[test]
    fn faults_of_several_parts_have_their_defaults() {
        let burst = |enter, leave, loss| Ok(Burst { enter, leave, loss });
        assert_eq!(parse_burst("0.1%:20"), burst(0.001, 0.05, 1.0));
        assert_eq!(parse_burst("0.1%:20:50%"), burst(0.001, 0.05, 0.5));
        assert_eq!(parse_dup("5%"), Ok(Dup { p: 0.05, delay_max: Nanos::ZERO }));
        assert_eq!(parse_dup("5%:1ms"), Ok(Dup { p: 0.05, delay_max: Nanos::from_millis(1) }));
        let wait_max = Nanos::from_millis(10);
        assert_eq!(parse_reorder("5%"), Ok(Reorder { p: 0.05, frames_max: 5, wait_max }));
        let wait_max = Nanos::from_micros(50);
        assert_eq!(parse_reorder("5%:9:50us"), Ok(Reorder { p: 0.05, frames_max: 9, wait_max }));
        let (low, high) = (Nanos::from_millis(100), Nanos::from_secs(1));
        assert_eq!(parse_late("1%:100ms:1s"), Ok(Late { p: 0.01, low, high }));
        assert_eq!(parse_late("1%:1s"), Ok(Late { p: 0.01, low: high, high }));
        let (span, after, every) = (Nanos::from_secs(5), Nanos::from_secs(10), Nanos::ZERO);
        let cut = |after, every, moved| Ok(Cut { outage: Outage { after, span, every }, moved });
        assert_eq!(parse_cut("5s@10s"), cut(after, every, None));
        assert_eq!(parse_cut("5s@10MiB"), cut(Nanos::ZERO, every, Some(10 << 20)));
        let every = Nanos::from_secs(60);
        assert_eq!(parse_cut("5s@10s/1min"), cut(after, every, None));
        assert_eq!(parse_cut("5s@1GiB/1min"), cut(Nanos::ZERO, every, Some(1 << 30)));
    }

    #[test]
    fn what_has_too_few_or_too_many_parts_is_refused() {
        assert!(parse_burst("1%").is_err());
        assert!(parse_burst("1%:0").is_err());
        assert!(parse_burst("1%:2:3%:4").is_err());
        assert!(parse_dup("").is_err());
        assert!(parse_reorder("1%:2:3ms:4").is_err());
        assert!(parse_late("1%").is_err());
        assert!(parse_cut("5s").is_err());
        assert!(parse_cut("5s@1s/5s").is_err(), "always down is a loss of 100%");
        assert!(parse_cut("5s@10").is_err(), "a time or a size has its unit");
        assert!(parse_cut("5s@xMiB").is_err());
    }
}
