//! Interference control: when reads of higher classes become slow, lower ones may write less
//! (`docs/qos.md` section 7).
//!
//! Classes are levels here, 0 the highest. A level's writes need tokens, a byte each, as soon as
//! reads of higher levels are slower than their target. Its rate moves by how far reads are from
//! the target, down as up, so that it ends where they meet it and not where chance has driven it. A
//! level that writes half as much while reads stay as slow is not what slows them, and gets all
//! back.

use alloc::boxed::Box;

use towpath_base::{Nanos, Time};

use crate::limits::{
    CUT_AT_ONCE, CUT_MAX, GIVE_DIVISOR, GIVE_FAST_DIVISOR, GIVE_FAST_FROM, HELPED_DIVISOR,
    JUDGED_WINDOWS, LEAST_BYTES_MIN, MOVE_DIVISOR, P99_READS, P99_STEEPNESS, READS_MIN, UNBOUND_AT,
    VAIN_WINDOWS, VAIN_WINDOWS_MAX, WINDOW,
};

/// How many levels there are.
pub const LEVELS: usize = 3;

/// In millionths.
const ONE: i64 = 1_000_000;

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
    /// How often a level was bound in vain: reads stayed as slow.
    pub vain: u64,
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
    /// Those beyond the 99th percentile that is all right.
    over: u64,
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
        Self { count: 0, total: 0, over: 0, buckets: Box::new([0; BUCKETS]) }
    }

    fn clear(&mut self) {
        if self.count > 0 {
            (self.count, self.total, self.over) = (0, 0, 0);
            self.buckets.fill(0);
        }
    }
}

/// Reads above a level: count, nanoseconds together, and how many were beyond the 99th percentile.
#[derive(Clone, Copy, Debug, Default)]
struct Sums([u64; 3]);

/// How far reads are from the target, in millionths of it: the mean, and the 99th percentile. None
/// where there is no target, or there were too few reads to tell.
type Slow = [Option<i64>; 2];

/// A level is bound, to see whether that helps.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// What it wrote in a second, and how slow reads were then.
    wrote: u64,
    slow: Slow,
    /// What other levels wrote then.
    others: u64,
}

/// How many tokens a level gets.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Tokens a second for the mean's sake and for that of the 99th percentile; none: as many as it
    /// wants.
    rates: [Option<u64>; 2],
    /// Tokens that it has; less than none after a write that was longer.
    tokens: i64,
    /// Bytes written in this window.
    used: u64,
    /// Bytes a second that it writes, over some windows.
    recent: u64,
    /// The most bytes a second that it has written in a window.
    most: u64,
    /// Reads above it, over [`JUDGED_WINDOWS`].
    reads: Sums,
    trial: Option<Trial>,
    /// The window before which it is not bound, since that was in vain.
    free_until: u64,
    /// Windows for which it is not bound the next time.
    vain_windows: u64,
}

impl Flow {
    fn rate(&self) -> Option<u64> {
        self.rates.into_iter().flatten().min()
    }

