//! What the application of a client wants, period by period.

use super::plan::{ClientPlan, Pattern};
use std::collections::VecDeque;
use towpath_base::{Nanos, Time};

/// Clients do not begin a period in step: each begins up to so much later, drawn once.
const STEP_MAX: Nanos = Nanos::from_micros(10);

/// The application of one client.
#[derive(Debug)]
pub(super) struct Work {
    plan: ClientPlan,
    depth: u32,
    period: Nanos,
    /// When the first period began.
    start: Time,
    /// When this one did; none before the first.
    began: Option<Time>,
    /// How far behind the start of the period its first I/O comes.
    offset: Nanos,
    /// I/Os of this period that were asked for.
    asked: u32,
    /// When those were asked for that wait.
    waiting: VecDeque<Time>,
    /// I/Os under way.
    pub(super) under_way: u32,
}

impl Work {
    /// With a draw that says by how much its first I/O is late, as a share of the most.
    pub(super) fn new(plan: ClientPlan, depth: u32, period: Nanos, draw: f64) -> Self {
        let offset = Nanos((STEP_MAX.0 as f64 * draw) as u64);
        Self {
            plan,
            depth,
            period,
            start: Time::NEVER,
            began: None,
            offset,
            asked: 0,
            waiting: VecDeque::new(),
            under_way: 0,
        }
    }

    /// Takes the time on: how many I/Os that waited are not wanted any more, and how many are
    /// asked for now.
    pub(super) fn look(&mut self, now: Time, start: Time) -> (u32, u32) {
        if now < start {
            return (0, 0);
        }
        self.start = start;
        let number = now.since(start).0 / self.period.0;
        let began = start + Nanos(number * self.period.0);
        let mut withdrawn = 0;
        if self.began != Some(began) {
            withdrawn = self.waiting.len() as u32;
            self.waiting.clear();
            (self.began, self.asked) = (Some(began), 0);
        }
        let new = self.due(now, began);
        for _ in 0..new {
            let at = match self.plan.pattern {
                Pattern::Burst | Pattern::AtOnce => now,
                Pattern::Constant => self.at(began, self.asked),
            };
            self.waiting.push_back(at);
            self.asked += 1;
        }
        (withdrawn, new)
    }

    /// When the I/O of a constant rate comes that has so many before it in the period.
    fn at(&self, began: Time, before: u32) -> Time {
        let span = u128::from(self.period.0) * u128::from(before);
        began + self.offset + Nanos(span.div_ceil(u128::from(self.plan.demand.max(1))) as u64)
    }

    fn due(&self, now: Time, began: Time) -> u32 {
        let left = self.plan.demand - self.asked;
        let (first, last) = self.plan.active;
        if !(first..last).contains(&now.since(self.start)) {
            return 0;
        }
        if now < began + self.offset {
            return 0;
        }
        match self.plan.pattern {
            Pattern::Burst => {
                let busy = self.under_way + self.waiting.len() as u32;
                left.min(self.depth.saturating_sub(busy))
            }
            Pattern::AtOnce => left,
            Pattern::Constant => {
                let passed = now.since(began + self.offset);
                let passed = u128::from(passed.0) * u128::from(self.plan.demand);
                let by_now = (passed / u128::from(self.period.0)) as u32 + 1;
                by_now.min(self.plan.demand).saturating_sub(self.asked)
            }
        }
    }

    /// Whether I/Os take their tokens as soon as they are asked for.
    pub(super) fn takes_tokens_early(&self) -> bool {
        self.plan.pattern == Pattern::AtOnce
    }

    /// I/Os that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether an I/O waits that may go.
    pub(super) fn may_go(&self) -> bool {
        self.under_way < self.depth && !self.waiting.is_empty()
    }

    /// An I/O goes: when it was asked for.
    pub(super) fn go(&mut self) -> Option<Time> {
        let asked_at = self.waiting.pop_front()?;
        self.under_way += 1;
        Some(asked_at)
    }

    /// When something is asked for next, or what waits is not wanted any more.
    pub(super) fn next_time(&self, now: Time, start: Time) -> Time {
        let Some(began) = self.began else { return start };
        let end = began + self.period;
        // With as much as this waiting it is enough to look again when something is done; a burst
        // goes on when something is.
        let asks = self.asked < self.plan.demand
            && (self.waiting.len() as u32) < self.depth
            && (self.plan.pattern == Pattern::Constant || self.asked == 0)
            && end.since(start) > self.plan.active.0;
        let at = match self.plan.pattern {
            Pattern::Burst | Pattern::AtOnce => began + self.offset,
            Pattern::Constant => self.at(began, self.asked),
        };
        let at = if asks { at.max(start + self.plan.active.0) } else { end };
        // What is due and was not asked for is not wanted now.
        if at > now { at.min(end) } else { end }
    }
}
