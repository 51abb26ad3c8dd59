//! Why a request was not taken, or got no response.

use crate::parcel::{NoBuffer, Outgoing};
use towpath_transport::SubmitError;

/// A request was not taken; nothing was sent. What was to be sent comes back for another try.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    #[source]
    pub error: CallError,
    /// What was to be sent; none where the link took it apart.
    pub outgoing: Option<Outgoing>,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// As many requests as the client may have are under way.
    #[error("{max} requests are under way already; wait for a completion")]
    Full {
        /// The limit.
        max: usize,
    },
    /// Longer than a peer with our settings holds whole.
    #[error("a request of {bytes} bytes is longer than the {max} that go whole; send several")]
    TooLong {
        /// Its length with header.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The deadline has passed already.
    #[error("the deadline has passed before the request was sent")]
    Expired,
    /// No buffer for the head.
    #[error(transparent)]
    NoBuffer(#[from] NoBuffer),
    /// The link did not take the message.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// Why a request got no response.
///
/// `happened` says what is known of the operation: `Some(false)` that it was not done and never
/// will be (the server's application has not seen the request); `None` that it may have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// No response before the deadline.
    #[error("no response in time ({}); try again, or give it more time", fate(*happened))]
    TimedOut {
        /// See [`RpcError`].
        happened: Option<bool>,
    },
    /// The caller gave it up.
    #[error("the request was cancelled ({})", fate(*happened))]
    Cancelled {
        /// See [`RpcError`].
        happened: Option<bool>,
    },
    /// The link or the channel is gone.
    #[error("the peer is gone ({}); connect again", fate(*happened))]
    PeerGone {
        /// See [`RpcError`].
        happened: Option<bool>,
    },
    /// The response is longer than this side holds whole; the operation was done.
    #[error("the response is longer than what is held whole here; ask for less at a time")]
    ResponseTooLong,
}

/// In words.
fn fate(happened: Option<bool>) -> &'static str {
    match happened {
        Some(true) => "it was done",
        Some(false) => "it was not done",
        None => "whether it was done is not known",
    }
}
