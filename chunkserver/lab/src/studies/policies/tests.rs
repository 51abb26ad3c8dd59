//! What must hold whatever the figures: closed forms, orders, bytes.

use super::readers::{Asked, Reading, decode};
use super::setting::Setting;
use super::systems::{Copies, How, Single, Stripe};
use super::{COPIES, DEGRADED, MORE_COPIES, SINGLE, STRIPES};
use crate::flow::{Ack, Cost, Outcome, Ps, ns, run};
use std::collections::BTreeMap;
use towpath_fastpath::choice::{Way, choose};
use towpath_lab::studies::runner::Unwatched;
use towpath_lab::studies::{Cell, Level, Params, Report, Runner, Study};

fn params(study: &'static Study, given: &[(&str, &str)]) -> Params {
    let given: BTreeMap<String, String> =
        given.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
    Params::new(study.params, 7, Level::Quick, &given).expect("good parameters")
}

fn ask(study: &'static Study, threads: usize, given: &[(&str, &str)]) -> Report {
    (study.run)(&params(study, given), &Runner::new(threads, &Unwatched)).expect("it runs")
}

fn setting() -> Setting {
    Setting::of(&params(&SINGLE, &[]), 2_048)
}

fn end(outcome: &Outcome) -> Ps {
    outcome.end().expect("every acknowledgement comes")
}

#[test]
fn one_packet_takes_what_the_parts_take() {
    let setting = setting();
    let single = |which: Single| end(&run(&which.plan(&setting, 1_024)));
    let cross = |bytes: u64| ns(50) + bytes * 20 + ns(20) + ns(50);
    // The card fetches, the server stores and reads behind it, the client sees the completion.
    let raw = ns(600) + cross(1_024 + 82 + 16) + ns(400) + cross(86) + ns(200);
    assert_eq!(single(Single::Raw), raw);
    let headers = (180 - 16) * 20;
    let ours = raw + headers + ns(46 + 16) + ns(211) + ns(92);
    assert_eq!(single(Single::Ours), ours);
    assert_eq!(single(Single::Unchecked), ours - ns(211));
    // To memory, seen, checked, copied, the answer's doorbell.
    let copied = ns(1_024 * 8) / 80;
    let rpc = raw - ns(400) + headers + ns(200) + ns(70 + 200) + copied + ns(200);
    assert_eq!(single(Single::Rpc), rpc);
}

#[test]
fn nothing_checked_is_faster_than_a_raw_write() {
    let setting = setting();
    for bytes in [1, 1_024, 4_096, 65_536, 1 << 20] {
        let single = |which: Single| end(&run(&which.plan(&setting, bytes)));
        let raw = single(Single::Raw);
        for which in [Single::Rpc, Single::RpcRdma, Single::Ours] {
            assert!(single(which) > raw, "{which:?} {bytes}");
        }
    }
}

#[test]
fn each_server_gets_each_byte_of_a_write_once() {
    let how = How { setting: setting(), ack: Ack::Sender, copies: true, request: 0 };
    for which in Copies::ALL {
        for copies in [1, 2, 3, 4, 7, 8] {
            let (bytes, chunk) = (100_000, 8_192);
            let seen = run(&which.plan(&how, copies, bytes, chunk));
            end(&seen);
            let requests = if which == Copies::HyperLoop { 128 * 13 } else { 0 };
            for node in &seen.nodes[1..] {
                assert_eq!(node.data_in, bytes + requests, "{which:?} {copies}");
            }
            let out: u64 = seen.nodes.iter().map(|node| node.data_out).sum();
            assert_eq!(out, (bytes + requests) * copies as u64, "{which:?} {copies}");
        }
    }
}

#[test]
fn a_ring_of_one_or_two_is_a_tree_of_one_or_two() {
    for ack in [Ack::Sender, Ack::Client] {
        let how = How { setting: setting(), ack, copies: true, request: 0 };
        for (copies, bytes) in [(1, 1_024), (2, 1_024), (2, 1 << 20)] {
            let of = |which: Copies| run(&which.plan(&how, copies, bytes, bytes));
            assert_eq!(of(Copies::Ring), of(Copies::Tree), "{copies} {bytes}");
        }
    }
}

#[test]
fn a_stripe_sends_each_data_byte_and_its_parities_once() {
    let setting = setting();
    // Of the last one a data node needs a packet more than a parity node would.
    for (shape, bytes) in [((3, 2), 3_000_u64), ((6, 3), 600_000), ((6, 3), 6 * 1_750)] {
        let chunk = bytes / shape.0 as u64;
        let seen = run(&Stripe::Streaming.plan(&setting, shape, chunk));
        end(&seen);
        for (place, node) in seen.nodes.iter().enumerate().skip(1) {
            let is_data = place <= shape.0;
            let (comes, goes) = if is_data { (1, shape.1 as u64) } else { (shape.0 as u64, 0) };
            assert_eq!((node.data_in, node.data_out), (chunk * comes, chunk * goes), "{place}");
        }
    }
}

#[test]
fn reports_do_not_follow_from_the_threads() {
    for study in [&SINGLE, &COPIES, &MORE_COPIES, &STRIPES, &DEGRADED] {
        let report = ask(study, 1, &[("sizes", "1K,16K")]);
        assert_eq!(report, ask(study, 3, &[("sizes", "1K,16K")]));
        for table in &report.tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        }
        let host = ask(study, 1, &[("sizes", "1K"), ("profile", "host")]);
        assert_ne!(host.trace_hash(), report.trace_hash());
    }
}

