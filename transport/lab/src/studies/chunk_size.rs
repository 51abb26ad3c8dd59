//! Goodput against the size of chunks at several loss rates, beside the size that adapts.

use super::controller::CONTROLLER;
use super::loss::{self, stream_of};
use super::stream::{Stream, Streamed};
use super::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};

/// The study.
pub const STUDY: Study = Study {
    name: "chunk-size",
    what: "goodput against the size of chunks, beside the size that adapts",
    mirrors: "PNet 5.3, adaptive chunking; SDR-RDMA on chunks under loss",
    clock: Clock::Virtual,
    params: &[
        // Beyond it chunks of a fixed size do not stay as they are told.
        Param::shares(
            "loss",
            0.0..=0.05,
            ["1/1024,0.01", "0,1/4096,1/1024,1/256,0.01,0.03", "0,1/4096,1/1024,1/256,0.01,0.03"],
        )
        .what("Share of packets that are lost, each way and independently"),
        Param::counts(
            "packets",
            "packets",
            1..=32,
            ["1,4,14", "1,2,4,8,14,28", "1,2,3,4,6,8,11,14,20,28"],
        )
        .what("Packets of a chunk of fixed size, its header counted in"),
        Param::size("size", 1..=8 << 20, ["1M"; 3]).what("Bytes of a message"),
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
    report.note(&[
        "bound: the wire always full, and each chunk of N packets sent until it comes whole, \
         which takes 1/(1-p)^N tries; headers of all layers are counted in",
        "short chunks cost CPU that takes no time here: the adaptive size weighs half a packet \
         for each, so it is a little larger than the one that is best on the wire",
    ]);
    Ok(report)
}

fn table(points: &[Point]) -> Table {
    let sizing = |p: &Point| if p.stream.chunk_packets.is_some() { "fixed" } else { "adaptive" };
    Table::of("chunk_size", "Goodput against the size of chunks", points)
        .share("loss", "loss", |p| p.stream.loss)
        .plain("sizing", "chunks", "", sizing)
        .plain("chunk_packets", "packets", "", |p| p.stream.chunk_packets)
        .decimals(0, "chunk_bytes", "mean", "bytes", |p| p.seen.chunk_bytes)
        .decimals(1, "towpath_gbps", "Towpath", "Gb/s", |p| p.seen.goodput_bits_per_s / 1e9)
        .decimals(1, "bound_gbps", "bound", "Gb/s", |p| p.seen.bound_bits_per_s / 1e9)
        .percent(2, "retransmitted", "again", |p| p.seen.retransmitted)
        .plain("timeouts", "timeouts", "", |p| p.seen.timeouts)
        .done()
}

fn of_loss(points: &[Point], loss: f64) -> impl Iterator<Item = &Point> {
    points.iter().filter(move |point| point.stream.loss == loss)
}

fn plot(points: &[Point], loss: f64) -> Plot {
    let kib = |point: &Point| point.seen.chunk_bytes / 1024.0;
    let fixed = || of_loss(points, loss).filter(|point| point.stream.chunk_packets.is_some());
    let share = |bits_per_s: f64, point: &Point| point.of_line(bits_per_s) * 100.0;
    let bound = fixed().map(|p| (kib(p), share(p.seen.bound_bits_per_s, p)));
    let reached = fixed().map(|p| (kib(p), share(p.seen.goodput_bits_per_s, p)));
    let adaptive = of_loss(points, loss).filter(|point| point.stream.chunk_packets.is_none());
    let adaptive = adaptive.map(|p| (kib(p), share(p.seen.goodput_bits_per_s, p)));
    let marks = [4, 8, 16, 32, 64, 128].map(|kib| (f64::from(kib), kib.to_string()));
    Plot {
        title: format!("packet loss {}", super::show_share(loss)),
        x: Axis::log("chunk", "KiB").range(3.5, 130.0).ticks(marks),
        y: Axis::linear("goodput", "% of line rate").range(50.0, 100.0),
        series: vec![
            Series::new("bound of Towpath: each chunk until it comes", Style::Bound, bound),
            Series::new("chunks of fixed size", Style::Line, reached),
            Series::new("chunks that adapt", Style::Points, adaptive),
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
    let name = format!("adaptive_of_best_at_{loss}");
    let what = format!("adaptive size of the best fixed one at loss {}", super::show_share(loss));
    Some(Claim::percent(name, what, Demand::AtLeast(90.0), adaptive / best))
}
