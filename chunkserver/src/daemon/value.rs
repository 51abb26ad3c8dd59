//! Values of settings: how each kind is read, and how those are shown that do not show themselves.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Serialize as _, Serializer};
use thiserror::Error;
use towpath_transport::{CarrierRule, Mtu, resolve};

use super::config::StatusPlace;
use crate::store::SLICE_BYTES;
use crate::store::disks::DISKS_MAX;

/// Why a value of a setting is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum ValueError {
    /// It is something else than it has to be.
    #[error("needs {0}")]
    Needs(&'static str),
    /// A number outside its bounds.
    #[error("needs a whole number from {low} to {high}")]
    Range { low: u64, high: u64 },
    /// A size that cannot be read.
    #[error("needs a size: {0}")]
    Size(#[from] SizeError),
    /// A size that is too small.
    #[error("needs a size of at least {low} bytes")]
    TooSmall { low: u64 },
    /// A name that leads to no address.
    #[error("needs an address and a port, and the name in it was not found: {0}")]
    Unresolved(String),
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

/// Reads what `T` reads.
pub(super) fn parsed<T: FromStr>(
    needs: &'static str,
) -> impl Fn(&str) -> Result<T, ValueError> + Clone {
    move |text| text.parse().map_err(|_| ValueError::Needs(needs))
}

/// Reads a word that stands for nothing, or what `read` reads.
pub(super) fn or<T>(
    word: &'static str,
    read: impl Fn(&str) -> Result<T, ValueError> + Clone,
) -> impl Fn(&str) -> Result<Option<T>, ValueError> + Clone {
    move |text| if text == word { Ok(None) } else { read(text).map(Some) }
}

/// Reads a number with bounds.
pub(super) fn number<T>(low: T, high: T) -> impl Fn(&str) -> Result<T, ValueError> + Clone
where
    T: FromStr + PartialOrd + Copy + Into<u64>,
{
    move |text| match text.parse() {
        Ok(value) if value >= low && value <= high => Ok(value),
        _ => Err(ValueError::Range { low: low.into(), high: high.into() }),
    }
}

pub(super) fn yes_or_no(text: &str) -> Result<bool, ValueError> {
    text.parse().map_err(|_| ValueError::Needs("true or false, without quotes"))
}

pub(super) fn path(text: &str) -> Result<PathBuf, ValueError> {
    if text.is_empty() { Err(ValueError::Needs("a path")) } else { Ok(text.into()) }
}

pub(super) fn path_or_none(text: &str) -> Result<Option<PathBuf>, ValueError> {
    or("none", path)(text).map_err(|_| ValueError::Needs("a path, or \"none\""))
}

pub(super) fn status_place(text: &str) -> Result<StatusPlace, ValueError> {
    match text {
        "" => Err(ValueError::Needs("a path, \"data_dir\" or \"none\"")),
        "data_dir" => Ok(StatusPlace::DataDir),
        "none" => Ok(StatusPlace::Nowhere),
        path => Ok(StatusPlace::At(path.into())),
    }
}

pub(super) fn mtu(text: &str) -> Result<Option<Mtu>, ValueError> {
    let read = |text: &str| text.parse().ok().and_then(Mtu::from_bytes).ok_or(());
    match text {
        "auto" => Ok(None),
        _ => read(text)
            .map(Some)
            .map_err(|()| ValueError::Needs("256, 512, 1024, 2048 or 4096, or \"auto\"")),
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

pub(super) fn size(low: u64) -> impl Fn(&str) -> Result<u64, ValueError> + Clone {
    move |text| match parse_size(text)? {
        bytes if bytes >= low => Ok(bytes),
        _ => Err(ValueError::TooSmall { low }),
    }
}

/// Nothing, or at least a slice.
pub(super) fn size_or_0(high: u64) -> impl Fn(&str) -> Result<u64, ValueError> + Clone {
    move |text| match parse_size(text)? {
        0 => Ok(0),
        bytes if bytes > high => Err(ValueError::Range { low: 0, high }),
        _ => size(SLICE_BYTES as u64)(text),
    }
}

pub(super) fn capacity(text: &str) -> Result<u64, ValueError> {
    Ok(or("unlimited", size(SLICE_BYTES as u64))(text)?.unwrap_or(u64::MAX))
}

/// Rules with commas between them, or none.
pub(super) fn rules(text: &str) -> Result<Vec<CarrierRule>, ValueError> {
    if text.is_empty() || text == "auto" {
        return Ok(Vec::new());
    }
    let rule = parsed("\"auto\", or rules as in \"10.1.0.0/16=rc,fd00::/8=tcp\"");
    text.split(',').map(|text| rule(text.trim())).collect()
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
        false => Err(ValueError::Needs("up to 63 directories with colons between them")),
    }
}

/// An address and a port; a name in place of the address is looked up, and of several addresses the
/// first IPv4 address is taken, as clients do that name no server.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, ValueError> {
    let needs = ValueError::Needs(
        "an address and a port, like 127.0.0.1:7400, [::1]:7400, [fe80::1%eth0]:7400 or \
         localhost:7400",
    );
    let found = resolve(text, None).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => needs,
        _ => ValueError::Unresolved(error.to_string()),
    })?;
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| ValueError::Unresolved(String::from("it has no address")))
}

