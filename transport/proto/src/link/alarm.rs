//! What duplicates have said of the way that acks go, and whether it was true
//! (docs/protocol.md section 9).

use crate::limits::{CALM_MAX, CALM_MEMORY, CALM_MIN};
use towpath_base::{Nanos, Time};

/// Chunks that came twice and are remembered: all of a flight come again as a rule, the first of it
/// first, and behind a tail-loss probe that is another one.
const REMEMBERED: usize = 4;

/// Channel, message, index.
type Chunk = (u32, u64, u32);

/// Chunks that come twice say that acks do not get back. So they do when our host was away, or the
/// peer's, and nothing is wrong with the way that acks went: a probe there is answered at once.
/// After such a false alarm duplicates are not heeded for a while, for longer after each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckAlarm {
    /// Chunks that came twice, and when they last did.
    twice: [Option<(Chunk, Time)>; REMEMBERED],
    /// The path that was put in doubt, until it is known whether rightly.
    doubted: Option<usize>,
    calm: Nanos,
    calm_until: Time,
}

impl AckAlarm {
    /// Whether a duplicate says anything now.
    #[inline]
    pub(super) fn is_heeded(&self, now: Time) -> bool {
        now >= self.calm_until
    }

    /// A chunk came that had been taken before; within `span` the peer has our answer as a rule.
    /// True when that one came twice for longer than that ago: it was sent again all the same.
    pub(super) fn comes_again(&mut self, now: Time, chunk: Chunk, span: Nanos) -> bool {
        if let Some((_, at)) = self.twice.iter().flatten().find(|(other, _)| *other == chunk) {
            return now >= *at + span;
        }
        // Those of one flight come at once: the first of them are kept.
        let is_free = |place: &Option<(Chunk, Time)>| place.is_none_or(|(_, at)| now >= at + span);
        if let Some(place) = self.twice.iter_mut().find(|place| is_free(place)) {
            *place = Some((chunk, now));
        }
        false
    }

    /// Acks leave this path for another.
    pub(super) fn raise(&mut self, path: usize) {
        self.doubted = Some(path);
    }

    /// A path that was in doubt is good; true when acks had left it for nothing.
    pub(super) fn found_good(&mut self, now: Time, path: usize) -> bool {
        if self.doubted != Some(path) {
            return false;
        }
        self.doubted = None;
        let is_long_ago = now > self.calm_until + CALM_MEMORY;
        let before = if is_long_ago { Nanos::ZERO } else { self.calm };
        self.calm = before.saturating_mul(2).clamp(CALM_MIN, CALM_MAX);
        self.calm_until = now + self.calm;
        true
    }

    /// A path is no good: whoever doubted it was right.
    pub(super) fn found_dead(&mut self, path: usize) {
        if self.doubted == Some(path) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    #[test]
    fn each_false_alarm_makes_calm_for_longer_up_to_a_bound() {
        let (mut alarm, mut now) = (AckAlarm::default(), at(1));
        let mut calm = CALM_MIN;
        for _ in 0..12 {
            assert!(alarm.is_heeded(now));
            alarm.raise(3);
            assert!(!alarm.found_good(now, 2));
            assert!(alarm.is_heeded(now), "another path is none of it");
            assert!(alarm.found_good(now, 3));
            assert!(!alarm.is_heeded(now) && !alarm.is_heeded(now + (calm - Nanos(1))));
            now += calm;
            calm = calm.saturating_mul(2).min(CALM_MAX);
        }
        assert_eq!(calm, CALM_MAX);
    }

    #[test]
    fn an_alarm_that_was_true_and_time_make_up_for_false_ones() {
        let mut alarm = AckAlarm::default();
        for _ in 0..5 {
            alarm.raise(0);
            let _ = alarm.found_good(at(10), 0);
        }
        assert!(!alarm.is_heeded(at(10) + CALM_MIN));
        alarm.raise(0);
        alarm.found_dead(1);
        assert!(!alarm.is_heeded(at(10) + CALM_MIN));
        alarm.found_dead(0);
        assert!(alarm.is_heeded(at(10)));
        for now in [at(100), at(200) + CALM_MEMORY] {
            alarm.raise(0);
            let _ = alarm.found_good(now, 0);
            assert!(alarm.is_heeded(now + CALM_MIN));
        }
    }

    #[test]
    fn a_chunk_counts_that_comes_a_third_time_and_not_at_once() {
        let (mut alarm, span) = (AckAlarm::default(), Nanos::from_millis(1));
        let flight = |alarm: &mut AckAlarm, now| {
            let comes_again = (0..30).map(|index| alarm.comes_again(now, (1, 7, index), span));
            comes_again.filter(|&again| again).count()
        };
        // Whoever was away finds all at once.
        for _ in 0..3 {
            assert_eq!(flight(&mut alarm, at(10)), 0);
        }
        assert_eq!(flight(&mut alarm, at(10) + Nanos(999_999)), 0);
        assert_eq!(flight(&mut alarm, at(11)), REMEMBERED);
        // Others take the places of what does not come again.
        assert!(!alarm.comes_again(at(20), (1, 8, 0), span));
        assert!(alarm.comes_again(at(21), (1, 8, 0), span));
    }
}
