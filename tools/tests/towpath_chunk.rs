//! put, get, ls, stat, rm, scrub and info against chunk servers.

mod towpath_common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_common::{Bench, Daemon, fails, json, pattern, succeeds, towpath};
use towpath_fastpath::{Client, ClientConfig};

const NAME: &str = "000102030405060708090a0b0c0d0e0f";
const OTHER: &str = "ffffffffffffffffffffffffffffffff";

/// A server for which nothing is slow, however busy the machine.
fn patient_daemon(dir: PathBuf) -> Daemon {
    Daemon::with(DaemonConfig::default().with(|config| {
        config.store.data_dir = dir;
        config.service.slow_after_ms = 60_000;
    }))
}

#[test]
fn the_health_of_a_servers_links_is_shown_for_people_and_for_programs() {
    let mut bench = Bench::new();
    let daemon = patient_daemon(bench.store());
    bench.server = daemon.addr.to_string();
    bench.file("in", &pattern(3_000_000, 1));
    succeeds(&mut bench.run(&["put", "in", "--chunk", NAME]));
    let report = json(&mut bench.run(&["health", "--json"]));
    for field in ["slow", "given_up"] {
        assert_eq!(report[field], 0, "{report}");
    }
    assert_eq!(report["slow_after_ms"], 60_000, "{report}");
    // The answer may be here before the first acknowledgement that tells a round trip.
    let rtt_us = report.get("rtt_us").expect("a field");
    assert!(rtt_us.is_null() || rtt_us.as_f64() > Some(0.0), "{report}");
    let links = report["links"].as_array().expect("a list");
    // Who asks is one of them; the one before may not be forgotten yet.
    assert!((1..=2).contains(&links.len()), "{report}");
    assert_eq!(links.len() as u64, report["link_count"].as_u64().expect("a count"), "{report}");
    for link in links {
        assert!(link["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")));
        assert!(link["chunks_sent"].is_u64() && link["state"].is_string(), "{link}");
    }
    let report = json(&mut bench.run(&["health", "--class", "gold", "--json"]));
    let links = report["links"].as_array().expect("a list");
    let asking = links.iter().find(|link| link["class"] == "gold").expect("who asks");
    assert_eq!(asking["dscp_changed"], 0, "{report}");
    fails(&mut bench.run(&["health", "--class", "lead"]), 2, &["gold, silver and copper"]);
    let text = succeeds(&mut bench.run(&["health"]));
    assert!(text.starts_with("0 requests without an answer after 60,000 ms"), "{text}");
    let line = |number| text.lines().nth(number).unwrap_or_default();
    assert!(line(1).starts_with("the link to the server is open: "), "{text}");
    assert!(line(2).starts_with("peer"), "{text}");
    daemon.stop();
}

#[test]
fn a_resident_chunk_is_fetched_by_reads_and_shown_as_such() {
    let mut bench = Bench::new();
    let daemon = Daemon::with(DaemonConfig::default().with(|config| {
        config.store.data_dir = bench.store();
        config.store.resident_bytes = 1 << 20;
    }));
    bench.server = daemon.addr.to_string();
    let bytes = pattern(1_000_000, 5);
    bench.file("in", &bytes);
    succeeds(&mut bench.run(&["put", "in", "--chunk", NAME, "--resident"]));
    let report = json(&mut bench.run(&["get", NAME, "out", "--json"]));
    assert!(bench.read("out") == bytes);
    let resident = &report["resident"];
    assert_eq!((&resident["by_read"], &resident["reads"]), (&8.into(), &8.into()), "{report}");
    for field in ["fallen_back", "torn", "moved", "changed"] {
        assert_eq!(resident[field], 0, "{report}");
    }
    assert_eq!(resident["locates"], 1, "{report}");
    let stat = json(&mut bench.run(&["stat", NAME, "--json"]));
    assert_eq!((&stat["resident"], &stat["chain_version"]), (&true.into(), &0.into()));
    assert!(succeeds(&mut bench.run(&["stat", NAME])).contains("on the disk and in memory"));
    assert!(succeeds(&mut bench.run(&["ls"])).contains("  resident\n"));
    assert_eq!(json(&mut bench.run(&["ls", "--json"]))["chunks"][0]["resident"], true);
    let info = json(&mut bench.run(&["info", "--json"]));
    let slices = 1_000_000_u64.div_ceil(4096);
    assert_eq!(info["resident_bytes"], slices * 4096, "{info}");
    assert_eq!(info["resident_bytes_max"], 1 << 20, "{info}");
    assert!(succeeds(&mut bench.run(&["info"])).contains(" of 1 MiB\n"), "for people");
    // What does not fit is refused, and nothing of it is left.
    let words = ["memory for resident chunks has", "bytes left"];
    fails(&mut bench.run(&["put", "in", "--chunk", OTHER, "--resident"]), 5, &words);
    fails(&mut bench.run(&["stat", OTHER]), 4, &[]);
    succeeds(&mut bench.run(&["put", "in", "--chunk", OTHER]));
    let report = json(&mut bench.run(&["get", OTHER, "other", "--json"]));
    assert!(report.get("resident").is_none(), "{report}");
    daemon.stop();
}

