//! Constants of the protocol, each with its reason.

use towpath_base::Nanos;

/// A QoS period (the paper's T).
pub const PERIOD: Nanos = Nanos::from_secs(1);

/// How often engines manage their tokens and report, and the monitor looks (the paper's delta and
/// check interval).
pub const TICK: Nanos = Nanos::from_millis(1);

/// Tokens that an engine takes from the pool at a time, at most (the paper's B).
pub const BATCH_MAX: u32 = 1_000;

/// For each so many clients a batch is for one tick more: tokens that a thousand of them hold at
/// the end of a period are 0.4 % of it then.
pub const BATCH_CLIENTS: u64 = 256;

/// How often an engine asks an empty pool for tokens between two reports, once a tick at most.
pub const ASKS_PER_REPORT: u64 = 4;

/// I/Os that a client has under way at most, unless it says otherwise: what the paper's have.
pub const DEPTH_DEFAULT: u32 = 64;

/// Ticks without a report after which a client's reservation is not kept for it any more: two may
/// be late by chance.
pub const REPORTS_MISSED_MAX: u32 = 3;

/// While somebody is behind, others may be ahead of an even use of their reservation by so many
/// ticks: reports and the monitor's look are a tick old each, and a server that is not to idle
/// meanwhile needs as much queued (with 2 the model loses 0.4 % more of a server's time).
pub const AHEAD_TICKS: u64 = 4;

/// In careful periods reservations are used up so many ticks before the end: what a server has
/// queued then is done within the period.
pub const GUARD_TICKS: u64 = 8;

/// A client is behind when its reservation lags an even use by so many ticks: reports are a tick
/// old, and service comes in bursts.
pub const BEHIND_TICKS: u64 = 3;

/// Periods at most for which engines keep to an even use after one in which somebody was behind:
/// after these one that begins without is tried, which costs a moment in which whoever falls behind
/// is not served first.
pub const CAREFUL_PERIODS: u32 = 10;

/// Careful periods in a row in which a client may miss its reservation before others are not held
/// up for it any more: what it lacks is not what they take. Fewer would take a server's bad second
/// for it.
pub const MISSED_IN_VAIN_MAX: u32 = 3;

/// Of such a client so much more is kept than it did in the last period: one in so many.
pub const LIKELY_DIVISOR: u32 = 4;

/// Periods of which Algorithm 1 keeps what was completed (the paper's M).
pub const HISTORY_MAX: usize = 8;

/// Ticks at the ends of a careful period in which its tokens may not be used: engines have used up
/// their reservations before its end, and the pool has what a look later shows to be left.
pub const CAREFUL_END_TICKS: u64 = 2;

/// A period that completed all but one in so many tokens of the estimate used it up: reports are a
/// tick old, which is one in a thousand.
pub const USED_UP_DIVISOR: u64 = 200;

/// How often the increment of an estimate that is used up again and again is doubled: to eight per
/// cent of what was profiled, so that a seventh that comes back is found in four periods.
pub const RISES_MAX: u32 = 3;

/// A period tells of the capacity when in so many of a hundred looks enough clients waited for the
/// server to use it up.
pub const SATURATED_PERCENT: usize = 90;

/// Clients of one monitor: each has a word that is read once a tick.
pub const CLIENTS_MAX: usize = 4_096;

/// Latencies of reads are gathered for so long before interference control decides: at a few
/// thousand reads a second enough to tell a percentile, and some flushes of a disk.
pub const WINDOW: Nanos = Nanos::from_millis(100);

/// Reads below which nothing is told from them.
pub const READS_MIN: u64 = 32;

/// Reads in a window below which their 99th percentile is one or two of them, and not shown.
pub const P99_READS: u64 = 200;

/// Latencies are judged over some so many windows: one has three reads in three hundred beyond its
/// 99th percentile, and now and then twice as many by chance.
pub const JUDGED_WINDOWS: u64 = 16;

/// A rate moves by one part in so many of how far reads are from their target, down as up: what
/// chance takes away in one window chance gives back in another.
pub const MOVE_DIVISOR: i64 = 8;

/// Of what reads are faster than this, in millionths below the target, one part in
/// [`GIVE_FAST_DIVISOR`] is given back besides.
pub const GIVE_FAST_FROM: i64 = 50_000;

/// See [`GIVE_FAST_FROM`].
pub const GIVE_FAST_DIVISOR: i64 = 4;

/// The part of reads beyond the 99th percentile moves some four times as far as the percentile
/// does.
pub const P99_STEEPNESS: i64 = 4;

/// A mean, in thousandths of its target, that no chance makes of a window: some of the rate is
/// taken away at once.
pub const CUT_AT_ONCE: u64 = 1500;

/// Most that is taken away at once, in thousandths.
pub const CUT_MAX: u64 = 500;

/// What is given back in a window without reads is one part in so many of the most that was ever
/// used: all of it takes some three seconds.
pub const GIVE_DIVISOR: u64 = 32;

/// A level that writes half of what it did, while reads are as slow as before but for one part in
/// so many, is not what makes them slow.
pub const HELPED_DIVISOR: i64 = 4;

/// Windows for which a level is not bound any more that was bound in vain; twice as many each time
/// that it is again.
pub const VAIN_WINDOWS: u64 = 100;

/// And no more than so many: five minutes.
pub const VAIN_WINDOWS_MAX: u64 = 3_200;

/// A level that gets this much, in thousandths of the most that it ever wrote, is not bound.
pub const UNBOUND_AT: u64 = 1250;

/// Bytes a second that a level keeps at least, whatever its share: a write of the longest kind, in
/// some seconds.
pub const LEAST_BYTES_MIN: u64 = 1 << 20;
