//! Data access (figure 3): an I/O uses a token of the reservation (step T2), or else one of the
//! pool (step T3), or waits (step T4).

use super::{Action, Engine};
use crate::even;
use crate::limits::{AHEAD_TICKS, ASKS_PER_REPORT};
use crate::messages::PeriodStart;
use crate::monitor::WINDOW_ALL;
use crate::words::{Epoch, PoolWord, Taken};
use towpath_base::{Nanos, Time};

/// Leave for one I/O (step D).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the engine waits for its end"]
pub struct Ticket {
    epoch: Epoch,
    cost: u32,
}

impl Ticket {
    /// Tokens that it used.
    #[must_use]
    pub fn cost(self) -> u32 {
        self.cost
    }
}

/// Why an I/O waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There are no tokens: some are being asked for, or the next period brings them.
    NoTokens,
    /// The client's limit of this period is used up.
    Limit,
    /// It has its part of the server, and as much as that under way: one that ends makes room.
    Window,
    /// No period has begun.
    NoPeriod,
}

impl Engine {
    /// The client wants to do some I/Os, which cost so many tokens together.
    pub fn arrived(&mut self, now: Time, ios: u32, cost: u32) {
        self.demand.arrived(now, ios, cost);
    }

    /// I/Os that had [arrived](Self::arrived) will not be done.
    pub fn withdrawn(&mut self, now: Time, ios: u32, cost: u32) {
        self.demand.withdrawn(now, ios, cost);
    }

    /// Leave for an I/O that has [arrived](Self::arrived).
    ///
    /// # Errors
    /// [`Refusal`]: it waits. Ask again after [`fetched`](Self::fetched), the start of a period, or
    /// [`next_timeout`](Self::next_timeout).
    pub fn admit(&mut self, now: Time, cost: u32) -> Result<Ticket, Refusal> {
        self.manage(now);
        let Some(period) = self.period else { return Err(Refusal::NoPeriod) };
        if self.rules.checks_epoch && now >= period.end() {
            // What it holds is of a time that is over.
            return Err(Refusal::NoTokens);
        }
        if period.start.limit.is_some_and(|limit| self.used.saturating_add(cost) > limit) {
            return Err(Refusal::Limit);
        }
        if self.demand.under_way() >= self.window(now) {
            return Err(Refusal::Window);
        }
        let usable = self.usable(now);
        let reserved = cost.min(usable);
        let pooled = cost - reserved;
        if pooled > self.held {
            // Who has said all that it wants, and has reserved as much, has no use for more.
            let is_covered = self.demand.said().is_some_and(|said| said <= self.residual);
            self.wanted = if is_covered { 0 } else { pooled - self.held };
            if self.is_careful && usable < self.residual {
                // What an even use has when it has enough, or the pool before that.
                let spent = period.start.reservation - self.residual;
                let span = even::careful(period.start.period, self.tick);
                let at = even::when(period.start.reservation, spent + cost, span);
                let ahead = self.tick.saturating_mul(AHEAD_TICKS);
                self.even_at = period.began + Nanos(at.0.saturating_sub(ahead.0));
            }
            return Err(Refusal::NoTokens);
        }
        self.residual -= reserved;
        self.held -= pooled;
        self.used = self.used.saturating_add(cost);
        self.even_at = Time::NEVER;
        self.demand.went(now, cost);
        // Who uses tokens of the pool asks for the next ones before these are used up: to wait for
        // them would leave its part of the server to others.
        let is_short = pooled > 0 && self.held < self.batch().div_ceil(2);
        let asks = self.rules.keeps_windows && is_short && self.demand.is_waiting();
        self.wanted = u32::from(asks);
        Ok(Ticket { epoch: period.start.epoch, cost })
    }

    /// I/Os that may be under way now: who lags its goal may have all that it can.
    fn window(&self, now: Time) -> u32 {
        let divides = |start: &PeriodStart| start.window != WINDOW_ALL && self.rules.keeps_windows;
        let Some(period) = self.period.filter(|period| divides(&period.start)) else {
            return self.demand.most();
        };
        let (start, passed) = (period.start, period.passed(now));
        let due = |tokens| even::used(tokens, passed, start.period);
        if self.used < due(start.goal) {
            return self.demand.most();
        }
        let ahead = self.used.saturating_sub(due(start.expected));
        // The less the further it is ahead, and one I/O from a tick on: what divides the network
        // may not divide by windows.
        let most = even::used(start.goal, self.tick, start.period);
        let (window, most) = (u64::from(self.demand.window()), u64::from(most.max(1)));
        let less = window * u64::from(ahead).min(most) / most;
        (window - less).max(1) as u32
    }

    /// Reservation tokens that may be used now: while somebody is behind, no more than an even use
    /// has.
    #[must_use]
    pub fn usable(&self, now: Time) -> u32 {
        let Some(period) = self.period.filter(|_| self.is_careful) else { return self.residual };
        let passed = period.passed(now) + self.tick.saturating_mul(AHEAD_TICKS);
        let span = even::careful(period.start.period, self.tick);
        let even = even::used(period.start.reservation, passed, span);
        let spent = period.start.reservation - self.residual;
        even.saturating_sub(spent).min(self.residual)
    }

    /// An I/O has come to its end.
    pub fn done(&mut self, now: Time, ticket: Ticket) {
        self.demand.done(now);
        let current = self.epoch() == Some(ticket.epoch);
        if current || !self.rules.checks_epoch {
            self.done = self.done.saturating_add(ticket.cost);
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        self.manage(now);
        if self.even_at <= now {
            // The caller asks again for what waits.
            self.even_at = Time::NEVER;
        }
        if self.wanted > 0 && self.fetch.is_none() && now >= self.retry_at {
            let count = self.batch().max(self.wanted);
            self.fetch = Some(count);
            return Some(Action::Fetch { operand: PoolWord::operand(count) });
        }
        self.report(now)
    }

    /// What the pool's word was when it was added to.
    pub fn fetched(&mut self, now: Time, was: u64) {
        let Some(count) = self.fetch.take() else { return };
        let word = PoolWord::unpack(was);
        let current = self.epoch();
        let epoch = if self.rules.checks_epoch { current } else { Some(word.epoch) };
        let taken = match epoch.map(|epoch| PoolWord::taken(was, epoch, count)) {
            Some(Taken::Tokens(taken)) => taken,
            Some(Taken::OtherEpoch) | None => {
                let there = PoolWord::taken(was, word.epoch, count);
                if let Taken::Tokens(taken @ 1..) = there
                    && current.is_some_and(|current| word.epoch == current.next())
                {
                    // The period has begun, and its message is on the way.
                    self.early = Some((word.epoch, taken));
                }
                0
            }
        };
        let taken = match taken {
            1.. if !self.rules.takes_what_is_there => count,
            taken => taken,
        };
        self.held = self.held.saturating_add(taken);
        if taken == 0 && self.rules.backs_off {
            // Very many clients that ask in vain would fill the network: they report more seldom,
            // and ask some times in between.
            let reports = self.period.map_or(self.tick, |period| period.start.report_every);
            self.retry_at = now + self.tick.max(Nanos(reports.0 / ASKS_PER_REPORT));
        }
        self.wanted = self.wanted.saturating_sub(taken);
    }

    /// Whether an addition to the pool's word was carried out is not known: its tokens, if it was,
    /// are nobody's until the monitor counts what there is.
    pub fn fetch_lost(&mut self, now: Time) {
        self.fetch = None;
        self.retry_at = now + self.tick;
    }
}
