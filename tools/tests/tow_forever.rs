//! perftest-style programs that run until they are stopped, and programs whose output fails.

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

/// Where nothing can be written: a full disk, and a pipe whose reader has died.
fn unwritable() -> [Stdio; 2] {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device of Linux");
    [Stdio::from(full), Stdio::from(writer)]
}

#[test]
fn a_message_that_cannot_be_written_changes_no_exit_code() {
    let nobody = "127.0.0.1:1";
    for (program, args, code) in [
        (env!("CARGO_BIN_EXE_towpath"), &["ls", nobody][..], 3),
        (env!("CARGO_BIN_EXE_towpath"), &["put", "/no/such/file", nobody], 7),
        (env!("CARGO_BIN_EXE_tow_send_bw"), &["-p", "1", "127.0.0.1"], 1),
        (env!("CARGO_BIN_EXE_tow_devinfo"), &["-d", "none"], 1),
        (env!("CARGO_BIN_EXE_towpath-lossy"), &["--exec-for"], 2),
    ] {
        for stderr in unwritable() {
            let run =
                Command::new(program).args(args).stdout(Stdio::null()).stderr(stderr).status();
            assert_eq!(run.expect("it starts").code(), Some(code), "{program} {args:?}");
        }
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_reader_that_went_away_is_no_news() {
    let devinfo = env!("CARGO_BIN_EXE_tow_devinfo");
    let [full, closed] = unwritable();
    let run = |stdout: Stdio| {
        let mut command = Command::new(devinfo);
        command.args(["-d", "roce"]).stdout(stdout).stderr(Stdio::piped());
        let output = command.spawn().and_then(|child| child.wait_with_output());
        let output = output.expect("it ends");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(full);
    assert!(code == Some(1) && said.contains("cannot write"), "{code:?}: {said}");
    assert_eq!(run(closed), (Some(0), String::new()));
}
