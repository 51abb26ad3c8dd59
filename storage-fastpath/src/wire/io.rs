//! The headers of reads, writes and read replies (docs/storage-protocol.md section 4).

use super::{VERSION, WireError, check_version, check_zero, open, seal};
use crate::limits::{CRCS_MAX, IO_BYTES_MAX, IO_HEADER_BYTES};
use crate::slice::{ChunkId, Span};
use bytemuck::{Pod, Zeroable};
use core::mem::{offset_of, size_of};

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
