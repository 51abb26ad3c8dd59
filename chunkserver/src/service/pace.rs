//! Lines of the log that anyone can cause: not more often than somebody can read.

use towpath_transport::Time;

use super::limits::LOG_EVERY;

/// When a line of the log is due. Anyone who reaches the listening address can be turned away, or
/// stop half-way, as often as they like, which must not fill the log.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the next ones are logged.
    due: Time,
    /// Lines that are logged before that, and how many at a time.
    left: u32,
    burst: u32,
    /// Those that were not logged since the last one that was.
    untold: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self::of_burst(1)
    }
}

impl Pace {
    /// So many lines at a time.
    pub(super) fn of_burst(burst: u32) -> Self {
        Self { due: Time::ZERO, left: 0, burst, untold: 0 }
    }

    /// How many there were since the last line, when another line is due.
    pub(super) fn others_when_due(&mut self, now: Time) -> Option<u64> {
        if now >= self.due {
            (self.due, self.left) = (now + LOG_EVERY, self.burst);
        }
        if self.left == 0 {
            self.untold += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_line_now_and_then_with_the_number_of_the_others() {
        let mut pace = Pace::default();
        assert_eq!(pace.others_when_due(Time::ZERO), Some(0));
        for _ in 0..1000 {
            assert_eq!(pace.others_when_due(Time::ZERO), None);
        }
        let later = Time::ZERO + LOG_EVERY;
        assert_eq!(pace.others_when_due(later), Some(1000));
        assert_eq!(pace.others_when_due(later + LOG_EVERY), Some(0));
    }

    #[test]
    fn a_few_at_a_time_have_a_line_each() {
        let mut pace = Pace::of_burst(3);
        let told: Vec<_> = (0..5).map(|_| pace.others_when_due(Time::ZERO)).collect();
        assert_eq!(told, [Some(0), Some(0), Some(0), None, None]);
        let later = Time::ZERO + LOG_EVERY;
        assert_eq!((pace.others_when_due(later), pace.others_when_due(later)), (Some(2), Some(0)));
    }
}
