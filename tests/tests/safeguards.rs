//! A test of the test: with one safeguard of the core switched off, the oracle of `exactly_once`
//! finds out.

use towpath_base::Nanos;
mod scenario;

use scenario::{Scenario, Sizes};
use towpath_lab::oracle::Violation;
use towpath_proto::Sabotage;
use towpath_tests::sweep::{Verdict, sweep};
use towpath_tests::threads;
use towpath_transport::Icrc;
use towpath_verbs::Mtu;

/// The first violation of the wanted kind in the runs of `scenario`, and how many runs it took.
fn first_violation(
    runs: u64,
    scenario: impl Fn(u64) -> Scenario + Sync,
    wanted: impl Fn(&Violation) -> bool + Sync,
) -> Option<(u64, Violation)> {
    let mut found = None;
    let run = |seed| scenario(seed).run();
    sweep(0..runs, threads(), run, |seed, verdict| {
        // A core without its safeguard may also trip over itself: that is not the oracle's doing.
        if let (None, Verdict::Failed(failure)) = (&found, verdict) {
            found = failure.violations().iter().find(|v| wanted(v)).map(|v| (seed, v.clone()));
        }
        found.is_none()
    });
    if let Some((seed, violation)) = &found {
        println!("seed {seed}: {violation}");
    }
    found
}

fn without(sabotage: Sabotage) -> impl Fn(u64) -> Scenario + Sync {
    move |seed| Scenario { sabotage, ..Scenario::draw(seed) }
}

#[test]
fn without_duplicate_suppression_messages_come_twice() {
    let sabotage = Sabotage { accept_duplicates: true, ..Sabotage::default() };
    let twice = |violation: &Violation| matches!(violation, Violation::Duplicate { .. });
    assert!(first_violation(200, without(sabotage), twice).is_some());
}

#[test]
fn without_the_generation_check_messages_of_an_earlier_life_come() {
    let sabotage = Sabotage { accept_stale: true, ..Sabotage::default() };
    let stale =
        |violation: &Violation| matches!(violation, Violation::Foreign { from: Some(_), .. });
    assert!(first_violation(1000, without(sabotage), stale).is_some());
}

/// Restarts on the same queue pairs, slow enough and in packets enough for a late middle packet of
/// an earlier life to come just where one of a message is missing.
fn splices(seed: u64) -> Scenario {
    Scenario {
        mtu: Mtu::Mtu1024,
        chunk_bytes_max: 16 << 10,
        channels: 1,
        rate_bits_per_s: 1_000_000_000,
        pause: Nanos::ZERO,
        sizes: Sizes { bytes_max: 64 << 10, bytes_total: 256 << 10, messages_max: 16 },
        lives: 6,
        harshness: 1.0,
        crashes: 1.0,
        ..Scenario::draw(seed)
    }
}

#[test]
fn without_the_payload_checksum_spliced_messages_come() {
    let sabotage = Sabotage { skip_payload_crc: true, ..Sabotage::default() };
    let damaged =
        |violation: &Violation| matches!(violation, Violation::Foreign { from: None, .. });
    let scenario = |seed| Scenario { sabotage, ..splices(seed) };
    assert!(first_violation(20_000, scenario, damaged).is_some());
}

#[test]
fn without_icrc_and_payload_checksum_damaged_messages_come() {
    let sabotage = Sabotage { skip_payload_crc: true, ..Sabotage::default() };
    let damaged =
        |violation: &Violation| matches!(violation, Violation::Foreign { from: None, .. });
    let scenario = |seed| Scenario { sabotage, icrc: Icrc::Auto, ..Scenario::draw(seed) };
    assert!(first_violation(200, scenario, damaged).is_some());
}

#[test]
fn with_all_safeguards_on_the_runs_that_splice_hold() {
    let mut checked = 0;
    towpath_tests::hold(
        "safeguards",
        0..300,
        |seed| splices(seed).run(),
        |report| {
            checked += report.links.payloads_bad;
        },
    );
    println!("{checked} chunks did not match their checksum");
}
