//! `tow_* --run_infinitely`: rows until the client is stopped.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Rows that are waited for: the first says that it runs, the second that it goes on.
const ROWS: usize = 2;

fn rows_until_stopped(program: &str, host: &str) {
    // An address of 127/8 that no other test uses: nobody else is given the port meanwhile.
    let free = TcpListener::bind((host, 0)).expect("a port").local_addr().expect("bound");
    let port = free.port().to_string();
    let flags = ["--run_infinitely", "-D", "0.2", "-f", "0.02", "-p", &port];
    let start = |more: &[&str]| {
        let mut command = Command::new(program);
        command.args(flags).args(more).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let server = start(&["--bind", host]);
    let mut client = start(&[host]);
    let out = BufReader::new(client.stdout.take().expect("it is piped"));
    let is_row = |line: &String| {
        let first = line.split_whitespace().next();
        first.is_some_and(|first| first.parse::<u64>().is_ok())
    };
    let rows = out.lines().map_while(Result::ok).filter(is_row).take(ROWS).count();
    // Both must be gone before anything is asserted.
    client.kill().expect("it runs");
    client.wait().expect("it ends");
    let ended = server.wait_with_output().expect("it ends");
    assert_eq!(rows, ROWS, "{program}");
    assert_eq!(ended.status.code(), Some(0), "{program}: a client that is stopped is no failure");
}

#[test]
fn bandwidth_is_measured_until_the_client_is_stopped() {
    rows_until_stopped(env!("CARGO_BIN_EXE_tow_send_bw"), "127.47.97.1");
}

#[test]
fn latency_is_measured_until_the_client_is_stopped() {
    rows_until_stopped(env!("CARGO_BIN_EXE_tow_send_lat"), "127.47.97.2");
}
