//! `towpath demo`, over sockets and in virtual time.

mod towpath_common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use towpath_common::{fails, json, pattern, succeeds, towpath};

/// How often a process is looked at before a test gives up on it, and how long between.
const LOOKS_MAX: u32 = 6_000;
const LOOK_EVERY: Duration = Duration::from_millis(10);

fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("{field} is no number: {report}"))
}

fn count(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} is no count: {report}"))
}

#[test]
fn at_every_loss_each_byte_comes_back_and_the_report_says_what_it_took() {
    for loss in ["0", "0.01", "0.05", "0.1"] {
        let args = ["demo", "--json", "--size", "8M", "--latency-requests", "20"];
        let report = json(towpath(args).args(["--seed", "3", "--loss", loss]));
        assert_eq!(report["verified"], true, "{report}");
        assert_eq!(count(&report, "bytes"), 8 << 20);
        assert_eq!(count(&report, "seed"), 3);
        assert_eq!(number(&report, "loss"), loss.parse::<f64>().expect("a number"));
        for field in ["packets_dropped", "chunks_sent", "chunks_retransmitted"] {
            let ends = count(&report["client"], field) + count(&report["server"], field);
            assert_eq!(count(&report, field), ends, "{field}: {report}");
        }
        for field in ["write_gbps", "read_gbps", "tcp_lossless_gbps", "tcp_durable_gbps"] {
            assert!(number(&report, field) > 0.0, "{field}: {report}");
        }
        let (p50, p99) = (number(&report, "lat_4k_p50_us"), number(&report, "lat_4k_p99_us"));
        assert!(0.0 < p50 && p50 <= p99, "{report}");
        assert!(count(&report, "chunks_sent") > count(&report, "chunks_retransmitted"));
        let lossy = loss != "0";
        assert_eq!(count(&report, "packets_dropped") > 0, lossy, "{report}");
        if lossy {
            assert!(count(&report, "chunks_retransmitted") > 0, "{report}");
        }
    }
}

#[test]
fn files_of_any_length_travel_and_no_store_is_left() {
    let dir = tempfile::tempdir().expect("room");
    let temporary = dir.path().join("tmp");
    std::fs::create_dir(&temporary).expect("made");
    for len in [0, 1, 4096, 300_001] {
        std::fs::write(dir.path().join("input"), pattern(len, 5)).expect("written");
        let args = ["demo", "--json", "--input", "input", "--latency-requests", "2", "--ipv6"];
        // From another directory, and with another place for temporary files.
        let report = json(towpath(args).current_dir(dir.path()).env("TMPDIR", &temporary));
        assert_eq!(report["verified"], true, "{report}");
        assert_eq!(count(&report, "bytes"), len as u64);
        assert_eq!(entries(&temporary), 0, "the store is removed");
    }
}

