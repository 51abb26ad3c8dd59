//! Reads, writes and errors as bytes.

use crate::limits::{CRCS_MAX, ERROR_BYTES, IO_BYTES_MAX, IO_HEADER_BYTES};
use crate::slice::{ChunkId, Span};
use bytemuck::{Pod, Zeroable};
use core::mem::{offset_of, size_of};
use towpath_base::crc::crc32c;

/// The version of the layouts here.
pub const VERSION: u16 = 1;

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
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::Write,
        Self::Read,
        Self::Stat,
        Self::List,
        Self::Delete,
        Self::Scrub,
        Self::Info,
    ];

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
    #[error("storage version {0}, and this side speaks 1: update the older side")]
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
    /// Not a protobuf message of the kind.
    #[error("the body is not the message that the method wants")]
    Protobuf,
}

const KIND_WRITE: u16 = 1;
const KIND_READ: u16 = 2;
const KIND_READ_REPLY: u16 = 3;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct IoRaw {
    chunk: [u8; 16],
    offset: u64,
    length: u32,
    crc_count: u32,
    version: u16,
    kind: u16,
    flags: u32,
    /// Capability words in requests; length and version of the chunk in replies.
    words: [u64; 2],
    reserved: u32,
    header_crc: u32,
}

const _: () = {
    assert!(size_of::<IoRaw>() == IO_HEADER_BYTES);
    assert!(offset_of!(IoRaw, offset) == 16);
    assert!(offset_of!(IoRaw, length) == 24);
    assert!(offset_of!(IoRaw, crc_count) == 28);
    assert!(offset_of!(IoRaw, version) == 32);
    assert!(offset_of!(IoRaw, kind) == 34);
    assert!(offset_of!(IoRaw, flags) == 36);
    assert!(offset_of!(IoRaw, words) == 40);
    assert!(offset_of!(IoRaw, reserved) == 56);
    assert!(offset_of!(IoRaw, header_crc) == 60);
};

/// What the three headers have in common.
#[derive(Clone, Copy)]
struct Io {
    kind: u16,
    chunk: ChunkId,
    offset: u64,
    length: u32,
    crc_count: u32,
    words: [u64; 2],
}

impl Io {
    fn emit(&self) -> [u8; IO_HEADER_BYTES] {
        let mut bytes: [u8; IO_HEADER_BYTES] = bytemuck::cast(IoRaw {
            chunk: self.chunk.0.to_le_bytes(),
            offset: self.offset.to_le(),
            length: self.length.to_le(),
            crc_count: self.crc_count.to_le(),
            version: VERSION.to_le(),
            kind: self.kind.to_le(),
            flags: 0,
            words: self.words.map(u64::to_le),
            reserved: 0,
            header_crc: 0,
        });
        seal(&mut bytes);
        bytes
    }

    fn parse(bytes: &[u8], expected: u16) -> Result<Self, WireError> {
        let header = open::<IO_HEADER_BYTES>(bytes)?;
        let raw: IoRaw = bytemuck::pod_read_unaligned(header);
        check_version(raw.version)?;
        let io = Self {
            kind: u16::from_le(raw.kind),
            chunk: ChunkId(u128::from_le_bytes(raw.chunk)),
            offset: u64::from_le(raw.offset),
            length: u32::from_le(raw.length),
            crc_count: u32::from_le(raw.crc_count),
            words: raw.words.map(u64::from_le),
        };
        if io.kind != expected {
            return Err(WireError::Kind { found: io.kind, expected });
        }
        check_zero(raw.flags, "a flag")?;
        check_zero(raw.reserved, "a reserved byte")?;
        io.check()?;
        Ok(io)
    }

    fn check(&self) -> Result<(), WireError> {
        let Self { offset, length, .. } = *self;
        if length == 0 || length as usize > IO_BYTES_MAX {
            return Err(WireError::Length(length));
        }
        if offset.checked_add(length.into()).is_none() {
            return Err(WireError::Range { offset, length });
        }
        let slices = Span::new(offset, length.into()).count();
        let expected = if self.kind == KIND_READ { 0 } else { slices };
        if u64::from(self.crc_count) != expected {
            return Err(WireError::CrcCount { expected, found: self.crc_count });
        }
        if self.kind != KIND_READ_REPLY && self.words != [0; 2] {
            return Err(WireError::Reserved("a capability word"));
        }
        Ok(())
    }
}

