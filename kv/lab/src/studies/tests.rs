//! Reports replay, have the shape of the thesis, and no arguments break them.

use super::*;
use std::collections::BTreeMap;
use towpath_lab::studies::runner::Unwatched;
use towpath_lab::studies::{Cell, Level, Params, Report, Runner};

fn params(study: &'static Study, given: &[(&str, &str)]) -> Params {
    let given: BTreeMap<String, String> =
        given.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
    Params::new(study.params, 7, Level::Quick, &given).expect("good parameters")
}

fn ask(study: &'static Study, threads: usize, given: &[(&str, &str)]) -> Report {
    println!("{}, seed 7", study.name);
    (study.run)(&params(study, given), &Runner::new(threads, &Unwatched)).expect("it runs")
}

/// The number in a row of the report's first table, found by its words.
fn number(report: &Report, words: &[&str], column: &str) -> f64 {
    let table = &report.tables[0];
    let place = table.columns.iter().position(|known| known.name == column).expect("a column");
    let has = |row: &&Vec<Cell>| {
        let mut texts = row.iter().map(|cell| match cell {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => count.to_string(),
            _ => String::new(),
        });
        words.iter().all(|word| texts.any(|text| text == *word))
    };
    match table.rows.iter().find(has).expect("a row")[place] {
        Cell::Number(number) => number,
        Cell::Count(count) => count as f64,
        ref other => panic!("{other:?} is no number"),
    }
}

#[test]
fn reports_do_not_follow_from_the_threads() {
    for study in ALL {
        let few = [("operations", "2000")];
        let report = ask(study, 1, &few);
        assert_eq!(report, ask(study, 3, &few), "{}", study.name);
        for table in &report.tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        }
        assert_ne!(report.trace_hash(), ask(study, 2, &[("operations", "2001")]).trace_hash());
    }
}

#[test]
fn transports_have_the_order_of_the_thesis() {
    let report = ask(&throughput::STUDY, 2, &[("clients", "5,32,60")]);
    let at = |waiting, transport, clients| number(&report, &[waiting, transport, clients], "per_s");
    for waiting in ["polling", "blocking"] {
        let [tcp, rc, uc] = ["tcp", "rc", "uc"].map(|transport| at(waiting, transport, "32"));
        assert!(tcp < rc && rc < uc, "{waiting}: {tcp} {rc} {uc}");
    }
    for transport in ["rc", "uc", "ud"] {
        let [few, full, many] = ["5", "32", "60"].map(|clients| at("polling", transport, clients));
        assert!(few < full && many < 0.8 * full, "{transport} polling: {few} {full} {many}");
        let [full, many] = ["32", "60"].map(|clients| at("blocking", transport, clients));
        assert!(many > 0.95 * full, "{transport} blocking: {full} {many}");
        assert!(full < at("polling", transport, "32") * 1.01, "{transport}: sleeping costs");
    }
}

#[test]
fn what_is_fitted_says_so_in_table_and_drawing_and_is_no_target() {
    let clients = ("clients", "5,15,31,32,33");
    let report = ask(&throughput::STUDY, 2, &[clients, ("operations", "20000")]);
    let table = &report.tables[0];
    let place = table.columns.iter().position(|column| column.name == "fitted").expect("a column");
    let fitted = |row: &&Vec<Cell>| row[place] != Cell::Absent;
    let is = |word: &'static str, row: &Vec<Cell>| row.contains(&Cell::Text(word.to_owned()));
    // UC that polls: both up to 15 clients, and the most; of TCP and RC the most alone; UD not.
    let of = |words: [&'static str; 2]| {
        let rows = table.rows.iter().filter(fitted);
        rows.filter(|row| words.iter().all(|word| is(word, row))).count()
    };
    assert_eq!(of(["polling", "uc"]), 3);
    assert_eq!([of(["polling", "tcp"]), of(["polling", "rc"]), of(["polling", "ud"])], [1, 1, 0]);
    assert_eq!([of(["blocking", "uc"]), of(["blocking", "rc"])], [1, 0]);
    let marked = |plot: &towpath_lab::studies::Plot| {
        plot.series.iter().any(|series| series.label == "fitted to the thesis")
    };
    assert!(report.plots.iter().all(marked));
    assert!(report.claims.iter().all(|claim| claim.name.starts_with("kept_")));
    let ours = [clients, ("operations", "2000"), ("program", "ours")];
    let report = ask(&throughput::STUDY, 2, &ours);
    assert!(!report.plots.iter().any(marked), "the thesis's program was fitted, not ours");
}

