//! Commands whose server is killed and started again: they go on.

mod towpath_common;

use std::io::{Read as _, Write as _};
use std::process::{Output, Stdio};

use towpath_common::{Bench, Process, json, pattern, stderr, succeeds, towpath};

/// More than a pipe and what a command reads ahead have room for.
const BYTES: usize = 48 << 20;

/// The server as it was, at the same address.
fn start_again(bench: &Bench, mut server: Process) -> Process {
    let port = server.addr.rsplit(':').next().expect("a port").parse().expect("a number");
    server.child.kill().expect("it runs");
    drop(server);
    Process::start_on(&bench.store(), port)
}

fn check(output: &Output) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("lost the server") && said.contains("is back"), "{said}");
}

#[test]
fn a_put_and_a_get_go_on_when_their_server_is_killed_and_started_again() {
    let mut bench = Bench::new();
    let server = Process::start(&bench.store());
    bench.server = server.addr.clone();
    let bytes = pattern(BYTES, 1);
    let (first, rest) = bytes.split_at(BYTES / 2);
    let mut put = bench.run(&["put", "-"]);
    let put = put.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut put = put.spawn().expect("it starts");
    let mut stdin = put.stdin.take().expect("piped");
    stdin.write_all(first).expect("it reads");
    let written = || json(&mut towpath(["info", "--json", &bench.server]))["write_bytes"].as_u64();
    while written() < Some(1 << 20) {}
    let server = start_again(&bench, server);
    stdin.write_all(rest).expect("it reads on");
    drop(stdin);
    let output = put.wait_with_output().expect("it ends");
    check(&output);
    let chunk = String::from_utf8(output.stdout).expect("a name");
    let chunk = chunk.trim();

    let mut get = bench.run(&["get", chunk, "-"]);
    let mut get = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = get.stdout.take().expect("piped");
    let mut read = vec![0; 1 << 20];
    stdout.read_exact(&mut read).expect("it comes");
    let server = start_again(&bench, server);
    stdout.read_to_end(&mut read).expect("all of it comes");
    check(&get.wait_with_output().expect("it ends"));
    assert!(read == bytes);
    succeeds(&mut bench.run(&["scrub"]));
    succeeds(&mut bench.run(&["rm", chunk]));
    drop(server);
}

#[test]
fn many_small_files_are_each_stored_once_when_their_server_is_killed_and_started_again() {
    let mut bench = Bench::new();
    let server = Process::start(&bench.store());
    bench.server = server.addr.clone();
    let names: Vec<String> = (0..400).map(|number| format!("f{number}")).collect();
    for (name, seed) in names.iter().zip(0..) {
        bench.file(name, &pattern(20_000, seed));
    }
    let words: Vec<&str> = ["put"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut put = bench.run(&words);
    let put = put.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let written = || json(&mut towpath(["info", "--json", &bench.server]))["write_bytes"].as_u64();
    while written() < Some(1 << 16) {}
    let server = start_again(&bench, server);
    let output = put.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).expect("names");
    assert_eq!(text.lines().count(), names.len());
    for (line, name) in text.lines().zip(&names).step_by(50) {
        let chunk = line.split("  ").next().expect("a name");
        succeeds(&mut bench.run(&["get", chunk, "out", "--force"]));
        assert!(bench.read("out") == bench.read(name), "{name}");
    }
    let info = json(&mut bench.run(&["info", "--json"]));
    assert_eq!(info["chunks"], names.len(), "no chunk is there twice");
    drop(server);
}

#[test]
fn the_name_of_a_chunk_is_told_where_stdout_takes_none() {
    let mut bench = Bench::new();
    let server = Process::start(&bench.store());
    bench.server = server.addr.clone();
    bench.file("a", &pattern(10_000, 1));
    bench.file("b\nc", &pattern(10_000, 2));
    for files in [&["a"][..], &["a", "b\nc"], &["a", "b\nc", "--json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let mut put = bench.run(&[&["put"], files].concat());
        let output = put.stdout(full).stderr(Stdio::piped()).output().expect("it runs");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(7), "{said}");
        let listed = json(&mut bench.run(&["ls", "--json"]));
        for chunk in listed["chunks"].as_array().expect("a list") {
            let name = chunk["chunk"].as_str().expect("a name");
            assert!(said.contains(name), "{name} is not in {said:?}");
            succeeds(&mut bench.run(&["rm", name]));
        }
    }
    let text = succeeds(&mut bench.run(&["put", "a", "b\nc"]));
    assert_eq!(text.lines().count(), 2, "a line a file: {text}");
}