#[test]
fn the_paths_of_a_running_server_are_shown_while_a_client_uses_them() {
    let mut bench = Bench::new();
    let daemon = patient_daemon(bench.store());
    bench.server = daemon.addr.to_string();
    let report = json(&mut bench.run(&["paths", "store", "--json"]));
    let of = |report: &Value, field: &str| report[field].clone();
    assert_eq!(
        (of(&report, "program"), of(&report, "link_count")),
        ("towpath-chunkserver".into(), 0.into())
    );
    bench.file("in", &pattern(300_000, 1));
    succeeds(&mut bench.run(&["put", "in", "--chunk", NAME]));
    // A client that goes on for as long as it is looked at: who stands still acknowledges nothing.
    let client = Client::connect(daemon.addr, ClientConfig::new()).expect("a link");
    client.list_page(None).wait().expect("an answer");
    let looked = Arc::new(AtomicBool::new(false));
    let client = std::thread::spawn({
        let looked = Arc::clone(&looked);
        move || {
            while !looked.load(Ordering::Relaxed) {
                client.list_page(None).wait().expect("an answer");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    let report = json(&mut bench.run(&["paths", "store/status.sock", "--json"]));
    let links = report["links"].as_array().expect("a list");
    let link = links.last().expect("the client's");
    assert!(link["health"].is_string() && link["slow"] == 0, "{report}");
    let mut sent = 0;
    for path in link["paths"].as_array().expect("a list") {
        assert_eq!(path["state"], "good", "{report}");
        assert!(path["qp_num"].is_u64(), "{report}");
        sent += path["sent"].as_u64().expect("a count");
    }
    // Of few answers a path may have carried none.
    assert!(sent > 0, "{report}");
    let text = succeeds(&mut bench.run(&["paths", "store"]));
    assert!(text.starts_with("towpath-chunkserver, process "), "{text}");
    assert!(text.contains(" to 127.0.0.1:") && text.contains("good"), "{text}");
    looked.store(true, Ordering::Relaxed);
    client.join().expect("it had its answers");
    daemon.stop();
    fails(&mut bench.run(&["paths", "store"]), 3, &["no process answers"]);
    fails(&mut bench.run(&["paths"]), 2, &["SOCKET"]);
}

#[test]
fn what_the_workers_and_links_of_a_running_server_use_is_shown_beside_its_limits() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    let number = |of: &Value, field: &str| of[field].as_u64().expect("a number");
    let report = json(&mut bench.run(&["links", "store", "--json"]));
    let workers = report["per_worker"].as_array().expect("a list");
    assert_eq!(workers.len() as u64, number(&report, "workers"), "{report}");
    for (worker, index) in workers.iter().zip(0..) {
        assert_eq!((number(worker, "worker"), number(worker, "links")), (index, 0), "{report}");
        assert_eq!((number(worker, "qps"), number(worker, "receives_posted")), (0, 0), "{report}");
        assert!(number(worker, "cpu_ns") > 0 && number(worker, "qps_max") > 0, "{report}");
    }
    let idle_ns = number(&report, "cpu_ns");

    let client = Client::connect(daemon.addr, ClientConfig::new()).expect("a link");
    client.list_page(None).wait().expect("an answer");
    let report = json(&mut bench.run(&["links", "store/status.sock", "--json"]));
    let link = &report["links"][0];
    assert_eq!(number(link, "qps"), 6, "four paths, their acks, and RC: {report}");
    assert!((1..number(link, "channels_max")).contains(&number(link, "channels")), "{report}");
    for (used, most) in [("credit_given", "credit_given_max"), ("sends", "sends_max")] {
        assert!(number(link, used) <= number(link, most), "{used}: {report}");
    }
    assert!(number(link, "credit_given") > 0 && number(link, "credit_left") > 0, "{report}");
    assert!(number(link, "window_bytes") > 0, "{report}");
    assert_eq!((number(link, "messages_queued"), number(link, "queued_bytes")), (0, 0), "{report}");
    let worker = &report["per_worker"][number(link, "worker") as usize];
    assert_eq!((number(worker, "links"), number(worker, "qps")), (1, 6), "{report}");
    assert!((1..=number(worker, "receives_wanted")).contains(&number(worker, "receives_posted")));
    assert!(number(&report, "cpu_ns") > idle_ns.max(number(worker, "cpu_ns")), "{report}");

    let text = succeeds(&mut bench.run(&["links", "store"]));
    assert!(text.starts_with("towpath-chunkserver, process "), "{text}");
    assert!(text.contains("1 of ") && text.contains(" 127.0.0.1:"), "{text}");
    drop(client);
    daemon.stop();
    fails(&mut bench.run(&["links", "store"]), 3, &["no process answers"]);
    fails(&mut bench.run(&["links"]), 2, &["SOCKET"]);
}

#[test]
fn reads_are_hedged_at_a_second_server_that_holds_the_same() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    let replica = Daemon::start(&bench.path("replica"));
    let addr = replica.addr.to_string();
    let bytes = pattern(1_000_003, 1);
    bench.file("in", &bytes);
    bench.server = addr.clone();
    succeeds(&mut bench.run(&["put", "in", "--chunk", NAME]));
    bench.server = daemon.addr.to_string();
    let get = ["get", NAME, "out", "--op-size", "4K", "--force", "--hedge", &addr];
    fails(&mut bench.run(&get), 4, &["no chunk"]);
    succeeds(&mut bench.run(&["put", "in", "--chunk", NAME]));
    // Late at once: as many go to both as the budget allows.
    let eager = [&get[..], &["--hedge-after", "0", "--hedge-budget", "50", "--json"]].concat();
    let report = json(&mut bench.run(&eager));
    assert!(bench.read("out") == bytes, "the bytes came back changed");
    let hedge = |field: &str| report["hedge"][field].as_u64().expect("a count");
    assert_eq!(hedge("reads"), 245);
    assert!((1..=123).contains(&hedge("hedges")), "{report}");
    assert!(hedge("hedges_won") <= hedge("hedges") && hedge("failovers") == 0, "{report}");
    let told = succeeds(&mut bench.run(&[&get[..], &["--hedge-after", "p99"]].concat()));
    assert!(told.starts_with("245 reads, "), "{told}");
    fails(&mut bench.run(&[&get[..], &["--hedge-after", "soon"]].concat()), 2, &["p95"]);
    fails(&mut bench.run(&["get", NAME, "out", "--hedge-after", "5"]), 2, &["--hedge"]);
    bench.file("in", b"something else");
    succeeds(&mut bench.run(&["put", "in", "--chunk", OTHER]));
    bench.server = addr.clone();
    succeeds(&mut bench.run(&["put", "in", "--chunk", OTHER]));
    succeeds(&mut bench.run(&["rm", NAME]));
    succeeds(&mut bench.run(&["put", "in", "--chunk", NAME]));
    bench.server = daemon.addr.to_string();
    fails(&mut bench.run(&get), 1, &[&addr, "14 bytes", "1000003"]);
    replica.stop();
    fails(&mut bench.run(&get), 3, &[&addr]);
    daemon.stop();
}

#[test]
fn a_file_goes_there_and_back_and_away() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    for len in [0usize, 1, 4096, 1_000_003] {
        let bytes = pattern(len, 1);
        bench.file("in", &bytes);
        let chunk = succeeds(&mut bench.run(&["put", "in"]));
        let chunk = chunk.trim();
        assert_eq!(chunk.len(), 32, "{chunk}");
        let stat = json(&mut bench.run(&["stat", chunk, "--json"]));
        assert_eq!((&stat["chunk"], &stat["bytes"]), (&chunk.into(), &len.into()));
        let out = format!("out-{len}");
        succeeds(&mut bench.run(&["get", chunk, &out, "--op-size", "8K"]));
        assert!(bench.read(&out) == bytes, "{len} bytes came back changed");
        let stdout = bench.run(&["get", chunk, "-"]).output().expect("it starts");
        assert!(stdout.status.success() && stdout.stdout == bytes, "{len} bytes on stdout");
        succeeds(&mut bench.run(&["rm", chunk]));
        fails(&mut bench.run(&["stat", chunk]), 4, &[chunk, "no chunk"]);
        fails(&mut bench.run(&["rm", chunk]), 4, &[chunk]);
    }
    assert_eq!(succeeds(&mut bench.run(&["ls"])).lines().count(), 1, "only the heading is left");
    daemon.stop();
}

#[test]
fn loss_on_the_way_changes_nothing() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    let bytes = pattern(3 << 20, 2);
    bench.file("in", &bytes);
    let lossy = ["--loss", "0.05", "--seed", "9", "--json"];
    let put = json(bench.run(&["put", "in", "--chunk", NAME]).args(lossy));
    assert_eq!((&put["chunk"], &put["bytes"]), (&NAME.into(), &(3 << 20).into()));
    assert!(put["chunks_retransmitted"].as_u64() > Some(0), "{put}");
    let get = json(bench.run(&["get", NAME, "out"]).args(lossy));
    assert!(get["gbps"].as_f64() > Some(0.0) && get["seconds"].as_f64() > Some(0.0), "{get}");
    assert!(bench.read("out") == bytes);
    daemon.stop();
}

