//! Random clients, demands, delays, deaths and capacities: what holds in every one of them.

mod model;

use model::{ClientPlan, Pattern, Plan, run};
use towpath_base::{Nanos, Prng, Time};
use towpath_qos::{Capacities, Rules};

const PERIOD: Nanos = Nanos::from_millis(50);
const PERIODS: usize = 6;

/// A plan, and which clients have enough to do all the time.
fn plan(seed: u64) -> (Plan, Vec<bool>) {
    let mut prng = Prng::new(seed);
    let all = prng.between(20_000, 80_000) as u32;
    let one = all / prng.between(2, 6) as u32;
    let count = prng.between(2, 24) as usize;
    let mut left = all / 10 * prng.between(4, 9) as u32;
    let mut is_steady = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..count {
        // What one can do in a period in which it has to wait for others, too.
        let reservation = (prng.below(u64::from(one) * 7 / 10) as u32).min(left);
        left -= reservation;
        let is_eager = prng.below(3) > 0;
        let demand = match is_eager {
            true => reservation + all / 4,
            false => prng.below(u64::from(reservation) + 100) as u32,
        };
        let mut client = ClientPlan::new(reservation, demand.max(1), Pattern::Burst);
        let dies = prng.below(8) == 0;
        if dies {
            let from = Time(prng.below(PERIOD.0 * PERIODS as u64));
            let span = prng.below(PERIOD.0 * 2);
            let until = if prng.below(2) == 0 { Time::NEVER } else { from + Nanos(span) };
            client.gone = Some((from, until));
        }
        is_steady.push(is_eager && !dies);
        clients.push(client);
    }
    let plan = Plan {
        rules: Some(Rules::OURS),
        clients,
        profiled: Capacities { all, one },
        truth: vec![(0, prng.between(970, 1_030) as u32)],
        period: PERIOD,
        tick: Nanos::from_micros(200),
        periods: PERIODS,
        seed,
        message_delay: Nanos::from_micros(prng.below(60)),
        at_server: model::DEPTH,
    };
    (plan, is_steady)
}

#[test]
fn reservations_are_met_and_tokens_are_not_made_of_nothing_whatever_others_do() {
    for seed in 1..=24 {
        let (plan, is_steady) = plan(seed);
        let outcome = run(&plan);
        for (client, steady) in is_steady.iter().enumerate() {
            let reservation = plan.clients[client].share.reservation;
            // The first period begins with engines that know nothing of each other.
            let missed = outcome.missed(client, reservation, 5, 1);
            assert!(!steady || missed == 0, "seed {seed}, client {client}: {missed} periods");
        }
        for (period, over) in outcome.over_issued.iter().enumerate() {
            let most = i64::from(plan.profiled.all) * 6 / 100;
            assert!(*over <= most, "seed {seed}, period {period}: {over} tokens too many");
        }
        assert_eq!(outcome.spoilt, 0, "seed {seed}");
        let epochs = outcome.ends.len();
        assert_eq!(epochs, PERIODS, "seed {seed}");
    }
}
