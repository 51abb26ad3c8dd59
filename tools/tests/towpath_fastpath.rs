//! `towpath bench fastpath`: what it says of itself, and each measurement, as short as it can be.

mod towpath_common;

use towpath_common::{succeeds, towpath};

#[test]
fn what_is_measured_and_what_it_takes_is_said() {
    let said = succeeds(&mut towpath(["bench", "fastpath"]));
    for study in ["write", "memory"] {
        assert!(said.contains(study), "{study} is not in {said}");
        let help = succeeds(&mut towpath(["bench", "fastpath", study, "--help"]));
        assert!(help.contains("figure 14") && help.contains("--features baseline"), "{help}");
    }
}

#[cfg(not(feature = "baseline"))]
#[test]
fn without_what_is_compared_with_it_says_how_to_build_that() {
    let words = ["built without what is compared with", "--features baseline"];
    towpath_common::fails(&mut towpath(["bench", "fastpath", "write", "--quick"]), 8, &words);
}

#[cfg(feature = "baseline")]
mod measured {
    use super::towpath_common::{json, towpath};
    use serde_json::Value;

    /// At a depth that nothing is claimed of: what a machine reaches is no test.
    const SHORT: [&str; 7] = ["--quick", "--json", "--seconds", "1", "--depths", "2", "--stores"];

    fn rows<'a>(report: &'a Value, table: &str) -> &'a Vec<Value> {
        report["tables"][table].as_array().expect("a table")
    }

    fn number(row: &Value, name: &str) -> f64 {
        row[name].as_f64().unwrap_or_else(|| panic!("{name} is no number: {row}"))
    }

    #[test]
    fn each_way_writes_to_each_store_and_is_held_against_the_fast_path() {
        let command = &mut towpath(["bench", "fastpath", "write"]);
        let report = json(command.args(SHORT).arg("null,chunk"));
        let points = rows(&report, "points");
        let ways: Vec<_> =
            points.iter().map(|row| [&row["store"], &row["way"]].map(Value::as_str)).collect();
        let expected = ["null", "chunk"].map(|store| {
            ["ours", "prost", "tonic"].map(|way| [Some(store), Some(way)]) //
        });
        assert_eq!(ways, expected.concat());
        for row in points {
            for name in ["writes_per_s", "median_us", "p99_us", "client_cpu_us", "server_cpu_us"] {
                assert!(number(row, name) > 0.0, "{name}: {row}");
            }
            let both = number(row, "client_cpu_us") + number(row, "server_cpu_us");
            assert!((number(row, "cpu_us") - both).abs() < 0.01 * both, "one round: {row}");
        }
        let saved = rows(&report, "saved");
        assert_eq!(saved.len(), 4, "two others, two stores: {report}");
        assert_eq!(saved[0]["paper_cpu_change"], Value::Null, "the paper has 1 and 16");
        let ours = number(&points[0], "cpu_us") / number(&points[1], "cpu_us") - 1.0;
        assert!((number(&saved[0], "cpu_change") - ours).abs() < 0.01, "{report}");
    }

    #[test]
    fn what_touches_a_byte_is_counted_in_both_processes() {
        let command = &mut towpath(["bench", "fastpath", "memory", "--quick", "--json"]);
        let report = json(command.args(["--seconds", "1", "--sizes", "64K,256K"]));
        let rows = rows(&report, "traffic");
        assert_eq!(rows.len(), 6);
        let expected = [("contiguous", 5.0, 3.0), ("sliced", 4.0, 1.0)];
        let expected = expected.into_iter().chain([("sliced and summed", 2.0, 1.0)]).cycle();
        for (row, (way, sums, copies)) in rows.iter().zip(expected) {
            assert_eq!(row["way"], way);
            // What a debug build holds against the bytes, and what is sent again, comes on top.
            for (name, least) in [("sums", sums), ("copies", copies)] {
                let range = least..least + 1.5;
                assert!(range.contains(&number(row, name)), "{name}: {row}");
            }
            assert!(number(row, "mb_per_s") > 0.0, "{row}");
        }
        assert_eq!((&rows[2]["paper_share"], &rows[5]["paper_share"]), (&0.5.into(), &Value::Null));
    }
}
