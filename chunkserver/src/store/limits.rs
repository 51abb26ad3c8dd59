//! Every bound of the store, with its reason.

use std::time::Duration;

use super::slice::SLICE_BYTES;

/// Most bytes of one write or read: the largest message that the transport is tested with.
pub const WRITE_BYTES_MAX: u64 = 16 << 20;

/// Most bytes of one chunk: slice indexes stay within 28 bits, far inside the `u32` of the map.
pub const CHUNK_BYTES_MAX: u64 = 1 << 40;

/// Most slices that one write can touch: a full one that is aligned to nothing.
pub const WRITE_SLICES_MAX: u64 = WRITE_BYTES_MAX / SLICE_BYTES as u64 + 1;

/// Longest body of a log record: a write of the most slices, each in an extent of its own.
pub const RECORD_BODY_BYTES_MAX: usize = 24 + WRITE_SLICES_MAX as usize * 12 + 8;

/// Smallest log: its quarter must hold a few records of ordinary writes.
pub const LOG_BYTES_MIN: u64 = 64 << 10;

/// Copies of its records in a log file: a damaged sector concerns one of them.
pub const LOG_COPIES: u64 = 2;

/// Largest log: a restart holds both copies in memory.
pub const LOG_BYTES_MAX: u64 = 1 << 30;

/// Size of a log unless configured: some 200,000 writes of 64 KiB between two checkpoints, and
/// a replay of well under a second.
pub const LOG_BYTES_DEFAULT: u64 = 32 << 20;

/// One part in this many of the log is kept for deletes, so that a full store can be emptied.
pub const LOG_DELETE_SHARE: u64 = 8;

/// One part in this many of the log bounds what is staged for one commit.
pub const LOG_BATCH_SHARE: u64 = 4;

/// A log filled beyond one part in this many is followed by a checkpoint.
pub const LOG_CHECKPOINT_SHARE: u64 = 2;

/// Pages of a segment file unless configured: 256 MiB, so that a terabyte is 4,096 files.
pub const SEGMENT_PAGES_DEFAULT: u32 = (256 << 20) / SLICE_BYTES as u32;

/// Fewest pages of a segment: the header and a few more, for tests.
pub const SEGMENT_PAGES_MIN: u32 = 8;

/// Most pages of a segment: 1 GiB, so that one file stays easy to copy and to inspect.
pub const SEGMENT_PAGES_MAX: u32 = (1 << 30) / SLICE_BYTES as u32;

/// Pages that get their room in one call: 4 MiB, some hundred microseconds at most.
pub const BACK_PAGES_MAX: u32 = 1024;

/// Pages that are tried together whether they have room, in a file with holes on a full medium: 1
/// MiB, so 256 calls for a usual segment.
pub const PROBE_PAGES: u32 = 256;

/// Most bytes of a checkpoint for each slice: a run of its own, and its checksum.
pub const MAP_SLICE_BYTES_MAX: u64 = 16;

/// Most bytes of a checkpoint for each chunk beside its slices.
pub const MAP_CHUNK_BYTES_MAX: u64 = 48;

/// Bytes of each map file that get their room together with a page: what its slice takes at most,
/// and a twelfth of a chunk, so that chunks of 48 KiB and more need no room of their own.
pub const MAP_PAGE_BYTES: u64 = 20;

/// Bytes of the medium that a page takes, with its part of both maps.
pub const PAGE_BYTES_ON_MEDIUM: u64 = SLICE_BYTES as u64 + 2 * MAP_PAGE_BYTES;

/// A store that was full has room again when this many pages are free, or a part in
/// [`ROOM_AGAIN_SHARE`] of all where that is less.
pub const ROOM_AGAIN_PAGES: u64 = 4096;

/// See [`ROOM_AGAIN_PAGES`].
pub const ROOM_AGAIN_SHARE: u64 = 32;

/// The log says at most once in this time that a store has become full, or has room again.
pub const FULL_SAID_EVERY: Duration = Duration::from_secs(60);

/// Map files grow by this much at least, where the medium has it: their growth is flushed.
pub const MAP_GROWTH_BYTES_MIN: u64 = 64 << 10;

/// Most chunks unless configured: an empty chunk holds about 200 bytes of memory, so 0.8 GiB.
pub const CHUNKS_MAX_DEFAULT: u64 = 4 << 20;

/// Free runs looked at for one that holds a whole write, before it is cut into pieces.
pub const FIT_RUNS_MAX: usize = 32;

/// Most chunks in one page of a listing.
pub const LIST_MAX: usize = 1024;

/// Requests that the worker takes before one commit.
pub const WORKER_BATCH_MAX: usize = 256;

/// Commits without a sleep after which those who ask may do the work: so many in a row tell memory
/// from a disk whose cache takes most of what it is given.
pub const WAKEFUL_BATCHES: u32 = 32;

/// How long nothing is committed before the mark is written: long enough that it costs nothing
/// under load, short enough that few acknowledged changes are without it.
pub const MARK_AFTER: Duration = Duration::from_millis(500);

/// How long a network thread works on the store before it looks at the network again (and it ends
/// what it has begun): well below the millisecond after which its peers take silence for loss.
pub const WORK_HERE_MAX: Duration = Duration::from_micros(200);

/// Longest read or write that a network thread does itself: a fraction of a millisecond.
pub const WORK_HERE_BYTES_MAX: u64 = 1 << 20;

/// How long an unfinished chunk is kept that nobody writes to, unless configured: a client that is
/// alive and whose network is bad has given up by then.
pub const UNFINISHED_KEEP_DEFAULT: Duration = Duration::from_secs(600);

/// How often an idle store looks for unfinished chunks that nobody goes on with.
pub const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Unfinished chunks that are removed in one go: each delete is a pass over the chunk's slices.
pub const SWEEP_MAX: usize = 16;

/// Sessions of clients before those that ended are looked for: some 100 KB of memory.
pub const SESSIONS_SWEEP_MIN: usize = 1024;

const _: () = assert!(CHUNK_BYTES_MAX / (SLICE_BYTES as u64) < u32::MAX as u64);
const _: () = assert!(RECORD_BODY_BYTES_MAX < u32::MAX as usize);
