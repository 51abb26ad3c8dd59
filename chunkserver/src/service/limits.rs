//! Bounds of the service, with their reasons.

use std::time::Duration;

use towpath_rpc::limits::PUSH_BODY_BYTES_MAX;
use towpath_transport::Nanos;

use crate::store::limits::LIST_MAX;

/// Slices that one request to the store checks: a scrub is cut into steps of this many, so that
/// other requests wait for 1 MiB of reading at most (a fraction of a millisecond when cached).
pub(super) const SCRUB_STEP_SLICES: u64 = 256;

/// Slices that one scrub request may ask for: 4 GiB, seconds of work.
pub(super) const SCRUB_BUDGET_MAX: u64 = 1 << 20;

/// Slices of a scrub request that leaves it to the server: 64 MiB, some ten milliseconds.
pub(super) const SCRUB_BUDGET_DEFAULT: u64 = 1 << 14;

/// Changes of a class that the store has from one worker: those of each link are its share
/// (`towpath_base::share`). A link that is alone has a third, which is more than it has under way
/// by default.
pub(crate) const CHANGES_MAX: usize = 1024;

/// How long the thread sleeps where the store has something and its answers do not end the sleep:
/// a device without a waker.
pub(super) const STORE_WAIT: Nanos = Nanos::from_micros(100);

/// How long a worker sleeps while a link waits to enter a session: what the store still has of an
/// older link may be another worker's, whose end wakes nobody here.
pub(super) const ENTRY_LOOK: Nanos = Nanos::from_millis(1);

/// How long a worker sleeps while a write waits for what interference control gives back.
pub(super) const CONTROL_LOOK: Nanos = Nanos::from_millis(1);

/// Links that one worker has to servers, to pass writes on: one for each rank that a server has, as
/// many as the layouts of some hundred files name. A client chooses them, so there are not more.
pub(super) const PEERS_MAX: usize = 128;

/// How long the link to a server is kept that nothing goes to.
pub(super) const PEER_IDLE: Nanos = Nanos::from_secs(60);

/// Bytes of lost parts that one worker helps to make anew at a time: sixty-four times what one
/// repair has under way, so that each of many links has its share. What is more is refused, and
/// asked for again.
pub(super) const REBUILD_BYTES_MAX: usize = 64 << 20;

/// Writes of one worker that are answered while a server behind still gets its copy: as many as one
/// link has under way at a server.
pub(super) const TRAILING_MAX: usize = 256;

/// Those that came over one link have at most one in so many of the bytes that it holds whole: the
/// rest is for writes that are not answered yet.
pub(super) const TRAILING_SHARE: u64 = 2;

/// How long a server that said nothing to one of them gets no other one: its copy is behind anyway,
/// and each would hold credit and its bytes until its time is over.
pub(super) const SILENT_FOR: Nanos = Nanos::from_secs(1);

/// Requests that one push says to be ready for: as many numbers as its body holds.
pub(super) const READY_MAX: usize = PUSH_BODY_BYTES_MAX / 8;

/// Lost clients with a line of the log each, in the time of [`LOG_EVERY`]; the others are
/// counted. Anyone can set up links and lose them as fast as they like.
pub(super) const CLIENTS_LOGGED: u32 = 16;

/// How often a line of the log is written that anyone can cause, as of a client that was turned
/// away or a slow request; those in between are counted.
pub(super) const LOG_EVERY: Nanos = Nanos::from_secs(1);

/// Bytes of the shortest write whose slices go to the disk before all of it has come. Those of a
/// shorter one do so in one operation, and are here a few chunks later.
pub(super) const STAGE_BYTES_MIN: usize = 128 << 10;

/// Lists kept for reuse: as many as requests are usually under way.
pub(super) const SPARE_MAX: usize = 256;

/// Unfinished chunks of one link that are kept while it is there. A client makes one a file, or one
/// a part of it.
pub(super) const OPEN_PUTS_MAX: usize = 1024;

/// How long a clean stop waits for the last words of the links, beyond the time for their answers.
pub(super) const GOODBYE_WAIT: Nanos = Nanos::from_millis(500);

/// Sizes of send buffers that are looked for, largest first, to know the longest read.
pub(super) const READ_BYTES_SIZES: [usize; 6] =
    [16 << 20, 4 << 20, 1 << 20, 256 << 10, 64 << 10, 4 << 10];

/// Entries of one page of a listing: one less than the store gives, which tells whether there are
/// more.
pub(super) const LIST_PAGE_MAX: usize = LIST_MAX - 1;

/// How long a network thread polls for the disk that it drives: most disks have done a small write
/// or a read by then. To sleep and be woken takes as long as half a read: with 32 under way a
/// fourth more are done a second by a thread that polls.
pub(super) const DISK_SPIN: Nanos = Nanos::from_micros(300);

/// Cores that one busy client on the same machine, the network thread and the store's thread take.
pub(super) const BUSY_CORES: usize = 3;

/// How often a thread that stops looks whether anybody still asks the stores that it drives.
pub(super) const STOP_LOOK: Duration = Duration::from_millis(20);
