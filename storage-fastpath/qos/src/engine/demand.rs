//! How much a client could have used: the D of Definition 1.
//!
//! A client in a closed loop asks for no more while the server is slow, or while it waits for
//! tokens. So time in which it has as much as it may under way, waiting I/Os included, counts as
//! demand for all that it was due. One that has more than that waiting has said what it wants.

use crate::monitor::WINDOW_ALL;
use towpath_base::{Nanos, Time};

/// How a client spent nearly all of a tick.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    pub(super) is_backlogged: bool,
    pub(super) is_at_server: bool,
}

/// The demand of one period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    depth: u32,
    /// How many of them the server has before it at most.
    at_server_max: u32,
    /// How many may be under way; none: that is the caller's to see to.
    most: Option<u32>,
    /// The part of these that it has for its goal.
    window: u32,
    /// More may be wanted than what waits, however much that is.
    is_closed_loop: bool,
    /// I/Os that wait, and the tokens that they will need.
    waiting_ios: u32,
    waiting: u32,
    /// I/Os under way.
    under_way: u32,
    /// Tokens of what arrived since the last count.
    arrived: u32,
    /// How long there was enough to do since then.
    busy: Nanos,
    /// How long more may have been wanted than was asked for.
    hidden: Nanos,
    /// How long half of what may be under way was.
    at_server: Nanos,
    looked_at: Time,
    /// Tokens of all that arrived up to the last count.
    sum: u64,
    /// Tokens that could have been used beside these, had the server been faster.
    unserved: u64,
}

