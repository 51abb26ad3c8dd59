//! The condition of one path: doubts, probes, quarantine.

use super::state::{PathSignal, PathState};
use crate::limits::{
    DOUBTS_MAX, FORGIVE_AFTER, PROBE_INTERVAL_MAX, PROBES_UNANSWERED_MAX, QUARANTINE_FIRST,
    QUARANTINE_LONGEST,
};
use towpath_base::{Nanos, Time};

/// The state of a path, and its recent doubts and quarantines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Condition {
    state: PathState,
    since: Time,
    /// The first number sent after the doubt arose.
    doubt_number: u64,
    /// When the last doubt arose.
    suspected_at: Time,
    /// Doubts that are not forgiven.
    doubts: u32,
    /// Quarantines that are not forgiven: each doubles the next.
    quarantines: u32,
    /// Since when nothing counts against the path.
    clean_from: Time,
    /// When the next probe is due, or the quarantine is over.
    due: Time,
    /// When the unanswered probe was sent.
    probe: Option<Time>,
    unanswered: u32,
    /// Consecutive probes while no path was answered: they only delay the next probe.
    unheard: u32,
    answered: u32,
    /// Totals, for snapshots.
    pub(crate) doubts_ever: u64,
    pub(crate) quarantines_ever: u64,
}

impl Condition {
    pub(crate) fn new(now: Time) -> Self {
        Self { since: now, clean_from: now, due: Time::NEVER, ..Self::default() }
    }

    /// The condition of a path that is held back.
    pub(crate) fn spare(now: Time) -> Self {
        Self { state: PathState::Spare, ..Self::new(now) }
    }

    /// The condition of a path that is probed before it is used for the first time.
    pub(crate) fn untried(now: Time) -> Self {
        Self { state: PathState::Probing, due: now, ..Self::new(now) }
    }

    pub(crate) fn state(&self) -> PathState {
        self.state
    }

    pub(crate) fn since(&self) -> Time {
        self.since
    }

    /// When the path was last doubted; zero if it never was.
    pub(crate) fn suspected_at(&self) -> Time {
        self.suspected_at
    }

    /// When [`on_due`](Self::on_due) is to be called; `NEVER` for a good path.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    /// Goes to `to`, by a legal move; `next_number` is the first that will be sent there.
    pub(crate) fn go(&mut self, now: Time, signal: PathSignal, to: PathState, next_number: u64) {
        self.forgive(now);
        match to {
            PathState::Good => {
                // The path was only slow: the doubt is taken back.
                if signal == PathSignal::Late {
                    self.doubts = self.doubts.saturating_sub(1);
                }
                self.due = Time::NEVER;
            }
            PathState::Suspect => {
                // Only silence counts against the path: late acks may be the fault of the queue
                // pair that carries acks.
                self.doubts += u32::from(signal == PathSignal::Silent);
                self.doubts_ever += 1;
                self.doubt_number = next_number;
                (self.suspected_at, self.due) = (now, now);
            }
            PathState::Dead => {
                let span = QUARANTINE_FIRST.saturating_mul(1 << self.quarantines.min(16));
                self.quarantines += 1;
                self.quarantines_ever += 1;
                self.due = now + span.min(QUARANTINE_LONGEST);
            }
            PathState::Probing => {
                self.doubt_number = next_number;
                self.due = now;
            }
            // Other events than a timer end these states. A failed queue pair adds no doubt.
            PathState::Spare | PathState::Failed => self.due = Time::NEVER,
        }
        (self.state, self.since, self.clean_from) = (to, now, now);
        (self.probe, self.unanswered, self.unheard, self.answered) = (None, 0, 0, 0);
    }

    /// Each [`FORGIVE_AFTER`] without a doubt forgives one doubt and one quarantine. Until a path's
    /// quarantines are forgiven, its next doubt retires it.
    fn forgive(&mut self, now: Time) {
        if self.state != PathState::Good {
            return;
        }
        let spans = (now.since(self.clean_from).0 / FORGIVE_AFTER.0).min(64) as u32;
        self.doubts = self.doubts.saturating_sub(spans);
        self.quarantines = self.quarantines.saturating_sub(spans);
    }

