//! How a client asks, and after what time without a reply a request is repeated.

use std::time::Duration;
use towpath_base::Nanos;
use towpath_cc::{RttConfig, RttEstimator};

/// How a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// After what time without a reply a request is repeated: far above a round trip where the
    /// transport loses nothing, a few of them where it does.
    pub repeat_after: Duration,
    /// Where set, that time follows the round trips that were seen (RFC 6298), from this one up to
    /// `repeat_after`.
    pub repeat_least: Option<Duration>,
    /// How long a request may take in all.
    pub timeout: Duration,
}

impl Default for ClientConfig {
    /// For transports that lose nothing.
    fn default() -> Self {
        let (repeat_after, timeout) = (Duration::from_secs(5), Duration::from_secs(30));
        Self { repeat_after, repeat_least: None, timeout }
    }
}

impl ClientConfig {
    /// For transports that lose some: what is late for the round trips that were seen is repeated.
    #[must_use]
    pub fn for_losses() -> Self {
        Self { repeat_least: Some(Duration::from_millis(1)), ..Self::default() }
    }
}

/// The time before the first round trip was seen, at most.
const FIRST: Duration = Duration::from_millis(20);

/// The time: always the same, or by the round trips that were seen (RFC 6298).
#[derive(Clone, Debug)]
pub(super) struct Patience {
    fixed: Duration,
    trips: Option<RttEstimator>,
    /// In a row; the next time is longer by each, until a request is answered at once.
    timeouts: u32,
}

impl Patience {
    pub(super) fn new(config: &ClientConfig) -> Self {
        let fixed = config.repeat_after.max(Duration::from_nanos(1));
        let trips = config.repeat_least.and_then(|least| {
            let least = Nanos::from(least.clamp(Duration::from_nanos(1), fixed));
            let config = RttConfig::default().with_rto_range(least, fixed.into()).ok()?;
            Some(RttEstimator::new(config.with_rto_initial(FIRST.min(fixed).into())))
        });
        Self { fixed, trips, timeouts: 0 }
    }

    /// How long to wait for a reply.
    pub(super) fn wait(&self) -> Duration {
        let Some(trips) = &self.trips else { return self.fixed };
        trips.rto_backed_off(Nanos::ZERO, self.timeouts).into()
    }

    /// A request that was sent once was answered after this time.
    pub(super) fn answered(&mut self, after: Duration) {
        if let Some(trips) = &mut self.trips {
            trips.update(after.into());
            self.timeouts = 0;
        }
    }

    /// A request was not answered in time.
    pub(super) fn timed_out(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience(least_ms: Option<u64>) -> Patience {
        let repeat_least = least_ms.map(Duration::from_millis);
        Patience::new(&ClientConfig { repeat_least, ..ClientConfig::default() })
    }

    #[test]
    fn without_a_least_time_it_is_always_the_same() {
        let mut patience = patience(None);
        patience.timed_out();
        patience.answered(Duration::from_millis(1));
        assert_eq!(patience.wait(), ClientConfig::default().repeat_after);
    }

    #[test]
    fn it_follows_round_trips_and_doubles_until_one_is_answered_at_once() {
        let mut patience = patience(Some(1));
        assert_eq!(patience.wait(), FIRST);
        for _ in 0..50 {
            patience.answered(Duration::from_millis(4));
        }
        let usual = patience.wait();
        assert!(usual >= Duration::from_millis(4) && usual < Duration::from_millis(6), "{usual:?}");
        patience.timed_out();
        patience.timed_out();
        assert_eq!(patience.wait(), usual * 4);
        // Far longer ones, none of which would have been answered in the time before.
        patience.answered(Duration::from_millis(100));
        assert!(patience.wait() > usual, "{:?}", patience.wait());
        for _ in 0..64 {
            patience.timed_out();
        }
        assert_eq!(patience.wait(), ClientConfig::default().repeat_after);
    }

    #[test]
    fn what_is_set_wrongly_is_put_right() {
        for (least, after) in [(0, 0), (7, 3), (u64::MAX, 1)] {
            let config = ClientConfig {
                repeat_least: Some(Duration::from_nanos(least)),
                repeat_after: Duration::from_nanos(after),
                ..ClientConfig::default()
            };
            assert!(Patience::new(&config).wait() <= Duration::from_nanos(after.max(1)));
        }
    }
}
