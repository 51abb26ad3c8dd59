//! Queue pairs without Towpath: requests and replies by SEND and RECV on RC, UC and UD.
//!
//! | file | contents |
//! |---|---|
//! | `hello` | what both ends tell each other over TCP before they use queue pairs |
//! | `slots` | the registered memory that messages are sent from and received in |
//! | `accept` | a server's listener: it hears out who connects |
//! | `port` | a server's device, and the clients on it |
//! | `server` | threads: begin, sleep and end |
//! | `counters` | what a server counts of its queue pairs |
//!
//! The client is [`client::RawTransport`](crate::client::RawTransport).

mod accept;
mod counters;
mod hello;
mod port;
mod server;
mod slots;

pub use counters::{RawCounted, RawCounters};
pub use hello::{End, Grant, HELLO_BYTES, HelloError, Refusal};
pub use port::PortError;
pub use server::{DeviceError, MakeDevice, RawConfig, RawError, RawServer};
pub(crate) use slots::Slots;

use crate::limits::KEY_BYTES_MAX;
use crate::wire::REQUEST_HEADER_BYTES;
use towpath_verbs::{QpType, VerbSet};

/// Which service carries requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RawKind {
    /// Reliable connections: the device sends again what is lost.
    Rc = 1,
    /// Unreliable connections: what is lost is repeated by the client.
    Uc = 2,
    /// Datagrams: one queue pair serves all clients, and a message is one packet.
    Ud = 3,
}

impl RawKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rc, Self::Uc, Self::Ud];

    /// The type of its queue pairs.
    #[must_use]
    pub fn qp_type(self) -> QpType {
        match self {
            Self::Rc => QpType::Rc,
            Self::Uc => QpType::Uc,
            Self::Ud => QpType::Ud,
        }
    }

    /// Whether a device has such queue pairs.
    #[must_use]
    pub fn is_offered(self, verbs: &VerbSet) -> bool {
        match self {
            Self::Rc => verbs.rc,
            Self::Uc => verbs.uc,
            Self::Ud => verbs.ud,
        }
    }
}

/// Bytes of the longest message where values have at most so many: a request with the longest key.
pub(crate) fn message_bytes_max(value_bytes_max: usize) -> u32 {
    let bytes = REQUEST_HEADER_BYTES + KEY_BYTES_MAX + value_bytes_max;
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
