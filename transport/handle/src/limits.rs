//! Bounds of what handles have under way.

use std::time::Duration;

/// Commands, or channels, that are looked at in one turn.
pub(crate) const BATCH: usize = 128;

/// Commands that wait for the worker of a handle when one more that nobody waits for is refused.
pub(crate) const COMMANDS_MAX: usize = 1024;

/// Messages of one channel that wait for the worker of a handle: a few turns of it. Who has posted
/// more waits.
pub(crate) const EGRESS_MAX: usize = 256;

/// Messages of one channel that the worker has under way, so that who floods one channel leaves
/// the slots of the link to the others: enough for 100 Gb/s of 4 KiB messages over 20 us.
pub(crate) const EGRESS_UNDER_WAY_MAX: usize = 64;

/// Messages taken from one channel before the next one has its turn.
pub(crate) const EGRESS_QUANTUM: usize = 16;

/// Messages that wait for their turn are ended no later than so long after their deadline.
pub(crate) const EGRESS_EXPIRY_NS: u64 = 1_000_000;

/// The longest that the worker of a handle blocks on a device that cannot be woken.
pub(crate) const WORKER_BLOCK_NS: u64 = 1_000_000;

/// The longest that it blocks otherwise.
pub(crate) const WORKER_SLEEP_NS: u64 = 1_000_000_000;

/// Links and channels opened by peers that wait to be accepted through a handle.
pub(crate) const BACKLOG_MAX: usize = 1024;

/// Who led an endpoint and was back so soon the last time will be this time: acks wait for what it
/// sends, and others for its next look. It is a few times what it takes to wake a thread.
pub(crate) const BRIEF_NS: u64 = 200_000;

/// How often the keeper of an endpoint looks whether somebody still leads, while threads come and
/// go.
pub(crate) const KEEPER_LOOK: Duration = Duration::from_millis(1);
