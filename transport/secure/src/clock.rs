//! The wall clock, which expiry depends on, as text and as milliseconds.

use core::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// A moment in milliseconds since the Unix epoch. Its text form is RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime(pub u64);

impl WallTime {
    /// What this host's clock says.
    #[must_use]
    pub fn now() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
    }

    /// From `2027-01-31`, the first moment of that day in UTC, or `2027-01-31T12:00:00Z`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let day = text.len() == "2027-01-31".len() && text.is_ascii();
        let time = if day {
            humantime::parse_rfc3339(&format!("{text}T00:00:00Z"))
        } else {
            humantime::parse_rfc3339(text)
        };
        let since = time.ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok().map(Self)
    }

    /// Whether the clock that said this is more than a day behind `evidence`, a moment that has
    /// certainly passed: then it cannot tell what has expired.
    pub(crate) fn is_behind(self, evidence: Self) -> bool {
        self.0.saturating_add(DAY_MS) < evidence.0
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Years beyond 9999 have no text form in RFC 3339.
        let latest_ms = 253_402_300_799_000;
        let time = UNIX_EPOCH + Duration::from_millis(self.0.min(latest_ms));
        let text = humantime::format_rfc3339_seconds(time).to_string();
        f.write_str(text.strip_suffix("T00:00:00Z").unwrap_or(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_moments_read_back() {
        let day = WallTime::parse("2027-01-31").expect("a day");
        assert_eq!(day.0, 1_801_353_600_000);
        assert_eq!(day.to_string(), "2027-01-31");
        let moment = WallTime::parse("2027-01-31T12:30:00Z").expect("a moment");
        assert_eq!(moment.0 - day.0, (12 * 60 + 30) * 60 * 1_000);
        assert_eq!(moment.to_string(), "2027-01-31T12:30:00Z");
        assert_eq!(WallTime(u64::MAX).to_string(), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn what_is_no_date_is_refused() {
        let no_dates = [
            "",
            "2027",
            "2027-13-01",
            "2027-01-31 ",
            "31.01.2027",
            "0001-01-01",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ];
        for text in no_dates {
            assert_eq!(WallTime::parse(text), None, "{text}");
        }
    }
}
