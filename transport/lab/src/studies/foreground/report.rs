//! The study: beside what short messages are sent, and how much of their time is saved.

use super::{Foreground, Lane, Seen, Way};
use crate::cluster::Samples;
use crate::studies::controller::{CONTROLLER, controller_of};
use crate::studies::wire::{BASE_RTT, RATE_BITS_PER_S, base_rtt_of};
use crate::studies::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table, show_bytes,
};
use towpath_base::Nanos;

/// The study.
pub const STUDY: Study = Study {
    name: "foreground",
    what: "completion time of a message beside long ones: a channel, a class or a queue pair of \
           its own, or one queue",
    mirrors: "Avatar (APNet 2018), figures 2 and 6 to 9: 16 KB beside 16 KB to 1 GB",
    clock: Clock::Virtual,
    params: &[
        Param::size("bytes", 1..=1 << 20, ["16K"; 3])
            .what("Bytes of a foreground message; one is under way at a time"),
        Param::sizes(
            "background",
            1..=1 << 30,
            ["128K,1M", "16K,64K,128K,1M,16M,1G", "16K,32K,64K,128K,256K,1M,4M,16M,128M,1G"],
        )
        .what("Bytes of a background message"),
        Param::count("depth", "messages", 2..=64, ["16"; 3]).what(
            "Background messages under way; of long ones fewer, to make 64 MiB, and two \
                   at least",
        ),
        Param::size("ahead", 1..=1 << 30, ["256K"; 3])
            .what("What a link may have posted and not sent"),
        BASE_RTT,
        Param::count("span-ms", "ms", 1..=10_000, ["5", "20", "100"])
            .what("What is measured, after a tenth as long; more where that is not two messages"),
        CONTROLLER,
        Param::count("weight", "", 1..=1_000, ["1"; 3]).what(
            "With a class of its own: bytes that a foreground message may send for each of the \
             background",
        ),
    ],
    run,
};

/// What background messages under way make together at most, where that is more than two.
const UNDER_WAY_BYTES: u64 = 64 << 20;

/// The backgrounds of which the target speaks.
const CLAIMED_BYTES: [u64; 2] = [128 << 10, 1 << 30];

/// Both lanes beside one background.
#[derive(Clone, Debug)]
pub struct Point {
    background_bytes: u64,
    own: Seen,
    shared: Seen,
    /// What is left of the mean, a value for each round: what the machine does beside meets both
    /// lanes of a round.
    left: Samples,
}

impl Point {
    /// Of rounds: on a channel of its own, and in one queue with the background.
    #[must_use]
    pub fn of(background_bytes: u64, own: &[Seen], shared: &[Seen]) -> Self {
        let mean = |seen: &Seen| seen.times_us.mean();
        let left = own.iter().zip(shared).map(|(own, shared)| mean(own) / mean(shared)).collect();
        Self { background_bytes, own: Seen::together(own), shared: Seen::together(shared), left }
    }
}

/// What a way is called.
const WAYS: [(Way, &str); 5] = [
    (Way::Link(Lane::Own), "a channel of its own"),
    (Way::Link(Lane::Shared), "one queue"),
    (Way::Class, "a class of its own"),
    (Way::Raw, "a queue pair of its own"),
    (Way::RawClass, "a queue pair and a class of its own"),
];

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let backgrounds = params.counts("background");
    let points = backgrounds
        .iter()
        .flat_map(|&bytes| WAYS.map(|(way, _)| foreground(params, bytes, way)))
        .collect();
    let label = |point: &Foreground| {
        let way = WAYS.iter().find(|(way, _)| *way == point.way).map_or("", |(_, name)| name);
        format!("{way}, beside {}", show_bytes(point.background_bytes.into()))
    };
    let mut report = Report::new(STUDY.name, params);
    let results = report.run(runner, points, label, Foreground::run, |result| &result.end)?;
    let seen: Vec<Seen> = results.into_iter().map(|(_, result)| result.seen).collect();
    let by_way = || backgrounds.iter().zip(seen.chunks(WAYS.len()));
    let points: Vec<Point> = by_way()
        .map(|(&background_bytes, ways)| Point::of(background_bytes, &ways[..1], &ways[1..2]))
        .collect();
    fill(&mut report, "Completion of foreground messages", &points);
    let rivals: Vec<Rivals<'_>> = by_way().map(|(&bytes, ways)| Rivals::of(bytes, ways)).collect();
    report.tables.push(rivals_table(&rivals));
    report.plots.push(rivals_plot(&rivals));
    let asked = |rivals: &&Rivals<'_>| CLAIMED_BYTES.contains(&rivals.background_bytes);
    report.claims.extend(rivals.iter().filter(asked).map(|rivals| {
        let name = format!("class_of_raw_class_at_{}", rivals.background_bytes);
        let beside = show_bytes(rivals.background_bytes);
        let what = format!("time with a class of its own, of that of raw verbs, beside {beside}");
        Claim::percent(name, what, Demand::AtMost(125.0), rivals.class_of_raw_class())
    }));
    report.note(&[
        "beside: goodput of the background meanwhile; what has been posted ahead cannot be \
         overtaken, so where that is all that the background has under way both are alike",
        "queue pairs: RC of the userspace NIC with SENDs, one for each flow; a class has queues of \
         its own in cards and switch, which take turns by weight",
    ]);
    Ok(report)
}

