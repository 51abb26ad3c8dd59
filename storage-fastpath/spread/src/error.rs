//! What can go wrong, and what to do next.

use std::io;
use std::net::SocketAddr;
use towpath_fastpath::{ClientError, ErrorKind, ErrorReply, OpenError};

/// Why a file was not stored, read or repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpreadError {
    /// Other servers than the policy needs.
    #[error("the policy needs {needed} servers, and {given} are given")]
    ServerCount {
        /// Needed.
        needed: usize,
        /// Given.
        given: usize,
    },
    /// Too few servers have all of it.
    #[error(
        "{whole} parts of the file are whole, and {needed} are needed; first of the others: \
         {server}: {source}"
    )]
    TooFew {
        /// How many are whole.
        whole: usize,
        /// How many are needed.
        needed: usize,
        /// A server that has none.
        server: SocketAddr,
        /// Why.
        source: Box<PartError>,
    },
    /// Too few servers have all of it, by its layout.
    #[error("{whole} parts of the file are whole by its layout, and {needed} are needed")]
    TooFewListed {
        /// How many are whole.
        whole: usize,
        /// How many are needed.
        needed: usize,
    },
    /// What is to be stored cannot be read.
    #[error("cannot read what is to be stored, after {done} bytes: {source}")]
    Source {
        /// Bytes before that.
        done: u64,
        /// Why.
        source: io::Error,
    },
    /// What was read cannot be written.
    #[error("cannot write what was read, after {done} bytes: {source}")]
    Sink {
        /// Bytes before that.
        done: u64,
        /// Why.
        source: io::Error,
    },
    /// No server for a part.
    #[error("there is no server for part {part}: {server} does not answer; name another one")]
    NoServer {
        /// The part.
        part: usize,
        /// Where it was.
        server: SocketAddr,
    },
    /// Something of a layout cannot be.
    #[error(transparent)]
    Layout(#[from] crate::LayoutError),
}

/// Why a server does not have a part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// It cannot be reached.
    #[error(transparent)]
    Open(Box<OpenError>),
    /// An operation failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Somebody has changed the part.
    #[error("its part has version {found}, not {expected}: somebody has changed it")]
    OtherVersion {
        /// Of the layout.
        expected: u64,
        /// Of the chunk.
        found: u64,
    },
    /// The part was not stored, or was lost, when the layout was made.
    #[error("its part is not whole, by the layout: repair the file")]
    NotWhole,
    /// It was given up before, and is asked again after a while.
    #[error("it could not be reached a moment ago")]
    Gone,
    /// It could not be reached, for a reason that was told before.
    #[error("{0}")]
    Told(String),
}

impl From<OpenError> for PartError {
    fn from(error: OpenError) -> Self {
        Self::Open(Box::new(error))
    }
}

impl PartError {
    /// Whether it says nothing of other slices of the part.
    pub(crate) fn is_of_one_slice(&self) -> bool {
        let Self::Client(error) = self else { return false };
        matches!(error.kind, ErrorKind::Refused(ErrorReply::SliceCorrupt { .. }))
    }

    /// Whether the server has not answered.
    pub(crate) fn is_gone(&self) -> bool {
        let Self::Client(error) = self else { return false };
        matches!(error.kind, ErrorKind::TimedOut { .. } | ErrorKind::PeerGone { .. })
    }

    /// The same once more.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Open(error) => Self::Told(error.to_string()),
            Self::Client(error) => Self::Client(*error),
            &Self::OtherVersion { expected, found } => Self::OtherVersion { expected, found },
            Self::NotWhole => Self::NotWhole,
            Self::Gone => Self::Gone,
            Self::Told(text) => Self::Told(text.clone()),
        }
    }
}
