//! `towpath bench kv`: a server and its clients in processes of their own, over each transport.

mod towpath_common;

use serde_json::Value;
use towpath_common::{fails, json, succeeds, towpath};

/// Little, so that it is over soon: what a machine reaches is no test.
const TINY: [&str; 7] = ["--operations", "60", "--rounds", "1", "--seconds", "60", "--json"];

fn report(study: &str, args: &[&str]) -> Value {
    let records: &[&str] = if study == "loss" { &[] } else { &["--records", "20"] };
    json(towpath(["bench", "kv", study]).args(TINY).args(records).args(args))
}

fn rows(study: &str, args: &[&str]) -> Vec<Value> {
    report(study, args)["tables"][study].as_array().expect("a table").clone()
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("no number {field} in {row}"))
}

#[test]
fn each_transport_serves_the_study_awake_and_asleep() {
    let ways = "tcp,rc,uc,ud,towpath-uc,towpath-shared,one-sided,towpath-rc,towpath-tcp";
    let rows = rows("throughput", &["--transports", ways, "--clients", "1,3"]);
    let found: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} {}", row["clients"], row["waiting"], row["transport"]))
        .map(|found| found.replace(" (clients)", ""))
        .collect();
    let mut asked = Vec::new();
    for clients in [1, 3] {
        for waiting in ["poll", "sleep"] {
            let which = |way: &str| format!("{clients} \"{waiting}\" \"{way}\"");
            asked.extend(ways.split(',').map(which));
        }
    }
    assert_eq!(found, asked);
    for row in &rows {
        assert!(number(row, "ops_per_s") > 0.0, "{row}");
        assert_eq!((number(row, "unknown"), number(row, "mixed_up")), (0.0, 0.0), "{row}");
        if row["transport"] == "tcp" {
            assert_eq!(row["of_tcp"], 1.0, "{row}");
        }
        let is_one_sided = row["transport"] == "one-sided";
        assert_eq!(number(row, "read_alone") > 0.5, is_one_sided, "{row}");
    }
}

#[test]
fn clients_that_share_threads_do_each_operation_once() {
    let ways = ["--transports", "tcp,towpath-shared", "--clients", "7", "--client-threads", "2"];
    let counted = report("throughput", &[&ways[..], &["--mix", "count"]].concat());
    let claims = counted["claims"].as_array().expect("claims");
    assert!(claims.iter().any(|claim| claim["name"] == "wrong" && claim["measured"] == 0.0));
    let is_counted = |claim: &Value| claim["name"] == "counted" && claim["met"] == true;
    assert!(claims.iter().any(is_counted), "{claims:?}");
    for mix in ["study", "f"] {
        for row in rows("throughput", &[&ways[..], &["--mix", mix]].concat()) {
            assert!(number(&row, "ops_per_s") > 0.0, "{row}");
            assert_eq!((number(&row, "unknown"), number(&row, "mixed_up")), (0.0, 0.0), "{row}");
        }
    }
    let lossy = ["--transports", "towpath-shared", "--losses", "0,10%"];
    for row in rows("loss", &[&lossy[..], &ways[2..]].concat()) {
        assert_eq!(number(&row, "wrong"), 0.0, "{row}");
        assert_eq!(number(&row, "lost") > 0.0, number(&row, "loss") > 0.0, "{row}");
    }
}

#[test]
fn wherever_clients_count_it_is_told_whether_each_operation_was_done_once() {
    for (study, flag) in [("latency", "--mix"), ("switches", "--mix"), ("workloads", "--mixes")] {
        let told = |mix| {
            let args = ["--transports", "tcp", "--clients", "2", "--waiting", "sleep", flag, mix];
            let report = report(study, &args);
            let claims = report["claims"].as_array().expect("claims").iter();
            claims.map(|claim| (claim["name"].clone(), claim["met"].clone())).collect::<Vec<_>>()
        };
        let both = ["wrong", "counted"].map(|name| (Value::from(name), Value::from(true)));
        assert_eq!(told("count"), both, "{study}");
        assert!(told("a").is_empty(), "{study}");
    }
}

#[test]
fn what_is_not_run_is_told() {
    let args = ["--transports", "tcp,uc", "--clients", "2,501", "--waiting", "sleep"];
    let report = report("throughput", &args);
    let rows = report["tables"]["throughput"].as_array().expect("a table");
    let found: Vec<_> = rows.iter().map(|row| (&row["transport"], &row["clients"])).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("Not run: uc x 501."), "{notes}");
    assert!(notes.contains("Not run: 1000 clients over towpath-shared of 32"), "{notes}");
}