#[test]
fn the_breakdown_says_where_the_time_goes_and_leaves_nothing_behind() {
    let mut bench = Bench::new();
    let daemon = patient_daemon(bench.store());
    bench.server = daemon.addr.to_string();
    bench.file("in", &pattern(100_000, 1));
    succeeds(&mut bench.run(&["put", "in", "--chunk", NAME]));
    let args = ["health", "--breakdown", "--seconds", "1", "--block", "8K", "--json"];
    let report = json(&mut bench.run(&args));
    let number = |value: &Value, field: &str| {
        value[field].as_f64().unwrap_or_else(|| panic!("{field} of {value}"))
    };
    let (probe, near) = (&report["probe"], |a: f64, b: f64| (a - b).abs() < 0.01 * b.max(1.0));
    assert_eq!((&probe["block_bytes"], &probe["seconds"]), (&8192.into(), &1.into()));
    for kind in ["read", "write"] {
        let found = &probe["kinds"][kind];
        // Nobody else asks, so each request is one of the server's.
        assert!(number(found, "count") >= 1.0, "{found}");
        assert_eq!(found["count"], found["server"]["count"], "{found}");
        let (whole, client) = (&found["whole"], &found["client"]);
        assert!(
            near(
                number(client, "mean_us") + number(&found["waiting"], "mean_us"),
                number(whole, "mean_us")
            ),
            "{found}"
        );
        assert!(number(found, "network_mean_us") > 0.0, "the server has not all of it: {found}");
        let parts = found["server"]["parts"].as_object().expect("an object");
        let sum: f64 = parts.values().map(|part| number(part, "mean_us")).sum();
        assert!(near(sum, number(&found["server"], "mean_us")), "{found}");
        for spread in parts.values().chain([whole, client]) {
            let of = ["p50_us", "p90_us", "p99_us", "p99_9_us"].map(|name| number(spread, name));
            assert!(of.is_sorted(), "{spread}");
        }
        let flush = number(&parts["flush"], "mean_us");
        assert_eq!(flush > 0.0, kind == "write", "{found}");
        let all = &report["server"];
        assert!(all.get(kind).is_none_or(|all| number(all, "count") >= 1.0), "{all}");
    }
    let text = succeeds(&mut bench.run(&["health", "--breakdown", "--seconds", "0"]));
    assert!(text.starts_with("All requests at the server since it started"), "{text}");
    assert!(text.contains("write, ") && text.contains("server: queue"), "{text}");
    let listed = json(&mut bench.run(&["ls", "--json"]));
    assert_eq!(listed["chunks"].as_array().map(Vec::len), Some(1), "{listed}");
    fails(&mut bench.run(&["health", "--seconds", "0"]), 2, &["--breakdown"]);
    daemon.stop();
}

