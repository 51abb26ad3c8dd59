//! Numbers with units, as settings have them on command lines.

use core::fmt;

use towpath_base::Nanos;

/// Units of a span, largest first, in nanoseconds.
const SPANS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// The value of `text`, digits and then one of `units`, or `None` where it is not that.
pub(crate) fn split_unit(text: &str, units: &[(&str, u64)]) -> Option<u128> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, word) = text.split_at(digits);
    let &(_, unit) = units.iter().find(|(name, _)| word.eq_ignore_ascii_case(name))?;
    number.parse::<u128>().ok()?.checked_mul(u128::from(unit))
}

/// A span within `min` to `max`: a whole number with s, ms, us or ns.
pub(crate) fn parse_span(text: &str, min: Nanos, max: Nanos) -> Option<Nanos> {
    let span = Nanos(u64::try_from(split_unit(text, &SPANS)?).ok()?);
    (min..=max).contains(&span).then_some(span)
}

/// A whole number of percent within `min` to `max`.
pub(crate) fn parse_percent(text: &str, min: u32, max: u32) -> Option<u32> {
    let percent = u32::try_from(split_unit(text, &[("%", 1)])?).ok()?;
    (min..=max).contains(&percent).then_some(percent)
}

/// A span in the largest unit that shows it exactly.
pub(crate) struct Span(pub(crate) Nanos);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |&&(_, unit): &&(&str, u64)| self.0.0.is_multiple_of(unit);
        let (word, unit) = SPANS.iter().find(exact).copied().unwrap_or(("ns", 1));
        write!(f, "{}{word}", self.0.0 / unit)
    }
}
