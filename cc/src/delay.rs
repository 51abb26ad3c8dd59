//! What recent delays say: their median over a round trip, and their floor over seconds.

use towpath_base::{Nanos, Time};

use crate::limits::{DELAY_FLOOR_SPAN, RTT_RECENT_SAMPLES};

/// The median of the delays seen within the last round trip.
///
/// One late ack among several is noise of a host; a queue makes all of them late. Older samples
/// than a round trip would hide what the last change of the window has done.
#[derive(Clone, Debug)]
pub(crate) struct RecentDelays {
    seen: [(Time, Nanos); RTT_RECENT_SAMPLES],
    next: usize,
    held: usize,
}

impl RecentDelays {
    pub(crate) fn new() -> Self {
        Self { seen: [(Time::ZERO, Nanos::ZERO); RTT_RECENT_SAMPLES], next: 0, held: 0 }
    }

    /// Takes in a delay and gives the median of those within `span` before `now`, this one among
    /// them; of an even number the smaller one in the middle.
    pub(crate) fn median_with(&mut self, now: Time, delay: Nanos, span: Nanos) -> Nanos {
        self.seen[self.next] = (now, delay);
        self.next = (self.next + 1) % RTT_RECENT_SAMPLES;
        self.held = (self.held + 1).min(RTT_RECENT_SAMPLES);
        let mut recent = [Nanos::ZERO; RTT_RECENT_SAMPLES];
        let mut count = 0;
        for &(at, delay) in &self.seen[..self.held] {
            if now.since(at) <= span {
                recent[count] = delay;
                count += 1;
            }
        }
        let recent = &mut recent[..count];
        recent.sort_unstable();
        recent.get(count.saturating_sub(1) / 2).copied().unwrap_or(delay)
    }
}

/// The smallest delay of the last one to two [`DELAY_FLOOR_SPAN`]s.
#[derive(Clone, Debug)]
pub(crate) struct DelayFloor {
    now: Nanos,
    before: Nanos,
    since: Time,
}

impl DelayFloor {
    pub(crate) fn new(now: Time) -> Self {
        Self { now: Nanos(u64::MAX), before: Nanos(u64::MAX), since: now }
    }

    /// Takes in a delay and gives the floor.
    pub(crate) fn with(&mut self, now: Time, delay: Nanos) -> Nanos {
        if now.since(self.since) >= DELAY_FLOOR_SPAN {
            self.before = core::mem::replace(&mut self.now, Nanos(u64::MAX));
            self.since = now;
        }
        self.now = self.now.min(delay);
        self.now.min(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_ack_among_three_is_not_the_median() {
        let mut delays = RecentDelays::new();
        let span = Nanos(100);
        assert_eq!(delays.median_with(Time(0), Nanos(10), span), Nanos(10));
        assert_eq!(delays.median_with(Time(10), Nanos(900), span), Nanos(10));
        assert_eq!(delays.median_with(Time(20), Nanos(12), span), Nanos(12));
    }

    #[test]
    fn what_is_older_than_the_span_does_not_count() {
        let mut delays = RecentDelays::new();
        for at in 0..20 {
            delays.median_with(Time(at), Nanos(10), Nanos(100));
        }
        assert_eq!(delays.median_with(Time(1_000), Nanos(70), Nanos(100)), Nanos(70));
        assert_eq!(delays.median_with(Time(1_010), Nanos(80), Nanos::ZERO), Nanos(80));
    }

    #[test]
    fn the_floor_is_forgotten_after_two_spans() {
        let mut floor = DelayFloor::new(Time::ZERO);
        assert_eq!(floor.with(Time(1), Nanos(5)), Nanos(5));
        let next = Time(1) + DELAY_FLOOR_SPAN;
        assert_eq!(floor.with(next, Nanos(9)), Nanos(5));
        assert_eq!(floor.with(next + DELAY_FLOOR_SPAN, Nanos(9)), Nanos(9));
    }
}
