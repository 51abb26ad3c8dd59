//! A link that is down for longer than its ends wait for each other: clients wait for the server,
//! say so, and go on.

use std::fs;
use std::path::Path;

use towpath_base::Prng;

use crate::rig::{Ran, Rig, quoted, role};
use crate::roles::CHUNK_SERVERS;
use crate::{MIB, SEED, put_and_get};

/// Three chunk servers, each with a store of its own.
fn three_servers(rig: &Rig) -> String {
    let servers = CHUNK_SERVERS.into_iter().enumerate().map(|(number, place)| {
        let store = rig.path(&format!("store-{number}"));
        let flags = format!("--data-dir {} --capacity-bytes 1GiB", store.display());
        let role = role("chunk_server");
        format!("NETWORK_LISTEN={place} NETWORK_SERVER_FLAGS='{flags}' sh -c \"{role}\" >/dev/null")
    });
    servers.collect::<Vec<_>>().join(" & ")
}

/// A shell command that waits until all of them listen.
const ALL_LISTEN: &str = "for port in 7400 7410 7420; do \
     until bash -c \": </dev/tcp/10.0.0.1/$port\" 2>/dev/null; do sleep 0.1; done; done";

/// Runs a role of the library while the link is down at these times.
fn library(role_name: &str, outages: &[&str]) {
    let Some(rig) = Rig::new() else { return };
    let (server, client) = (three_servers(&rig), role(role_name));
    let client = format!("{ALL_LISTEN}; export NETWORK_ROUNDS=1; {client}");
    let mut flags = vec!["--wait-port", "7420", "--in-a", &server, "--in-b", &client];
    flags.extend(outages.iter().flat_map(|outage| ["--down", outage]));
    let ran = rig.run(&flags).succeeded();
    println!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("equal"), "{}", ran.stdout);
    assert!(ran.counts("lost_down").into_iter().all(|count| count > 0), "{}", ran.report);
}

#[test]
fn the_clients_of_the_library_go_on_when_the_link_was_down() {
    library("library_client", &["3s@4MiB"]);
    library("library_servers", &["3s@4MiB"]);
}

#[test]
#[ignore = "minutes"]
fn the_clients_of_the_library_go_on_when_the_link_was_down_for_half_a_minute() {
    // Once while they store, and once while they read.
    library("library_client", &["30s@4MiB", "30s@12MiB"]);
    library("library_servers", &["30s@4MiB", "30s@16MiB"]);
}

/// What was waited for, and that it came back.
fn says_what_it_waits_for(ran: &Ran, times: usize) {
    println!("{}", ran.stderr);
    assert!(ran.stderr.matches("waiting for it").count() >= times, "{}", ran.stderr);
    assert!(ran.stderr.matches("is back").count() >= times, "{}", ran.stderr);
}

#[test]
#[ignore = "minutes"]
fn put_and_get_go_on_when_the_link_was_down_for_half_a_minute() {
    let Some(rig) = Rig::new() else { return };
    let ran = put_and_get(&rig, 24 * MIB, &["--down", "30s@10MiB", "--down", "30s@34MiB"]);
    says_what_it_waits_for(&ran, 2);
}

#[test]
#[ignore = "minutes"]
fn a_file_on_several_servers_goes_on_when_the_link_was_down_for_half_a_minute() {
    let Some(rig) = Rig::new() else { return };
    let mut sent = vec![0; 24 * MIB];
    Prng::new(SEED).fill(&mut sent);
    fs::write(rig.path("sent"), &sent).expect("written");
    let (server, program) = (three_servers(&rig), quoted(Path::new(env!("CARGO_BIN_EXE_towpath"))));
    let places = CHUNK_SERVERS.join(",");
    let put = format!("{program} put sent --servers {places} --policy rs:2+1 --least 3");
    let client = format!("{ALL_LISTEN}; {put} && {program} get sent.layout got");
    let mut flags = vec!["--wait-port", "7420", "--in-a", &server, "--in-b", &client];
    // 36 MiB are stored, 24 are read.
    flags.extend(["--down", "30s@10MiB", "--down", "30s@48MiB"]);
    let ran = rig.run(&flags).succeeded();
    says_what_it_waits_for(&ran, 2);
    assert!(fs::read(rig.path("got")).expect("a file") == sent, "seed {SEED}: other bytes");
}
