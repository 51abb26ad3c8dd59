//! `towpath bench policies`: servers in processes of their own, and a write by each policy.

mod towpath_common;

use towpath_common::{fails, json, succeeds, towpath};

/// Little, so that it is over soon: what a machine reaches is no test.
const TINY: [&str; 10] =
    ["bench", "policies", "write", "--sizes", "4K,64K", "--writes", "2", "--rounds", "1", "--json"];

#[test]
fn each_policy_is_measured_beside_one_copy() {
    let policies = ["--policies", "flat:2,ring:3,tree:3,rs:3+2,rs:3+2+triec"];
    let report = json(towpath(TINY).args(policies));
    let rows = report["tables"]["writes"].as_array().expect("a table");
    let found: Vec<&str> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    let once = ["flat:1", "flat:2", "ring:3", "tree:3", "rs:3+2", "rs:3+2,triec"];
    assert_eq!(found, [once, once].concat());
    for row in rows {
        assert!(row["median_us"].as_f64().expect("a number") > 0.0, "{row}");
        if row["policy"] == "flat:1" {
            assert_eq!(row["of_one"], 1.0, "{row}");
        }
    }
}

/// A unit of three is longer than one operation of the client's, and no power of two.
#[test]
fn units_longer_than_one_operation_are_written_in_parts() {
    let policies = "rs:3+2,rs:3+2+triec,rs:2+1,rs:2+1+triec";
    let tiny = ["--sizes", "1M", "--writes", "1", "--rounds", "1", "--json"];
    let mut words = vec!["bench", "policies", "write", "--policies", policies];
    words.extend(tiny);
    let report = json(&mut towpath(words));
    let rows = report["tables"]["writes"].as_array().expect("a table");
    let found: Vec<&str> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    assert_eq!(found, ["flat:1", "rs:3+2", "rs:3+2,triec", "rs:2+1", "rs:2+1,triec"]);
}

#[test]
fn it_is_listed_and_takes_policies_alone() {
    let said = succeeds(&mut towpath(["bench", "policies"]));
    assert!(said.contains("write"), "{said}");
    for word in ["chain:3", "ring:8", "rs:6", "rs:6+3,", "triec"] {
        fails(towpath(TINY).args(["--policies", word]), 2, &["policies"]);
    }
}
