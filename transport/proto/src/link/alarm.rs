//! What duplicates have said of the way that acks go, and whether it was true
//! (docs/protocol.md section 9).

use crate::limits::{CALM_MAX, CALM_MEMORY, CALM_MIN};
use towpath_base::{Nanos, Time};

/// Chunks that come twice say that acks do not get back. So they do when our host was away, or the
/// peer's, and nothing is wrong with the way that acks went: a probe there is answered at once.
/// After such a false alarm duplicates are not heeded for a while, for longer after each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckAlarm {
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
}
