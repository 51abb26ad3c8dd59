//! Runs of a few milliseconds: who gets what, with tokens and without, and what is written down.

use super::{Account, ClientPlan, Manner, Outcome, Pattern, Plan, Rates, Sides};
use towpath_base::Nanos;
use towpath_qos::Rules;

const SEED: u64 = 3;
const RESERVED: [u32; 4] = [14_000, 6_000, 6_000, 6_000];

/// Four clients in periods of 40 ms of 100 ticks, at 400 K and 1,000 K a second, of which the first
/// has reserved most of what one can do.
fn plan(rules: Option<Rules>) -> Plan {
    let reserved = RESERVED;
    let client = |ios: u32| ClientPlan::new(ios + 4_000, Pattern::Burst).reserved(ios);
    Plan {
        seed: SEED,
        clients: reserved.map(client).to_vec(),
        rates: Rates { all: 1_000_000, one: 400_000 },
        sides: Sides::One,
        rules,
        period: Nanos::from_millis(40),
        tick: Nanos::from_micros(400),
        estimate: 1.0,
        warm_up: 1,
        periods: 3,
        depth: 64,
    }
}

fn run(plan: &Plan) -> Outcome {
    let outcome = plan.run().expect("it runs");
    assert_eq!((&outcome.end.troubles[..], outcome.packets_dropped), (&[][..], 0), "seed {SEED}");
    outcome
}

#[test]
fn tokens_give_a_client_what_it_has_reserved_where_the_bare_system_does_not() {
    let bare = run(&plan(None));
    assert_eq!(
        (bare.missed(0, RESERVED[0]), bare.fetches, bare.reports),
        (3, 0, 0),
        "{:?}",
        bare.done
    );
    let ours = run(&plan(Some(Rules::OURS)));
    for (client, reserved) in RESERVED.into_iter().enumerate() {
        assert_eq!(ours.missed(client, reserved), 0, "seed {SEED}: {:?}", ours.done);
    }
    // Periods of a hundred ticks: what their ends cost is ten times the usual.
    assert!(
        ours.ios_per_s() > 0.85 * bare.ios_per_s(),
        "{} {}",
        ours.ios_per_s(),
        bare.ios_per_s()
    );
    // A report of each client in each tick, about.
    assert!((1_000..1_300).contains(&ours.reports) && ours.fetches > 0, "{}", ours.reports);
    assert_eq!(ours.ends.len(), 3);
    let reported: u64 = ours.ends.iter().map(|end| end.completed).sum();
    let done: u64 = (0..3).map(|period| ours.total(period)).sum();
    assert!(reported <= done && reported > done * 95 / 100, "{reported} of {done}");
}

#[test]
fn the_same_plan_gives_the_same_run() {
    let again = || run(&Plan { periods: 1, ..plan(Some(Rules::OURS)) });
    let (first, second) = (again(), again());
    assert_eq!((&first.done, &first.end), (&second.done, &second.end));
    let other = run(&Plan { periods: 1, seed: SEED + 1, ..plan(Some(Rules::OURS)) });
    assert_ne!(first.end.traces, other.end.traces);
}

#[test]
fn a_processor_that_does_one_request_after_the_other_holds_messages_back() {
    let mut plan = plan(None);
    plan.sides = Sides::Two { server: Nanos::from_micros(4), client: Nanos::from_micros(1) };
    let outcome = run(&plan);
    assert!((240_000.0..=250_100.0).contains(&outcome.ios_per_s()), "{}", outcome.ios_per_s());
    assert!(outcome.latency[0].mean_us() > 900.0, "64 of four clients wait for it");
}

#[test]
fn a_constant_rate_asks_for_what_it_wants_evenly_and_a_burst_at_once() {
    let first_half = |pattern| {
        let client = ClientPlan::new(4_000, pattern);
        let mut plan = Plan { clients: vec![client], periods: 1, warm_up: 0, ..plan(None) };
        // Half a period is a period of its own for whoever counts.
        plan.clients[0].active = (Nanos::ZERO, Nanos::from_millis(20));
        run(&plan).done[0][0]
    };
    assert_eq!(first_half(Pattern::Burst), 4_000);
    assert!((1_996..=2_004).contains(&first_half(Pattern::Constant)));
}

#[test]
fn who_does_without_tokens_is_cut_off_and_named_and_joins_again() {
    let mut greedy = plan(Some(Rules::OURS));
    greedy.clients[1].manner = Manner::Greedy;
    let outcome = run(&greedy);
    let named = |outcome: &Outcome| -> Vec<bool> {
        outcome.accounts.iter().map(|account| *account != Account::default()).collect()
    };
    assert_eq!(named(&outcome), [false, true, false, false], "seed {SEED}: {:?}", outcome.accounts);
    assert!(outcome.accounts[1].overrun > 0, "seed {SEED}: {:?}", outcome.accounts);
    for (period, done) in outcome.done.iter().enumerate() {
        assert!(done[1] > 1_000, "seed {SEED}: period {period}: {done:?}");
    }
    // The published protocol trusts its clients.
    greedy.rules = Some(Rules::PUBLISHED);
    assert_eq!(named(&run(&greedy)), [false; 4], "seed {SEED}");
}

#[test]
fn who_is_away_counts_as_lost_in_each_of_those_periods() {
    let mut away = plan(Some(Rules::OURS));
    // From within the first measured period into the third.
    away.clients[3].manner = Manner::Away(Nanos::from_millis(50), Nanos::from_millis(130));
    let outcome = run(&away);
    let lost: Vec<u64> = outcome.accounts.iter().map(|account| account.lost).collect();
    assert_eq!(lost, [0, 0, 0, 3], "seed {SEED}");
}
