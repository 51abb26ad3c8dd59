//! `towpath bench store` against a chunk server: counts, fields, contents and what is left behind.

mod towpath_common;

use std::process::Stdio;

use serde_json::{Value, json};
use towpath_common::{Bench, Daemon, fails, json, pattern, stderr, succeeds};

const NAME: &str = "000102030405060708090a0b0c0d0e0f";

/// A server, and the command with these flags against it.
fn with_server(test: impl FnOnce(&Bench)) {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    test(&bench);
    daemon.stop();
}

fn measure(bench: &Bench, flags: &str) -> Value {
    let words: Vec<&str> = ["bench", "store"].into_iter().chain(flags.split(' ')).collect();
    json(bench.run(&words).arg("--json"))
}

fn chunks(bench: &Bench) -> Value {
    json(&mut bench.run(&["ls", "--json"]))["chunks"].clone()
}

/// Latencies are in order; how long they are is no test.
fn is_sound(direction: &Value) -> bool {
    let lat = &direction["lat_ns"];
    let of = |value: &Value| value.as_f64().unwrap_or(-1.0);
    let keys = ["50.000000", "90.000000", "99.000000", "99.900000", "99.990000"];
    let mut line = vec![of(&lat["min"])];
    line.extend(keys.map(|key| of(&lat["percentile"][key])));
    line.push(of(&lat["max"]));
    let mean = of(&lat["mean"]);
    line[0] > 0.0
        && line.is_sorted()
        && (line[0]..=line[6]).contains(&mean)
        && of(&lat["stddev"]) >= 0.0
        && [&direction["iops"], &direction["bw_bytes"], &direction["runtime"]]
            .into_iter()
            .all(|rate| of(rate) > 0.0)
}

#[test]
fn every_kind_does_as_many_requests_as_its_bytes_hold_and_leaves_nothing() {
    with_server(|bench| {
        for (rw, reads, writes) in [
            ("read", true, false),
            ("write", false, true),
            ("randread", true, false),
            ("randwrite", false, true),
            ("rw", true, true),
            ("randrw", true, true),
        ] {
            let flags = format!("--rw {rw} --size 1m --io-size 2m --iodepth 8 --numjobs 2");
            let report = measure(bench, &flags);
            assert_eq!((&report["rw"], &report["bs"]), (&json!(rw), &json!(4096)), "{report}");
            let ios = |name: &str| report[name]["total_ios"].as_u64();
            let all = ios("read").unwrap_or(0) + ios("write").unwrap_or(0);
            assert_eq!(all, 2 * 512, "two jobs of 2 MiB: {report}");
            assert_eq!((ios("read").is_some(), ios("write").is_some()), (reads, writes), "{rw}");
            for name in ["read", "write"].into_iter().filter(|name| ios(name).is_some()) {
                let bytes = report[name]["io_bytes"].as_u64();
                assert_eq!(bytes, ios(name).map(|ios| 4096 * ios), "{report}");
                assert!(is_sound(&report[name]), "{report}");
            }
            assert_eq!((&report["interrupted"], &report["chunks"]), (&json!(false), &json!([])));
        }
        assert_eq!(chunks(bench), json!([]));
    });
}

#[test]
fn contents_are_checked_in_blocks_of_any_size() {
    with_server(|bench| {
        for (flags, pages) in [
            ("--rw randrw --bs 4k --size 512k --io-size 4m --iodepth 16 --nrfiles 2", 1),
            ("--rw rw --bs 64k --size 4m --io-size 8m --iodepth 4 --age 2", 16),
            ("--rw randrw --bs 512 --size 64k --io-size 256k --iodepth 4", 1),
            ("--rw randrw --bs 1m --size 8m --iodepth 2 --rwmixread 70", 256),
        ] {
            let report = measure(bench, &format!("{flags} --verify"));
            let reads = report["read"]["total_ios"].as_u64().expect("there were reads");
            assert_eq!(report["verified_pages"], json!(reads * pages), "{flags}: {report}");
        }
    });
}

