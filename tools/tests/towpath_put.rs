//! `towpath put`: several files, stdin, interruptions, and servers that go away or are full.

mod towpath_common;

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use towpath_chunkserver::daemon::DaemonConfig;
use towpath_common::{Bench, Daemon, Process, fails, json, pattern, succeeds, towpath};
use towpath_fastpath::{Client, ClientConfig};

const NAME: &str = "000102030405060708090a0b0c0d0e0f";

#[test]
fn a_server_that_goes_away_mid_write_is_noticed() {
    let bench = Bench::new();
    let mut server = Process::start(&bench.store());
    // Sparse, so that it is endless for the network and nothing for the disk here.
    let endless = fs::File::create(bench.path("endless")).expect("made");
    endless.set_len(1 << 40).expect("sparse");
    let mut put =
        bench.run(&["put", "endless", &server.addr, "--timeout-ms", "60000", "--patience", "1"]);
    let put = put.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    // Once info tells of writes, the put is in the middle of it.
    let written = || json(&mut towpath(["info", "--json", &server.addr]))["write_bytes"].as_u64();
    while written() < Some(1 << 20) {}
    server.child.kill().expect("it runs");
    let output = put.wait_with_output().expect("it ends");
    let said = towpath_common::stderr(&output);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("the server is gone") && said.contains("incomplete"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn an_interrupted_put_takes_its_chunk_away_again_and_says_what_was_stored() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    let endless = fs::File::create(bench.path("endless")).expect("made");
    endless.set_len(1 << 40).expect("sparse");
    let written = || json(&mut bench.run(&["info", "--json"]))["write_bytes"].as_u64();
    for signal in ["INT", "TERM", "HUP"] {
        let before = written().expect("a count");
        // One small write at a time, or the store is full before the signal comes.
        let plain = bench.run(&["put", "endless", "--depth", "1", "--op-size", "4K"]);
        // Under nohup this test inherits an ignored SIGHUP; the put must not.
        let mut put = Command::new("env");
        put.arg("--default-signal=HUP").arg(plain.get_program()).args(plain.get_args());
        put.current_dir(bench.path("")).env("TOWPATH_SERVER", &bench.server);
        let put = put.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        while written() < Some(before + (1 << 20)) {}
        let kill = format!("kill -{signal} {}", put.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
        let output = put.wait_with_output().expect("it ends");
        let said = towpath_common::stderr(&output);
        assert_eq!(output.status.code(), Some(130), "{signal}: {said}");
        for words in ["of 1 TiB of endless were stored", "was removed again", "interrupted"] {
            assert!(said.contains(words), "{signal}: {words:?} is not in {said:?}");
        }
        assert_eq!(json(&mut bench.run(&["ls", "--json"])), serde_json::json!({"chunks": []}));
    }
    daemon.stop();
}

#[test]
fn several_files_are_stored_over_one_link_and_each_is_named() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    let names: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
    for (name, len) in names.iter().zip(0..) {
        bench.file(name, &pattern(100 * len, len as u64));
    }
    let put: Vec<&str> = ["put"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let said = succeeds(&mut bench.run(&put));
    assert_eq!(said.lines().count(), 20, "{said}");
    for (line, name) in said.lines().zip(&names) {
        let (chunk, file) = line.split_once("  ").expect("chunk and file");
        assert_eq!(file, name);
        succeeds(&mut bench.run(&["get", chunk, "out", "--force"]));
        assert!(bench.read("out") == bench.read(name), "{name}");
    }
    let report = json(&mut bench.run(&["put", "f1", "f2", "--json", &bench.server]));
    assert_eq!((&report["bytes"], &report["files"][1]["file"]), (&300.into(), &"f2".into()));
    assert_eq!(report["files"][1]["bytes"], 200, "{report}");

    fails(
        &mut bench.run(&["put", "f1", "no such"]),
        3,
        &["`no such` is neither a file nor", "HOST:PORT"],
    );
    fails(&mut bench.run(&["put", "f1", "f2", "--chunk", NAME]), 2, &["--chunk"]);
    fails(&mut bench.run(&["put", "f1", "./gone"]), 7, &["./gone"]);
    let flags = ["put", "f1", "gone", "--server", &bench.server];
    fails(&mut bench.run(&flags), 7, &["gone"]);
    daemon.stop();
}

#[test]
fn small_files_are_stored_together_and_a_large_one_between_them_in_its_turn() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    let names: Vec<String> = (0..40).map(|n| format!("f{n}")).collect();
    for (name, n) in names.iter().zip(0..) {
        // The 20th takes several requests, the 30th none.
        let len = if n == 20 { 400_000 } else { 4096 * usize::from(n != 30) };
        bench.file(name, &pattern(len, n));
    }
    let put: Vec<&str> = ["put"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let said = succeeds(&mut bench.run(&put));
    let stored: Vec<(&str, &str)> =
        said.lines().map(|line| line.split_once("  ").expect("chunk and file")).collect();
    assert!(stored.iter().map(|(_, file)| *file).eq(names.iter().map(String::as_str)), "{said}");
    for (chunk, name) in [stored[0], stored[20], stored[30], stored[39]] {
        succeeds(&mut bench.run(&["get", chunk, "out", "--force"]));
        assert!(bench.read("out") == bench.read(name), "{name}");
    }
    daemon.stop();
}

#[test]
fn an_interrupted_put_of_small_files_leaves_those_that_it_has_named() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    let names: Vec<String> = (0..3000).map(|n| format!("f{n}")).collect();
    names.iter().for_each(|name| bench.file(name, &pattern(4096, 1)));
    // However fast the small ones are, it does not end by itself.
    let endless = fs::File::create(bench.path("endless")).expect("made");
    endless.set_len(1 << 40).expect("sparse");
    let mut put = bench.run(&["put"]);
    let put = put.args(&names).arg("endless").stderr(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let put = put.expect("it starts");
    let written = || json(&mut bench.run(&["info", "--json"]))["write_bytes"].as_u64();
    while written() < Some(100 * 4096) {}
    let kill = format!("kill -INT {}", put.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    let output = put.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", towpath_common::stderr(&output));
    let said = String::from_utf8(output.stdout).expect("names");
    let mut named: Vec<&str> = said.lines().filter_map(|line| line.split("  ").next()).collect();
    named.sort_unstable();
    let listed = json(&mut bench.run(&["ls", "--json"]));
    let listed = listed["chunks"].as_array().expect("a list");
    let listed: Vec<&str> = listed.iter().filter_map(|chunk| chunk["chunk"].as_str()).collect();
    assert!(listed == named, "{} are there, {} were named", listed.len(), named.len());
    daemon.stop();
}

#[test]
fn stdin_is_stored_to_its_end_also_when_it_is_slow_or_empty() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    let stored = |parts: &[&[u8]]| {
        let mut put = bench.run(&["put", "-"]);
        let put = put.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut put = put.expect("it starts");
        let mut stdin = put.stdin.take().expect("it is a pipe");
        for part in parts {
            stdin.write_all(part).expect("it reads");
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(stdin);
        let output = put.wait_with_output().expect("it ends");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("a name").trim().to_owned()
    };
    // More than is read at a time, and nothing at all.
    let bytes = pattern(19_000_001, 8);
    let chunk = stored(&[&bytes[..5], &bytes[5..]]);
    succeeds(&mut bench.run(&["get", &chunk, "out"]));
    assert!(bench.read("out") == bytes, "the bytes came back changed");
    let chunk = stored(&[]);
    assert_eq!(json(&mut bench.run(&["stat", &chunk, "--json"]))["bytes"], 0);
    fails(&mut bench.run(&["put", "-", "-"]), 2, &["once"]);
    daemon.stop();
}

#[test]
fn a_server_that_is_full_is_told_from_one_that_is_not_there() {
    let mut bench = Bench::new();
    let config = DaemonConfig::default().with(|config| {
        config.store.data_dir = bench.store();
        config.network.workers = Some(1);
        config.network.links_max = 4;
    });
    let daemon = Daemon::with(config);
    bench.server = daemon.addr.to_string();
    // As many clients as the test's server takes.
    let connect = |_| Client::connect(daemon.addr, ClientConfig::default());
    let clients: Vec<_> = (0..4).map(connect).collect::<Result<_, _>>().expect("room for four");
    fails(&mut bench.run(&["ls"]), 5, &["server full", "--links-max"]);
    drop(clients);
    daemon.stop();
}
