//! `towpath-lossy` itself: exit codes, what it ends, what it counts, what it says.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::rig::{Ran, Rig, role, tool};
use crate::roles::DATAGRAMS;

#[test]
fn the_exit_code_is_that_of_the_command_in_b() {
    let Some(rig) = Rig::new() else { return };
    assert_eq!(rig.run(&["--", "sh", "-c", "exit 7"]).code, 7);
    assert_eq!(rig.run(&["--in-b", "exit 9"]).code, 9);
    assert_eq!(rig.run(&["--in-b", "kill -KILL $$"]).code, 128 + 9);
    assert_eq!(rig.run(&["--in-a", "exit 5"]).code, 5, "the only one counts");
    assert_eq!(rig.run(&["--", "/no/such/program"]).code, 127);
    assert_eq!(rig.run(&["--", "/"]).code, 126);
}

#[test]
fn a_server_that_fails_makes_the_run_fail_and_is_named() {
    let Some(rig) = Rig::new() else { return };
    // The command in b ends after the one in a: it waits for the file.
    let client = "until [ -e done ]; do sleep 0.01; done; sleep 0.1";
    let ran = rig.run(&["--in-a", "touch done; exit 3", "--in-b", client]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("the command in a ended: exit status: 3"), "{}", ran.stderr);
    assert_eq!(ran.report["exit"]["a"], 3);
    assert_eq!(ran.report["exit"]["b"], 0);

    let ran = rig.run(&["--in-a", "exit 4", "--wait-port", "7400", "--in-b", "true"]);
    assert_eq!(ran.code, 125);
    assert!(ran.stderr.contains("before anything listened on TCP port 7400"), "{}", ran.stderr);
}

/// Whether a process with these words in its command line is there.
fn is_there(words: &str) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.trim() == words
    })
}

/// A command that nobody else runs on this machine, for it sleeps for a time of its own.
fn sleep(of: u32) -> String {
    format!("sleep {}.{of}", 1_000_000 + std::process::id())
}

/// Starts a run whose commands leave processes behind, sends it `signal` once all are there, and
/// waits for its end.
fn signalled(rig: &Rig, signal: &str) -> (Ran, [String; 3]) {
    let sleeps = [1, 2, 3].map(sleep);
    let [one, two, three] = &sleeps;
    let in_a = format!("{one} & {two} & echo begun; wait");
    // This one does not end when it is asked to.
    let in_b = format!("trap '' TERM; {three} & echo begun; wait");
    let mut command = tool();
    command.arg(format!("--json={}", rig.path("report.json").display()));
    command.args(["--in-a", &in_a, "--in-b", &in_b]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.as_mut().expect("a pipe")).lines();
    for _ in 0..2 {
        assert_eq!(lines.next().expect("a line").expect("text"), "begun");
    }
    assert!(sleeps.iter().all(|words| wait_until(|| is_there(words))), "all are there");
    let told = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(told.expect("it starts").success());
    (rig.over(&child.wait_with_output().expect("it ends")), sleeps)
}

/// Looks again and again; false after ten seconds.
fn wait_until(is_so: impl Fn() -> bool) -> bool {
    (0..1_000).any(|_| {
        is_so() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    })
}

#[test]
fn a_signal_ends_all_processes_in_the_namespaces() {
    let Some(rig) = Rig::new() else { return };
    for signal in ["-TERM", "-INT"] {
        let (ran, sleeps) = signalled(&rig, signal);
        assert_eq!(ran.code, 130, "{}", ran.stderr);
        assert!(ran.report["ab"]["frames"].is_u64(), "it still tells: {}", ran.report);
        for words in sleeps {
            assert!(!is_there(&words), "{words} is still there");
        }
    }
}

#[test]
fn commands_die_with_a_run_that_is_killed() {
    let Some(_rig) = Rig::new() else { return };
    let [one, two] = [4, 5].map(sleep);
    let mut command = tool();
    let (in_a, in_b) = (format!("exec {one}"), format!("exec {two}"));
    command.args(["--quiet", "--in-a", &in_a, "--in-b", &in_b]);
    let mut child = command.spawn().expect("it starts");
    assert!(wait_until(|| is_there(&one) && is_there(&two)));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(wait_until(|| !is_there(&one) && !is_there(&two)));
}

#[test]
fn the_time_limit_ends_a_run() {
    let Some(rig) = Rig::new() else { return };
    let limit = |flags: &[&str]| {
        let output = tool().args(["--for", "100ms"]).args(flags).output().expect("it starts");
        rig.over(&output)
    };
    let with_command = limit(&["--in-b", "exec sleep 1000"]);
    assert_eq!(with_command.code, 124);
    let without = limit(&[]);
    assert_eq!(without.code, 0);
    assert!(without.stderr.contains("nsenter"), "it says how to enter: {}", without.stderr);
}

#[test]
fn a_wire_with_a_smaller_mtu_than_its_interfaces_swallows_large_packets() {
    let Some(rig) = Rig::new() else { return };
    let flags = ["--interface-mtu", "9000", "--mtu", "1500", "--in-b", &role("datagrams")];
    let ran = rig.run(&flags).succeeded();
    assert_eq!(ran.counts("too_large"), [0, DATAGRAMS], "{}", ran.report);
    let [_, passed] = ran.counts("passed");
    assert!(passed >= DATAGRAMS, "{}", ran.report);
    ran.is_accounted_for();
}

#[test]
fn a_fault_of_one_direction_does_not_touch_the_other() {
    let Some(rig) = Rig::new() else { return };
    let flags = ["--loss-ba", "100%", "--dup", "100%", "--in-b", &role("datagrams")];
    let ran = rig.run(&flags).succeeded();
    let ([lost_ab, lost_ba], [_, frames_ba]) = (ran.counts("lost"), ran.counts("frames"));
    assert_eq!((lost_ab, lost_ba), (0, frames_ba), "{}", ran.report);
    assert!(frames_ba >= DATAGRAMS, "{}", ran.report);
    let ([copies_ab, copies_ba], [frames_ab, _]) = (ran.counts("duplicated"), ran.counts("frames"));
    assert_eq!((copies_ab, copies_ba), (frames_ab, 0), "{}", ran.report);
}

#[test]
fn wrong_flags_are_refused_with_what_would_be_right() {
    for (flags, words) in [
        (&["--loss", "1"][..], "1%"),
        (&["--delay", "20"], "20ms"),
        (&["--rate", "100"], "100Mbit"),
        (&["--queue", "64K"], "--rate"),
        (&["--mtu", "100"], "576"),
        (&["--wait-port", "7400"], "--in-a"),
        (&["--down", "5s"], "5s@10s"),
        (&["--in-b", "true", "--", "true"], "cannot be used with"),
    ] {
        let output = tool().args(flags).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(words), "{flags:?}: {said}");
    }
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let Some(rig) = Rig::new() else { return };
    // Within a namespace, where it has the right to look.
    let program = env!("CARGO_BIN_EXE_towpath-lossy");
    let ran = rig.run(&["--", program, "--interfaces", "no-such-if", "eth0"]);
    assert_eq!(ran.code, 125);
    assert!(ran.stderr.contains("there is no interface no-such-if"), "{}", ran.stderr);
    let ran = rig.run(&["--", program, "--interfaces", "eth0", "eth0"]);
    assert_eq!(ran.code, 125);
    assert!(ran.stderr.contains("Another program has it open"), "{}", ran.stderr);
}
