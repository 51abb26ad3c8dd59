//! Figures 4.3 to 4.8, tables 4.2 and 4.3: from a request to its reply.

use super::setting::{
    CLIENTS, PROGRAM, TRANSPORTS, WAITING, params, plan, points, program, transports,
};
use super::shown::{claim, fitted_points, line, notes, outcomes, over_clients, plain, us};
use super::thesis::{self, Figure};
use crate::model::{Outcome, Program, Transport, Waiting};
use towpath_lab::studies::{
    Axis, Cell, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Study, StudyError,
    Table, box_of,
};

pub(super) const STUDY: Study = Study {
    name: "kv latency",
    what: "from a request to its reply at a key-value store: means, percentiles, CDF, boxes",
    mirrors: "thesis, figures 4.3 to 4.8, tables 4.2 and 4.3",
    clock: Clock::Virtual,
    params: params![
        Param {
            defaults: [
                "5,32,60",
                "1,5,10,15,20,25,32,40,50,60,70",
                "1,5,10,15,20,25,32,40,50,60,70"
            ],
            ..CLIENTS
        },
        TRANSPORTS,
        WAITING,
        PROGRAM
    ],
    run: ask,
};

/// Those of the tables, and of the drawings of distributions.
const SHOWN: [u32; 3] = [5, 32, 60];

struct Row {
    transport: Transport,
    waiting: Waiting,
    clients: u32,
    outcome: Outcome,
}

impl Row {
    /// The model was fitted to its 95th percentile.
    fn is_fitted(&self) -> bool {
        thesis::is_fitted(Figure::P95(self.clients), self.transport, self.waiting)
    }
}

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let points = points(params, &CLIENTS);
    let program = program(params);
    let plans: Vec<_> = points.iter().map(|&point| plan(params, program, point)).collect();
    let seen = outcomes(&mut report, runner, &plans)?;
    let rows = points.into_iter().zip(seen);
    let rows: Vec<Row> = rows
        .map(|((transport, waiting, clients), outcome)| Row {
            transport,
            waiting,
            clients,
            outcome,
        })
        .collect();
    report.tables = vec![table(&rows, program)];
    let figures =
        [(Waiting::Polling, ["4.3", "4.4", "4.5"]), (Waiting::Blocking, ["4.6", "4.8", "4.7"])];
    for (waiting, figures) in figures {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.waiting == waiting).collect();
        if !rows.is_empty() {
            let of_thesis = program == Program::Thesis;
            report.plots.extend(plots(&rows, (waiting, of_thesis), figures, &transports(params)));
        }
    }
    report.claims = claims(&rows, program);
    report.notes = notes();
    Ok(report)
}

fn table(rows: &[Row], program: Program) -> Table {
    let columns = vec![
        plain("waiting", "waiting", ""),
        plain("transport", "transport", ""),
        plain("clients", "clients", ""),
        us("mean_us", "mean"),
        us("thesis_mean_us", "thesis"),
        us("median_us", "median"),
        us("thesis_median_us", "thesis"),
        us("quartiles_us", "IQR"),
        us("thesis_quartiles_us", "thesis"),
        us("p95_us", "p95"),
        us("thesis_p95_us", "thesis"),
        us("p99_us", "p99"),
        us("thesis_p99_us", "thesis"),
        us("deviation_us", "deviation"),
        us("thesis_deviation_us", "thesis"),
        plain("fitted", "fitted", ""),
    ];
    let row = |row: &Row| -> Vec<Cell> {
        let at = |share| row.outcome.quantile_us(share);
        let ours = [at(0.5), at(0.75) - at(0.25), at(0.95), at(0.99), row.outcome.deviation_us()];
        let is_thesis = program == Program::Thesis;
        let known =
            |clients| is_thesis.then(|| thesis::latency(row.transport, row.waiting, clients));
        let thesis = known(row.clients).flatten();
        let mean = thesis::mean_us(row.transport, row.waiting, row.clients);
        let mut cells: Vec<Cell> = vec![
            row.waiting.word().into(),
            row.transport.word().into(),
            u64::from(row.clients).into(),
            row.outcome.mean_us().into(),
            mean.filter(|_| is_thesis).into(),
        ];
        for (place, ours) in ours.into_iter().enumerate() {
            cells.extend([ours.into(), thesis.map(|thesis| thesis[place]).into()]);
        }
        cells.push(if is_thesis && row.is_fitted() { "95 %".into() } else { Cell::Absent });
        cells
    };
    let title = "From a request to its reply".to_owned();
    Table { name: "latency", title, columns, rows: rows.iter().map(row).collect() }
}