/// One background: what Towpath does beside what queue pairs do without it.
struct Rivals<'a> {
    background_bytes: u64,
    own: &'a Seen,
    class: &'a Seen,
    raw: &'a Seen,
    raw_class: &'a Seen,
}

impl<'a> Rivals<'a> {
    /// Of the ways in the order of [`WAYS`].
    fn of(background_bytes: u64, ways: &'a [Seen]) -> Self {
        let [own, _, class, raw, raw_class] = ways else { unreachable!("a result for each way") };
        Self { background_bytes, own, class, raw, raw_class }
    }

    fn own_of_raw(&self) -> f64 {
        self.own.times_us.mean() / self.raw.times_us.mean()
    }

    fn class_of_raw_class(&self) -> f64 {
        self.class.times_us.mean() / self.raw_class.times_us.mean()
    }
}

/// Goodput of the background, where any of its messages has ended: RC tells of whole ones alone.
fn ended(seen: &Seen) -> Option<f64> {
    (seen.background_gbps > 0.0).then_some(seen.background_gbps)
}

fn rivals_table(rivals: &[Rivals<'_>]) -> Table {
    Table::of("rivals", "Beside raw verbs with a queue pair for each flow", rivals)
        .bytes("background_bytes", "background", |r| r.background_bytes)
        .decimals(1, "own_mean_us", "channel: mean", "us", |r| r.own.times_us.mean())
        .decimals(1, "raw_mean_us", "queue pair: mean", "us", |r| r.raw.times_us.mean())
        .decimals(1, "raw_p99_us", "p99", "us", |r| r.raw.times_us.percentile(0.99))
        .decimals(2, "raw_background_gbps", "beside", "Gb/s", |r| ended(r.raw))
        .percent(0, "own_of_raw", "channel of queue pair", Rivals::own_of_raw)
        .decimals(1, "class_mean_us", "class: mean", "us", |r| r.class.times_us.mean())
        .decimals(1, "class_p99_us", "p99", "us", |r| r.class.times_us.percentile(0.99))
        .decimals(2, "class_background_gbps", "beside", "Gb/s", |r| r.class.background_gbps)
        .decimals(1, "raw_class_mean_us", "queue pair in class: mean", "us", |r| {
            r.raw_class.times_us.mean()
        })
        .decimals(1, "raw_class_p99_us", "p99", "us", |r| r.raw_class.times_us.percentile(0.99))
        .decimals(2, "raw_class_background_gbps", "beside", "Gb/s", |r| ended(r.raw_class))
        .percent(0, "class_of_raw_class", "class of queue pair", Rivals::class_of_raw_class)
        .done()
}

fn rivals_plot(rivals: &[Rivals<'_>]) -> Plot {
    let line = |label: &str, seen: &dyn Fn(&Rivals<'_>) -> f64| {
        let points = rivals.iter().map(|r| (r.background_bytes as f64, seen(r)));
        Series::new(label, Style::Line, points)
    };
    Plot {
        title: "Towpath beside raw verbs with a queue pair for each flow".to_owned(),
        x: Axis::log("background message", "bytes"),
        y: Axis::linear("mean", "us"),
        series: vec![
            line("a channel of its own", &|r| r.own.times_us.mean()),
            line("a class of its own", &|r| r.class.times_us.mean()),
            line("a queue pair of its own", &|r| r.raw.times_us.mean()),
            line("a queue pair and a class of its own", &|r| r.raw_class.times_us.mean()),
        ],
    }
}

/// Background messages under way: as many as were asked for, of long ones fewer.
#[must_use]
pub fn depth(params: &Params, background_bytes: u64) -> u64 {
    params.count("depth").min((UNDER_WAY_BYTES / background_bytes).max(2))
}

fn foreground(params: &Params, background: u64, way: Way) -> Foreground {
    let span = Nanos::from_millis(params.count("span-ms"));
    Foreground {
        seed: params.seed,
        controller: controller_of(params.word("controller")).unwrap_or_default(),
        ahead_bytes: params.count("ahead"),
        way,
        weight: params.count("weight") as u16,
        bytes: params.count("bytes") as u32,
        background_bytes: background as u32,
        depth: depth(params, background) as u32,
        rate_bits_per_s: RATE_BITS_PER_S,
        base_rtt: base_rtt_of(params),
        warm_up: Nanos(span.0 / 10),
        span,
    }
}

/// Adds the table, the plot, the targets and what was published: also for who measures the same in
/// real time.
pub fn fill(report: &mut Report, title: &str, points: &[Point]) {
    report.tables.push(table(title, points));
    report.plots.push(plot(title, points));
    let asked = |point: &&Point| CLAIMED_BYTES.contains(&point.background_bytes);
    report.claims.extend(points.iter().filter(asked).map(|point| {
        let name = format!("mean_saved_at_{}", point.background_bytes);
        let what = format!("completion time saved beside {}", show_bytes(point.background_bytes));
        Claim::percent(name, what, Demand::AtLeast(50.0), 1.0 - point.left.median())
    }));
    report.note(&[
        "Avatar saves 40 to 50 % of the completion time of native RDMA (figures 7 to 9), by its \
         own measurements of cards; what is saved here is of one queue, not of queue pairs",
    ]);
}

fn table(title: &str, points: &[Point]) -> Table {
    Table::of("foreground", title, points)
        .bytes("background_bytes", "background", |p| p.background_bytes)
        .decimals(1, "own_mean_us", "own: mean", "us", |p| p.own.times_us.mean())
        .decimals(1, "own_median_us", "median", "us", |p| p.own.times_us.median())
        .decimals(1, "own_p99_us", "p99", "us", |p| p.own.times_us.percentile(0.99))
        .plain("own_messages", "messages", "", |p| p.own.times_us.len())
        .decimals(2, "own_background_gbps", "beside", "Gb/s", |p| p.own.background_gbps)
        .decimals(1, "shared_mean_us", "one queue: mean", "us", |p| p.shared.times_us.mean())
        .decimals(1, "shared_median_us", "median", "us", |p| p.shared.times_us.median())
        .decimals(1, "shared_p99_us", "p99", "us", |p| p.shared.times_us.percentile(0.99))
        .plain("shared_messages", "messages", "", |p| p.shared.times_us.len())
        .decimals(2, "shared_background_gbps", "beside", "Gb/s", |p| p.shared.background_gbps)
        .percent(1, "mean_of_shared", "mean of it", |p| p.left.median())
        .percent(1, "mean_of_shared_spread", "spread", |p| p.left.spread())
        .done()
}

fn plot(title: &str, points: &[Point]) -> Plot {
    let series = |label: &str, of: fn(&Point) -> &Seen| {
        let mean = |point: &Point| (point.background_bytes as f64, of(point).times_us.mean());
        Series::new(label, Style::Line, points.iter().map(mean))
    };
    let tick = |point: &Point| (point.background_bytes as f64, show_bytes(point.background_bytes));
    Plot {
        title: format!("{title}, mean"),
        x: Axis::log("background message", "").ticks(points.iter().map(tick)),
        y: Axis::log("time", "us"),
        series: vec![
            series("channel of its own", |point| &point.own),
            series("one queue", |point| &point.shared),
        ],
    }
}
