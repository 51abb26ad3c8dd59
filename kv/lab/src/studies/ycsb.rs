//! YCSB's workloads, with the thesis's programs and with ours.

use super::setting::{CLIENTS, TRANSPORTS, params, plan, transports};
use super::shown::{notes, outcomes, plain, ratio, us};
use crate::model::{Outcome, Program, Transport, Waiting};
use towpath_kv::workload::Mix;
use towpath_lab::studies::{
    Axis, Cell, Clock, Kind, Param, Params, Plot, Report, Runner, Study, StudyError, Table,
};

const MIXES: Param = Param {
    name: "mixes",
    what: "YCSB's workloads a, b, c, d, f; or study, the thesis's",
    unit: "",
    kind: Kind::Word(|word| match Mix::of(word) {
        Some(_) => Ok(()),
        None => Err("a, b, c, d, f or study"),
    }),
    many: true,
    defaults: ["a,b,c,d,f"; 3],
};

pub(super) const STUDY: Study = Study {
    name: "kv ycsb",
    what: "YCSB's workloads A, B, C, D and F at a key-value store, by transport",
    mirrors: "YCSB (B. F. Cooper et al., SoCC 2010), which the thesis does not run; polling",
    clock: Clock::Virtual,
    params: params![
        MIXES,
        Param { defaults: ["32"; 3], many: false, ..CLIENTS },
        Param { defaults: ["tcp,rc,uc,ud,towpath,one-sided"; 3], ..TRANSPORTS }
    ],
    run: ask,
};

struct Row {
    mix: Mix,
    transport: Transport,
    ours: Outcome,
    thesis: Option<Outcome>,
}

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let clients = params.count(CLIENTS.name) as u32;
    let mixes = params.words(MIXES.name).iter().filter_map(|word| Mix::of(word));
    let mut points = Vec::new();
    for mix in mixes {
        for transport in transports(params) {
            points.push((mix, transport, Program::Ours));
            // The thesis has neither.
            if !matches!(transport, Transport::Towpath | Transport::OneSided) {
                points.push((mix, transport, Program::Thesis));
            }
        }
    }
    let plans = points.iter().map(|&(mix, transport, program)| {
        let mut plan = plan(params, program, (transport, Waiting::Polling, clients));
        plan.mix = mix;
        plan
    });
    let plans: Vec<_> = plans.collect();
    let seen = outcomes(&mut report, runner, &plans)?;
    let mut rows: Vec<Row> = Vec::new();
    for (&(mix, transport, program), seen) in points.iter().zip(seen) {
        match (program, rows.last_mut()) {
            (Program::Thesis, Some(row)) => row.thesis = Some(seen),
            _ => rows.push(Row { mix, transport, ours: seen, thesis: None }),
        }
    }
    report.tables = vec![table(&rows)];
    report.plots = vec![bars(&rows, &transports(params))];
    report.notes = notes();
    Ok(report)
}

fn table(rows: &[Row]) -> Table {
    let columns = vec![
        plain("mix", "mix", ""),
        plain("transport", "transport", ""),
        plain("per_s", "ours", "1/s"),
        us("median_us", "median"),
        us("p99_us", "p99"),
        plain("thesis_program_per_s", "thesis's programs", "1/s"),
        us("thesis_program_p99_us", "p99"),
        ratio("ours_of_thesis_program", "ours", "of thesis's"),
    ];
    let row = |row: &Row| -> Vec<Cell> {
        let thesis = row.thesis.as_ref();
        vec![
            row.mix.word().into(),
            row.transport.word().into(),
            (row.ours.per_s().round() as u64).into(),
            row.ours.quantile_us(0.5).into(),
            row.ours.quantile_us(0.99).into(),
            thesis.map(|thesis| thesis.per_s().round() as u64).into(),
            thesis.map(|thesis| thesis.quantile_us(0.99)).into(),
            thesis.map(|thesis| row.ours.per_s() / thesis.per_s()).into(),
        ]
    };
    let title = "Operations a second".to_owned();
    Table { name: "ycsb", title, columns, rows: rows.iter().map(row).collect() }
}

fn bars(rows: &[Row], transports: &[Transport]) -> Plot {
    let mut mixes: Vec<Mix> = Vec::new();
    for row in rows {
        if !mixes.contains(&row.mix) {
            mixes.push(row.mix);
        }
    }
    let series = transports.iter().map(|&transport| {
        let of = |mix: &Mix| rows.iter().find(|row| (row.mix, row.transport) == (*mix, transport));
        let values = mixes.iter().map(|mix| of(mix).map(|row| row.ours.per_s() / 1e3));
        (transport.word().to_owned(), values.collect())
    });
    let groups: Vec<String> = mixes.iter().map(|mix| mix.word().to_owned()).collect();
    let y = Axis::linear("operations", "thousands/s");
    Plot::bars("our programs, polling".to_owned(), "workload", y, &groups, series)
}