/// Means over the number of clients, and CDF and boxes of three of them.
fn plots(
    rows: &[&Row],
    (waiting, of_thesis): (Waiting, bool),
    [means, curves, boxes]: [&str; 3],
    transports: &[Transport],
) -> Vec<Plot> {
    let word = waiting.word();
    let of = |transport: Transport| rows.iter().filter(move |row| row.transport == transport);
    let mean = |&transport: &Transport| {
        let points = of(transport).map(|row| (f64::from(row.clients), row.outcome.mean_us()));
        line(transport.word(), points)
    };
    let series = transports.iter().map(mean).collect();
    let title = format!("{word}, mean, figure {means}");
    let mut plots = vec![over_clients(title, "latency", "us", series)];
    for clients in SHOWN {
        let shown: Vec<&&Row> = rows.iter().filter(|row| row.clients == clients).collect();
        if shown.is_empty() {
            continue;
        }
        // Beyond the last percentile but one the axis would be that of a few.
        let most = shown.iter().map(|row| row.outcome.quantile_us(0.97)).fold(1.0, f64::max);
        let curve = |row: &&&Row| {
            let points = (0..=100).map(|percent| {
                let share = f64::from(percent) / 100.0;
                (row.outcome.quantile_us(share), share)
            });
            line(row.transport.word(), points)
        };
        let fitted = shown.iter().filter(|row| of_thesis && row.is_fitted());
        let fitted = fitted.map(|row| (row.outcome.quantile_us(0.95), 0.95)).collect();
        plots.push(Plot {
            title: format!("{word}, {clients} clients, figure {curves}"),
            x: Axis::linear("latency", "us").range(0.0, most * 1.1),
            y: Axis::linear("share of operations", "").range(0.0, 1.0),
            series: shown.iter().map(curve).chain(fitted_points(fitted)).collect(),
        });
        plots.push(boxes_of(&shown, format!("{word}, {clients} clients, figure {boxes}")));
    }
    plots
}

fn boxes_of(rows: &[&&Row], title: String) -> Plot {
    let each = rows.iter().map(|row| {
        let us = row.outcome.latencies.iter().map(|&ns| f64::from(ns) / 1e3);
        let quartiles = [0.25, 0.5, 0.75].map(|share| row.outcome.quantile_us(share));
        (row.transport.word().to_owned(), box_of(us, quartiles))
    });
    Plot::boxes(title, "transport", Axis::linear("latency", "us"), each)
}

fn claims(rows: &[Row], program: Program) -> Vec<Claim> {
    if program != Program::Thesis {
        return Vec::new();
    }
    let each = rows.iter().filter_map(|row| {
        let [_, _, p95, ..] = thesis::latency(row.transport, row.waiting, row.clients)?;
        if row.is_fitted() {
            return None;
        }
        let off = ((row.outcome.quantile_us(0.95) / p95 - 1.0) * 100.0).abs();
        let (word, waiting) = (row.transport.word(), row.waiting.word());
        let what = format!("{word}, {waiting}, {} clients, p95, off the thesis's", row.clients);
        let name = format!("p95_{waiting}_{word}_{}", row.clients);
        Some(claim(name, what, Demand::AtMost(20.0), (off, "%", 1)))
    });
    each.collect()
}
