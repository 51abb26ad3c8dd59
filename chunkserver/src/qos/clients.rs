//! Clients that run the engine of a tenant themselves: how they join and leave, and what the server
//! sees of what they do.

use std::ops::Range;

use thiserror::Error;
use towpath_qos::{PeriodStart, Share, Verdict};
use towpath_transport::{LaneError, Nanos, Time};

use super::config::QosConfig;
use super::limits::WORDS_PER_TICK;
use super::node::{Mail, Node};
use super::tenant::{Runner, Seat, TenantId, Work};

/// What a client that joins is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) tenant: TenantId,
    /// In tokens a second.
    pub(crate) share: Share,
    pub(crate) tick: Nanos,
    /// Where the words are in the table: of the pool, and the client's own. For who runs an engine.
    pub(crate) words: Option<(Range<usize>, Range<usize>)>,
}

/// A link that says whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comer {
    pub(crate) seat: Seat,
    /// It has said so before.
    pub(crate) is_member: bool,
    /// The device can say what is served to it.
    pub(crate) is_seen: bool,
    /// Its client runs the engine of the tenant.
    pub(crate) runs_engine: bool,
}

/// Why a client does not become the one of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Nobody has that name.
    #[error("there is no such tenant")]
    NoSuchTenant,
    /// Another client runs its engine.
    #[error("another client has the tokens of this tenant")]
    Taken,
    /// It was cut off.
    #[error("the tenant did I/O without tokens, and may not join for {0}")]
    Barred(Nanos),
    /// It cannot be granted its words.
    #[error("the words of the tenant cannot be granted: {0}")]
    NoWords(#[from] LaneError),
}

impl Node {
    /// A link says whose it is. One that runs the engine has the tenant's tokens from now on, and
    /// nobody else may act for the tenant.
    pub(crate) fn join(
        &mut self,
        now: Time,
        name: &str,
        comer: Comer,
    ) -> Result<Joined, JoinError> {
        let Comer { seat, is_member, runs_engine, .. } = comer;
        self.wake(now);
        let tenant = self.find(name).ok_or(JoinError::NoSuchTenant)?;
        let index = tenant.index();
        let slot = self.tenants[index].slot;
        if self.tenants[index].seat().is_some_and(|other| other != seat) {
            return Err(JoinError::Taken);
        }
        // What nobody has named, and scrubs, are of many.
        let is_shared = [TenantId::OTHERS, TenantId::SCRUB].contains(&tenant);
        let has_others = self.tenants[index].links > usize::from(is_member);
        if runs_engine && (is_shared || has_others) {
            return Err(JoinError::Taken);
        }
        let words = if runs_engine { Some(self.hand_over(now, index, comer)?) } else { None };
        debug_assert!(words.is_none() || self.table.report_range(slot).is_some());
        if tenant != TenantId::OTHERS {
            self.tenants[index].links += usize::from(!is_member);
        }
        let share = self.tenants[index].share;
        Ok(Joined { tenant, share, tick: self.config.tick, words })
    }

