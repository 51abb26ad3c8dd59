//! Goodput against loss: Towpath over UC, RC with Go-Back-N, and the bound.

use super::controller::{CONTROLLER, controller_of};
use super::stream::{RcStreamed, Stream, Streamed};
use super::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};
use towpath_base::Nanos;
use towpath_verbs::Mtu;

/// The study.
pub const STUDY: Study = Study {
    name: "loss",
    what: "goodput against loss: Towpath over UC, RC with Go-Back-N, and the bound",
    mirrors: "PNet 5.3; the loss figures of Flor and UCCL-Tran",
    clock: Clock::Virtual,
    params: &[
        LOSS,
        Param::sizes("sizes", 1..=8 << 20, ["64K,1M", "4K,16K,64K,256K,1M", "4K,16K,64K,256K,1M"])
            .what("Bytes of a message"),
        BYTES,
        DEPTH,
        RATE,
        RTT,
        MTU,
        CONTROLLER,
    ],
    run,
};

/// Of packets, each way.
pub(super) const LOSS: Param = Param::shares(
    "loss",
    0.0..=0.2,
    [
        "0,1/4096,1/256,0.01",
        "0,1/16384,1/4096,1/1024,1/256,0.01",
        "0,1/16384,1/4096,1/1024,1/256,0.01",
    ],
)
.what("Share of packets that are lost, each way and independently");

/// How much is measured.
pub(super) const BYTES: Param = Param::size("bytes", 1 << 20..=1 << 34, ["64M", "128M", "1G"])
    .what("Bytes that each run measures; a quarter as many go before");

/// Messages under way.
pub(super) const DEPTH: Param = Param::count("depth", "messages", 1..=4096, ["16"; 3])
    .what("Messages under way at least; of short ones more, to make 2 MiB");

/// The wire.
pub(super) const RATE: Param =
    Param::count("rate-gbps", "Gb/s", 1..=800, ["100"; 3]).what("Rate of the wire");

/// There and back.
pub(super) const RTT: Param =
    Param::count("rtt-us", "us", 1..=10_000, ["10"; 3]).what("Base round trip of the wire");

/// The path MTU.
pub(super) const MTU: Param = Param::count("mtu", "bytes", 256..=4096, ["4096"; 3])
    .what("RDMA path MTU: 256, 512, 1024, 2048 or 4096");

/// What short messages are made up to: four times what the default wire holds, and more.
const UNDER_WAY_BYTES: u64 = 2 << 20;

/// The stream that the parameters above describe, but for its loss.
pub(super) fn stream_of(params: &Params, message_bytes: u64) -> Result<Stream, StudyError> {
    let mtu = params.count("mtu") as u32;
    let mtu = Mtu::at_most(mtu)
        .filter(|known| known.bytes() == mtu)
        .ok_or(StudyError::Params { name: "mtu", problem: "256, 512, 1024, 2048 or 4096" })?;
    let depth = params.count("depth").max(UNDER_WAY_BYTES / message_bytes).min(4096);
    Ok(Stream {
        seed: params.seed,
        rate_bits_per_s: params.count("rate-gbps") * 1_000_000_000,
        base_rtt: Nanos::from_micros(params.count("rtt-us")),
        mtu,
        loss: 0.0,
        message_bytes: message_bytes as u32,
        depth: depth as usize,
        messages: (params.count("bytes") / message_bytes).max(1),
        controller: controller_of(params.word("controller")).unwrap_or_default(),
        chunk_packets: None,
    })
}

struct Point {
    stream: Stream,
    towpath: Streamed,
    rc: Option<RcStreamed>,
}

impl Point {
    fn of_bound(&self) -> f64 {
        self.towpath.goodput_bits_per_s / self.towpath.bound_bits_per_s
    }