    /// Whether all quarantines but the present one are forgiven.
    pub(crate) fn is_first_quarantine(&self) -> bool {
        self.quarantines <= 1
    }

    fn is_on_probation(&self) -> bool {
        self.quarantines > 0 || self.doubts >= DOUBTS_MAX
    }

    /// A probe was sent; the next one is due after `interval`, backed off. A probe of a silent peer
    /// may go out on a path in quarantine, and does not shorten that.
    pub(crate) fn on_probe_sent(&mut self, now: Time, interval: Nanos) {
        if !matches!(self.state, PathState::Suspect | PathState::Probing) {
            return;
        }
        self.probe = Some(now);
        let span =
            interval.saturating_mul(1 << self.unanswered.saturating_add(self.unheard).min(10));
        self.due = now + span.min(PROBE_INTERVAL_MAX.max(interval));
    }

    /// Its time has come: the signal that follows, or none when a probe is to be sent.
    /// `answered_at` is when the newest chunk was sent that was acknowledged on any path. An
    /// unanswered probe counts only if another path was answered since.
    pub(crate) fn on_due(&mut self, answered_at: Time) -> Option<PathSignal> {
        if self.state == PathState::Dead {
            return Some(PathSignal::Rested);
        }
        if let Some(sent_at) = self.probe.take() {
            let others_answer = answered_at > sent_at;
            self.answered = 0;
            self.unanswered += u32::from(others_answer);
            self.unheard = if others_answer { 0 } else { self.unheard.saturating_add(1) };
        }
        (self.unanswered >= PROBES_UNANSWERED_MAX).then_some(PathSignal::Unanswered)
    }

    /// Numbers from `lowest` to `highest` were newly acknowledged. Returns the signal that follows,
    /// if any. `to_return` is how many probes in a row must be answered before the path is used
    /// again.
    pub(crate) fn on_acked(
        &mut self,
        (lowest, highest): (u64, u64),
        to_return: u32,
    ) -> Option<PathSignal> {
        match self.state {
            PathState::Suspect if lowest < self.doubt_number => Some(PathSignal::Late),
            PathState::Suspect if self.is_on_probation() => Some(PathSignal::Relapsed),
            PathState::Suspect => Some(PathSignal::Answered),
            PathState::Probing if highest >= self.doubt_number => {
                (self.unanswered, self.unheard) = (0, 0);
                self.answered += u32::from(self.probe.take().is_some());
                (self.answered >= to_return).then_some(PathSignal::Answered)
            }
            _ => None,
        }
    }

    /// Delays what is due. One more probe must be unanswered before the path is given up.
    pub(crate) fn postpone(&mut self, until: Time) {
        if matches!(self.state, PathState::Good | PathState::Spare | PathState::Failed) {
            return;
        }
        self.due = until;
        self.unanswered = self.unanswered.min(PROBES_UNANSWERED_MAX - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_goes_out_in_quarantine_does_not_end_it() {
        let (mut condition, now) = (Condition::new(Time::ZERO), Time::ZERO + Nanos::from_millis(1));
        condition.go(now, PathSignal::Unanswered, PathState::Dead, 7);
        let until = condition.due();
        assert_eq!(until, now + QUARANTINE_FIRST);
        condition.on_probe_sent(now, Nanos::from_millis(4));
        assert_eq!(condition.due(), until);
    }

    #[test]
    fn probes_that_nothing_answers_become_rare_and_condemn_nothing() {
        let (mut condition, interval) = (Condition::new(Time::ZERO), Nanos::from_millis(1));
        condition.go(Time::ZERO, PathSignal::Silent, PathState::Suspect, 7);
        let mut probes = 0;
        while condition.due() < Time::ZERO + Nanos::from_secs(10) {
            let now = condition.due();
            assert_eq!(condition.on_due(Time::ZERO), None);
            condition.on_probe_sent(now, interval);
            probes += 1;
        }
        assert!(probes < 120, "{probes} in ten seconds");
    }
}
