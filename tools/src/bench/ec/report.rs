//! Tables and targets.

use towpath_ec::Code;
use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Cell, Claim, Column, Demand, Format, Params, Plot, Report, Series, Study, Style, Table,
};

use super::work::{Point, Speeds, Work};

/// How fast encoding must be, of a copy.
const ENCODE_MIN: f64 = 0.8;

/// At this length of a shard.
const ENCODE_BYTES: usize = 64 << 10;

/// The least memory of which a target is asked: more than the caches of one core hold.
const TARGET_MEMORY_MIN: usize = 64 << 20;

pub(super) fn report(
    study: &Study,
    params: &Params,
    points: &[Point],
    seen: &[Vec<Speeds>],
) -> Report {
    let mut report = Report::new(study.name, params);
    report.tables.push(table(points, seen));
    for (point, rounds) in points.iter().zip(seen) {
        if point.shard_bytes != ENCODE_BYTES || point.data_bytes() < TARGET_MEMORY_MIN {
            continue;
        }
        let shape = point.shape;
        report.claims.push(Claim {
            name: format!("encode_{}_{}", shape.k(), shape.m()),
            what: format!("encoding of {shape}, shards of 64 KiB, out of the cache"),
            demand: Demand::AtLeast(ENCODE_MIN * 100.0),
            measured: of_copy(rounds, Work::Encode).median() * 100.0,
            unit: "% of a copy",
            decimals: 0,
        });
    }
    report.plots.push(plot(points, seen));
    if let Some(point) = points.first() {
        report.notes.push(format!(
            "One thread, {} instructions. Speeds are bytes of data that are read in a second: a \
             copy writes as many, encoding and contributions write m for each k, decoding as many \
             as were lost, adding as many, a sketch nothing.",
            Code::new(point.shape).instructions()
        ));
    }
    report
}

fn speeds(rounds: &[Speeds], work: Work) -> Samples {
    rounds.iter().map(|speeds| speeds[work as usize] / 1e9).collect()
}

/// A work beside the copy of the same round.
fn of_copy(rounds: &[Speeds], work: Work) -> Samples {
    rounds.iter().map(|speeds| speeds[work as usize] / speeds[Work::Copy as usize]).collect()
}

fn table(points: &[Point], seen: &[Vec<Speeds>]) -> Table {
    let mut rows = Vec::new();
    for (point, rounds) in points.iter().zip(seen) {
        for work in Work::ALL {
            let (speeds, of_copy) = (speeds(rounds, work), of_copy(rounds, work));
            rows.push(vec![
                Cell::Text(point.shape.to_string()),
                Cell::Count(point.shard_bytes as u64),
                Cell::Count(point.data_bytes() as u64),
                work.name().into(),
                Cell::Number(speeds.median()),
                Cell::Number(speeds.spread()),
                Cell::Number(of_copy.median()),
                Cell::Number(of_copy.percentile(0.0)),
                Cell::Number(of_copy.percentile(1.0)),
            ]);
        }
    }
    Table {
        name: "throughput",
        title: "Bytes of data a second, and beside a copy of the same round".to_owned(),
        columns: vec![
            Column::new("shape", "shape", "", Format::Plain),
            Column::new("shard_bytes", "shard", "", Format::Bytes),
            Column::new("data_bytes", "data", "", Format::Bytes),
            Column::new("work", "work", "", Format::Plain),
            Column::new("gbytes_per_second", "speed", "GB/s", Format::Decimals(1)),
            Column::new("spread", "spread", "GB/s", Format::Decimals(1)),
            Column::new("of_copy", "of a copy", "", Format::Decimals(2)),
            Column::new("of_copy_least", "least", "", Format::Decimals(2)),
            Column::new("of_copy_most", "most", "", Format::Decimals(2)),
        ],
        rows,
    }
}

fn plot(points: &[Point], seen: &[Vec<Speeds>]) -> Plot {
    let mut series: Vec<Series> = Vec::new();
    for (point, rounds) in points.iter().zip(seen) {
        let is_far = point.data_bytes() >= TARGET_MEMORY_MIN;
        let label = format!("{}{}", point.shape, if is_far { "" } else { ", in the cache" });
        let at = (point.shard_bytes as f64 / 1024.0, of_copy(rounds, Work::Encode).median());
        match series.iter_mut().find(|series| series.label == label) {
            Some(series) => series.points.push(at),
            None => series.push(Series { label, style: Style::Line, points: vec![at] }),
        }
    }
    Plot {
        title: "Encoding beside a copy of the data".to_owned(),
        x: Axis::log("shard", "KiB"),
        y: Axis::linear("encoding", "of a copy"),
        series,
    }
}
