//! `towpath bench ec`: each work is measured at each point; words that are no shape are refused.

mod towpath_common;

use towpath_common::{fails, json, succeeds, towpath};

/// Little, so that it is over soon: what a machine reaches is no test.
const TINY: [&str; 9] =
    ["bench", "ec", "throughput", "--memory", "64K", "--rounds", "1", "--json", "--quick"];

#[test]
fn each_work_is_measured_at_every_shape_and_length() {
    let shapes = ["--shapes", "3+2,1+0,20+12", "--shards", "1000,4K"];
    let report = json(towpath(TINY).args(shapes));
    let rows = report["tables"]["throughput"].as_array().expect("a table");
    assert_eq!(rows.len(), 3 * 2 * 6, "{report}");
    for row in rows {
        assert!(row["gbytes_per_second"].as_f64().expect("a number") > 0.0, "{row}");
        if row["work"] == "copy" {
            assert_eq!(row["of_copy"], 1.0, "{row}");
        }
    }
    assert_eq!(report["clock"], "machine");
}

#[test]
fn it_is_listed_and_explained_and_takes_shapes_alone() {
    let said = succeeds(&mut towpath(["bench", "ec"]));
    assert!(said.contains("throughput"), "{said}");
    let help = succeeds(&mut towpath(["bench", "ec", "throughput", "--help"]));
    assert!(help.contains("TriEC") && help.contains("6+3"), "{help}");
    for word in ["6", "0+2", "30+3", "6+", "x+1", "6-3"] {
        fails(towpath(TINY).args(["--shapes", word]), 2, &["shapes"]);
    }
}
