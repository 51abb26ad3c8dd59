//! `towpath qos admit`: what would be if a tenant had reserved so much.

use serde::Serialize;
use towpath_chunkserver::qos::{WhatIf, Would, what_if};
use towpath_qos::Share;

use super::{AdmitArgs, ask};
use crate::cli::bytes::show_count;
use crate::cli::chunk::open;
use crate::cli::error::CliError;
use crate::cli::interrupt::Interrupt;
use crate::cli::{print_json, print_text};
use crate::columns::columns;

/// The JSON object. Counts are in tokens a period.
#[derive(Debug, Serialize)]
struct AdmitReport {
    tenant: String,
    admitted: bool,
    /// Why not, and what would be.
    refusal: Option<String>,
    periods: usize,
    tenants: Vec<TenantReport>,
}

#[derive(Debug, Serialize)]
struct TenantReport {
    name: String,
    reserved: u32,
    before: u32,
    least: u32,
    mean: f64,
    missed_periods: usize,
}

impl From<Would> for TenantReport {
    fn from(would: Would) -> Self {
        let Would { name, reservation, before, least, mean, missed } = would;
        Self { name, reserved: reservation, before, least, mean, missed_periods: missed }
    }
}

pub(super) fn run(args: &AdmitArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let mut server = args.server.clone();
    // It may not be there yet, and uses no tokens.
    let tenant = server.link.tenant.take().unwrap_or_default();
    let mut session = open(&server, None, interrupt)?;
    let reply = ask(&mut session)?;
    session.close()?;
    let share = Share { reservation: args.reserve, limit: args.limit, weight: args.weight };
    let WhatIf { refused, periods, tenants } =
        what_if(&reply, &tenant, share, args.periods.into()).map_err(CliError::WhatIf)?;
    let report = AdmitReport {
        tenant,
        admitted: refused.is_none(),
        refusal: refused.map(|error| error.to_string()),
        periods,
        tenants: tenants.into_iter().map(TenantReport::from).collect(),
    };
    match args.server.link.json {
        true => print_json(&report)?,
        false => print_text(&report.text())?,
    }
    match report.refusal {
        None => Ok(()),
        Some(reason) => Err(CliError::WouldBeRefused { tenant: report.tenant, reason }),
    }
}

impl AdmitReport {
    fn text(&self) -> String {
        if !self.admitted {
            return String::new();
        }
        let row = |tenant: &TenantReport| {
            [
                tenant.name.clone(),
                show_count(tenant.reserved.into()),
                show_count(tenant.before.into()),
                show_count(tenant.mean.round() as u64),
                show_count(tenant.least.into()),
                tenant.missed_periods.to_string(),
            ]
        };
        let head = ["tenant", "reserved", "now", "then", "at least", "missed"];
        let rows: Vec<_> = self.tenants.iter().map(row).collect();
        format!(
            "tenant {} would be admitted; {} simulated periods, in tokens a period:\n{}",
            self.tenant,
            self.periods,
            columns(head, &[0], &rows)
        )
    }
}
