//! Reads, writes and errors as bytes.
//!
//! | file | what it lays out |
//! |---|---|
//! | `request` | the header of reads, writes and clears |
//! | `io` | replies to reads and to changes, and the vector of checksums |
//! | `head` | what requests and replies to reads begin with |
//! | `error_reply` | why a server did not do what it was asked |

mod error_reply;
mod head;
mod io;
mod request;
#[cfg(test)]
mod tests;

pub use error_reply::{ErrorReply, Why};
pub use io::{ChangeReply, ReadReplyHeader, emit_crcs};
pub use request::{ClearHeader, ReadHeader, Sender, WriteHeader, class_number, tenant_number};

use crate::limits::CHAIN_MAX;
use towpath_base::crc::crc32c;
use towpath_transport::AppProtocol;

/// What chunk servers and their clients call what they speak, when a link is set up: another
/// application that connects to a chunk server is refused, and told so.
pub const PROTOCOL: AppProtocol = AppProtocol::named("towpath-storage/2");

/// The version of the layouts here.
pub const VERSION: u16 = 2;

/// What can be asked of a chunk server: the `method` of an rpc header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Method {
    /// Make a chunk.
    Create = 1,
    /// Write bytes.
    Write = 2,
    /// Read bytes.
    Read = 3,
    /// The state of a chunk.
    Stat = 4,
    /// One page of the listing.
    List = 5,
    /// Take a chunk away.
    Delete = 6,
    /// Check some slices.
    Scrub = 7,
    /// What the server is and how it is.
    Info = 8,
    /// How the links of the server are.
    Health = 9,
    /// Replace the older links of a session.
    Session = 10,
    /// Say that an unfinished chunk is whole.
    Finish = 11,
    /// Say whose requests those of this link are.
    Join = 12,
    /// Where the slices of a chunk lie in memory.
    Locate = 13,
    /// How reservations are kept.
    Qos = 14,
    /// Make holes of whole slices.
    Trim = 15,
    /// Make a range read as zeros.
    Zero = 16,
    /// Give a chunk another length.
    Truncate = 17,
    /// Have capabilities hold no more.
    Revoke = 18,
    /// The checksums of slices.
    Digest = 19,
    /// Sketches of slices.
    Sketch = 20,
    /// Write bytes here and at the servers that they are passed on to.
    Forward = 21,
    /// Raise the chain version of a chunk.
    Chain = 22,
    /// Have servers make a range of a lost part anew.
    Rebuild = 23,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Create,
        Self::Write,
        Self::Read,
        Self::Stat,
        Self::List,
        Self::Delete,
        Self::Scrub,
        Self::Info,
        Self::Health,
        Self::Session,
        Self::Finish,
        Self::Join,
        Self::Locate,
        Self::Qos,
        Self::Trim,
        Self::Zero,
        Self::Truncate,
        Self::Revoke,
        Self::Digest,
        Self::Sketch,
        Self::Forward,
        Self::Chain,
        Self::Rebuild,
    ];

    /// Whether it changes anything: then its caller wants to know whether it was done, even when
    /// it was given up.
    #[must_use]
    pub fn is_change(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Write
                | Self::Finish
                | Self::Delete
                | Self::Trim
                | Self::Zero
                | Self::Truncate
                | Self::Forward
                | Self::Chain
                | Self::Rebuild
        )
    }

    /// The method of that number.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|method| *method as u16 == code)
    }
}

impl core::fmt::Display for Method {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Write => "write",
            Self::Read => "read",
            Self::Stat => "stat",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Scrub => "scrub",
            Self::Info => "info",
            Self::Health => "health",
            Self::Session => "session",
            Self::Finish => "finish",
            Self::Locate => "locate",
            Self::Join => "join",
            Self::Qos => "qos",
            Self::Trim => "trim",
            Self::Zero => "zero",
            Self::Truncate => "truncate",
            Self::Revoke => "revoke",
            Self::Digest => "digest",
            Self::Sketch => "sketch",
            Self::Forward => "forward",
            Self::Chain => "chain",
            Self::Rebuild => "rebuild",
        })
    }
}

