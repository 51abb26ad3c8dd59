//! The values of flags that are more than numbers.

use crate::perftest::limits::SIZE_MAX;
use std::fmt;
use std::str::FromStr;
use towpath_cc::ControllerConfig;
use towpath_verbs::Mtu;

/// What carries the messages (`-c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// Unreliable Connected queue pairs; without `--raw` Towpath above them.
    Uc,
    /// Reliable Connected queue pairs; without `--raw` Towpath above them.
    Rc,
    /// Unreliable Datagram queue pairs, with `--raw` only.
    Ud,
    /// Kernel TCP.
    Tcp,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uc => "UC",
            Self::Rc => "RC",
            Self::Ud => "UD",
            Self::Tcp => "TCP",
        })
    }
}

/// Why a connection type is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// perftest has it, these tools do not.
    #[error(
        "connection type {0} is not there; there are UC and RC (Towpath above them) and TCP \
         (kernel TCP, to compare with), and with --raw RC, UC and UD"
    )]
    NotThere(String),
    /// Nobody has it.
    #[error(
        "unknown connection type; use UC or RC (Towpath) or TCP (kernel TCP), or with --raw RC, \
         UC or UD"
    )]
    Unknown,
}

impl FromStr for Connection {
    type Err = ConnectionError;

    fn from_str(text: &str) -> Result<Self, ConnectionError> {
        match text.to_ascii_uppercase().as_str() {
            "UC" => Ok(Self::Uc),
            "RC" => Ok(Self::Rc),
            "UD" => Ok(Self::Ud),
            "TCP" => Ok(Self::Tcp),
            other @ ("XRC" | "DC" | "SRD") => Err(ConnectionError::NotThere(other.to_owned())),
            _ => Err(ConnectionError::Unknown),
        }
    }
}

/// Which atomic (`-A`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Atomic {
    /// Adds one.
    #[value(name = "FETCH_AND_ADD")]
    FetchAdd,
    /// Swaps a number for the next.
    #[value(name = "CMP_AND_SWAP")]
    CmpSwap,
}

impl Atomic {
    /// As the flag takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FetchAdd => "FETCH_AND_ADD",
            Self::CmpSwap => "CMP_AND_SWAP",
        }
    }
}

/// The one number that `--output` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BwOutput {
    /// Average bandwidth, in the unit of the table.
    Bandwidth,
    /// Messages per second, in millions.
    #[value(name = "message_rate")]
    MessageRate,
}

/// The one number that `--output` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LatOutput {
    /// The typical latency (the median), in microseconds.
    Latency,
}

/// A count of bytes with an optional K, M or G (powers of 1,024).
fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// A value that is none, and what would be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    /// A message size.
    #[error("a size is 1 to {SIZE_MAX} bytes, with K or M for KiB and MiB if you like")]
    Size,
    /// A count of bytes.
    #[error("give bytes from {0} to {1}, with K or M for KiB and MiB if you like")]
    Bytes(u32, u32),
    /// A path MTU.
    #[error("an MTU is 256, 512, 1024, 2048 or 4096 bytes")]
    Mtu,
    /// A probability.
    #[error("a probability is 0 to 1: 0.01 is one packet in a hundred")]
    Probability,
    /// A duration.
    #[error("give seconds above 0 and up to 86400")]
    Seconds,
    /// A congestion window.
    #[error("give bytes, as in 262144 or 256K, from 1 to 1G")]
    Window,
}

pub(crate) fn size(text: &str) -> Result<u32, ValueError> {
    let found = bytes(text).filter(|&n| (1..=u64::from(SIZE_MAX)).contains(&n));
    found.map(|n| n as u32).ok_or(ValueError::Size)
}

pub(crate) fn chunk_bytes(text: &str) -> Result<u32, ValueError> {
    const LEAST: u32 = 256;
    const MOST: u32 = 1 << 20;
    let found = bytes(text).filter(|&n| (u64::from(LEAST)..=u64::from(MOST)).contains(&n));
    found.map(|n| n as u32).ok_or(ValueError::Bytes(LEAST, MOST))
}

pub(crate) fn read_bytes(text: &str) -> Result<u32, ValueError> {
    const LEAST: u32 = 64;
    const MOST: u32 = 64 << 20;
    let found = bytes(text).filter(|&n| (u64::from(LEAST)..=u64::from(MOST)).contains(&n));
    found.map(|n| n as u32).ok_or(ValueError::Bytes(LEAST, MOST))
}

pub(crate) fn mtu(text: &str) -> Result<Mtu, ValueError> {
    text.parse().ok().and_then(Mtu::from_bytes).ok_or(ValueError::Mtu)
}

pub(crate) fn probability(text: &str) -> Result<f64, ValueError> {
    text.parse().ok().filter(|p| (0.0..=1.0).contains(p)).ok_or(ValueError::Probability)
}

pub(crate) fn seconds(text: &str) -> Result<f64, ValueError> {
    let found = text.parse().ok().filter(|s: &f64| *s > 0.0 && *s <= 86_400.0);
    found.ok_or(ValueError::Seconds)
}

/// `--window BYTES` is the fixed window of `--cc fixed:BYTES`.
pub(crate) fn window(text: &str) -> Result<ControllerConfig, ValueError> {
    let bytes = bytes(text).ok_or(ValueError::Window)?;
    format!("fixed:{bytes}B").parse().map_err(|_| ValueError::Window)
}
