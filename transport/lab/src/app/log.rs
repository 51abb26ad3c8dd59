//! What became of messages that were given up, and how long it took to know.

use towpath_base::{Nanos, Time};
use towpath_proto::Outcome;

/// What became of messages that were cancelled, or whose deadline passed, before they had an
/// outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GiveUpLog {
    /// Of which nothing had been sent: they ended where they were.
    pub at_once: u64,
    /// That the peer's application never saw whole, which the peer had to be asked for.
    pub abandoned: u64,
    /// That had arrived before.
    pub delivered: u64,
    /// Whose peer was gone.
    pub unknown: u64,
    /// Messages that were being read in pieces when the rest was given up, at the reader.
    pub streams_aborted: u64,
    /// From giving up to the outcome, for each that was not over at once.
    pub latencies: Vec<Nanos>,
}

impl GiveUpLog {
    /// Notes how a message ended that was given up at `given_up_at`.
    pub fn note(&mut self, given_up_at: Time, now: Time, outcome: Outcome) {
        let latency = now.since(given_up_at);
        match outcome {
            Outcome::Abandoned if latency == Nanos::ZERO => {
                self.at_once += 1;
                return;
            }
            Outcome::Abandoned => self.abandoned += 1,
            Outcome::Delivered => self.delivered += 1,
            Outcome::Unknown => self.unknown += 1,
        }
        self.latencies.push(latency);
    }

    /// Messages given up.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.at_once + self.latencies.len() as u64
    }

    /// Takes in what another one saw.
    pub fn add(&mut self, other: Self) {
        self.at_once += other.at_once;
        self.abandoned += other.abandoned;
        self.delivered += other.delivered;
        self.unknown += other.unknown;
        self.streams_aborted += other.streams_aborted;
        self.latencies.extend(other.latencies);
    }

    /// The latency that `percent` of those in [`latencies`](Self::latencies) did not exceed, by
    /// nearest rank; none without any.
    pub fn percentile(&mut self, percent: f64) -> Option<Nanos> {
        let rank = (self.latencies.len() as f64 * percent / 100.0).ceil() as usize;
        let place = rank.clamp(1, self.latencies.len().max(1)) - 1;
        if self.latencies.is_empty() {
            return None;
        }
        Some(*self.latencies.select_nth_unstable(place).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut log = GiveUpLog::default();
        assert_eq!(log.percentile(50.0), None);
        for ns in (1..=100).rev() {
            log.note(Time(1000), Time(1000 + ns), Outcome::Abandoned);
        }
        log.note(Time(1000), Time(1000), Outcome::Abandoned);
        assert_eq!((log.given_up(), log.at_once), (101, 1));
        assert_eq!(log.percentile(50.0), Some(Nanos(50)));
        assert_eq!(log.percentile(99.0), Some(Nanos(99)));
        assert_eq!(log.percentile(100.0), Some(Nanos(100)));
    }
}
