//! Table 4.4: context switches with and without waiting for events.

use super::setting::{CLIENTS, THESIS_OPERATIONS, TRANSPORTS, params, plan, transports};
use super::shown::{self, claim, notes, outcomes, plain};
use super::thesis::{self, Figure};
use crate::model::{Program, Transport, Waiting};
use towpath_lab::studies::{
    Cell, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Study, StudyError, Table,
};

pub(super) const STUDY: Study = Study {
    name: "kv switches",
    what: "context switches of a key-value store's server and clients, polling and blocking",
    mirrors: "thesis, table 4.4: two for each operation at each side where threads wait for events",
    clock: Clock::Virtual,
    params: params![
        Param { defaults: ["5,32,60"; 3], ..CLIENTS },
        Param { defaults: ["uc"; 3], ..TRANSPORTS }
    ],
    run: ask,
};

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let mut points = Vec::new();
    for transport in transports(params) {
        for waiting in [Waiting::Polling, Waiting::Blocking] {
            let clients = params.counts(CLIENTS.name).iter();
            points.extend(clients.map(|&clients| (transport, waiting, clients as u32)));
        }
    }
    let program = Program::Thesis;
    let plans: Vec<_> = points.iter().map(|&point| plan(params, program, point)).collect();
    let seen = outcomes(&mut report, runner, &plans)?;
    let columns = vec![
        plain("transport", "transport", ""),
        plain("waiting", "waiting", ""),
        plain("clients", "clients", ""),
        plain("server", "server", ""),
        plain("thesis_server", "thesis", ""),
        plain("benchmark", "benchmark", ""),
        plain("thesis_benchmark", "thesis", ""),
        plain("fitted", "fitted", ""),
    ];
    let mut rows = Vec::new();
    let mut lines: Vec<Line> = Vec::new();
    let mut fitted: Vec<(f64, f64)> = Vec::new();
    for (&(transport, waiting, clients), outcome) in points.iter().zip(&seen) {
        let done = outcome.latencies.len().max(1) as f64;
        let of = |side| (outcome.switches(side) as f64 * THESIS_OPERATIONS as f64 / done) as u64;
        let (server, benchmark) = (of(1), of(0));
        let is_uc = transport == Transport::Uc;
        let thesis = thesis::switches(waiting, clients).filter(|_| is_uc);
        let is_fitted = thesis::is_fitted(Figure::Switches(clients), transport, waiting);
        if is_fitted {
            fitted.push((f64::from(clients), server as f64));
        }
        for (whose, count) in [("server", server), ("benchmark", benchmark)] {
            let at = (f64::from(clients), count as f64);
            let is_of = |line: &&mut Line| (line.0, line.1, line.2) == (waiting, whose, transport);
            match lines.iter_mut().find(is_of) {
                Some(line) => line.3.push(at),
                None => lines.push((waiting, whose, transport, vec![at])),
            }
        }
        rows.push(vec![
            transport.word().into(),
            waiting.word().into(),
            u64::from(clients).into(),
            server.into(),
            thesis.map_or(Cell::Absent, |thesis| thesis[0].into()),
            benchmark.into(),
            thesis.map_or(Cell::Absent, |thesis| thesis[1].into()),
            if is_fitted { "server".into() } else { Cell::Absent },
        ]);
        // Of those that poll the model has 60 clients' switches by its fit, and too few of fewer.
        if let Some([thesis, _]) = thesis
            && waiting == Waiting::Blocking
        {
            report.claims.push(off(waiting, clients, server as f64 / thesis as f64));
        }
    }
    let title = "Context switches, for ten million operations".to_owned();
    report.tables = vec![Table { name: "switches", title, columns, rows }];
    report.plots = drawn(&lines, &fitted);
    report.notes = notes();
    Ok(report)
}

/// Switches of the server or the benchmark, over the number of clients.
type Line = (Waiting, &'static str, Transport, Vec<(f64, f64)>);

/// The model is fitted to switches of the server alone, with clients that poll.
fn drawn(lines: &[Line], fitted: &[(f64, f64)]) -> Vec<Plot> {
    let mut plots = Vec::new();
    for waiting in [Waiting::Polling, Waiting::Blocking] {
        for whose in ["server", "benchmark"] {
            let of = lines.iter().filter(|line| (line.0, line.1) == (waiting, whose));
            let series = of.map(|line| shown::line(line.2.word(), line.3.iter().copied()));
            let is_fit = waiting == Waiting::Polling && whose == "server";
            let fitted = if is_fit { fitted.to_vec() } else { Vec::new() };
            let series = series.chain(shown::fitted_points(fitted)).collect();
            let title = format!("{}, {whose}", waiting.word());
            let y = "switches for ten million operations";
            plots.push(shown::over_clients(title, y, "", series));
        }
    }
    plots
}

fn off(waiting: Waiting, clients: u32, times: f64) -> Claim {
    let word = waiting.word();
    let what = format!("uc, {word}, {clients} clients, switches of the server, off the thesis's");
    let measured = ((times - 1.0) * 100.0).abs();
    let name = format!("server_{word}_{clients}");
    claim(name, what, Demand::AtMost(20.0), (measured, "%", 1))
}
