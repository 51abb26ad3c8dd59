//! What is shown of reservations.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use towpath_chunkserver::qos::UNUSED_PERIODS_TOLD;
use towpath_fastpath::qos::wire::{PeriodReport, QosReply, RefusedReport, TenantReport};

use crate::cli::bytes::show_count;
use crate::columns::columns;

/// The JSON object of `towpath qos`. Rates are in tokens a second; a token is 4 KiB of I/O.
#[derive(Debug, Serialize)]
pub(super) struct QosReport {
    /// When this was asked, in milliseconds since 1970 (UTC).
    unix_ms: u64,
    period_ms: f64,
    tick_us: f64,
    periods: u64,
    profiled: u64,
    profiled_one: u64,
    estimate: u64,
    reserved: u64,
    /// Tokens in the pool now; none before the first period.
    pool: Option<i64>,
    converted: u64,
    careful: bool,
    overcommitted: bool,
    pool_spoilt: u64,
    read_weight: u32,
    write_weight: u32,
    tenants: Vec<Tenant>,
    last_periods: Vec<Period>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Tenant {
    name: String,
    reserve: u32,
    limit: Option<u32>,
    weight: u32,
    /// What it did in the last period, as a rate.
    rate: u64,
    /// Tokens of the period under way.
    done: u32,
    residual: u32,
    held: u32,
    missed_periods: u64,
    unused_periods: u32,
    backlogged: bool,
    client: bool,
    lost: bool,
    used_reserved: u64,
    used_pooled: u64,
    used_one_sided: u64,
    requests: u64,
    overrun: u64,
    overrun_periods: u64,
    misreports: u64,
    lost_periods: u64,
    cut_off: u64,
}

#[derive(Debug, Serialize)]
struct Period {
    completed: u64,
    estimate: u32,
    behind: bool,
    saturated: bool,
}

impl From<QosReply> for QosReport {
    fn from(reply: QosReply) -> Self {
        let second = |tokens: u64| {
            (u128::from(tokens) * 1_000_000_000 / u128::from(reply.period_ns.max(1))) as u64
        };
        let warnings = warnings(&reply);
        let tenant = |tenant: &TenantReport| Tenant {
            name: tenant.name.clone(),
            reserve: tenant.reserve,
            limit: tenant.limit,
            weight: tenant.weight,
            rate: second(tenant.done_before.into()),
            done: tenant.done,
            residual: tenant.residual,
            held: tenant.held,
            missed_periods: tenant.missed_periods,
            unused_periods: tenant.unused_periods,
            backlogged: tenant.is_backlogged,
            client: tenant.has_client,
            lost: tenant.is_lost,
            used_reserved: tenant.used_reserved,
            used_pooled: tenant.used_pooled,
            used_one_sided: tenant.used_one_sided,
            requests: tenant.requests,
            overrun: tenant.overrun,
            overrun_periods: tenant.overrun_periods,
            misreports: tenant.misreports,
            lost_periods: tenant.lost_periods,
            cut_off: tenant.cut_off,
        };
        let mut tenants: Vec<Tenant> = reply.tenants.iter().map(tenant).collect();
        tenants.sort_by(|a, b| b.reserve.cmp(&a.reserve).then_with(|| a.name.cmp(&b.name)));
        let period = |period: &PeriodReport| Period {
            completed: period.completed,
            estimate: period.estimate,
            behind: period.was_behind,
            saturated: period.was_saturated,
        };
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX),
            period_ms: reply.period_ns as f64 / 1e6,
            tick_us: reply.tick_ns as f64 / 1e3,
            periods: reply.periods,
            profiled: second(reply.profiled.into()),
            profiled_one: second(reply.profiled_one.into()),
            estimate: second(reply.estimate.into()),
            reserved: second(reply.reserved),
            pool: (reply.periods > 0).then_some(reply.pool),
            converted: reply.converted,
            careful: reply.is_careful,
            overcommitted: reply.is_overcommitted,
            pool_spoilt: reply.spoilt,
            read_weight: reply.read_weight,
            write_weight: reply.write_weight,
            last_periods: reply.last.iter().map(period).collect(),
            tenants,
            warnings,
        }
    }
}