    fn of_line(&self, bits_per_s: f64) -> f64 {
        bits_per_s / self.stream.rate_bits_per_s as f64
    }
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut streams = Vec::new();
    for &size in params.counts("sizes") {
        let stream = stream_of(params, size)?;
        streams.extend(params.shares("loss").iter().map(|&loss| Stream { loss, ..stream }));
    }
    let points = runner.map(&streams, |stream| {
        Ok(Point { stream: *stream, towpath: stream.towpath()?, rc: stream.rc()? })
    })?;
    let mut report = Report::new(STUDY.name, params);
    for point in &points {
        report.trace(format!("towpath, {}", point.stream.label()), point.towpath.trace_hash);
        if let Some(rc) = point.rc {
            report.trace(format!("rc, {}", point.stream.label()), rc.trace_hash);
        }
    }
    report.tables = vec![table(&points), published()];
    report.plots = params.counts("sizes").iter().map(|&size| plot(&points, size)).collect();
    report.claims = claims(&points);
    report.notes = notes(&points);
    Ok(report)
}

fn table(points: &[Point]) -> Table {
    Table::of("goodput", "Goodput against loss", points)
        .bytes("message_bytes", "message", |p| p.stream.message_bytes)
        .share("loss", "loss", |p| p.stream.loss)
        .decimals(1, "towpath_gbps", "Towpath", "Gb/s", |p| p.towpath.goodput_bits_per_s / 1e9)
        .decimals(1, "bound_gbps", "bound", "Gb/s", |p| p.towpath.bound_bits_per_s / 1e9)
        .percent(1, "towpath_of_bound", "of bound", Point::of_bound)
        .decimals(1, "rc_gbps", "RC", "Gb/s", |p| p.rc.map(|rc| rc.goodput_bits_per_s / 1e9))
        .decimals(0, "chunk_bytes", "chunk", "bytes", |p| p.towpath.chunk_bytes)
        .percent(2, "retransmitted", "again", |p| p.towpath.retransmitted)
        .percent(1, "spurious", "needless", |p| p.towpath.spurious)
        .plain("timeouts", "timeouts", "", |p| p.towpath.timeouts)
        .done()
}

/// (loss, lowest and highest share of lossless goodput that is left), as others published it.
const PUBLISHED_UC: [(f64, f64, f64); 4] = [
    (1.0 / 16384.0, 0.99, 0.99),
    (1.0 / 4096.0, 0.99, 0.99),
    (1.0 / 1024.0, 0.70, 0.94),
    (1.0 / 256.0, 0.70, 0.94),
];
const PUBLISHED_RC: [(f64, f64, f64); 4] = [
    (1.0 / 16384.0, 0.58, 0.74),
    (1.0 / 4096.0, 0.58, 0.74),
    (1.0 / 1024.0, 0.24, 0.41),
    (1.0 / 256.0, 0.24, 0.41),
];

fn published() -> Table {
    let title = "Published by others: share of lossless goodput that is left, 32 KiB to 1 MiB";
    let rows: Vec<_> = PUBLISHED_UC.into_iter().zip(PUBLISHED_RC).collect();
    Table::of("published", title, &rows)
        .share("loss", "loss", |(uc, _)| uc.0)
        .percent(0, "uccl_uc_low", "UCCL-Tran, UC: from", |(uc, _)| uc.1)
        .percent(0, "uccl_uc_high", "to", |(uc, _)| uc.2)
        .percent(0, "hardware_rc_low", "hardware RC: from", |(_, rc)| rc.1)
        .percent(0, "hardware_rc_high", "to", |(_, rc)| rc.2)
        .done()
}

/// Where no loss is drawn on an axis of powers of ten.
const NO_LOSS_AT: f64 = 1.0 / 65_536.0;