#[test]
fn listings_and_health_are_shown_for_people_and_for_programs() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    assert_eq!(json(&mut bench.run(&["ls", "--json"])), serde_json::json!({"chunks": []}));
    bench.file("in", &pattern(10_000, 3));
    for name in [OTHER, NAME] {
        // The server on the command line goes over the variable.
        let mut put = bench.run(&["put", "in", "--chunk", name, &bench.server]);
        succeeds(put.env("TOWPATH_SERVER", "192.0.2.1:1"));
    }
    let listed = json(&mut bench.run(&["ls", "--json"]));
    let names: Vec<&str> = listed["chunks"]
        .as_array()
        .map(|chunks| chunks.iter().filter_map(|chunk| chunk["chunk"].as_str()).collect())
        .unwrap_or_default();
    assert_eq!(names, [NAME, OTHER], "in the order of their names");
    let text = succeeds(&mut bench.run(&["ls"]));
    assert!(text.contains(NAME) && text.contains("10000"), "{text}");
    assert!(succeeds(&mut bench.run(&["stat", NAME])).contains("9.8 KiB"));

    let info = json(&mut bench.run(&["info", "--json"]));
    assert_eq!((&info["chunks"], &info["read_only"]), (&2.into(), &Value::Bool(false)));
    assert_eq!(info["write_bytes"], 20_000);
    assert!(info["uptime_ms"].as_u64() > Some(0), "{info}");
    assert!(succeeds(&mut bench.run(&["info"])).contains("serving"));
    for _ in 0..2 {
        let scrub = json(&mut bench.run(&["scrub", "--json"]));
        assert_eq!((&scrub["slices"], &scrub["damaged"]), (&6.into(), &0.into()), "{scrub}");
    }
    assert!(succeeds(&mut bench.run(&["scrub"])).starts_with("6 slices checked"));
    let removed = json(&mut bench.run(&["rm", NAME, "--json"]));
    assert_eq!(removed["removed"], NAME);
    daemon.stop();
}

