//! Values of settings: numbers with bounds, sizes with units.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;
use towpath_transport::{CarrierRule, resolve};

use crate::resident::SLOTS_MAX;
use crate::store::SLICE_BYTES;
use crate::store::disks::DISKS_MAX;

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
    /// A size that cannot be read.
    #[error("needs a size: {0}")]
    Size(#[from] SizeError),
    /// A size that is too small.
    #[error("needs a size of at least {low} bytes")]
    TooSmall {
        /// The least.
        low: u64,
    },
    /// A name that leads to no address.
    #[error("needs an address and a port, and the name in it was not found: {problem}")]
    Unresolved {
        /// What the system said.
        problem: String,
    },
}

/// A text that is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// It is no whole number, or has an unknown unit.
    #[error(
        "a whole number of bytes, or of KiB, MiB, GiB or TiB (powers of 1,024; also K, M, G, T), \
         or of KB, MB, GB or TB (powers of 1,000)"
    )]
    Malformed,
    /// It is more than 64 bits hold.
    #[error("this one is more than 64 bits hold")]
    TooLarge,
}

/// Letters of the units that a size may have, by the power of 1,024 or 1,000 that each is.
const LETTERS: [(char, u32); 4] = [('K', 1), ('M', 2), ('G', 3), ('T', 4)];

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

/// Reads a size in bytes: `4096`, `64KiB`, `64K` (the same), `10GB` (a power of 1,000). Case does
/// not matter, and blanks may stand before the unit.
///
/// # Errors
/// [`SizeError`].
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let upper = text.trim().to_ascii_uppercase();
    let digits = upper.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = upper[digits.len()..].trim_start();
    let power = |letter: &str| {
        let mut letters = LETTERS.into_iter();
        letters.find_map(|(of, power)| (letter.chars().eq([of])).then_some(power))
    };
    let factor: u64 = match unit {
        "" | "B" => 1,
        _ => {
            let decimal = unit.strip_suffix('B').and_then(power);
            let binary = unit.strip_suffix("IB").or(Some(unit)).and_then(power);
            match (decimal, binary) {
                (Some(power), _) => 1000u64.pow(power),
                (_, Some(power)) => 1024u64.pow(power),
                _ => return Err(SizeError::Malformed),
            }
        }
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SizeError::Malformed);
    }
    let count: u64 = digits.parse().map_err(|_| SizeError::TooLarge)?;
    count.checked_mul(factor).ok_or(SizeError::TooLarge)
}

/// Bytes of slices in memory: none, or as many as one grant lets clients reach.
pub(super) fn resident_size(text: &str) -> Result<u64, ValueError> {
    let (slice, high) = (SLICE_BYTES as u64, u64::from(SLOTS_MAX) * SLICE_BYTES as u64);
    match parse_size(text)? {
        bytes @ 1.. if bytes < slice => Err(ValueError::TooSmall { low: slice }),
        bytes if bytes > high => Err(ValueError::Range { low: 0, high }),
        bytes => Ok(bytes),
    }
}

pub(super) fn size(text: &str, low: u64) -> Result<u64, ValueError> {
    let bytes = parse_size(text)?;
    if bytes >= low { Ok(bytes) } else { Err(ValueError::TooSmall { low }) }
}

/// Rules with commas between them, or none.
pub(super) fn carrier_rules(text: &str) -> Result<Vec<CarrierRule>, ValueError> {
    if text.is_empty() || text == "auto" {
        return Ok(Vec::new());
    }
    let needs = "\"auto\", or rules as in \"10.1.0.0/16=rc,fd00::/8=tcp\"";
    text.split(',').map(|rule| parsed(rule.trim(), needs)).collect()
}

pub(super) fn show_carrier_rules(rules: &[CarrierRule]) -> String {
    if rules.is_empty() {
        return "auto".into();
    }
    rules.iter().map(CarrierRule::to_string).collect::<Vec<_>>().join(",")
}