#[test]
fn no_server_is_faster_than_its_line() {
    let report = ask(&COPIES, 2, &[("sizes", "1K,64K"), ("copies", "2")]);
    let table = report.tables.iter().find(|table| table.name == "goodput").expect("asked");
    let place = table.columns.iter().position(|column| column.name == "of_line").expect("there");
    for row in &table.rows {
        let Cell::Number(of_line) = row[place] else { panic!("{row:?}") };
        assert!(of_line > 0.1 && of_line <= 1.001, "{row:?}");
    }
}

#[test]
fn the_way_that_is_chosen_is_nearly_the_best() {
    let mut worst = (0.0, String::new());
    let each = ["spin", "host"].into_iter().flat_map(|profile| {
        let acks = [Ack::Sender, Ack::Client].into_iter();
        acks.flat_map(move |ack| [2_048, 4_096].map(|mtu| (profile, ack, mtu)))
    });
    for (profile, ack, mtu) in each {
        let setting = Setting::of(&params(&COPIES, &[("profile", profile)]), mtu);
        let how = How { setting, ack, copies: true, request: 0 };
        let costs = setting.costs(ack == Ack::Sender);
        let sizes = (10..=20).flat_map(|bits| [4, 5, 6, 7].map(|quarters| quarters << (bits - 2)));
        for (copies, bytes) in sizes.flat_map(|bytes| (1..=8).map(move |copies| (copies, bytes))) {
            let of = |which: Copies| end(&run(&which.plan(&how, copies, bytes, bytes)));
            let ways = [Copies::OurFlat, Copies::Ring, Copies::Tree].map(of);
            let chosen = choose(copies as u8, bytes, &costs).way;
            let place = [Way::Flat, Way::Ring, Way::Tree].iter().position(|way| *way == chosen);
            let best = ways.iter().copied().min().expect("three");
            let regret = ways[place.expect("one of them")] as f64 / best as f64 - 1.0;
            if regret > worst.0 {
                worst =
                    (regret, format!("{profile} {ack:?} {mtu}: {copies} of {bytes}, {chosen:?}"));
            }
        }
    }
    assert!(worst.0 <= 0.05, "{worst:?}");
}

/// 6+3, in three stripes of which the last is short.
const READING: Reading = Reading {
    data: 6,
    parity: 3,
    lost: 2,
    bytes: 2 * 6 * 65_536 + 6 * 8_192,
    unit: 65_536,
    row: 65_536,
    cores: 1,
    decode: Cost::fixed(0),
};

/// At 100 Gb/s one core checks faster than the line is.
fn reading_setting() -> Setting {
    Setting::of(&params(&DEGRADED, &[]), 2_048)
}

fn took(reading: &Reading, asked: Asked) -> Ps {
    reading.end(&reading_setting(), asked).expect("enough answer").0
}

#[test]
fn a_degraded_read_takes_longer_by_its_decoding_alone() {
    let whole = took(&READING, Asked::Whole);
    assert_eq!(took(&READING, Asked::Known), whole, "as many bytes come from as many nodes");
    // Only the decoding of the last stripe is not hidden by what comes.
    let decode = Cost::fixed(ns(2_000));
    let decoded = took(&Reading { decode, ..READING }, Asked::Known);
    assert!((ns(2_000)..ns(3_000)).contains(&(decoded - whole)), "{}", decoded - whole);
    assert_eq!(took(&Reading { decode, ..READING }, Asked::Whole), whole);
    // It takes longer than the line: all three stripes are decoded one after the other, by two
    // cores two at a time.
    let slow = Reading { decode: Cost::fixed(ns(500_000)), ..READING };
    let one = took(&slow, Asked::Known);
    assert!((ns(1_500_000)..ns(1_500_000) + whole).contains(&one), "{one}");
    let two = took(&Reading { cores: 2, ..slow }, Asked::Known);
    assert!((ns(1_000_000)..ns(1_000_000) + whole).contains(&two), "{two}");
}

#[test]
fn rows_are_decoded_while_others_come() {
    let per_kib = ns(20);
    let stripes = Reading { decode: Cost { fixed: 0, per_kib }, bytes: 6 * 65_536, ..READING };
    let rows = Reading { row: 4_096, ..stripes };
    let whole = took(&stripes, Asked::Whole);
    assert!(took(&stripes, Asked::Known) >= whole + 6 * 64 * per_kib);
    assert!(took(&rows, Asked::Known) < whole + 6 * 64 * per_kib / 2);
}

#[test]
fn who_does_not_know_of_a_loss_asks_all_or_waits() {
    let late = ns(1_000_000);
    let known = took(&READING, Asked::Known);
    let waited = took(&READING, Asked::Late(late));
    assert!(waited > late && waited < late + known, "{waited}");
    let all = took(&READING, Asked::All);
    assert!(all >= known && all < known * 3 / 2, "one node more than are enough answers: {all}");
    // None lost: what is late has come before.
    let none = Reading { lost: 0, ..READING };
    assert_eq!(took(&none, Asked::Late(late)), took(&READING, Asked::Whole));
    // Fewer than are enough.
    let gone = Reading { lost: 4, ..READING };
    assert_eq!(gone.end(&reading_setting(), Asked::All), None);
}

#[test]
fn decoding_takes_what_was_measured() {
    let cost = decode(6, [200, 250]);
    for (unit, tenths) in [(4_096, 200), (65_536, 250)] {
        let bytes = 6 * unit;
        let expected = bytes * 10_000 / tenths;
        assert!(cost.of(bytes).abs_diff(expected) <= expected / 1_000, "{unit}");
    }
}
