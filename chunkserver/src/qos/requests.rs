//! Leave for ordinary requests: who is served first, and with whose tokens.

use towpath_qos::{Engine, Verdict};
use towpath_transport::Time;

use super::limits::PAID_AT_ONCE;
use super::node::{Node, drive};
use super::tenant::{Runner, Tenant, TenantId};

/// Leave for one request; [`Node::done`] takes it back.
#[derive(Debug)]
#[must_use = "the tenant's engine waits for its end"]
pub(crate) struct Pass {
    tenant: TenantId,
    ticket: Option<towpath_qos::Ticket>,
}

/// One token in the order of the pool, at weight 1.
const TAG_SCALE: u64 = 1 << 16;

impl Node {
    /// A request has come in that costs so much.
    ///
    /// # Errors
    /// What its tenant may use in a period: no request that costs more is ever done, and this one
    /// is as if it had not come.
    pub(crate) fn arrived(&mut self, now: Time, id: TenantId, cost: u32) -> Result<(), u32> {
        self.wake(now);
        let estimate = self.monitor.estimate();
        let tenant = self.tenant_mut(id);
        let limit = tenant.of_period.limit.unwrap_or(u32::MAX).min(estimate);
        if cost > limit {
            return Err(limit);
        }
        if let Some(engine) = tenant.engine_mut() {
            engine.arrived(now, 1, cost);
        }
        Ok(())
    }

    /// A request that had [come in](Self::arrived) will not be done.
    pub(crate) fn withdrawn(&mut self, now: Time, tenant: TenantId, cost: u32) {
        if let Some(engine) = self.tenant_mut(tenant).engine_mut() {
            engine.withdrawn(now, 1, cost);
        }
    }

    /// Sorts tenants with waiting requests: reserved work first, by the deadlines of an even use,
    /// which has the next token at `T (R - left) / R`; then those that need tokens of the pool, by
    /// weight. Who has most of its reservation left is first, not who has most tokens left: else a
    /// large reservation has the server to itself until little is left of it, and who has few
    /// requests under way cannot do all of its own in what remains of the period.
    pub(crate) fn order(&mut self, now: Time, waiting: &mut [TenantId]) {
        let key = |id: &TenantId| {
            let tenant = &self.tenants[self.resolve(*id)];
            let left = match &tenant.runner {
                Runner::Server(engine) => match engine.usable(now) {
                    0 => 0,
                    _ => engine.tokens().0.into(),
                },
                Runner::Client(_) => self.reserved_left(tenant),
            };
            let reserved = u64::from(tenant.of_period.reservation).max(left);
            match left {
                0 => (1, tenant.pool_tag.max(self.pool_clock), id.0),
                left => (0, ((reserved - left) << 32) / reserved, id.0),
            }
        };
        waiting.sort_by_cached_key(key);
    }

    /// Tokens that a tenant may still use in this period, where it has a limit.
    pub(crate) fn room_below_limit(&self, id: TenantId) -> Option<u64> {
        let tenant = &self.tenants[self.resolve(id)];
        let charged = self.ledger.entry(tenant.slot).map_or(0, |entry| entry.charged);
        tenant.of_period.limit.map(|limit| u64::from(limit).saturating_sub(charged))
    }

    fn reserved_left(&self, tenant: &Tenant) -> u64 {
        let charged = self.ledger.entry(tenant.slot).map_or(0, |entry| entry.charged);
        u64::from(tenant.of_period.reservation).saturating_sub(charged)
    }

    /// Requests that may have tokens wait for the store.
    pub(crate) fn note_full(&mut self) {
        self.monitor.note_full();
    }

    /// Leave for a request that had [come in](Self::arrived); none while its tenant has no tokens.
    pub(crate) fn admit(&mut self, now: Time, id: TenantId, cost: u32) -> Option<Pass> {
        // Who waits since an earlier period is somebody who wants something.
        self.wake(now);
        let index = self.resolve(id);
        if !self.pay(now, index, PAID_AT_ONCE) {
            return None;
        }
        let ticket = self.spend(now, index, cost)?;
        self.tenants[index].stats.requests += 1;
        Some(Pass { tenant: TenantId(index as u16), ticket })
    }

    /// Work is done that a request of a tenant has caused and that was not in its cost. It is paid
    /// with what the tenant has left of its reservation, and the rest when it wants something: then
    /// it has its turn for tokens of the pool.
    pub(crate) fn owe(&mut self, now: Time, id: TenantId, cost: u64) {
        self.wake(now);
        let index = self.resolve(id);
        let owed = self.tenants[index].owed.saturating_add(cost);
        self.tenants[index].owed = owed;
        let part = owed.min(self.payable(now, index).0);
        if let Ok(part @ 1..) = u32::try_from(part) {
            self.pay_part(now, index, part);
        }
    }

