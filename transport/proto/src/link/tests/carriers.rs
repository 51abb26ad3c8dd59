//! From one carrier to another and back, under load: nothing lost, nothing twice, all in order.

use super::*;
use crate::limits::PATHS_MAX;
use crate::{Carrier, PathId, PathState};
use Carrier::{Rc, Tcp, Uc};

const AFTER: Nanos = Nanos::from_millis(50);
const STAY: Nanos = Nanos::from_millis(200);

fn open(seed: u64, carriers: &[Carrier], faults: Faults) -> (Wire, ChannelId) {
    open_tuned(seed, carriers, faults, |config| config.fallback(AFTER, STAY))
}

fn open_tuned(
    seed: u64,
    carriers: &[Carrier],
    faults: Faults,
    tune: impl Fn(LinkConfig) -> LinkConfig,
) -> (Wire, ChannelId) {
    println!("seed {seed} {carriers:?}");
    let tune = |config: LinkConfig| tune(config).seed(seed);
    let mut wire = Wire::with_carriers(seed, faults, carriers, tune);
    let channel = wire.open_channel(0, true);
    (wire, channel)
}

/// The paths of a carrier.
fn paths(wire: &Wire, carrier: Carrier) -> u64 {
    let of = wire.ends[0].link.paths().enumerate().filter(|(_, path)| path.carrier == carrier);
    of.fold(0, |set, (index, _)| set | 1 << index)
}

/// Sends both ways, a few messages each millisecond, for a while; returns how long the slowest
/// took that got through.
struct Load {
    sent: [Vec<Vec<u8>>; 2],
    prng: Prng,
}

impl Load {
    fn new(seed: u64) -> Self {
        Self { sent: [Vec::new(), Vec::new()], prng: Prng::new(seed ^ 0x10ad) }
    }

    fn run(&mut self, wire: &mut Wire, channel: ChannelId, span: Nanos) {
        let end = wire.now + span;
        while wire.now < end {
            for at in 0..2 {
                // No more than the link takes: what waits, waits.
                if wire.ends[at].sending.len() < 64 {
                    let token = self.sent[at].len() as u64;
                    let len = self.prng.between(8, 20_000) as usize;
                    let bytes = content(&mut self.prng, token, len);
                    wire.ends[at].send(channel, token, bytes.clone(), Time::NEVER);
                    self.sent[at].push(bytes);
                }
            }
            let pause = self.prng.between(100_000, 2_000_000);
            wire.run_for(Nanos(pause));
        }
    }

    /// Everything arrived once, intact, in order, and was reported so.
    fn check(&self, wire: &Wire) {
        for at in 0..2 {
            assert!(wire.ends[1 - at].received == self.sent[at], "messages of end {at} differ");
            let outcomes = &wire.ends[at].outcomes;
            assert_eq!(outcomes.len(), self.sent[at].len());
            assert!(outcomes.values().all(|&outcome| outcome == Outcome::Delivered));
            assert_eq!(wire.ends[at].down, None);
            let stats = wire.ends[at].link.stats();
            assert_eq!(stats.violations, 0, "end {at}: {stats:?}");
            assert!(stats.chunks_stale == 0 || stats.paths_renewed > 0, "end {at}: {stats:?}");
        }
        wire.check_clean();
    }
}

fn fail(wire: &mut Wire, carrier: Carrier) {
    (0..2).for_each(|at| fail_at(wire, at, carrier));
}

/// The queue pairs of a carrier fail at one end.
fn fail_at(wire: &mut Wire, at: usize, carrier: Carrier) {
    let failing = paths(wire, carrier);
    for index in (0..PATHS_MAX as u8).filter(|&index| failing & 1 << index != 0) {
        wire.ends[at].link.path_failed(wire.now, PathId(index));
    }
}

