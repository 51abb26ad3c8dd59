//! Reservations with enough demand (2A), with too little of it (2B), and more and more of them
//! (2C).

use super::setting::{CAPACITY, CLIENTS, DEPTH, PERIODS, WARM_UP};
use super::shown::{View, claim};
use super::system::{self, Case, System, TICKS, capacity, uniform, zipf};
use super::token_setting::{LONG, notes, tells_of_throughput};
use crate::world::Pattern;
use towpath_lab::studies::{
    Axis, Cell, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner, Series,
    Study, StudyError, Style, Table,
};

/// Experiment 2A.
pub(super) const ENOUGH: Study = Study {
    name: "haechi 2a",
    what: "nine tenths reserved, alike and by Zipf's law, and all want more than that",
    mirrors: "Haechi experiment 2A, figure 9: all reservations met, less than 0.1 % lost",
    clock: Clock::Virtual,
    params: &[CAPACITY, DEPTH, LONG, TICKS, PERIODS, WARM_UP, system::PARAM],
    run: enough,
};

/// Experiment 2B.
pub(super) const TOO_LITTLE: Study = Study {
    name: "haechi 2b",
    what: "two clients want half of what they have reserved: others use it, or nobody",
    mirrors: "Haechi experiment 2B, figures 10 and 11: throughput comparable to the bare system",
    clock: Clock::Virtual,
    params: &[CAPACITY, DEPTH, LONG, TICKS, PERIODS, WARM_UP, system::PARAM],
    run: too_little,
};

/// Experiment 2C.
pub(super) const MORE: Study = Study {
    name: "haechi 2c",
    what: "throughput as more and more of the capacity is reserved",
    mirrors: "Haechi experiment 2C, figure 12: less throughput by Zipf's law the more is reserved",
    clock: Clock::Virtual,
    params: &[
        CAPACITY,
        DEPTH,
        LONG,
        TICKS,
        Param { defaults: ["3", "5", "30"], ..PERIODS },
        WARM_UP,
        SHARES,
        Param {
            defaults: ["ours", "published,ours", "bare,basic,published,ours"],
            ..system::PARAM
        },
    ],
    run: more,
};

const SHARES: Param = Param {
    name: "reserved",
    what: "What all clients have reserved of the capacity",
    unit: "share",
    kind: Kind::Share(0.05..=0.95),
    many: true,
    defaults: ["50%,90%", "50%,60%,70%,80%,90%", "50%,60%,70%,80%,90%"],
};

/// Of the capacity, where it is not varied.
const RESERVED: f64 = 0.9;

/// The paper's C1 and C2 by Zipf's law, in thousands a second: reserved, and on the bare system.
const PAPER_ZIPF_BARE: f64 = 4_742.0 / 30.0;

/// Both distributions, with a share reserved, where each client wants that and what the pool has
/// at first.
fn cases(params: &Params, share: f64) -> [Case; 2] {
    let pool = (capacity(params) * (1.0 - share)) as u32;
    let case = |name: &str, reserved: Vec<u32>| {
        let wanted = reserved.iter().map(|ios| ios + pool).collect();
        Case { name: name.to_owned(), reserved, wanted, pattern: Pattern::Burst }
    };
    [case("uniform", uniform(params, share)), case("Zipf", zipf(params, share))]
}

fn enough(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(ENOUGH.name, params);
    let cases = cases(params, RESERVED);
    let seen = system::run(&mut report, (params, runner), &cases, |_, plan| plan)?;
    let view = View { params, cases: &cases, seen: &seen };
    let paper = |case: usize, system: System, client: usize| {
        (case == 1 && system == System::Bare && client < 2).then_some(PAPER_ZIPF_BARE)
    };
    report.tables = vec![view.totals(), view.clients(paper)];
    report.plots = view.bars(&[" (figure 9a)", " (figure 9b)"]);
    report.plots.push(view.course(1));
    report.claims = view.nothing_missed();
    if tells_of_throughput(params) {
        report.claims.extend(view.nearly_bare(99.9));
    }
    report.notes = notes(params);
    report.notes.push(
        "the paper says that all clients meet their reservations in each period with Haechi, and \
         that throughput drops by less than 0.1 %; of single clients its text tells only that C1 \
         and C2 get 4,742 K in 30 s of the bare system, where 7,080 K are reserved (Zipf)"
            .to_owned(),
    );
    Ok(report)
}