/// What whoever looks after the server should know.
fn warnings(reply: &QosReply) -> Vec<String> {
    let mut told = Vec::new();
    if reply.is_overcommitted {
        told.push(format!(
            "{} tokens a period are reserved, more than the estimated capacity of {}: some tenants \
             will miss their reservations, and no new reservation is admitted",
            show_count(reply.reserved),
            show_count(reply.estimate.into())
        ));
    }
    for RefusedReport { tenant, reason } in &reply.refused {
        told.push(format!("tenant {tenant} keeps its old settings: {reason}"));
    }
    if !reply.file_error.is_empty() {
        told.push(format!("the file of tenants was not applied: {}", reply.file_error));
    }
    for tenant in &reply.tenants {
        let name = &tenant.name;
        if tenant.reserve > 0 && tenant.unused_periods >= UNUSED_PERIODS_TOLD {
            told.push(format!(
                "tenant {name} has not used its reservation for {} periods: consider a smaller one",
                show_count(tenant.unused_periods.into())
            ));
        }
        if tenant.cut_off > 0 {
            told.push(format!(
                "tenant {name} was cut off {} times since the server started, for one-sided I/O \
                 without tokens",
                show_count(tenant.cut_off)
            ));
        }
        if tenant.misreports > 0 {
            told.push(format!(
                "tenant {name} reported wrong counts in {} periods since the server started",
                show_count(tenant.misreports)
            ));
        }
    }
    told
}

const HEAD: [&str; 11] = [
    "tenant",
    "reserve/s",
    "limit/s",
    "weight",
    "rate/s",
    "of it",
    "left",
    "state",
    "missed",
    "overrun",
    "requests",
];

impl QosReport {
    /// The time of day.
    pub(super) fn clock(&self) -> String {
        let seconds = self.unix_ms / 1_000;
        format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
    }

    pub(super) fn text(&self) -> String {
        let pool = self.pool.map_or_else(|| "-".into(), |pool| pool.to_string());
        let mut text = format!(
            "Capacity: {}/s estimated, {}/s configured (operations of 4 KiB)\n\
             Reserved: {}/s, {}/s left\n\
             Pool: {pool} tokens now, {} returned to it since the start\n",
            show_count(self.estimate),
            show_count(self.profiled),
            show_count(self.reserved),
            show_count(self.estimate.saturating_sub(self.reserved)),
            show_count(self.converted),
        );
        if let Some(last) = self.last_periods.last() {
            let state = match (last.behind, last.saturated) {
                (true, _) => ", a reservation was behind",
                (_, true) => ", the server was busy all the time",
                _ => "",
            };
            let (number, done) = (show_count(self.periods), show_count(last.completed));
            // Writing to a string does not fail.
            let _ = writeln!(text, "Period {number}; the one before did {done}{state}");
        }
        text += &columns(HEAD, &[0, 7], &self.tenants.iter().map(row).collect::<Vec<_>>());
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        text
    }
}

fn row(tenant: &Tenant) -> [String; 11] {
    let count = |count: u32| show_count(count.into());
    let share = match tenant.reserve {
        0 => String::from("-"),
        reserve => format!("{:.0} %", tenant.rate as f64 * 100.0 / f64::from(reserve)),
    };
    let state = match tenant {
        Tenant { lost: true, .. } => "silent",
        Tenant { client: true, backlogged: true, .. } => "one-sided, waits",
        Tenant { client: true, .. } => "one-sided",
        Tenant { backlogged: true, .. } => "waits",
        _ => "",
    };
    [
        tenant.name.clone(),
        count(tenant.reserve),
        tenant.limit.map_or_else(|| "-".into(), count),
        count(tenant.weight),
        show_count(tenant.rate),
        share,
        count(tenant.residual),
        state.into(),
        show_count(tenant.missed_periods),
        show_count(tenant.overrun),
        show_count(tenant.requests),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_shown_from_the_first_period_on() {
        // What a server of an earlier version says before its first period.
        let pool = -(1_i64 << 47);
        let before = QosReply { period_ns: 1_000_000_000, pool, ..QosReply::default() };
        for (periods, pool, text, json) in [
            (0, pool, "Pool: - tokens", "\"pool\":null,"),
            (1, -5, "Pool: -5 tokens", "\"pool\":-5,"),
        ] {
            let report = QosReport::from(QosReply { periods, pool, ..before.clone() });
            assert!(report.text().contains(text), "{}", report.text());
            let shown = serde_json::to_string(&report).expect("it is an object");
            assert!(shown.contains(json), "{shown}");
        }
    }
}