/// Which part of a body is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than the header.
    #[error("{found} bytes where a header of {needed} belongs")]
    Short {
        /// Bytes there.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Another version of the layout.
    #[error("storage version {0}, and this side speaks {VERSION}: update the older side")]
    Version(u16),
    /// A header of another kind.
    #[error("a header of kind {found} where one of kind {expected} belongs")]
    Kind {
        /// What is there.
        found: u16,
        /// What belongs there.
        expected: u16,
    },
    /// Bits or bytes that must be zero.
    #[error("{0} is not zero, and has no meaning in this version")]
    Reserved(&'static str),
    /// The checksum of the header.
    #[error("the header does not have its checksum")]
    HeaderCrc,
    /// No byte, or more than one operation may have.
    #[error("one operation cannot have {0} bytes")]
    Length(u32),
    /// The range ends beyond what offsets can say.
    #[error("offset {offset} and length {length} overflow")]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Not one checksum per touched slice.
    #[error("{found} checksums where {expected} slices are touched")]
    CrcCount {
        /// Slices touched; 0 where no checksum belongs.
        expected: u64,
        /// Checksums announced.
        found: u32,
    },
    /// The body is not as long as its header says.
    #[error("a body of {found} bytes where {expected} belong")]
    BodyLength {
        /// What the header adds up to.
        expected: usize,
        /// What is there.
        found: usize,
    },
    /// The data is not as long as the header says.
    #[error("{found} bytes of data where {expected} belong")]
    DataLength {
        /// What the header says.
        expected: u32,
        /// What is there.
        found: usize,
    },
    /// An error code that there is not.
    #[error("no error has the code {0}")]
    Code(u16),
    /// A chain version beyond the highest.
    #[error("no chunk has the chain version {0}: the highest is {CHAIN_MAX}")]
    Chain(u64),
    /// A header of another method than the request's.
    #[error("the header does not belong to a {0}")]
    Method(Method),
    /// Not a protobuf message of the kind.
    #[error("the body is not the message that the method wants")]
    Protobuf,
    /// The range does not begin with a slice.
    #[error("byte {0} is not the first one of a slice")]
    Unaligned(u64),
    /// What a server says of slices is not what it was asked.
    #[error("what the server says of slices does not fit what it was asked")]
    Slices,
    /// Servers that are no route.
    #[error("the route of the write is none")]
    Route,
    /// Slots that cannot be where a server says.
    #[error("the slots of the chunk cannot be where the server says")]
    Runs,
}

fn seal<const N: usize>(bytes: &mut [u8; N]) {
    let (content, crc) = bytes.split_at_mut(N - 4);
    crc.copy_from_slice(&crc32c(content).to_le_bytes());
}

fn open<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], WireError> {
    let short = WireError::Short { found: bytes.len(), needed: N };
    let header = bytes.first_chunk::<N>().ok_or(short)?;
    let (content, crc) = header.split_at(N - 4);
    if crc32c(content).to_le_bytes() != crc {
        return Err(WireError::HeaderCrc);
    }
    Ok(header)
}

fn check_version(raw: u16) -> Result<(), WireError> {
    match u16::from_le(raw) {
        VERSION => Ok(()),
        other => Err(WireError::Version(other)),
    }
}

/// A chain version, if it is one that a chunk can have.
pub(crate) fn check_chain(chain: u64) -> Result<u32, WireError> {
    let known = u32::try_from(chain).ok().filter(|chain| *chain <= CHAIN_MAX);
    known.ok_or(WireError::Chain(chain))
}

fn check_zero(value: u32, what: &'static str) -> Result<(), WireError> {
    if value == 0 { Ok(()) } else { Err(WireError::Reserved(what)) }
}
