//! What the system does without tokens: one client alone (1a), and more and more (1b).

use super::setting::{self, CAPACITY, CLIENTS, DEPTH, PAPER, PERIOD, PERIODS, WARM_UP};
use crate::world::{ClientPlan, Outcome, Pattern, Plan, Sides};
use towpath_base::Nanos;
use towpath_lab::studies::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Series, Study, StudyError, Style, Table,
};

/// I/Os a second of one client by messages, and of all together.
const PAPER_TWO: (f64, f64) = (327_000.0, 427_000.0);

/// What makes the server's processor do 427,000 requests a second, one after the other.
const SERVER_NS: Param = Param {
    name: "server-ns",
    what: "What a request by message costs the server's processor, which does one at a time",
    unit: "ns",
    kind: Kind::Count(1..=1_000_000),
    many: false,
    defaults: ["2342"; 3],
};

/// What makes a client do 327,000.
const CLIENT_NS: Param = Param {
    name: "client-ns",
    what: "What it costs the client's",
    unit: "ns",
    kind: Kind::Count(1..=1_000_000),
    many: false,
    defaults: ["3058"; 3],
};

/// Longer would show the same.
const SHORT: Param = Param { defaults: ["10", "20", "100"], ..PERIOD };

const PARAMS: &[Param] = &[CAPACITY, DEPTH, SHORT, PERIODS, WARM_UP, SERVER_NS, CLIENT_NS];

/// Experiment 1A.
pub(super) const ALONE: Study = Study {
    name: "haechi 1a",
    what: "what each client does by itself, by READs and by messages",
    mirrors: "Haechi experiment 1A, figure 6: 400 K one-sided, 327 K two-sided",
    clock: Clock::Virtual,
    params: PARAMS,
    run: alone,
};

/// Experiment 1B.
pub(super) const TOGETHER: Study = Study {
    name: "haechi 1b",
    what: "what one to ten clients do together, by READs and by messages",
    mirrors: "Haechi experiment 1B, figure 7: 1,570 K one-sided from four clients on, 427 K \
              two-sided",
    clock: Clock::Virtual,
    params: PARAMS,
    run: together,
};

/// One run: how many clients, which of ten if it is alone, and who does the work.
struct Point {
    clients: usize,
    which: usize,
    sides: Sides,
}

impl Point {
    fn label(&self) -> String {
        let how = self.how();
        match self.clients {
            1 => format!("client {} alone, {how}", self.which + 1),
            clients => format!("{clients} clients, {how}"),
        }
    }

    fn how(&self) -> &'static str {
        if self.sides == Sides::One { "one-sided" } else { "two-sided" }
    }

    fn plan(&self, params: &Params) -> Plan {
        let client = ClientPlan::new(u32::MAX, Pattern::Burst);
        let mut plan = setting::plan(params, vec![client; self.clients]);
        plan.sides = self.sides;
        // Each client has dice of its own.
        plan.seed = plan.seed.wrapping_add((self.which as u64) << 32);
        plan
    }
}

fn sides(params: &Params) -> [Sides; 2] {
    let span = |param: &Param| Nanos(params.count(param.name));
    [Sides::One, Sides::Two { server: span(&SERVER_NS), client: span(&CLIENT_NS) }]
}

/// Runs points of which each is there one-sided and two-sided, and gives their pairs.
fn run(
    report: &mut Report,
    params: &Params,
    runner: &Runner<'_>,
    points: impl Iterator<Item = (usize, usize)>,
) -> Result<Vec<[Outcome; 2]>, StudyError> {
    let sides = sides(params);
    let points = points
        .flat_map(|(clients, which)| sides.map(|sides| Point { clients, which, sides }))
        .collect();
    let run = |point: &Point| point.plan(params).run();
    let seen = report.run(runner, points, Point::label, run, |outcome| &outcome.end)?;
    let mut seen = seen.into_iter().map(|(_, outcome)| outcome);
    Ok(std::iter::from_fn(|| Some([seen.next()?, seen.next()?])).collect())
}

fn claim(name: &str, what: &str, demand: Demand, share: f64) -> Claim {
    let (name, what) = (name.to_owned(), what.to_owned());
    Claim { name, what, demand, measured: share * 100.0, unit: "%", decimals: 1 }
}

