//! Queue pairs that keep their source ports: what swallows is left by the next one of its path.

use super::control::Control;
use super::paths::{EACH, state};
use super::*;
use crate::Carrier::{self, Tcp, Uc};
use crate::PathSnapshot;
use crate::path::PathState;
use crate::wire::Kind;

/// Source ports of the device.
const PORTS: u16 = 64;

const MS: Nanos = Nanos::from_millis(1);

/// Four paths of UC, on ports 0 to 3.
const FOUR: [Carrier; 4] = [Uc; 4];

/// Ends that send each other something small every 5 ms.
struct Rig {
    wire: Wire,
    channel: ChannelId,
    next: u64,
}

impl Rig {
    fn new(seed: u64, carriers: &[Carrier], tune: fn(LinkConfig) -> LinkConfig) -> Self {
        println!("seed {seed}, {carriers:?}");
        let tune = |config: LinkConfig| {
            tune(config.spreading(EACH).seed(seed).source_ports(PORTS).keeps_ports(true))
        };
        let mut wire = Wire::with_carriers(seed, Faults::default(), carriers, tune);
        wire.renews = true;
        let channel = wire.open_channel(0, seed.is_multiple_of(2));
        let mut rig = Self { wire, channel, next: 0 };
        rig.run(MS.saturating_mul(200));
        rig
    }

    fn run(&mut self, span: Nanos) {
        let end = self.wire.now + span;
        while self.wire.now < end {
            for at in 0..2 {
                // No more than the link takes: what waits, waits.
                let room = 256_usize.saturating_sub(self.wire.ends[at].sending.len());
                for _ in 0..room.min(8) {
                    let bytes = vec![self.next as u8; 100];
                    self.wire.ends[at].send(self.channel, self.next, bytes, Time::NEVER);
                    self.next += 1;
                }
            }
            self.wire.run_for(MS.saturating_mul(5));
        }
    }

    fn path(&self, at: usize, path: usize) -> PathSnapshot {
        self.wire.ends[at].link.paths().nth(path).unwrap()
    }

    fn stats(&self, at: usize) -> LinkStats {
        self.wire.ends[at].link.stats()
    }

    /// The ports of good paths that what is sent by an end does get through on.
    fn ways(&self, at: usize) -> usize {
        let paths = self.wire.ends[at].link.paths().enumerate();
        let leads = |index: usize| self.wire.holes[1 - at] & 1 << self.wire.ports[at][index] == 0;
        paths.filter(|&(index, path)| path.state == PathState::Good && leads(index)).count()
    }

    /// Everything arrives, once.
    fn settle(mut self) {
        self.wire.run_until(Wire::settled);
        for (at, end) in self.wire.ends.iter().enumerate() {
            assert_eq!((end.down, end.link.end.state), (None, LinkState::Up), "end {at}");
        }
        let received: usize = self.wire.ends.iter().map(|end| end.received.len()).sum();
        assert_eq!(received as u64, self.next);
    }
}

#[test]
fn a_path_that_stays_dark_gets_a_queue_pair_on_another_port_at_both_ends() {
    for seed in 0..8 {
        let (mut rig, dark) = (Rig::new(seed, &FOUR, |config| config), seed as usize % 4);
        rig.wire.holes[1] = 1 << dark;
        rig.run(MS.saturating_mul(2_900));
        assert_eq!(rig.stats(0).renewals_asked, 0, "it has not been dark for long");
        rig.run(MS.saturating_mul(600));
        let (near, far) = (rig.path(0, dark), rig.path(1, dark));
        assert_eq!([near, far].map(|path| path.state), [PathState::Good; 2]);
        assert_eq!([near, far].map(|path| (path.renewals, path.moves)), [(1, 1), (1, 0)]);
        assert!(near.source_port >= 4, "one that no path has: {}", near.source_port);
        assert_eq!(far.source_port, dark as u16, "its own way was sound");
        let told = [0, 1].map(|at| (rig.stats(at).paths_renewed, rig.stats(at).renewals_asked));
        assert_eq!(told, [(1, 1), (1, 0)]);
        rig.settle();
    }
}

#[test]
fn a_path_that_is_back_within_two_quarantines_keeps_its_queue_pair() {
    let mut rig = Rig::new(20, &FOUR, |config| config);
    rig.wire.holes[1] = 1 << 2;
    rig.run(MS.saturating_mul(2_500));
    rig.wire.holes[1] = 0;
    rig.run(MS.saturating_mul(3_000));
    assert_eq!(state(&rig.wire, 0, 2), PathState::Good);
    assert_eq!((rig.stats(0).renewals_asked, rig.path(0, 2).renewals), (0, 0));
    rig.settle();
}

#[test]
fn new_ports_are_found_when_all_of_the_pool_but_one_are_dark_and_one_a_second_at_most() {
    for seed in 30..34 {
        let mut rig = Rig::new(seed, &[Uc; 8], |config| config);
        let alive = 1 << (seed % 8);
        // One direction, or both and in each another one that is left.
        rig.wire.holes[1] = 0xff & !alive;
        rig.wire.holes[0] = if seed % 2 == 0 { 0 } else { 0xff & !(alive.rotate_left(1) | 1) };
        let mut asked = Vec::new();
        for _ in 0..100 {
            rig.run(MS.saturating_mul(250));
            asked.push(rig.stats(0).renewals_asked);
        }
        println!("asked {asked:?}, {:?}", [0, 1].map(|at| rig.ways(at)));
        assert!(asked.windows(5).all(|span| span[4] - span[0] <= 2), "in a second: {asked:?}");
        assert!(rig.ways(0) >= 6 && rig.ways(1) >= 6, "{} and {}", rig.ways(0), rig.ways(1));
        rig.settle();
    }
}