#[test]
fn a_link_goes_down_the_ladder_and_up_again_with_everything_that_is_under_way() {
    for seed in 0..6 {
        let faults = if seed % 2 == 0 { Faults::default() } else { ALL_FAULTS };
        let (mut wire, channel) = open(seed, &[Uc, Uc, Rc, Tcp], faults);
        let mut load = Load::new(seed);
        load.run(&mut wire, channel, Nanos::from_millis(100));
        assert!(wire.ends.iter().all(|end| end.rides.is_empty()), "all is well: {seed}");
        let uc = paths(&wire, Uc);
        let directions = [[uc, uc], [uc, 0], [0, uc]][seed as usize % 3];
        wire.holes = directions;
        load.run(&mut wire, channel, Nanos::from_millis(300));
        for to in (0..2).filter(|&to| directions[to] != 0) {
            // An end whose own chunks get through has no reason to go.
            assert_eq!(wire.ends[1 - to].link.carrier(), Rc, "seed {seed}");
        }
        let rc = paths(&wire, Rc);
        wire.holes = [uc | rc; 2];
        load.run(&mut wire, channel, Nanos::from_millis(30));
        fail(&mut wire, Rc);
        assert!(wire.ends.iter().all(|end| end.link.carrier() != Rc), "at once: seed {seed}");
        load.run(&mut wire, channel, Nanos::from_millis(200));
        assert!(wire.ends.iter().all(|end| end.link.carrier() == Tcp), "seed {seed}");
        wire.holes = [0; 2];
        load.run(&mut wire, channel, Nanos::from_millis(1_200));
        wire.run_until(Wire::settled);
        for (at, end) in wire.ends.iter().enumerate() {
            // One that follows its peer finds sooner that its own way is well.
            let end_of = &end.rides[end.rides.len() - 2..];
            assert_eq!(end_of, [Tcp, Uc], "seed {seed}");
            if directions[1 - at] != 0 {
                assert_eq!(end.rides, [Rc, Tcp, Uc], "seed {seed}");
            }
            let stats = end.link.stats();
            let moves = (stats.carrier_falls + stats.carrier_returns) as usize;
            assert_eq!(moves, end.rides.len());
        }
        load.check(&wire);
    }
}

#[test]
fn holes_that_come_and_go_at_random_lose_nothing_and_chase_nothing() {
    for seed in 0..6 {
        let carriers: &[Carrier] = if seed % 2 == 0 { &[Uc, Tcp] } else { &[Uc, Uc, Uc, Rc, Tcp] };
        let (mut wire, channel) = open(seed, carriers, ALL_FAULTS);
        let mut load = Load::new(seed);
        let mut prng = Prng::new(seed);
        let (uc, rc) = (paths(&wire, Uc), paths(&wire, Rc));
        for _ in 0..12 {
            let set = [0, uc, uc, uc | rc][prng.below(4) as usize];
            wire.holes = [[set, set], [set, 0], [0, set]][prng.below(3) as usize];
            load.run(&mut wire, channel, Nanos::from_millis(prng.between(5, 300)));
            let rc_works = wire.ends[0].link.paths().any(|path| path.carrier == Rc);
            if rc_works && wire.holes.iter().any(|hole| hole & rc != 0) {
                fail(&mut wire, Rc);
            }
        }
        wire.holes = [0; 2];
        load.run(&mut wire, channel, Nanos::from_millis(100));
        wire.run_until(Wire::settled);
        for end in &wire.ends {
            // Stays double: six falls or so in the five seconds that this takes at the most.
            assert!(end.rides.len() <= 14, "seed {seed}: {:?}", end.rides);
        }
        load.check(&wire);
    }
}

#[test]
fn a_peer_that_is_silent_altogether_costs_no_carrier() {
    for seed in 0..4 {
        let (mut wire, channel) = open(seed, &[Uc, Rc, Tcp], Faults::default());
        let mut load = Load::new(seed);
        for _ in 0..5 {
            wire.holes = [u64::MAX; 2];
            load.run(&mut wire, channel, Nanos::from_millis(400));
            wire.holes = [0; 2];
            load.run(&mut wire, channel, Nanos::from_millis(50));
        }
        wire.run_until(Wire::settled);
        let stats = wire.ends.each_ref().map(|end| end.link.stats());
        assert!(stats.iter().all(|stats| stats.carrier_falls <= 1), "seed {seed}: {stats:?}");
        load.check(&wire);
    }
}

