//! Tables and targets.

use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Cell, Claim, Column, Demand, Format, Params, Plot, Report, Series, Study, Style, Table,
};

use super::TENANTS;
use super::world::{Seen, System};

/// A period in which less of a reservation was got is one that was missed.
const LEAST: f64 = 0.98;

/// What one tenant got of one system, over all rounds.
struct Got {
    /// What was reserved, in reads a period.
    reserved: f64,
    done: Samples,
    missed: u64,
}

fn got(reserved: f64, rounds: &[Seen], index: usize) -> Got {
    let done: Samples =
        rounds.iter().flat_map(|seen| seen.done.iter()).map(|done| done[index] as f64).collect();
    let is_missed = |done: &&f64| **done < LEAST * reserved;
    let missed = done.values().iter().filter(is_missed).count() as u64;
    Got { reserved, done, missed }
}

fn name(system: System) -> &'static str {
    match system {
        System::Bare => "bare",
        System::Reserved { .. } => "reserved",
    }
}

pub(super) fn report(
    study: &Study,
    params: &Params,
    (iops, shares, systems): (f64, [f64; 3], &[System]),
    seen: &[Vec<Seen>],
) -> Report {
    let mut report = Report::new(study.name, params);
    let reserved = shares.map(|share| iops * share);
    report.tables.push(tenants(iops, reserved, systems, seen));
    for (&system, rounds) in systems.iter().zip(seen) {
        for (index, tenant) in TENANTS.into_iter().enumerate() {
            let got = got(reserved[index], rounds, index);
            // The greedy one gets more than it has reserved where nobody stops it.
            let demand = match (system, index) {
                (System::Reserved { .. }, _) => Demand::AtMost(0.0),
                (System::Bare, 0) => continue,
                (System::Bare, _) => Demand::AtLeast(1.0),
            };
            report.claims.push(Claim {
                name: format!("missed_{}_{tenant}", name(system)),
                what: format!("{}: periods in which {tenant} got less than 98 %", name(system)),
                demand,
                measured: got.missed as f64,
                unit: "periods",
                decimals: 0,
            });
        }
        report.plots.push(plot(reserved, system, rounds));
    }
    report.notes.push(
        "the server's periods where it keeps reservations, seconds of the system's clock where it \
         does not; two periods before those shown are left out"
            .to_owned(),
    );
    report
}

fn tenants(iops: f64, reserved: [f64; 3], systems: &[System], seen: &[Vec<Seen>]) -> Table {
    let mut rows = Vec::new();
    for (&system, rounds) in systems.iter().zip(seen) {
        for (index, tenant) in TENANTS.into_iter().enumerate() {
            let Got { reserved, done, missed } = got(reserved[index], rounds, index);
            let least = done.percentile(0.0);
            let latency = |what: usize| {
                let all: Samples = rounds.iter().map(|seen| seen.latency_us[index][what]).collect();
                Cell::Number(all.median())
            };
            rows.push(vec![
                name(system).into(),
                tenant.into(),
                Cell::Count(reserved as u64),
                Cell::Count(done.median() as u64),
                Cell::Number(least / reserved),
                Cell::Count(missed),
                Cell::Count(done.count() as u64),
                latency(0),
                latency(1),
                latency(2),
            ]);
        }
    }
    Table {
        name: "tenants",
        title: format!("Reads of 4 KiB in periods of a second; the machine does {iops:.0}"),
        columns: vec![
            Column::new("system", "system", "", Format::Plain),
            Column::new("tenant", "tenant", "", Format::Plain),
            Column::new("reserved", "reserved", "", Format::Plain),
            Column::new("median", "median", "", Format::Plain),
            Column::new("least_share", "least of it", "%", Format::Percent(1)),
            Column::new("missed", "missed", "periods", Format::Plain),
            Column::new("periods", "of", "periods", Format::Plain),
            Column::new("mean_us", "mean", "us", Format::Decimals(0)),
            Column::new("p99_us", "p99", "us", Format::Decimals(0)),
            Column::new("p999_us", "p99.9", "us", Format::Decimals(0)),
        ],
        rows,
    }
}

fn plot(reserved: [f64; 3], system: System, rounds: &[Seen]) -> Plot {
    let all = || rounds.iter().flat_map(|seen| seen.done.iter()).zip(1..);
    let mut series = Vec::new();
    for (index, tenant) in TENANTS.into_iter().enumerate() {
        let points = all().map(|(done, x)| (f64::from(x), done[index] as f64 / 1e3)).collect();
        series.push(Series { label: tenant.to_owned(), style: Style::Line, points });
        let points = all().map(|(_, x)| (f64::from(x), reserved[index] / 1e3)).collect();
        let label = format!("{tenant}, reserved");
        series.push(Series { label, style: Style::Bound, points });
    }
    Plot {
        title: format!("Reads in each period, {}", name(system)),
        x: Axis::linear("period", "s"),
        y: Axis::linear("reads", "thousands"),
        series,
    }
}
