//! From 32 clients to thousands.

use super::setting::{CLIENTS, TRANSPORTS, params, plan, transports};
use super::shown::{claim, line, notes, outcomes, plain, us};
use crate::model::{Outcome, Program, Transport, Waiting};
use towpath_lab::studies::{
    Axis, Cell, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner, Study,
    StudyError, Table,
};

const WORKERS: Param = Param {
    name: "workers",
    what: "Threads of the server that clients share",
    unit: "",
    kind: Kind::Count(1..=1_024),
    many: false,
    defaults: ["32"; 3],
};

pub(super) const STUDY: Study = Study {
    name: "kv many",
    what: "a key-value store with thousands of clients, whose server has a few threads for all",
    mirrors: "no figure of the thesis, which ends at 70 clients; our programs, blocking",
    clock: Clock::Virtual,
    params: params![
        Param {
            defaults: ["32,1000", "32,70,200,1000,10000", "32,70,200,1000,3000,10000"],
            ..CLIENTS
        },
        Param { defaults: ["tcp,rc,uc,ud,towpath"; 3], ..TRANSPORTS },
        WORKERS
    ],
    run: ask,
};

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let mut points = Vec::new();
    for transport in transports(params) {
        let clients = params.counts(CLIENTS.name).iter();
        points.extend(clients.map(|&clients| (transport, clients as u32)));
    }
    let plans = points.iter().map(|&(transport, clients)| {
        let mut plan = plan(params, Program::Ours, (transport, Waiting::Blocking, clients));
        plan.workers = Some(params.count(WORKERS.name) as u32);
        plan
    });
    let plans: Vec<_> = plans.collect();
    let seen = outcomes(&mut report, runner, &plans)?;
    let rows: Vec<(Transport, u32, Outcome)> = points
        .iter()
        .zip(seen)
        .map(|(&(transport, clients), seen)| (transport, clients, seen))
        .collect();
    report.tables = vec![table(&rows)];
    let lines = transports(params).into_iter().map(|transport| {
        let of = rows.iter().filter(|row| row.0 == transport);
        line(
            transport.word(),
            of.map(|(_, clients, seen)| (f64::from(*clients), seen.per_s() / 1e3)),
        )
    });
    report.plots = vec![Plot {
        title: "blocking, our programs".to_owned(),
        x: Axis::log("clients", ""),
        y: Axis::linear("operations", "thousands/s"),
        series: lines.collect(),
    }];
    let towpath = || rows.iter().filter(|row| row.0 == Transport::Towpath);
    let most = towpath().map(|row| row.2.per_s()).reduce(f64::max);
    // 32 clients do not use the server up, so what many have is held against the most.
    if let (Some(most), Some(many)) = (most, towpath().find(|row| row.1 == 1_000)) {
        let kept = many.2.per_s() / most * 100.0;
        let what = "towpath, 1,000 clients, of the most with any number".to_owned();
        let name = "many_towpath".to_owned();
        report.claims.push(claim(name, what, Demand::AtLeast(90.0), (kept, "%", 1)));
    }
    report.notes = notes();
    report.notes.push(
        "Towpath's clients share a link to each worker, as threads of one machine do; others have \
         a queue pair or a connection each, UD's server has one for all"
            .to_owned(),
    );
    Ok(report)
}

fn table(rows: &[(Transport, u32, Outcome)]) -> Table {
    let columns = vec![
        plain("transport", "transport", ""),
        plain("clients", "clients", ""),
        plain("per_s", "operations", "1/s"),
        Column::new("of_32", "of 32 clients", "%", Format::Percent(1)),
        Column::new("of_best", "of the best transport", "%", Format::Percent(1)),
        us("median_us", "median"),
        us("p99_us", "p99"),
        Column::new("misses", "card's misses", "for each", Format::Decimals(2)),
    ];
    let row = |(transport, clients, seen): &(Transport, u32, Outcome)| -> Vec<Cell> {
        let few = rows.iter().find(|row| (row.0, row.1) == (*transport, 32));
        let alike = rows.iter().filter(|row| row.1 == *clients);
        let best = alike.map(|row| row.2.per_s()).fold(0.0, f64::max);
        vec![
            transport.word().into(),
            u64::from(*clients).into(),
            (seen.per_s().round() as u64).into(),
            few.map(|few| seen.per_s() / few.2.per_s()).into(),
            (seen.per_s() / best).into(),
            seen.quantile_us(0.5).into(),
            seen.quantile_us(0.99).into(),
            (seen.misses as f64 / seen.latencies.len().max(1) as f64).into(),
        ]
    };
    let title = "More and more clients on one machine".to_owned();
    Table { name: "many", title, columns, rows: rows.iter().map(row).collect() }
}