#[test]
fn an_answer_takes_the_way_of_its_question_and_does_not_wait_for_a_silence_of_its_own() {
    let (mut wire, channel) = open(3, &[Uc, Tcp], Faults::default());
    wire.run_for(Nanos::from_millis(500));
    wire.holes = [1; 2];
    let start = wire.now;
    wire.ends[0].send(channel, 0, vec![1; 100], Time::NEVER);
    wire.run_until(|wire| wire.ends[1].received.len() == 1);
    assert!(wire.now.since(start) < Nanos(2 * AFTER.0), "{}", wire.now.since(start));
    let asked = wire.now;
    wire.ends[1].send(channel, 0, vec![2; 100], Time::NEVER);
    wire.run_until(|wire| wire.ends[0].received.len() == 1);
    assert!(wire.now.since(asked) < Nanos::from_millis(1), "{}", wire.now.since(asked));
}

#[test]
fn a_quiet_link_on_a_worse_carrier_finds_its_way_back_and_then_keeps_quiet() {
    let (mut wire, channel) = open(4, &[Uc, Tcp], Faults::default());
    wire.holes = [1; 2];
    wire.ends[0].send(channel, 0, vec![1; 100], Time::NEVER);
    wire.run_for(Nanos::from_millis(300));
    assert_eq!(wire.ends[0].link.carrier(), Tcp);
    wire.holes = [0; 2];
    wire.run_for(Nanos::from_secs(1));
    assert!(wire.ends.iter().all(|end| end.link.carrier() == Uc));
    let probes = |wire: &Wire| wire.ends[0].link.stats().path_probes;
    let before = probes(&wire);
    wire.run_for(Nanos::from_millis(1_500));
    assert_eq!(probes(&wire), before, "nobody asks when all is well");
}

#[test]
fn without_another_carrier_silence_ends_a_link_as_it_always_did() {
    let (mut wire, channel) = open(5, &[Uc], Faults::default());
    wire.holes = [u64::MAX; 2];
    wire.ends[0].send(channel, 0, vec![1; 100], Time::NEVER);
    wire.run_for(Nanos::from_secs(11));
    assert!(matches!(wire.ends[0].down, Some(DownReason::Silent(_))));
}

#[test]
fn queue_pairs_that_failed_are_made_anew_and_the_link_goes_back_to_them() {
    for seed in 0..6 {
        let faults = if seed % 2 == 0 { Faults::default() } else { ALL_FAULTS };
        let (mut wire, channel) = open(seed, &[Uc, Uc, Rc, Tcp], faults);
        wire.renews = true;
        let mut load = Load::new(seed);
        load.run(&mut wire, channel, Nanos::from_millis(100));
        // One end notices; the other learns of it.
        fail_at(&mut wire, seed as usize % 2, Uc);
        assert_eq!(wire.ends[seed as usize % 2].link.carrier(), Rc);
        load.run(&mut wire, channel, Nanos::from_secs(2));
        assert!(wire.ends.iter().all(|end| end.link.carrier() == Uc), "seed {seed}");
        for end in &wire.ends {
            assert_eq!(end.link.stats().paths_renewed, 2, "seed {seed}");
        }
        // One may be in doubt just then, for what the wire loses.
        let all_are_good = |wire: &Wire| {
            let mut paths = wire.ends.iter().flat_map(|end| end.link.paths());
            paths.all(|path| path.state == PathState::Good)
        };
        let mut steps = 0..100;
        while !all_are_good(&wire) && steps.next().is_some() {
            load.run(&mut wire, channel, Nanos::from_millis(10));
        }
        assert!(all_are_good(&wire), "seed {seed}");
        // A carrier that nobody rides on, and then all that have queue pairs, at both ends.
        fail_at(&mut wire, 1, Rc);
        load.run(&mut wire, channel, Nanos::from_secs(2));
        assert!(wire.ends.iter().all(|end| end.link.carrier() == Uc), "seed {seed}");
        fail(&mut wire, Rc);
        fail(&mut wire, Uc);
        assert!(wire.ends.iter().all(|end| end.link.carrier() == Tcp), "seed {seed}");
        load.run(&mut wire, channel, Nanos::from_secs(3));
        // Probes that must be answered in a row are lost, too.
        let ride_on_uc = |wire: &Wire| wire.ends.iter().all(|end| end.link.carrier() == Uc);
        let mut steps = 0..60;
        while !ride_on_uc(&wire) && steps.next().is_some() {
            load.run(&mut wire, channel, Nanos::from_millis(50));
        }
        assert!(ride_on_uc(&wire), "seed {seed}");
        wire.run_until(Wire::settled);
        for end in &wire.ends {
            let stats = end.link.stats();
            assert_eq!((stats.paths_renewed, stats.paths_failed), (6, 6), "seed {seed}");
        }
        load.check(&wire);
    }
}

