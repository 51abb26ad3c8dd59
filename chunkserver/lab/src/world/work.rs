//! What the application of a client wants, period by period.

use super::plan::{ClientPlan, Pattern};
use std::collections::VecDeque;
use towpath_base::{Nanos, Time};

/// The application of one client.
#[derive(Debug)]
pub(super) struct Work {
    plan: ClientPlan,
    depth: u32,
    period: Nanos,
    /// When the period began; none before the first.
    began: Option<Time>,
    /// Of a constant rate: how far behind the start of the period its first I/O comes, so that
    /// clients do not ask in step.
    offset: Nanos,
    /// I/Os of this period that were asked for.
    asked: u32,
    /// When those were asked for that wait.
    waiting: VecDeque<Time>,
    /// I/Os under way.
    pub(super) under_way: u32,
}

impl Work {
    /// With its first I/O of a constant rate so far behind the start: a share of the distance of
    /// two.
    pub(super) fn new(plan: ClientPlan, depth: u32, period: Nanos, offset: f64) -> Self {
        let offset = Nanos((period.0 as f64 / f64::from(plan.demand.max(1)) * offset) as u64);
        let (waiting, asked, under_way) = (VecDeque::new(), 0, 0);
        Self { plan, depth, period, began: None, offset, asked, waiting, under_way }
    }

    /// Takes the time on: how many I/Os that waited are not wanted any more, and how many are
    /// asked for now.
    pub(super) fn look(&mut self, now: Time, start: Time) -> (u32, u32) {
        if now < start {
            return (0, 0);
        }
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
                Pattern::Burst => now,
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
        match self.plan.pattern {
            Pattern::Burst => {
                let busy = self.under_way + self.waiting.len() as u32;
                left.min(self.depth.saturating_sub(busy))
            }
            Pattern::Constant => {
                let passed = now.since(began + self.offset);
                if now < began + self.offset {
                    return 0;
                }
                let passed = u128::from(passed.0) * u128::from(self.plan.demand);
                let by_now = (passed / u128::from(self.period.0)) as u32 + 1;
                by_now.min(self.plan.demand).saturating_sub(self.asked)
            }
        }
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
    pub(super) fn next_time(&self, start: Time) -> Time {
        let Some(began) = self.began else { return start };
        let end = began + self.period;
        let asks = self.plan.pattern == Pattern::Constant
            && self.asked < self.plan.demand
            // With as much as this waiting it is enough to look again when something is done.
            && (self.waiting.len() as u32) < self.depth;
        if asks { self.at(began, self.asked).min(end) } else { end }
    }
}
