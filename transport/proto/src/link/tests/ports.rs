//! Paths that go on from another source port: where the device can, no way is lost for good.

use super::paths::{EACH, send, state, tick, trickle};
use super::*;
use crate::limits::PATHS_MAX;
use crate::path::PathState;

/// Source ports of the device: four times as many as the wire has ways.
const PORTS: u16 = 64;

/// The network has 16 ways, and a port takes one of them.
fn ports_of_ways(ways: u16) -> u64 {
    (0..PORTS).filter(|port| ways & 1 << (port % 16) != 0).fold(0, |ports, port| ports | 1 << port)
}

/// A link of so many paths over a network without faults, on which some messages have come.
pub(super) fn open(seed: u64, paths: u32) -> (Wire, ChannelId) {
    println!("seed {seed} paths {paths}");
    let tune = |config: LinkConfig| config.spreading(EACH).seed(seed).source_ports(PORTS);
    let mut wire = Wire::with_paths(seed, Faults::default(), paths, tune);
    let channel = wire.open_channel(0, seed.is_multiple_of(2));
    send(&mut wire, channel, 0..64, 10_000);
    wire.run_until(Wire::settled);
    (wire, channel)
}

/// How long messages take that are sent now.
fn time_of(wire: &mut Wire, channel: ChannelId, tokens: core::ops::Range<u64>) -> Nanos {
    let start = wire.now;
    send(wire, channel, tokens, 10_000);
    wire.run_until(|wire| wire.ends[0].sending.is_empty());
    wire.now.since(start)
}

#[test]
fn a_dead_path_goes_on_from_another_port_within_a_tenth_of_a_second() {
    for seed in 0..20 {
        let (mut wire, channel) = open(seed, 4);
        wire.holes[1] = 1 << 2;
        trickle(&mut wire, channel, 100, Nanos::from_millis(100));
        let path = wire.ends[0].link.paths().nth(2).unwrap();
        assert_eq!((path.state, path.moves, path.quarantines), (PathState::Good, 1, 1));
        assert!(path.source_port >= 4, "a port that no other path takes: {}", path.source_port);
        let stats = wire.ends[0].link.stats();
        assert_eq!((stats.path_doubts, stats.path_retirements, stats.path_moves), (1, 1, 1));
        wire.run_until(Wire::settled);
    }
}

#[test]
fn a_path_that_dies_on_its_next_port_too_rests_before_it_takes_a_third() {
    let (mut wire, channel) = open(3, 4);
    // Whatever it takes next swallows, but for the ports of the others.
    wire.holes[1] = !0b1011;
    trickle(&mut wire, channel, 100, Nanos::from_millis(900));
    assert_eq!(state(&wire, 0, 2), PathState::Dead);
    assert_eq!(wire.ends[0].link.stats().path_moves, 1);
    wire.holes[1] = 1 << 2;
    trickle(&mut wire, channel, 2_000, Nanos::from_secs(3));
    assert_eq!(state(&wire, 0, 2), PathState::Good);
    assert_eq!(wire.ends[0].link.stats().path_moves, 2);
}

#[test]
fn the_only_way_that_is_left_is_found_from_ports_that_no_path_had() {
    for seed in 0..40 {
        let (mut wire, channel) = open(seed, 4);
        let alive = 1 << (4 + seed % 12);
        wire.holes = [0, ports_of_ways(!alive)];
        let took = time_of(&mut wire, channel, 100..108);
        assert!(took < Nanos::from_millis(500), "seed {seed}: {took}");
        trickle(&mut wire, channel, 200, Nanos::from_millis(500));
        let good = wire.ends[0].link.paths().find(|path| path.state == PathState::Good);
        let port = good.expect("the way that works is used").source_port;
        assert_ne!(1 << (port % 16) & alive, 0, "seed {seed}: port {port}");
    }
}

#[test]
fn a_port_that_rests_is_found_when_it_is_the_only_one_that_leads_anywhere() {
    for seed in 0..40 {
        println!("seed {seed}");
        let tune = |config: LinkConfig| config.spreading(EACH).seed(seed).source_ports(16);
        let mut wire = Wire::with_paths(seed, Faults::default(), 4, tune);
        let channel = wire.open_channel(0, true);
        send(&mut wire, channel, 0..64, 10_000);
        wire.run_until(Wire::settled);
        wire.holes[1] = 1 << 2;
        trickle(&mut wire, channel, 100, Nanos::from_millis(100));
        assert_ne!(wire.ends[0].link.paths().nth(2).unwrap().source_port, 2);
        wire.holes[1] = !(1 << 2);
        let took = time_of(&mut wire, channel, 300..308);
        assert!(took < Nanos::from_secs(3), "seed {seed}: {took}");
    }
}