/// Directories with colons between them, or none; with one more they are as many as a server has
/// disks at most.
pub(super) fn dirs(text: &str) -> Result<Vec<PathBuf>, ValueError> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let dirs: Vec<PathBuf> = std::env::split_paths(text).collect();
    let is_named = dirs.iter().all(|dir| !dir.as_os_str().is_empty());
    match is_named && dirs.len() < DISKS_MAX {
        true => Ok(dirs),
        false => Err(ValueError::Needs { needs: "up to 63 directories with colons between them" }),
    }
}

pub(super) fn show_dirs(dirs: &[PathBuf]) -> String {
    let shown: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    if shown.is_empty() { "none".into() } else { shown.join(":") }
}

/// An address and a port; a name in place of the address is looked up, and of several addresses the
/// first IPv4 address is taken, as clients do that name no server.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, ValueError> {
    let needs = ValueError::Needs {
        needs: "an address and a port, like 127.0.0.1:7400, [::1]:7400, [fe80::1%eth0]:7400 or \
                localhost:7400",
    };
    let unresolved = |problem: String| ValueError::Unresolved { problem };
    let found = resolve(text, None).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => needs,
        _ => unresolved(error.to_string()),
    })?;
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| unresolved(String::from("it has no address")))
}

/// The size in the largest unit that gives a whole number.
pub(super) fn show_size(bytes: u64) -> String {
    let whole = |power: &u32| bytes > 0 && bytes.is_multiple_of(1 << (10 * power));
    match LETTERS.iter().rev().find(|(_, power)| whole(power)) {
        Some((letter, power)) => format!("{}{letter}iB", bytes >> (10 * power)),
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
        for wrong in ["", "KiB", "-1", "1.5GiB", "64 kbit", "1iB", "+4", "12X", "1KK"] {
            assert_eq!(size(wrong, 4), Err(SizeError::Malformed.into()), "{wrong}");
        }
        for wrong in ["99999999TiB", "18446744073709551616"] {
            assert_eq!(size(wrong, 4), Err(SizeError::TooLarge.into()), "{wrong}");
        }
        assert_eq!(size("3", 4), Err(ValueError::TooSmall { low: 4 }));
    }

    #[test]
    fn directories_are_read_as_they_are_shown() {
        for text in ["none", "/a", "/a:b/c"] {
            assert_eq!(show_dirs(&dirs(text).expect("sound")), text);
        }
        for wrong in [":", "/a:", "/a::/b", &["/a"; 64].join(":")] {
            assert!(dirs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn gb_is_a_power_of_1000_and_gib_one_of_1024() {
        assert_eq!(size("10GB", 4096), Ok(10_000_000_000));
        assert_eq!(size("10 gb", 4096), Ok(10_000_000_000));
        assert_eq!(size("10GiB", 4096), Ok(10 << 30));
        assert_eq!(size("10g", 4096), Ok(10 << 30));
        assert_eq!(size("7B", 0), Ok(7));
        let said = size("10GX", 4096).expect_err("no unit").to_string();
        assert!(said.contains("GiB") && said.contains("GB") && !said.contains("4096"), "{said}");
    }

    #[test]
    fn a_name_may_stand_for_an_address_to_listen_on() {
        let found = listen_address("localhost:7400").expect("every host has one");
        assert!(found.ip().is_loopback() && found.port() == 7400, "{found}");
        assert_eq!(listen_address("[::1]:1").expect("an address").to_string(), "[::1]:1");
        for wrong in ["localhost", "7400", "127.0.0.1", "host:seven", "1.2.3.4:99999"] {
            assert!(matches!(listen_address(wrong), Err(ValueError::Needs { .. })), "{wrong}");
        }
        let said = listen_address("no such host:1").expect_err("blanks").to_string();
        assert!(said.contains("not found"), "{said}");
    }

    #[test]
    fn a_number_outside_its_bounds_is_refused_with_them() {
        assert_eq!(number("7", 1u32, 8), Ok(7));
        assert_eq!(number("9", 1u32, 8), Err(ValueError::Range { low: 1, high: 8 }));
        assert_eq!(number("seven", 1u32, 8), Err(ValueError::Range { low: 1, high: 8 }));
    }
}
