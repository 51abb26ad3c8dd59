//! `tow_devinfo --check` with a peer on this host: each row says what is so.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const DEVINFO: &str = env!("CARGO_BIN_EXE_tow_devinfo");

/// The end that serves, until it is dropped.
struct Server {
    child: Child,
    addr: String,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(DEVINFO);
        command.args(["--serve", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it serves");
        let addr = line.trim().rsplit(' ').next().expect("a word").to_owned();
        Self { child, addr }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended: then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The exit code, and the table.
fn check(args: &[&str]) -> (Option<i32>, Value) {
    let output = Command::new(DEVINFO).args(args).arg("--json").output().expect("it starts");
    let table = serde_json::from_slice(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), table.unwrap_or_else(|error| panic!("{error}: {said}")))
}

fn row<'a>(table: &'a Value, id: &str) -> &'a Value {
    let rows = table["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("no row {id}: {table:#}"))
}

#[test]
fn a_check_of_the_userspace_nic_tries_all_that_can_be_tried_and_says_what_was_not() {
    let server = Server::start();
    let (code, table) = check(&["--check", &server.addr, "-d", "roce:127.0.0.1,127.0.0.2"]);
    assert_eq!(code, Some(0), "{table:#}");
    assert_eq!(table["peer"], server.addr.as_str());
    for (id, has_figure) in [
        ("setup", true),
        ("device", false),
        ("timestamps", false),
        ("uc", true),
        ("rc", true),
        ("tcp", true),
        ("round-trip", true),
        ("round-trip-asleep", true),
        ("mtu", true),
        ("paths", true),
        ("port-live", false),
        ("queue-pair-again", true),
        ("write-read", true),
        ("atomics", false),
        ("nics", true),
    ] {
        let row = row(&table, id);
        assert_eq!(row["status"], "works", "{row:#}");
        let value = row["figure"]["value"].as_f64();
        assert_eq!(value.is_some_and(|value| value > 0.0), has_figure, "{row:#}");
    }
    for id in ["srq", "reroute", "loss"] {
        let row = row(&table, id);
        assert_eq!(row["status"], "not tried", "{row:#}");
        assert!(!row["note"].as_str().expect("a reason").is_empty());
    }
    let documented = include_str!("../../docs/hardware.md");
    for row in table["rows"].as_array().expect("rows") {
        let id = row["id"].as_str().expect("a name");
        assert!(documented.contains(&format!("`{id}`")), "docs/hardware.md does not tell of {id}");
    }
}

#[test]
fn a_check_with_nobody_says_so_and_fails() {
    let (code, table) = check(&["--check", "127.0.0.1:1"]);
    assert_eq!(code, Some(1));
    let setup = row(&table, "setup");
    assert_eq!(setup["status"], "does not");
    assert!(setup["note"].as_str().expect("a reason").contains("--serve"), "{setup:#}");
}

#[test]
fn a_check_with_a_device_that_is_not_there_says_so_and_fails() {
    let server = Server::start();
    let (code, table) = check(&["--check", &server.addr, "-d", "no_such_device"]);
    assert_eq!(code, Some(1));
    assert_eq!(row(&table, "device")["status"], "does not", "{table:#}");
}