#[test]
fn a_thousand_clients_over_towpath_have_the_rate_of_32() {
    let report = ask(&many::STUDY, 2, &[("transports", "towpath"), ("clients", "32,1000")]);
    let [few, many] = ["32", "1000"].map(|clients| number(&report, &["towpath", clients], "per_s"));
    assert!(many > 0.9 * few, "{few} {many}");
    assert!(report.is_all_met() && report.claims.len() == 1);
}

#[test]
fn what_sleeps_must_be_woken_and_one_sided_gets_wake_nobody() {
    let report = ask(&one_sided::STUDY, 2, &[("clients", "16")]);
    assert!(report.is_all_met() && report.claims.len() == 1, "{:?}", report.claims);
}

#[test]
fn odd_arguments_neither_break_nor_hang_a_run() {
    let nothing = [
        ("client-ns", "0"),
        ("client-lock-ns", "0"),
        ("post-ns", "0"),
        ("reap-ns", "0"),
        ("crowd-ns", "0"),
        ("tcp-ns", "0"),
        ("tcp-arrival-ns", "0"),
        ("towpath-ns", "0"),
        ("store-ns", "0"),
        ("entry-ns", "0"),
        ("change-ns", "0"),
        ("check-ns", "0"),
        ("wake-ns", "0"),
        ("event-ns", "0"),
        ("interrupt-ns", "0"),
        ("link-ns", "0"),
        ("pcie-ns", "0"),
        ("card-ns", "0"),
        ("card-rc-ns", "0"),
        ("miss-ns", "0"),
    ];
    let most = nothing.map(|(name, _)| (name, "10000000"));
    let one = [
        ("cores", "1"),
        ("cache", "0"),
        ("line-gbps", "1"),
        ("keys", "1"),
        ("quantum-us", "1"),
        ("smt-percent", "1"),
    ];
    for study in ALL {
        for each in [&nothing[..], &most[..], &one[..]] {
            ask(study, 2, &[&[("operations", "50")], each].concat());
        }
        ask(study, 2, &[("operations", "1")]);
    }
    let lossy =
        [("loss", "20%"), ("operations", "200"), ("repeat-us", "1"), ("rc-timeout-us", "0")];
    ask(&loss::STUDY, 2, &lossy);
    ask(&throughput::STUDY, 2, &[("clients", "10000"), ("operations", "100")]);
}

#[test]
fn arguments_out_of_range_are_refused() {
    let refused = |study: &'static Study, name: &str, text: &str| {
        let given = BTreeMap::from([(name.to_owned(), text.to_owned())]);
        assert!(Params::new(study.params, 7, Level::Quick, &given).is_err(), "{name} {text}");
    };
    for (name, text) in [
        ("clients", "0"),
        ("clients", "10001"),
        ("cores", "33"),
        ("cores", "0"),
        ("operations", "0"),
        ("operations", "99999999999999999999"),
        ("transports", "quic"),
        ("waiting", "dozing"),
        ("program", "theirs"),
        ("smt-percent", "0"),
        ("line-gbps", "0"),
        ("nothing", "1"),
    ] {
        refused(&throughput::STUDY, name, text);
    }
    refused(&ycsb::STUDY, "mixes", "e");
    refused(&loss::STUDY, "loss", "0.5");
    refused(&many::STUDY, "workers", "0");
}
