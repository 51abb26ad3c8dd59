//! Interference control: when reads of higher classes become slow, lower ones may write less
//! (`docs/qos.md` section 7).
//!
//! Classes are levels here, 0 the highest. A level's writes need tokens, a byte each, as soon as
//! reads of higher levels have been slower than their target; they get fewer while that goes on,
//! and more again, little by little, when it is over.

use alloc::boxed::Box;

use towpath_base::{Nanos, Time};

use crate::limits::{
    CUT_MAX, CUT_MIN, CUT_TWICE, GIVE_DIVISOR, HOLD_FROM, LEAST_BYTES_MIN, NEAR_DIVISOR, P99_READS,
    READS_MIN, UNBOUND_AT, WINDOW,
};

/// How many levels there are.
pub const LEVELS: usize = 3;

/// What is kept to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterferenceConfig {
    /// The mean latency of reads that is all right; zero: it does not matter.
    pub mean: Nanos,
    /// The 99th percentile that is all right; zero: it does not matter.
    pub p99: Nanos,
    /// How long latencies are gathered before anything is decided.
    pub window: Nanos,
    /// A level keeps this part of the most that it has written, in thousandths.
    pub least_share: u32,
}

impl InterferenceConfig {
    /// Windows of 100 ms, and a least share of 5 %.
    #[must_use]
    pub fn new(mean: Nanos, p99: Nanos) -> Self {
        Self { mean, p99, window: WINDOW, least_share: 50 }
    }

    fn is_off(&self) -> bool {
        self.mean == Nanos::ZERO && self.p99 == Nanos::ZERO
    }
}

/// What it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterferenceCounts {
    /// Windows that ended.
    pub windows: u64,
    /// Those of them in which reads were slower than their target.
    pub slow_windows: u64,
    /// How often tokens were taken away from a level.
    pub cuts: u64,
    /// How often some were given back.
    pub gives: u64,
    /// Writes that found no tokens; one that tries again counts again.
    pub waits: u64,
    /// Tokens that each level took, a byte each; while it is not bound it takes none.
    pub taken: [u64; LEVELS],
}

/// Latencies of one level's reads in a window.
#[derive(Clone, Debug)]
struct Reads {
    count: u64,
    total: u64,
    /// By their logarithm, in sixteenths.
    buckets: Box<[u32; BUCKETS]>,
}

const BUCKETS: usize = 64 * 16;

fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(16);
    let log = nanos.ilog2();
    (log as usize) * 16 + ((nanos >> (log - 4)) & 15) as usize
}

/// The longest latency of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let (log, part) = (bucket / 16, (bucket % 16) as u64);
    ((16 + part + 1) << (log.max(4) - 4)).saturating_sub(1)
}

impl Reads {
    fn new() -> Self {
        Self { count: 0, total: 0, buckets: Box::new([0; BUCKETS]) }
    }

    fn clear(&mut self) {
        if self.count > 0 {
            (self.count, self.total) = (0, 0);
            self.buckets.fill(0);
        }
    }
}

/// How many tokens a level gets.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Tokens a second; none: as many as it wants.
    rate: Option<u64>,
    /// Tokens that it has; less than none after a write that was longer.
    tokens: i64,
    /// Bytes written in this window.
    used: u64,
    /// The most bytes a second that it has written in a window.
    most: u64,
    /// The rate at which reads were slow last.
    slow_at: u64,
    /// The last window was slow for those above.
    was_slow: bool,
}

/// Decides how much the levels may write. A pure function of what it is told: it reads no clock.
#[derive(Clone, Debug)]
pub struct Interference {
    config: InterferenceConfig,
    reads: [Reads; LEVELS],
    flows: [Flow; LEVELS],
    /// Until when tokens were given.
    filled_to: Time,
    began: Time,
    /// Mean and 99th percentile of the reads above the lowest level, smoothed.
    seen: [u64; 2],
    counts: InterferenceCounts,
}

impl Interference {
    /// A controller that begins at `now`, with no level bound.
    #[must_use]
    pub fn new(config: InterferenceConfig, now: Time) -> Self {
        Self {
            config,
            reads: core::array::from_fn(|_| Reads::new()),
            flows: [Flow::default(); LEVELS],
            filled_to: now,
            began: now,
            seen: [0; 2],
            counts: InterferenceCounts::default(),
        }
    }

