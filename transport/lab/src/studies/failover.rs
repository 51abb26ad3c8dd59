//! Spines that die one after another and come back: what links do before the fabric notices.

use super::outage::{
    EVERY, Fault, HOSTS, LATE, Outage, OutageResult, PATHS, SLOW, ms, recovery_bound,
};
use super::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Series, Study, StudyError, Style, Table,
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
        Param {
            name: "spines",
            what: "Ways from leaf to leaf; all but one of them die",
            unit: "switches",
            kind: Kind::Count(2..=16),
            many: false,
            defaults: ["3", "4", "8"],
        },
        HOSTS,
        EVERY,
        Param {
            name: "step-ms",
            what: "From one event to the next",
            unit: "ms",
            kind: Kind::Count(10..=60_000),
            many: false,
            defaults: ["1500", "1500", "3000"],
        },
        Param {
            name: "noticed-ms",
            what: "How long a dead spine still gets packets: then the fabric has noticed",
            unit: "ms",
            kind: Kind::Count(0..=60_000),
            many: false,
            defaults: ["200", "500", "1000"],
        },
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
    report.notes = vec![
        "an I/O is a write of 4 KiB, counted in the phase in which it was sent; its answer is the \
         word that it is delivered; one that a client turned away, because 1,024 waited for the \
         link, is counted as refused"
            .to_owned(),
        "off: one path a link and one source port, and the fabric decides alone".to_owned(),
        "good paths: at the end of the phase, of both ends of all links".to_owned(),
    ];
    Ok(report)
}

fn label(point: &Point) -> String {
    format!("rerouting {}", point.outage.rerouting())
}

fn table(seen: &[(Point, OutageResult)]) -> Table {
    let columns = vec![
        Column::new("rerouting", "rerouting", "", Format::Plain),
        Column::new("from_ms", "from", "ms", Format::Plain),
        Column::new("spines", "spines", "", Format::Plain),
        Column::new("ios", "I/Os", "", Format::Plain),
        Column::new("ios_above_10ms", "above 10 ms", "", Format::Plain),
        Column::new("ios_above_1s", "above 1 s", "", Format::Plain),
        Column::new("longest_ms", "longest", "ms", Format::Decimals(2)),
        Column::new("doubts", "doubts", "", Format::Plain),
        Column::new("good_paths", "good paths", "%", Format::Decimals(1)),
    ];
    let mut rows = Vec::new();
    for (point, result) in seen {
        let phases = point.phases();
        let ends = phases.iter().skip(1).map(|&(at, _)| at).chain([Time::NEVER]);
        for (&(from, spines), to) in phases.iter().zip(ends) {
            let of_phase = result.between(from, to);
            rows.push(vec![
                Cell::from(point.outage.rerouting()),
                (from.0 / 1_000_000).into(),
                (spines as u64).into(),
                of_phase.ios().into(),
                of_phase.above(LATE).into(),
                of_phase.above(SLOW).into(),
                ms(of_phase.longest()).into(),
                of_phase.doubts().into(),
                (result.good_paths(point.outage.paths, to) * 100.0).into(),
            ]);
        }
    }
    let title = "I/Os and paths while spines die and come back".to_owned();
    Table { name: "phases", title, columns, rows }
}

fn plot(seen: &[(Point, OutageResult)]) -> Plot {
    let series = seen.iter().map(|(point, result)| {
        let points = result.longest_by_step(STEP);
        Series { label: label(point), style: Style::Line, points }
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
    let claim = |name: &str, what: &str, demand, measured, unit, decimals| Claim {
        name: name.to_owned(),
        what: what.to_owned(),
        demand,
        measured,
        unit,
        decimals,
    };
    let fewer = off.above(LATE) as f64 / on.above(LATE).max(1) as f64;
    let good = on.good_paths(point.outage.paths, Time::NEVER) * 100.0;
    vec![
        claim(
            "longest_ms",
            "longest answer, two ticks and two round trips",
            Demand::AtMost(ms(recovery_bound())),
            ms(on.longest()),
            "ms",
            2,
        ),
        claim("slow", "I/Os above 1 s", Demand::AtMost(0.0), on.above(SLOW) as f64, "", 0),
        claim(
            "fewer_late",
            "I/Os above 10 ms, off by on",
            Demand::AtLeast(10.0),
            fewer,
            "times",
            1,
        ),
        claim("good_paths", "good paths at the end", Demand::AtLeast(99.0), good, "%", 1),
    ]
}
