//! `towpath bench links`: the list, and each measurement, as short as they can be.

mod towpath_common;

use serde_json::Value;
use towpath_common::{json, succeeds, towpath};

/// With points that no target is set for: what a machine reaches is no test.
const SHORT: [&[&str]; 8] = [
    &["connections", "--connections", "1,6", "--threads", "2"],
    &["threads", "--threads", "1,2"],
    &["foreground", "--background", "64K,1M"],
    &["latency", "--sizes", "64K", "--messages", "10"],
    &["idle", "--channels", "0,3", "--seconds", "1", "--pauses", "2"],
    &["isolation", "--channels", "3"],
    &["shares"],
    &["workers", "--workers", "1,3", "--links", "3"],
];

fn measure(args: &[&str], span_ms: &str) -> Value {
    let mut command = towpath(["bench", "links"]);
    command.args(args).args(["--quick", "--json"]);
    let takes_rounds = !["latency", "idle"].contains(&args[0]);
    if takes_rounds {
        command.args(["--rounds", "2", "--span-ms", span_ms]);
    }
    json(&mut command)
}

/// The first name of something measured that is not above zero.
fn nothing_measured(row: &Value) -> Option<&String> {
    let is_measured = |name: &str| {
        let ends = ["gbps", "median_us", "mean_us"];
        ends.iter().any(|end| name.ends_with(end)) && !name.contains("spread")
    };
    let mut cells = row.as_object().expect("a row").iter();
    cells.find_map(|(name, value)| {
        let nothing = is_measured(name) && value.as_f64().expect("a number") <= 0.0;
        nothing.then_some(name)
    })
}

#[test]
fn they_are_listed_and_explained() {
    let said = succeeds(&mut towpath(["bench", "links"]));
    for args in SHORT {
        assert!(said.contains(args[0]), "{} is not in {said}", args[0]);
        let help = succeeds(&mut towpath(["bench", "links", args[0], "--help"]));
        assert!(help.contains("Avatar") && help.contains("--svg"), "{help}");
        assert!(!help.contains("--seed"), "nothing here replays: {help}");
    }
}

#[test]
fn each_measures_something_at_every_point() {
    for args in SHORT {
        let rows = |report: &Value| report["tables"][args[0]].as_array().expect("a table").clone();
        let all = |report: &Value| rows(report).iter().all(|row| nothing_measured(row).is_none());
        // A busy machine may leave nothing of a tenth of a second, but not of longer ones.
        let mut report = Value::Null;
        for span_ms in ["100", "1000", "4000"] {
            report = measure(args, span_ms);
            if all(&report) {
                break;
            }
        }
        assert!(all(&report), "{report}");
        assert_eq!(report["study"], args[0]);
        assert_eq!(report.get("trace_hash"), None, "nothing here replays");
        assert_eq!((&report["clock"], &report["seed"]), (&"machine".into(), &Value::Null));
        let points = match args[0] {
            // Each case, and each channel of each.
            "isolation" => 4,
            "shares" => 11,
            _ => args[2].split(',').count(),
        };
        assert_eq!(rows(&report).len(), points, "{report}");
    }
}

/// Who drives makes another measurement, and no other report.
#[test]
fn one_thread_or_a_thread_each_may_drive_and_the_report_says_who_did() {
    let tiny: [&[&str]; 2] = [&["foreground", "--background", "64K"], &["isolation"]];
    for args in tiny {
        for drive in ["turns", "threads"] {
            let few: &[&str] = if args[0] == "isolation" { &["--channels", "3"] } else { &[] };
            let args: Vec<&str> =
                args.iter().chain(few).copied().chain(["--drive", drive]).collect();
            let report = measure(&args, "50");
            let rows = report["tables"][args[0]].as_array().expect("a table");
            assert!(rows.iter().all(|row| row["drive"] == drive), "{report}");
            assert_eq!(report["parameters"]["drive"], drive);
        }
    }
}

#[test]
fn many_channels_ride_on_few_queue_pairs() {
    let report = measure(SHORT[0], "100");
    let rows = report["tables"]["connections"].as_array().expect("a table");
    assert_eq!(rows[0]["qps"], rows[1]["qps"], "{report}");
    assert_eq!(rows[1]["qps"], 6, "of four paths, one for acks, and RC: {report}");
}

#[test]
fn classes_are_asked_for_here_and_are_a_study_in_virtual_time() {
    let tiny = ["--quick", "--loads", "20%", "--hosts", "2", "--span-ms", "1", "--seed", "3"];
    let report = json(towpath(["bench", "links", "classes", "--json"]).args(tiny));
    assert_eq!(report, json(towpath(["sim", "classes", "--json"]).args(tiny)));
    assert_eq!((&report["seed"], report["trace_hash"].is_string()), (&3.into(), true));
    let said = succeeds(towpath(["bench", "links", "classes"]).args(tiny));
    assert_eq!(report["clock"], "virtual");
    assert!(said.contains("replay: towpath bench links classes --seed 3 "), "{said}");
}

#[test]
fn a_drawing_is_made_where_there_is_something_to_draw() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("threads.svg");
    let mut command = towpath(["bench", "links", "threads", "--quick", "--threads", "1,2"]);
    command.args(["--rounds", "1", "--span-ms", "20", "--svg"]).arg(&file);
    let said = succeeds(&mut command);
    assert!(said.contains("again: towpath bench links threads"), "{said}");
    let drawing = std::fs::read_to_string(&file).expect("the drawing");
    assert!(drawing.starts_with("<svg") && drawing.contains("mutex"));
}
