//! What clients do, held against what they have and what they tell.

use towpath_qos::{Look, PeriodEnd, Report, Words as _};
use towpath_transport::Time;

use super::limits::{IO_TOKENS_MAX, UNDER_WAY_MAX};
use super::node::Node;
use super::tenant::Tenant;

impl Node {
    /// What clients say that they did in the period that ends, beside what the server has seen.
    pub(super) fn hold_to_account(&mut self, end: &PeriodEnd) {
        if end.completed == 0 {
            // Nobody was asked to report.
            return;
        }
        let slack = u64::from(slack_of_reports(self.monitor.config().profiled.one));
        for tenant in &self.tenants {
            let is_held = tenant.seat().is_some() && tenant.was_whole_period && tenant.is_seen;
            if let Some(report) = self.monitor.report(tenant.slot).filter(|_| is_held) {
                self.ledger.compare(tenant.slot, report.done_before.into(), slack);
            }
        }
    }

    pub(super) fn begin_ledger(&mut self) {
        let slots = self.tenants.iter().map(|tenant| tenant.slot.index() + 1).max().unwrap_or(0);
        let mut may_use = vec![u64::MAX; slots];
        for tenant in self.tenants.iter().filter(|tenant| !tenant.is_removed) {
            // Where the device does not say what it serves, nothing can be held against anybody.
            if tenant.seat().is_some() && tenant.is_seen {
                let reserved = u64::from(tenant.of_period.reservation);
                may_use[tenant.slot.index()] = reserved + tenant.slack();
            }
        }
        let epoch = self.monitor.epoch();
        self.ledger.begin(epoch, slots, |slot| may_use.get(slot.index()).copied().unwrap_or(0));
        for index in 0..self.tenants.len() {
            self.tenants[index].taken_seen = 0;
            self.cap(index);
        }
    }

    /// A client's limit holds at the server as well.
    pub(super) fn cap(&mut self, index: usize) {
        let tenant = &self.tenants[index];
        let is_held = tenant.seat().is_some() && tenant.is_seen && !tenant.is_removed;
        if let Some(limit) = tenant.of_period.limit.filter(|_| is_held) {
            self.ledger.cap(tenant.slot, u64::from(limit) + tenant.slack());
        }
    }

    /// The monitor's look, at what clients say as far as it agrees with what the server has seen.
    pub(super) fn look(&mut self, now: Time) -> Look {
        let Self { monitor, table, ledger, tenants, .. } = self;
        let (epoch, shift) = (monitor.epoch(), monitor.unit_shift());
        let slack = slack_of_reports(monitor.config().profiled.one);
        for tenant in tenants.iter().filter(|tenant| tenant.seat().is_some() && tenant.is_seen) {
            let told = Report::unpack(table.report(tenant.slot), epoch, shift);
            let entry = ledger.entry(tenant.slot).filter(|_| tenant.was_whole_period);
            if let (Some(told), Some(entry)) = (told, entry) {
                let seen = u32::try_from(entry.charged).unwrap_or(u32::MAX);
                let least = seen.saturating_sub(slack);
                let done = told.done.clamp(least, seen.saturating_add(slack));
                if done != told.done {
                    // It is written again by its client; what matters is what is read now.
                    table.write_report(tenant.slot, Report { done, ..told }.pack(epoch, shift));
                }
            }
        }
        let look = monitor.tick(now, table);
        for tenant in tenants.iter_mut().filter(|tenant| tenant.was_whole_period) {
            let is_lost = tenant.seat().is_some()
                && monitor.report(tenant.slot).is_some_and(|report| report.is_lost);
            if is_lost && !std::mem::replace(&mut tenant.was_lost, true) {
                tenant.stats.lost_periods += 1;
            }
        }
        look
    }
}

impl Tenant {
    /// What its client may do in a period beyond the tokens of that period: what was under way when
    /// it began, and a batch that was taken early.
    pub(super) fn slack(&self) -> u64 {
        UNDER_WAY_MAX + u64::from(self.batch)
    }

    /// What so many additions to the pool's word can have taken at most. Each is of a batch, or of
    /// what one I/O lacks.
    pub(super) fn taken_max(&self, additions: u64) -> u64 {
        additions.saturating_mul(IO_TOKENS_MAX.max(self.batch.into()))
    }
}

/// How much what a client tells may differ from what the server has seen: reports are a tick old,
/// and I/Os under way are counted by one of them only.
fn slack_of_reports(one: u32) -> u32 {
    one / 100 + 2 * UNDER_WAY_MAX as u32
}