fn plot(points: &[Point], size: u64) -> Plot {
    let of_size = || points.iter().filter(|p| u64::from(p.stream.message_bytes) == size);
    let at = |point: &Point| if point.stream.loss > 0.0 { point.stream.loss } else { NO_LOSS_AT };
    let line = |label: &str, style, share: &dyn Fn(&Point) -> Option<f64>| {
        let points = of_size().filter_map(|p| Some((at(p), share(p)? * 100.0)));
        Series::new(label, style, points)
    };
    let span = |label: &str, published: &[(f64, f64, f64)]| {
        let ends = |&(loss, low, high): &(f64, f64, f64)| [low, high].map(|y| (loss, y * 100.0));
        Series::new(label, Style::Span, published.iter().flat_map(ends))
    };
    let mut series = vec![
        line("bound of Towpath: each chunk until it comes", Style::Bound, &|p| {
            Some(p.of_line(p.towpath.bound_bits_per_s))
        }),
        line("Towpath over UC", Style::Line, &|p| Some(p.of_line(p.towpath.goodput_bits_per_s))),
    ];
    if of_size().any(|p| p.rc.is_some()) {
        let rc = |p: &Point| Some(p.of_line(p.rc?.goodput_bits_per_s));
        series.push(line("RC, Go-Back-N", Style::Line, &rc));
    }
    if (32 << 10..=1 << 20).contains(&size) {
        series.push(span("published: UCCL-Tran, UC", &PUBLISHED_UC));
        series.push(span("published: hardware RC", &PUBLISHED_RC));
    }
    let marks = [16_384, 4_096, 1_024, 256].map(|n| (1.0 / f64::from(n), format!("1/{n}")));
    let marks = [(NO_LOSS_AT, "0".to_owned())].into_iter().chain(marks);
    let marks = marks.chain([(0.01, "1 %".to_owned())]);
    Plot {
        title: format!("messages of {}", super::show_bytes(size)),
        x: Axis::log("packets lost", "share").range(NO_LOSS_AT, 0.0125).ticks(marks),
        y: Axis::linear("goodput", "% of line rate").range(0.0, 100.0),
        series,
    }
}

/// The targets: at a loss the worst of all message sizes counts.
fn claims(points: &[Point]) -> Vec<Claim> {
    let worst = |one_in: f64, what: &dyn Fn(&Point) -> Option<f64>| {
        let near = |point: &&Point| (point.stream.loss * one_in - 1.0).abs() < 1e-6;
        points.iter().filter(near).filter_map(what).min_by(f64::total_cmp)
    };
    let of_bound = |point: &Point| Some(point.of_bound());
    let of_line = |point: &Point| Some(point.of_line(point.towpath.goodput_bits_per_s));
    let mut claims = Vec::new();
    let mut ask = |name: &str, what: &str, target: f64, found: Option<f64>| {
        let demand = Demand::AtLeast(target);
        claims.extend(found.map(|share| Claim::percent(name, what, demand, share)));
    };
    let bound = "Towpath of the chunk bound";
    let (at_4096, at_256) = (worst(4096.0, &of_bound), worst(256.0, &of_bound));
    ask("towpath_of_bound_1in4096", &format!("{bound} at 1/4096, worst size"), 99.0, at_4096);
    ask("towpath_of_bound_1in256", &format!("{bound} at 1/256, worst size"), 97.0, at_256);
    let at_100 = worst(100.0, &of_line);
    ask("towpath_of_line_1in100", "Towpath of line rate at 1 %, worst size", 90.0, at_100);
    // For the opponent the best size counts.
    let lost = |point: &Point| Some(1.0 - point.of_line(point.rc?.goodput_bits_per_s));
    let rc_100 = worst(100.0, &lost);
    ask("rc_lost_1in100", "RC loses of line rate at 1 %, its best size", 40.0, rc_100);
    claims
}

fn notes(points: &[Point]) -> Vec<String> {
    let mut notes = vec![
        "bound: the wire always full, and each chunk of N packets sent until it comes whole, \
         which takes 1/(1-p)^N tries; headers of all layers are counted in; a run whose dice fell \
         well comes out a little above it"
            .to_owned(),
        "the bound is Towpath's alone: RC has no chunk headers and no acknowledgements of chunks, \
         so without loss, or with little, it may exceed the bound"
            .to_owned(),
        "RC is the same NIC's own Go-Back-N: 131 us of timeout, no congestion control, and an \
         engine that answers at once, which hardware does not"
            .to_owned(),
        "published figures: other hardware, share of what they reach without loss; hardware RC as \
         quoted with UCCL-Tran"
            .to_owned(),
    ];
    if points.iter().any(|point| point.rc.is_none()) {
        notes.push("RC is not measured: the userspace NIC of this build has none".to_owned());
    }
    let broken = points.iter().filter(|point| point.rc.is_some_and(|rc| rc.is_broken)).count();
    if broken > 0 {
        notes.push(format!("in {broken} runs the RC queue pair gave up: its retries ran out"));
    }
    notes
}