    /// Bound in vain: it may write as it likes for a while.
    fn release(&mut self, window: u64) {
        let windows = self.vain_windows.clamp(VAIN_WINDOWS, VAIN_WINDOWS_MAX);
        (self.rates, self.trial) = ([None; 2], None);
        (self.free_until, self.vain_windows) = (window + windows, 2 * windows);
    }
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
        self.flows.get(level)?.rate()
    }

    /// A read of a level took so long.
    pub fn read(&mut self, level: usize, took: Nanos) {
        let Some(reads) = self.reads.get_mut(level) else { return };
        reads.count += 1;
        reads.total = reads.total.saturating_add(took.0);
        reads.over += u64::from(took > self.config.p99);
        let of = &mut reads.buckets[bucket(took.0)];
        *of = of.saturating_add(1);
    }

    /// Whether a level may begin a write; [`wrote`](Self::wrote) follows when it does.
    pub fn may_write(&mut self, level: usize) -> bool {
        let Some(flow) = self.flows.get(level) else { return true };
        let may = flow.rate().is_none() || flow.tokens > 0;
        self.counts.waits += u64::from(!may);
        may
    }

    /// A level writes so many bytes.
    pub fn wrote(&mut self, level: usize, bytes: u64) {
        let Some(flow) = self.flows.get_mut(level) else { return };
        flow.used = flow.used.saturating_add(bytes);
        if flow.rate().is_some() {
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
            let Some(rate) = flow.rate() else { continue };
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
            let is_first = flow.recent == 0;
            flow.recent = if is_first { used } else { flow.recent - flow.recent / 8 + used / 8 };
            // It is forgotten slowly: a level may have had little to write for a while.
            flow.most = used.max(flow.most - flow.most / 1024);
        }
        if let Some((mean, p99)) = self.latency(LEVELS - 1) {
            for (seen, now) in self.seen.iter_mut().zip([Some(mean), p99]) {
                let Some(now) = now else { continue };
                *seen = if *seen == 0 { now } else { *seen - *seen / 8 + now / 8 };
            }
        }
        let slow = core::array::from_fn::<_, LEVELS, _>(|level| self.judge(level));
        if slow.iter().flatten().flatten().any(|slow| *slow > 0) {
            self.counts.slow_windows += 1;
        }
        // The lowest level gives first, and gets back last.
        let mut above_has_all = true;
        let mut below_has_some = false;
        let levels = 1..LEVELS;
        for level in levels.clone().rev() {
            let is_free = self.counts.windows < self.flows[level].free_until;
            if !below_has_some && !is_free {
                self.look_whether_it_helps(level, slow[level]);
                self.cut(level, slow[level]);
            }
            let least = self.least(level);
            let flow = &self.flows[level];
            let is_free = self.counts.windows < flow.free_until;
            let has_some = flow.rate().is_none_or(|rate| rate > least);
            below_has_some |= flow.recent > 0 && !is_free && has_some;
        }
        for level in levels {
            if above_has_all {
                self.give(level, slow[level]);
            }
            above_has_all &= self.flows[level].rate().is_none();
        }
        self.reads.iter_mut().for_each(Reads::clear);
    }

    /// Adds a window's reads above a level to those before, and says how slow they are.
    fn judge(&mut self, level: usize) -> Slow {
        let sums = &mut self.flows[level].reads.0;
        for sum in sums.iter_mut() {
            *sum -= sum.div_ceil(JUDGED_WINDOWS);
        }
        for reads in &self.reads[..level] {
            for (sum, more) in sums.iter_mut().zip([reads.count, reads.total, reads.over]) {
                *sum = sum.saturating_add(more);
            }
        }
        let [count, total, over] = *sums;
        let is_new = self.reads[..level].iter().any(|reads| reads.count > 0);
        if count < READS_MIN || !is_new {
            return [None; 2];
        }
        let off = |of: u64| i64::try_from(of).unwrap_or(i64::MAX / 2) - ONE;
        let mean = off(part(total / count, ONE as u64, self.config.mean.0));
        let p99 = off(part(over, 100 * ONE as u64, count)) / P99_STEEPNESS;
        let [has_mean, has_p99] = [self.config.mean, self.config.p99].map(|of| of > Nanos::ZERO);
        [has_mean.then_some(mean), has_p99.then_some(p99)]
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

    /// What a level keeps however slow reads are.
    fn least(&self, level: usize) -> u64 {
        part(self.flows[level].most, self.config.least_share.into(), 1000).max(LEAST_BYTES_MIN)
    }

    /// What levels but this one write in a second.
    fn others(&self, level: usize) -> u64 {
        let others = self.flows.iter().enumerate().filter(|(other, _)| *other != level);
        others.fold(0, |sum, (_, flow)| sum.saturating_add(flow.recent))
    }

    /// Takes tokens away, by how slow reads are.
    fn cut(&mut self, level: usize, slow: Slow) {
        let (least, others) = (self.least(level), self.others(level));
        if self.counts.windows < self.flows[level].free_until {
            return;
        }
        // What no chance makes of one window is not waited for.
        let mean = self.latency(level).map_or(0, |(mean, _)| thousandths(mean, self.config.mean));
        let flow = &mut self.flows[level];
        if flow.recent == 0 || slow.iter().flatten().all(|slow| *slow <= 0) {
            return;
        }
        if flow.rate().is_none() {
            flow.trial = Some(Trial { wrote: flow.recent, slow, others });
        }
        let at_once = mean >= CUT_AT_ONCE;
        let mut was_cut = false;
        for (signal, (rate, slow)) in flow.rates.iter_mut().zip(slow).enumerate() {
            let Some(slow) = slow.filter(|slow| *slow > 0) else { continue };
            // A level that has not been bound has a quarter more than it writes: chance takes none
            // of what it uses.
            let had = rate.unwrap_or(part(flow.recent, UNBOUND_AT, 1_000));
            let to = match signal {
                0 if at_once => {
                    let cut = ((mean - 1_000) / 2).min(CUT_MAX);
                    part(had.min(flow.recent.max(least)), 1_000 - cut, 1_000)
                }
                _ => moved(had, -slow.min(ONE) / MOVE_DIVISOR),
            };
            was_cut |= to > least || rate.is_none_or(|rate| rate > least);
            *rate = Some(to.max(least));
        }
        if at_once {
            // What was before says nothing of what is now.
            flow.reads = Sums::default();
        }
        flow.tokens = flow.tokens.min(0);
        self.counts.cuts += u64::from(was_cut);
    }

    /// A level that writes half of what it did: reads are less slow, or it is released.
    fn look_whether_it_helps(&mut self, level: usize, slow: Slow) {
        let (least, others) = (self.least(level), self.others(level));
        let flow = &mut self.flows[level];
        let (Some(trial), Some(rate)) = (flow.trial, flow.rate()) else { return };
        let again = Trial { wrote: rate, slow, others };
        if others > trial.others.saturating_add(trial.others / 4).saturating_add(LEAST_BYTES_MIN) {
            // They may be what makes reads slower than before.
            flow.trial = Some(again);
            return;
        }
        if rate > (trial.wrote / 2).max(least) || flow.reads.0[0] < READS_MIN {
            return;
        }
        // By the mean, where that is what was slow: chance moves it least.
        let mut signals = trial.slow.into_iter().zip(slow);
        let helps = signals.find(|(before, _)| before.is_some_and(|before| before > 0)).is_none_or(
            |(before, now)| {
                let before = before.unwrap_or(0);
                now.is_none_or(|now| now <= before - before / HELPED_DIVISOR)
            },
        );
        // Beside a higher level that writes much it is not released: that one would give way to it.
        let above: u64 = self.flows[1..level].iter().map(|flow| flow.recent).sum();
        let flow = &mut self.flows[level];
        if helps || trial.wrote <= least || above > trial.wrote / 2 {
            (flow.trial, flow.vain_windows) = (Some(again), 0);
        } else {
            flow.release(self.counts.windows);
            self.counts.vain += 1;
        }
    }

    /// Gives tokens back, by how much reads are faster than they are to be.
    fn give(&mut self, level: usize, slow: Slow) {
        let least = self.least(level);
        let flow = &mut self.flows[level];
        let unbound = part(flow.most, UNBOUND_AT, 1_000);
        let mut was_given = false;
        for (rate, slow) in flow.rates.iter_mut().zip(slow) {
            let Some(had) = *rate else { continue };
            let to = match slow {
                Some(slow) if slow >= 0 => continue,
                Some(slow) => {
                    let fast = (-slow - GIVE_FAST_FROM).max(0) / GIVE_FAST_DIVISOR;
                    moved(had, -slow / MOVE_DIVISOR + fast).max(had + least / 64)
                }
                None => had.saturating_add((flow.most / GIVE_DIVISOR).max(least / 8).max(1)),
            };
            *rate = Some(to).filter(|to| *to < unbound);
            was_given = true;
        }
        if flow.rate().is_none() {
            flow.trial = None;
        }
        self.counts.gives += u64::from(was_given);
    }
}

/// A rate, and so many millionths of it more.
fn moved(rate: u64, millionths: i64) -> u64 {
    part(rate, u64::try_from(ONE.saturating_add(millionths)).unwrap_or(0), ONE as u64)
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
