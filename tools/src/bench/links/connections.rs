//! Throughput against the number of channels on one link (Avatar, figure 5a).

use std::time::Duration;

use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner, Series,
    Study, StudyError, Style, Table,
};

use super::rig::{Rig, config, throughput};
use super::rounds::in_turn;
use super::{BYTES, ROUNDS, SPAN};

/// The study.
pub const STUDY: Study = Study {
    name: "connections",
    what: "throughput against the number of channels that share a link",
    mirrors: "Avatar (APNet 2018), figure 5a: 16 to 1,024 connections, 4 threads, 4 KB",
    clock: Clock::Machine,
    params: &[CONNECTIONS, THREADS, BYTES, DEPTH, SPAN, ROUNDS],
    run,
};

const CONNECTIONS: Param = Param {
    name: "connections",
    what: "Channels of the link; the first is what the others are compared with",
    unit: "channels",
    kind: Kind::Count(1..=10_000),
    many: true,
    defaults: ["16,1024", "16,64,256,1024,10000", "16,32,64,128,256,512,1024,4096,10000"],
};

const THREADS: Param = Param {
    name: "threads",
    what: "Threads that post, each to its share of the channels in turn",
    unit: "threads",
    kind: Kind::Count(1..=256),
    many: false,
    defaults: ["4", "4", "4"],
};

/// Messages under way.
pub(super) const DEPTH: Param = Param {
    name: "depth",
    what: "Messages that each thread has under way",
    unit: "messages",
    kind: Kind::Count(1..=4096),
    many: false,
    defaults: ["64", "64", "64"],
};

struct Point {
    connections: u64,
    gbps: Samples,
    qps: usize,
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let connections = params.counts("connections");
    let measured = in_turn(params, runner, connections, |&count| measure(params, count as usize))?;
    let points: Vec<Point> = connections
        .iter()
        .zip(measured)
        .map(|(&connections, rounds)| Point {
            connections,
            gbps: rounds.iter().map(|&(gbps, _)| gbps).collect(),
            qps: rounds.iter().map(|&(_, qps)| qps).max().unwrap_or(0),
        })
        .collect();
    Ok(report(params, &points))
}

fn measure(params: &Params, connections: usize) -> Result<(f64, usize), StudyError> {
    let (bytes, depth) = (params.count("bytes") as usize, params.count("depth") as usize);
    let threads = (params.count("threads") as usize).min(connections);
    // A thread that waits for a place has one more buffer in its hands.
    let rig = Rig::new(connections, &config(connections, &[(bytes, threads * (depth + 1))]))?;
    let span = Duration::from_millis(params.count("span-ms"));
    Ok((throughput(&rig, threads, bytes, depth, span)? / 1e9, rig.server.qps()))
}

fn report(params: &Params, points: &[Point]) -> Report {
    let mut report = Report::new(STUDY.name, params);
    let base = points.first().map_or(0.0, |point| point.gbps.median());
    let of_first = |point: &Point| point.gbps.median() / base;
    report.tables.push(Table {
        name: "connections",
        title: "Channels of one link; medians of rounds".to_owned(),
        columns: vec![
            Column::new("connections", "channels", "", Format::Plain),
            Column::new("qps", "queue pairs", "", Format::Plain),
            Column::new("goodput_gbps", "goodput", "Gb/s", Format::Decimals(2)),
            Column::new("spread_gbps", "spread", "Gb/s", Format::Decimals(2)),
            Column::new("of_first", "of the first", "%", Format::Percent(1)),
        ],
        rows: points
            .iter()
            .map(|point| {
                vec![
                    point.connections.into(),
                    (point.qps as u64).into(),
                    point.gbps.median().into(),
                    point.gbps.spread().into(),
                    of_first(point).into(),
                ]
            })
            .collect(),
    });
    if let Some(point) = points.iter().find(|point| point.connections == 1024) {
        report.claims.push(Claim {
            name: "of_first_at_1024".to_owned(),
            what: format!("goodput of 1,024 channels, of that of {}", points[0].connections),
            demand: Demand::AtLeast(95.0),
            measured: of_first(point) * 100.0,
            unit: "%",
            decimals: 1,
        });
        report.claims.push(Claim {
            name: "qps_at_1024".to_owned(),
            what: "queue pairs of 1,024 channels at one end".to_owned(),
            demand: Demand::AtMost(16.0),
            measured: point.qps as f64,
            unit: "",
            decimals: 0,
        });
    }
    report.plots.push(Plot {
        title: "Goodput against channels of one link".to_owned(),
        x: Axis::log("channels", ""),
        y: Axis::linear("goodput of the first", "%").range(0.0, 125.0),
        series: vec![Series {
            label: "towpath".to_owned(),
            style: Style::Line,
            points: points
                .iter()
                .map(|point| (point.connections as f64, of_first(point) * 100.0))
                .collect(),
        }],
    });
    report.notes.push(
        "The paper's figure 5a is flat from 16 to 1,024 connections on one queue pair of a \
         100 Gb/s card; it names no figures."
            .to_owned(),
    );
    report
}
