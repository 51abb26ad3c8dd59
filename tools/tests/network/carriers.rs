//! Programs on a wire that carries no UDP for a while, or one way alone: they go on over TCP, all
//! that they move is right, and they say what they rode on and why.

use std::path::Path;

use crate::rig::{Ran, Rig, quoted, role};
use crate::{MIB, put_and_get, rides};

/// What becomes of UDP, and whether the client goes to TCP by itself. Where the server alone is not
/// heard, it alone goes there.
type Outage = (&'static [&'static str], bool);

const FROM_THE_START: Outage = (&["--udp-down", "60min@0s"], true);
const MIDWAY: Outage = (&["--udp-down", "60min@10MiB"], true);
const MIDWAY_FROM_A: Outage = (&["--udp-down-ab", "60min@10MiB"], false);
const MIDWAY_FROM_B: Outage = (&["--udp-down-ba", "60min@10MiB"], true);

/// At this rate what is moved takes longer than the outage.
const AND_BACK: Outage = (&["--udp-down", "20s@10MiB", "--rate", "20Mbit"], true);

/// A server, its port, and its client.
struct Program {
    server: String,
    port: &'static str,
    client: String,
}

/// Moves some 26 MiB, or 118.
fn kv(is_long: bool) -> Program {
    let rounds = if is_long { 900 } else { 200 };
    Program {
        server: format!("NETWORK_SERVER_FLAGS='--workers 1' {}", role_in_line("kv_server")),
        port: "7501",
        client: format!("NETWORK_ROUNDS={rounds} {}", role_in_line("kv_client")),
    }
}

/// The words of a role behind variables of its own.
fn role_in_line(name: &str) -> String {
    let words = role(name);
    words.strip_prefix("exec ").unwrap_or(&words).to_owned()
}

/// Moves some 26 MiB, or 131.
fn write_bw(is_long: bool) -> Program {
    let program = quoted(Path::new(env!("CARGO_BIN_EXE_tow_write_bw")));
    let count = if is_long { 2_000 } else { 400 };
    let server = format!("{program} -s 65536 -n {count} --data_validation");
    let client = format!("{server} 10.0.0.1");
    Program { server, port: "18515", client }
}

/// Runs a program to its end, and looks at what both sides said.
fn goes_on(rig: &Rig, program: &Program, (faults, client_falls): Outage) -> Ran {
    let mut flags = vec!["--wait-port", program.port, "--in-a", &program.server];
    flags.extend(["--in-b", &program.client]);
    flags.extend(faults);
    let ran = rig.run(&flags).succeeded();
    ran.is_accounted_for();
    println!("{faults:?}: nothing came out for {:?} ms", ran.counts("quiet_ms"));
    assert!(ran.counts("lost_down").into_iter().sum::<u64>() > 0, "{}", ran.report);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(
        said.contains("link rode on TCP")
            || !client_falls && said.contains("a link changes carrier"),
        "{faults:?}: {said}"
    );
    ran
}

#[test]
fn a_key_value_store_goes_on_over_tcp_where_udp_is_blocked_from_the_start_and_midway() {
    let Some(rig) = Rig::new() else { return };
    for outage in [FROM_THE_START, MIDWAY] {
        let ran = goes_on(&rig, &kv(false), outage);
        assert!(ran.stdout.contains("equal"), "{}", ran.stdout);
    }
}

#[test]
fn perftest_goes_on_over_tcp_where_udp_is_blocked_from_the_start_and_midway() {
    let Some(rig) = Rig::new() else { return };
    for outage in [FROM_THE_START, MIDWAY] {
        goes_on(&rig, &write_bw(false), outage);
    }
}

#[test]
fn a_file_goes_on_over_tcp_when_udp_is_blocked_after_some_bytes() {
    let Some(rig) = Rig::new() else { return };
    let ran = put_and_get(&rig, 16 * MIB, &["--udp-down", "60min@10MiB"]);
    assert!(rides(&ran).contains(&"TCP"), "{}", ran.stderr);
}

#[test]
#[ignore = "minutes"]
fn every_program_goes_on_whichever_way_udp_is_blocked_and_comes_back() {
    let Some(rig) = Rig::new() else { return };
    for program in [kv(false), write_bw(false)] {
        for outage in [MIDWAY_FROM_A, MIDWAY_FROM_B] {
            println!("{}", goes_on(&rig, &program, outage).stdout);
        }
    }
    let ran = goes_on(&rig, &kv(true), AND_BACK);
    println!("{}", ran.stdout);
    assert!(ran.stdout.contains("link rode on UC"), "{}", ran.stdout);
    let ran = goes_on(&rig, &write_bw(true), AND_BACK);
    println!("{}", ran.stdout);
    assert!(ran.stdout.contains("link rode on UC"), "{}", ran.stdout);
}

#[test]
#[ignore = "minutes"]
fn a_file_goes_on_whichever_way_udp_is_blocked_and_comes_back() {
    for faults in [MIDWAY_FROM_A.0, MIDWAY_FROM_B.0, AND_BACK.0] {
        let Some(rig) = Rig::new() else { return };
        let ran = put_and_get(&rig, 48 * MIB, faults);
        println!("{faults:?}: {:?} ms, {}", ran.counts("quiet_ms"), ran.stderr);
    }
}
