//! Why a server does not take a client, as it says so in place of a HELLO.

use super::app::{AppProtocol, NAME_BYTES_MAX};
use super::hello::{CRC_BYTES, HelloError, PREFIX_BYTES, prefix, seal};
use crate::carrier::Carrier;
use crate::limits::PATHS_MAX;
use alloc::vec::Vec;
use core::fmt;

/// A refusal without a name.
pub(super) const REFUSAL_BYTES: usize = PREFIX_BYTES + 4 + CRC_BYTES;

/// The longest one.
pub(super) const REFUSAL_BYTES_MAX: usize = REFUSAL_BYTES + NAME_BYTES_MAX;

/// Why a server does not take a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The versions differ.
    Version,
    /// No room for another link.
    Full,
    /// The HELLO broke the rules.
    Malformed,
    /// The two sides' limits do not fit.
    Limits,
    /// The server is going down.
    ShuttingDown,
    /// The server has no links of the class.
    Class,
    /// The server takes no links of so many paths.
    Paths {
        /// The most that it takes.
        most: u8,
    },
    /// Nothing can be sent to the device address in the HELLO.
    Address,
    /// The server falls back to fewer carriers than the client.
    Fallback {
        /// Whether the server has RC beside UC.
        rc: bool,
        /// Whether it has TCP behind these.
        tcp: bool,
    },
    /// The server rides on another carrier with this client.
    Carrier {
        /// The server's.
        wanted: Carrier,
    },
    /// The server has no memory, or no queue pair, for another link.
    Resources,
    /// One side's device has an IPv4 address, the other's an IPv6 address.
    Family,
    /// The application at the server speaks another protocol than the client's.
    App {
        /// The server's.
        served: AppProtocol,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Paths { most: 1 } => {
                return f.write_str("it allows one path for each link; ask for one");
            }
            Self::Paths { most } => {
                return write!(f, "it allows {most} paths for each link; ask for no more");
            }
            Self::App { served } => return write!(f, "its application speaks {served}"),
            Self::Carrier { wanted } => {
                return write!(f, "its links to this host ride on {wanted}; use that carrier");
            }
            Self::Fallback { rc: false, tcp: false } => "its links fall back to nothing",
            Self::Fallback { .. } => "its links fall back to fewer carriers than ours",
            Self::Resources => {
                "it has no memory or no queue pair left for another link; its log has the reason"
            }
            Self::Family => {
                "one device has an IPv4 address and the other an IPv6 address; use addresses of \
                 one family"
            }
            Self::Address => {
                "the device address in our HELLO cannot be used: it is broadcast, multicast, \
                 unspecified, or has port 0"
            }
            Self::Version => "it speaks another protocol version",
            Self::Full => "it has no room for another link",
            Self::Malformed => "it found our HELLO malformed",
            Self::Limits => "its limits (MTU, chunk size, carrier) do not fit ours",
            Self::ShuttingDown => "it is shutting down",
            Self::Class => "it accepts no links of this class",
        })
    }
}

pub(super) fn parse_refusal(body: &[u8]) -> Result<Refusal, HelloError> {
    let wrong = HelloError::Field("refusal code");
    let Some(([code, most, 0, 0], name)) = body[PREFIX_BYTES..].split_first_chunk() else {
        return Err(wrong);
    };
    if *code != 9 && !name.is_empty() {
        return Err(wrong);
    }
    Ok(match (*code, *most) {
        (1, 0) => Refusal::Version,
        (2, 0) => Refusal::Full,
        (3, 0) => Refusal::Malformed,
        (4, 0) => Refusal::Limits,
        (5, 0) => Refusal::ShuttingDown,
        (6, 0) => Refusal::Class,
        (7, 1..) if usize::from(*most) <= PATHS_MAX => Refusal::Paths { most: *most },
        (8, 0) => Refusal::Address,
        (10, bits @ 0..=3) => Refusal::Fallback { rc: bits & 1 != 0, tcp: bits & 2 != 0 },
        (11, number) => {
            let wanted = Carrier::ALL.into_iter().find(|&carrier| carrier as u8 == number);
            Refusal::Carrier { wanted: wanted.ok_or(wrong)? }
        }
        (12, 0) => Refusal::Resources,
        (13, 0) => Refusal::Family,
        (9, len) if usize::from(len) == name.len() => {
            let served = AppProtocol::from_bytes(name).ok_or(wrong)?;
            Refusal::App { served }
        }
        _ => return Err(wrong),
    })
}

impl Refusal {
    /// The message.
    #[must_use]
    pub fn emit(self) -> Vec<u8> {
        let (code, most) = match self {
            Self::Version => (1, 0),
            Self::Full => (2, 0),
            Self::Malformed => (3, 0),
            Self::Limits => (4, 0),
            Self::ShuttingDown => (5, 0),
            Self::Class => (6, 0),
            Self::Paths { most } => (7, most),
            Self::Address => (8, 0),
            Self::App { served } => (9, served.name().len() as u8),
            Self::Fallback { rc, tcp } => (10, u8::from(rc) | u8::from(tcp) << 1),
            Self::Carrier { wanted } => (11, wanted as u8),
            Self::Resources => (12, 0),
            Self::Family => (13, 0),
        };
        let name = if let Self::App { served } = &self { served.name() } else { "" };
        let mut out = prefix(0, REFUSAL_BYTES + name.len());
        out.extend([code, most, 0, 0]);
        out.extend(name.as_bytes());
        seal(out)
    }
}
