//! Whole runs of the tools whose operations ride on the lane of a link.

use super::run_ends;
use crate::perftest::error::RunError;
use crate::perftest::tool::Tool;
use serde_json::Value;
use towpath_transport::OpOutcome;

/// The results of a run on a lane. A queue pair whose peer has no processor for long is lost, and
/// an atomic with it: another run, then.
fn lane_results(tool: Tool, flags: &[&str]) -> Vec<Value> {
    let flags = [flags, &["--json", "--data_validation"]].concat();
    for _ in 0..10 {
        match run_ends(tool, &flags, &flags) {
            (Ok(text), Ok(_)) => {
                let object: Value = serde_json::from_str(&text).expect("one JSON object");
                assert_eq!(object["test_info"]["raw"], false);
                return object["results"].as_array().expect("a list").clone();
            }
            (Err(RunError::Operation(OpOutcome::Unknown)), _) => {}
            (_, Err(RunError::Operation(OpOutcome::Unknown))) => {}
            ends => panic!("{tool:?} {flags:?}: {ends:?}"),
        }
    }
    panic!("{tool:?} {flags:?}: the queue pair is lost each time");
}

#[test]
fn one_sided_operations_ride_on_the_lane_of_a_link_unless_they_are_raw() {
    for (tool, more) in [
        (Tool::ReadBw, &["-s", "20000", "-t", "16"][..]),
        (Tool::ReadBw, &["-s", "1"]),
        (Tool::ReadBw, &["-s", "4096", "-t", "64", "--cold", "-c", "RC"]),
        (Tool::ReadBw, &["-s", "5000", "--loss", "0.01", "--perform_warm_up"]),
        (Tool::AtomicBw, &["-t", "16", "--perform_warm_up"]),
        (Tool::AtomicBw, &["-A", "CMP_AND_SWAP"]),
        (Tool::ReadLat, &["-s", "5000"]),
        (Tool::AtomicLat, &["-A", "cmp_and_swap"]),
    ] {
        let rows = lane_results(tool, &[&["-n", "300"], more].concat());
        assert_eq!(rows.len(), 1, "{tool:?} {more:?}");
        assert_eq!(rows[0]["n_iterations"], 300, "{tool:?} {more:?}");
        let serving = rows[0]["serving_cpu_ms"].as_f64();
        assert!(serving.is_some(), "the other end tells what it spent: {}", rows[0]);
    }
}

#[test]
fn both_ends_of_a_lane_read_at_once_and_all_sizes_make_a_row_each() {
    for (tool, more) in [(Tool::ReadBw, &["-s", "9000"][..]), (Tool::AtomicBw, &[])] {
        let rows = lane_results(tool, &[&["-n", "300", "-b"], more].concat());
        assert_eq!(rows[0]["n_iterations"], 300, "{tool:?}");
        assert!(rows[0]["serving_cpu_ms"].is_null(), "no end only serves: {}", rows[0]);
    }
    let sizes = lane_results(Tool::ReadBw, &["-a", "-n", "5", "-t", "2"]);
    assert_eq!(sizes.len(), 23);
}
