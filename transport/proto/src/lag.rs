//! How long what is handed to the device takes to leave.

use crate::limits::LAG_MAX;
use towpath_base::{Nanos, Time};

/// How long what is handed to the device takes to leave at least, of late: what completions told.
///
/// An ack says how long it was held before it has left, so what is still to come of that can only
/// be known from others before it. The least is taken, and grows by an eighth with each that took
/// longer: where more is assumed than an ack then takes, its sample would be too short, and a
/// controller takes short ones for the path's own round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lag(Option<Nanos>);

impl Lag {
    /// What was handed to the device at `handed_at` left at `left_at`. Clocks that disagree by
    /// more than anything takes tell nothing.
    pub(crate) fn note(&mut self, handed_at: Time, left_at: Time) {
        let took = left_at.since(handed_at);
        if took > LAG_MAX {
            return;
        }
        self.0 = Some(self.0.map_or(took, |least| took.min(least + Nanos(least.0 / 8 + 1))));
    }

    /// What is assumed of the next.
    pub(crate) fn least(self) -> Nanos {
        self.0.unwrap_or(Nanos::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_counts_and_what_takes_longer_shows_by_and_by() {
        let mut lag = Lag::default();
        assert_eq!(lag.least(), Nanos::ZERO);
        for (took, least) in [(8_000, 8_000), (20_000, 9_001), (3_000, 3_000), (0, 0), (500, 1)] {
            lag.note(Time(1_000), Time(1_000 + took));
            assert_eq!(lag.least(), Nanos(least), "after {took}");
        }
        for _ in 0..80 {
            lag.note(Time(0), Time(500));
        }
        assert_eq!(lag.least(), Nanos(500));
    }

    #[test]
    fn clocks_that_disagree_tell_nothing() {
        let mut lag = Lag::default();
        lag.note(Time(5_000), Time(9_000));
        lag.note(Time(5_000), Time(5_001) + LAG_MAX);
        lag.note(Time(5_000), Time(u64::MAX));
        assert_eq!(lag.least(), Nanos(4_000));
        // What left before it was handed over left at once.
        lag.note(Time(5_000), Time(4_000));
        assert_eq!(lag.least(), Nanos::ZERO);
    }
}
