//! The study: goodput over time, and what is asked of its shares.

use super::{Fairness, FairnessResult, STEPS_PER_PHASE};
use crate::studies::controller::{controller_of, controllers};
use crate::studies::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};
use towpath_base::{Nanos, Time};

/// The study.
pub const STUDY: Study = Study {
    name: "fairness",
    what: "flows that come and go, and flows with unlike round trips, over one port",
    mirrors: "Swift: convergence and fairness; PNet 5.3: equal shares",
    clock: Clock::Virtual,
    params: &[
        controllers(["swift", "swift", "swift,fixed:256KiB"]),
        Param::count("phase-ms", "ms", 1..=1_000, ["5", "20", "50"])
            .what("How long each set of flows lasts"),
    ],
    run,
};

/// Which of the two runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Joining,
    Unlike,
}

struct Point {
    name: String,
    which: Which,
    is_first: bool,
    fairness: Fairness,
}

/// Flows that are on at a time in the seven phases.
const FLOWS_IN_PHASE: [usize; 7] = [1, 2, 3, 4, 3, 2, 1];

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let phase = Nanos::from_millis(params.count("phase-ms"));
    let mut points = Vec::new();
    for (place, name) in params.words("controllers").iter().enumerate() {
        let controller = controller_of(name).unwrap_or_default();
        let joining = Fairness::joining(params.seed, controller, phase);
        let unlike = Fairness::unlike(params.seed, controller, phase.saturating_mul(3));
        for (which, fairness) in [(Which::Joining, joining), (Which::Unlike, unlike)] {
            points.push(Point { name: name.clone(), which, is_first: place == 0, fairness });
        }
    }
    let mut report = Report::new(STUDY.name, params);
    let seen = report.run(runner, points, label, |point| point.fairness.run(), |r| &r.end)?;
    report.tables = vec![joining_table(&seen), unlike_table(&seen)];
    report.plots = seen.iter().map(|(point, result)| plot(point, result)).collect();
    report.claims = claims(&seen);
    report.note(&[
        "each phase is judged by its second half: before that flows are still on their way to \
         their shares",
        "flows with unlike round trips are reported and have no target: a controller of this kind \
         gives less to a flow with a longer round trip",
    ]);
    Ok(report)
}

fn label(point: &Point) -> String {
    match point.which {
        Which::Joining => format!("{}: flows come and go", point.name),
        Which::Unlike => format!("{}: round trips of 10 to 80 us", point.name),
    }
}

/// The second half of a phase.
fn settled(phase: usize) -> core::ops::Range<usize> {
    phase * STEPS_PER_PHASE + STEPS_PER_PHASE / 2..(phase + 1) * STEPS_PER_PHASE
}

fn joining_table(seen: &[(Point, FairnessResult)]) -> Table {
    let mut rows = Vec::new();
    for (point, result) in seen.iter().filter(|(point, _)| point.which == Which::Joining) {
        for (phase, flows) in FLOWS_IN_PHASE.into_iter().enumerate() {
            let on = result.over(settled(phase)).into_iter().filter(|goodput| *goodput > 0.0);
            let on: Vec<f64> = on.map(|goodput| goodput / 1e9).collect();
            let jain = result.fairness(settled(phase));
            rows.push((point.name.as_str(), phase, flows, on, jain));
        }
    }
    let title = "Flows that come and go, one more and then one less each phase";
    Table::of("joining", title, &rows)
        .plain("controller", "controller", "", |&(name, ..)| name)
        .plain("phase", "phase", "", |&(_, phase, ..)| phase + 1)
        .plain("flows", "flows", "", |&(_, _, flows, ..)| flows)
        .decimals(1, "goodput_gbps", "all", "Gb/s", |(.., on, _)| on.iter().sum::<f64>())
        .decimals(1, "least_gbps", "least", "Gb/s", |(.., on, _)| {
            on.iter().copied().fold(f64::INFINITY, f64::min)
        })
        .decimals(1, "most_gbps", "most", "Gb/s", |(.., on, _)| {
            on.iter().copied().fold(0.0, f64::max)
        })
        .decimals(4, "jain", "Jain", "", |&(.., jain)| jain)
        .done()
}

fn unlike_table(seen: &[(Point, FairnessResult)]) -> Table {
    let mut rows = Vec::new();
    for (point, result) in seen.iter().filter(|(point, _)| point.which == Which::Unlike) {
        let (from, to) = (result.steps() / 2, result.steps());
        let jain = result.fairness(from..to);
        for (&(rtt, ..), goodput) in point.fairness.senders.iter().zip(result.over(from..to)) {
            rows.push((point.name.as_str(), rtt, goodput, jain));
        }
    }
    Table::of("unlike", "Flows with unlike round trips, at the same time", &rows)
        .plain("controller", "controller", "", |&(name, ..)| name)
        .plain("base_rtt_us", "base round trip", "us", |(_, rtt, ..)| rtt.0 / 1_000)
        .decimals(1, "goodput_gbps", "goodput", "Gb/s", |(_, _, goodput, _)| goodput / 1e9)
        .decimals(4, "jain", "Jain of all", "", |&(.., jain)| jain)
        .done()
}

fn plot(point: &Point, result: &FairnessResult) -> Plot {
    let step_ms = result.step.as_secs_f64() * 1e3;
    let series = result.goodput.iter().zip(&point.fairness.senders).enumerate().map(
        |(number, (goodputs, &(rtt, start, stop)))| {
            let at = |(place, goodput): (usize, &f64)| (place as f64 * step_ms, goodput / 1e9);
            // A line at zero before the start and after the stop would cover other flows.
            let is_on = |&(place, _): &(usize, &f64)| {
                let begin = Time::ZERO + result.step.saturating_mul(place as u64);
                (start..stop).contains(&begin)
            };
            let label = match point.which {
                Which::Joining => format!("flow {}", number + 1),
                Which::Unlike => format!("{} us", rtt.0 / 1_000),
            };
            Series::new(label, Style::Line, goodputs.iter().enumerate().filter(is_on).map(at))
        },
    );
    Plot {
        title: label(point),
        x: Axis::linear("time", "ms"),
        y: Axis::linear("goodput", "Gb/s").range(0.0, 100.0),
        series: series.collect(),
    }
}

/// The published two-card cluster ended within 1.3 %; four flows of one kind are asked for this.
const JAIN_MIN: f64 = 0.98;

fn claims(seen: &[(Point, FairnessResult)]) -> Vec<Claim> {
    let first = seen.iter().find(|(p, _)| p.is_first && p.which == Which::Joining);
    let Some((_, result)) = first else { return Vec::new() };
    let jain = (0..FLOWS_IN_PHASE.len()).map(|phase| result.fairness(settled(phase)));
    let used = (0..FLOWS_IN_PHASE.len())
        .map(|phase| result.over(settled(phase)).into_iter().sum::<f64>() / 1e9);
    let (fair, all) = (Demand::AtLeast(JAIN_MIN), "goodput of all, worst phase");
    let least = |all: &mut dyn Iterator<Item = f64>| all.fold(f64::INFINITY, f64::min);
    vec![
        Claim::new(
            "jain_worst_phase",
            "Jain index, worst phase",
            fair,
            least(&mut { jain }),
            "",
            4,
        ),
        Claim::new(
            "goodput_worst_phase",
            all,
            Demand::AtLeast(90.0),
            least(&mut { used }),
            "Gb/s",
            1,
        ),
    ]
}
