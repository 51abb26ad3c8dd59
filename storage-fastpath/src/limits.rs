//! Limits of the storage protocol, each with its reason.

use crate::slice::SLICE_BYTES;
use towpath_rpc::limits::BODY_BYTES_MAX;
use towpath_transport::Nanos;

/// Bytes of the header of a read, a write or a clear.
pub const IO_HEADER_BYTES: usize = 128;

/// Bytes of the header of a read reply.
pub const READ_REPLY_BYTES: usize = 64;

/// Bytes of the reply to a change.
pub const CHANGE_REPLY_BYTES: usize = 24;

/// Bytes of an error reply.
pub const ERROR_BYTES: usize = 48;

/// The most checksums of one operation: those that fit a body behind the header.
pub const CRCS_MAX: usize = (BODY_BYTES_MAX - IO_HEADER_BYTES) / 4;

/// The most bytes of one read or write, whatever the link holds whole: what any offset leaves of
/// [`CRCS_MAX`] slices, rounded down to a power of two.
pub const IO_BYTES_MAX: usize = 32 << 20;

/// The most bytes of which one request has sketches made: a server's thread is busy with them for
/// some hundred microseconds.
pub const SKETCHED_BYTES_MAX: usize = 1 << 20;

/// Chunks of one page of a listing: their bodies stay below the limit of an rpc body.
pub const LIST_MAX: usize = 1024;

/// Links that one reply to a question for the health names: about 100 bytes each, well below the
/// limit of an rpc body.
pub const HEALTH_LINKS_MAX: usize = 256;

/// The highest chain version: the map of a store has 24 bits for it, and it rises only when the
/// layout of its chunk changes, so that one change a minute takes 30 years.
pub const CHAIN_MAX: u32 = (1 << 24) - 1;

/// Damaged slices that one scrub reply names; the count says how many there were.
pub const SCRUB_NAMED_MAX: usize = 256;

/// Runs of slots that one reply to a locate names: some 20 bytes each, below the limit of an rpc
/// body. A chunk in more runs is located page by page.
pub const RUNS_MAX: usize = 1024;

/// Chunks of which a client knows where their slots are: some 200 bytes each.
pub const PLACES_CHUNKS_MAX: usize = 4096;

/// Runs of slots that a client knows in all: some 3 MB.
pub const PLACES_RUNS_MAX: usize = 64 << 10;

/// Slots of one READ at most: what an operation of the default size has, so that a READ that was
/// torn is not much to read again.
pub const READ_SLOTS_MAX: u32 = 32;

/// READs of the same slots before the server is asked instead: a slot that is torn this often is
/// written all the time.
pub const READ_TRIES_MAX: u32 = 4;

/// Questions where a chunk is for one read: as many pages as its slices can lie in, and some more
/// where it moves meanwhile.
pub const LOCATES_MAX: u32 = 16;

/// Operations of a client that is shared which have not ended: what a few thousand tasks ask for,
/// of which only some are under way.
pub const SHARED_OPEN_MAX: usize = 16 << 10;

/// How long a client does not ask again where a chunk is that has no slots.
pub const NOWHERE_SPAN: Nanos = Nanos::from_secs(1);

/// The part of its time that a read waits for a buffer, for room on the lane, or for the grant that
/// the server named, which is on its way with the reply: one in so many. The rest is for an
/// ordinary read.
pub const STALL_SHARE: u64 = 4;

const _: () = assert!(IO_BYTES_MAX / SLICE_BYTES < CRCS_MAX);
const _: () = assert!(IO_BYTES_MAX / SLICE_BYTES / RUNS_MAX < LOCATES_MAX as usize);