    fn hand_over(
        &mut self,
        now: Time,
        index: usize,
        Comer { seat, is_seen, .. }: Comer,
    ) -> Result<(Range<usize>, Range<usize>), JoinError> {
        let tenant = &mut self.tenants[index];
        if now < tenant.barred_until {
            return Err(JoinError::Barred(tenant.barred_until.since(now)));
        }
        let slot = tenant.slot;
        let report = self.table.report_range(slot).ok_or(JoinError::NoSuchTenant)?;
        let left = match &tenant.runner {
            Runner::Server(engine) => engine.tokens().0,
            // It has joined already, and may have lost the answer: it has its tokens.
            Runner::Client(_) => return Ok((self.table.pool_range(), report)),
        };
        tenant.runner = Runner::Client(seat);
        tenant.is_seen = is_seen && !self.config.trusts_clients;
        tenant.was_whole_period = false;
        (tenant.taken_seen, tenant.looked_at) = (self.monitor.taken(&mut self.table), now);
        let used = self.ledger.entry(slot).map_or(0, |entry| entry.charged);
        if let Some(start) = self.monitor.start_for(slot, now) {
            // What the server's engine used of it is gone.
            let used = u32::try_from(used).unwrap_or(u32::MAX);
            let limit = start.limit.map(|limit| limit.saturating_sub(used));
            // The part of the period that is over counts as one in which nothing was asked for: an
            // engine that begins now gives up what an even use would have had of it.
            let rest = start.period.0.saturating_sub(start.elapsed.0).max(1);
            let whole = u128::from(left) * u128::from(start.period.0) / u128::from(rest);
            let whole = u32::try_from(whole).unwrap_or(u32::MAX);
            let reservation = whole.min(start.reservation).max(left);
            let start = PeriodStart { reservation, limit, ..start };
            self.tenants[index].batch = start.batch;
            self.tell(Mail::Push(seat, start.emit().to_vec()));
        }
        if self.tenants[index].is_seen {
            let slack = self.tenants[index].slack();
            self.ledger.limit(slot, used + u64::from(left) + slack);
            self.cap(index);
        }
        Ok((self.table.pool_range(), report))
    }

    /// A link that had named a tenant is gone.
    pub(crate) fn forget(&mut self, tenant: TenantId) {
        if let Some(tenant) = self.tenants.get_mut(tenant.index()) {
            tenant.links = tenant.links.saturating_sub(1);
        }
    }

    /// A client does not run the engine of its tenant any more. The server runs it again, and has
    /// tokens from the next period on.
    pub(crate) fn leave(&mut self, tenant: TenantId, seat: Seat) {
        if let Some(tenant) = self.tenants.get_mut(tenant.index())
            && tenant.seat() == Some(seat)
        {
            tenant.take_over(&self.config);
            let slot = tenant.slot;
            self.ledger.limit(slot, u64::MAX);
        }
    }

    /// What the client of a tenant has done one-sided since that was last looked at. One that does
    /// I/O without tokens is cut off.
    pub(crate) fn served(&mut self, now: Time, id: TenantId, seat: Seat, work: Work) {
        match self.tenants.get(id.index()) {
            Some(tenant) if tenant.seat() == Some(seat) => {}
            _ => return,
        }
        let taken = self.monitor.taken(&mut self.table);
        let next_period = self.next_period;
        let QosConfig { period, trusts_clients, .. } = self.config;
        let began = Time(next_period.0.saturating_sub(period.0));
        let one = self.monitor.config().profiled.one;
        let tenant = &mut self.tenants[id.index()];
        tenant.is_seen = !trusts_clients;
        // Additions of a client are not told from each other's: it may have got all that left the
        // pool meanwhile, but no more than its additions can have taken.
        let got = taken.saturating_sub(std::mem::replace(&mut tenant.taken_seen, taken));
        let got = got.min(tenant.taken_max(work.additions));
        let since = std::mem::replace(&mut tenant.looked_at, now);
        let ticks = 1 + now.since(since).0 / self.config.tick.0.max(1);
        let free = WORDS_PER_TICK.saturating_mul(ticks);
        let extra = (work.additions + work.words).saturating_sub(free);
        let tokens = work.tokens + extra;
        tenant.stats.used_one_sided += tokens;
        if !tenant.is_seen {
            return;
        }
        self.ledger.allow(tenant.slot, got);
        // Where the first worker has begun a period since the last look, what one client does in
        // the time before may be of the period that is over.
        let before = u128::from(one) * u128::from(began.since(since).0);
        let before = u64::try_from(before / u128::from(period.0.max(1))).unwrap_or(u64::MAX);
        let cost = u32::try_from(tokens.saturating_sub(before)).unwrap_or(u32::MAX);
        if let Verdict::Overrun { by } = self.ledger.charge(tenant.slot, cost) {
            tracing::warn!(tenant = tenant.name, by, "cut off: one-sided I/O without tokens");
            tenant.stats.cut_off += 1;
            tenant.barred_until = next_period;
            tenant.take_over(&self.config);
            self.ledger.limit(tenant.slot, u64::MAX);
            self.tell(Mail::CutOff(seat));
        }
    }
}