#[test]
fn queue_pairs_that_fail_again_and_again_are_made_anew_at_a_rate_that_is_bounded() {
    let (mut wire, channel) = open(9, &[Uc, Tcp], Faults::default());
    wire.renews = true;
    let mut load = Load::new(9);
    let mut renewals = 0;
    for _ in 0..1_000 {
        load.run(&mut wire, channel, Nanos::from_millis(20));
        fail_at(&mut wire, 0, Uc);
        let renewed = wire.ends[1].link.stats().paths_renewed;
        renewals = renewed;
    }
    assert!((4..10).contains(&renewals), "{renewals} in twenty seconds");
    wire.run_until(Wire::settled);
    load.check(&wire);
}

#[test]
fn a_failed_path_among_others_of_its_carrier_is_made_anew_and_probed_before_it_is_used() {
    let (mut wire, channel) = open(11, &[Uc, Uc, Uc], Faults::default());
    wire.renews = true;
    let mut load = Load::new(11);
    load.run(&mut wire, channel, Nanos::from_millis(50));
    let now = wire.now;
    wire.ends[0].link.path_failed(now, PathId(1));
    load.run(&mut wire, channel, Nanos::from_secs(2));
    for end in &wire.ends {
        let moves: Vec<_> = end.moves.iter().filter(|(path, ..)| *path == 1).collect();
        let (failed, probing) = (PathState::Failed, PathState::Probing);
        assert!(moves.contains(&&(1, failed, probing)), "{moves:?}");
        assert_eq!(end.link.paths().nth(1).map(|path| path.state), Some(PathState::Good));
    }
    wire.run_until(Wire::settled);
    load.check(&wire);
}

#[test]
fn loss_alone_is_no_reason_to_fall_until_it_is_hopeless_and_then_tcp_takes_over() {
    let ms = Nanos::from_millis;
    for (seed, carriers) in [(0, &[Uc, Tcp][..]), (1, &[Uc, Uc, Uc, Rc, Tcp])] {
        let tune = |config: LinkConfig| config.fallback(ms(100), ms(400));
        let (mut wire, channel) = open_tuned(seed, carriers, Faults::default(), tune);
        let mut load = Load::new(seed);
        for drop in [0.01, 0.05, 0.1] {
            wire.faults.drop = drop;
            load.run(&mut wire, channel, ms(700));
            let rides = wire.ends.each_ref().map(|end| end.rides.len());
            assert_eq!(rides, [0; 2], "seed {seed}, loss {drop}");
        }
        // A chunk has one packet or two, and counts as one that is lost.
        wire.faults.drop = 0.5;
        load.run(&mut wire, channel, ms(4_000));
        for end in &wire.ends {
            assert_eq!(end.rides.first(), Some(&Tcp), "seed {seed}: hopeless");
            assert!(!end.rides.contains(&Rc), "seed {seed}: RC goes over the same network");
            assert!(end.rides.len() <= 7, "seed {seed}: {:?} in four seconds", end.rides);
        }
        wire.faults.drop = 0.0;
        load.run(&mut wire, channel, ms(4_000));
        assert!(wire.ends.iter().all(|end| end.link.carrier() == Uc), "seed {seed}");
        wire.run_until(Wire::settled);
        load.check(&wire);
    }
}
