//! Capacity that is thought to be more than it is, and less (4).

use super::setting::{CAPACITY, CLIENTS, DEPTH, PERIOD, PERIODS, WARM_UP};
use super::shown::{View, claim};
use super::system::{self, Case, Seen, System, TICKS, capacity, uniform, zipf};
use super::token_setting::{LONG, notes};
use crate::world::{ClientPlan, Pattern, Plan};
use towpath_base::Nanos;
use towpath_fastpath::qos::wire::PeriodReport;
use towpath_lab::studies::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Series, Study, StudyError, Style, Table,
};

/// Experiment 4.
pub(super) const STUDY: Study = Study {
    name: "haechi 4",
    what: "a job without tokens begins, or ends: capacity is over-estimated, or under-estimated",
    mirrors: "Haechi experiment 4, figures 16 to 19: the estimate follows after some periods",
    clock: Clock::Virtual,
    params: &[
        CAPACITY,
        DEPTH,
        LONG,
        TICKS,
        Param { defaults: ["12", "20", "30"], ..PERIODS },
        Param { defaults: ["1", "2", "3"], ..WARM_UP },
        CHANGE,
        BACKGROUND,
        Param {
            defaults: ["published,ours", "published,ours", "bare,published,ours"],
            ..system::PARAM
        },
    ],
    run,
};

const CHANGE: Param = Param {
    name: "change",
    what: "The job begins, or ends, before the shown period of this number; the paper's is 15",
    unit: "period",
    kind: Kind::Count(1..=1_000),
    many: false,
    defaults: ["5", "10", "15"],
};

const BACKGROUND: Param = Param {
    name: "background",
    what: "What the job does, of the capacity",
    unit: "share",
    kind: Kind::Share(0.01..=0.5),
    many: false,
    defaults: ["14%"; 3],
};

/// Of the capacity.
const RESERVED: f64 = 0.8;

/// The first half of the clients has a weight of one, the other of so much.
const WEIGHT: u16 = 2;

/// Periods after which a surplus is shared.
const SHARED_AFTER: usize = 5;

const NAMES: [&str; 4] = ["over, uniform", "over, Zipf", "under, uniform", "under, Zipf"];

fn is_under(case: usize) -> bool {
    case >= 2
}

fn cases(params: &Params) -> Vec<Case> {
    let pool = (capacity(params) * (1.0 - RESERVED)) as u32;
    let case = |(number, name): (usize, &&str)| {
        let reserved = if number % 2 == 0 { uniform } else { zipf }(params, RESERVED);
        let wanted = reserved.iter().map(|ios| ios + pool).collect();
        Case { name: (*name).to_owned(), reserved, wanted, pattern: Pattern::Burst }
    };
    NAMES.iter().enumerate().map(case).collect()
}

/// Weights, and a job on ten hosts of its own from the change on, or until then.
fn change(params: &Params, case: &Case, mut plan: Plan) -> Plan {
    let is_under = case.name.starts_with("under");
    for client in plan.clients[CLIENTS / 2..].iter_mut() {
        client.share = client.share.map(|share| towpath_qos::Share { weight: WEIGHT, ..share });
    }
    let before = params.count(WARM_UP.name) + params.count(CHANGE.name);
    let change = Nanos::from_millis(before * params.count(PERIOD.name));
    let ios = capacity(params) * params.share(BACKGROUND.name) / CLIENTS as f64;
    let mut job = ClientPlan::new(ios as u32, Pattern::Constant);
    job.share = None;
    job.active = if is_under { (Nanos::ZERO, change) } else { (change, Nanos(u64::MAX)) };
    plan.clients.extend([job; CLIENTS]);
    plan
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    if params.count(CHANGE.name) + SHARED_AFTER as u64 >= params.count(PERIODS.name) {
        let problem = "the change has more than five periods after it";
        return Err(StudyError::Params { name: CHANGE.name, problem });
    }
    let mut report = Report::new(STUDY.name, params);
    let cases = cases(params);
    let with = |case: &Case, plan| change(params, case, plan);
    let seen = system::run(&mut report, (params, runner), &cases, with)?;
    let view = View { params, cases: &cases, seen: &seen };
    report.tables = vec![view.totals(), periods(&view), view.clients(|_, _, _| None)];
    let lines = |case: usize| {
        let number =
            |first: usize| format!("figure {}{}", first + 2 * (case / 2), ["a", "b"][case % 2]);
        [
            line(&view, case, number(16), "all clients", |seen, n| seen.outcome.total(n) as f64),
            line(&view, case, number(17), "C1", |seen, n| f64::from(seen.outcome.done[n][0])),
        ]
    };
    report.plots = (0..cases.len()).flat_map(lines).collect();
    report.claims = view.nothing_missed();
    report.claims.extend((0..cases.len()).filter_map(|case| followed(&view, case)));
    report.claims.extend(
        (0..cases.len())
            .filter(|case| is_under(*case))
            .filter_map(|case| surplus_used(&view, case)),
    );
    report.claims.extend(shared_by_weight(&view));
    report.notes = notes(params);
    report.notes.push(format!(
        "the job is READs at a constant rate by ten hosts of their own, {:.0} % of the capacity, \
         which the paper leaves open; 80 % are reserved, and all want that and a fifth of the \
         capacity; C6 to C10 have a weight of {WEIGHT}",
        params.share(BACKGROUND.name) * 100.0
    ));
    Ok(report)
}

