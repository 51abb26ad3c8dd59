//! Every bound of the store, with its reason.

use std::time::Duration;

use super::slice::SLICE_BYTES;

/// Most bytes of one write or read: the largest message that the transport is tested with.
pub const WRITE_BYTES_MAX: u64 = 16 << 20;

/// Most bytes of one chunk: slice indexes stay within 28 bits, far inside the `u32` of the map.
pub const CHUNK_BYTES_MAX: u64 = 1 << 40;

pub use towpath_fastpath::limits::CHAIN_MAX;

/// Most slices that one write can touch: a full one that is aligned to nothing.
pub const WRITE_SLICES_MAX: u64 = WRITE_BYTES_MAX / SLICE_BYTES as u64 + 1;

/// Longest body of a log record: a write of the most slices, each in an extent of its own.
pub const RECORD_BODY_BYTES_MAX: usize = 24 + WRITE_SLICES_MAX as usize * 12 + 24;

/// Most bytes of a write that stand in the log with its record: a sequential write of so many takes
/// a disk little longer than one of 4 KiB, and less than a second write elsewhere.
pub const LOGGED_BYTES_MAX: u64 = 16 << 10;

/// Most slices that such a write touches.
pub const LOGGED_SLICES_MAX: u32 = (LOGGED_BYTES_MAX / SLICE_BYTES as u64) as u32 + 1;

/// Size of a log unless configured: some 1,800 groups of changes between two checkpoints, and a
/// replay of well under a second. An empty store, with two copies of it, takes less than 64 MiB.
pub const LOG_BYTES_DEFAULT: u64 = 28 << 20;

/// Size that a log grows to unless configured: a disk takes a second to write it, and an opening
/// some to read three quarters of it.
pub const LOG_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// A store that was full has room again when this many pages are free, or a part in
/// [`ROOM_AGAIN_SHARE`] of all where that is less.
pub const ROOM_AGAIN_PAGES: u64 = 4096;

/// See [`ROOM_AGAIN_PAGES`].
pub const ROOM_AGAIN_SHARE: u64 = 32;

/// The log says at most once in this time that a store has become full, or has room again.
pub const FULL_SAID_EVERY: Duration = Duration::from_secs(60);

/// Most chunks unless configured: an empty chunk holds about 200 bytes of memory, so 0.8 GiB.
pub const CHUNKS_MAX_DEFAULT: u64 = 4 << 20;

/// Free runs looked at for one that holds a whole write, before it is cut into pieces.
pub const FIT_RUNS_MAX: usize = 32;

/// Most chunks in one page of a listing.
pub const LIST_MAX: usize = 1024;

/// How long nothing is committed before the mark is written: long enough that it costs nothing
/// under load, short enough that few acknowledged changes are without it.
pub const MARK_AFTER: Duration = Duration::from_millis(500);

/// How long an unfinished chunk is kept that nobody writes to, unless configured: a client that is
/// alive and whose network is bad has given up by then.
pub const UNFINISHED_KEEP_DEFAULT: Duration = Duration::from_secs(600);

/// How long an unfinished chunk is kept that nobody writes to while the link that has made it is
/// there: longer than whoever feeds a put sleeps, and not for good, since links can live for years.
pub const OPEN_KEEP: Duration = Duration::from_secs(24 * 3600);

/// How often an idle store looks for unfinished chunks that nobody goes on with.
pub const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Unfinished chunks that are removed in one go: each delete is a pass over the chunk's slices.
pub const SWEEP_MAX: usize = 16;

/// Sessions of clients before those that ended are looked for: some 100 KB of memory.
pub const SESSIONS_SWEEP_MIN: usize = 1024;

const _: () = assert!(CHUNK_BYTES_MAX / (SLICE_BYTES as u64) < u32::MAX as u64);
const _: () = assert!(RECORD_BODY_BYTES_MAX < u32::MAX as usize);
