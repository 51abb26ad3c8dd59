//! Trains take the time of their packets, timers and wake-ups come in order, seeds replay.

mod common;

use common::fabric::{numbers, run, send, send_train, settle, slow_cable, slow_host, slow_pod};
use towpath_base::{Nanos, Prng, Time};
use towpath_sim::{
    CableConfig, Change, FaultPlan, Health, HostConfig, HostDelay, HostId, LeafSpine, PfcConfig,
    Star, SwitchConfig, World,
};

/// When the last of `packets` packets comes in, sent as packets or as a train.
fn last_arrival(host_rates: [u64; 2], uplink_rate: u64, packets: u32, as_train: bool) -> u64 {
    let world = World::new(1);
    let uplink = CableConfig { rate_bits_per_s: uplink_rate, ..slow_cable() };
    let pod = LeafSpine { leaves: 2, hosts_per_leaf: 1, uplink, ..slow_pod() };
    let hosts = pod
        .build_with(&world, |n| HostConfig { rate_bits_per_s: host_rates[n], ..slow_host() })
        .hosts;
    if as_train {
        assert!(send_train(&world, [hosts[0], hosts[1]], packets, 500, 7));
    } else {
        for number in 0..packets {
            assert!(send(&world, [hosts[0], hosts[1]], 0, number, 500));
        }
    }
    settle(&world).last().expect("something came in").timestamp.0
}

#[test]
fn a_train_arrives_when_the_last_of_its_packets_would_at_any_mix_of_rates() {
    let gb = 1_000_000_000;
    for rates in [[1, 1, 1], [1, 4, 1], [4, 1, 4], [1, 3, 7], [7, 3, 1], [3, 1, 2], [2, 5, 3]] {
        for packets in [1, 2, 16, 100] {
            let [near, far, uplink] = rates.map(|rate| rate * gb);
            let arrivals =
                [false, true].map(|as_train| last_arrival([near, far], uplink, packets, as_train));
            // A nanosecond a hop for rounding.
            assert!(arrivals[0].abs_diff(arrivals[1]) <= 4, "{rates:?} {packets} {arrivals:?}");
        }
    }
}

#[test]
fn a_train_costs_one_event_a_hop_where_rates_are_equal() {
    let world = World::new(1);
    let uplink = CableConfig { rate_bits_per_s: 1_000_000_000, ..slow_cable() };
    let hosts = LeafSpine { uplink, ..slow_pod() }.build(&world).hosts;
    assert!(send_train(&world, [hosts[0], hosts[9]], 100, 500, 7));
    settle(&world);
    assert_eq!(world.counters().events, 4);
}

#[test]
fn a_slow_train_leaves_a_faster_cable_to_others_meanwhile() {
    let world = World::new(1);
    let shape = LeafSpine { leaves: 2, hosts_per_leaf: 4, spines: 1, ..slow_pod() };
    let uplink = CableConfig { rate_bits_per_s: 4_000_000_000, ..slow_cable() };
    let hosts = LeafSpine { uplink, ..shape }.build(&world).hosts;
    // Four senders at 1 Gb/s fill 4 Gb/s between the leaves, to a receiver each.
    for sender in 0..4 {
        for round in 0..10 {
            assert!(send_train(&world, [hosts[sender], hosts[4 + sender]], 10, 500, round));
        }
    }
    let seen = settle(&world);
    assert_eq!(seen.len(), 40);
    let sending = 10 * 10 * 500 * 8;
    // All cables once, and a wait for the trains of the three others: 10 us each, twice.
    let crossing = 3_000 + 10_000 + 2 * 30_000;
    assert!(world.now() <= Time(sending + crossing), "{:?}", world.now());
}

#[test]
fn each_host_has_one_timer_that_can_be_set_anew_in_both_directions() {
    let world = World::new(1);
    let hosts = Star { hosts: 3, ..Star::default() }.build(&world).hosts;
    world.set_timer(hosts[0], Time(1_000));
    world.set_timer(hosts[1], Time(500));
    world.set_timer(hosts[2], Time(700));
    world.set_timer(hosts[0], Time(3_000));
    world.set_timer(hosts[1], Time(200));
    world.set_timer(hosts[2], Time::NEVER);
    world.set_timer(hosts[1], Time(600));
    let mut fired = Vec::new();
    let mut woken = Vec::new();
    while world.advance_to_next(Time::NEVER, &mut woken) {
        fired.extend(woken.drain(..).map(|host| (world.now(), host)));
    }
    assert_eq!(fired, [(Time(600), hosts[1]), (Time(3_000), hosts[0])]);
}