/// Each period.
fn periods(view: &View<'_>) -> Table {
    let columns = vec![
        Column::new("case", "case", "", Format::Plain),
        Column::new("system", "system", "", Format::Plain),
        Column::new("period", "period", "", Format::Plain),
        Column::new("period_of_capacity", "completed", "% of C_G", Format::Percent(2)),
        Column::new("estimate_of_capacity", "estimate after", "% of C_G", Format::Percent(2)),
        Column::new("first_of_reserved", "C1", "% of reserved", Format::Percent(1)),
        Column::new("period_clients_missed", "missed", "clients", Format::Plain),
    ];
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for seen in view.seen {
        let (case, outcome) = (&view.cases[seen.case], &seen.outcome);
        for (number, done) in outcome.done.iter().enumerate() {
            let missed = done.iter().zip(&case.reserved).filter(|(done, least)| done < least);
            let estimate = outcome.ends.get(number).filter(|_| seen.system != System::Bare);
            let estimate = estimate.map(|end| f64::from(end.estimate) / capacity(view.params));
            rows.push(vec![
                case.name.as_str().into(),
                seen.system.word().into(),
                (number as u64 + 1).into(),
                (outcome.total(number) as f64 / capacity(view.params)).into(),
                estimate.into(),
                (f64::from(done[0]) / f64::from(case.reserved[0])).into(),
                (missed.count() as u64).into(),
            ]);
        }
    }
    Table { name: "periods", title: "Period by period".to_owned(), columns, rows }
}

fn line(
    view: &View<'_>,
    case: usize,
    figure: String,
    who: &'static str,
    of: impl Fn(&Seen, usize) -> f64,
) -> Plot {
    let one = |seen: &Seen| {
        let points = (0..seen.outcome.done.len()).map(|n| (n as f64 + 1.0, of(seen, n) / 1e3));
        let label = seen.system.word().to_owned();
        Series { label, style: Style::Line, points: points.collect() }
    };
    let reserved = &view.cases[case].reserved;
    let reserved = if who == "C1" { reserved[0] } else { reserved.iter().sum() };
    let last = view.seen.first().map_or(1, |seen| seen.outcome.done.len()) as f64;
    let points = vec![(1.0, f64::from(reserved) / 1e3), (last, f64::from(reserved) / 1e3)];
    let bound = Series { label: "reserved".to_owned(), style: Style::Bound, points };
    Plot {
        title: format!("{}: {who} ({figure})", view.name(case)),
        x: Axis::linear("period", "").range(1.0, last),
        y: Axis::linear("I/Os completed in a period", "thousands"),
        series: view.seen.iter().filter(|seen| seen.case == case).map(one).chain([bound]).collect(),
    }
}

/// That the estimate is near what the server does beside the job, or without it.
fn followed(view: &View<'_>, case: usize) -> Option<Claim> {
    let ours = view.of(case, System::Ours)?;
    let job = if is_under(case) { 0.0 } else { view.params.share(BACKGROUND.name) };
    let truth = capacity(view.params) * (1.0 - job);
    // The estimate after the fifth period since the change, and later ones.
    let from = view.params.count(CHANGE.name) as usize + SHARED_AFTER - 1;
    let off = |end: &PeriodReport| (f64::from(end.estimate) / truth - 1.0).abs() * 100.0;
    let most = ours.outcome.ends.get(from..)?.iter().map(off).fold(0.0, f64::max);
    let what = format!("{}, ours: estimate off what is done, five periods after", view.name(case));
    Some(claim(("estimate", case), what, Demand::AtMost(3.0), (most, "%", 2)))
}

/// That what the job leaves is used after some periods.
fn surplus_used(view: &View<'_>, case: usize) -> Option<Claim> {
    let ours = view.of(case, System::Ours)?;
    let from = view.params.count(CHANGE.name) as usize + SHARED_AFTER;
    let after = (from..ours.outcome.done.len()).map(|number| ours.outcome.total(number) as f64);
    let least = after.fold(f64::INFINITY, f64::min) / capacity(view.params) * 100.0;
    let what = format!("{}, ours: of C_G, five periods after and later", view.name(case));
    Some(claim(("surplus", case), what, Demand::AtLeast(98.0), (least, "%", 1)))
}

/// That what is beyond reservations goes by weight then.
fn shared_by_weight(view: &View<'_>) -> Option<Claim> {
    // Where all have reserved the same, nothing but the weight tells them apart.
    let case = NAMES.iter().position(|name| *name == "under, uniform")?;
    let ours = view.of(case, System::Ours)?;
    let from = view.params.count(CHANGE.name) as usize + SHARED_AFTER;
    let surplus = |clients: core::ops::Range<usize>| -> f64 {
        let of = |done: &Vec<u32>| -> f64 {
            let beyond =
                |client| f64::from(done[client]) - f64::from(view.cases[case].reserved[client]);
            clients.clone().map(beyond).sum()
        };
        ours.outcome.done[from..].iter().map(of).sum()
    };
    let (light, heavy) = (surplus(0..CLIENTS / 2), surplus(CLIENTS / 2..CLIENTS));
    let what = format!("{}, ours: surplus of weight {WEIGHT} to that of weight 1", view.name(case));
    let measured = (heavy / light.max(1.0), "", 2);
    Some(claim(("by_weight", case), what, Demand::AtLeast(0.9 * f64::from(WEIGHT)), measured))
}
