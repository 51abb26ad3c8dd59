//! Leave for ordinary requests: who is served first, and with whose tokens.

use towpath_qos::{Engine, Verdict};
use towpath_transport::Time;

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
        let (ticket, reserved) = match self.tenants[index].runner {
            Runner::Server(_) => self.admit_by_engine(now, index, cost)?,
            Runner::Client(_) => (None, self.admit_by_ledger(index, cost)?),
        };
        let tenant = &mut self.tenants[index];
        let pooled = cost - reserved.min(cost);
        tenant.stats.used_reserved += u64::from(cost - pooled);
        tenant.stats.used_pooled += u64::from(pooled);
        tenant.stats.requests += 1;
        if pooled > 0 {
            let tag = tenant.pool_tag.max(self.pool_clock);
            self.pool_clock = tag;
            let weight = u64::from(tenant.share.weight.max(1));
            tenant.pool_tag = tag.saturating_add(u64::from(pooled) * TAG_SCALE / weight);
        }
        Some(Pass { tenant: TenantId(index as u16), ticket })
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
