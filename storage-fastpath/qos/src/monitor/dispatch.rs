//! Periods begin: tokens are made, and those that are reserved are pushed (step T1).

use super::capacity::Waiting;
use super::{Monitor, Slot, Words};
use crate::limits::{BATCH_CLIENTS, CAREFUL_PERIODS, SATURATED_PERCENT};
use crate::messages::PeriodStart;
use crate::rules::{Conversion, Estimation};
use crate::words::{PoolWord, Report};
use towpath_base::Time;

/// What a period came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeriodEnd {
    /// I/Os that clients say were completed, in tokens.
    pub completed: u64,
    /// What the server is thought to do in the next period.
    pub estimate: u32,
    /// In some look somebody was behind.
    pub was_behind: bool,
    /// Nearly all the time enough clients waited for the server to use it up.
    pub was_saturated: bool,
}

impl Monitor {
    /// Ends the period that there is, and begins the next: the pool's word gets what is not
    /// reserved. Send each client its [`start_for`](Self::start_for) then.
    pub fn begin(&mut self, now: Time, words: &mut impl Words) -> PeriodEnd {
        if self.is_reporting {
            // What was done since the last look.
            self.hear(words);
        }
        let end = self.end_period();
        self.epoch = self.epoch.next();
        self.began = now;
        let reserved = self.reserved();
        let tokens = i64::from(self.capacity.tokens()) - i64::try_from(reserved).unwrap_or(0);
        let tokens = tokens.max(0);
        let is_watchful = self.config.rules.reserved_first;
        self.is_careful = is_watchful && self.careful_periods > 0;
        self.is_reporting = is_watchful;
        self.began_careful = self.is_careful;
        (self.was_behind, self.wanting_looks, self.shared_looks) = (false, 0, 0);
        (self.saturated_looks, self.contended_looks, self.done_by_gone) = (0, 0, 0);
        // In a careful period the pool begins with what one tick may use.
        let tokens = if self.is_careful { self.released(now, tokens, 0) } else { tokens };
        words.overwrite_pool(PoolWord { epoch: self.epoch, tokens }.pack());
        (self.pool_set, self.pool_taken, self.looks) = (tokens, 0, 0);
        self.taken_then.clear();
        self.taken_then.push(0);
        let looks = (self.report_every().0 / self.config.tick.0.max(1)) as u32;
        for client in self.clients.iter_mut().flatten() {
            client.begin(looks.max(1));
        }
        self.set_goals();
        end
    }

    /// What a client is told at the start of a period, at `now`.
    #[must_use]
    pub fn start_for(&self, slot: Slot, now: Time) -> Option<PeriodStart> {
        let client = self.client(slot)?;
        let share = client.share;
        Some(PeriodStart {
            epoch: self.epoch,
            period: self.config.period,
            elapsed: self.passed(now),
            reservation: client.reservation,
            limit: share.limit,
            batch: self.batch(share.weight),
            goal: client.goal,
            expected: client.expected,
            window: self.window(slot),
            report_every: self.report_every(),
            unit_shift: self.unit_shift(),
            reports: self.is_reporting,
            is_careful: self.is_careful,
        })
    }

    /// What an engine takes at a time: no more than its part, by weight, of what the server does in
    /// a tick, so that many clients do not strand many tokens.
    fn batch(&self, weight: u16) -> u32 {
        let config = &self.config;
        if !config.rules.adapts_batch {
            return config.batch_max;
        }
        let weights: u64 = self.live().map(|client| u64::from(client.share.weight.max(1))).sum();
        // Very many clients take for some ticks at a time, or they would take one by one.
        let ticks = (self.live().count() as u64).div_ceil(BATCH_CLIENTS);
        let of_tick = u128::from(self.capacity.tokens())
            * u128::from(config.tick.saturating_mul(ticks).0)
            / u128::from(config.period.0.max(1));
        let part = of_tick * u128::from(weight.max(1)) / u128::from(weights.max(1));
        part.clamp(1, u128::from(config.batch_max.max(1))) as u32
    }

    /// What a unit of a report stands for ([`Report::unit_shift`]).
    #[must_use]
    pub fn unit_shift(&self) -> u8 {
        Report::unit_shift(self.config.profiled.one.max(self.capacity.estimate()))
    }

    fn end_period(&mut self) -> PeriodEnd {
        // What a tick and a report may have missed.
        let slack = self.config.profiled.one / 250;
        let is_server = self.lacked_of_server(slack);
        let mut completed = 0;
        for client in self.clients.iter_mut().flatten() {
            client.end(slack, self.began_careful);
            completed += u64::from(client.report().done_before);
        }
        // The first reports of a period come some looks after it began.
        let nearly_all =
            |looks: usize| self.looks > 0 && looks * 100 >= self.looks * SATURATED_PERCENT;
        let was_saturated = nearly_all(self.saturated_looks);
        let waiting =
            if nearly_all(self.contended_looks) || nearly_all(self.shared_looks) && is_server {
                Waiting::Several
            } else if was_saturated || nearly_all(self.wanting_looks) {
                Waiting::One
            } else {
                Waiting::Few
            };
        if self.looks > 0 {
            let untold = match self.config.rules.estimation {
                Estimation::Published => 0,
                // Reports are as old as they are far apart, and a saturated server went on.
                Estimation::Sampled => {
                    completed * self.report_every().0 / self.config.period.0.max(1)
                }
            };
            let was_careful = self.began_careful;
            self.capacity.learn(&self.config, completed + untold, waiting, was_careful);
        }
        self.set_careful_periods();
        PeriodEnd {
            completed,
            estimate: self.capacity.estimate(),
            was_behind: self.was_behind,
            was_saturated,
        }
    }

    /// Whether the server is what clients lacked that wanted more: they are short of their goals,
    /// which windows and tokens leave room for. Where one alone was behind, and is short of its
    /// reservation, that may be its own doing, and the pool has waited for it.
    fn lacked_of_server(&self, slack: u32) -> bool {
        let mut behind = self.live().filter(|client| client.was_behind);
        let is_short = behind.next().is_some_and(|client| client.is_short(slack));
        if is_short && behind.next().is_none() {
            return false;
        }
        let wanting = self.live().filter(|client| client.is_backlogged());
        let lacked: u64 = wanting.map(|client| u64::from(client.lacks())).sum();
        lacked > self.capacity.slack(&self.config, self.began_careful).into()
    }

    /// For how many periods engines keep to an even use: one, and twice as many each time when
    /// somebody is behind again after them.
    fn set_careful_periods(&mut self) {
        if self.was_behind {
            if !self.began_careful {
                self.careful_length = (self.careful_length * 2).clamp(1, CAREFUL_PERIODS);
            }
            self.careful_periods = self.careful_length.max(1);
            return;
        }
        if !self.began_careful {
            self.careful_length = 0;
        }
        self.careful_periods = self.careful_periods.saturating_sub(1);
    }

    /// Whether tokens are converted at all.
    pub(super) fn converts(&self) -> bool {
        self.config.rules.conversion != Conversion::None
    }
}
