//! How long our host is away at a time: what a clock in software can tell of its own blindness.

use crate::limits::{AWAY_MAX, AWAY_SPAN};
use crate::plan::{Clock, Plan};
use towpath_base::{Nanos, Time};

/// The longest and the second longest of some spans.
#[derive(Clone, Copy, Debug, Default)]
struct Longest(Nanos, Nanos);

impl Longest {
    fn with(self, span: Nanos) -> Self {
        Self(self.0.max(span), self.1.max(self.0.min(span)))
    }
}

/// Watches the time between polls. Where completions carry no time of their own, what came in
/// between counts from the later one: a thread that does not run is a delay that no network has.
///
/// What counts is the second longest time between two polls, of the last one to two [`AWAY_SPAN`]:
/// whoever was away once need not be again.
#[derive(Debug)]
pub(crate) struct Away {
    /// Less is no absence.
    least: Nanos,
    looked_at: Option<Time>,
    recent: Longest,
    before: Longest,
    since: Time,
    told: Nanos,
}

impl Away {
    /// Where delays are told by the host's clock, and may be off; none elsewhere.
    pub(crate) fn on(plan: &Plan, now: Time) -> Option<Self> {
        let matters = plan.clock == Clock::Software && plan.delay_noise > Nanos::ZERO;
        matters.then(|| Self::new(plan.delay_noise, now))
    }

    /// Absences of `least` and more.
    fn new(least: Nanos, now: Time) -> Self {
        let (recent, before) = (Longest::default(), Longest::default());
        Self { least, looked_at: None, recent, before, since: now, told: Nanos::ZERO }
    }

    /// How long an absence is, as far as it was told; zero where there are none.
    pub(crate) fn told(&self) -> Nanos {
        self.told
    }

    /// Somebody polls now. Gives how long an absence is when that has changed.
    #[inline]
    pub(crate) fn look(&mut self, now: Time) -> Option<Nanos> {
        let before = self.looked_at.replace(now).unwrap_or(now);
        let turns = now.since(self.since) >= AWAY_SPAN;
        let gap = now.since(before);
        if (gap <= self.recent.1 || gap < self.least) && !turns {
            None
        } else {
            self.note(gap, turns, now)
        }
    }

    #[cold]
    fn note(&mut self, gap: Nanos, turns: bool, now: Time) -> Option<Nanos> {
        if gap >= self.least {
            self.recent = self.recent.with(gap.min(AWAY_MAX));
        }
        let away = self.recent.1.max(self.before.1);
        if turns {
            self.before = std::mem::take(&mut self.recent);
            self.since = now;
        }
        // What is a little more is not worth telling.
        let is_told =
            away == self.told || away > self.told && away.0 - self.told.0 < self.told.0 / 8;
        if is_told {
            return None;
        }
        self.told = away;
        Some(away)
    }

    /// We slept until something came or was due: the time until the next poll is no absence.
    pub(crate) fn rest(&mut self) {
        self.looked_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn away() -> Away {
        Away::new(Nanos::from_micros(200), Time::ZERO)
    }

    /// Polls at these times, in microseconds; what was told last.
    fn polled(away: &mut Away, at_us: impl IntoIterator<Item = u64>) -> Nanos {
        for at in at_us {
            away.look(Time(at * 1_000));
        }
        away.told()
    }

    #[test]
    fn a_turn_of_the_loop_is_no_absence_and_neither_is_a_single_one() {
        let mut away = away();
        assert_eq!(polled(&mut away, (0..1_000).map(|turn| turn * 150)), Nanos::ZERO);
        assert_eq!(polled(&mut away, [170_000]), Nanos::ZERO, "once, for 20 ms");
        assert_eq!(
            polled(&mut away, [175_000, 175_001]),
            Nanos::from_millis(5),
            "and again, for 5"
        );
    }

    #[test]
    fn an_absence_is_forgotten_when_none_follow_and_never_longer_than_the_bound() {
        let mut away = away();
        let seconds = |from: u64, to: u64| (from * 1_000_000..to * 1_000_000).step_by(100);
        assert_eq!(polled(&mut away, [0, 400_000, 900_000]), AWAY_MAX);
        assert_eq!(polled(&mut away, seconds(1, 3)), Nanos::ZERO);
    }

    #[test]
    fn sleep_is_no_absence() {
        let mut away = away();
        for at in 0..100 {
            away.look(Time(at * 10 * MS));
            away.rest();
        }
        assert_eq!(away.told(), Nanos::ZERO);
    }
}
