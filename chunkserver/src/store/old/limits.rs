//! The bounds of the format before, with their reasons.

use crate::store::slice::SLICE_BYTES;

/// Smallest copy of a log that was made.
pub(super) const LOG_BYTES_MIN: u64 = 64 << 10;

/// Largest copy of a log that was made: both are held in memory.
pub(super) const LOG_BYTES_MAX: u64 = 1 << 30;

/// Fewest pages of a segment: the header and a few more.
pub(super) const SEGMENT_PAGES_MIN: u32 = 8;

/// Most pages of a segment: 1 GiB.
pub(super) const SEGMENT_PAGES_MAX: u32 = (1 << 30) / SLICE_BYTES as u32;
