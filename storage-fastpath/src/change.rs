//! On what terms a change is made, and what takes bytes of a chunk away: in the words of clients,
//! wire and store alike.

use crate::wire::Method;

/// On what terms a change is made.
///
/// With a version a change is made at most once, however often it is asked for: the first time
/// gives the chunk another version. With a stamp as well, whoever asks again hears that it was done
/// and not that there is another version, as long as no other change of the chunk has followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The version that the chunk must have; none where it may have any.
    pub version: Option<u64>,
    /// What the change is told by from all others, which the chunk keeps as long as it is the last
    /// one; zero for nothing.
    pub stamp: u64,
    /// The chain version that the chunk must have; 0 where it has none.
    pub chain: u32,
}

/// What kind of chunk is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewChunk {
    /// It is not whole before a finish: until then it is not read, and the server removes it when
    /// nobody writes to it for a while.
    pub unfinished: bool,
    /// The server keeps its slices in memory as well, which clients read by themselves.
    pub resident: bool,
    /// The chain version of a chunk that is one replica of several, which changes must name
    /// ([`Terms::chain`]); at most [`CHAIN_MAX`](crate::limits::CHAIN_MAX). 0 of any other chunk.
    pub chain: u32,
}

/// Which bytes of a chunk go, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clear {
    /// Slices that lie in the range whole are holes afterwards, which read as zeros and take no
    /// room; others stay as they are, and so does the length of the chunk. A slice up to the end of
    /// the chunk counts as whole.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes, at least one.
        byte_len: u64,
    },
    /// The range reads as zeros afterwards, as if they had been written: the chunk is at least as
    /// long as it reaches. Slices that lie in it whole become holes.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes, at least one.
        byte_len: u64,
    },
    /// The chunk has this length afterwards. What is cut off is gone: where the chunk grows again
    /// it reads as zeros.
    Truncate {
        /// The new length in bytes.
        byte_len: u64,
    },
}

impl Clear {
    /// The method by which it is asked for.
    #[must_use]
    pub fn method(&self) -> Method {
        match self {
            Self::Trim { .. } => Method::Trim,
            Self::Zero { .. } => Method::Zero,
            Self::Truncate { .. } => Method::Truncate,
        }
    }
}
