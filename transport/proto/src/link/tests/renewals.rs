//! Ports that swallow what is sent, for longer than other paths or carriers can tell.

use super::control::Control;
use super::paths::EACH;
use super::*;
use crate::Carrier::{self, Tcp, Uc};
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
    fn new(seed: u64, carriers: &[Carrier], keeps_ports: bool) -> Self {
        println!("seed {seed}, {carriers:?}");
        let tune = |config: LinkConfig| {
            let config = config.spreading(EACH).seed(seed).source_ports(PORTS);
            config.keeps_ports(keeps_ports)
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
fn a_carrier_that_was_left_because_all_its_ports_are_dark_is_found_again_on_others() {
    for seed in 50..58 {
        let mut rig = Rig::new(seed, &[Uc, Uc, Tcp], false);
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
        assert!(rig.stats(0).path_moves > 0);
        rig.settle();
    }
}

#[test]
fn where_ports_are_kept_a_path_that_dies_leaves_from_another_by_a_new_queue_pair() {
    for seed in 100..110 {
        let mut rig = Rig::new(seed, &FOUR, true);
        rig.wire.holes[1] = 1 << 2;
        rig.run(MS.saturating_mul(500));
        let path = rig.wire.ends[0].link.paths().nth(2).unwrap();
        assert_eq!((path.state, path.quarantines), (PathState::Good, 1));
        assert_eq!((path.moves, path.renewals), (1, 1));
        assert!(path.source_port >= 4, "a port that no other path takes: {}", path.source_port);
        let ports = [0, 1].map(|at| rig.wire.ports[at][2]);
        assert_eq!(ports, [path.source_port, 2], "the peer's way was sound");
        let stats = rig.stats(0);
        assert_eq!((stats.path_retirements, stats.path_moves, stats.paths_failed), (1, 1, 0));
        rig.settle();
    }
}

#[test]
fn where_ports_are_kept_a_path_that_dies_on_its_next_port_too_rests_before_it_takes_a_third() {
    let mut rig = Rig::new(110, &FOUR, true);
    rig.wire.holes[1] = !0b1011;
    rig.run(MS.saturating_mul(900));
    assert_eq!(rig.stats(0).path_moves, 1);
    rig.wire.holes[1] = 0b100;
    rig.run(Nanos::from_secs(4));
    let path = rig.wire.ends[0].link.paths().nth(2).unwrap();
    assert_eq!((path.state, path.moves, path.renewals), (PathState::Good, 2, 2));
    rig.settle();
}

#[test]
fn a_path_that_only_the_peer_gets_through_on_keeps_its_queue_pair() {
    for seed in 120..126 {
        let mut rig = Rig::new(seed, &[Uc; 2], true);
        // Each end has one way, and not the same.
        rig.wire.holes = [1 << 0, 1 << 1];
        rig.run(Nanos::from_secs(4));
        for at in 0..2 {
            assert_eq!((rig.stats(at).paths_renewed, rig.stats(at).paths_failed), (0, 0));
            assert!(rig.ways(at) >= 1, "end {at}");
        }
        rig.settle();
    }
}

#[test]
fn packets_lost_at_random_and_a_peer_that_pauses_cost_no_queue_pair() {
    let mut rig = Rig::new(60, &FOUR, true);
    rig.wire.faults = Faults { drop: 0.05, ..Faults::default() };
    for round in 0..20 {
        rig.wire.holes = if round % 4 == 0 { [u64::MAX; 2] } else { [0; 2] };
        rig.run(MS.saturating_mul(500));
    }
    rig.wire.holes = [0; 2];
    for at in 0..2 {
        assert_eq!((rig.stats(at).paths_renewed, rig.stats(at).paths_failed), (0, 0));
    }
    rig.settle();
}

#[test]
fn a_peer_that_tells_of_no_life_or_no_path_ends_no_queue_pair() {
    let mut rig = Rig::new(70, &FOUR, true);
    for _ in 0..100 {
        for path in [1, 2, 3, 9] {
            let told = Control::of(Kind::Renew, path);
            rig.wire.ends[0].link.control.push(told);
        }
        rig.run(MS.saturating_mul(20));
    }
    let stats = rig.stats(1);
    assert_eq!((stats.violations, stats.paths_failed, stats.paths_renewed), (400, 0, 0));
    rig.settle();
}

#[test]
fn ports_that_go_dark_and_light_up_at_random_lose_nothing_and_no_path_for_good() {
    for seed in 80..86 {
        let mut rig = Rig::new(seed, &[Uc, Uc, Uc, Uc, Tcp], seed % 2 == 0);
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
