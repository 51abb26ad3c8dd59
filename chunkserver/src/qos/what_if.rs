//! What would be if a tenant had reserved so much: the production monitor in virtual time, from the
//! state that a server tells.

use thiserror::Error;
use towpath_fastpath::qos::wire::{QosReply, TenantReport};
use towpath_qos::{AdmissionError, Capacities, Share, Weights};
use towpath_transport::{MemoryError, Nanos};

use super::config::{QosConfig, Shares};
use super::limits::TENANTS_MAX;
use super::model::{Asks, Model};
use super::node::Node;

/// Requests that a tenant with enough to do keeps waiting: as many as the paper's clients do.
const WAITING: usize = 64;

/// Periods that are left out: the first begins without anything under way.
const SKIPPED: usize = 2;

/// Tokens that are simulated in a period, at most. A server that does more is simulated at a scale:
/// shares stay what they are, and the answer comes within seconds.
const TOKENS_MAX: u32 = 50_000;

/// Periods that servers have, and ticks in each: shorter and longer ones are not simulated.
const PERIOD_MAX: Nanos = Nanos::from_secs(10);
const TICKS_MAX: u64 = 10_000;

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WhatIfError {
    /// The server keeps no reservations.
    #[error("the server keeps no reservations: start it with --qos-iops")]
    NoReservations,
    /// A server says something that none is like.
    #[error("the server's report of its reservations is out of range: compare the versions")]
    OutOfRange,
    /// There is no memory for the words.
    #[error("there is no memory for the simulation")]
    Memory(#[from] MemoryError),
}

/// What would be.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// Why it would be refused; the rest is empty then.
    pub refused: Option<AdmissionError>,
    /// Periods that were simulated.
    pub periods: usize,
    /// Each tenant, as the server tells them, the one in question last.
    pub tenants: Vec<Would>,
}

/// What one tenant would have, in tokens a period.
#[derive(Clone, Debug, PartialEq)]
pub struct Would {
    /// Its name.
    pub name: String,
    /// What it would have reserved.
    pub reservation: u32,
    /// What it did in the server's last period.
    pub before: u32,
    /// What it would do in the period in which it would do least, and on average.
    pub least: u32,
    /// See there.
    pub mean: f64,
    /// Periods in which it would have enough to do and not get its reservation.
    pub missed: usize,
}

/// What would be if `tenant` had `share` (in tokens a second) and always enough to do, and others
/// went on as in the server's last period, for so many periods.
///
/// # Errors
/// [`WhatIfError`].
pub fn what_if(
    report: &QosReply,
    tenant: &str,
    share: Share,
    periods: usize,
) -> Result<WhatIf, WhatIfError> {
    if report.period_ns == 0 {
        return Err(WhatIfError::NoReservations);
    }
    let tick = report.tick_ns.max(1);
    if report.period_ns > PERIOD_MAX.0
        || report.period_ns / tick > TICKS_MAX
        || report.tenants.len() > TENANTS_MAX + 2
    {
        return Err(WhatIfError::OutOfRange);
    }
    let scale = report.estimate.div_ceil(TOKENS_MAX).max(1);
    let second = |tokens: u32| {
        let rate = u128::from(tokens) * 1_000_000_000 / u128::from(report.period_ns);
        u32::try_from(rate).unwrap_or(u32::MAX) / scale
    };
    let scaled = |share: Share| Share {
        reservation: share.reservation / scale,
        limit: share.limit.map(|limit| limit / scale),
        weight: share.weight,
    };
    let now: Shares =
        report.tenants.iter().map(|t| (t.name.clone(), scaled(share_of(t)))).collect();
    let mut then = now.clone();
    then.insert(tenant.into(), scaled(share));
    let weight = |tokens: u32| u16::try_from(tokens).unwrap_or(u16::MAX);
    let config = QosConfig {
        // What the server is thought to do now is what there is to reserve.
        capacity: Capacities { all: second(report.estimate), one: second(report.profiled_one) },
        weights: Weights { read: weight(report.read_weight), write: weight(report.write_weight) },
        period: Nanos(report.period_ns),
        tick: Nanos(tick),
        tenants: now,
        ..QosConfig::new(0)
    };
    let mut node = Node::new(config.clone())?;
    // After the others: it is the one that is refused.
    node.set_tenants(&then);
    if let Some(refused) = node.refused().iter().find(|refused| refused.tenant == tenant) {
        let refused = Some(unscaled(refused.error, scale));
        return Ok(WhatIf { refused, periods: 0, tenants: Vec::new() });
    }
    let mut model = Model::new(node, config.capacity.all, 1);
    for other in report.tenants.iter().filter(|other| other.name != tenant) {
        let rate = f64::from(other.done_before / scale) * 1e9 / report.period_ns as f64;
        let asks = if other.is_backlogged { Asks::Always(WAITING) } else { Asks::Rate(rate) };
        model.add(&other.name, 1, asks);
    }
    model.add(tenant, 1, Asks::Always(WAITING));
    model.run(periods + SKIPPED);
    let would = |name: &str, before: u32, backlogged: bool| {
        let reservation = config.share_of_period(then[name]).reservation;
        let done = model.of(name).split_off(SKIPPED);
        let sum: u64 = done.iter().map(|&tokens| u64::from(tokens)).sum();
        let is_missed = |tokens: &&u32| backlogged && **tokens < reservation;
        Would {
            name: name.into(),
            reservation: reservation.saturating_mul(scale),
            before,
            least: done.iter().copied().min().unwrap_or(0).saturating_mul(scale),
            mean: sum as f64 / done.len().max(1) as f64 * f64::from(scale),
            missed: done.iter().filter(is_missed).count(),
        }
    };
    let others = report.tenants.iter().filter(|other| other.name != tenant);
    let mut tenants: Vec<Would> =
        others.map(|other| would(&other.name, other.done_before, other.is_backlogged)).collect();
    let before = report.tenants.iter().find(|other| other.name == tenant);
    tenants.push(would(tenant, before.map_or(0, |found| found.done_before), true));
    Ok(WhatIf { refused: None, periods, tenants })
}

