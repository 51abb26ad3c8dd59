//! One question to a path: does it carry packets of a size?

use crate::limits::{MTU_PAIRS_OPEN, PROBE_INTERVAL_MAX, PROBE_SPACING_MIN};
use alloc::collections::VecDeque;
use towpath_base::{Nanos, Time};
use towpath_verbs::Mtu;

/// A short probe and the long one behind it. The other way round they could leave as one run of
/// packets, which something on the way may drop as one.
#[derive(Clone, Copy, Debug)]
struct Pair {
    short: u64,
    long: u64,
    /// By then both are answered, if they are.
    judge_at: Time,
}

/// Which probe of a pair is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    Short,
    Long { short: u64 },
}

/// Does the path carry packets of a size?
#[derive(Debug)]
pub(super) struct Question {
    pub(super) size: Mtu,
    /// So many pairs say no.
    pub(super) needed: u32,
    /// Pairs in a row of which only the short probe was answered.
    pub(super) swallowed: u32,
    /// Pairs in a row of which that was not answered either: they tell nothing.
    silent: u32,
    /// Pairs that were sent and are not judged, in the order in which they were sent.
    open: VecDeque<Pair>,
    pub(super) pair_at: Time,
    pub(super) next: Next,
}

impl Question {
    pub(super) fn new(size: Mtu, needed: u32, now: Time) -> Self {
        Self {
            size,
            needed,
            swallowed: 0,
            silent: 0,
            open: VecDeque::new(),
            pair_at: now,
            next: Next::Nothing,
        }
    }

    pub(super) fn wants_pair(&self) -> bool {
        self.open.len() < MTU_PAIRS_OPEN && self.swallowed + (self.open.len() as u32) < self.needed
    }

    pub(super) fn due(&self) -> Time {
        let judge_at = self.open.front().map_or(Time::NEVER, |pair| pair.judge_at);
        if self.wants_pair() { judge_at.min(self.pair_at) } else { judge_at }
    }

    /// The two probes of a pair went out, which are answered by `judge_at`, if they are.
    pub(super) fn on_pair_sent(&mut self, (short, long): (u64, u64), judge_at: Time) {
        self.open.push_back(Pair { short, long, judge_at });
    }

    /// Judges pairs that have had their time.
    pub(super) fn judge(&mut self, now: Time, is_acked: impl Fn(u64) -> bool) {
        while let Some(pair) = self.open.pop_front_if(|pair| pair.judge_at <= now) {
            if is_acked(pair.short) && !is_acked(pair.long) {
                (self.swallowed, self.silent) = (self.swallowed + 1, 0);
            } else {
                self.silent += 1;
            }
        }
    }

    /// The next pair comes after this. A path that is silent altogether is asked less often.
    pub(super) fn spacing(&self, answer: Nanos) -> Nanos {
        let least = Nanos(answer.0 / MTU_PAIRS_OPEN as u64).max(PROBE_SPACING_MIN);
        least.saturating_mul(1 << self.silent.min(7)).min(PROBE_INTERVAL_MAX.max(answer))
    }
}
