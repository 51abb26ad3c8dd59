//! Figures 16 to 19 of the paper: the server does less from a period on, or more.

mod model;

use model::{ClientPlan, Outcome, Pattern, Plan, run, uniform, zipf};
use towpath_base::Nanos;
use towpath_qos::{Capacities, Rules};

/// In a period of 40 ms.
const ALL: u32 = 62_800;
const ONE: u32 = 16_000;

/// What the server does beside a job without tokens, in thousandths.
const BESIDE: u32 = 860;

/// The period of the change, and how many follow within which the estimate finds it.
const CHANGE: usize = 6;
const FOUND_AFTER: usize = 5;
const PERIODS: usize = 20;

fn plan(reservations: &[u32], falls: bool, seed: u64, ticks: u64) -> Plan {
    let client =
        |&reservation: &u32| ClientPlan::new(reservation, reservation + ALL / 5, Pattern::Burst);
    let mut clients: Vec<_> = reservations.iter().map(client).collect();
    clients[5..].iter_mut().for_each(|client| client.share.weight = 2);
    let period = Nanos::from_millis(40);
    Plan {
        rules: Some(Rules::OURS),
        clients,
        profiled: Capacities { all: ALL, one: ONE },
        truth: if falls {
            vec![(0, 1000), (CHANGE, BESIDE)]
        } else {
            vec![(0, BESIDE), (CHANGE, 1000)]
        },
        period,
        tick: Nanos(period.0 / ticks),
        periods: PERIODS,
        seed,
        message_delay: Nanos::from_micros(20),
        at_server: 16,
    }
}

fn cases() -> [(&'static str, Vec<u32>, bool); 4] {
    let (uniform, zipf) = (uniform(ALL / 10 * 8), zipf(ALL / 10 * 8));
    [
        ("uniform, falling", uniform.clone(), true),
        ("Zipf, falling", zipf.clone(), true),
        ("uniform, rising", uniform, false),
        ("Zipf, rising", zipf, false),
    ]
}

/// The surplus of the clients of weight 2, of that of those of weight 1.
fn by_weight(outcome: &Outcome, reserved: &[u32], periods: std::ops::Range<usize>) -> f64 {
    let beyond = |clients: std::ops::Range<usize>| -> f64 {
        let of = |done: &Vec<u32>| -> f64 {
            clients
                .clone()
                .map(|client| f64::from(done[client]) - f64::from(reserved[client]))
                .sum()
        };
        outcome.done[periods.clone()].iter().map(of).sum()
    };
    beyond(5..10) / beyond(0..5)
}

fn hold_to_the_targets(name: &str, (reserved, falls): (&[u32], bool), seed: u64, ticks: u64) {
    println!("{name}, {ticks} ticks, seed {seed}");
    let outcome = run(&plan(reserved, falls, seed, ticks));
    let truth = f64::from(ALL) * if falls { f64::from(BESIDE) / 1e3 } else { 1.0 };
    for (period, done) in outcome.done.iter().enumerate().skip(1) {
        // The period of the change itself among them.
        let missed = done.iter().zip(reserved).filter(|(done, least)| done < least).count();
        assert_eq!(missed, 0, "period {period}: {done:?} of {reserved:?}");
        let off = f64::from(outcome.ends[period].estimate) / truth - 1.0;
        assert!(period + 1 < CHANGE + FOUND_AFTER || off.abs() < 0.03, "period {period}: {off}");
        let tokens = f64::from(outcome.tokens[period]) / truth - 1.0;
        assert!(period < CHANGE + FOUND_AFTER || tokens < 0.05, "period {period}: tried {tokens}");
    }
    let ratio = by_weight(&outcome, reserved, CHANGE + FOUND_AFTER..PERIODS);
    // Where reservations differ, a large one has less of the depth that is left for the surplus.
    let least = if reserved[0] == reserved[9] { 1.8 } else { 1.2 };
    println!("  by weight: {ratio:.2}");
    assert!(ratio > least, "{ratio}");
}

#[test]
fn the_estimate_is_within_three_percent_five_periods_after_a_change() {
    for (ticks, seed) in [(100, 1), (100, 2), (250, 3)] {
        for (name, reservations, falls) in cases() {
            hold_to_the_targets(name, (&reservations, falls), seed, ticks);
        }
    }
}
