//! A spike of reservations, in bursts and at constant rates (3).

use super::setting::{self, CAPACITY, CLIENTS, DEPTH, PERIODS, WARM_UP};
use super::shown::{View, claim};
use super::system::{self, Case, Seen, System, TICKS};
use super::token_setting::{LONG, notes, tells_of_throughput};
use crate::world::{Latency, Pattern};
use towpath_lab::studies::{
    Cell, Clock, Column, Demand, Format, Params, Report, Runner, Study, StudyError, Table,
};

/// Experiment 3.
pub(super) const STUDY: Study = Study {
    name: "haechi 3",
    what: "three clients reserve 285 K and seven 80 K, in bursts and at constant rates; latency",
    mirrors: "Haechi experiment 3, figures 13 to 15: with bursts three clients miss, 12.9 % lost",
    clock: Clock::Virtual,
    params: &[CAPACITY, DEPTH, LONG, TICKS, PERIODS, WARM_UP, system::PARAM],
    run,
};

/// Clients with large reservations.
const LARGE: usize = 3;

/// What the paper's Haechi lost of the capacity, by case.
const PAPER_LOST: [f64; 2] = [0.129, 0.007];

/// What ours may lose, in percent.
const LOST_MAX: f64 = 3.0;

fn cases(params: &Params) -> [Case; 2] {
    let each = |large: u64, small: u64| -> Vec<u32> {
        let of = |client| if client < LARGE { large } else { small };
        (0..CLIENTS).map(|client| setting::per_period(params, of(client))).collect()
    };
    let case = |name: &str, pattern| Case {
        name: name.to_owned(),
        reserved: each(285_000, 80_000),
        wanted: each(340_000, 80_000),
        pattern,
    };
    [case("burst", Pattern::Burst), case("constant rate", Pattern::Constant)]
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let cases = cases(params);
    let seen = system::run(&mut report, (params, runner), &cases, |_, plan| plan)?;
    let view = View { params, cases: &cases, seen: &seen };
    report.tables = vec![view.totals(), lost(&view), latency(&view), view.clients(|_, _, _| None)];
    report.plots = view.bars(&[" (figure 13)", " (figure 13)"]);
    report.claims = view.nothing_missed();
    if tells_of_throughput(params) {
        for case in 0..cases.len() {
            let Some(ours) = view.of(case, System::Ours) else { continue };
            let lost = (1.0 - view.of_capacity(ours)) * 100.0;
            let what = format!("{}, ours: lost of C_G (aim 0.7 %)", view.name(case));
            let measured = (lost, "%", 2);
            report.claims.push(claim(("lost", case), what, Demand::AtMost(LOST_MAX), measured));
        }
    }
    report.notes = notes(params);
    report.notes.push(
        "what clients want is that of 1C (340 K and 80 K), which the paper leaves open here; so \
         C4 to C10 want just what they have reserved; an I/O takes from when it is asked for: in a \
         burst as soon as fewer than 64 are under way, at a constant rate when it is due"
            .to_owned(),
    );
    Ok(report)
}

fn lost(view: &View<'_>) -> Table {
    let columns = vec![
        Column::new("case", "case", "", Format::Plain),
        Column::new("system", "system", "", Format::Plain),
        Column::new("lost", "lost", "% of C_G", Format::Percent(2)),
        Column::new("paper_lost", "paper", "% of C_G", Format::Percent(1)),
        Column::new("large_missed", "of three large", "missed", Format::Plain),
        Column::new("paper_large_missed", "paper", "missed", Format::Plain),
    ];
    let row = |seen: &Seen| -> Vec<Cell> {
        let case = &view.cases[seen.case];
        let missed = seen.missed(case, 0);
        let large = missed[..LARGE].iter().filter(|missed| **missed > 0).count() as u64;
        let is_haechi = seen.system == System::Published;
        let paper_missed = if seen.case == 0 { LARGE as u64 } else { 0 };
        vec![
            case.name.as_str().into(),
            seen.system.word().into(),
            (1.0 - view.of_capacity(seen)).into(),
            is_haechi.then_some(PAPER_LOST[seen.case]).into(),
            large.into(),
            is_haechi.then_some(paper_missed).into(),
        ]
    };
    let title = "What is lost, and who misses".to_owned();
    Table { name: "lost", title, columns, rows: view.seen.iter().map(row).collect() }
}

/// Latencies of all clients, and of those with large and small reservations.
fn latency(view: &View<'_>) -> Table {
    let columns = vec![
        Column::new("case", "case", "", Format::Plain),
        Column::new("system", "system", "", Format::Plain),
        Column::new("who", "clients", "", Format::Plain),
        Column::new("mean_us", "mean", "us", Format::Decimals(0)),
        Column::new("p99_us", "p99", "us", Format::Decimals(0)),
        Column::new("p999_us", "p99.9", "us", Format::Decimals(0)),
    ];
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for seen in view.seen {
        let of = |clients: core::ops::Range<usize>| {
            let mut all = Latency::default();
            seen.outcome.latency[clients].iter().for_each(|one| all.merge(one));
            all
        };
        for (who, clients) in [("all", 0..CLIENTS), ("C1-C3", 0..LARGE), ("C4-C10", LARGE..CLIENTS)]
        {
            let latency = of(clients);
            rows.push(vec![
                view.cases[seen.case].name.as_str().into(),
                seen.system.word().into(),
                who.into(),
                latency.mean_us().into(),
                latency.percentile_us(0.99).into(),
                latency.percentile_us(0.999).into(),
            ]);
        }
    }
    let title = "How long I/Os take (figure 15)".to_owned();
    Table { name: "latency", title, columns, rows }
}
