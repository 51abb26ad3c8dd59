//! At most one holds a key, whatever the store does and however clocks differ.

use std::collections::BTreeSet;

use towpath_base::{Nanos, Prng, Time};
use towpath_cluster::hold::Hold;
use towpath_cluster::meta::sim::{SimClient, SimFaults, SimStore};
use towpath_cluster::meta::{Meta, Report, Revision};

const LEASE: Nanos = Nanos::from_millis(1_000);

/// One that wants the key, with a clock that goes wrong.
struct Contender {
    hold: Hold,
    meta: SimClient,
    tag: u64,
    /// Its clock's seconds in a second.
    rate: f64,
    /// It does nothing until then, as one that is stopped.
    stopped_until: Time,
    turns: u32,
}

impl Contender {
    fn clock(&self, now: Time) -> Time {
        Time((now.0 as f64 * self.rate) as u64)
    }

    fn turn(&mut self, now: Time) {
        if now < self.stopped_until {
            return;
        }
        let own = self.clock(now);
        while let Some(report) = self.meta.poll(now) {
            let Report::Done { tag, result } = report else { panic!("it watches nothing") };
            assert_eq!(tag, self.tag);
            self.hold.on_done(&result, own);
        }
        if let Some(op) = self.hold.next(own) {
            self.tag += 1;
            self.meta.submit(self.tag, op, now);
        }
    }
}

/// How a contender may be wrong.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    /// Its clock is slower than clocks may be.
    SlowClock,
    /// It counts its time from the answer on.
    CountsFromAnswer,
}

/// What went wrong first, and how often the key had a new holder.
fn contended(seed: u64, bug: Bug) -> Result<u32, String> {
    let mut prng = Prng::new(seed);
    let long = Nanos::from_millis(if bug == Bug::CountsFromAnswer { 400 } else { 20 });
    let delay = (Nanos::from_micros(200), long);
    // A store that ends leases too soon breaks its word: against that there are fences.
    let faults = SimFaults { delay, lost_leases: 0.0, ..SimFaults::MANY };
    let store = SimStore::new(seed, faults);
    let mut all: Vec<Contender> = (0..4)
        .map(|number| Contender {
            hold: Hold::new("leader", format!("{number}"), LEASE),
            meta: store.client(),
            tag: 0,
            rate: match bug {
                Bug::SlowClock => 0.4,
                _ => 0.96 + prng.unit() * 0.08,
            },
            stopped_until: Time::ZERO,
            turns: 0,
        })
        .collect();
    let (mut now, mut highest, mut turns) = (Time::ZERO, Revision(0), 0);
    while now < Time(60_000_000_000) {
        now += Nanos::from_millis(1);
        if prng.chance(0.001) {
            let who = prng.below(4) as usize;
            all[who].stopped_until = now + Nanos::from_millis(prng.below(4_000));
        }
        if prng.chance(0.000_2) {
            store.stop(now);
            now += Nanos::from_millis(prng.below(3_000));
            store.start(now);
        }
        for contender in &mut all {
            contender.turn(now);
        }
        let holders: Vec<usize> = (0..all.len())
            .filter(|&who| {
                // One that counts from the answer believes for as long as its question took.
                let allowance = if bug == Bug::CountsFromAnswer { 400_000_000 } else { 0 };
                let own = all[who].clock(now);
                all[who].hold.is_held(Time(own.0.saturating_sub(allowance)))
            })
            .collect();
        if holders.len() > 1 {
            return Err(format!("seed {seed}: {holders:?} hold the key at {now:?}"));
        }
        if let [who] = holders[..] {
            let fence = all[who].hold.fence().expect("it is held");
            if fence < highest {
                return Err(format!("seed {seed}: {who} holds since {fence}, before {highest}"));
            }
            turns += u32::from(fence > highest);
            highest = fence;
            all[who].turns += 1;
        }
    }
    let held: BTreeSet<usize> = (0..all.len()).filter(|&who| all[who].turns > 0).collect();
    if held.len() < 2 {
        return Err(format!("seed {seed}: only {held:?} ever hold the key"));
    }
    let share = all.iter().map(|contender| contender.turns).sum::<u32>();
    match share > 20_000 {
        true => Ok(turns),
        false => Err(format!("seed {seed}: the key is held in {share} of 60,000 ms")),
    }
}

#[test]
fn at_most_one_holds_a_key_whatever_goes_wrong() {
    let mut turns = 0;
    for seed in 0..80 {
        turns += contended(seed, Bug::None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    assert!(turns > 400, "the key changed hands {turns} times");
}

#[test]
fn the_test_notices_clocks_that_differ_by_more_than_is_allowed() {
    let noticed = (0..200).any(|seed| contended(seed, Bug::SlowClock).is_err());
    assert!(noticed);
}

#[test]
fn the_test_notices_who_counts_from_the_answer() {
    let is_two = |wrong: String| wrong.contains("hold the key at");
    let noticed = (0..200).any(|seed| contended(seed, Bug::CountsFromAnswer).is_err_and(is_two));
    assert!(noticed);
}
