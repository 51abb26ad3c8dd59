//! What must hold whatever the figures: closed forms, orders, bytes.

use super::setting::Setting;
use super::systems::{Copies, How, Single, Stripe};
use super::{COPIES, MORE_COPIES, SINGLE, STRIPES};
use crate::flow::{Ack, Outcome, Ps, ns, run};
use std::collections::BTreeMap;
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
    let how = How { setting: setting(), ack: Ack::Sender, copies: true };
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
        let how = How { setting: setting(), ack, copies: true };
        for (copies, bytes) in [(1, 1_024), (2, 1_024), (2, 1 << 20)] {
            let of = |which: Copies| run(&which.plan(&how, copies, bytes, bytes));
            assert_eq!(of(Copies::Ring), of(Copies::Tree), "{copies} {bytes}");
        }
    }
}

#[test]
fn a_stripe_sends_each_data_byte_and_its_parities_once() {
    let setting = setting();
    for (shape, bytes) in [((3, 2), 3_000_u64), ((6, 3), 600_000)] {
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
    for study in [&SINGLE, &COPIES, &MORE_COPIES, &STRIPES] {
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
    let sizes = ("sizes", "1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M");
    for (profile, acks) in [("spin", "back"), ("spin", "direct"), ("host", "back")] {
        let given = [sizes, ("profile", profile), ("acks", acks), ("copies", "2,4")];
        let report = ask(&COPIES, 2, &given);
        let chosen = report.claims.iter().find(|claim| claim.name == "chosen").expect("asked");
        assert!(chosen.is_met(), "{profile} {acks}: {chosen:?}");
    }
}
