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

/// Why a server does not take a client, with what is told beside the code.
macro_rules! refusals {
    ($($(#[$plain_doc:meta])* $plain:ident = $code:literal => $text:literal,)+ ; $($told:tt)+) => {
        /// Why a server does not take a client.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Refusal { $($(#[$plain_doc])* $plain,)+ $($told)+ }

        impl Refusal {
            /// One of which the code says all.
            fn plain(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$plain),)+ _ => None }
            }

            /// Its code, the byte behind that, and what it says, where the code says all.
            fn of_plain(self) -> Option<(u8, &'static str)> {
                match self { $(Self::$plain => Some(($code, $text)),)+ _ => None }
            }
        }
    };
}

refusals! {
    /// The versions differ.
    Version = 1 => "it speaks another protocol version",
    /// No room for another link.
    Full = 2 => "it has no room for another link",
    /// The HELLO broke the rules.
    Malformed = 3 => "it found our HELLO malformed",
    /// The two sides' limits do not fit.
    Limits = 4 => "its limits (MTU, chunk size, carrier) do not fit ours",
    /// The server is going down.
    ShuttingDown = 5 => "it is shutting down",
    /// The server has no links of the class.
    Class = 6 => "it accepts no links of this class",
    /// Nothing can be sent to the device address in the HELLO.
    Address = 8 => "the device address in our HELLO cannot be used: it is broadcast, multicast, \
                    unspecified, or has port 0",
    /// The server has no memory, or no queue pair, for another link.
    Resources = 12 => "it has no memory or no queue pair left for another link; its log has the \
                       reason",
    /// One side's device has an IPv4 address, the other's an IPv6 address.
    Family = 13 => "one device has an IPv4 address and the other an IPv6 address; use addresses \
                    of one family",
    /// The server's links are open, and the HELLO is of a sealed one.
    Open = 14 => "its links are open and ours are sealed: give it a key (`towpath keygen`), or set \
                  up ours without one; nothing is negotiated",
    /// The server does not know the secret that the HELLO names.
    UnknownSecret = 15 => "it does not know the secret of our last handshake: it was started anew, \
                           the secret is a day old, or this host is trusted there no more",
    /// The HELLO was not made by who has the secret.
    Forged = 16 => "the tag of our HELLO is wrong there: if this comes again, somebody between the \
                    hosts changes what they send",
    ;
    /// The server takes no links of so many paths.
    Paths {
        /// The most that it takes.
        most: u8,
    },
    /// The server falls back to fewer carriers than the client.
    Fallback {
        /// Whether the server has RC beside UC.
        rc: bool,
        /// Whether it has TCP behind these.
        tcp: bool,
    },
    /// The server's links are sealed, and the HELLO is of an open one.
    Sealed {
        /// Whether they are encrypted; else they are signed.
        encrypts: bool,
    },
    /// The server rides on another carrier with this client.
    Carrier {
        /// The server's.
        wanted: Carrier,
    },
    /// The application at the server speaks another protocol than the client's.
    App {
        /// The server's.
        served: AppProtocol,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Paths { most: 1 } => f.write_str("it allows one path for each link; ask for one"),
            Self::Paths { most } => {
                write!(f, "it allows {most} paths for each link; ask for no more")
            }
            Self::App { served } => write!(f, "its application speaks {served}"),
            Self::Carrier { wanted } => {
                write!(f, "its links to this host ride on {wanted}; use that carrier")
            }
            Self::Sealed { encrypts } => {
                let mode = if encrypts { "encrypt" } else { "authenticate" };
                write!(
                    f,
                    "its links are sealed (mode `{mode}`) and ours are open: give this host a key \
                     (`towpath keygen`, `--key` and `--peers`) and have it trusted there; nothing \
                     is negotiated"
                )
            }
            Self::Fallback { rc: false, tcp: false } => {
                f.write_str("its links fall back to nothing")
            }
            Self::Fallback { .. } => f.write_str("its links fall back to fewer carriers than ours"),
            _ => f.write_str(self.of_plain().map_or("", |(_, text)| text)),
        }
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
    if let Some(plain) = Refusal::plain(*code).filter(|_| *most == 0) {
        return Ok(plain);
    }
    let refusal = match (*code, *most) {
        (7, 1..) if usize::from(*most) <= PATHS_MAX => Refusal::Paths { most: *most },
        (10, bits @ 0..=3) => Refusal::Fallback { rc: bits & 1 != 0, tcp: bits & 2 != 0 },
        (17, bits @ 1..=2) => Refusal::Sealed { encrypts: bits == 2 },
        (11, number) => Refusal::Carrier { wanted: Carrier::from_code(number).ok_or(wrong)? },
        (9, len) if usize::from(len) == name.len() => {
            Refusal::App { served: AppProtocol::from_bytes(name).ok_or(wrong)? }
        }
        _ => return Err(wrong),
    };
    Ok(refusal)
}

impl Refusal {
    /// The message.
    #[must_use]
    pub fn emit(self) -> Vec<u8> {
        let (code, most) = match self {
            Self::Paths { most } => (7, most),
            Self::App { served } => (9, served.name().len() as u8),
            Self::Fallback { rc, tcp } => (10, u8::from(rc) | u8::from(tcp) << 1),
            Self::Carrier { wanted } => (11, wanted as u8),
            Self::Sealed { encrypts } => (17, if encrypts { 2 } else { 1 }),
            _ => (self.of_plain().map_or(0, |(code, _)| code), 0),
        };
        let name = if let Self::App { served } = &self { served.name() } else { "" };
        let mut out = prefix(0, REFUSAL_BYTES + name.len());
        out.extend([code, most, 0, 0]);
        out.extend(name.as_bytes());
        seal(out)
    }
}