#[test]
fn an_only_path_leaves_a_black_hole_by_another_port() {
    let mut longest = Nanos::ZERO;
    for seed in 0..40 {
        let (mut wire, channel) = open(seed, 1);
        wire.holes[1] = ports_of_ways(1);
        let took = time_of(&mut wire, channel, 100..108);
        assert!(wire.ends[0].link.stats().path_moves >= 1);
        longest = longest.max(took);
    }
    assert!(longest < tick(6), "{longest}");
}

#[test]
fn an_only_path_finds_the_only_way_that_is_left() {
    for seed in 0..40 {
        let (mut wire, channel) = open(seed, 1);
        wire.holes[1] = ports_of_ways(!(1 << 7));
        let took = time_of(&mut wire, channel, 100..108);
        assert!(took < Nanos::from_secs(5), "seed {seed}: {took}");
        assert!(wire.ends.iter().all(|end| end.down.is_none()));
    }
}

#[test]
fn the_queue_pair_of_acks_goes_where_the_first_path_goes_that_is_made_anew() {
    use crate::Carrier::{Rc, Tcp};
    for keeps in [false, true] {
        let tune =
            |config: LinkConfig| config.spreading(EACH).source_ports(PORTS).keeps_ports(keeps);
        let mut wire = Wire::with_carriers(9, Faults::default(), &[Rc, Rc, Tcp], tune);
        wire.renews = true;
        let channel = wire.open_channel(0, true);
        // Why one of RC fails is not told: it may be its port.
        let now = wire.now;
        wire.ends[0].link.path_failed(now, PathId(0));
        trickle(&mut wire, channel, 0, Nanos::from_millis(500));
        let (near, left) = (&wire.ports[0], wire.ends[0].link.control.has_left);
        assert_eq!(state(&wire, 0, 0), PathState::Good);
        assert_eq!(wire.ends[0].link.stats().path_moves, 1);
        assert_ne!(near[0], 0);
        assert_eq!((near[PATHS_MAX] == near[0], left), (!keeps, keeps));
        assert_eq!(wire.ends[0].link.ack_route(now, 0).0.is_some(), keeps);
        wire.run_until(Wire::settled);
    }
}

#[test]
fn a_link_whose_queue_pair_of_acks_fails_at_one_end_goes_on_without_it() {
    for paths in [1, 2, 8] {
        let (mut wire, channel) = open(1, paths);
        // What the peer sends to it is gone.
        wire.ports[1][PATHS_MAX] = 63;
        wire.holes[0] = 1 << 63;
        for _ in 0..3 {
            wire.ends[0].link.acks_failed();
        }
        let took = time_of(&mut wire, channel, 100..108);
        assert!(took < tick(1), "{paths} paths: {took}");
        for at in [1, 0, 1, 0] {
            let bytes = vec![7; 100_000];
            wire.ends[at].send(channel, 200 + wire.now.0, bytes, Time::NEVER);
            wire.run_until(Wire::settled);
        }
        trickle(&mut wire, channel, 1_000, Nanos::from_secs(3));
        wire.run_until(Wire::settled);
        for end in &wire.ends {
            let stats = end.link.stats();
            assert_eq!((stats.path_doubts, stats.ack_reroutes, stats.violations), (0, 0, 0));
            assert_eq!((stats.paths_failed, end.down), (0, None));
        }
    }
}

#[test]
fn acks_of_an_only_path_that_are_swallowed_leave_from_another_port() {
    for seed in 0..40 {
        let (mut wire, channel) = open(seed, 1);
        wire.holes[0] = ports_of_ways(1);
        let took = time_of(&mut wire, channel, 100..108);
        assert!(took < tick(8), "seed {seed}: {took}");
        let (sender, receiver) = (wire.ends[0].link.stats(), wire.ends[1].link.stats());
        assert!(receiver.ack_reroutes >= 1, "{receiver:?}");
        assert_eq!(receiver.path_moves, receiver.ack_reroutes);
        assert!(sender.path_moves <= 1, "the sender's way was sound: {sender:?}");
    }
}

#[test]
fn while_acks_arrive_no_more_than_one_path_a_second_changes_its_port() {
    for seed in 0..10 {
        let (mut wire, channel) = open(seed, 8);
        // Half of all ways, in one direction and then also in the other.
        wire.holes[1] = ports_of_ways(0xff00 | 0x0f);
        let before = wire.moves.len();
        trickle(&mut wire, channel, 100, Nanos::from_secs(6));
        let at: Vec<Time> = wire.moves[before..].iter().filter(|m| m.1 == 0).map(|m| m.0).collect();
        let gaps = at.windows(2).map(|pair| pair[1].since(pair[0]));
        assert!(at.len() >= 2 && gaps.min() >= Some(Nanos::from_secs(1)), "seed {seed}: {at:?}");
    }
}

