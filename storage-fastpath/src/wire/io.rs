//! Replies to reads and to changes (docs/storage-protocol.md section 4).

use super::head::{Head, HeadRaw, crc_count};
use super::{VERSION, WireError, check_version, check_zero, open, seal};
use crate::limits::{CHANGE_REPLY_BYTES, CRCS_MAX, READ_REPLY_BYTES};
use crate::slice::ChunkId;
use bytemuck::{Pod, Zeroable};
use core::mem::{offset_of, size_of};
use smallvec::SmallVec;

const KIND_READ_REPLY: u16 = 3;
const KIND_CHANGE_REPLY: u16 = 7;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ReadReplyRaw {
    head: HeadRaw,
    /// Length and version of the chunk.
    words: [u64; 2],
    reserved: u32,
    header_crc: u32,
}

const _: () = {
    assert!(size_of::<ReadReplyRaw>() == READ_REPLY_BYTES);
    assert!(offset_of!(ReadReplyRaw, words) == 40);
    assert!(offset_of!(ReadReplyRaw, reserved) == 56);
    assert!(offset_of!(ReadReplyRaw, header_crc) == 60);
};

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

impl ReadReplyHeader {
    /// The header as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; READ_REPLY_BYTES] {
        let &Self { chunk, offset, length, chunk_bytes, chunk_version } = self;
        let (crc_count, kind, flags) = (crc_count(offset, length), KIND_READ_REPLY, 0);
        let mut bytes: [u8; READ_REPLY_BYTES] = bytemuck::cast(ReadReplyRaw {
            head: Head { chunk, offset, length, crc_count, kind, flags }.to_raw(),
            words: [chunk_bytes.to_le(), chunk_version.to_le()],
            reserved: 0,
            header_crc: 0,
        });
        seal(&mut bytes);
        bytes
    }

    /// The header and the checksums of a read reply's body.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<(Self, Vec<u32>), WireError> {
        let header = open::<READ_REPLY_BYTES>(body)?;
        let raw: ReadReplyRaw = bytemuck::pod_read_unaligned(header);
        let head = Head::of(raw.head)?;
        check_kind(head.kind, KIND_READ_REPLY)?;
        check_zero(head.flags, "a flag")?;
        check_zero(raw.reserved, "a reserved byte")?;
        if !head.is_one_operation() {
            return Err(WireError::Length(head.length));
        }
        head.check_range(true)?;
        let Head { chunk, offset, length, crc_count, .. } = head;
        let [chunk_bytes, chunk_version] = raw.words.map(u64::from_le);
        let header = Self { chunk, offset, length, chunk_bytes, chunk_version };
        Ok((header, crcs::<READ_REPLY_BYTES>(body, crc_count)?))
    }
}

/// The reply to a change that was made: the whole body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeReply {
    /// The version of the chunk that the change made, from 1 on.
    pub chunk_version: u64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ChangeReplyRaw {
    chunk_version: u64,
    version: u16,
    kind: u16,
    flags: u32,
    reserved: u32,
    crc: u32,
}

const _: () = {
    assert!(size_of::<ChangeReplyRaw>() == CHANGE_REPLY_BYTES);
    assert!(offset_of!(ChangeReplyRaw, version) == 8);
    assert!(offset_of!(ChangeReplyRaw, kind) == 10);
    assert!(offset_of!(ChangeReplyRaw, flags) == 12);
    assert!(offset_of!(ChangeReplyRaw, reserved) == 16);
    assert!(offset_of!(ChangeReplyRaw, crc) == 20);
};

impl ChangeReply {
    /// The reply as bytes.
    #[must_use]
    pub fn emit(self) -> [u8; CHANGE_REPLY_BYTES] {
        let mut bytes: [u8; CHANGE_REPLY_BYTES] = bytemuck::cast(ChangeReplyRaw {
            chunk_version: self.chunk_version.to_le(),
            version: VERSION.to_le(),
            kind: KIND_CHANGE_REPLY.to_le(),
            ..ChangeReplyRaw::zeroed()
        });
        seal(&mut bytes);
        bytes
    }

    /// The body of a reply to a change.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let raw: ChangeReplyRaw = bytemuck::pod_read_unaligned(open::<CHANGE_REPLY_BYTES>(body)?);
        check_version(raw.version)?;
        check_kind(u16::from_le(raw.kind), KIND_CHANGE_REPLY)?;
        check_zero(raw.flags, "a flag")?;
        check_zero(raw.reserved, "a reserved byte")?;
        if body.len() != CHANGE_REPLY_BYTES {
            let (expected, found) = (CHANGE_REPLY_BYTES, body.len());
            return Err(WireError::BodyLength { expected, found });
        }
        Ok(Self { chunk_version: u64::from_le(raw.chunk_version) })
    }
}

fn check_kind(found: u16, expected: u16) -> Result<(), WireError> {
    if found == expected { Ok(()) } else { Err(WireError::Kind { found, expected }) }
}

/// The `count` checksums behind a header of `N` bytes, which nothing follows.
pub(super) fn crcs<const N: usize>(body: &[u8], count: u32) -> Result<Vec<u32>, WireError> {
    debug_assert!(count as usize <= CRCS_MAX, "a length was checked against its limit");
    let (fours, rest) = body[N..].as_chunks::<4>();
    let expected = N + 4 * count as usize;
    if body.len() != expected || !rest.is_empty() {
        return Err(WireError::BodyLength { expected, found: body.len() });
    }
    Ok(fours.iter().map(|four| u32::from_le_bytes(*four)).collect())
}

/// The vector of checksums as bytes.
#[must_use]
pub fn emit_crcs(crcs: &[u32]) -> SmallVec<[u8; 256]> {
    crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect()
}
