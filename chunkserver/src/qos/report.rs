//! What is told of reservations to who asks.

use towpath_fastpath::qos::wire::{PeriodReport, QosReply, RefusedReport, TenantReport};
use towpath_qos::{PoolWord, Report, Words as _};

use super::node::Node;
use super::tenant::Tenant;

impl Node {
    /// How reservations are kept.
    pub(crate) fn report(&mut self) -> QosReply {
        let pool = PoolWord::unpack(self.table.pool());
        let config = self.monitor.config();
        let last = self.ends.iter().map(|end| PeriodReport {
            completed: end.completed,
            estimate: end.estimate,
            was_behind: end.was_behind,
            was_saturated: end.was_saturated,
        });
        let refused = self.refused().iter().map(|refused| RefusedReport {
            tenant: refused.tenant.clone(),
            reason: refused.error.to_string(),
        });
        QosReply {
            period_ns: config.period.0,
            tick_ns: config.tick.0,
            periods: self.periods,
            profiled: config.profiled.all,
            profiled_one: config.profiled.one,
            estimate: self.monitor.estimate(),
            reserved: self.monitor.reserved(),
            pool: pool.tokens,
            converted: self.monitor.converted(),
            is_careful: self.monitor.is_careful(),
            is_overcommitted: self.monitor.is_overcommitted(),
            spoilt: self.monitor.spoilt(),
            read_weight: self.config.weights.read.into(),
            write_weight: self.config.weights.write.into(),
            last: last.collect(),
            tenants: self.tenants.iter().filter_map(|tenant| self.report_of(tenant)).collect(),
            refused: refused.collect(),
            file_error: self.file_error().unwrap_or_default().to_owned(),
        }
    }

    fn report_of(&self, tenant: &Tenant) -> Option<TenantReport> {
        if tenant.is_removed {
            return None;
        }
        let known = self.monitor.report(tenant.slot)?;
        let Report { is_backlogged, held, residual, done, .. } = known.last;
        let entry = self.ledger.entry(tenant.slot).unwrap_or_default();
        Some(TenantReport {
            name: tenant.name.clone(),
            reserve: tenant.share.reservation,
            limit: tenant.share.limit,
            weight: tenant.share.weight.into(),
            done,
            done_before: known.done_before,
            residual,
            held,
            missed_periods: known.missed_periods,
            unused_periods: known.unused_periods,
            has_client: tenant.seat().is_some(),
            is_lost: known.is_lost,
            is_backlogged,
            used_reserved: tenant.stats.used_reserved,
            used_pooled: tenant.stats.used_pooled,
            used_one_sided: tenant.stats.used_one_sided,
            requests: tenant.stats.requests,
            overrun: entry.overrun_ever,
            overrun_periods: entry.overrun_periods,
            misreports: entry.misreports,
            cut_off: tenant.stats.cut_off,
            lost_periods: tenant.stats.lost_periods,
        })
    }
}