    /// What it has done.
    #[must_use]
    pub fn counts(&self) -> InterferenceCounts {
        self.counts
    }

    /// What reads above the lowest level took in the last windows, some eight of them: mean and
    /// 99th percentile.
    #[must_use]
    pub fn seen(&self) -> [Nanos; 2] {
        self.seen.map(Nanos)
    }

    /// Tokens that a level gets in a second; none while it is not bound.
    #[must_use]
    pub fn rate(&self, level: usize) -> Option<u64> {
        self.flows.get(level)?.rate
    }

    /// A read of a level took so long.
    pub fn read(&mut self, level: usize, took: Nanos) {
        let Some(reads) = self.reads.get_mut(level) else { return };
        reads.count += 1;
        reads.total = reads.total.saturating_add(took.0);
        let of = &mut reads.buckets[bucket(took.0)];
        *of = of.saturating_add(1);
    }

    /// Whether a level may begin a write; [`wrote`](Self::wrote) follows when it does.
    pub fn may_write(&mut self, level: usize) -> bool {
        let Some(flow) = self.flows.get(level) else { return true };
        let may = flow.rate.is_none() || flow.tokens > 0;
        self.counts.waits += u64::from(!may);
        may
    }

    /// A level writes so many bytes.
    pub fn wrote(&mut self, level: usize, bytes: u64) {
        let Some(flow) = self.flows.get_mut(level) else { return };
        flow.used = flow.used.saturating_add(bytes);
        if flow.rate.is_some() {
            flow.tokens = flow.tokens.saturating_sub_unsigned(bytes);
            let taken = &mut self.counts.taken[level];
            *taken = taken.saturating_add(bytes);
        }
    }

    /// Gives tokens for the time until `now`, and decides anew where a window is over.
    pub fn turn(&mut self, now: Time) {
        if self.config.is_off() {
            return;
        }
        let passed = now.since(self.filled_to).0.min(self.config.window.0);
        self.filled_to = self.filled_to.max(now);
        for flow in &mut self.flows {
            let Some(rate) = flow.rate else { continue };
            // What is not used for a tenth of a window is lost: it would come as a burst.
            let most = part(rate, self.config.window.0, 10_000_000_000).max(1);
            let given = part(rate, passed, 1_000_000_000);
            let tokens = flow.tokens.saturating_add_unsigned(given);
            flow.tokens = tokens.min(i64::try_from(most).unwrap_or(i64::MAX));
        }
        let window = now.since(self.began);
        if window >= self.config.window {
            self.began = now;
            self.end_window(window);
        }
    }

    fn end_window(&mut self, window: Nanos) {
        self.counts.windows += 1;
        for flow in &mut self.flows {
            let used = part(core::mem::take(&mut flow.used), 1_000_000_000, window.0.max(1));
            // It is forgotten slowly: a level may have had little to write for a while.
            flow.most = used.max(flow.most - flow.most / 1024);
        }
        if let Some((mean, p99)) = self.latency(LEVELS - 1) {
            for (seen, now) in self.seen.iter_mut().zip([Some(mean), p99]) {
                let Some(now) = now else { continue };
                *seen = if *seen == 0 { now } else { *seen - *seen / 8 + now / 8 };
            }
        }
        let slow = core::array::from_fn::<_, LEVELS, _>(|level| self.slowness(level));
        if slow.iter().flatten().any(|slow| *slow > 1000) {
            self.counts.slow_windows += 1;
        }
        // The lowest level gives first, and gets back last.
        let mut above_has_all = true;
        let mut below_has_some = false;
        let levels = 1..LEVELS;
        for level in levels.clone().rev() {
            let is_slow = slow[level].is_some_and(|slow| slow > 1000);
            if is_slow && !below_has_some {
                self.cut(level, slow[level].unwrap_or(1000));
            }
            let flow = &mut self.flows[level];
            flow.was_slow = is_slow;
            let least = self.least(level);
            let flow = &self.flows[level];
            below_has_some |= flow.most > 0 && flow.rate.is_none_or(|rate| rate > least);
        }
        for level in levels {
            if above_has_all && slow[level].is_none_or(|slow| slow < HOLD_FROM) {
                self.give(level);
            }
            above_has_all &= self.flows[level].rate.is_none();
        }
        self.reads.iter_mut().for_each(Reads::clear);
    }