#[test]
fn nothing_is_overwritten_unasked() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    bench.file("in", b"new");
    succeeds(&mut bench.run(&["put", "in", "--chunk", NAME]));
    bench.file("in", b"newer");
    fails(&mut bench.run(&["put", "in", "--chunk", NAME]), 4, &[NAME, "exists"]);
    bench.file("out", b"old");
    fails(&mut bench.run(&["get", NAME, "out"]), 7, &["out exists", "--force"]);
    assert_eq!(bench.read("out"), b"old");
    succeeds(&mut bench.run(&["get", NAME, "out", "--force"]));
    assert_eq!(bench.read("out"), b"new", "and the chunk is what it was");
    fails(&mut bench.run(&["get", OTHER, "none"]), 4, &[OTHER]);
    assert!(!bench.path("none").exists());
    fails(&mut bench.run(&["put", "missing"]), 7, &["missing"]);
    fails(&mut bench.run(&["get", NAME, "no/such/dir/out"]), 7, &["no/such/dir/out"]);
    daemon.stop();
}

#[test]
fn a_damaged_slice_is_named_and_never_served() {
    let mut bench = Bench::new();
    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    let bytes = pattern(64 << 10, 4);
    bench.file("in", &bytes);
    succeeds(&mut bench.run(&["put", "in", "--chunk", NAME]));
    daemon.stop();
    damage(&bench.store(), &bytes[5 * 4096..6 * 4096]);

    let daemon = Daemon::start(&bench.store());
    bench.server = daemon.addr.to_string();
    fails(&mut bench.run(&["get", NAME, "out"]), 1, &[NAME, "slice 5", "damaged"]);
    assert!(!bench.path("out").exists(), "half a chunk is no chunk");
    let said =
        fails(&mut bench.run(&["scrub", "--json"]), 1, &["1 slice is damaged", "towpath rm"]);
    let scrub: Value = serde_json::from_str(&said).expect("a JSON object");
    assert_eq!((&scrub["slices"], &scrub["damaged"]), (&16.into(), &1.into()));
    let found = &scrub["damaged_slices"][0];
    assert_eq!((&found["chunk"], &found["slice"]), (&NAME.into(), &5.into()));
    daemon.stop();
}