#[test]
fn timers_that_are_set_again_and_again_fire_as_the_last_call_says_and_leave_nothing_behind() {
    let world = World::new(1);
    let hosts = Star { hosts: 8, ..Star::default() }.build(&world).hosts;
    let (mut prng, mut due) = (Prng::new(11), [Time::NEVER; 8]);
    let mut woken = Vec::new();
    for _ in 0..5_000 {
        let host = prng.below(8) as usize;
        due[host] = world.now() + Nanos(prng.below(2_000));
        world.set_timer(hosts[host], due[host]);
        let limit = world.now() + Nanos(prng.below(300));
        while world.advance_to_next(limit, &mut woken) {
            for host in woken.drain(..) {
                let host = hosts.iter().position(|other| *other == host).expect("a host");
                assert_eq!(due[host], world.now());
                due[host] = Time::NEVER;
            }
        }
        assert!(due.iter().all(|due| *due > world.now()), "none was missed");
    }
    hosts.iter().for_each(|host| world.set_timer(*host, Time::NEVER));
    let events = world.counters().events;
    assert!(!world.advance_to_next(Time::NEVER, &mut woken));
    assert!(world.counters().events - events < 100, "few stale events were left");
}

#[test]
fn hosts_are_woken_once_an_instant_in_the_order_of_what_woke_them() {
    let world = World::new(1);
    let host = HostConfig { rate_bits_per_s: 0, delay: Nanos(100), ..slow_host() };
    let hosts = Star { hosts: 4, host, ..Star::default() }.build(&world).hosts;
    for to in [2, 1, 2, 3] {
        assert!(send(&world, [hosts[0], hosts[to]], 0, 0, 100));
    }
    world.set_timer(hosts[0], Time(200));
    let mut woken = Vec::new();
    assert!(world.advance_to_next(Time::NEVER, &mut woken));
    // The timer was set before the packets came to the switch and went on.
    assert_eq!((world.now(), woken), (Time(200), vec![hosts[0], hosts[2], hosts[1], hosts[3]]));
}

#[test]
fn time_stops_at_the_limit_when_nobody_has_anything_to_do() {
    let world = World::new(1);
    let hosts = Star { hosts: 2, ..Star::default() }.build(&world).hosts;
    let mut woken = Vec::new();
    assert!(!world.advance_to_next(Time(400), &mut woken));
    assert_eq!(world.now(), Time(400));
    assert!(send(&world, [hosts[0], hosts[1]], 0, 0, 100));
    assert!(!world.advance_to_next(Time(900), &mut woken));
    assert_eq!((world.now(), woken.len()), (Time(900), 0));
    assert!(!world.advance_to_next(Time(100), &mut woken));
    assert_eq!(world.now(), Time(900), "and never goes back");
    assert_eq!(numbers(&settle(&world)), [0]);
    let end = world.now();
    assert!(!world.advance_to_next(Time::NEVER, &mut woken));
    assert_eq!(world.now(), end, "there is no end of time to go to");
}

/// Everything that a fabric has, for a while; `change_byte` alters one byte of one packet.
fn hash_of_a_run(seed: u64, change_byte: bool) -> u64 {
    let world = World::new(seed);
    let jitter = HostDelay { fixed: Nanos(300), jitter: Nanos(900) };
    let host = HostConfig { tx_delay: jitter, rx_delay: jitter, ..slow_host() };
    let pfc = Some(PfcConfig::default());
    let switch = SwitchConfig { port_buffer_bytes: 20_000, pfc, ..SwitchConfig::default() };
    let fabric = LeafSpine { host, switch, ..slow_pod() }.build(&world);
    let us = Nanos::from_micros(1);
    let plan = FaultPlan::none().drop(0.05).duplicate(0.05, us).reorder(0.1, 4, us).corrupt(0.05);
    fabric.uplinks.iter().for_each(|link| world.set_faults(link.forth(), plan.clone()));
    world.change_at(Time(100_000), Change::Cable(fabric.uplinks[3], Health::Down));
    world.change_at(Time(300_000), Change::Switch(fabric.spines[1], Health::Silent));
    let mut prng = Prng::new(world.next_seed());
    let pick = |prng: &mut Prng| fabric.hosts[prng.below(32) as usize];
    for number in 0..2_000 {
        let ends: [HostId; 2] = [pick(&mut prng), pick(&mut prng)];
        if prng.chance(0.2) {
            send_train(&world, ends, 10, 300, number);
        } else {
            let number = number as u32 + u32::from(change_byte && number == 1_000) * 100_000;
            send(&world, ends, prng.below(8) as u16, number, 4 + prng.below(400) as usize);
        }
        run(&world, world.now() + Nanos(200));
    }
    settle(&world);
    world.trace_hash()
}

#[test]
fn one_seed_gives_one_trace_and_another_seed_or_byte_another() {
    let hash = hash_of_a_run(42, false);
    assert_eq!(hash, hash_of_a_run(42, false));
    assert_ne!(hash, hash_of_a_run(43, false));
    assert_ne!(hash, hash_of_a_run(42, true));
}
