//! `towpath sim`: the list, the studies, their JSON and their drawings.

mod towpath_common;

use serde_json::Value;
use towpath_common::{fails, json, succeeds, towpath};

/// A run of a second or less.
const TINY: [&str; 8] = ["sim", "loss", "--sizes", "64K", "--loss", "0,1/4096", "--bytes", "4M"];

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn without_a_study_they_are_listed() {
    let said = succeeds(&mut towpath(["sim"]));
    let listed = json(&mut towpath(["sim", "--json"]));
    let studies = listed["studies"].as_array().expect("a list");
    for study in studies {
        assert_eq!(keys(study), ["clock", "mirrors", "name", "parameters", "what"]);
        for field in ["name", "what", "mirrors"] {
            let words = study[field].as_str().expect("words");
            assert!(said.contains(words), "{words:?} is not in {said}");
        }
        for parameter in study["parameters"].as_array().expect("a list") {
            let wanted = ["default", "full", "many", "name", "quick", "unit", "what"];
            assert_eq!(keys(parameter), wanted);
        }
    }
    let has = |name| studies.iter().any(|study| study["name"] == name);
    assert!(has("loss") && has("chunk-size") && has("late-packet"), "{said}");
}

#[test]
fn help_names_parameters_with_units_and_defaults() {
    let said = succeeds(&mut towpath(["sim", "loss", "--help"]));
    for words in ["--rtt-us <N>", "(us)", "[default: 10]", "1/16384", "Mirrors: PNet", "--svg"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let listed = json(&mut towpath(["sim", "--json"]));
    for study in listed["studies"].as_array().expect("a list") {
        let name = study["name"].as_str().expect("a name");
        let said = succeeds(towpath(["sim"]).args(name.split(' ')).arg("--help"));
        for parameter in study["parameters"].as_array().expect("a list") {
            let flag = format!("--{}", parameter["name"].as_str().expect("a name"));
            assert!(said.contains(&flag), "{flag} is not in {said}");
        }
    }
}

/// Field names are what scripts hold on to: they may be added to, and nothing else.
#[test]
fn the_json_of_a_study_keeps_its_fields() {
    let report = json(towpath(TINY).args(["--json", "--seed", "5"]));
    let wanted = [
        "all_met",
        "claims",
        "clock",
        "notes",
        "parameters",
        "runs",
        "seed",
        "study",
        "tables",
        "trace_hash",
        "units",
    ];
    assert_eq!(keys(&report), wanted);
    assert_eq!(report["study"], "loss");
    assert_eq!((&report["clock"], &report["seed"]), (&"virtual".into(), &5.into()));
    assert_eq!(report["all_met"], true);
    assert_eq!(report["parameters"]["sizes"], "64K");
    assert_eq!(keys(&report["tables"]), ["goodput", "published"]);
    let rows = report["tables"]["goodput"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    let wanted = [
        "bound_gbps",
        "chunk_bytes",
        "loss",
        "message_bytes",
        "rc_gbps",
        "retransmitted",
        "spurious",
        "timeouts",
        "towpath_gbps",
        "towpath_of_bound",
    ];
    assert_eq!(keys(&rows[0]), wanted);
    assert!(rows[1]["towpath_gbps"].as_f64().is_some_and(|gbps| gbps > 90.0), "{report}");
    let wanted = ["at_least", "at_most", "measured", "met", "missed_by", "name", "unit", "what"];
    assert_eq!(keys(&report["claims"][0]), wanted);
    assert_eq!(report["claims"][0]["name"], "towpath_of_bound_1in4096");
    assert_eq!(keys(&report["runs"][0]), ["run", "trace_hash"]);
    assert_eq!(report["trace_hash"].as_str().map(str::len), Some(16));
}

#[test]
fn the_same_seed_gives_the_same_with_any_number_of_threads() {
    let run = |seed: &str, threads: &str| {
        json(towpath(TINY).args(["--json", "--seed", seed, "--threads", threads]))
    };
    let report = run("3", "1");
    assert_eq!(report, run("3", "2"));
    assert_ne!(report["trace_hash"], run("4", "2")["trace_hash"]);
}

#[test]
fn people_get_a_table_the_targets_and_how_to_replay() {
    let said = succeeds(towpath(TINY).args(["--seed", "9"]));
    for words in ["Goodput against loss", "64 KiB", "1/4096", "  met  ", "measured", "trace "] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let replay = said.lines().last().and_then(|line| line.strip_prefix("replay: towpath "));
    let args: Vec<&str> = replay.expect("the last line says how").split(' ').collect();
    assert_eq!(said, succeeds(&mut towpath(args)), "it is the whole truth");
}

#[test]
fn a_missed_target_is_an_exit_code_of_its_own_and_the_figures_are_there() {
    let starved = ["--controller", "fixed:64KiB", "--json"];
    let said = fails(towpath(TINY).args(starved), 9, &["1 of 1 targets missed"]);
    let report: Value = serde_json::from_str(&said).expect("JSON all the same");
    assert_eq!(report["all_met"], false);
    assert!(report["claims"][0]["missed_by"].as_f64().is_some_and(|by| by > 0.0), "{report}");
}

#[test]
fn a_drawing_replaces_what_was_there_and_names_its_seed() {
    let dir = tempfile::tempdir().expect("room");
    let file = dir.path().join("loss.svg");
    std::fs::write(&file, "old").expect("written");
    succeeds(towpath(TINY).args(["--seed", "11", "--svg"]).arg(&file));
    let svg = std::fs::read_to_string(&file).expect("it is there");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    for words in ["seed 11", "Towpath over UC", "RC, Go-Back-N", "goodput (% of line rate)"] {
        assert!(svg.contains(words), "{words:?} is not in it");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1, "nothing else is left");
}

#[test]
fn what_cannot_work_is_said_before_anything_is_done() {
    fails(&mut towpath(["sim", "colours"]), 2, &["colours"]);
    fails(&mut towpath(["sim", "loss", "--loss", "7"]), 2, &["--loss", "from 0 to"]);
    fails(&mut towpath(["sim", "loss", "--sizes", "big"]), 2, &["K, M or G"]);
    fails(&mut towpath(["sim", "loss", "--mtu", "1500"]), 2, &["256, 512, 1024, 2048 or 4096"]);
    fails(&mut towpath(["sim", "loss", "--controller", "x"]), 2, &["fixed:1MiB"]);
    fails(&mut towpath(["sim", "loss", "--quick", "--full"]), 2, &["cannot be used with"]);
    let nowhere = ["sim", "loss", "--svg", "/no/such/dir/a.svg"];
    fails(&mut towpath(nowhere), 7, &["/no/such/dir/a.svg"]);
}