/// A write: where its data goes. One checksum per touched slice follows
/// (docs/storage-protocol.md section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHeader {
    /// The chunk.
    pub chunk: ChunkId,
    /// First byte in the chunk.
    pub offset: u64,
    /// Bytes, at least one.
    pub length: u32,
}

/// A read: what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadHeader {
    /// The chunk.
    pub chunk: ChunkId,
    /// First byte in the chunk.
    pub offset: u64,
    /// Bytes, at least one.
    pub length: u32,
}

/// A read's reply: what comes. One checksum per touched slice follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadReplyHeader {
    /// The chunk.
    pub chunk: ChunkId,
    /// First byte in the chunk.
    pub offset: u64,
    /// Bytes, at least one.
    pub length: u32,
    /// Length of the chunk when it was read: tells whether the last slice is the chunk's last.
    pub chunk_bytes: u64,
    /// Version of the chunk that was read.
    pub chunk_version: u64,
}

impl WriteHeader {
    /// The slices that it touches.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.offset, self.length.into())
    }

    /// The header as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; IO_HEADER_BYTES] {
        let &Self { chunk, offset, length } = self;
        let crc_count = crc_count(offset, length);
        Io { kind: KIND_WRITE, chunk, offset, length, crc_count, words: [0; 2] }.emit()
    }

    /// The header and the checksums of a write's body.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<(Self, Vec<u32>), WireError> {
        let Io { chunk, offset, length, crc_count, .. } = Io::parse(body, KIND_WRITE)?;
        Ok((Self { chunk, offset, length }, crcs(body, crc_count)?))
    }
}

impl ReadHeader {
    /// The slices that it touches.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.offset, self.length.into())
    }

    /// The header as bytes: the whole body of a read.
    #[must_use]
    pub fn emit(&self) -> [u8; IO_HEADER_BYTES] {
        let &Self { chunk, offset, length } = self;
        Io { kind: KIND_READ, chunk, offset, length, crc_count: 0, words: [0; 2] }.emit()
    }

    /// The body of a read.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let Io { chunk, offset, length, crc_count, .. } = Io::parse(body, KIND_READ)?;
        crcs(body, crc_count)?;
        Ok(Self { chunk, offset, length })
    }
}

impl ReadReplyHeader {
    /// The header as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; IO_HEADER_BYTES] {
        let &Self { chunk, offset, length, chunk_bytes, chunk_version } = self;
        let words = [chunk_bytes, chunk_version];
        let crc_count = crc_count(offset, length);
        Io { kind: KIND_READ_REPLY, chunk, offset, length, crc_count, words }.emit()
    }

    /// The header and the checksums of a read reply's body.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<(Self, Vec<u32>), WireError> {
        let io = Io::parse(body, KIND_READ_REPLY)?;
        let Io { chunk, offset, length, crc_count, words: [chunk_bytes, chunk_version], .. } = io;
        let header = Self { chunk, offset, length, chunk_bytes, chunk_version };
        Ok((header, crcs(body, crc_count)?))
    }
}

fn crc_count(offset: u64, length: u32) -> u32 {
    Span::new(offset, length.into()).count() as u32
}

/// The `count` checksums behind a header, which nothing follows.
fn crcs(body: &[u8], count: u32) -> Result<Vec<u32>, WireError> {
    debug_assert!(count as usize <= CRCS_MAX, "a length was checked against its limit");
    let vector = &body[IO_HEADER_BYTES..];
    let expected = IO_HEADER_BYTES + 4 * count as usize;
    let (fours, rest) = vector.as_chunks::<4>();
    if body.len() != expected || !rest.is_empty() {
        return Err(WireError::BodyLength { expected, found: body.len() });
    }
    Ok(fours.iter().map(|four| u32::from_le_bytes(*four)).collect())
}

