//! Receive slots that nobody needs now, and the memory of those that have not been needed for a
//! while.

use crate::limits::{SHRINK_AT_A_TIME, SHRINK_KEEPS, SHRINK_PAUSE};
use towpath_base::{Nanos, Time};

/// Free slots, as a stack: the deeper one lies, the longer it has not been used. What has lain
/// below the lowest level of the stack for a whole span of quiet is given back to the system, but
/// for a few slots, so that a load that comes and goes does not pay for new pages each time.
#[derive(Debug)]
pub(crate) struct Spare {
    slots: Vec<u32>,
    /// The lowest level of the stack since the span began.
    low: usize,
    /// So many slots at the bottom have no memory behind them.
    returned: usize,
    quiet: Nanos,
    /// When the span ends; never while none is under way.
    due: Time,
}

impl Spare {
    /// None yet; memory that is not used for `quiet` goes back.
    pub(crate) fn new(quiet: Nanos) -> Self {
        Self { slots: Vec::new(), low: 0, returned: 0, quiet, due: Time::NEVER }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Slots whose memory the system has.
    pub(crate) fn returned(&self) -> usize {
        self.returned
    }

    pub(crate) fn push(&mut self, slot: u32) {
        self.slots.push(slot);
    }

    /// The slot that was used last.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let slot = self.slots.pop()?;
        self.low = self.low.min(self.slots.len());
        self.returned = self.returned.min(self.slots.len());
        Some(slot)
    }

    /// Whether memory may be given back after a span of quiet.
    fn has_surplus(&self) -> bool {
        self.slots.len() > self.returned + SHRINK_KEEPS
    }

    /// When [`shrink`](Self::shrink) has something to do; never while nothing can be given back.
    pub(crate) fn due(&self, now: Time) -> Time {
        if self.due == Time::NEVER && self.has_surplus() { now } else { self.due }
    }

    /// The slots whose memory is to be given back now: a few at a time.
    pub(crate) fn shrink(&mut self, now: Time) -> &[u32] {
        if now < self.due(now) {
            return &[];
        }
        let from = self.returned;
        if self.due == Time::NEVER {
            self.begin_span(now);
            return &[];
        }
        let unused = self.low.saturating_sub(SHRINK_KEEPS);
        let upto = unused.min(from + SHRINK_AT_A_TIME);
        if upto <= from {
            self.due = Time::NEVER;
            if self.has_surplus() {
                self.begin_span(now);
            }
            return &[];
        }
        self.returned = upto;
        self.due = now + SHRINK_PAUSE;
        &self.slots[from..upto]
    }

    fn begin_span(&mut self, now: Time) {
        self.low = self.slots.len();
        self.due = now + self.quiet;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Nanos = Nanos::from_secs(1);

    /// Slots given back until nothing more is due before `end`.
    fn shrink_until(spare: &mut Spare, mut now: Time, end: Time) -> Vec<u32> {
        let mut given = Vec::new();
        loop {
            given.extend_from_slice(spare.shrink(now));
            now = spare.due(now).max(now);
            if now >= end {
                return given;
            }
        }
    }

    #[test]
    fn memory_that_was_not_used_for_a_span_is_given_back_and_some_is_kept() {
        let mut spare = Spare::new(QUIET);
        (0..1000).for_each(|slot| spare.push(slot));
        assert_eq!(shrink_until(&mut spare, Time(5), Time(5) + QUIET), [0; 0], "not yet");
        let given = shrink_until(&mut spare, Time(5) + QUIET, Time(5) + QUIET + QUIET);
        assert!(given.into_iter().eq(0..1000 - SHRINK_KEEPS as u32), "those used longest ago");
        assert_eq!(spare.returned(), 1000 - SHRINK_KEEPS);
        assert_eq!(spare.due(Time(7)), Time::NEVER, "nothing wakes an endpoint that has shrunk");
    }

    #[test]
    fn a_load_that_comes_again_within_the_span_keeps_its_memory() {
        let mut spare = Spare::new(QUIET);
        (0..1000).for_each(|slot| spare.push(slot));
        let mut now = Time(0);
        for _ in 0..10 {
            assert_eq!(spare.shrink(now), [0; 0]);
            let used: Vec<_> = (0..950).filter_map(|_| spare.pop()).collect();
            used.into_iter().for_each(|slot| spare.push(slot));
            now = spare.due(now);
        }
        assert_eq!(spare.returned(), 0);
    }

    #[test]
    fn a_slot_that_is_used_again_counts_as_having_memory() {
        let mut spare = Spare::new(QUIET);
        (0..200).for_each(|slot| spare.push(slot));
        let end = Time(0) + QUIET + QUIET;
        shrink_until(&mut spare, Time(0), end);
        assert_eq!(spare.returned(), 200 - SHRINK_KEEPS);
        let used: Vec<_> = (0..150).filter_map(|_| spare.pop()).collect();
        assert_eq!(spare.returned(), 50);
        used.into_iter().for_each(|slot| spare.push(slot));
        assert_eq!(spare.returned(), 50);
        shrink_until(&mut spare, end, end + QUIET + QUIET);
        assert_eq!(spare.returned(), 200 - SHRINK_KEEPS);
    }
}