fn unscaled(error: AdmissionError, scale: u32) -> AdmissionError {
    let whole = |tokens: u32| tokens.saturating_mul(scale);
    match error {
        AdmissionError::Aggregate { left, one } => {
            AdmissionError::Aggregate { left: whole(left), one: whole(one) }
        }
        AdmissionError::Local { left, one } => {
            AdmissionError::Local { left: whole(left), one: whole(one) }
        }
        other => other,
    }
}

fn share_of(tenant: &TenantReport) -> Share {
    let weight = u16::try_from(tenant.weight).unwrap_or(u16::MAX);
    Share { reservation: tenant.reserve, limit: tenant.limit, weight }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, reserve: u32, done_before: u32, is_backlogged: bool) -> TenantReport {
        let name = name.into();
        TenantReport { name, reserve, done_before, is_backlogged, weight: 1, ..Default::default() }
    }

    fn report() -> QosReply {
        QosReply {
            period_ns: 100_000_000,
            tick_ns: 200_000,
            profiled: 5_000,
            profiled_one: 5_000,
            estimate: 5_000,
            read_weight: 1,
            write_weight: 1,
            tenants: vec![
                tenant("others", 0, 2_000, true),
                tenant("web", 20_000, 2_500, true),
                tenant("idle", 10_000, 100, false),
            ],
            ..QosReply::default()
        }
    }

    #[test]
    fn one_that_fits_gets_its_reservation_and_leaves_others_theirs() {
        let share = Share { reservation: 15_000, limit: None, weight: 1 };
        let found = what_if(&report(), "new", share, 5).expect("it is simulated");
        assert_eq!(found.refused, None);
        let names: Vec<&str> = found.tenants.iter().map(|would| would.name.as_str()).collect();
        assert_eq!(names, ["others", "web", "idle", "new"]);
        let [others, web, idle, new] = &found.tenants[..] else { panic!("{found:?}") };
        assert_eq!((web.missed, new.missed, idle.missed), (0, 0, 0), "{found:?}");
        assert!(web.least >= 2_000 && new.least >= 1_500, "{found:?}");
        assert!((90.0..110.0).contains(&idle.mean), "{found:?}");
        assert!(others.mean < 2_000.0, "it gives way: {found:?}");
    }

    #[test]
    fn one_that_does_not_fit_is_told_what_does() {
        let share = Share { reservation: 21_000, limit: None, weight: 1 };
        let found = what_if(&report(), "new", share, 5).expect("it is simulated");
        assert_eq!(found.refused, Some(AdmissionError::Aggregate { left: 2_000, one: 5_000 }));
        // More for one that has some already counts what it has.
        let found = what_if(&report(), "web", share, 5).expect("it is simulated");
        assert_eq!(found.refused, None);
        // A server that does a hundred times as much is asked at a scale.
        let large = |tokens: u32| tokens * 100;
        let mut busy = report();
        (busy.estimate, busy.profiled_one) = (large(busy.estimate), large(busy.profiled_one));
        for tenant in &mut busy.tenants {
            tenant.reserve = large(tenant.reserve);
            tenant.done_before = large(tenant.done_before);
        }
        let ask = |reservation| {
            let share = Share { reservation, limit: None, weight: 1 };
            what_if(&busy, "new", share, 3).expect("it is simulated")
        };
        let refused = ask(large(21_000)).refused;
        assert_eq!(refused, Some(AdmissionError::Aggregate { left: 200_000, one: 500_000 }));
        let new = ask(large(15_000)).tenants.pop().expect("it is the last one");
        assert!(new.missed == 0 && new.least >= 150_000, "{new:?}");
        let endless = QosReply { period_ns: u64::MAX, ..report() };
        let none = what_if(&endless, "new", share, 5);
        assert!(matches!(none, Err(WhatIfError::OutOfRange)));
        let none = what_if(&QosReply::default(), "new", share, 5);
        assert!(matches!(none, Err(WhatIfError::NoReservations)));
    }
}