/// The vector of checksums as bytes.
#[must_use]
pub fn emit_crcs(crcs: &[u32]) -> Vec<u8> {
    crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect()
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

fn check_zero(value: u32, what: &'static str) -> Result<(), WireError> {
    if value == 0 { Ok(()) } else { Err(WireError::Reserved(what)) }
}

/// Which rule a request broke; its number travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u16)]
pub enum Why {
    /// A rule that this side does not know.
    #[error("an unnamed rule")]
    Other = 0,
    /// The header of the body.
    #[error("its header is malformed")]
    Header = 1,
    /// The header's version.
    #[error("its header has a version that the server does not speak")]
    Version = 2,
    /// Length or range.
    #[error("its length or range is impossible")]
    Range = 3,
    /// The number of checksums.
    #[error("it has not one checksum per touched slice")]
    CrcCount = 4,
    /// Lengths of body and data.
    #[error("its body or data is not as long as its header says")]
    Lengths = 5,
    /// The protobuf body.
    #[error("its protobuf body cannot be read")]
    Protobuf = 6,
    /// The size limit of a new chunk.
    #[error("a chunk cannot have that size limit")]
    Limit = 7,
}

impl Why {
    const ALL: [Self; 8] = [
        Self::Other,
        Self::Header,
        Self::Version,
        Self::Range,
        Self::CrcCount,
        Self::Lengths,
        Self::Protobuf,
        Self::Limit,
    ];
}

impl From<WireError> for Why {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Version(_) => Self::Version,
            WireError::Length(_) | WireError::Range { .. } => Self::Range,
            WireError::CrcCount { .. } => Self::CrcCount,
            WireError::BodyLength { .. } | WireError::DataLength { .. } => Self::Lengths,
            WireError::Protobuf => Self::Protobuf,
            WireError::Short { .. }
            | WireError::Kind { .. }
            | WireError::Reserved(_)
            | WireError::HeaderCrc
            | WireError::Code(_) => Self::Header,
        }
    }
}

/// Why a server did not do what it was asked; nothing was changed
/// (docs/storage-protocol.md section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorReply {
    /// The chunk is not there.
    #[error("there is no chunk {chunk}: create it first, or list what there is")]
    NoSuchChunk {
        /// Its name.
        chunk: ChunkId,
    },
    /// The chunk is there already.
    #[error("chunk {chunk} exists: delete it first, or choose another name")]
    ChunkExists {
        /// Its name.
        chunk: ChunkId,
    },
    /// The read ends past the end of the chunk.
    #[error("chunk {chunk} ends at byte {length}: read up to there")]
    PastEnd {
        /// The chunk.
        chunk: ChunkId,
        /// Its length in bytes.
        length: u64,
    },
    /// The write ends past the size limit of the chunk.
    #[error("chunk {chunk} may reach {limit} bytes and no more: use another chunk")]
    PastLimit {
        /// The chunk.
        chunk: ChunkId,
        /// Its limit in bytes.
        limit: u64,
    },
    /// Data was changed on its way to the server.
    #[error("slice {slice} of chunk {chunk} was changed on its way to the server: send it again")]
    WireCorrupt {
        /// The chunk.
        chunk: ChunkId,
        /// Index of the slice in the chunk.
        slice: u64,
    },
    /// A slice is damaged on the server's medium.
    #[error("slice {slice} of chunk {chunk} is damaged on the server: overwrite it whole")]
    SliceCorrupt {
        /// The chunk.
        chunk: ChunkId,
        /// Index of the slice in the chunk.
        slice: u64,
    },
    /// No room.
    #[error("the server has no space left: delete chunks, or raise its capacity")]
    NoSpace,
    /// As many chunks as the server holds.
    #[error("the server holds its {max} chunks: delete some first")]
    TooManyChunks {
        /// The limit.
        max: u64,
    },
    /// A flush failed: the store takes no changes any more, reads go on.
    #[error("the server's store failed and is read-only: see its log, replace the medium")]
    StoreFailed,
    /// The medium would not read or write.
    #[error("the server's medium failed: see its log, then try again")]
    Media,
    /// More bytes than the server takes or gives in one operation.
    #[error("one operation has at most {max} bytes here: use several")]
    TooLong {
        /// The limit in bytes.
        max: u64,
    },
    /// No buffer, or no place in a queue: nothing is wrong with the request.
    #[error("the server is busy: try again")]
    Busy,
    /// The request breaks a rule.
    #[error("the server refused the request: {why}")]
    BadRequest {
        /// Which rule.
        why: Why,
    },
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ErrorRaw {
    chunk: [u8; 16],
    slice: u64,
    value: u64,
    version: u16,
    code: u16,
    why: u16,
    reserved_0: u16,
    reserved_1: u32,
    crc: u32,
}