fn too_little(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(TOO_LITTLE.name, params);
    let mut cases = cases(params, RESERVED);
    for case in &mut cases {
        case.wanted[0] = case.reserved[0] / 2;
        case.wanted[1] = case.reserved[1] / 2;
        // So that the others want what the first two leave.
        let left = (case.wanted[0] + case.wanted[1]) / (CLIENTS as u32 - 2);
        case.wanted[2..].iter_mut().for_each(|ios| *ios += left);
    }
    let seen = system::run(&mut report, (params, runner), &cases, |_, plan| plan)?;
    let view = View { params, cases: &cases, seen: &seen };
    report.tables = vec![view.totals(), view.clients(|_, _, _| None)];
    report.plots = view.bars(&[" (figure 10a)", " (figure 10b)"]);
    report.claims = view.nothing_missed();
    for case in 0..cases.len() {
        if let Some(ours) = view.of(case, System::Ours)
            && let Some(basic) = view.of(case, System::Basic)
        {
            let more = ours.outcome.ios_per_s() / basic.outcome.ios_per_s() - 1.0;
            let what = format!("{}, ours: more than Basic Haechi", view.name(case));
            let measured = (more * 100.0, "%", 1);
            report.claims.push(claim(
                ("more_than_basic", case),
                what,
                Demand::AtLeast(5.0),
                measured,
            ));
        }
    }
    if tells_of_throughput(params) {
        report.claims.extend(view.nearly_bare(99.0));
    }
    report.notes = notes(params);
    report.notes.push(
        "C1 and C2 want half of what they have reserved, which the paper leaves open, and must get \
         that; the others want a tenth of the capacity more than their reservation, as in 2A, and \
         their part of what those two leave"
            .to_owned(),
    );
    Ok(report)
}

fn more(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(MORE.name, params);
    let shares = params.shares(SHARES.name);
    let cases: Vec<Case> = shares
        .iter()
        .flat_map(|&share| {
            cases(params, share)
                .map(|case| Case { name: format!("{}, {:.0} %", case.name, share * 100.0), ..case })
        })
        .collect();
    let seen = system::run(&mut report, (params, runner), &cases, |_, plan| plan)?;
    let view = View { params, cases: &cases, seen: &seen };
    report.tables = vec![view.totals(), distributions(&view, shares)];
    let line = |system: System, is_zipf: usize, label: &str| {
        let point = |(place, share): (usize, &f64)| {
            let seen = view.of(2 * place + is_zipf, system)?;
            Some((share * 100.0, view.of_capacity(seen) * 100.0))
        };
        let points = shares.iter().enumerate().filter_map(point).collect();
        Series { label: format!("{}, {label}", system.word()), style: Style::Line, points }
    };
    let both = |system| [line(system, 0, "uniform"), line(system, 1, "Zipf")];
    report.plots = vec![Plot {
        title: "throughput by what is reserved (figure 12)".to_owned(),
        x: Axis::linear("reserved, of C_G", "%").range(45.0, 95.0),
        y: Axis::linear("throughput, of C_G", "%").range(80.0, 102.0),
        series: system::systems(params).into_iter().flat_map(both).collect(),
    }];
    report.claims = view.nothing_missed();
    if let (true, Some(place)) =
        (tells_of_throughput(params), shares.iter().position(|share| *share == RESERVED))
        && let [Some(uniform), Some(zipf)] =
            [0, 1].map(|is_zipf| view.of(2 * place + is_zipf, System::Ours))
    {
        let share = zipf.outcome.ios_per_s() / uniform.outcome.ios_per_s() * 100.0;
        let what = "Zipf, 90 %, ours: of uniform".to_owned();
        report.claims.push(claim(
            ("of_uniform", place),
            what,
            Demand::AtLeast(99.0),
            (share, "%", 2),
        ));
    }
    report.notes = notes(params);
    Ok(report)
}

/// Zipf beside uniform.
fn distributions(view: &View<'_>, shares: &[f64]) -> Table {
    let columns = vec![
        Column::new("reserved", "reserved", "%", Format::Percent(0)),
        Column::new("system", "system", "", Format::Plain),
        Column::new("uniform_of_capacity", "uniform", "% of C_G", Format::Percent(2)),
        Column::new("zipf_of_capacity", "Zipf", "% of C_G", Format::Percent(2)),
        Column::new("zipf_of_uniform", "of uniform", "%", Format::Percent(2)),
    ];
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (place, &share) in shares.iter().enumerate() {
        for system in system::systems(view.params) {
            let of = |is_zipf| view.of(2 * place + is_zipf, system);
            if let [Some(uniform), Some(zipf)] = [0, 1].map(of) {
                let [uniform, zipf] = [uniform, zipf].map(|seen| view.of_capacity(seen));
                let word = system.word().into();
                rows.push(vec![
                    share.into(),
                    word,
                    uniform.into(),
                    zipf.into(),
                    (zipf / uniform).into(),
                ]);
            }
        }
    }
    let title = "Zipf beside uniform".to_owned();
    Table { name: "distributions", title, columns, rows }
}