#[test]
fn people_get_steps_and_a_table() {
    let args = ["demo", "--size", "1M", "--latency-requests", "5", "--mtu", "1024", "--loss", "0"];
    let said = succeeds(&mut towpath(args));
    for words in [
        "kernel TCP",
        "no loss",
        "write, durable",
        "network only",
        "SIGTERM",
        "Every byte of 1 MiB",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(said.is_ascii(), "{said}");
}

#[test]
fn a_store_of_ones_own_is_tidied_unless_it_is_kept() {
    let dir = tempfile::tempdir().expect("room");
    let store = dir.path().join("store");
    let args = ["demo", "--json", "--size", "64K", "--latency-requests", "2"];
    for (keep, chunks) in [(false, 0), (true, 2), (true, 4)] {
        let mut command = towpath(args);
        command.arg("--dir").arg(&store).args(keep.then_some("--keep"));
        assert_eq!(json(&mut command)["verified"], true);
        let server = towpath_common::Process::start(&store);
        let listed = json(&mut towpath(["ls", "--json", &server.addr]));
        assert_eq!(listed["chunks"].as_array().map(Vec::len), Some(chunks), "{listed}");
    }
}

#[test]
fn in_virtual_time_the_same_seed_gives_the_same_packets_and_another_seed_others() {
    let run = |seed: &str, loss: &str| {
        let args = ["demo", "--virtual", "--json", "--size", "2M", "--latency-requests", "20"];
        let report = json(towpath(args).args(["--seed", seed, "--loss", loss]));
        assert_eq!(report["verified"], true, "{report}");
        assert_eq!(report["virtual_time"], true);
        assert_eq!(report["tcp_lossless_gbps"], Value::Null);
        assert!(report["trace_hash"].as_str().is_some_and(|hash| hash.len() == 16), "{report}");
        report
    };
    for loss in ["0", "0.05", "0.1"] {
        let report = run("7", loss);
        // Everything, times included: nothing of it comes from the machine.
        assert_eq!(report, run("7", loss));
        assert_ne!(report["trace_hash"], run("8", loss)["trace_hash"]);
        assert_eq!(count(&report, "chunks_retransmitted") > 0, loss != "0", "{report}");
        assert_eq!(count(&report, "packets_dropped") > 0, loss != "0", "{report}");
    }
}

#[test]
fn what_cannot_work_is_said_before_anything_is_done() {
    fails(&mut towpath(["demo", "--loss", "1.5"]), 2, &["0 to 0.5"]);
    fails(&mut towpath(["demo", "--size", "many"]), 2, &["KiB, MiB, GiB or TiB"]);
    fails(&mut towpath(["demo", "--op-size", "100"]), 2, &["multiple of 4,096"]);
    fails(&mut towpath(["demo", "--input", "/no/such/file"]), 7, &["/no/such/file"]);
    fails(&mut towpath(["demo", "--input", "/"]), 7, &["not a regular file"]);
    let nowhere = ["demo", "--json", "--size", "4K"];
    let said = fails(towpath(nowhere).env("TMPDIR", "/no/such/dir"), 7, &["/no/such/dir", "--dir"]);
    assert_eq!(said, "", "no object when there is nothing to tell");
}

#[test]
fn a_server_that_cannot_start_is_quoted() {
    let file = tempfile::NamedTempFile::new().expect("room");
    let path = file.path().to_str().expect("a plain path");
    let words = ["server process ended early", path, "not a directory"];
    fails(&mut towpath(["demo", "--size", "4K", "--dir", path]), 8, &words);
}

#[test]
fn no_process_is_left_when_the_demo_is_killed_and_an_interrupted_one_tidies_up() {
    let dir = tempfile::tempdir().expect("room");
    for (signal, code) in [("KILL", None), ("INT", Some(130)), ("TERM", Some(130))] {
        let temporary = dir.path().join(signal);
        std::fs::create_dir(&temporary).expect("made");
        let args = ["demo", "--json", "--size", "256M", "--loss", "0.5", "--latency-requests", "1"];
        let mut demo = towpath(args)
            .env("TMPDIR", &temporary)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        // The store is there once the server is: the second child, after that of the yardstick.
        look_until(|| (store_is_there(&temporary)).then_some(()));
        let child = look_until(|| children_of(demo.id()).last().copied());
        let kill = Command::new("sh")
            .args(["-c", &format!("kill -{signal} {}", demo.id())])
            .status()
            .expect("a shell");
        assert!(kill.success());
        assert_eq!(demo.wait().expect("it ends").code(), code, "{signal}");
        look_until(|| has_ended(child).then_some(()));
        assert_eq!(entries(&temporary), 0, "{signal}: the store is removed");
    }
}

/// Whether a server has made its store in a directory below.
fn store_is_there(temporary: &Path) -> bool {
    let below = std::fs::read_dir(temporary).expect("readable").flatten().next();
    below.is_some_and(|dir| dir.path().join("disk").exists())
}

fn look_until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    panic!("it did not happen");
}

/// The processes that `pid` has started and that run.
fn children_of(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Gone, or a zombie that nobody has asked about yet.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).expect("readable").count()
}
