//! Values of settings: numbers with bounds, sizes with units.

use std::fmt::Display;
use std::str::FromStr;

use thiserror::Error;

/// Why a value of a setting is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ValueError {
    /// It is something else than it has to be.
    #[error("needs {needs}")]
    Needs {
        /// What it has to be.
        needs: &'static str,
    },
    /// A number outside its bounds.
    #[error("needs a whole number from {low} to {high}")]
    Range {
        /// The least.
        low: u64,
        /// The most.
        high: u64,
    },
    /// A size that is none, or too small.
    #[error("needs a size of at least {low} bytes, like 4096, \"64KiB\" or \"500GiB\"")]
    Size {
        /// The least.
        low: u64,
    },
}

/// Units that a size may end with, and by how many bits each shifts.
const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

pub(super) fn parsed<T: FromStr>(text: &str, needs: &'static str) -> Result<T, ValueError> {
    text.parse().map_err(|_| ValueError::Needs { needs })
}

pub(super) fn number<T>(text: &str, low: T, high: T) -> Result<T, ValueError>
where
    T: FromStr + PartialOrd + Copy + Display + Into<u64>,
{
    let range = ValueError::Range { low: low.into(), high: high.into() };
    match text.parse() {
        Ok(value) if value >= low && value <= high => Ok(value),
        _ => Err(range),
    }
}

pub(super) fn size(text: &str, low: u64) -> Result<u64, ValueError> {
    let unit = UNITS.iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, *bits)));
    let (digits, bits) = unit.unwrap_or((text, 0));
    let count: Option<u64> = digits.trim_end().parse().ok();
    let bytes = count.and_then(|count| count.checked_mul(1 << bits));
    bytes.filter(|bytes| *bytes >= low).ok_or(ValueError::Size { low })
}

/// The size in the largest unit that gives a whole number.
pub(super) fn show_size(bytes: u64) -> String {
    let whole = |bits: &u32| bytes > 0 && bytes.is_multiple_of(1 << bits);
    match UNITS.iter().find(|(_, bits)| *bits > 0 && whole(bits)) {
        Some((unit, bits)) => format!("{}{unit}", bytes >> bits),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units_and_shown_as_read() {
        assert_eq!(size("4096", 0), Ok(4096));
        assert_eq!(size("64KiB", 0), Ok(65_536));
        assert_eq!(size("2 TiB", 0), Ok(2 << 40));
        assert_eq!(show_size(65_536), "64KiB");
        assert_eq!(show_size(65_537), "65537");
        assert_eq!(show_size(0), "0");
        for wrong in ["", "KiB", "-1", "1.5GiB", "64 kb", "99999999TiB", "3"] {
            assert_eq!(size(wrong, 4), Err(ValueError::Size { low: 4 }), "{wrong}");
        }
    }

    #[test]
    fn a_number_outside_its_bounds_is_refused_with_them() {
        assert_eq!(number("7", 1u32, 8), Ok(7));
        assert_eq!(number("9", 1u32, 8), Err(ValueError::Range { low: 1, high: 8 }));
        assert_eq!(number("seven", 1u32, 8), Err(ValueError::Range { low: 1, high: 8 }));
    }
}
