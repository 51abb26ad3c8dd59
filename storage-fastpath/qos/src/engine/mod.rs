//! The client's engine (section II D): every I/O is backed by a token, or waits.
//!
//! | file | what it does |
//! |---|---|
//! | `access` | data access: gives I/Os their tokens, and takes tokens from the pool |
//! | `demand` | how much the client could have used |
//! | `manage` | token management and reporting, once a tick |
//!
//! The caller tells the engine of each I/O when it [arrives](Engine::arrived), before it goes
//! ([`admit`](Engine::admit)) and when it is [done](Engine::done). It does what
//! [`poll`](Engine::poll) asks for, and asks again when [`next_timeout`](Engine::next_timeout) has
//! come. The engine reads no clock and does no I/O.

mod access;
mod demand;
mod manage;

pub use access::{Refusal, Ticket};

use crate::limits::{BATCH_MAX, DEPTH_DEFAULT, TICK};
use crate::messages::{Notice, PeriodStart};
use crate::monitor::WINDOW_ALL;
use crate::rules::Rules;
use crate::words::Epoch;
use demand::{Busy, Demand};
use towpath_base::{Nanos, Time};

/// What an engine wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// FETCH_ADD on the pool's word: [`Engine::fetched`] takes what it was, or
    /// [`Engine::fetch_lost`].
    Fetch {
        /// What to add.
        operand: u64,
    },
    /// Write the client's own word: nobody waits for that.
    Report {
        /// What to write.
        word: u64,
    },
}

/// A period, as the engine's own clock sees it.
#[derive(Clone, Copy, Debug)]
struct Period {
    start: PeriodStart,
    began: Time,
}

impl Period {
    fn passed(&self, now: Time) -> Nanos {
        now.since(self.began)
    }

    fn end(&self) -> Time {
        self.began + self.start.period
    }
}

/// A client's engine.
#[derive(Clone, Debug)]
pub struct Engine {
    rules: Rules,
    tick: Nanos,
    period: Option<Period>,
    /// Reservation tokens that are left (the paper's xi_reservation).
    residual: u32,
    /// Tokens of the pool that are left.
    held: u32,
    /// Reservation tokens that were given up in this period.
    yielded: u32,
    /// Tokens that were used.
    used: u32,
    /// I/Os that were completed, in tokens (the paper's N_i).
    done: u32,
    demand: Demand,
    /// What it did in the last tick.
    busy: Busy,
    /// How many tokens the addition to the pool's word asks for that is under way.
    fetch: Option<u32>,
    /// Tokens of a period whose start has not come yet.
    early: Option<(Epoch, u32)>,
    /// Tokens that are wanted from the pool.
    wanted: u32,
    retry_at: Time,
    managed_at: Time,
    report_at: Time,
    reports: bool,
    beat: bool,
    is_careful: bool,
    /// When an even use has tokens for what waits.
    even_at: Time,
}

impl Engine {
    /// An engine that has no tokens yet: the first period brings them.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            tick: TICK,
            period: None,
            residual: 0,
            held: 0,
            yielded: 0,
            used: 0,
            done: 0,
            demand: Demand::new(DEPTH_DEFAULT),
            busy: Busy::default(),
            fetch: None,
            early: None,
            wanted: 0,
            retry_at: Time::ZERO,
            managed_at: Time::ZERO,
            report_at: Time::NEVER,
            reports: false,
            beat: false,
            is_careful: false,
            even_at: Time::NEVER,
        }
    }

    /// I/Os that the client has under way at most: with half of them it counts as one that asks
    /// for all it could get. Default [`DEPTH_DEFAULT`].
    #[must_use]
    pub fn depth(mut self, depth: u32) -> Self {
        self.demand.set_depth(depth.max(1));
        self
    }

    /// Of these the server has so many before it at most; the others wait at the client's device.
    /// No more than [`depth`](Self::depth) get leave then, since what is under way when a period
    /// ends is done in the next. Default: all, and whoever asks keeps the depth by itself.
    #[must_use]
    pub fn at_server(mut self, ios: u32) -> Self {
        self.demand.set_at_server(ios.max(1));
        self
    }

    /// Who asks wants more as soon as it has what it asked for, so what waits is not all that is
    /// wanted: for an engine that serves clients whose limits it does not know. Default: who has
    /// more than [`depth`](Self::depth) waiting has said all.
    #[must_use]
    pub fn closed_loop(mut self) -> Self {
        self.demand.closed_loop();
        self
    }

    /// How often tokens are managed. Default [`TICK`].
    #[must_use]
    pub fn tick(mut self, tick: Nanos) -> Self {
        self.tick = tick.max(Nanos(1));
        self
    }

    /// A period begins (step T1): its tokens replace what there was. What is late, of a period that
    /// is known already, is ignored.
    pub fn start(&mut self, now: Time, start: &PeriodStart) {
        if self.rules.checks_epoch
            && let Some(period) = &self.period
        {
            // Half of all numbers are behind.
            let ahead = start.epoch.0.wrapping_sub(period.start.epoch.0);
            if ahead == 0 || ahead > u16::MAX / 2 {
                return;
            }
        }
        let passed = if self.rules.checks_epoch { start.elapsed } else { Nanos::ZERO };
        let began = Time(now.0.saturating_sub(passed.0));
        self.period = Some(Period { start: *start, began });
        (self.residual, self.yielded) = (start.reservation, 0);
        (self.used, self.done) = (0, 0);
        self.held = match self.early.take() {
            Some((epoch, count)) if epoch == start.epoch => count,
            _ => 0,
        };
        let all = !self.rules.keeps_windows;
        self.demand.begin(now, if all { WINDOW_ALL } else { start.window });
        (self.wanted, self.retry_at, self.even_at) = (0, now, Time::NEVER);
        self.managed_at = now;
        (self.reports, self.is_careful) = (start.reports, start.is_careful);
        self.report_at = if start.reports { now } else { Time::NEVER };
    }

    /// Something changes within a period (step S3).
    pub fn notice(&mut self, now: Time, notice: &Notice) {
        let current = self.period.as_ref().map(|period| period.start.epoch);
        if self.rules.checks_epoch && current != Some(notice.epoch) {
            return;
        }
        if notice.reports && !self.reports {
            (self.reports, self.report_at) = (true, now);
        }
        self.is_careful |= notice.is_careful;
    }

    /// Which period it is in.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.period.as_ref().map(|period| period.start.epoch)
    }

    /// Tokens that it holds: of its reservation, and of the pool.
    #[must_use]
    pub fn tokens(&self) -> (u32, u32) {
        (self.residual, self.held)
    }

    /// I/Os that were completed in this period, in tokens.
    #[must_use]
    pub fn completed(&self) -> u32 {
        self.done
    }

    /// Reservation tokens that it gave up in this period.
    #[must_use]
    pub fn yielded(&self) -> u32 {
        self.yielded
    }

    /// Tokens that it takes at a time.
    fn batch(&self) -> u32 {
        self.period.as_ref().map_or(BATCH_MAX, |period| period.start.batch)
    }

    /// When to ask again.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        if self.period.is_none() {
            return Time::NEVER;
        }
        let retry =
            if self.wanted > 0 && self.fetch.is_none() { self.retry_at } else { Time::NEVER };
        let manage = if self.residual > 0 { self.managed_at + self.tick } else { Time::NEVER };
        retry.min(manage).min(self.report_at).min(self.even_at)
    }
}
