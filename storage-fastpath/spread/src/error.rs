//! What can go wrong, and what to do next.

use std::io;
use std::net::SocketAddr;
use towpath_fastpath::{ClientError, ErrorKind, ErrorReply, RouteError};

use crate::layout::Node;

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
    /// Two parts on one server, which would be lost together.
    #[error("{server} is given twice: each part needs a server of its own")]
    SameServer {
        /// The server.
        server: SocketAddr,
    },
    /// It cannot be durable on so many servers.
    #[error("it can be durable on {min} to {max} servers, not on {given}")]
    Least {
        /// As many as are enough to read it.
        min: usize,
        /// As many as there are parts.
        max: usize,
        /// Given.
        given: usize,
    },
    /// A unit is longer than an operation.
    #[error("a unit of {unit_bytes} bytes: {server} takes {max} bytes at a time")]
    Unit {
        /// Bytes of a unit.
        unit_bytes: u32,
        /// A server.
        server: SocketAddr,
        /// The most bytes that it takes.
        max: usize,
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
    /// Enough servers have the file, and too few of them this place of it.
    #[error(
        "at byte {offset} of the file {read} parts can be read, and {needed} are needed; last of \
         the others: {server}: {source}"
    )]
    Unreadable {
        /// Where, in the file.
        offset: u64,
        /// How many can be read.
        read: usize,
        /// How many are needed.
        needed: usize,
        /// A server that does not give it.
        server: SocketAddr,
        /// Why.
        source: Box<PartError>,
    },
    /// A part that was to be made anew was not.
    #[error("a part cannot be made on {server}: {source}")]
    NotMade {
        /// The server.
        server: SocketAddr,
        /// Why.
        source: Box<PartError>,
    },
    /// Parts that were made, and that are not used.
    #[error("what was made does not belong to the parts that it was made of")]
    Unlike,
    /// Bytes were not changed where they are.
    #[error("{done} bytes are changed, and then: {source}")]
    Change {
        /// Bytes that are changed before that.
        done: u64,
        /// Why no more are.
        source: crate::ChangeError,
    },
    /// It failed, and chunks are left.
    #[error("{source}; these chunks are left of it: {}", list(left))]
    Left {
        /// Chunks that may be whole, and could not be deleted.
        left: Vec<Node>,
        /// Why it failed.
        source: Box<Self>,
    },
    /// The code refused units that it should take.
    #[error("the erasure code refuses the units: {0}; please report it")]
    Code(String),
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
    #[error(
        "there is no server for part {part}: {server} does not answer; start it, or name another \
         one that has no part of the file with --replacements"
    )]
    NoServer {
        /// The part.
        part: usize,
        /// Where it was.
        server: SocketAddr,
    },
    /// What writes to servers cost cannot be measured.
    #[error("what writes cost cannot be measured at {server}: {source}")]
    Unmeasured {
        /// The server, or the first of those that pass writes on.
        server: SocketAddr,
        /// Why.
        source: Box<PartError>,
    },
    /// Servers that cannot pass a write on.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// Something of a layout cannot be.
    #[error(transparent)]
    Layout(#[from] crate::LayoutError),
}

/// Chunks with their servers, in words.
fn list(nodes: &[Node]) -> String {
    let words: Vec<String> = nodes.iter().map(Node::to_string).collect();
    words.join(", ")
}

/// Why a server does not have a part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// An operation failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Somebody has changed the part.
    #[error(
        "its part has version {found}, not {expected}: somebody has changed it, or another server \
         has this address now"
    )]
    OtherVersion {
        /// Of the layout.
        expected: u64,
        /// Of the chunk.
        found: u64,
    },
    /// Another server has taken the address while the part was written.
    #[error("another server has this address since the part was begun: each has some of it")]
    OtherServer,
    /// The part has another length than the layout says.
    #[error("its part has {found} bytes, not {expected}: the layout is of another file")]
    OtherLength {
        /// By the layout.
        expected: u64,
        /// Of the chunk.
        found: u64,
    },
    /// The part is there and was never finished.
    #[error("its part was never finished: repair the file")]
    Unfinished,
    /// The part was not stored, or was lost, when the layout was made.
    #[error("its part is not whole, by the layout: repair the file")]
    NotWhole,
    /// The part does not belong to the others, though each slice of it has its checksum.
    #[error("its part has other bytes than those of all others say: it is not read")]
    Wrong,
    /// It has not answered yet.
    #[error("it does not answer yet")]
    Gone,
    /// There is no link to it, and the others are enough.
    #[error("it has not answered for {seconds} s")]
    Away {
        /// For so long.
        seconds: u64,
    },
    /// It could not be reached, for that reason, now or a moment ago.
    #[error("{0}")]
    Told(String),
}

impl PartError {
    /// Whether it says nothing of other slices of the part.
    pub(crate) fn is_of_one_slice(&self) -> bool {
        let Self::Client(error) = self else { return false };
        matches!(error.kind, ErrorKind::Refused(ErrorReply::SliceCorrupt { .. }))
    }

    /// Whether the server has not answered an operation.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Client(error) => {
                matches!(error.kind, ErrorKind::TimedOut { .. } | ErrorKind::PeerGone { .. })
            }
            Self::Away { .. } => true,
            _ => false,
        }
    }

    /// The same once more.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Client(error) => Self::Client(*error),
            &Self::OtherVersion { expected, found } => Self::OtherVersion { expected, found },
            &Self::OtherLength { expected, found } => Self::OtherLength { expected, found },
            Self::OtherServer => Self::OtherServer,
            Self::Unfinished => Self::Unfinished,
            Self::NotWhole => Self::NotWhole,
            Self::Wrong => Self::Wrong,
            Self::Gone => Self::Gone,
            &Self::Away { seconds } => Self::Away { seconds },
            Self::Told(text) => Self::Told(text.clone()),
        }
    }
}
