//! Tables and targets.

use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Cell, Claim, Column, Demand, Format, Params, Plot, Report, Series, Study, Style, Table,
};
use towpath_spread::Policy;

use super::world::Seen;
use super::{ONE, Point};

/// A ring of three at this length takes at most so much of the time of one copy.
const RING: (Policy, usize, f64) = (Policy::Ring(3), 1 << 20, 1.3);

pub(super) fn report(
    study: &Study,
    params: &Params,
    points: &[Point],
    seen: &[Vec<Seen>],
) -> Report {
    let mut report = Report::new(study.name, params);
    report.tables.push(table(points, seen));
    report.tables.push(handlers(points, seen));
    let (ring, bytes, most) = RING;
    for (point, rounds) in points.iter().zip(seen) {
        if (point.policy, point.bytes) == (ring, bytes) {
            report.claims.push(Claim {
                name: "ring_of_one".into(),
                what: "a write of 1 MiB along a ring of three, of one copy".into(),
                demand: Demand::AtMost(most),
                measured: of_one(points, seen, point, rounds).median(),
                unit: "of one",
                decimals: 2,
            });
        }
    }
    report.plots.push(plot(points, seen));
    report.notes.push(
        "One write at a time, durable when it is answered. All servers and the client share the \
         cores of this machine, and its disk: what a ring of three does at once on three machines \
         is done here by the same cores, one after the other. TMPDIR says where the servers' \
         folders are."
            .into(),
    );
    report
}

fn micros(rounds: &[Seen]) -> Samples {
    rounds.iter().map(|seen| seen.median_us).collect()
}

/// Beside one copy of the same length, round by round.
fn of_one(points: &[Point], seen: &[Vec<Seen>], point: &Point, rounds: &[Seen]) -> Samples {
    let one = Point { policy: ONE, ..*point };
    let of = points.iter().position(|other| *other == one);
    let ones = of.map_or(&[][..], |at| &seen[at]);
    rounds.iter().zip(ones).map(|(seen, one)| seen.median_us / one.median_us).collect()
}

fn table(points: &[Point], seen: &[Vec<Seen>]) -> Table {
    let row = |(point, rounds): (&Point, &Vec<Seen>)| {
        let (micros, of_one) = (micros(rounds), of_one(points, seen, point, rounds));
        vec![
            Cell::Text(point.policy.to_string()),
            Cell::Count(point.bytes as u64),
            Cell::Number(micros.median()),
            Cell::Number(micros.spread()),
            Cell::Number(of_one.median()),
            Cell::Number(of_one.percentile(0.0)),
            Cell::Number(of_one.percentile(1.0)),
        ]
    };
    Table {
        name: "writes",
        title: "One durable write, and beside one copy in the same round".to_owned(),
        columns: vec![
            Column::new("policy", "policy", "", Format::Plain),
            Column::new("bytes", "write", "", Format::Bytes),
            Column::new("median_us", "median", "us", Format::Decimals(0)),
            Column::new("spread_us", "spread", "us", Format::Decimals(0)),
            Column::new("of_one", "of one copy", "", Format::Decimals(2)),
            Column::new("of_one_least", "least", "", Format::Decimals(2)),
            Column::new("of_one_most", "most", "", Format::Decimals(2)),
        ],
        rows: points.iter().zip(seen).map(row).collect(),
    }
}

/// Header, payload and completion in the tables of the paper, in nanoseconds. A payload handler
/// there has a packet of 2 KiB, and here a piece of up to 64 KiB. Products are made there by
/// servers with data parts, and here by those with parity parts.
fn of_paper(policy: Policy, is_first: bool) -> [Option<f64>; 3] {
    let of = match (policy, is_first) {
        (Policy::Ring(2..), true) => [212.0, 193.0, 146.0],
        (Policy::Tree(3..), true) => [214.0, 2_106.0, 1_487.0],
        (Policy::Triec(shape), false) if shape.m() == 2 => [215.0, 16_681.0, 105.0],
        (Policy::Triec(shape), false) if shape.m() == 3 => [215.0, 23_018.0, 82.0],
        (Policy::Triec(_), _) => return [None; 3],
        _ => [211.0, 92.0, 107.0],
    };
    of.map(Some)
}

/// What handlers of the first and the last server took.
fn handlers(points: &[Point], seen: &[Vec<Seen>]) -> Table {
    let number = |of: Option<f64>| of.map_or(Cell::Absent, Cell::Number);
    let mut rows = Vec::new();
    for (point, rounds) in points.iter().zip(seen) {
        let count = if point.policy.parts() > 1 { 2 } else { 1 };
        for (end, name) in ["first", "last"].into_iter().enumerate().take(count) {
            let median = |handler: usize| {
                let of = rounds.iter().filter_map(|seen| seen.handlers[end][handler]);
                let of: Samples = of.collect();
                if of.is_empty() { None } else { Some(of.median()) }
            };
            let mut row = vec![
                Cell::Text(point.policy.to_string()),
                Cell::Count(point.bytes as u64),
                Cell::Text(name.into()),
            ];
            row.extend((0..4).map(|handler| number(median(handler))));
            row.extend(of_paper(point.policy, end == 0).map(number));
            rows.push(row);
        }
    }
    let ns = |name, title| Column::new(name, title, "ns", Format::Decimals(0));
    Table {
        name: "handlers",
        title: "What one call of a handler took at the first and the last server, and in the paper"
            .to_owned(),
        columns: vec![
            Column::new("policy", "policy", "", Format::Plain),
            Column::new("bytes", "write", "", Format::Bytes),
            Column::new("server", "server", "", Format::Plain),
            ns("header_ns", "header"),
            ns("payload_ns", "payload"),
            ns("completion_ns", "completion"),
            ns("cleanup_ns", "cleanup"),
            ns("paper_header_ns", "paper: header"),
            ns("paper_payload_ns", "payload"),
            ns("paper_completion_ns", "completion"),
        ],
        rows,
    }
}

fn plot(points: &[Point], seen: &[Vec<Seen>]) -> Plot {
    let mut series: Vec<Series> = Vec::new();
    for (point, rounds) in points.iter().zip(seen) {
        let label = point.policy.to_string();
        let at = (point.bytes as f64 / 1024.0, micros(rounds).median());
        match series.iter_mut().find(|series| series.label == label) {
            Some(series) => series.points.push(at),
            None => series.push(Series { label, style: Style::Line, points: vec![at] }),
        }
    }
    Plot {
        title: "One durable write, by how it comes to several servers".to_owned(),
        x: Axis::log("write", "KiB"),
        y: Axis::log("time", "us"),
        series,
    }
}