#[test]
fn acks_of_an_only_path_are_missed_soon_however_many_chunks_take_turns_to_come_again() {
    for seed in 0..10 {
        let (mut wire, channel) = open(seed, 1);
        wire.holes[0] = ports_of_ways(1);
        send(&mut wire, channel, 100..200, 3_000);
        let start = wire.now;
        wire.run_until(|wire| wire.ends[0].sending.is_empty());
        let took = wire.now.since(start);
        assert!(took < tick(8), "seed {seed}: {took}");
    }
}

/// Twenty messages leave while nothing comes through for `span`; then all of them arrive.
fn pause(wire: &mut Wire, channel: ChannelId, round: u64, span: Nanos) {
    wire.holes = [u64::MAX; 2];
    send(wire, channel, 100 + 20 * round..120 + 20 * round, 10_000);
    wire.run_for(span);
    wire.holes = [0; 2];
    wire.run_until(Wire::settled);
}

#[test]
fn a_peer_that_is_silent_for_two_ticks_costs_ports_but_no_path() {
    let (mut wire, channel) = open(9, 4);
    for round in 0..10 {
        pause(&mut wire, channel, round, Nanos::from_millis(8));
    }
    for end in &wire.ends {
        assert_eq!(end.link.stats().path_retirements, 0, "{:?}", end.moves);
    }
    assert!(wire.moves.len() <= 10 * 3 * 2, "one is kept: {}", wire.moves.len());
}

#[test]
fn a_driver_that_cannot_move_a_path_is_asked_once_and_then_makes_other_queue_pairs() {
    let (mut wire, channel) = open(5, 4);
    wire.renews = true;
    let before = wire.moves.len();
    wire.ends[0].link.pin_ports();
    wire.holes[1] = 1 << 1;
    trickle(&mut wire, channel, 100, Nanos::from_secs(3));
    assert_eq!(wire.moves.len(), before, "no queue pair that runs goes elsewhere");
    let path = wire.ends[0].link.paths().nth(1).unwrap();
    assert_eq!((path.state, path.moves, path.renewals), (PathState::Good, 1, 1));
    assert_eq!(wire.ports[0][1], path.source_port);
}

/// Eight paths that keep their ports, of which four are held back.
fn open_with_spares(seed: u64) -> (Wire, ChannelId) {
    println!("seed {seed}");
    let tune = |config: LinkConfig| config.spreading(EACH).seed(seed).spare_paths(4);
    let mut wire = Wire::with_paths(seed, Faults::default(), 8, tune);
    let channel = wire.open_channel(0, true);
    send(&mut wire, channel, 0..64, 10_000);
    wire.run_until(Wire::settled);
    let is_held_back = |path: crate::PathSnapshot| path.state == PathState::Spare && path.sent == 0;
    assert!(wire.ends[0].link.paths().skip(4).all(is_held_back));
    (wire, channel)
}

#[test]
fn a_spare_path_takes_the_place_of_one_that_died() {
    for seed in 0..20 {
        let (mut wire, channel) = open_with_spares(seed);
        wire.holes[1] = 1 << 2;
        trickle(&mut wire, channel, 100, Nanos::from_millis(100));
        assert_eq!(state(&wire, 0, 2), PathState::Dead);
        assert_eq!(state(&wire, 0, 4), PathState::Good);
        assert_eq!(state(&wire, 0, 5), PathState::Spare, "one for one");
        wire.holes[1] = 0;
        trickle(&mut wire, channel, 300, Nanos::from_millis(1_500));
        assert_eq!(state(&wire, 0, 2), PathState::Spare, "as many work as are used");
        wire.run_until(Wire::settled);
    }
}

#[test]
fn spares_are_found_when_all_paths_in_use_die_at_once() {
    for seed in 0..20 {
        let (mut wire, channel) = open_with_spares(seed);
        wire.holes = [0xff & !(1 << 6); 2];
        let took = time_of(&mut wire, channel, 100..108);
        assert!(took < Nanos::from_millis(50), "seed {seed}: {took}");
        trickle(&mut wire, channel, 200, Nanos::from_millis(200));
        assert_eq!(state(&wire, 0, 6), PathState::Good);
    }
}

#[test]
fn a_pause_of_the_peer_leaves_spares_where_they_are() {
    for seed in 0..20 {
        let (mut wire, channel) = open_with_spares(seed);
        for round in 0..10 {
            pause(&mut wire, channel, round, Nanos::from_millis(30));
            trickle(&mut wire, channel, 1_000 + 100 * round, Nanos::from_millis(30));
        }
        let states: Vec<PathState> = wire.ends[0].link.paths().map(|path| path.state).collect();
        let spares = states.iter().filter(|&&state| state == PathState::Spare);
        assert_eq!(spares.count(), 4, "seed {seed}: {states:?}");
    }
}
