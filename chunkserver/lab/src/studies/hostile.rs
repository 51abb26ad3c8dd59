//! Clients that do not keep to the rules: what becomes of the others, and who is named.

use super::setting::{CAPACITY, CLIENTS, DEPTH, PERIOD, PERIODS, WARM_UP};
use super::shown::{View, claim};
use super::system::{self, Case, Seen, System, TICKS, capacity, uniform};
use super::token_setting::{LONG, notes};
use crate::world::{Account, Manner, Pattern, Plan};
use towpath_base::Nanos;
use towpath_lab::studies::{
    Cell, Claim, Clock, Column, Demand, Format, Param, Params, Report, Runner, Study, StudyError,
    Table,
};

/// The study.
pub(super) const STUDY: Study = Study {
    name: "haechi hostile",
    what: "a client ignores its tokens, lies in its reports, dies with tokens, or stalls",
    mirrors: "no published counterpart: Haechi trusts its clients",
    clock: Clock::Virtual,
    params: &[
        CAPACITY,
        DEPTH,
        LONG,
        TICKS,
        Param { defaults: ["4", "8", "30"], ..PERIODS },
        WARM_UP,
        Param { defaults: ["published,ours"; 3], ..system::PARAM },
    ],
    run,
};

/// Of the capacity.
const RESERVED: f64 = 0.8;

const NAMES: [&str; 5] =
    ["nobody", "ignores its tokens", "lies in its reports", "dies with tokens", "stalls"];

fn manner(params: &Params, case: usize) -> Manner {
    let period = params.count(PERIOD.name) * 1_000_000;
    // In tenths of a period, from the start of the first.
    let at = |tenths: u64| Nanos(period * (10 * params.count(WARM_UP.name) + tenths) / 10);
    match case {
        1 => Manner::Greedy,
        2 => Manner::Liar,
        3 => Manner::Away(at(13), Nanos(u64::MAX / 2)),
        // Over the end of the second measured period.
        4 => Manner::Away(at(17), at(24)),
        _ => Manner::Fair,
    }
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let reserved = uniform(params, RESERVED);
    let pool = (capacity(params) * (1.0 - RESERVED)) as u32;
    let wanted: Vec<u32> = reserved.iter().map(|ios| ios + pool).collect();
    let case = |name: &&str| {
        let (reserved, wanted) = (reserved.clone(), wanted.clone());
        Case { name: (*name).to_owned(), reserved, wanted, pattern: Pattern::Burst }
    };
    let cases: Vec<Case> = NAMES.iter().map(case).collect();
    let with = |case: &Case, mut plan: Plan| {
        let number = NAMES.iter().position(|name| *name == case.name).unwrap_or(0);
        plan.clients[0].manner = manner(params, number);
        plan
    };
    let seen = system::run(&mut report, (params, runner), &cases, with)?;
    let view = View { params, cases: &cases, seen: &seen };
    report.tables = vec![others(&view), view.totals()];
    report.claims = claims(&view);
    report.notes = notes(params);
    report.notes.push(
        "it is C1 that does so; who ignores its tokens is cut off by the server for the rest of a \
         period as soon as its device has answered more READs than the client can have tokens for, \
         but as published clients are trusted; counted is what the server knows: I/Os beyond the \
         tokens, periods in which reports and READs differ, and in which a client counts as lost"
            .to_owned(),
    );
    Ok(report)
}

/// What others missed in a run.
fn missed(view: &View<'_>, seen: &Seen) -> usize {
    seen.missed(&view.cases[seen.case], 0)[1..].iter().sum()
}

fn others(view: &View<'_>) -> Table {
    let columns = vec![
        Column::new("case", "C1", "", Format::Plain),
        Column::new("system", "system", "", Format::Plain),
        Column::new("others_missed", "others miss", "periods", Format::Plain),
        Column::new("others_least", "the least of them", "% of reserved", Format::Percent(1)),
        Column::new("first_of_reserved", "C1", "% of reserved", Format::Percent(1)),
        Column::new("overrun_ios", "beyond", "I/Os", Format::Plain),
        Column::new("misreports", "misreports", "periods", Format::Plain),
        Column::new("lost_periods", "lost", "periods", Format::Plain),
        Column::new("others_named", "others named", "", Format::Plain),
    ];
    let row = |seen: &Seen| -> Vec<Cell> {
        let (case, outcome) = (&view.cases[seen.case], &seen.outcome);
        let of = |client: usize, ios: u32| f64::from(ios) / f64::from(case.reserved[client]);
        let each = outcome.done.iter().flat_map(|done| (1..CLIENTS).map(|n| of(n, done[n])));
        let first: u64 = outcome.done.iter().map(|done| u64::from(done[0])).sum();
        let first = first as f64 / outcome.done.len().max(1) as f64 / f64::from(case.reserved[0]);
        let account = outcome.accounts.first().copied();
        // As published, clients are trusted.
        let held = account.filter(|_| seen.system == System::Ours);
        vec![
            case.name.as_str().into(),
            seen.system.word().into(),
            (missed(view, seen) as u64).into(),
            each.fold(f64::INFINITY, f64::min).into(),
            first.into(),
            held.map(|account| account.overrun).into(),
            held.map(|account| account.misreports).into(),
            account.map(|account| account.lost).into(),
            (named(seen) as u64).into(),
        ]
    };
    let title = "The others, and what the server knows of C1".to_owned();
    Table { name: "others", title, columns, rows: view.seen.iter().map(row).collect() }
}

/// How many of those that keep to the rules are named.
fn named(seen: &Seen) -> usize {
    let others = seen.outcome.accounts.iter().skip(1);
    others.filter(|account| **account != Account::default()).count()
}

fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for case in 0..NAMES.len() {
        let Some(ours) = view.of(case, System::Ours) else { continue };
        let name = view.name(case);
        let none = Demand::AtMost(0.0);
        let what = format!("{name}, ours: reservations of the others that are missed");
        claims.push(claim(("missed", case), what, none, (missed(view, ours) as f64, "", 0)));
        let what = format!("{name}, ours: others that are named");
        claims.push(claim(("others_named", case), what, none, (named(ours) as f64, "", 0)));
        let Some(account) = ours.outcome.accounts.first() else { continue };
        let (what, count) = match case {
            1 => ("I/Os beyond its tokens", account.overrun),
            2 => ("periods with wrong reports", account.misreports),
            3 | 4 => ("periods in which it is lost", account.lost),
            _ => continue,
        };
        let what = format!("{name}, ours: {what}");
        let measured = (count as f64, "", 0);
        claims.push(claim(("named", case), what, Demand::AtLeast(1.0), measured));
    }
    claims
}
