//! Others' tools and clients use our server as they are: `cargo xtask redis` runs them.

mod common;

use common::process::Process;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a tool prints.
fn run(tool: &str, address: &str, args: &[&str], typed: &str) -> String {
    let (host, port) = address.rsplit_once(':').expect("an address and a port");
    let mut command = Command::new(tool);
    command.args(["-h", host, "-p", port]).args(args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{tool} does not start: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(typed.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{tool}: {:?}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
#[ignore = "needs redis-cli: cargo xtask redis"]
fn redis_cli_is_answered_as_by_its_own_server() {
    let process = Process::start(&["--resp", "127.0.0.1:0"]);
    let address = process.address("resp");
    let typed = "set name \"a value\" EX 100\nget name\nmget name none\nincr n\nexists n name\n\
                 set name x NX\ndel name n\nget name\nping hello\nselect 0\nselect 3\n\
                 hgetall name\nconfig get appendonly\n";
    let told = run("redis-cli", &address, &[], typed);
    let expected = "OK\na value\na value\n\n1\n2\n\n2\n\nhello\nOK\n\
                    ERR DB index is out of range\n\nERR unknown command 'hgetall'\n\n\
                    appendonly\nno\n";
    assert_eq!(told, expected);
    let inline = run("redis-cli", &address, &["--pipe"], "SET k v\r\nGET k\r\n");
    assert!(inline.contains("errors: 0, replies: 2"), "{inline}");
}

#[test]
#[ignore = "needs redis-benchmark: cargo xtask redis"]
fn redis_benchmark_has_each_request_answered() {
    const REQUESTS: &str = "5000";
    let process = Process::start(&["--resp", "127.0.0.1:0"]);
    let address = process.address("resp");
    for pipeline in ["1", "16"] {
        let tests = ["-t", "ping_inline,ping_mbulk,set,get,incr", "-n", REQUESTS, "-P", pipeline];
        let more = ["-r", "1000", "-d", "100", "--csv"];
        let told = run("redis-benchmark", &address, &[&tests[..], &more].concat(), "");
        assert!(!told.contains("error"), "{told}");
    }
    let (code, end) = process.stop();
    assert_eq!((code, &end["malformed"]), (Some(0), &0.into()));
    assert!(end["requests"].as_u64() >= Some(2 * 5 * 5_000), "{end}");
}

/// Runs a program of `tests/clients` against the server; `args` follow its port.
fn run_client(program: &str, script: &str, args: &[&str]) {
    let process = Process::start(&["--resp", "127.0.0.1:0"]);
    let address = process.address("resp");
    let (_, port) = address.rsplit_once(':').expect("an address and a port");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let status = Command::new(program).arg(script).arg(port).args(args).status();
    let status = status.unwrap_or_else(|error| panic!("{program} does not start: {error}"));
    assert!(status.success(), "{status}");
}

/// Where `tests/kv-clients.sh` has put them.
fn clients() -> String {
    std::env::var("TOWPATH_KV_CLIENTS").expect("TOWPATH_KV_CLIENTS names their folder")
}

#[test]
#[ignore = "needs redis-py and valkey-py: cargo xtask redis"]
fn clients_of_python_use_it_with_their_defaults() {
    run_client(&format!("{}/venv/bin/python", clients()), "redis_py.py", &[]);
}

#[test]
#[ignore = "needs node-redis, ioredis and iovalkey: cargo xtask redis"]
fn clients_of_node_use_it_with_their_defaults() {
    run_client("node", "node.mjs", &[&clients()]);
}

#[test]
#[ignore = "needs valkey-cli: cargo xtask redis runs it where Debian has it"]
fn valkey_cli_is_answered_in_both_forms() {
    let process = Process::start(&["--resp", "127.0.0.1:0"]);
    let address = process.address("resp");
    for form in ["-2", "-3"] {
        let told = run("valkey-cli", &address, &[form], "set k v\nget k\nget none\n");
        assert_eq!(told, "OK\nv\n\n");
    }
}
