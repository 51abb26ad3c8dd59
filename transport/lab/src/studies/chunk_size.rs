//! Goodput against the size of chunks at several loss rates, beside the size that adapts.

use super::controller::CONTROLLER;
use super::loss::{self, stream_of};
use super::stream::{Stream, Streamed};
use super::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Series, Study, StudyError, Style, Table,
};

/// The study.
pub const STUDY: Study = Study {
    name: "chunk-size",
    what: "goodput against the size of chunks, beside the size that adapts",
    mirrors: "PNet 5.3, adaptive chunking; SDR-RDMA on chunks under loss",
    clock: Clock::Virtual,
    params: &[
        Param {
            name: "loss",
            what: "Share of packets that are lost, each way and independently",
            unit: "share",
            // Beyond it chunks of a fixed size do not stay as they are told.
            kind: Kind::Share(0.0..=0.05),
            many: true,
            defaults: [
                "1/1024,0.01",
                "0,1/4096,1/1024,1/256,0.01,0.03",
                "0,1/4096,1/1024,1/256,0.01,0.03",
            ],
        },
        Param {
            name: "packets",
            what: "Packets of a chunk of fixed size, its header counted in",
            unit: "packets",
            kind: Kind::Count(1..=32),
            many: true,
            defaults: ["1,4,14", "1,2,4,8,14,28", "1,2,3,4,6,8,11,14,20,28"],
        },
        Param {
            name: "size",
            what: "Bytes of a message",
            unit: "bytes",
            kind: Kind::Bytes(1..=8 << 20),
            many: false,
            defaults: ["1M", "1M", "1M"],
        },
        loss::BYTES,
        loss::DEPTH,
        loss::RATE,
        loss::RTT,
        loss::MTU,
        CONTROLLER,
    ],
    run,
};

struct Point {
    stream: Stream,
    seen: Streamed,
}

impl Point {
    fn of_line(&self, bits_per_s: f64) -> f64 {
        bits_per_s / self.stream.rate_bits_per_s as f64
    }
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let stream = stream_of(params, params.count("size"))?;
    let fixed = params.counts("packets").iter().map(|&packets| Some(packets as u32));
    let sizes: Vec<Option<u32>> = fixed.chain([None]).collect();
    let with = |loss: f64| {
        sizes.iter().map(move |&chunk_packets| Stream { loss, chunk_packets, ..stream })
    };
    let streams: Vec<Stream> = params.shares("loss").iter().flat_map(|&loss| with(loss)).collect();
    let points =
        runner.map(&streams, |stream| Ok(Point { stream: *stream, seen: stream.towpath()? }))?;
    let mut report = Report::new(STUDY.name, params);
    for point in &points {
        let size = point.stream.chunk_packets.map_or("adaptive".to_owned(), |n| n.to_string());
        let run = format!("chunks of {size} packets, {}", point.stream.label());
        report.trace(run, point.seen.trace_hash);
    }
    report.tables = vec![table(&points)];
    report.plots = params.shares("loss").iter().map(|&loss| plot(&points, loss)).collect();
    report.claims = params.shares("loss").iter().filter_map(|&loss| claim(&points, loss)).collect();
    report.notes = vec![
        "bound: the wire always full, and each chunk of N packets sent until it comes whole, \
         which takes 1/(1-p)^N tries; headers of all layers are counted in"
            .to_owned(),
        "short chunks cost CPU that takes no time here: the adaptive size weighs half a packet \
         for each, so it is a little larger than the one that is best on the wire"
            .to_owned(),
    ];
    Ok(report)
}

fn table(points: &[Point]) -> Table {
    let columns = vec![
        Column::new("loss", "loss", "", Format::Share),
        Column::new("sizing", "chunks", "", Format::Plain),
        Column::new("chunk_packets", "packets", "", Format::Plain),
        Column::new("chunk_bytes", "mean", "bytes", Format::Decimals(0)),
        Column::new("towpath_gbps", "Towpath", "Gb/s", Format::Decimals(1)),
        Column::new("bound_gbps", "bound", "Gb/s", Format::Decimals(1)),
        Column::new("retransmitted", "again", "%", Format::Percent(2)),
        Column::new("timeouts", "timeouts", "", Format::Plain),
    ];
    let row = |point: &Point| -> Vec<Cell> {
        let packets = point.stream.chunk_packets;
        vec![
            point.stream.loss.into(),
            if packets.is_some() { "fixed" } else { "adaptive" }.into(),
            packets.map(u64::from).into(),
            point.seen.chunk_bytes.into(),
            (point.seen.goodput_bits_per_s / 1e9).into(),
            (point.seen.bound_bits_per_s / 1e9).into(),
            point.seen.retransmitted.into(),
            point.seen.timeouts.into(),
        ]
    };
    let title = "Goodput against the size of chunks".to_owned();
    Table { name: "chunk_size", title, columns, rows: points.iter().map(row).collect() }
}

fn of_loss(points: &[Point], loss: f64) -> impl Iterator<Item = &Point> {
    points.iter().filter(move |point| point.stream.loss == loss)
}

fn plot(points: &[Point], loss: f64) -> Plot {
    let kib = |point: &Point| point.seen.chunk_bytes / 1024.0;
    let fixed = || of_loss(points, loss).filter(|point| point.stream.chunk_packets.is_some());
    let series = |label: &str, style, points: Vec<(f64, f64)>| Series {
        label: label.to_owned(),
        style,
        points,
    };
    let share = |bits_per_s: f64, point: &Point| point.of_line(bits_per_s) * 100.0;
    let bound = fixed().map(|p| (kib(p), share(p.seen.bound_bits_per_s, p))).collect();
    let reached = fixed().map(|p| (kib(p), share(p.seen.goodput_bits_per_s, p))).collect();
    let adaptive = of_loss(points, loss).filter(|point| point.stream.chunk_packets.is_none());
    let adaptive = adaptive.map(|p| (kib(p), share(p.seen.goodput_bits_per_s, p))).collect();
    let marks = [4, 8, 16, 32, 64, 128].map(|kib| (f64::from(kib), kib.to_string()));
    Plot {
        title: format!("packet loss {}", super::show_share(loss)),
        x: Axis::log("chunk", "KiB").range(3.5, 130.0).ticks(marks),
        y: Axis::linear("goodput", "% of line rate").range(50.0, 100.0),
        series: vec![
            series("bound of Towpath: each chunk until it comes", Style::Bound, bound),
            series("chunks of fixed size", Style::Line, reached),
            series("chunks that adapt", Style::Points, adaptive),
        ],
    }
}

/// What the size that adapts gives up on the wire for fewer chunks stays below a tenth.
fn claim(points: &[Point], loss: f64) -> Option<Claim> {
    let of = |fixed: bool| {
        of_loss(points, loss)
            .filter(move |point| point.stream.chunk_packets.is_some() == fixed)
            .map(|point| point.seen.goodput_bits_per_s)
            .max_by(f64::total_cmp)
    };
    let (best, adaptive) = (of(true)?, of(false)?);
    Some(Claim {
        name: format!("adaptive_of_best_at_{loss}"),
        what: format!("adaptive size of the best fixed one at loss {}", super::show_share(loss)),
        demand: Demand::AtLeast(90.0),
        measured: adaptive / best * 100.0,
        unit: "%",
        decimals: 1,
    })
}
