//! What the server can do in a period: Algorithm 1, and what replaces it (step T3).

use super::MonitorConfig;
use crate::even;
use crate::limits::{AHEAD_TICKS, HISTORY_MAX, RISES_MAX, USED_UP_DIVISOR};
use crate::rules::Estimation;
use alloc::collections::VecDeque;

/// Which clients waited for the server nearly all of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Too few to use it up.
    Few,
    /// One, which can do that by itself.
    One,
    /// As many as can do that, and more than one.
    Several,
}

/// The estimate, and what it is made of.
#[derive(Clone, Debug)]
pub struct Capacity {
    estimate: u32,
    /// What the last periods completed that told something (the paper's W).
    history: VecDeque<u32>,
    /// What it was seen to do; an estimate above that is a try.
    sure: u32,
    /// Periods in a row that used the estimate up.
    rises: u32,
}

impl Capacity {
    /// Begins with what was profiled.
    #[must_use]
    pub fn new(config: &MonitorConfig) -> Self {
        let estimate = config.profiled.all;
        Self { estimate, history: VecDeque::new(), sure: estimate, rises: 0 }
    }

    /// In tokens a period.
    #[must_use]
    pub fn estimate(&self) -> u32 {
        self.estimate
    }

    /// The same, without what is only tried.
    #[must_use]
    pub fn sure(&self) -> u32 {
        self.sure.min(self.estimate)
    }

    /// A period is over that completed so much, in which so many clients waited for the server;
    /// `wants_more` says that with those that waited for tokens they could have used it up.
    pub fn learn(
        &mut self,
        config: &MonitorConfig,
        completed: u64,
        waiting: Waiting,
        wants_more: bool,
    ) {
        let completed = u32::try_from(completed).unwrap_or(u32::MAX);
        match config.rules.estimation {
            Estimation::Published => self.learn_as_published(config, completed),
            // The clients did not ask for more: nothing is known of what there was.
            Estimation::Sampled if waiting == Waiting::Few && !wants_more => {}
            Estimation::Sampled => self.learn_saturated(config, completed, waiting),
        }
    }

    /// Algorithm 1.
    fn learn_as_published(&mut self, config: &MonitorConfig, completed: u32) {
        let least = config.profiled.all.saturating_sub(config.deviation.saturating_mul(3));
        if completed == self.estimate {
            self.estimate = self.estimate.saturating_add(config.increment);
        } else if (least..self.estimate).contains(&completed) {
            self.keep(completed);
            self.estimate = self.mean();
        }
    }

    /// Up by the increment when all was used, else to the mean of what was done of late: no lower
    /// bound, so that a loss is believed however large it is.
    fn learn_saturated(&mut self, config: &MonitorConfig, completed: u32, waiting: Waiting) {
        // In careful periods what happens at their ends takes some ticks.
        let ticks = config.tick.saturating_mul(AHEAD_TICKS);
        let at_ends = even::used(self.estimate, ticks, config.period);
        let nearly_all = self.estimate - at_ends.max(self.estimate / USED_UP_DIVISOR as u32);
        if completed >= nearly_all {
            self.history.clear();
            // Twice as much each time, so that much that has come back is found soon: what is
            // reserved is served first, whatever the estimate.
            let step = config.increment.saturating_mul(1 << self.rises.min(RISES_MAX));
            self.estimate = self.estimate.max(completed).saturating_add(step);
            self.rises += 1;
            // Where the server was not waited for, it did not all that it can.
            self.sure = if waiting == Waiting::Few { self.estimate } else { completed };
            return;
        }
        self.rises = 0;
        if waiting != Waiting::Several {
            // It may be its own network, or processor, that one waits for.
            return;
        }
        // What was done before the loss says nothing of what is now.
        let far = config.increment.max(1);
        self.history.retain(|&before| before.abs_diff(completed) <= far.saturating_mul(4));
        self.keep(completed);
        self.estimate = self.mean();
        self.sure = self.estimate;
    }

    fn keep(&mut self, completed: u32) {
        self.history.push_back(completed);
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
    }

    fn mean(&self) -> u32 {
        let sum: u64 = self.history.iter().map(|&count| u64::from(count)).sum();
        (sum / self.history.len().max(1) as u64) as u32
    }
}
