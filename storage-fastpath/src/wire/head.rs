//! What reads, writes, clears and replies to reads begin with (docs/storage-protocol.md section 4).

use super::{VERSION, WireError, check_version};
use crate::limits::IO_BYTES_MAX;
use crate::slice::{ChunkId, Span};
use bytemuck::{Pod, Zeroable};
use core::mem::{offset_of, size_of};

/// The first bytes of such a header.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct HeadRaw {
    chunk: [u8; 16],
    offset: u64,
    length: u32,
    crc_count: u32,
    version: u16,
    kind: u16,
    flags: u32,
}

const _: () = {
    assert!(size_of::<HeadRaw>() == 40);
    assert!(offset_of!(HeadRaw, offset) == 16);
    assert!(offset_of!(HeadRaw, length) == 24);
    assert!(offset_of!(HeadRaw, crc_count) == 28);
    assert!(offset_of!(HeadRaw, version) == 32);
    assert!(offset_of!(HeadRaw, kind) == 34);
    assert!(offset_of!(HeadRaw, flags) == 36);
};

/// The same as numbers.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) chunk: ChunkId,
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) crc_count: u32,
    pub(super) kind: u16,
    pub(super) flags: u32,
}

impl Head {
    pub(super) fn to_raw(self) -> HeadRaw {
        HeadRaw {
            chunk: self.chunk.0.to_le_bytes(),
            offset: self.offset.to_le(),
            length: self.length.to_le(),
            crc_count: self.crc_count.to_le(),
            version: VERSION.to_le(),
            kind: self.kind.to_le(),
            flags: self.flags.to_le(),
        }
    }

    /// Of the version that is spoken here; nothing else is checked.
    pub(super) fn of(raw: HeadRaw) -> Result<Self, WireError> {
        check_version(raw.version)?;
        Ok(Self {
            chunk: ChunkId(u128::from_le_bytes(raw.chunk)),
            offset: u64::from_le(raw.offset),
            length: u32::from_le(raw.length),
            crc_count: u32::from_le(raw.crc_count),
            kind: u16::from_le(raw.kind),
            flags: u32::from_le(raw.flags),
        })
    }

    /// Whether it has so many bytes as one operation may have.
    pub(super) fn is_one_operation(&self) -> bool {
        (1..=IO_BYTES_MAX).contains(&(self.length as usize))
    }

    /// Checks where the range ends, and that it has a checksum for each slice that it touches; or
    /// none at all.
    pub(super) fn check_range(&self, has_crcs: bool) -> Result<(), WireError> {
        let Self { offset, length, crc_count: found, .. } = *self;
        if offset.checked_add(length.into()).is_none() {
            return Err(WireError::Range { offset, length });
        }
        let expected = if has_crcs { crc_count(offset, length).into() } else { 0 };
        match u64::from(found) == expected {
            true => Ok(()),
            false => Err(WireError::CrcCount { expected, found }),
        }
    }
}

/// Slices that a range touches.
pub(super) fn crc_count(offset: u64, length: u32) -> u32 {
    Span::new(offset, length.into()).count() as u32
}