#[test]
fn a_chunk_that_another_has_changed_is_found_by_its_content() {
    with_server(|bench| {
        // A run that fails removes what it has made: this chunk is there before.
        bench.file("source", &pattern(64 << 10, 5));
        succeeds(&mut bench.run(&["put", "source", "--chunk", NAME]));
        let flags = ["bench", "store", "--rw", "randread", "--size", "64k", "--verify"];
        let words: Vec<&str> = flags.into_iter().chain(["--chunk", NAME]).collect();
        let runtime = ["--runtime", "60", "--time-based"];
        let mut command = bench.run(&words);
        let child = command.args(runtime).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let child = child.expect("it starts");
        let reads = || json(&mut bench.run(&["info", "--json"]))["reads"].as_u64();
        let before = reads().expect("a count");
        while reads() < Some(before + 100) {}
        // The same load with other contents, on the same chunk.
        measure(bench, &format!("--rw randwrite --size 64k --chunk {NAME}"));
        let output = child.wait_with_output().expect("it ends");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("wrong data in chunk") && said.contains("not written by"), "{said}");
    });
}

#[test]
fn a_named_chunk_is_kept_and_used_again_as_it_is() {
    with_server(|bench| {
        bench.file("source", &pattern(1 << 20, 5));
        succeeds(&mut bench.run(&["put", "source", "--chunk", NAME]));
        let report = measure(bench, &format!("--rw randread --size 1m --chunk {NAME}"));
        assert_eq!(report["chunks"], json!([NAME]));
        succeeds(&mut bench.run(&["get", NAME, "copy"]));
        assert!(bench.read("copy") == bench.read("source"), "reads changed the chunk");
        let kept = measure(bench, "--rw randwrite --size 256k --keep");
        let kept = kept["chunks"][0].as_str().expect("a name").to_owned();
        let found = json(&mut bench.run(&["stat", &kept, "--json"]));
        assert_eq!((&found["bytes"], &found["unfinished"]), (&json!(256 << 10), &json!(false)));
    });
}

#[test]
fn an_interrupted_run_reports_what_was_done_and_removes_its_chunks() {
    with_server(|bench| {
        let flags = ["bench", "store", "--rw", "randwrite", "--size", "1m", "--json"];
        let mut command = bench.run(&flags);
        command.args(["--runtime", "600", "--time-based"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("it starts");
        let written = || json(&mut bench.run(&["info", "--json"]))["write_bytes"].as_u64();
        while written() < Some(1 << 20) {}
        let kill = format!("kill -INT {}", child.id());
        let sent = std::process::Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("a shell").success());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
        assert_eq!(report["interrupted"], json!(true));
        assert!(report["write"]["total_ios"].as_u64() >= Some(256), "{report}");
        assert_eq!(chunks(bench), json!([]));
    });
}

#[test]
fn what_cannot_run_is_refused_with_the_next_step() {
    with_server(|bench| {
        let fails = |flags: &str, code, words: &[&str]| {
            let all: Vec<&str> = ["bench", "store"].into_iter().chain(flags.split(' ')).collect();
            fails(&mut bench.run(&all), code, words)
        };
        fails("--time-based", 2, &["--runtime SECONDS"]);
        fails("--size 10k", 2, &["a multiple of 4096"]);
        fails("--bs 3k", 2, &["neither divides"]);
        fails("127.0.0.1:1", 3, &["is it running?"]);
        let said = succeeds(&mut bench.run(&["bench", "store", "--help"]));
        for word in ["--rw", "--iodepth", "--time-based", "--seed", "randwrite"] {
            assert!(said.contains(word), "{word} is not in {said}");
        }
        // A table, for people.
        let said = succeeds(&mut bench.run(&["bench", "store", "--size", "64k", "--seed", "9"]));
        for word in ["randread: bs=4 KiB, iodepth=1", "seed=9", "IOPS=", "99.99th=["] {
            assert!(said.contains(word), "{word} is not in {said}");
        }
        assert_eq!(chunks(bench), json!([]));
    });
}
