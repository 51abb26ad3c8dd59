//! Bounds of reservations, with their reasons.

use towpath_transport::LANE_OPS_POSTED;

/// Tenants of a server: each has its engine looked at once a tick, a few tens of nanoseconds.
pub(super) const TENANTS_MAX: usize = 256;

/// Bytes of a tenant's name: it labels rows and counters.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// Longest file of tenants: a hundred times what as many as there may be take.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Requests of a tenant that has no engine of its own which are under way before it counts as one
/// that waits for the server: what keeps a disk busy, and more than one careful client has.
pub(super) const DEPTH: u32 = 32;

/// Tokens of what a tenant owes that are paid in its turn, at most: as for one request of 256 KiB.
/// Then others have their turns.
pub(super) const PAID_AT_ONCE: u64 = 64;

/// I/Os of a client that may be under way when a period ends, and are counted in the next: as many
/// as a lane has posted. A [`Tenancy`](towpath_fastpath::qos::Tenancy) has no more.
pub(super) const UNDER_WAY_MAX: u64 = LANE_OPS_POSTED as u64;

/// Tokens that one I/O of a client lacks at most: those of two READs.
pub(super) const IO_TOKENS_MAX: u64 = 64;

/// Additions and reports of an engine in a tick, at most, that are not counted as I/Os: one report
/// and one addition, and what was late.
pub(super) const WORDS_PER_TICK: u64 = 8;

/// Bytes that a READ of one slice has at most: the slice, and what lies beside it to check it.
pub(super) const SLOT_BYTES_MAX: u64 = 4096 + 64;

/// One in so many READs may be asked for again without a token: more than RC repeats on a network
/// that it is of use on.
pub(super) const AGAIN_SHARE: u64 = 8;

/// And so many a look whatever there were: as many as a lane has under way.
pub(super) const AGAIN_MIN: u64 = 16;

/// What waits for a worker at most, but for cut-offs: of each tenant's client a start and some
/// notices.
pub(super) const MAIL_MAX: usize = 4 * TENANTS_MAX;

/// Periods of which the end is kept, to be shown.
pub(super) const ENDS_KEPT: usize = 32;

/// Periods in a row in which a tenant does not use what it has reserved before it is told so.
pub const UNUSED_PERIODS_TOLD: u32 = 10;
