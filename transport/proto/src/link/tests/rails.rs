//! Several NICs: what is not known to work is probed, and one that goes away costs an SLA timer.

use super::paths::{EACH, send, state, tick, trickle};
use super::*;
use crate::config::Spreading;
use crate::path::PathState;
use crate::rails::Rails;

/// The paths of the client's two NICs: 4 between two NICs at each end join them in all ways.
const FIRST: u64 = 0b0101;
const SECOND: u64 = 0b1010;

fn two(config: LinkConfig) -> LinkConfig {
    config.rails(Rails::new(2, 2)).source_ports(64)
}

/// A link of four paths between two NICs at each end.
fn begin(seed: u64, spreading: Spreading, tune: impl Fn(LinkConfig) -> LinkConfig) -> Wire {
    println!("seed {seed} {spreading:?}");
    let tune = |config| tune(two(config).spreading(spreading).seed(seed));
    let mut wire = Wire::with_paths(seed, Faults::default(), 4, tune);
    for at in 0..2 {
        let ports = wire.ends[at].link.paths().map(|path| path.source_port);
        ports.enumerate().for_each(|(path, port)| wire.ports[at][path] = port);
    }
    wire
}

fn open(seed: u64) -> (Wire, ChannelId) {
    let mut wire = begin(seed, EACH, |config| config);
    let channel = wire.open_channel(0, seed.is_multiple_of(2));
    trickle(&mut wire, channel, 0, tick(8));
    wire.run_until(Wire::settled);
    (wire, channel)
}

#[test]
fn paths_of_another_nic_are_probed_before_they_are_used() {
    let mut wire = begin(1, EACH, |config| config);
    wire.trace = Some(Vec::new());
    assert_eq!(
        [0, 1, 2, 3].map(|path| state(&wire, 0, path) == PathState::Good),
        [true, false, false, false]
    );
    let channel = wire.open_channel(0, true);
    trickle(&mut wire, channel, 0, tick(8));
    wire.run_until(Wire::settled);
    for path in 0..4 {
        assert_eq!(state(&wire, 0, path), PathState::Good, "path {path}");
    }
    for at in 0..2 {
        for path in 1..4 {
            let of_path = wire.trace.as_ref().unwrap().iter();
            let of_path = of_path.filter(|&&(_, by, on, _)| (by, on.0) == (at, path));
            let kinds: Vec<u8> = of_path.map(|(_, _, _, header)| header[1]).take(3).collect();
            assert_eq!(kinds, [crate::wire::Kind::Probe as u8; 3], "end {at}, path {path}");
        }
    }
    let ports: Vec<u16> = wire.ends[0].link.paths().map(|path| path.source_port).collect();
    assert_eq!(ports, [0, 33, 2, 35]);
}

#[test]
fn a_nic_that_is_not_there_at_first_is_used_when_it_comes_up() {
    for seed in 0..20 {
        let mut wire = begin(seed, EACH, |config| config);
        wire.down = SECOND;
        let channel = wire.open_channel(0, true);
        trickle(&mut wire, channel, 0, Nanos::from_millis(200));
        let stats = wire.ends[0].link.stats();
        assert_eq!(stats.chunks_retransmitted, 0, "nothing was trusted to it: {stats:?}");
        assert!(wire.ends[0].link.paths().skip(1).step_by(2).all(|p| p.state != PathState::Good));
        wire.down = 0;
        trickle(&mut wire, channel, 1_000, Nanos::from_secs(4));
        assert!(wire.ends[0].link.paths().all(|path| path.state == PathState::Good));
        wire.run_until(Wire::settled);
    }
}

#[test]
fn a_nic_that_dies_under_load_and_comes_back_costs_a_few_ticks_and_no_message() {
    for seed in 0..40 {
        for gone in [FIRST, SECOND] {
            let (mut wire, channel) = open(seed);
            let before = wire.ends[1].received.len();
            // Half of it is under way when the NIC goes.
            send(&mut wire, channel, 1_000..1_016, 40_000);
            wire.run_for(Nanos::from_micros(20));
            wire.down = gone;
            let start = wire.now;
            wire.run_until(|wire| wire.ends[0].sending.is_empty());
            let took = wire.now.since(start);
            assert!(took < tick(6), "seed {seed}, NIC {gone:#b}: {took}");
            trickle(&mut wire, channel, 2_000, Nanos::from_millis(100));
            wire.down = 0;
            trickle(&mut wire, channel, 3_000, Nanos::from_secs(5));
            wire.run_until(Wire::settled);
            assert_eq!(wire.ends[1].received.len() - before, 16 + 100 + 5_000);
            assert!(wire.ends[0].link.paths().all(|path| path.state == PathState::Good));
        }
    }
}

#[test]
fn a_path_keeps_to_the_source_ports_of_its_nic() {
    for seed in 0..20 {
        let (mut wire, channel) = open(seed);
        wire.down = SECOND;
        trickle(&mut wire, channel, 1_000, Nanos::from_secs(3));
        let paths: Vec<_> = wire.ends[0].link.paths().collect();
        assert!(paths.iter().any(|path| path.moves > 0), "another way of that NIC is tried");
        for (index, path) in paths.iter().enumerate() {
            assert_eq!(path.source_port / 32, index as u16 % 2, "path {index}");
        }
    }
}

#[test]
fn unlike_nics_carry_what_each_can() {
    // The second NIC of the server takes a quarter of what its first does.
    let window = "fixed:1MiB".parse().unwrap();
    let mut wire = begin(3, Spreading::default(), |config| config.controller(window));
    let channel = wire.open_channel(0, false);
    trickle(&mut wire, channel, 0, tick(8));
    wire.byte_ns = core::array::from_fn(|path| if path % 2 == 0 { 1 } else { 4 });
    let before: Vec<u64> = wire.ends[0].link.paths().map(|path| path.sent).collect();
    send(&mut wire, channel, 1_000..1_200, 400_000);
    wire.run_until(Wire::settled);
    let sent = wire.ends[0].link.paths().zip(before).map(|(path, before)| path.sent - before);
    let sent: Vec<u64> = sent.collect();
    let (first, second) = (sent[0] + sent[2], sent[1] + sent[3]);
    assert!(first > second + second / 4 && second > first / 8, "{sent:?}");
}

#[test]
fn a_server_sends_to_each_address_only_after_something_came_from_there() {
    let short = Nanos::from_millis(500);
    let mut wire = begin(1, EACH, |config| config.checks_address(true).fallback(short, short));
    wire.trace = Some(Vec::new());
    // The client is only where it says with its second NIC.
    wire.down = FIRST;
    let channel = wire.open_channel(0, true);
    for token in 0..50 {
        wire.ends[1].send(channel, token, vec![7; 5_000], Time::NEVER);
        wire.run_for(Nanos::from_millis(10));
    }
    assert_eq!(wire.ends[0].received.len(), 50);
    let trace = wire.trace.as_ref().unwrap();
    let astray = trace.iter().filter(|&&(_, at, path, _)| at == 1 && FIRST & 1 << path.0 != 0);
    assert_eq!(astray.count(), 0);
    let may: Vec<bool> = (0..4).map(|path| wire.ends[1].link.may_send_to(PathId(path))).collect();
    assert_eq!(may, [false, true, false, true]);
    assert_eq!(wire.control_acks[1], 0, "that queue pair leads to the first address");
}
