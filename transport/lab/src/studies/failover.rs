//! Spines that die one after another and come back: what links do before the fabric notices.

use super::outage::{
    EVERY, Fault, HOSTS, LATE, Outage, OutageResult, PATHS, SLOW, ms, recovery_bound,
};
use super::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};
use towpath_base::{Nanos, Time};

/// The study.
pub const STUDY: Study = Study {
    name: "failover",
    what: "spines that die one after another and come back, with rerouting on and off",
    mirrors: "PNet 4.2: a way around what is broken before its user notices",
    clock: Clock::Virtual,
    params: &[
        PATHS,
        Param::count("spines", "switches", 2..=16, ["3", "4", "8"])
            .what("Ways from leaf to leaf; all but one of them die"),
        HOSTS,
        EVERY,
        Param::count("step-ms", "ms", 10..=60_000, ["1500", "1500", "3000"])
            .what("From one event to the next"),
        Param::count("noticed-ms", "ms", 0..=60_000, ["200", "500", "1000"])
            .what("How long a dead spine still gets packets: then the fabric has noticed"),
    ],
    run,
};

/// What is whole before the first one dies.
const BEFORE: Nanos = Nanos::from_millis(100);

/// Points of a plot, one for each of these.
const STEP: Nanos = Nanos::from_millis(50);

struct Point {
    outage: Outage,
    step: Nanos,
}

impl Point {
    /// The phases: when each begins, and how many spines are whole in it.
    fn phases(&self) -> Vec<(Time, usize)> {
        let spines = self.outage.spines;
        let whole = (1..spines).rev().chain(2..=spines);
        let later = whole.enumerate().map(|(place, whole)| {
            (self.outage.start + self.step.saturating_mul(place as u64), whole)
        });
        std::iter::once((Time::ZERO, spines)).chain(later).collect()
    }
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let step = Nanos::from_millis(params.count("step-ms"));
    let noticed = Nanos::from_millis(params.count("noticed-ms"));
    let spines = params.count("spines") as usize;
    let point = |paths| {
        let outage = Outage {
            seed: params.seed,
            fault: Fault::OneByOne { step, noticed },
            paths,
            spines,
            hosts: params.count("hosts") as usize,
            every: Nanos::from_micros(params.count("every-us")),
            start: Time::ZERO + BEFORE,
            // The last one is back then.
            span: step.saturating_mul(2 * spines as u64 - 3),
        };
        Point { outage, step }
    };
    let points = [params.count("paths") as usize, 1].map(point).into();
    let mut report = Report::new(STUDY.name, params);
    let seen = report.run(runner, points, label, |point| point.outage.run(), |r| &r.end)?;
    report.tables = vec![table(&seen)];
    report.plots = vec![plot(&seen)];
    report.claims = claims(&seen);
    report.note(&[
        "an I/O is a write of 4 KiB, counted in the phase in which it was sent; its answer is the \
         word that it is delivered; one that a client turned away, because 1,024 waited for the \
         link, is counted as refused",
        "off: one path a link and one source port, and the fabric decides alone",
        "good paths: at the end of the phase, of both ends of all links",
    ]);
    Ok(report)
}

fn label(point: &Point) -> String {
    format!("rerouting {}", point.outage.rerouting())
}

fn table(seen: &[(Point, OutageResult)]) -> Table {
    let mut rows = Vec::new();
    for (point, result) in seen {
        let phases = point.phases();
        let ends = phases.iter().skip(1).map(|&(at, _)| at).chain([Time::NEVER]);
        for (&(from, spines), to) in phases.iter().zip(ends) {
            let good = result.good_paths(point.outage.paths, to) * 100.0;
            rows.push((point.outage.rerouting(), from, spines, good, result.between(from, to)));
        }
    }
    Table::of("phases", "I/Os and paths while spines die and come back", &rows)
        .plain("rerouting", "rerouting", "", |&(rerouting, ..)| rerouting)
        .plain("from_ms", "from", "ms", |(_, from, ..)| from.0 / 1_000_000)
        .plain("spines", "spines", "", |&(_, _, spines, ..)| spines)
        .plain("ios", "I/Os", "", |(.., phase)| phase.ios())
        .plain("ios_above_10ms", "above 10 ms", "", |(.., phase)| phase.above(LATE))
        .plain("ios_above_1s", "above 1 s", "", |(.., phase)| phase.above(SLOW))
        .decimals(2, "longest_ms", "longest", "ms", |(.., phase)| ms(phase.longest()))
        .plain("doubts", "doubts", "", |(.., phase)| phase.doubts())
        .decimals(1, "good_paths", "good paths", "%", |&(_, _, _, good, _)| good)
        .done()
}

fn plot(seen: &[(Point, OutageResult)]) -> Plot {
    let series = seen.iter().map(|(point, result)| {
        Series::new(label(point), Style::Line, result.longest_by_step(STEP))
    });
    Plot {
        title: "spines die one after another and come back".to_owned(),
        x: Axis::linear("sent at", "ms"),
        y: Axis::log("longest answer", "ms"),
        series: series.collect(),
    }
}

fn claims(seen: &[(Point, OutageResult)]) -> Vec<Claim> {
    let [(point, on), (_, off)] = seen else { return Vec::new() };
    let (longest, most) = (ms(on.longest()), Demand::AtMost(ms(recovery_bound())));
    let (slow, none) = (on.above(SLOW) as f64, Demand::AtMost(0.0));
    let fewer = off.above(LATE) as f64 / on.above(LATE).max(1) as f64;
    let (late, ten_times) = ("I/Os above 10 ms, off by on", Demand::AtLeast(10.0));
    let (good, all) = (on.good_paths(point.outage.paths, Time::NEVER), Demand::AtLeast(99.0));
    let answer = "longest answer, two ticks and two round trips";
    vec![
        Claim::new("longest_ms", answer, most, longest, "ms", 2),
        Claim::new("slow", "I/Os above 1 s", none, slow, "", 0),
        Claim::new("fewer_late", late, ten_times, fewer, "times", 1),
        Claim::percent("good_paths", "good paths at the end", all, good),
    ]
}
