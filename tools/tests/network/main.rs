//! Real programs on two sides of a wire that loses, copies, damages and delays Ethernet frames: the
//! chunk server with `towpath put` and `get`, kernel TCP beside it, and `towpath-lossy` itself.
//!
//! Skipped, with the reason on stderr, where no network namespace can be made.

mod carriers;
mod outages;
mod rig;
mod roles;
mod tool;

use std::fs;
use std::path::Path;

use rig::{Ran, Rig, quoted, role};
use towpath_base::Prng;

const MIB: usize = 1 << 20;
const SEED: u64 = 7;

/// Puts so many bytes through a wire with these faults, gets them back, and compares.
fn put_and_get(rig: &Rig, bytes: usize, faults: &[&str]) -> Ran {
    let mut sent = vec![0; bytes];
    Prng::new(SEED).fill(&mut sent);
    fs::write(rig.path("sent"), &sent).expect("written");
    let store = rig.path("store");
    let store = store.to_str().expect("UTF-8");
    let server = format!(
        "export NETWORK_SERVER_FLAGS='--data-dir {store} --capacity-bytes 1GiB'; {} >/dev/null",
        role("chunk_server")
    );
    let program = quoted(Path::new(env!("CARGO_BIN_EXE_towpath")));
    let address = roles::CHUNK_SERVER;
    // With the flags that one has by default: an ordinary network has no jumbo frames.
    let client = format!("id=$({program} put sent {address}) && {program} get $id got {address}");
    let seed = SEED.to_string();
    let mut flags = vec!["--seed", &seed, "--wait-port", "7400", "--in-a", &server];
    flags.extend(["--in-b", &client]);
    flags.extend(faults);
    let ran = rig.run(&flags).succeeded();
    let got = fs::read(rig.path("got")).expect("a file");
    assert!(got == sent, "seed {SEED}: other bytes came back through {faults:?}");
    ran.is_accounted_for();
    // What was put came from b, what was got from a.
    for came in ran.counts("passed_bytes") {
        assert!(came > bytes as u64, "it went over the wire: {}", ran.report);
    }
    ran
}

/// The same, where this fault must have been seen in both directions.
fn survives(fault: &str, bytes: usize, faults: &[&str]) {
    let Some(rig) = Rig::new() else { return };
    let ran = put_and_get(&rig, bytes, faults);
    assert!(ran.counts(fault).into_iter().all(|count| count > 0), "{}", ran.report);
}

#[test]
fn a_file_goes_there_and_back_over_a_clean_wire() {
    let Some(rig) = Rig::new() else { return };
    let ran = put_and_get(&rig, 8 * MIB, &[]);
    assert_eq!(ran.counts("lost"), [0, 0]);
    assert_eq!(ran.counts("too_large"), [0, 0], "nothing larger than the interface's MTU");
}

#[test]
fn a_file_goes_there_and_back_where_one_frame_in_a_hundred_is_lost() {
    survives("lost", 8 * MIB, &["--loss", "1%"]);
}

#[test]
fn a_file_goes_there_and_back_where_long_frames_are_dropped_without_a_word() {
    // Both hosts believe in jumbo frames; what the paths carry they have to find out.
    survives("too_large", 8 * MIB, &["--interface-mtu", "9000", "--mtu", "1500"]);
}

#[test]
fn a_file_goes_there_and_back_where_one_frame_in_twenty_is_lost() {
    survives("lost", 4 * MIB, &["--loss", "5%"]);
}

#[test]
fn a_file_goes_there_and_back_where_frames_are_lost_in_bursts() {
    survives("lost_in_bursts", 4 * MIB, &["--burst", "0.2%:20"]);
}

#[test]
fn a_file_goes_there_and_back_where_one_frame_in_twenty_comes_twice() {
    survives("duplicated", 4 * MIB, &["--dup", "5%:1ms"]);
}

#[test]
fn a_file_goes_there_and_back_where_one_frame_in_a_hundred_is_damaged() {
    survives("corrupted", 4 * MIB, &["--corrupt", "1%"]);
}

#[test]
fn a_file_goes_there_and_back_where_a_round_trip_takes_40_ms() {
    survives("delayed", MIB, &["--delay", "20ms"]);
}

#[test]
fn a_file_goes_there_and_back_where_the_link_is_down_again_and_again() {
    let Some(rig) = Rig::new() else { return };
    // At this rate 2 MiB take more than 0.8 s each way, so the run meets an outage.
    let outages = ["--down", "700ms@300ms/1500ms", "--rate", "20Mbit"];
    let ran = put_and_get(&rig, 2 * MIB, &outages);
    assert!(ran.counts("lost_down").into_iter().any(|count| count > 0), "{}", ran.report);
}

/// The carriers that the client said that it rode on.
fn rides(ran: &Ran) -> Vec<&str> {
    let words = ran.stderr.split("the link rode on ").skip(1);
    words.filter_map(|line| line.split(' ').next()).collect()
}

#[test]
fn a_file_goes_there_and_back_over_tcp_where_udp_is_blocked() {
    for blocked in ["--udp-down", "--udp-down-ab", "--udp-down-ba"] {
        let Some(rig) = Rig::new() else { return };
        let ran = put_and_get(&rig, 4 * MIB, &[blocked, "60min@0s"]);
        assert!(ran.counts("lost_down").into_iter().sum::<u64>() > 0, "{}", ran.report);
        // Where the server alone is not heard, it alone goes to TCP, and its log says so.
        if blocked != "--udp-down-ab" {
            assert_eq!(rides(&ran), ["TCP", "TCP"], "put and get: {}", ran.stderr);
            assert!(ran.stderr.contains("over UDP"), "{}", ran.stderr);
        }
    }
}

#[test]
fn a_file_goes_on_over_tcp_when_udp_is_blocked_on_the_way_and_back_when_it_is_not() {
    let Some(rig) = Rig::new() else { return };
    // At this rate a way takes 3 s.
    let faults = ["--udp-down", "2s@1s", "--udp-down-ba", "1s@5s", "--rate", "50Mbit"];
    let ran = put_and_get(&rig, 16 * MIB, &faults);
    assert!(ran.counts("lost_down").into_iter().all(|count| count > 0), "{}", ran.report);
    let rides = rides(&ran);
    assert!(rides.contains(&"TCP"), "{}", ran.stderr);
}

#[test]
fn kernel_tcp_goes_through_the_same_wire() {
    let Some(rig) = Rig::new() else { return };
    let (server, client) = (role("tcp_server"), role("tcp_client"));
    let server = format!("{server} >/dev/null");
    let faults = ["--loss", "1%", "--corrupt", "1%", "--dup", "1%", "--reorder", "1%"];
    let mut flags = vec!["--in-a", &server, "--wait-port", "7401", "--in-b", &client];
    flags.extend(faults);
    let ran = rig.run(&flags).succeeded();
    assert!(ran.stdout.contains("equal"), "{}{}", ran.stdout, ran.stderr);
    for fault in ["lost", "corrupted", "duplicated", "reordered"] {
        assert!(ran.counts(fault).into_iter().sum::<u64>() > 0, "{fault}: {}", ran.report);
    }
    ran.is_accounted_for();
}
