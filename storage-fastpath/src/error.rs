//! Errors of the client: which operation failed, on which chunk and offset, and the next step.

use crate::leg::LegError;
use crate::slice::ChunkId;
use crate::wire::{ErrorReply, Method, WireError};
use std::fmt;
use std::io;
use towpath_rpc::{CallError, Fate, RpcError};
use towpath_transport::{ConnectError, EndpointError};

/// A failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientError {
    /// The operation.
    pub method: Method,
    /// The chunk, if the operation has one.
    pub chunk: Option<ChunkId>,
    /// The first byte of a read or write.
    pub offset: Option<u64>,
    /// What went wrong.
    pub kind: ErrorKind,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.method)?;
        if let Some(chunk) = self.chunk {
            write!(f, " of chunk {chunk}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.kind)
    }
}

/// What went wrong with an operation.
///
/// [`fate`](Self::fate) says whether the operation was done. If that is not known, find out with a
/// stat or a read, or repeat the operation: writes and reads may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server refused or failed; [`ErrorReply::fate`] says what became of a change.
    #[error(transparent)]
    Refused(#[from] ErrorReply),
    /// The data of a read was damaged on its way to the client.
    #[error("slice {slice} was damaged on its way to the client: read it again")]
    ReplyCorrupt {
        /// Index of the slice in the chunk.
        slice: u64,
    },
    /// The reply breaks the format.
    #[error("the server's reply is malformed ({0}): compare the versions of both ends")]
    BadReply(WireError),
    /// The reply does not fit the request.
    #[error("the server's reply is for another range: compare the versions of both ends")]
    WrongReply,
    /// The server has no such operation.
    #[error("the server does not know the operation: update the server")]
    Unsupported,
    /// The server speaks another version.
    #[error("the server speaks another version of the protocol: update the older side")]
    Version,
    /// The server could not read the request.
    #[error("the server cannot read the request: compare the versions of both ends")]
    Malformed,
    /// The server answered with a status that this side does not know.
    #[error("the server answered with the unknown status {0}: compare the versions of both ends")]
    UnknownStatus(u16),
    /// Too many requests of this client are under way at the server.
    #[error("the server has too many requests of this client: use a smaller depth")]
    Busy,
    /// The request is longer than the server accepts.
    #[error("the request is too long for the server: use smaller operations")]
    TooLongForServer,
    /// No bytes, or more than one operation may have.
    #[error("one operation cannot have {length} bytes, the limit is {max}: use several operations")]
    Length {
        /// Bytes wanted.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// The range ends beyond the largest offset.
    #[error("the range ends beyond byte 2^64: use a smaller offset")]
    Range,
    /// The range does not begin with a slice.
    #[error("the range does not begin with a slice: use an offset that is a multiple of 4096")]
    Unaligned,
    /// The request was not accepted, and was not sent.
    #[error(transparent)]
    Call(CallError),
    /// No response in time.
    #[error("no answer in time ({fate}): try again, or allow more time")]
    TimedOut {
        /// What is known of the operation.
        fate: Fate,
    },
    /// The caller cancelled the operation.
    #[error("the operation was cancelled ({fate})")]
    Cancelled {
        /// What is known of the operation.
        fate: Fate,
    },
    /// The link is down.
    #[error("the server is gone ({fate}): connect again")]
    PeerGone {
        /// What is known of the operation.
        fate: Fate,
    },
    /// The reply is longer than this side accepts.
    #[error("the reply is longer than this client accepts: ask for less at a time")]
    ReplyTooLong,
}

impl ErrorKind {
    /// What is known of the operation: whether it was done.
    #[must_use]
    pub fn fate(self) -> Fate {
        match self {
            Self::Refused(reply) => reply.fate(),
            Self::TimedOut { fate } | Self::Cancelled { fate } | Self::PeerGone { fate } => fate,
            // A response whose status says that it was done, or that cannot be read.
            Self::ReplyCorrupt { .. } | Self::ReplyTooLong | Self::WrongReply => Fate::Happened,
            Self::BadReply(_) | Self::UnknownStatus(_) => Fate::Unknown,
            Self::Unsupported
            | Self::Version
            | Self::Malformed
            | Self::Busy
            | Self::TooLongForServer
            | Self::Length { .. }
            | Self::Range
            | Self::Unaligned
            | Self::Call(_) => Fate::DidNotHappen,
        }
    }
}

impl From<RpcError> for ErrorKind {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::TimedOut { fate } => Self::TimedOut { fate },
            RpcError::Cancelled { fate } => Self::Cancelled { fate },
            RpcError::ResponseTooLong => Self::ReplyTooLong,
            // Whatever else the layer below may come to say, there is no response and no link.
            RpcError::PeerGone { fate } => Self::PeerGone { fate },
            _ => Self::PeerGone { fate: Fate::Unknown },
        }
    }
}

impl From<CallError> for ErrorKind {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Expired => Self::TimedOut { fate: Fate::DidNotHappen },
            CallError::Submit(towpath_transport::SubmitError::NoSuchLink) => {
                Self::PeerGone { fate: Fate::DidNotHappen }
            }
            other => Self::Call(other),
        }
    }
}

/// Why a client could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No local address has a route to the server.
    #[error("no local address has a route to {addr}; set one with ClientConfig::local_ip")]
    NoRoute {
        /// The server.
        addr: std::net::SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The endpoint could not be made.
    #[error("cannot make an endpoint")]
    Endpoint(#[from] EndpointError),
    /// The connection failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The link went down, or no channel could be opened on it.
    #[error("connected to {addr}, but could not open a channel; the server may be full: try again")]
    NoChannel {
        /// The server.
        addr: std::net::SocketAddr,
        /// Why.
        #[source]
        source: Box<LegError>,
    },
    /// The system has no thread for the client.
    #[error("cannot start the client's thread")]
    Thread(#[source] io::Error),
    /// The link could not join its session.
    #[error("the link is up but could not join its session; connect again")]
    Session(#[source] ClientError),
}

impl OpenError {
    /// Why there is no link to `addr`, or no channel on it.
    pub(crate) fn of_link(addr: std::net::SocketAddr, error: LegError) -> Self {
        match error {
            LegError::Connect(error) => Self::Connect(error),
            error => Self::NoChannel { addr, source: error.into() },
        }
    }
}