impl Demand {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            depth,
            at_server_max: depth,
            most: None,
            window: depth,
            is_closed_loop: false,
            waiting_ios: 0,
            waiting: 0,
            under_way: 0,
            arrived: 0,
            busy: Nanos::ZERO,
            hidden: Nanos::ZERO,
            at_server: Nanos::ZERO,
            looked_at: Time::ZERO,
            sum: 0,
            unserved: 0,
        }
    }

    pub(super) fn set_depth(&mut self, depth: u32) {
        (self.depth, self.at_server_max) = (depth, depth);
    }

    pub(super) fn set_at_server(&mut self, ios: u32) {
        self.at_server_max = ios.min(self.depth);
        self.most = Some(self.depth);
    }

    /// I/Os that may be under way.
    pub(super) fn most(&self) -> u32 {
        self.most.unwrap_or(u32::MAX)
    }

    pub(super) fn closed_loop(&mut self) {
        self.is_closed_loop = true;
    }

    /// I/Os under way.
    pub(super) fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Its part of what the server has before it.
    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// A period begins, in which that part of the depth may be under way. What waits is demand of
    /// this one.
    pub(super) fn begin(&mut self, now: Time, part: u16) {
        let all = u64::from(WINDOW_ALL);
        let window = u64::from(self.at_server_max) * u64::from(part) + all / 2;
        self.window = (window / all).max(1) as u32;
        (self.busy, self.hidden, self.at_server) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        self.looked_at = now;
        (self.arrived, self.sum, self.unserved) = (0, u64::from(self.waiting), 0);
    }

    fn look(&mut self, now: Time) {
        let span = now.since(self.looked_at);
        // At the server is who has half of its part there, and asks for all that it could get.
        let twice = self.under_way.saturating_mul(2);
        let is_busy = twice >= self.depth || self.waiting_ios > 0;
        if is_busy && twice >= self.window {
            self.at_server = self.at_server + span;
        }
        if is_busy {
            self.busy = self.busy + span;
        }
        let ios = self.under_way.saturating_add(self.waiting_ios);
        let half = self.depth.div_ceil(2);
        let waits = self.is_closed_loop && (self.waiting_ios > 0 || ios >= half);
        if waits || (half..=self.depth).contains(&ios) {
            self.hidden = self.hidden + span;
        }
        self.looked_at = now;
    }

    pub(super) fn arrived(&mut self, now: Time, ios: u32, cost: u32) {
        self.look(now);
        self.waiting_ios = self.waiting_ios.saturating_add(ios);
        self.waiting = self.waiting.saturating_add(cost);
        self.arrived = self.arrived.saturating_add(cost);
    }

    pub(super) fn withdrawn(&mut self, now: Time, ios: u32, cost: u32) {
        self.look(now);
        self.waiting_ios = self.waiting_ios.saturating_sub(ios);
        self.waiting = self.waiting.saturating_sub(cost);
    }

    pub(super) fn went(&mut self, now: Time, cost: u32) {
        self.look(now);
        self.waiting = self.waiting.saturating_sub(cost);
        self.waiting_ios = self.waiting_ios.saturating_sub(1);
        self.under_way += 1;
    }

    pub(super) fn done(&mut self, now: Time) {
        self.look(now);
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Tokens that what waits needs, where that is all that is wanted.
    pub(super) fn said(&self) -> Option<u32> {
        let ios = self.under_way.saturating_add(self.waiting_ios);
        (!self.is_closed_loop && ios > self.depth).then_some(self.waiting)
    }

    /// Whether anything waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting_ios > 0
    }

    /// Counts what was asked for since the last count, in a span in which `due` tokens were due:
    /// the demand of the period so far, and how the span was spent.
    pub(super) fn count(&mut self, now: Time, span: Nanos, due: u32) -> (u64, Busy) {
        self.look(now);
        let whole = u128::from(span.0.max(1));
        let hidden = self.hidden.min(span);
        let share = (u128::from(due) * u128::from(hidden.0)).div_ceil(whole) as u64;
        let arrived = u64::from(self.arrived);
        self.sum += arrived;
        // A client that catches up asks for what was counted as unserved: that is no new demand.
        // And one that has room for more, and does not ask, wanted no more than it asked for.
        self.unserved = match hidden {
            Nanos::ZERO => 0,
            _ => (self.unserved + share).saturating_sub(arrived),
        };
        let is_most = |part: Nanos| u128::from(part.0) * 10 >= whole * 9;
        let (busy, at_server) = (self.busy, self.at_server);
        let busy = Busy { is_backlogged: is_most(busy), is_at_server: is_most(at_server) };
        (self.busy, self.hidden, self.at_server) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        self.arrived = 0;
        (self.sum + self.unserved, busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Nanos = Nanos::from_millis(1);
    const DUE: u32 = 100;

    /// The demand after ticks in which so many I/Os were done, of a client that always has all of
    /// its depth under way, and after one tick more in which it has nothing to do.
    fn demand(done: &[u32]) -> (u64, u64) {
        let mut demand = Demand::new(64);
        let mut now = Time(0);
        demand.begin(now, WINDOW_ALL);
        demand.arrived(now, 64, 64);
        (0..64).for_each(|_| demand.went(now, 1));
        let mut sum = 0;
        for &count in done {
            now += TICK;
            for _ in 0..count {
                demand.done(now);
                demand.arrived(now, 1, 1);
                demand.went(now, 1);
            }
            (sum, _) = demand.count(now, TICK, DUE);
        }
        (0..64).for_each(|_| demand.done(now));
        (sum, demand.count(now + TICK, TICK, DUE).0)
    }

    /// What a client was due while the server was slow is demand until the client has caught up, or
    /// has nothing more to do. Else it would keep those tokens until the period ends.
    #[test]
    fn what_was_caught_up_with_or_is_not_wanted_is_no_demand() {
        let arrived = |done: &[u32]| 64 + done.iter().map(|&done| u64::from(done)).sum::<u64>();
        // The first tick has the 64 as well.
        let slow = [50; 20];
        assert_eq!(demand(&slow), (114 + 19 * u64::from(DUE), arrived(&slow)));
        let caught_up = [[50; 20], [150; 20]].concat();
        assert_eq!(demand(&caught_up), (arrived(&caught_up), arrived(&caught_up)));
    }
}
