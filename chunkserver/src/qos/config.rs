//! Who has reserved how much: settings, and the file of the tenants.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use thiserror::Error;
use towpath_qos::limits::{PERIOD, TICK};
use towpath_qos::{Capacities, Rules, Share, Weights};
use towpath_transport::Nanos;

use super::limits::{FILE_BYTES_MAX, NAME_BYTES_MAX, TENANTS_MAX};

/// What links that name no tenant share: it has no reservation.
pub const OTHERS: &str = "others";

/// The tenant that scrubs are counted for.
pub const SCRUB: &str = "scrub";

/// Settings of reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosConfig {
    /// What the server does in a second, in tokens: all clients together, and one by itself.
    pub capacity: Capacities,
    /// What operations cost, in tokens for each 4 KiB.
    pub weights: Weights,
    /// The length of a period. Default 1 s.
    pub period: Nanos,
    /// How often tokens are looked at. Default 1 ms.
    pub tick: Nanos,
    /// The protocol. Default: ours. The published ones are measured beside it, and no file can ask
    /// for them.
    pub rules: Rules,
    /// What the device says of clients is held against nobody, as the published protocol has it:
    /// it counts neither what engines take nor how often they ask. Default false, and no file can
    /// ask for it.
    pub trusts_clients: bool,
    /// The tenants by name. [`OTHERS`] and [`SCRUB`] are there whether they are named or not.
    pub tenants: Shares,
}

/// What tenants have a second, by name.
pub type Shares = BTreeMap<String, Share>;

impl QosConfig {
    /// For a server that does so many operations of 4 KiB a second; one client by itself as many.
    #[must_use]
    pub fn new(iops: u32) -> Self {
        Self {
            capacity: Capacities { all: iops, one: iops },
            weights: Weights::default(),
            period: PERIOD,
            tick: TICK,
            rules: Rules::OURS,
            trusts_clients: false,
            tenants: Shares::new(),
        }
    }

    /// A rate in tokens a second as tokens a period.
    pub(super) fn of_period(&self, rate: u32) -> u32 {
        let tokens = u128::from(rate) * u128::from(self.period.0) / 1_000_000_000;
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    pub(super) fn share_of_period(&self, share: Share) -> Share {
        Share {
            reservation: self.of_period(share.reservation),
            limit: share.limit.map(|limit| self.of_period(limit)),
            weight: share.weight,
        }
    }
}

/// Why a file of tenants cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TenantsError {
    /// It cannot be read.
    #[error("cannot read {}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It can be read and is wrong.
    #[error("{}: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
}

/// The file: a table for each tenant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tenant: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default, deserialize_with = "rate")]
    reserve: u32,
    #[serde(default, deserialize_with = "some_rate")]
    limit: Option<u32>,
    #[serde(default = "one")]
    weight: u16,
}

fn one() -> u16 {
    1
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rate {
    Number(u64),
    Text(String),
}

fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let fits = |number| u32::try_from(number).map_err(|_| RATE_NEEDS);
    let read = match Rate::deserialize(from)? {
        Rate::Number(number) => fits(number),
        Rate::Text(text) => parse_rate(&text),
    };
    read.map_err(serde::de::Error::custom)
}

fn some_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    rate(from).map(Some)
}

const RATE_NEEDS: &str =
    "a rate is operations of 4 KiB a second: a number such as 80000, or \"80K\" or \"1.5M\"";

/// Reads a rate in operations of 4 KiB a second: `80000`, `80K` or `1.5M`.
///
/// # Errors
/// What a rate looks like.
pub fn parse_rate(text: &str) -> Result<u32, &'static str> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1_000.0),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1_000_000.0),
        _ => (text, 1.0),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = digits.parse::<f64>().ok().filter(|_| is_plain).ok_or(RATE_NEEDS)?;
    let rate = (number * unit).round();
    if rate > f64::from(u32::MAX) { Err(RATE_NEEDS) } else { Ok(rate as u32) }
}

/// Reads the file of the tenants.
///
/// # Errors
/// [`TenantsError`] with what to do.
pub fn read_tenants(path: &Path) -> Result<Shares, TenantsError> {
    let failed = |source| TenantsError::Read { path: path.into(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    parse_tenants(&text).map_err(|message| TenantsError::Content { path: path.into(), message })
}

fn parse_tenants(text: &str) -> Result<Shares, String> {
    let file: File =
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    if file.tenant.len() > TENANTS_MAX {
        return Err(format!("there may be {TENANTS_MAX} tenants, not {}", file.tenant.len()));
    }
    let mut tenants = Shares::new();
    for (name, Entry { reserve, limit, weight }) in file.tenant {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(format!(
                "a tenant's name has 1 to {NAME_BYTES_MAX} letters, digits, dots, dashes and \
                 underscores, unlike {name:?}"
            ));
        }
        if limit.is_some_and(|limit| limit < reserve) {
            return Err(format!("the limit of tenant {name} is below what it reserves"));
        }
        if weight == 0 {
            return Err(format!("the weight of tenant {name} is at least 1"));
        }
        tenants.insert(name, Share { reservation: reserve, limit, weight });
    }
    Ok(tenants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_read_with_their_rates() {
        let text = "[tenant.web]\nreserve = \"80K\"\nlimit = \"1.5M\"\nweight = 3\n\
                    [tenant.batch]\nreserve = 500\n[tenant.scrub]\n";
        let tenants = parse_tenants(text).expect("it is sound");
        let share = |reservation, limit, weight| Share { reservation, limit, weight };
        assert_eq!(tenants["web"], share(80_000, Some(1_500_000), 3));
        assert_eq!(tenants["batch"], share(500, None, 1));
        assert_eq!(tenants["scrub"], share(0, None, 1));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let said = |text: &str| parse_tenants(text).expect_err("it is wrong");
        assert!(said("[tenant.web]\nreserv = 5").contains("line 2"));
        assert!(said("[tenant.web]\nreserve = \"5Q\"").contains("80K"));
        assert!(said("[tenant.web]\nreserve = -1").contains("line 2"));
        assert!(said("[tenant.web]\nreserve = 5\nlimit = 4").contains("below"));
        assert!(said("[tenant.\"a b\"]").contains("letters"));
        assert!(said("[tenant.a]\nweight = 0").contains("at least 1"));
    }

    #[test]
    fn rates_are_numbers_with_units() {
        assert_eq!(
            ["0", "80K", "1.5M", "7"].map(parse_rate),
            [Ok(0), Ok(80_000), Ok(1_500_000), Ok(7)]
        );
        for text in ["", "K", "-1", "5G", "1e5", "99999999999", "inf", "1.2.3"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