#[test]
fn nothing_is_told_where_no_transport_has_room_for_the_clients() {
    for (study, ways) in [("loss", "uc,towpath-uc"), ("throughput", "rc")] {
        let args = ["--transports", ways, "--clients", "501"];
        let mut command = towpath(["bench", "kv", study]);
        let said = fails(command.args(args), 2, &["--clients", "500", "towpath-shared"]);
        assert_eq!(said, "");
    }
}

#[test]
fn a_thousand_clients_are_compared_with_32_over_shared_links() {
    let args = ["--transports", "towpath-shared", "--clients", "32,1000", "--waiting", "sleep"];
    // The targets may be missed: this machine has other work.
    let said = towpath(["bench", "kv", "throughput"])
        .args(["--operations", "2000", "--rounds", "1", "--seconds", "60", "--json"])
        .args(args)
        .output()
        .expect("it runs");
    let report: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let names: Vec<_> = report["claims"].as_array().expect("claims").iter().collect();
    let found = names.iter().find(|claim| claim["name"] == "thousand_sleep");
    let found = found.expect("a claim");
    let what = "1000 clients over towpath-shared, sleep, 70 threads, of 32 with 32";
    assert_eq!(found["what"], what, "{report}");
    let measured = found["measured"].as_f64();
    assert!(measured.is_some_and(|measured| measured > 0.0), "{report}");
    assert!(!report["notes"].to_string().contains("Not run"), "{report}");
}

#[test]
fn latency_has_percentiles_in_order_and_the_thesis_beside() {
    let rows = rows("latency", &["--transports", "tcp", "--clients", "5", "--waiting", "sleep"]);
    let row = &rows[0];
    let names = ["p25_us", "median_us", "p75_us", "p95_us", "p99_us", "p999_us", "max_us"];
    let found = names.map(|name| number(row, name));
    assert!(found.is_sorted() && found[0] > 0.0, "{row}");
    assert_eq!(number(row, "paper_p99_us"), 155.0, "{row}");
}

#[test]
fn latency_is_drawn_as_curves_and_boxes_of_each_number_of_clients() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let file = dir.path().join("latency.svg");
    let mut command = towpath(["bench", "kv", "latency", "--transports", "tcp,uc"]);
    command.args(&TINY[..6]).args(["--records", "20", "--clients", "1,3", "--waiting", "sleep"]);
    succeeds(command.arg("--svg").arg(&file));
    let svg = std::fs::read_to_string(file).expect("a drawing");
    for clients in ["1 client", "3 clients"] {
        for what in ["distribution", "boxes"] {
            assert!(svg.contains(&format!(">{clients}, asleep: {what}<")), "{svg}");
        }
    }
    // One of each transport, for each number of clients.
    let boxes = svg.matches("fill-opacity=\"0.25\"").count();
    assert_eq!(boxes, 4, "{svg}");
}

#[test]
fn clients_that_sleep_leave_the_processor() {
    let rows = rows("switches", &["--transports", "tcp", "--clients", "2", "--waiting", "sleep"]);
    assert!(number(&rows[0], "client_switches") > 0.2, "{}", rows[0]);
}

#[test]
fn nothing_is_done_twice_or_never_where_packets_are_lost() {
    let rows = rows("loss", &["--losses", "0,10%", "--clients", "3"]);
    assert_eq!(rows.len(), 8);
    for row in &rows {
        assert_eq!(number(row, "wrong"), 0.0, "{row}");
        assert_eq!(number(row, "lost") > 0.0, number(row, "loss") > 0.0, "{row}");
    }
}

#[test]
fn each_workload_of_ycsb_finds_what_it_reads() {
    let rows = rows("workloads", &["--transports", "tcp", "--mixes", "a,b,c,d,f"]);
    let found: Vec<&Value> = rows.iter().map(|row| &row["mix"]).collect();
    assert_eq!(found, ["a", "b", "c", "d", "f"]);
    for row in &rows {
        assert_eq!(number(row, "mixed_up"), 0.0, "{row}");
    }
}

#[test]
fn they_are_listed_and_refuse_what_they_do_not_know() {
    let said = succeeds(&mut towpath(["bench", "kv"]));
    for study in ["throughput", "latency", "switches", "loss", "workloads"] {
        assert!(said.contains(study), "{said}");
    }
    for (study, flag, word) in [
        ("throughput", "--transports", "udp"),
        ("throughput", "--clients", "0"),
        ("throughput", "--mix", "e"),
        ("loss", "--transports", "tcp"),
        ("loss", "--losses", "60%"),
        ("loss", "--waiting", "doze"),
    ] {
        fails(&mut towpath(["bench", "kv", study, flag, word]), 2, &[&flag[2..]]);
    }
    let ways = "rc, uc, ud, towpath-uc, towpath-shared, one-sided or towpath-rc";
    fails(&mut towpath(["bench", "kv", "loss", "--transports", "tcp"]), 2, &[ways]);
}
