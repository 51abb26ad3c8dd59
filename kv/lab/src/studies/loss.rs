//! Loss as a second axis: who makes good what is lost, and what is done twice.

use super::setting::{CLIENTS, TRANSPORTS, params, plan, transports};
use super::shown::{claim, line, notes, outcomes, plain, us};
use crate::model::{Outcome, Program, Transport, Waiting};
use towpath_lab::studies::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Study, StudyError, Table, show_share,
};

const LOSS: Param = Param {
    name: "loss",
    what: "Shares of packets that are lost, each way",
    unit: "share",
    kind: Kind::Share(0.0..=0.2),
    many: true,
    defaults: ["0,0.1%,1%", "0,0.01%,0.1%,0.3%,1%", "0,0.01%,0.1%,0.3%,1%"],
};

pub(super) const STUDY: Study = Study {
    name: "kv loss",
    what: "a key-value store while packets are lost: operations a second, and what is done twice",
    mirrors: "no figure of the thesis, which loses no packets; our programs, polling",
    clock: Clock::Virtual,
    params: params![
        LOSS,
        Param { defaults: ["32"; 3], many: false, ..CLIENTS },
        Param { defaults: ["tcp,rc,uc,ud,towpath"; 3], ..TRANSPORTS }
    ],
    run: ask,
};

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let clients = params.count(CLIENTS.name) as u32;
    let mut points = Vec::new();
    for transport in transports(params) {
        points.extend(params.shares(LOSS.name).iter().map(|&share| (transport, share)));
    }
    let plans = points.iter().map(|&(transport, share)| {
        let mut plan = plan(params, Program::Ours, (transport, Waiting::Polling, clients));
        plan.losses.share = share;
        plan
    });
    let plans: Vec<_> = plans.collect();
    let seen = outcomes(&mut report, runner, &plans)?;
    let rows: Vec<(Transport, f64, Outcome)> = points
        .iter()
        .zip(seen)
        .map(|(&(transport, share), seen)| (transport, share, seen))
        .collect();
    report.tables = vec![table(&rows)];
    let lines = transports(params).into_iter().map(|transport| {
        let of = rows.iter().filter(|row| row.0 == transport);
        line(transport.word(), of.map(|(_, share, seen)| (share * 100.0, seen.per_s() / 1e3)))
    });
    report.plots = vec![Plot {
        title: format!("{clients} clients, our programs"),
        x: Axis::linear("lost", "%"),
        y: Axis::log("operations", "thousands/s"),
        series: lines.collect(),
    }];
    report.claims = claims(&rows);
    report.notes = notes();
    report.notes.push(
        "messages are shorter than a packet and one is under way for each client, so nothing comes \
         behind a lost packet that tells of the loss: all wait for a timer"
            .to_owned(),
    );
    report.notes.push(
        "over Towpath, RC and TCP the model repeats nothing, so no operation is executed again; \
         `towpath bench kv loss` measures that with our code"
            .to_owned(),
    );
    Ok(report)
}

fn table(rows: &[(Transport, f64, Outcome)]) -> Table {
    let columns = vec![
        plain("transport", "transport", ""),
        Column::new("loss", "lost", "", Format::Share),
        plain("per_s", "operations", "1/s"),
        Column::new("of_lossless", "of lossless", "%", Format::Percent(1)),
        us("median_us", "median"),
        us("p99_us", "p99"),
        us("p999_us", "p99.9"),
        plain("lost", "packets lost", ""),
        plain("repeated", "repeated by clients", ""),
        plain("executed_again", "executed again", ""),
    ];
    let row = |(transport, share, seen): &(Transport, f64, Outcome)| -> Vec<Cell> {
        let whole = rows.iter().find(|row| row.0 == *transport && row.1 == 0.0);
        vec![
            transport.word().into(),
            (*share).into(),
            (seen.per_s().round() as u64).into(),
            whole.map(|whole| seen.per_s() / whole.2.per_s()).into(),
            seen.quantile_us(0.5).into(),
            seen.quantile_us(0.99).into(),
            seen.quantile_us(0.999).into(),
            seen.lost.into(),
            seen.repeated.into(),
            seen.again.into(),
        ]
    };
    let title = "With losses, each way".to_owned();
    Table { name: "loss", title, columns, rows: rows.iter().map(row).collect() }
}

/// Who repeats requests, and so has them executed again, is in the model: no target is made of it.
fn claims(rows: &[(Transport, f64, Outcome)]) -> Vec<Claim> {
    let lossy = rows.iter().filter(|row| row.0 == Transport::Towpath && row.1 > 0.0);
    let each = lossy.filter_map(|(_, share, towpath)| {
        let others = rows.iter().filter(|row| row.0 != Transport::Towpath && row.1 == *share);
        let best = others.map(|row| row.2.per_s()).reduce(f64::max)?;
        let what = format!("towpath, {} lost, of the fastest other", show_share(*share));
        let measured = (towpath.per_s() / best * 100.0, "%", 1);
        Some(claim(format!("of_best_{share}"), what, Demand::AtLeast(60.0), measured))
    });
    each.collect()
}
