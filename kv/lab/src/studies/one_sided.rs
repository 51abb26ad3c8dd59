//! GETs that wake nobody, beside requests and replies.

use super::setting::{CLIENTS, params, plan};
use super::shown::{claim, line, notes, outcomes, over_clients, plain, ratio, us};
use crate::model::{Outcome, Program, Transport, Waiting};
use towpath_kv::workload::Mix;
use towpath_lab::studies::{
    Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Report, Runner, Study,
    StudyError, Table,
};

pub(super) const STUDY: Study = Study {
    name: "kv one-sided",
    what: "GETs by READ beside requests and replies: our programs, GETs alone",
    mirrors: "no figure of the thesis: at least 1.5 times the rate at 16 clients, no thread awake",
    clock: Clock::Virtual,
    params: params![
        READS,
        Param {
            defaults: ["1,16,32", "1,2,4,8,16,24,32,48,64", "1,2,4,8,16,24,32,48,64"],
            ..CLIENTS
        }
    ],
    run: ask,
};

const READS: Param = Param {
    name: "reads",
    what: "READs of a GET: 1 for a bucket with keys and values, 2 for index and value",
    unit: "",
    kind: Kind::Count(1..=8),
    many: false,
    defaults: ["1"; 3],
};

/// What is compared: how clients wait, and how the server's threads do.
const WAYS: [(&str, Transport, Waiting, Waiting); 5] = [
    ("one-sided, clients poll", Transport::OneSided, POLL, SLEEP),
    ("RC, clients poll", Transport::Rc, POLL, SLEEP),
    ("RC, all poll", Transport::Rc, POLL, POLL),
    ("one-sided, all sleep", Transport::OneSided, SLEEP, SLEEP),
    ("RC, all sleep", Transport::Rc, SLEEP, SLEEP),
];

const POLL: Waiting = Waiting::Polling;
const SLEEP: Waiting = Waiting::Blocking;

struct Row {
    clients: u32,
    seen: Vec<Outcome>,
}

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let clients: Vec<u32> = params.counts(CLIENTS.name).iter().map(|&count| count as u32).collect();
    let mut plans = Vec::new();
    for &clients in &clients {
        plans.extend(WAYS.iter().map(|&(_, transport, waiting, server_waiting)| {
            let mut plan = plan(params, Program::Ours, (transport, waiting, clients));
            (plan.mix, plan.server_waiting) = (Mix::C, server_waiting);
            plan.reads = params.count(READS.name) as u32;
            plan
        }));
    }
    let mut seen = outcomes(&mut report, runner, &plans)?.into_iter();
    let row = |&clients| Row { clients, seen: seen.by_ref().take(WAYS.len()).collect() };
    let rows: Vec<Row> = clients.iter().map(row).collect();
    report.tables = vec![table(&rows)];
    let lines = WAYS.iter().enumerate().map(|(place, way)| {
        let points = rows.iter().map(|row| (f64::from(row.clients), row.seen[place].per_s() / 1e3));
        line(way.0, points)
    });
    let title = "GETs a second".to_owned();
    report.plots = vec![over_clients(title, "operations", "thousands/s", lines.collect())];
    report.claims = claims(&rows);
    report.notes = notes();
    Ok(report)
}

fn table(rows: &[Row]) -> Table {
    let columns = vec![
        plain("clients", "clients", ""),
        plain("way", "way", ""),
        plain("per_s", "GETs", "1/s"),
        ratio("of_rc", "of RC", "whose clients wait alike"),
        us("median_us", "median"),
        us("p99_us", "p99"),
        Column::new("server_ns", "server", "ns of a processor, each", Format::Decimals(0)),
        plain("server_switches", "server", "switches"),
    ];
    let of = |row: &Row| -> Vec<Vec<Cell>> {
        let each = WAYS.iter().zip(&row.seen).map(|(way, seen)| {
            let is_like = |other: &(_, _, _, _)| other.1 == Transport::Rc && other.2 == way.2;
            let rc = WAYS.iter().position(is_like);
            let rc = rc.map(|place| seen.per_s() / row.seen[place].per_s());
            let worked = seen.server_worked as f64 / seen.latencies.len().max(1) as f64;
            vec![
                u64::from(row.clients).into(),
                way.0.into(),
                (seen.per_s().round() as u64).into(),
                rc.into(),
                seen.quantile_us(0.5).into(),
                seen.quantile_us(0.99).into(),
                worked.into(),
                seen.switches(1).into(),
            ]
        });
        each.collect()
    };
    let title = "GETs of 1,000 bytes".to_owned();
    Table { name: "one_sided", title, columns, rows: rows.iter().flat_map(of).collect() }
}

/// That one-sided GETs cost the server's threads nothing is in the model: no target is made of it.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let Some(row) = rows.iter().find(|row| row.clients == 16) else { return Vec::new() };
    let [polls, rc, ..] = &row.seen[..] else { return Vec::new() };
    vec![claim(
        "times_16".to_owned(),
        "16 clients that poll, server's threads sleep, one-sided of RC".to_owned(),
        Demand::AtLeast(1.5),
        (polls.per_s() / rc.per_s(), "", 2),
    )]
}
