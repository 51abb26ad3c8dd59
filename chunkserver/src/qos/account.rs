//! What clients do, held against what they have and what they tell.

use towpath_qos::{Look, Report, Slot, Words as _};
use towpath_transport::Time;

use super::limits::UNDER_WAY_MAX;
use super::node::Node;

impl Node {
    /// What clients say that they did, beside what the server has seen.
    pub(super) fn hold_to_account(&mut self) {
        let slack = u64::from(slack_of_reports(self.monitor.config().profiled.one));
        for tenant in &self.tenants {
            let is_held = tenant.seat().is_some() && tenant.was_whole_period && tenant.is_seen;
            if let Some(report) = self.monitor.report(tenant.slot).filter(|_| is_held) {
                self.ledger.compare(tenant.slot, report.last.done.into(), slack);
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
                may_use[tenant.slot.index()] = reserved + self.slack_of(tenant.slot);
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
            let slot = tenant.slot;
            self.ledger.cap(slot, u64::from(limit) + self.slack_of(slot));
        }
    }

    /// What a client may do in a period beyond the tokens of that period: what was under way when
    /// it began, and a batch that was taken early.
    pub(super) fn slack_of(&self, slot: Slot) -> u64 {
        let batch = self.monitor.start_for(slot, Time::ZERO).map_or(0, |start| start.batch);
        UNDER_WAY_MAX + u64::from(batch)
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
        monitor.tick(now, table)
    }
}

/// How much what a client tells may differ from what the server has seen: reports are a tick old,
/// and I/Os under way are counted by one of them only.
fn slack_of_reports(one: u32) -> u32 {
    one / 100 + 2 * UNDER_WAY_MAX as u32
}
