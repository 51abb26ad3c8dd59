//! Tables and targets.

use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Cell, Claim, Column, Demand, Format, Params, Plot, Report, Series, Study, Style, Table,
};

use super::client::{Did, Took};
use super::world::{Seen, System};
use super::{LOAD, SLOWER_MAX};

/// What is compared: its name, and where it is in what a class did.
struct Row {
    name: &'static str,
    class: usize,
    took: fn(&Did) -> Took,
}

const ROWS: [Row; 3] = [
    Row { name: "gold reads", class: 0, took: |did| did.reads },
    Row { name: "silver reads", class: 1, took: |did| did.reads },
    Row { name: "gold writes", class: 0, took: |did| did.writes },
];

impl Row {
    fn samples(&self, rounds: &[Seen], of: fn(Took) -> f64) -> Samples {
        rounds.iter().map(|seen| of((self.took)(&seen.classes[self.class]))).collect()
    }

    /// How much slower a system is than another one, round by round: mean and 99th percentile.
    fn slower(&self, rounds: &[Seen], than: &[Seen]) -> [Samples; 2] {
        [|took: Took| took.mean, |took: Took| took.p99].map(|of| {
            let pairs = rounds.iter().zip(than);
            pairs
                .map(|(seen, quiet)| {
                    let [seen, quiet] =
                        [seen, quiet].map(|one| of((self.took)(&one.classes[self.class])));
                    seen / quiet - 1.0
                })
                .collect()
        })
    }
}

pub(super) fn report(
    study: &Study,
    params: &Params,
    (bandwidth, targets): (f64, [f64; 2]),
    systems: &[System],
    seen: &[Vec<Seen>],
) -> Report {
    let mut report = Report::new(study.name, params);
    report.tables.push(table(bandwidth, systems, seen));
    let quiet = &seen[0];
    for (&system, rounds) in systems.iter().zip(seen) {
        let System::Beside { load, targets: Some(_), .. } = system else { continue };
        if (load - LOAD).abs() > 0.5 {
            continue;
        }
        for row in ROWS.iter().take(2) {
            let slower = row.slower(rounds, quiet);
            for (slower, what) in slower.into_iter().zip(["mean", "p99"]) {
                report.claims.push(Claim {
                    name: format!("{}_{what}", row.name.replace(' ', "_")),
                    what: format!("{what} of {}, Copper writing at {load} %", row.name),
                    demand: Demand::AtMost(SLOWER_MAX * 100.0),
                    measured: slower.median() * 100.0,
                    unit: "% slower",
                    decimals: 1,
                });
            }
        }
    }
    report.plots.push(plot(systems, seen));
    report.notes.push(format!(
        "interference control keeps to reads of {:.0} us in the mean and {:.0} us at the 99th \
         percentile, as the server takes them: 5 % more than it was seen to take beside Gold alone",
        targets[0], targets[1]
    ));
    report
}

fn table(bandwidth: f64, systems: &[System], seen: &[Vec<Seen>]) -> Table {
    let mut rows = Vec::new();
    for (&system, rounds) in systems.iter().zip(seen) {
        let written: Samples = rounds.iter().map(|seen| seen.copper_bytes as f64).collect();
        let cuts: Samples = rounds.iter().map(|seen| seen.cuts as f64).collect();
        for row in &ROWS {
            let [mean, p99] = row.slower(rounds, &seen[0]);
            let spread = |samples: &Samples| Cell::Number(samples.median());
            rows.push(vec![
                Cell::Text(system.name()),
                row.name.into(),
                Cell::Number(row.samples(rounds, |took| took.mean).median()),
                Cell::Number(row.samples(rounds, |took| took.p99).median()),
                spread(&mean),
                Cell::Number(mean.percentile(0.0)),
                Cell::Number(mean.percentile(1.0)),
                spread(&p99),
                Cell::Count(row.samples(rounds, |took| took.count as f64).median() as u64),
                Cell::Number(written.median() / 1e6),
                Cell::Count(cuts.median() as u64),
            ]);
        }
    }
    Table {
        name: "classes",
        title: format!(
            "Gold and Silver beside Copper's writes; the server writes {:.0} MB/s by itself",
            bandwidth / 1e6
        ),
        columns: vec![
            Column::new("copper", "copper", "", Format::Plain),
            Column::new("what", "what", "", Format::Plain),
            Column::new("mean_us", "mean", "us", Format::Decimals(0)),
            Column::new("p99_us", "p99", "us", Format::Decimals(0)),
            Column::new("mean_slower", "mean slower", "%", Format::Percent(1)),
            Column::new("mean_slower_least", "least", "%", Format::Percent(1)),
            Column::new("mean_slower_most", "most", "%", Format::Percent(1)),
            Column::new("p99_slower", "p99 slower", "%", Format::Percent(1)),
            Column::new("count", "operations", "", Format::Plain),
            Column::new("copper_mb", "Copper writes", "MB/s", Format::Decimals(0)),
            Column::new("cuts", "cuts", "", Format::Plain),
        ],
        rows,
    }
}

fn plot(systems: &[System], seen: &[Vec<Seen>]) -> Plot {
    let mut series = Vec::new();
    for row in ROWS.iter().take(2) {
        for (is_controlled, word) in [(false, ""), (true, ", controlled")] {
            let of = systems.iter().zip(seen).filter_map(|(system, rounds)| match *system {
                System::Beside { load, targets, .. } if targets.is_some() == is_controlled => {
                    Some((load, row.samples(rounds, |took| took.mean).median()))
                }
                System::Quiet => Some((0.0, row.samples(rounds, |took| took.mean).median())),
                _ => None,
            });
            let label = format!("{}{word}", row.name);
            series.push(Series { label, style: Style::Line, points: of.collect() });
        }
    }
    Plot {
        title: "Reads beside Copper's writes".to_owned(),
        x: Axis::linear("Copper's writes", "% of the server"),
        y: Axis::linear("mean latency", "us"),
        series,
    }
}
