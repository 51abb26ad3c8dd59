//! Limits of the storage protocol, each with its reason.

use crate::slice::SLICE_BYTES;
use towpath_rpc::limits::BODY_BYTES_MAX;

/// Bytes of the header of a read, a write or a read reply.
pub const IO_HEADER_BYTES: usize = 64;

/// Bytes of an error reply.
pub const ERROR_BYTES: usize = 48;

/// The most checksums of one operation: those that fit a body behind the header.
pub const CRCS_MAX: usize = (BODY_BYTES_MAX - IO_HEADER_BYTES) / 4;

/// The most bytes of one read or write, whatever the link holds whole: what any offset leaves of
/// [`CRCS_MAX`] slices, rounded down to a power of two.
pub const IO_BYTES_MAX: usize = 32 << 20;

/// Chunks of one page of a listing: their bodies stay below the limit of an rpc body.
pub const LIST_MAX: usize = 1024;

/// Links that one reply to a question for the health names: about 100 bytes each, well below the
/// limit of an rpc body.
pub const HEALTH_LINKS_MAX: usize = 256;

/// Damaged slices that one scrub reply names; the count says how many there were.
pub const SCRUB_NAMED_MAX: usize = 256;

const _: () = assert!(IO_BYTES_MAX / SLICE_BYTES < CRCS_MAX);