fn alone(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(ALONE.name, params);
    let seen = run(&mut report, params, runner, (0..CLIENTS).map(|which| (1, which)))?;
    let columns = vec![
        Column::new("client", "client", "", Format::Plain),
        Column::new("one_sided_per_s", "one-sided", "I/Os/s", Format::Decimals(0)),
        Column::new("paper_one_sided_per_s", "paper", "I/Os/s", Format::Decimals(0)),
        Column::new("one_sided_mean_us", "mean", "us", Format::Decimals(1)),
        Column::new("two_sided_per_s", "two-sided", "I/Os/s", Format::Decimals(0)),
        Column::new("paper_two_sided_per_s", "paper", "I/Os/s", Format::Decimals(0)),
        Column::new("two_sided_mean_us", "mean", "us", Format::Decimals(1)),
    ];
    let row = |(which, [one, two]): (usize, &[Outcome; 2])| -> Vec<Cell> {
        vec![
            (which as u64 + 1).into(),
            one.ios_per_s().into(),
            (PAPER.one as f64).into(),
            one.latency[0].mean_us().into(),
            two.ios_per_s().into(),
            PAPER_TWO.0.into(),
            two.latency[0].mean_us().into(),
        ]
    };
    let rows = seen.iter().enumerate().map(row).collect();
    let title = "One client at a time".to_owned();
    report.tables = vec![Table { name: "alone", title, columns, rows }];
    let line = |label: &str, place: usize| {
        let points = seen.iter().enumerate();
        let points =
            points.map(|(which, pair)| (which as f64 + 1.0, pair[place].ios_per_s() / 1e3));
        Series { label: label.to_owned(), style: Style::Points, points: points.collect() }
    };
    let bound = |label: &str, ios: f64| {
        let points = vec![(1.0, ios / 1e3), (CLIENTS as f64, ios / 1e3)];
        Series { label: label.to_owned(), style: Style::Bound, points }
    };
    report.plots = vec![Plot {
        title: "one client at a time (figure 6)".to_owned(),
        x: Axis::linear("client", "").range(0.5, CLIENTS as f64 + 0.5),
        y: Axis::linear("I/Os", "thousands/s"),
        series: vec![
            line("one-sided", 0),
            line("two-sided", 1),
            bound("paper: 400 and 327", PAPER.one as f64),
            bound("paper: 400 and 327", PAPER_TWO.0),
        ],
    }];
    let wanted = setting::rates(params).one as f64;
    let least = |place: usize| {
        seen.iter().map(|pair| pair[place].ios_per_s()).fold(f64::INFINITY, f64::min)
    };
    let at_least = Demand::AtLeast(99.0);
    report.claims =
        vec![claim("one_sided", "of C_L, the slowest client", at_least, least(0) / wanted)];
    report.notes = notes(params);
    Ok(report)
}

fn together(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(TOGETHER.name, params);
    let seen = run(&mut report, params, runner, (1..=CLIENTS).map(|clients| (clients, 0)))?;
    let columns = vec![
        Column::new("clients", "clients", "", Format::Plain),
        Column::new("one_sided_per_s", "one-sided", "I/Os/s", Format::Decimals(0)),
        Column::new("of_capacity", "of C_G", "%", Format::Percent(2)),
        Column::new("least_most", "least of most", "%", Format::Percent(1)),
        Column::new("two_sided_per_s", "two-sided", "I/Os/s", Format::Decimals(0)),
    ];
    let all = setting::rates(params).all as f64;
    let row = |(before, [one, two]): (usize, &[Outcome; 2])| -> Vec<Cell> {
        let of = |client| one.client_ios_per_s(client);
        let least = (0..=before).map(of).fold(f64::INFINITY, f64::min);
        let most = (0..=before).map(of).fold(0.0, f64::max);
        vec![
            (before as u64 + 1).into(),
            one.ios_per_s().into(),
            (one.ios_per_s() / all).into(),
            (least / most).into(),
            two.ios_per_s().into(),
        ]
    };
    let rows = seen.iter().enumerate().map(row).collect();
    let title = "Clients together; paper: one-sided 1,570,000 from four on, two-sided 427,000";
    report.tables = vec![Table { name: "together", title: title.to_owned(), columns, rows }];
    let line = |label: &str, place: usize| {
        let points = seen.iter().enumerate();
        let points =
            points.map(|(before, pair)| (before as f64 + 1.0, pair[place].ios_per_s() / 1e3));
        Series { label: label.to_owned(), style: Style::Line, points: points.collect() }
    };
    let bound = |ios: f64| {
        let points = vec![(1.0, ios / 1e3), (CLIENTS as f64, ios / 1e3)];
        let label = "paper, saturated: 1,570 and 427".to_owned();
        Series { label, style: Style::Bound, points }
    };
    report.plots = vec![Plot {
        title: "clients together (figure 7)".to_owned(),
        x: Axis::linear("clients", "").range(0.5, CLIENTS as f64 + 0.5),
        y: Axis::linear("I/Os", "thousands/s"),
        series: vec![
            line("one-sided", 0),
            line("two-sided", 1),
            bound(PAPER.all as f64),
            bound(PAPER_TWO.1),
        ],
    }];
    let saturated = seen[3..].iter().map(|pair| pair[0].ios_per_s() / all);
    let least = saturated.fold(f64::INFINITY, f64::min);
    let three = seen[2][0].ios_per_s() / (3.0 * setting::rates(params).one as f64);
    report.claims = vec![
        claim("saturated", "of C_G, from four clients on", Demand::AtLeast(99.0), least),
        claim("three", "three clients, of 3 C_L", Demand::AtLeast(99.0), three),
    ];
    report.notes = notes(params);
    Ok(report)
}

fn notes(params: &Params) -> Vec<String> {
    let mut notes = setting::notes(params);
    notes.push(format!(
        "in virtual time processors cost nothing, so two-sided figures mean what is said of them: \
         {} ns of the server's processor and {} ns of the client's for each request, which are the \
         paper's 427,000 and 327,000 a second; only how they go together is the simulator's",
        params.count(SERVER_NS.name),
        params.count(CLIENT_NS.name)
    ));
    notes
}
