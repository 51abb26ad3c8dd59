//! Demands and patterns without tokens (1c): a spike of demands with bursts leaves the server idle.

use super::bars::{self, Bars};
use super::setting::{self, CAPACITY, CLIENTS, DEPTH, PERIOD, PERIODS, WARM_UP};
use crate::world::{ClientPlan, Outcome, Pattern, Plan};
use towpath_lab::studies::{
    Cell, Claim, Clock, Column, Demand, Format, Params, Report, Runner, Study, StudyError, Table,
};

/// Experiment 1C.
pub(super) const STUDY: Study = Study {
    name: "haechi 1c",
    what: "demands that are alike and unlike, in bursts and at constant rates, without tokens",
    mirrors: "Haechi experiment 1C, figure 8: a spike with bursts does 1,380 K of 1,570 K",
    clock: Clock::Virtual,
    params: &[CAPACITY, DEPTH, PERIOD, PERIODS, WARM_UP],
    run,
};

/// A case, and what the paper says of it, in thousands of I/Os a second.
struct Case {
    name: &'static str,
    figure: &'static str,
    is_spike: bool,
    pattern: Pattern,
    paper_all: f64,
    /// Of the clients with large demands, and of the others.
    paper: (f64, f64),
    demand: Demand,
}

const CASES: [Case; 3] = [
    Case {
        name: "uniform, burst",
        figure: "8(a)",
        is_spike: false,
        pattern: Pattern::Burst,
        paper_all: 1_570.0,
        paper: (157.0, 157.0),
        demand: Demand::AtLeast(99.0),
    },
    Case {
        name: "spike, burst",
        figure: "8(b)",
        is_spike: true,
        pattern: Pattern::Burst,
        paper_all: 1_380.0,
        paper: (278.0, 80.0),
        demand: Demand::AtMost(90.0),
    },
    Case {
        name: "spike, constant rate",
        figure: "8(c)",
        is_spike: true,
        pattern: Pattern::Constant,
        paper_all: 1_564.0,
        paper: (332.0, 80.0),
        demand: Demand::AtLeast(99.0),
    },
];

/// Clients with large demands in a spike.
const LARGE: usize = 3;

impl Case {
    fn demands(&self, params: &Params) -> Vec<u32> {
        let ios = |client| match (self.is_spike, client < LARGE) {
            (false, _) => 158_000,
            (true, true) => 340_000,
            (true, false) => 80_000,
        };
        (0..CLIENTS).map(|client| setting::per_period(params, ios(client))).collect()
    }

    fn plan(&self, params: &Params) -> Plan {
        let pattern = self.pattern;
        let client = |demand| ClientPlan::new(demand, pattern);
        setting::plan(params, self.demands(params).into_iter().map(client).collect())
    }
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let label = |case: &&Case| case.name.to_owned();
    let run = |case: &&Case| case.plan(params).run();
    let seen = report.run(runner, CASES.iter().collect(), label, run, |outcome| &outcome.end)?;
    let all = setting::rates(params).all as f64;
    report.tables = vec![totals(&seen, all), clients(params, &seen)];
    report.plots = seen
        .iter()
        .map(|(case, outcome)| {
            let wanted = Bars::level("wanted", &case.demands(params), outcome.done.len());
            let title = format!("{} (figure {})", case.name, case.figure);
            bars::draw(title, vec![wanted, Bars::of("completed", outcome)])
        })
        .collect();
    report.claims = seen
        .iter()
        .map(|(case, outcome)| Claim {
            name: case.name.replace([',', ' '], "_").replace("__", "_"),
            what: format!("{}: of C_G", case.name),
            demand: case.demand,
            measured: outcome.ios_per_s() / all * 100.0,
            unit: "%",
            decimals: 1,
        })
        .collect();
    report.notes = setting::notes(params);
    Ok(report)
}

fn totals(seen: &[(&Case, Outcome)], all: f64) -> Table {
    let columns = vec![
        Column::new("case", "case", "", Format::Plain),
        Column::new("kios_per_s", "completed", "K/s", Format::Decimals(1)),
        Column::new("of_capacity", "of C_G", "%", Format::Percent(2)),
        Column::new("paper_kios_per_s", "paper", "K/s", Format::Decimals(0)),
        Column::new("paper_of_capacity", "of C_G", "%", Format::Percent(1)),
    ];
    let row = |(case, outcome): &(&Case, Outcome)| -> Vec<Cell> {
        vec![
            case.name.into(),
            (outcome.ios_per_s() / 1e3).into(),
            (outcome.ios_per_s() / all).into(),
            case.paper_all.into(),
            (case.paper_all / 1_570.0).into(),
        ]
    };
    let title = "All clients".to_owned();
    Table { name: "totals", title, columns, rows: seen.iter().map(row).collect() }
}

fn clients(params: &Params, seen: &[(&Case, Outcome)]) -> Table {
    let columns = vec![
        Column::new("case", "case", "", Format::Plain),
        Column::new("client", "client", "", Format::Plain),
        Column::new("wanted_kios_per_s", "wanted", "K/s", Format::Decimals(1)),
        Column::new("client_kios_per_s", "completed", "K/s", Format::Decimals(1)),
        Column::new("least_kios_per_s", "least", "K/s", Format::Decimals(1)),
        Column::new("most_kios_per_s", "most", "K/s", Format::Decimals(1)),
        Column::new("paper_client_kios_per_s", "paper, about", "K/s", Format::Decimals(0)),
    ];
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (case, outcome) in seen {
        let scale = 1.0 / (outcome.period.as_secs_f64() * 1e3);
        for (client, wanted) in case.demands(params).into_iter().enumerate() {
            let done = || outcome.done.iter().map(|done| f64::from(done[client]) * scale);
            let paper = if client < LARGE { case.paper.0 } else { case.paper.1 };
            rows.push(vec![
                case.name.into(),
                (client as u64 + 1).into(),
                (f64::from(wanted) * scale).into(),
                (outcome.client_ios_per_s(client) / 1e3).into(),
                done().fold(f64::INFINITY, f64::min).into(),
                done().fold(0.0, f64::max).into(),
                paper.into(),
            ]);
        }
    }
    Table { name: "clients", title: "By client".to_owned(), columns, rows }
}
