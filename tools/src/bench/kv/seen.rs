//! All that was seen, and what can be said of it.

use towpath_lab::cluster::Samples;

use super::client::SHARES;
use super::way::Way;
use super::world::{Point, Seen};

impl Seen {
    pub(super) fn per_second(&self) -> f64 {
        self.done as f64 / self.seconds
    }

    pub(super) fn per_operation(&self, count: u64) -> f64 {
        count as f64 / self.done.max(1) as f64
    }

    /// Processor time of one operation in microseconds: at the server, at its clients.
    pub(super) fn cpu_us(&self) -> [f64; 2] {
        [self.server, self.client].map(|used| self.per_operation(used.cpu_ns) / 1e3)
    }

    /// What so many thousandths of all operations took at most, in microseconds.
    pub(super) fn share_us(&self, share: u32) -> f64 {
        let at = SHARES.iter().position(|&found| found == share);
        at.and_then(|at| self.latency_us.get(at)).copied().unwrap_or(0.0)
    }
}

pub(super) fn samples(rounds: &[Seen], of: impl Fn(&Seen) -> f64) -> Samples {
    rounds.iter().map(of).collect()
}

pub(super) fn median(rounds: &[Seen], of: impl Fn(&Seen) -> f64) -> f64 {
    samples(rounds, of).median()
}

/// All points and their rounds.
#[derive(Clone, Copy)]
pub(super) struct All<'a> {
    pub(super) points: &'a [Point],
    pub(super) seen: &'a [Vec<Seen>],
}

impl<'a> All<'a> {
    pub(super) fn each(self) -> impl Iterator<Item = (&'a Point, &'a [Seen])> + Clone {
        self.points.iter().zip(self.seen.iter().map(Vec::as_slice))
    }

    pub(super) fn of(self, like: Point) -> Option<&'a [Seen]> {
        self.each().find(|(point, _)| **point == like).map(|(_, rounds)| rounds)
    }

    /// Operations a second over those of another point, round by round.
    pub(super) fn ratio(self, point: &Point, other: Point) -> Option<Samples> {
        let (ours, others) = (self.of(*point)?, self.of(other)?);
        Some(ours.iter().zip(others).map(|(a, b)| a.per_second() / b.per_second()).collect())
    }

    pub(super) fn over_tcp(self, point: &Point) -> Option<Samples> {
        self.ratio(point, Point { way: Way::Tcp, ..*point })
    }
}
