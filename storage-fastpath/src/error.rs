//! Why an operation failed at the client, with its chunk, its offset, and what to do next.

use crate::slice::ChunkId;
use crate::wire::{ErrorReply, Method, WireError};
use std::fmt;
use std::io;
use towpath_rpc::{CallError, Fate, RpcError};
use towpath_transport::{ConnectError, EndpointError};

/// An operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientError {
    /// What was asked for.
    pub method: Method,
    /// The chunk, where there is one.
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
/// `fate` says whether the operation was done. Where that is not known, look (a stat, a read) or do
/// it again (writes and reads may be repeated).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server refused or failed; [`ErrorReply::fate`] says what became of a change.
    #[error(transparent)]
    Refused(#[from] ErrorReply),
    /// The data of a read was changed on its way here.
    #[error("slice {slice} was changed on its way here: read it again")]
    ReplyCorrupt {
        /// Index of the slice in the chunk.
        slice: u64,
    },
    /// The reply breaks the format.
    #[error("the server's reply is malformed ({0}): compare versions")]
    BadReply(WireError),
    /// The reply is about something else than was asked for.
    #[error("the server's reply describes another range: compare versions")]
    WrongReply,
    /// The server has no such operation.
    #[error("the server does not know the operation: update it")]
    Unsupported,
    /// The server speaks another version.
    #[error("the server speaks another version: update the older side")]
    Version,
    /// The server could not read the request.
    #[error("the server cannot read the request: compare versions")]
    Malformed,
    /// The server answered a status without a meaning.
    #[error("the server answered status {0}, which has no meaning here: compare versions")]
    UnknownStatus(u16),
    /// The server has too many of our requests.
    #[error("the server has too many requests of this client: use a smaller depth")]
    Busy,
    /// The server does not hold requests of this length whole.
    #[error("the request is too long for the server: use smaller operations")]
    TooLongForServer,
    /// No bytes, or more than one operation may have.
    #[error("one operation cannot have {length} bytes, at most {max}: use several")]
    Length {
        /// Bytes wanted.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// The range ends beyond what offsets can say.
    #[error("the range ends beyond 2^64")]
    Range,
    /// The request was not taken.
    #[error(transparent)]
    Call(CallError),
    /// No response in time.
    #[error("no answer in time ({fate}): try again, or allow more time")]
    TimedOut {
        /// What is known of the operation.
        fate: Fate,
    },
    /// Given up by the caller.
    #[error("cancelled ({fate})")]
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
    /// The reply is longer than this side holds whole.
    #[error("the reply is too long to be held whole here: ask for less at a time")]
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
    /// No local address leads there.
    #[error("no local address to reach {addr} from; name one in the configuration")]
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
    /// The link went down, or no channel could be had on it.
    #[error("{addr} connected but opened no channel; it may have reached its limits, try again")]
    NoChannel {
        /// The server.
        addr: std::net::SocketAddr,
    },
    /// The session could not be entered.
    #[error("the link is up but could not enter its session; connect again")]
    Session(#[source] ClientError),
}

impl From<ClientError> for OpenError {
    fn from(error: ClientError) -> Self {
        Self::Session(error)
    }
}

/// Why a transfer of many operations stopped. What was acknowledged before stays done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// An operation failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What is to be stored cannot be read.
    #[error("cannot read what is to be stored, {done} bytes in")]
    Source {
        /// Bytes read before.
        done: u64,
        /// What the reader said.
        #[source]
        source: io::Error,
    },
    /// What was read cannot be written.
    #[error("cannot write what was read, {done} bytes in")]
    Sink {
        /// Bytes written before.
        done: u64,
        /// What the writer said.
        #[source]
        source: io::Error,
    },
}
