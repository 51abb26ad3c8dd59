//! One-sided operations of sixteen clients on one server's memory, while packets are lost, doubled
//! and overtaken, queue pairs and clients die, and grants are revoked. `towpath sim one-sided` does
//! it a million times.

use towpath_lab::one_sided::{OneSidedPlan, Tally};

fn run(plan: &OneSidedPlan) -> Tally {
    println!("seed {}", plan.seed);
    let tally = plan.run().unwrap_or_else(|failed| panic!("seed {}: {failed}", plan.seed));
    println!("{tally:?}");
    tally
}

#[test]
fn each_addition_of_sixteen_clients_is_carried_out_once_or_not_at_all() {
    for seed in 1..=5 {
        let tally = run(&OneSidedPlan::new(seed, 20_000));
        let (sure, unknown) = (tally.additions, tally.additions_unknown);
        assert!((sure..=sure + unknown).contains(&tally.found), "seed {seed}");
        // A test in which nothing goes wrong shows nothing.
        assert!(unknown > 0 && tally.swaps > 0, "seed {seed}");
        assert!(tally.retransmitted > 0 && tally.duplicates > 0, "seed {seed}");
    }
}

/// One trouble soon after another: lanes fail again before all that was lost is posted.
#[test]
fn writes_come_in_their_order_and_nothing_changes_what_is_revoked_however_often_clients_fail() {
    let mut revocations = 0;
    let mut deaths = 0;
    for seed in 1..=20 {
        let tally = run(&OneSidedPlan { every: 30, ..OneSidedPlan::new(seed, 5_000) });
        revocations += tally.befallen.revocations;
        deaths += tally.befallen.deaths;
    }
    assert!(revocations > 50 && deaths > 50, "{revocations} {deaths}");
}

/// The same as `towpath sim one-sided`.
#[test]
#[ignore = "a million of them, three times: a minute and more"]
fn each_of_a_million_additions_is_carried_out_once_or_not_at_all() {
    for seed in 1..=3 {
        let tally = run(&OneSidedPlan::new(seed, 1_000_000));
        assert!(tally.additions_unknown > 0 && tally.befallen.deaths > 0, "seed {seed}");
    }
}

#[test]
fn a_run_follows_from_its_plan() {
    let plan = |seed| OneSidedPlan { every: 50, ..OneSidedPlan::new(seed, 2_000) };
    assert_eq!(run(&plan(1)), run(&plan(1)));
    assert_ne!(run(&plan(1)).hash, run(&plan(2)).hash);
}