    /// Mean and 99th percentile of the reads above a level in nanoseconds; none where there were
    /// too few to tell.
    fn latency(&self, level: usize) -> Option<(u64, Option<u64>)> {
        let above = &self.reads[..level];
        let count: u64 = above.iter().map(|reads| reads.count).sum();
        if count < READS_MIN {
            return None;
        }
        let total = above.iter().fold(0_u64, |sum, reads| sum.saturating_add(reads.total));
        let p99 = (count >= P99_READS).then(|| {
            let mut left = count.div_ceil(100);
            let found = (0..BUCKETS).rev().find(|at| {
                let here: u64 = above.iter().map(|reads| u64::from(reads.buckets[*at])).sum();
                let found = here >= left;
                left = left.saturating_sub(here);
                found
            });
            bucket_end(found.unwrap_or(0))
        });
        Some((total / count, p99))
    }

    /// How slow the reads above a level were, in thousandths of what is all right; none where there
    /// were too few to tell.
    fn slowness(&self, level: usize) -> Option<u64> {
        let (mean, p99) = self.latency(level)?;
        let p99 = p99.map_or(0, |p99| thousandths(p99, self.config.p99));
        Some(thousandths(mean, self.config.mean).max(p99))
    }

    /// What a level keeps however slow reads are.
    fn least(&self, level: usize) -> u64 {
        part(self.flows[level].most, self.config.least_share.into(), 1000).max(LEAST_BYTES_MIN)
    }

    fn cut(&mut self, level: usize, slow: u64) {
        let least = self.least(level);
        let flow = &mut self.flows[level];
        // One window may be slow by chance, unless it is very slow.
        if !flow.was_slow && slow < CUT_TWICE {
            return;
        }
        let had = flow.rate.unwrap_or(flow.most);
        if had <= least {
            return;
        }
        let cut = ((slow - 1000) / 2).clamp(CUT_MIN, CUT_MAX);
        flow.slow_at = had;
        flow.rate = Some(part(had, 1000 - cut, 1000).max(least));
        flow.tokens = flow.tokens.min(0);
        self.counts.cuts += 1;
    }

    fn give(&mut self, level: usize) {
        let least = self.least(level);
        let flow = &mut self.flows[level];
        let Some(rate) = flow.rate else { return };
        let step = (flow.most / GIVE_DIVISOR).max(least / 8).max(1);
        // Near the rate at which reads were slow it goes on slowly.
        let near = part(flow.slow_at, 9, 10)..part(flow.slow_at, 11, 10);
        let is_near = near.contains(&rate.saturating_add(step));
        let step = if is_near { (step / NEAR_DIVISOR).max(1) } else { step };
        let rate = rate.saturating_add(step);
        let unbound = part(flow.most, UNBOUND_AT, 1000);
        flow.rate = (rate < unbound).then_some(rate);
        self.counts.gives += 1;
    }
}

/// `of` times `times`, divided.
fn part(of: u64, times: u64, divisor: u64) -> u64 {
    let part = u128::from(of) * u128::from(times) / u128::from(divisor.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// A latency in thousandths of its target; of none it is always all right.
fn thousandths(nanos: u64, target: Nanos) -> u64 {
    if target == Nanos::ZERO { 0 } else { part(nanos, 1000, target.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_where_the_next_begins_and_is_a_sixteenth_wide() {
        for nanos in [16, 17, 100, 999, 4096, 123_456, 9_876_543_210] {
            let end = bucket_end(bucket(nanos));
            assert!(end >= nanos && end <= nanos + nanos / 16 + 1, "{nanos}: {end}");
            assert_eq!(bucket(end + 1), bucket(end) + 1);
        }
    }

    #[test]
    fn without_targets_nothing_is_ever_bound() {
        let mut control =
            Interference::new(InterferenceConfig::new(Nanos(0), Nanos(0)), Time::ZERO);
        for ms in 1..2000 {
            control.read(0, Nanos::from_secs(1));
            control.wrote(2, 1 << 20);
            control.turn(Time::ZERO + Nanos::from_millis(ms));
        }
        assert_eq!((control.rate(2), control.counts()), (None, InterferenceCounts::default()));
    }
}
