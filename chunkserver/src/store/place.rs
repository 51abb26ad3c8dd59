//! Where a slice lies on the medium.

use super::limits::CHUNK_BYTES_MAX;
use super::slice::SLICE_BYTES;

/// The page of a slice whose page is lost: no disk has it.
pub(crate) const LOST_PAGE: u32 = u32::MAX;

/// Where a slice lies and what its checksum is. Page zero, a header, means that it was never
/// written and reads as zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SliceRef {
    pub(crate) page: u32,
    pub(crate) crc: u32,
}

impl SliceRef {
    pub(crate) fn is_hole(self) -> bool {
        self.page == 0
    }
}

/// Slices that a chunk of `byte_len` bytes spans.
pub(crate) fn slices_in(byte_len: u64) -> u64 {
    debug_assert!(byte_len <= CHUNK_BYTES_MAX);
    byte_len.div_ceil(SLICE_BYTES as u64)
}
