//! Why a request was not accepted, or got no response.

use crate::fate::Fate;
use crate::parcel::{NoBuffer, Outgoing};
use towpath_transport::SubmitError;

/// A request was not accepted, and nothing was sent. The message comes back for another try.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    #[source]
    pub error: CallError,
    /// The message; none where the link has already taken it apart.
    pub outgoing: Option<Outgoing>,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The client has its maximum number of requests under way.
    #[error("{max} requests are under way already; wait for a completion")]
    Full {
        /// The limit.
        max: usize,
    },
    /// The request is longer than a peer with our settings accepts.
    #[error("a request of {bytes} bytes is too long, {max} are possible; send several requests")]
    TooLong {
        /// Its length in bytes, with its header.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The request has data, and more is to come later: all of it comes later, or none.
    #[error("a request whose data comes later was given data; supply that, too")]
    HasData,
    /// The deadline has passed already.
    #[error("the deadline passed before the request was sent; allow more time")]
    Expired,
    /// No buffer for the head.
    #[error(transparent)]
    NoBuffer(#[from] NoBuffer),
    /// The link did not take the message.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// Why a push was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// As many pushes as a channel takes are under way on it: its client takes nothing in, or is
    /// slower than they come.
    #[error("{max} pushes are under way on the channel already; push again when one has ended")]
    Full {
        /// The limit.
        max: usize,
    },
    /// The body is longer than that of a push may be.
    #[error("a push of {bytes} bytes is too long, {max} are possible; let the client ask for it")]
    TooLong {
        /// Bytes of the body.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The deadline has passed already.
    #[error("the deadline passed before the push was sent; allow more time")]
    Expired,
    /// No buffer for it.
    #[error(transparent)]
    NoBuffer(#[from] NoBuffer),
    /// The link did not take it.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// Why a request got no response.
///
/// `fate` says what is known of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// No response before the deadline.
    #[error("no response in time ({fate}); try again, or give it more time")]
    TimedOut {
        /// What is known of the operation.
        fate: Fate,
    },
    /// The caller cancelled the request.
    #[error("the request was cancelled ({fate})")]
    Cancelled {
        /// What is known of the operation.
        fate: Fate,
    },
    /// The link or the channel is gone.
    #[error("the peer is gone ({fate}); connect again")]
    PeerGone {
        /// What is known of the operation.
        fate: Fate,
    },
    /// The response is longer than this side accepts; the operation was done.
    #[error("the response is longer than this side accepts; ask for less at a time")]
    ResponseTooLong,
}

impl RpcError {
    /// What is known of the operation.
    #[must_use]
    pub fn fate(self) -> Fate {
        match self {
            Self::TimedOut { fate } | Self::Cancelled { fate } | Self::PeerGone { fate } => fate,
            Self::ResponseTooLong => Fate::Happened,
        }
    }
}