const _: () = {
    assert!(size_of::<ErrorRaw>() == ERROR_BYTES);
    assert!(offset_of!(ErrorRaw, slice) == 16);
    assert!(offset_of!(ErrorRaw, value) == 24);
    assert!(offset_of!(ErrorRaw, version) == 32);
    assert!(offset_of!(ErrorRaw, code) == 34);
    assert!(offset_of!(ErrorRaw, why) == 36);
    assert!(offset_of!(ErrorRaw, reserved_0) == 38);
    assert!(offset_of!(ErrorRaw, reserved_1) == 40);
    assert!(offset_of!(ErrorRaw, crc) == 44);
};

impl ErrorReply {
    /// Code, chunk, slice, value, rule.
    fn fields(self) -> (u16, ChunkId, u64, u64, u16) {
        let none = ChunkId(0);
        match self {
            Self::NoSuchChunk { chunk } => (1, chunk, 0, 0, 0),
            Self::ChunkExists { chunk } => (2, chunk, 0, 0, 0),
            Self::PastEnd { chunk, length } => (3, chunk, 0, length, 0),
            Self::PastLimit { chunk, limit } => (4, chunk, 0, limit, 0),
            Self::WireCorrupt { chunk, slice } => (5, chunk, slice, 0, 0),
            Self::SliceCorrupt { chunk, slice } => (6, chunk, slice, 0, 0),
            Self::NoSpace => (7, none, 0, 0, 0),
            Self::TooManyChunks { max } => (8, none, 0, max, 0),
            Self::StoreFailed => (9, none, 0, 0, 0),
            Self::Media => (10, none, 0, 0, 0),
            Self::TooLong { max } => (11, none, 0, max, 0),
            Self::Busy => (12, none, 0, 0, 0),
            Self::BadRequest { why } => (13, none, 0, 0, why as u16),
        }
    }

    fn of(code: u16, chunk: ChunkId, slice: u64, value: u64, why: u16) -> Option<Self> {
        Some(match code {
            1 => Self::NoSuchChunk { chunk },
            2 => Self::ChunkExists { chunk },
            3 => Self::PastEnd { chunk, length: value },
            4 => Self::PastLimit { chunk, limit: value },
            5 => Self::WireCorrupt { chunk, slice },
            6 => Self::SliceCorrupt { chunk, slice },
            7 => Self::NoSpace,
            8 => Self::TooManyChunks { max: value },
            9 => Self::StoreFailed,
            10 => Self::Media,
            11 => Self::TooLong { max: value },
            12 => Self::Busy,
            13 => {
                let known = Why::ALL.into_iter().find(|known| *known as u16 == why);
                Self::BadRequest { why: known.unwrap_or(Why::Other) }
            }
            _ => return None,
        })
    }

    /// The reply as bytes.
    #[must_use]
    pub fn emit(self) -> [u8; ERROR_BYTES] {
        let (code, chunk, slice, value, why) = self.fields();
        let mut bytes: [u8; ERROR_BYTES] = bytemuck::cast(ErrorRaw {
            chunk: chunk.0.to_le_bytes(),
            slice: slice.to_le(),
            value: value.to_le(),
            version: VERSION.to_le(),
            code: code.to_le(),
            why: why.to_le(),
            reserved_0: 0,
            reserved_1: 0,
            crc: 0,
        });
        seal(&mut bytes);
        bytes
    }

    /// The body of an error reply.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let raw: ErrorRaw = bytemuck::pod_read_unaligned(open::<ERROR_BYTES>(body)?);
        check_version(raw.version)?;
        check_zero(u32::from(raw.reserved_0) | raw.reserved_1, "a reserved byte")?;
        if body.len() != ERROR_BYTES {
            return Err(WireError::BodyLength { expected: ERROR_BYTES, found: body.len() });
        }
        let code = u16::from_le(raw.code);
        let chunk = ChunkId(u128::from_le_bytes(raw.chunk));
        let (slice, value) = (u64::from_le(raw.slice), u64::from_le(raw.value));
        Self::of(code, chunk, slice, value, u16::from_le(raw.why)).ok_or(WireError::Code(code))
    }
}