    /// Pays what a tenant owes, as far as it can; whether that is all.
    pub(crate) fn pays(&mut self, now: Time, id: TenantId) -> bool {
        self.wake(now);
        let index = self.resolve(id);
        self.pay(now, index, u64::MAX)
    }

    /// Pays no more than `most` of what a tenant owes; whether that is all.
    fn pay(&mut self, now: Time, index: usize, mut most: u64) -> bool {
        while self.tenants[index].owed > 0 {
            let (reserved, held) = self.payable(now, index);
            // One that it has not asks the pool for more.
            let part = (reserved + held).clamp(1, PAID_AT_ONCE);
            let part = part.min(self.tenants[index].owed).min(most);
            if part == 0 || !self.pay_part(now, index, part as u32) {
                return false;
            }
            most -= part;
        }
        true
    }

    fn pay_part(&mut self, now: Time, index: usize, part: u32) -> bool {
        if let Some(engine) = self.tenants[index].engine_mut() {
            engine.arrived(now, 1, part);
        }
        let paid = self.spend(now, index, part);
        let tenant = &mut self.tenants[index];
        if paid.is_some() {
            tenant.owed -= u64::from(part);
        }
        match (paid, tenant.engine_mut()) {
            (Some(Some(ticket)), Some(engine)) => engine.done(now, ticket),
            (None, Some(engine)) => engine.withdrawn(now, 1, part),
            _ => {}
        }
        paid.is_some()
    }

    /// Tokens of its reservation and of the pool that a tenant has and may use within its limit.
    fn payable(&self, now: Time, index: usize) -> (u64, u64) {
        let tenant = &self.tenants[index];
        let (reserved, held) = match &tenant.runner {
            Runner::Server(engine) => (engine.usable(now).into(), engine.tokens().1.into()),
            Runner::Client(_) => (self.reserved_left(tenant), 0),
        };
        let room = self.room_below_limit(TenantId(index as u16)).unwrap_or(u64::MAX);
        (reserved.min(room), held.min(room.saturating_sub(reserved)))
    }

    /// Nobody asked for anything in a whole period: its tokens pay what is owed.
    pub(super) fn forgive(&mut self) {
        self.tenants.iter_mut().for_each(|tenant| tenant.owed = 0);
    }

    /// Takes tokens of a tenant; none where it has not so many.
    fn spend(&mut self, now: Time, index: usize, cost: u32) -> Option<Option<towpath_qos::Ticket>> {
        let (ticket, reserved) = match self.tenants[index].runner {
            Runner::Server(_) => self.admit_by_engine(now, index, cost)?,
            Runner::Client(_) => (None, self.admit_by_ledger(index, cost)?),
        };
        let tenant = &mut self.tenants[index];
        let pooled = cost - reserved.min(cost);
        tenant.stats.used_reserved += u64::from(cost - pooled);
        tenant.stats.used_pooled += u64::from(pooled);
        if pooled > 0 {
            let tag = tenant.pool_tag.max(self.pool_clock);
            self.pool_clock = tag;
            let weight = u64::from(tenant.share.weight.max(1));
            tenant.pool_tag = tag.saturating_add(u64::from(pooled) * TAG_SCALE / weight);
        }
        Some(ticket)
    }

    /// With the tokens of its reservation that it took.
    fn admit_by_engine(
        &mut self,
        now: Time,
        index: usize,
        cost: u32,
    ) -> Option<(Option<towpath_qos::Ticket>, u32)> {
        let Self { tenants, table, ledger, .. } = self;
        let tenant = &mut tenants[index];
        let slot = tenant.slot;
        let engine = tenant.engine_mut()?;
        let spent = |engine: &Engine| engine.tokens().0 + engine.yielded();
        let before = spent(engine);
        let ticket = match engine.admit(now, cost) {
            Ok(ticket) => ticket,
            Err(_) => {
                // The pool is at hand: nobody has to wait for what it has.
                drive(engine, table, slot, now);
                engine.admit(now, cost).ok()?
            }
        };
        let reserved = before.saturating_sub(spent(engine));
        // The engine is the server's own, and takes no more than there is.
        let _ = ledger.charge(slot, cost);
        Some((Some(ticket), reserved))
    }

    fn admit_by_ledger(&mut self, index: usize, cost: u32) -> Option<u32> {
        let tenant = &self.tenants[index];
        let left = self.reserved_left(tenant);
        match self.ledger.charge_if_within(tenant.slot, cost) {
            Verdict::Within => Some(u32::try_from(left).unwrap_or(u32::MAX).min(cost)),
            Verdict::Overrun { .. } => None,
        }
    }

    /// A request has come to its end.
    pub(crate) fn done(&mut self, now: Time, pass: Pass) {
        let Pass { tenant, ticket } = pass;
        let engine = self.tenants.get_mut(tenant.index()).and_then(Tenant::engine_mut);
        if let Some((engine, ticket)) = engine.zip(ticket) {
            engine.done(now, ticket);
        }
    }
}