#[test]
fn a_path_that_is_the_last_good_one_of_the_peer_is_not_taken_from_it() {
    for seed in 40..44 {
        let mut rig = Rig::new(seed, &[Uc; 2], |config| config);
        rig.wire.holes = [1 << 1, 1 << 0];
        rig.run(Nanos::from_secs(12));
        assert!(rig.stats(0).renewals_asked > 0 && rig.stats(1).renewals_asked > 0);
        let renewed = [0, 1].map(|at| rig.stats(at).paths_renewed);
        assert_eq!(renewed, [0, 0], "each is the only way of one end");
        rig.settle();
    }
}

#[test]
fn a_carrier_that_was_left_because_all_its_ports_are_dark_is_found_again_on_others() {
    for seed in 50..58 {
        let keeps = seed % 2 == 0;
        let tune: fn(LinkConfig) -> LinkConfig =
            if keeps { |config| config } else { |config| config.keeps_ports(false) };
        let mut rig = Rig::new(seed, &[Uc, Uc, Tcp], tune);
        // All but the port of TCP, until no other is tried any more; what the first end sends, or
        // what both do.
        let both = seed % 4 >= 2;
        rig.wire.holes = [if both { !(1 << 2) } else { 0 }, !(1 << 2)];
        rig.run(Nanos::from_secs(1));
        assert_eq!(rig.wire.ends[0].link.carrier(), Tcp);
        // From now on those only on which the paths are.
        let here = |at: usize| 1 << rig.wire.ports[at][0] | 1 << rig.wire.ports[at][1];
        rig.wire.holes = [if both { here(1) } else { 0 }, here(0)];
        rig.run(Nanos::from_secs(12));
        for (at, end) in rig.wire.ends.iter().enumerate() {
            assert_eq!(end.link.carrier(), Uc, "end {at}");
            assert!(rig.ways(at) >= 1, "end {at}");
        }
        assert_eq!(rig.stats(0).renewals_asked > 0, keeps);
        assert!(rig.stats(0).path_moves > 0);
        rig.settle();
    }
}

#[test]
fn packets_lost_at_random_and_a_peer_that_pauses_cost_no_queue_pair() {
    let mut rig = Rig::new(60, &FOUR, |config| config);
    rig.wire.faults = Faults { drop: 0.05, ..Faults::default() };
    for round in 0..20 {
        rig.wire.holes = if round % 4 == 0 { [u64::MAX; 2] } else { [0; 2] };
        rig.run(MS.saturating_mul(500));
    }
    rig.wire.holes = [0; 2];
    for at in 0..2 {
        assert_eq!((rig.stats(at).renewals_asked, rig.stats(at).paths_failed), (0, 0));
    }
    rig.settle();
}

#[test]
fn a_peer_that_asks_all_the_time_gets_queue_pairs_at_a_rate_that_is_bounded() {
    let mut rig = Rig::new(70, &FOUR, |config| config);
    for _ in 0..1_000 {
        for path in [1, 2, 3, 9] {
            let asked = Control::of(Kind::Renew, path);
            rig.wire.ends[0].link.control.queue.push_back(asked);
        }
        rig.run(MS.saturating_mul(20));
    }
    let stats = rig.stats(1);
    assert!((12..30).contains(&stats.paths_renewed), "in twenty seconds: {}", stats.paths_renewed);
    assert!(stats.violations >= 1_000, "there is no path 9");
    assert_eq!(state(&rig.wire, 1, 0), PathState::Good);
    rig.settle();
}

#[test]
fn ports_that_go_dark_and_light_up_at_random_lose_nothing_and_no_path_for_good() {
    for seed in 80..86 {
        let tune = |config: LinkConfig| config.dark_quarantines(1);
        let mut rig = Rig::new(seed, &[Uc, Uc, Uc, Uc, Tcp], tune);
        rig.wire.faults = Faults { drop: 0.01, duplicate: 0.01, late: 0.01, corrupt: 0.001 };
        let mut prng = Prng::new(seed);
        for _ in 0..12 {
            for to in 0..2 {
                // Half of all ports on average, or none; TCP has a way of its own.
                let dark = if prng.chance(0.7) { prng.next_u64() } else { 0 };
                rig.wire.holes[to] = dark & !(1 << 4);
            }
            rig.run(MS.saturating_mul(prng.between(300, 8_000)));
        }
        rig.wire.holes = [0; 2];
        rig.wire.faults = Faults::default();
        let [near, far] = [0, 1].map(|at| rig.stats(at));
        println!("asked {} and {}", near.renewals_asked, far.renewals_asked);
        assert!(near.renewals_asked + far.renewals_asked >= 3, "{near:?}");
        assert!(near.paths_renewed.abs_diff(far.paths_renewed) <= 4, "one after the other");
        // Nothing is held against ways that work for longer than their quarantine.
        rig.run(Nanos::from_secs(140));
        for at in 0..2 {
            let paths: Vec<_> = rig.wire.ends[at].link.paths().collect();
            assert!(paths.iter().all(|path| path.state == PathState::Good), "{at}: {paths:?}");
            assert_eq!(rig.wire.ends[at].link.carrier(), Uc, "{at}");
        }
        rig.settle();
    }
}