pub(super) fn shown<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Nothing stands for the default.
pub(super) fn shown_choice<S: Serializer>(
    value: &Option<impl Display>,
    to: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(to)
}

/// Nothing stands for the default, an empty list.
pub(super) fn show_rules<S: Serializer>(rules: &[CarrierRule], to: S) -> Result<S::Ok, S::Error> {
    let texts: Vec<_> = rules.iter().map(CarrierRule::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(",")).serialize(to)
}

/// As for rules.
pub(super) fn show_dirs<S: Serializer>(dirs: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    let texts: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    (!texts.is_empty()).then(|| texts.join(":")).serialize(to)
}

/// Nothing stands for the default, no bound.
pub(super) fn show_capacity<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
    if *bytes == u64::MAX { to.serialize_none() } else { show_size(bytes, to) }
}

/// The size in the largest unit that gives a whole number.
pub(super) fn show_size<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
    let whole = |power: &u32| *bytes > 0 && bytes.is_multiple_of(1 << (10 * power));
    match LETTERS.iter().rev().find(|(_, power)| whole(power)) {
        Some((letter, power)) => {
            to.collect_str(&format_args!("{}{letter}iB", bytes >> (10 * power)))
        }
        None => bytes.serialize(to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json, value::Serializer as ToValue};

    fn shown_size(bytes: u64) -> Value {
        show_size(&bytes, ToValue).expect("it is shown")
    }

    #[test]
    fn sizes_are_read_with_and_without_units_and_shown_as_read() {
        let size = |text, low| size(low)(text);
        assert_eq!(size("4096", 0), Ok(4096));
        assert_eq!(size("64KiB", 0), Ok(65_536));
        assert_eq!(size("2 TiB", 0), Ok(2 << 40));
        assert_eq!(shown_size(65_536), "64KiB");
        assert_eq!(shown_size(65_537), 65537);
        assert_eq!(shown_size(0), 0);
        assert_eq!(show_capacity(&u64::MAX, ToValue).expect("it is shown"), Value::Null);
        for wrong in ["", "KiB", "-1", "1.5GiB", "64 kbit", "1iB", "+4", "12X", "1KK"] {
            assert_eq!(size(wrong, 4), Err(SizeError::Malformed.into()), "{wrong}");
        }
        for wrong in ["99999999TiB", "18446744073709551616"] {
            assert_eq!(size(wrong, 4), Err(SizeError::TooLarge.into()), "{wrong}");
        }
        assert_eq!(size("3", 4), Err(ValueError::TooSmall { low: 4 }));
        let memory = size_or_0(1 << 20);
        assert_eq!((memory("0"), memory("4K")), (Ok(0), Ok(4096)));
        assert_eq!(memory("4095"), Err(ValueError::TooSmall { low: 4096 }));
        assert_eq!(memory("2M"), Err(ValueError::Range { low: 0, high: 1 << 20 }));
    }

    #[test]
    fn directories_are_read_as_they_are_shown() {
        for (text, value) in
            [("none", Value::Null), ("/a", json!("/a")), ("/a:b/c", json!("/a:b/c"))]
        {
            assert_eq!(show_dirs(&dirs(text).expect("sound"), ToValue).expect("shown"), value);
        }
        for wrong in [":", "/a:", "/a::/b", &["/a"; 64].join(":")] {
            assert!(dirs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn gb_is_a_power_of_1000_and_gib_one_of_1024() {
        let size = |text, low| size(low)(text);
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
            assert!(matches!(listen_address(wrong), Err(ValueError::Needs(_))), "{wrong}");
        }
        let said = listen_address("no such host:1").expect_err("blanks").to_string();
        assert!(said.contains("not found"), "{said}");
    }

    #[test]
    fn a_number_outside_its_bounds_is_refused_with_them() {
        let number = number(1u32, 8);
        assert_eq!(number("7"), Ok(7));
        assert_eq!(number("9"), Err(ValueError::Range { low: 1, high: 8 }));
        assert_eq!(number("seven"), Err(ValueError::Range { low: 1, high: 8 }));
    }
}
