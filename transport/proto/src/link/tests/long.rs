//! Ways that swallow long packets and bring short ones.

use super::*;
use crate::Carrier;
use towpath_verbs::Mtu;

/// What such a way carries: a packet of the next smaller MTU, with its headers.
const CARRIED: usize = 2_100;

/// Pairs of probes, and the silence before them (`limits.rs`).
const FOUND_WITHIN: Nanos = Nanos::from_secs(3);

const LOST: DownReason = DownReason::LongPacketsLost { mtu: Mtu::Mtu4096 };

fn long_message(wire: &mut Wire, channel: ChannelId) {
    wire.ends[0].send(channel, 7, vec![7; 100_000], Time::NEVER);
}

#[test]
fn a_way_that_swallows_long_packets_ends_the_link_soon_and_by_its_name() {
    for (seed, paths) in [(1, 1), (2, 1), (3, 4), (4, 4)] {
        println!("seed {seed}, {paths} paths");
        let mut wire = Wire::with_paths(seed, Faults::default(), paths, |config| config);
        let channel = wire.open_channel(0, true);
        wire.longest[1] = CARRIED;
        long_message(&mut wire, channel);
        let start = wire.now;
        wire.run_until(|wire| wire.ends[0].down.is_some());
        assert_eq!(wire.ends[0].down, Some(LOST));
        assert!(wire.now.since(start) < FOUND_WITHIN, "{}", wire.now.since(start));
        assert_eq!(wire.ends[0].link.stats().long_packets_lost, 1);
    }
}

#[test]
fn short_messages_that_get_through_all_the_time_do_not_hide_it() {
    let seed = 5;
    println!("seed {seed}");
    let (mut wire, channel) = Wire::open(seed, Faults::default(), false);
    wire.longest[1] = CARRIED;
    long_message(&mut wire, channel);
    let mut token = 100;
    while wire.ends[0].down.is_none() && wire.now < Time::ZERO + FOUND_WITHIN {
        wire.ends[0].send(channel, token, vec![1; 200], Time::NEVER);
        token += 1;
        let until = wire.now + Nanos::from_millis(1);
        wire.run_until(|wire| wire.now >= until || wire.ends[0].down.is_some());
    }
    assert_eq!(wire.ends[0].down, Some(LOST));
}

#[test]
fn loss_that_does_not_look_at_lengths_is_not_taken_for_it() {
    for seed in 0..40 {
        let drop = 0.1 + 0.5 * (seed % 6) as f64 / 5.0;
        println!("seed {seed}, drop {drop}");
        let (mut wire, channel) = Wire::open(seed, Faults { drop, ..Faults::default() }, true);
        for token in 0..20 {
            wire.ends[0].send(channel, token, vec![1; 60_000], Time::NEVER);
        }
        let end = wire.now + Nanos::from_secs(20);
        wire.run_until(|wire| wire.now >= end || wire.ends[0].sending.is_empty());
        assert_eq!(wire.ends[0].link.stats().long_packets_lost, 0);
        assert_ne!(wire.ends[0].down, Some(LOST));
    }
}

#[test]
fn a_way_that_carries_nothing_is_silent_and_not_too_narrow() {
    let seed = 6;
    println!("seed {seed}");
    let (mut wire, channel) = Wire::open(seed, Faults::default(), true);
    wire.longest = [0; 2];
    long_message(&mut wire, channel);
    wire.run_until(|wire| wire.ends[0].down.is_some());
    let reason = wire.ends[0].down;
    assert!(matches!(reason, Some(DownReason::Silent(_))), "{reason:?}");
}

#[test]
fn a_way_that_is_narrow_for_half_a_second_ends_nothing() {
    let seed = 7;
    println!("seed {seed}");
    let (mut wire, channel) = Wire::open(seed, Faults::default(), true);
    wire.longest[1] = CARRIED;
    long_message(&mut wire, channel);
    let until = wire.now + Nanos::from_millis(500);
    wire.run_until(|wire| wire.now >= until);
    wire.longest[1] = usize::MAX;
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[1].received.len(), 1);
    assert_eq!(wire.ends[0].link.stats().long_packets_lost, 0);
}

#[test]
fn a_link_that_can_goes_to_tcp_instead_and_delivers() {
    let seed = 8;
    println!("seed {seed}");
    let carriers = [Carrier::Uc, Carrier::Tcp];
    let mut wire = Wire::with_carriers(seed, Faults::default(), &carriers, |config| config);
    let channel = wire.open_channel(0, true);
    wire.longest[1] = CARRIED;
    long_message(&mut wire, channel);
    wire.run_until(Wire::settled);
    let stats = wire.ends[0].link.stats();
    assert_eq!((wire.ends[1].received.len(), wire.ends[0].down), (1, None));
    assert!(stats.long_packets_lost > 0 && stats.carrier_falls > 0, "{stats:?}");
}

#[test]
fn a_link_that_went_to_tcp_for_it_stays_there() {
    let seed = 9;
    println!("seed {seed}");
    let carriers = [Carrier::Uc, Carrier::Tcp];
    let mut wire = Wire::with_carriers(seed, Faults::default(), &carriers, |config| config);
    let channel = wire.open_channel(0, true);
    wire.longest[1] = CARRIED;
    for count in 1..4 {
        long_message(&mut wire, channel);
        wire.run_until(|wire| wire.ends[1].received.len() == count);
        // Longer than the stay on a worse carrier.
        wire.run_for(Nanos::from_secs(3));
    }
    let link = &wire.ends[0].link;
    let stats = link.stats();
    assert_eq!((link.carrier(), stats.long_packets_lost), (Carrier::Tcp, 1), "{stats:?}");
}
