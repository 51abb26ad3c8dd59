//! More and more clients: what tokens cost, and how many are stranded.

use super::setting::{self, CAPACITY, PERIODS, WARM_UP};
use super::shown::claim;
use super::system::{System, TICKS, capacity};
use super::token_setting::{LONG, tells_of_throughput};
use crate::world::{ClientPlan, Outcome, Pattern, Plan, Rates};
use towpath_base::Nanos;
use towpath_lab::studies::{
    Cell, Clock, Column, Demand, Format, Kind, Param, Params, Report, Runner, Study, StudyError,
    Table,
};

/// The study.
pub(super) const STUDY: Study = Study {
    name: "haechi scale",
    what: "ten to a thousand clients: throughput, stranded tokens, atomics and reports",
    mirrors: "no published counterpart: Haechi has ten clients",
    clock: Clock::Virtual,
    params: &[
        CAPACITY,
        LONG,
        TICKS,
        Param { defaults: ["2", "4", "10"], ..PERIODS },
        Param { defaults: ["1", "1", "2"], ..WARM_UP },
        NUMBERS,
        RESERVED,
    ],
    run,
};

const NUMBERS: Param = Param {
    name: "clients",
    what: "Clients, each on a host of its own",
    unit: "hosts",
    kind: Kind::Count(1..=1_000),
    many: true,
    defaults: ["10,100", "10,100,1000", "10,100,1000"],
};

const RESERVED: Param = Param {
    name: "reserved",
    what: "What all of them have reserved of the capacity",
    unit: "share",
    kind: Kind::Share(0.05..=0.95),
    many: false,
    defaults: ["90%"; 3],
};

/// I/Os that all clients have under way together, beyond ten clients with 64.
const UNDER_WAY: u64 = 1_000;

/// Wire bytes of the answer to an atomic, and to a WRITE: what they take of the server's port.
const ATOMIC_BYTES: f64 = 94.0;
const REPORT_BYTES: f64 = 86.0;

fn depth(clients: u64) -> u32 {
    (UNDER_WAY / clients).clamp(1, 64) as u32
}

fn plan(params: &Params, clients: u64, system: System) -> Plan {
    let each = capacity(params) / clients as f64;
    let reserved = (each * params.share(RESERVED.name)) as u32;
    let client = ClientPlan::new((each * 2.0) as u32, Pattern::Burst).reserved(reserved);
    let plan = setting::plan_with(params, depth(clients), vec![client; clients as usize]);
    let tick = Nanos(plan.period.0 / params.count(TICKS.name));
    Plan { rules: system.rules(), tick, ..plan }
}

/// One number of clients, bare and ours.
struct Seen {
    clients: u64,
    bare: Outcome,
    ours: Outcome,
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let each = params.counts(NUMBERS.name).iter();
    let points = each.flat_map(|&clients| [(clients, System::Bare), (clients, System::Ours)]);
    let label =
        |&(clients, system): &(u64, System)| format!("{clients} clients, {}", system.word());
    let run = |&(clients, system): &(u64, System)| plan(params, clients, system).run();
    let seen = report.run(runner, points.collect(), label, run, |outcome| &outcome.end)?;
    let mut seen = seen.into_iter();
    let seen: Vec<Seen> = std::iter::from_fn(|| {
        let ((clients, _), bare) = seen.next()?;
        Some(Seen { clients, bare, ours: seen.next()?.1 })
    })
    .collect();
    report.tables = vec![table(params, &seen)];
    for seen in &seen {
        let number = seen.clients as usize;
        let what = format!("{number} clients: reservations missed, by client and period");
        let measured = (missed(params, seen) as f64, "", 0);
        report.claims.push(claim(("missed", number), what, Demand::AtMost(0.0), measured));
        let what = format!("{number} clients: stranded tokens");
        let measured = (stranded(params, seen) * 100.0, "%", 3);
        report.claims.push(claim(("stranded", number), what, Demand::AtMost(0.5), measured));
        if tells_of_throughput(params) {
            let what = format!("{number} clients: less than the bare system");
            let measured = (lost(seen) * 100.0, "%", 2);
            report.claims.push(claim(("lost", number), what, Demand::AtMost(0.1), measured));
        }
    }
    report.notes = vec![setting::ports(params)];
    report.notes.push(format!(
        "all clients have {UNDER_WAY} I/Os under way together, none more than 64; each wants twice \
         its part of the capacity; what tokens take of the server's port is {ATOMIC_BYTES} bytes \
         for an atomic and {REPORT_BYTES} for a report"
    ));
    Ok(report)
}

fn lost(seen: &Seen) -> f64 {
    1.0 - seen.ours.ios_per_s() / seen.bare.ios_per_s()
}

fn stranded(params: &Params, seen: &Seen) -> f64 {
    let stranded: u64 = seen.ours.stranded.iter().sum();
    stranded as f64 / (capacity(params) * seen.ours.stranded.len().max(1) as f64)
}

fn missed(params: &Params, seen: &Seen) -> usize {
    let reserved = plan(params, seen.clients, System::Ours).clients[0].reservation();
    (0..seen.clients as usize).map(|client| seen.ours.missed(client, reserved)).sum()
}

fn table(params: &Params, seen: &[Seen]) -> Table {
    let columns = vec![
        Column::new("clients", "clients", "", Format::Plain),
        Column::new("depth", "under way", "each", Format::Plain),
        Column::new("bare_per_s", "bare", "I/Os/s", Format::Decimals(0)),
        Column::new("ours_per_s", "ours", "I/Os/s", Format::Decimals(0)),
        Column::new("lost", "lost", "%", Format::Percent(2)),
        Column::new("periods_missed", "missed", "all together", Format::Plain),
        Column::new("bare_periods_missed", "bare", "missed", Format::Plain),
        Column::new("stranded", "stranded", "% of tokens", Format::Percent(3)),
        Column::new("atomics_per_s", "atomics", "1/s", Format::Decimals(0)),
        Column::new("reports_per_s", "reports", "1/s", Format::Decimals(0)),
        Column::new("of_port", "their part", "% of port", Format::Percent(3)),
    ];
    let port = Rates::bits_per_s(setting::rates(params).all) as f64 / 8.0;
    let row = |seen: &Seen| -> Vec<Cell> {
        let ours = &seen.ours;
        let (atomics, reports) = (ours.per_s(ours.fetches), ours.per_s(ours.reports));
        let reserved = plan(params, seen.clients, System::Ours).clients[0].reservation();
        let clients = seen.clients as usize;
        let bare: usize = (0..clients).map(|client| seen.bare.missed(client, reserved)).sum();
        vec![
            seen.clients.into(),
            u64::from(depth(seen.clients)).into(),
            seen.bare.ios_per_s().into(),
            ours.ios_per_s().into(),
            lost(seen).into(),
            (missed(params, seen) as u64).into(),
            (bare as u64).into(),
            stranded(params, seen).into(),
            atomics.into(),
            reports.into(),
            ((atomics * ATOMIC_BYTES + reports * REPORT_BYTES) / port).into(),
        ]
    };
    let title = "More and more clients".to_owned();
    Table { name: "scale", title, columns, rows: seen.iter().map(row).collect() }
}
