//! A client with calls that block until they are answered, over any [`Transport`].
//!
//! | file | contents |
//! |---|---|
//! | `many` | clients whose calls one thread carries on; `arrivals` says for whom something came |
//! | `call` | a call that is under way |
//! | `calls` | the [`Client`]: numbers requests, repeats them, tells what came of them |
//! | `patience` | how a client asks, and after what time a request is repeated |
//! | `shared` | requests of many clients over one Towpath link |
//! | `tcp` | requests over kernel TCP |
//! | `channel` | requests over a Towpath channel: on UC, RC or TCP |
//! | `one_sided` | GETs by reading what the server has published |
//! | `raw` | requests over a queue pair without Towpath: RC, UC or UD |

mod arrivals;
mod call;
mod calls;
mod channel;
mod many;
mod one_sided;
mod patience;
mod raw;
mod shared;
mod tcp;

pub use arrivals::Sign;
pub use calls::{Client, ClientError, ClientStats, Told};
pub use channel::ChannelTransport;
pub use many::Many;
pub use one_sided::{Granted, OneSided, OneSidedStats, Reads};
pub use patience::ClientConfig;
pub use raw::{RawClientConfig, RawTransport};
pub use shared::{SharedLink, SharedTransport};
pub use tcp::TcpTransport;

use std::fmt::Debug;
use std::time::Duration;

/// How a client waits for a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Asleep, until the system or the device wakes it.
    #[default]
    Blocking,
    /// It asks again and again.
    Polling,
}

/// Why a transport failed: whether the requests that were under way came is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No connection can be made.
    #[error("no connection can be made: {0}")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection is gone.
    #[error("the connection is gone: {0}")]
    Gone(String),
    /// The request is longer than any that goes this way: another transport carries it.
    #[error("a request of {bytes} bytes is longer than this transport carries: {max}")]
    TooLong {
        /// Of the request.
        bytes: usize,
        /// Of the longest.
        max: usize,
    },
    /// What came is no reply.
    #[error("what came is no reply: {0}")]
    Malformed(#[from] crate::wire::WireError),
}

/// What carries requests to a server, and replies back, one client's. Both may be lost.
pub trait Transport: Debug + Send {
    /// Sends a request.
    ///
    /// # Errors
    /// [`TransportError`]: [`renew`](Self::renew) makes another connection.
    fn send(&mut self, request: &[u8]) -> Result<(), TransportError>;

    /// Gives the next reply to `take`, if one comes within `timeout`; whether one did.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    fn receive(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError>;

    /// Begins anew, over another connection; what was under way is forgotten.
    ///
    /// # Errors
    /// [`TransportError::Connect`]
    fn renew(&mut self, timeout: Duration) -> Result<(), TransportError>;
}

/// A transport that raises a sign when something comes, so that one thread may have many.
pub trait Watched: Transport {
    /// Has the sign, always the same one, raised once when more comes than a
    /// [`receive`](Transport::receive) without time found, or the connection ends; true where that
    /// may have happened already.
    ///
    /// # Errors
    /// As of [`send`](Transport::send).
    fn watch(&mut self, sign: &Sign) -> Result<bool, TransportError>;
}

impl<T: Watched + ?Sized> Watched for Box<T> {
    fn watch(&mut self, sign: &Sign) -> Result<bool, TransportError> {
        (**self).watch(sign)
    }
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn send(&mut self, request: &[u8]) -> Result<(), TransportError> {
        (**self).send(request)
    }

    fn receive(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        (**self).receive(timeout, take)
    }

    fn renew(&mut self, timeout: Duration) -> Result<(), TransportError> {
        (**self).renew(timeout)
    }
}
