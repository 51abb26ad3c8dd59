//! What the server can do in a period: Algorithm 1, and what replaces it (step T3).

use super::MonitorConfig;
use crate::even;
use crate::limits::{CAREFUL_END_TICKS, HISTORY_MAX, RISES_MAX, USED_UP_DIVISOR};
use crate::rules::Estimation;
use alloc::collections::VecDeque;

/// Who wanted more than it got nearly all of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Too few clients to use the server up.
    Few,
    /// One that can do that by itself; or what they lacked may not be the server's doing.
    One,
    /// As many as can do that, more than one, and it was the server that they waited for.
    Several,
}

/// The estimate, and what it is made of.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// What the server was seen to do.
    estimate: u32,
    /// The tokens of a period: the estimate, and what is tried beyond it.
    tokens: u32,
    /// What the last periods completed that told something (the paper's W).
    history: VecDeque<u32>,
    /// What the server did when it was last tried in vain.
    failed_at: Option<u32>,
    /// Periods in a row that used the tokens up.
    rises: u32,
}

impl Capacity {
    /// Begins with what was profiled.
    #[must_use]
    pub fn new(config: &MonitorConfig) -> Self {
        let estimate = config.profiled.all;
        Self { estimate, tokens: estimate, history: VecDeque::new(), failed_at: None, rises: 0 }
    }

    /// What the server was seen to do, in tokens a period.
    #[must_use]
    pub fn estimate(&self) -> u32 {
        self.estimate
    }

    /// The tokens that the next period has: a little more than the estimate while that is tried.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Tokens that a period which used them up may leave.
    pub(super) fn slack(&self, config: &MonitorConfig, was_careful: bool) -> u32 {
        let ticks = config.tick.saturating_mul(if was_careful { CAREFUL_END_TICKS } else { 1 });
        even::used(self.tokens, ticks, config.period).max(self.tokens / USED_UP_DIVISOR as u32)
    }

    /// A period is over that completed so much, in which so many clients wanted more;
    /// `was_careful` says that engines kept to an even use from its beginning.
    pub fn learn(
        &mut self,
        config: &MonitorConfig,
        completed: u64,
        waiting: Waiting,
        was_careful: bool,
    ) {
        let completed = u32::try_from(completed).unwrap_or(u32::MAX);
        match config.rules.estimation {
            Estimation::Published => self.learn_as_published(config, completed),
            // The clients did not ask for more: nothing is known of what there was.
            Estimation::Sampled if waiting == Waiting::Few => {}
            Estimation::Sampled => self.learn_sampled(config, completed, waiting, was_careful),
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
        self.tokens = self.estimate;
    }

    /// Clients wanted more than the period brought them. Either its tokens were used up, and the
    /// next one has more; or the server did not do as much, in bursts or at an even use, and its
    /// estimate is the mean of what it did of late: no lower bound, so that a loss is believed
    /// however large it is.
    fn learn_sampled(
        &mut self,
        config: &MonitorConfig,
        completed: u32,
        waiting: Waiting,
        was_careful: bool,
    ) {
        if completed >= self.tokens - self.slack(config, was_careful) {
            self.estimate = self.estimate.max(completed);
            self.try_more(config, completed);
            return;
        }
        self.rises = 0;
        if waiting != Waiting::Several {
            // It may be its own network, or processor, that one waits for.
            return;
        }
        // What was done before the loss says nothing of what is now.
        let far = config.increment.max(1).saturating_mul(4);
        self.history.retain(|&before| before.abs_diff(completed) <= far);
        self.keep(completed);
        self.estimate = self.mean();
        (self.tokens, self.failed_at) = (self.estimate, Some(self.estimate));
    }

    /// Twice as much more each time, so that much that has come back is found soon; one increment
    /// where the server was seen to do no more than this.
    fn try_more(&mut self, config: &MonitorConfig, completed: u32) {
        let is_known = |at: u32| completed <= at.saturating_add(config.increment / 2);
        let step = match self.failed_at.filter(|&at| is_known(at)) {
            Some(_) => config.increment,
            None => {
                self.failed_at = None;
                self.history.clear();
                config.increment.saturating_mul(1 << self.rises.min(RISES_MAX))
            }
        };
        self.tokens = self.tokens.max(completed).saturating_add(step);
        self.rises += 1;
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