/// Flips a bit in the middle of `bytes`, wherever in the store's files they are.
fn damage(store: &Path, bytes: &[u8]) {
    for entry in fs::read_dir(store).expect("readable").flatten() {
        let mut content = fs::read(entry.path()).expect("readable");
        let place = content.chunks(4096).position(|page| page == bytes);
        if let Some(page) = place {
            content[page * 4096 + 2000] ^= 4;
            fs::write(entry.path(), content).expect("writable");
            return;
        }
    }
    panic!("the slice is in no file");
}

#[test]
fn a_full_store_says_so_and_keeps_no_half_of_a_file() {
    let mut bench = Bench::new();
    let config = DaemonConfig::default().with(|config| {
        config.store.data_dir = bench.store();
        config.store.capacity_bytes = 8 << 20;
    });
    let daemon = Daemon::with(config);
    bench.server = daemon.addr.to_string();
    bench.file("big", &pattern(16 << 20, 5));
    fails(&mut bench.run(&["put", "big"]), 5, &["no space left", "delete chunks"]);
    assert_eq!(json(&mut bench.run(&["ls", "--json"])), serde_json::json!({"chunks": []}));
    bench.file("small", &pattern(1 << 20, 6));
    succeeds(&mut bench.run(&["put", "small"]));
    daemon.stop();
}

#[test]
fn who_is_not_there_or_speaks_otherwise_is_told_apart() {
    let bench = Bench::new();
    bench.file("in", b"bytes");
    // An address of 127/8 that no other test uses: nobody else is given the port meanwhile.
    let nobody = TcpListener::bind("127.47.96.1:0").expect("a port").local_addr().expect("bound");
    let nobody = nobody.to_string();
    let words = [&*nobody, "towpath-chunkserver --listen", "refused"];
    fails(&mut bench.run(&["put", "in", &nobody]), 3, &words);
    fails(&mut bench.run(&["ls", "no such host"]), 3, &["HOST:PORT"]);

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stranger = listener.local_addr().expect("bound").to_string();
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(&[b'x'; 4096]).expect("it listens");
        // Closing with unread bytes would reset the connection before the answer is read.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let _ = stream.read_to_end(&mut Vec::new());
    });
    fails(
        &mut bench.run(&["info", &stranger]),
        3,
        &[&stranger, "did not answer as a Towpath endpoint"],
    );
    answers.join().expect("the stranger");
}

#[test]
fn only_the_userspace_nic_loses_packets_on_purpose() {
    let bench = Bench::new();
    bench.file("in", b"bytes");
    let words = ["put", "in", "-d", "mlx5_0", "--loss", "0.1"];
    fails(&mut bench.run(&words), 2, &["mlx5_0", "--loss"]);
    fails(&mut towpath(["demo", "-d", "mlx5_0", "--loss", "0.1"]), 2, &["mlx5_0", "--loss"]);
}

#[cfg(not(feature = "verbs"))]
#[test]
fn a_build_without_the_feature_says_how_to_get_other_devices() {
    let bench = Bench::new();
    bench.file("in", b"bytes");
    fails(&mut bench.run(&["put", "in", "-d", "mlx5_0"]), 8, &["--features verbs"]);
}
