//! Packets cross a fabric in the time that its cables take, over one of its equal paths.

mod common;

use common::fabric::{Seen, numbers, send, send_train, settle, slow_cable, slow_host, slow_pod};
use common::number_of;
use std::collections::BTreeMap;
use towpath_base::{Nanos, Time};
use towpath_sim::{
    CableConfig, Fabric, HostConfig, HostDelay, HostId, LeafSpine, Star, SwitchConfig, Timestamps,
    TwoPods, World,
};
use towpath_verbs::{PacketLink, TxPacket};

/// What comes in, with the same time on its stamp.
fn arrivals(world: &World) -> Vec<(Time, HostId, u64)> {
    let seen = settle(world);
    assert!(seen.iter().all(|seen| seen.timestamp == seen.at));
    seen.iter().map(|seen| (seen.at, seen.host, seen.number)).collect()
}

#[test]
fn a_packet_takes_the_time_of_each_cable_and_no_other() {
    let world = World::new(1);
    let hosts = slow_pod().build(&world).hosts;
    assert!(send(&world, [hosts[0], hosts[9]], 0, 1, 100));
    // Two cables at 8 ns a byte and 500 ns, two at 4 ns a byte and 1,000 ns.
    let crossing = 2 * (800 + 500) + 2 * (400 + 1_000);
    assert_eq!(arrivals(&world), [(Time(crossing), hosts[9], 1)]);
    assert!(send(&world, [hosts[0], hosts[1]], 0, 2, 100));
    let within_leaf = Time(crossing + 2 * (800 + 500));
    assert_eq!(arrivals(&world), [(within_leaf, hosts[1], 2)]);
}

#[test]
fn pods_are_reached_through_the_cores() {
    let world = World::new(1);
    let pod = slow_pod();
    let core_link = CableConfig { delay: Nanos(50_000), ..slow_cable() };
    let fabric = TwoPods { pod, core_link, ..TwoPods::default() }.build(&world);
    assert_eq!((fabric.hosts.len(), fabric.leaves.len(), fabric.spines.len()), (64, 8, 8));
    let (near, far) = (fabric.hosts[0], fabric.hosts[32]);
    assert!(send(&world, [near, far], 0, 1, 100));
    let crossing = Time(2 * 1_300 + 2 * 1_400 + 2 * 50_400);
    assert_eq!(arrivals(&world), [(crossing, far, 1)]);
}

#[test]
fn the_delay_of_a_host_shows_in_software_and_not_in_the_timestamp_of_its_card() {
    let world = World::new(1);
    let (tx_delay, rx_delay) = (
        HostDelay { fixed: Nanos(3_000), jitter: Nanos(2_000) },
        HostDelay { fixed: Nanos(10_000), jitter: Nanos(5_000) },
    );
    let host = HostConfig { tx_delay, rx_delay, ..slow_host() };
    let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
    for number in 0..100 {
        assert!(send(&world, [hosts[0], hosts[1]], 0, number, 100));
    }
    let seen = settle(&world);
    assert_eq!(numbers(&seen), (0..100).collect::<Vec<_>>(), "jitter does not reorder");
    let first = seen[0].timestamp.0 - 2 * 1_300;
    assert!((3_000..=5_000).contains(&first), "{first}");
    for Seen { at, timestamp, .. } in seen {
        let late = at.since(timestamp).0;
        assert!((10_000..=15_000).contains(&late), "{late}");
    }
}

#[test]
fn a_link_tells_when_a_packet_left_by_what_its_host_is_told_to_stamp_with() {
    let tx_delay = HostDelay { fixed: Nanos(3_000), jitter: Nanos::ZERO };
    let left_at = |send_times, count| {
        let world = World::new(1);
        let host = HostConfig { tx_delay, send_times, ..slow_host() };
        let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
        let mut link = world.end(hosts[0]);
        world.advance_to(Time(500));
        assert_eq!(link.left_at().0, if send_times == Timestamps::Software { 500 } else { 0 });
        for number in 0..count {
            assert!(send(&world, [hosts[0], hosts[1]], 0, number, 100));
        }
        link.left_at().0 - 500
    };
    assert_eq!(left_at(Timestamps::Software, 2), 0);
    assert_eq!(left_at(Timestamps::Kernel { percent: 10 }, 2), 2_700);
    // A packet of 100 bytes takes 800 ns of its wire.
    assert_eq!(left_at(Timestamps::Wire, 1), 3_000 + 800);
    assert_eq!(left_at(Timestamps::Wire, 3), 3_000 + 3 * 800);
}

#[test]
fn the_kernels_stamp_lies_between_the_wire_and_software() {
    let rx_delay = HostDelay { fixed: Nanos(10_000), jitter: Nanos::ZERO };
    let late = |timestamps| {
        let world = World::new(1);
        let host = HostConfig { rx_delay, timestamps, ..slow_host() };
        let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
        assert!(send(&world, [hosts[0], hosts[1]], 0, 0, 100));
        settle(&world).iter().map(|seen| seen.at.since(seen.timestamp).0).max()
    };
    assert_eq!(late(Timestamps::Wire), Some(10_000));
    assert_eq!(late(Timestamps::Kernel { percent: 25 }), Some(7_500));
    assert_eq!(late(Timestamps::Kernel { percent: 200 }), Some(0));
    assert_eq!(late(Timestamps::Software), Some(0));
}

#[test]
fn a_full_port_of_a_switch_drops_at_its_tail_exactly() {
    let world = World::new(1);
    let switch = SwitchConfig { port_buffer_bytes: 1_000, ..SwitchConfig::default() };
    let host = slow_host();
    let hosts = Star { hosts: 5, host, switch }.build(&world).hosts;
    // Four senders at once into one port: each round 400 bytes come and 100 go.
    for round in 0..5 {
        for (sender, host) in hosts[..4].iter().enumerate() {
            assert!(send(&world, [*host, hosts[4]], 0, round * 4 + sender as u32, 100));
        }
    }
    let seen = settle(&world);
    // 4, 7, 10, and then one leaves for each that may come: at most 10 at once.
    let expected: Vec<u64> = (0..12).chain([12, 16]).collect();
    assert_eq!(seen.len() as u64 + world.counters().dropped_queue, 20);
    assert_eq!(numbers(&seen), expected);
}

#[test]
fn a_card_takes_no_more_than_it_can_hold_and_wakes_its_host_for_the_rest() {
    let world = World::new(1);
    let host = HostConfig { nic_queue_bytes: 1_000, ..slow_host() };
    let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
    let mut next = 0;
    let offer = |next: &mut u32| {
        while *next < 50 && send(&world, [hosts[0], hosts[1]], 0, *next, 100) {
            *next += 1;
        }
    };
    offer(&mut next);
    assert_eq!(next, 10);
    let (mut woken, mut numbers) = (Vec::new(), Vec::new());
    while world.advance_to_next(Time::NEVER, &mut woken) {
        for host in woken.drain(..) {
            if host == hosts[0] {
                let before = next;
                offer(&mut next);
                assert!(next == 50 || next - before >= 5, "half of it was free");
            } else {
                world.end(host).receive(99, &mut |packet| numbers.push(number_of(packet.bytes)));
            }
        }
    }
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    assert_eq!(world.now(), Time(50 * 800 + 500 + 800 + 500), "the wire was never idle");
}

#[test]
fn a_train_that_is_larger_than_the_queue_of_the_card_waits_until_it_is_empty_and_goes_alone() {
    let world = World::new(1);
    let host = HostConfig { nic_queue_bytes: 1_000, ..slow_host() };
    let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
    let ends = [hosts[0], hosts[1]];
    assert!(send(&world, ends, 0, 1, 900));
    // The second takes more than half, the third more than all.
    let mut waiting = vec![(30, 3), (7, 2)];
    let (mut woken, mut turns, mut order) = (Vec::new(), 0, Vec::new());
    loop {
        while let Some((packets, token)) = waiting.last() {
            if !send_train(&world, ends, *packets, 100, *token) {
                break;
            }
            order.push((world.now(), *token));
            waiting.pop();
        }
        if !world.advance_to_next(Time::NEVER, &mut woken) {
            break;
        }
        woken.clear();
        turns += 1;
    }
    assert_eq!(order, [(Time(7_200), 2), (Time(7_200 + 5_600), 3)]);
    assert!(turns < 10, "a host that cannot send is not woken all the time: {turns}");
    assert_eq!(world.counters().delivered, 38);
}

/// Over which uplink of the first leaf each source port goes.
fn paths_of(world: &World, fabric: &Fabric, to: HostId, ports: u16) -> Vec<usize> {
    let mut paths = Vec::new();
    for port in 0..ports {
        let before: Vec<u64> = uplink_bytes(world, fabric);
        assert!(send(world, [fabric.hosts[0], to], port, 0, 100));
        settle(world);
        let after = uplink_bytes(world, fabric);
        let used: Vec<usize> = (0..4).filter(|path| before[*path] != after[*path]).collect();
        assert_eq!(used.len(), 1, "one packet takes one path");
        paths.push(used[0]);
    }
    paths
}

fn uplink_bytes(world: &World, fabric: &Fabric) -> Vec<u64> {
    fabric.uplinks[..4].iter().map(|link| world.wire_counters(link.forth()).bytes).collect()
}

#[test]
fn the_source_port_chooses_the_path_for_good_and_all_paths_are_used() {
    let shape = LeafSpine {
        host: HostConfig { source_ports: 256, ..HostConfig::default() },
        ..LeafSpine::default()
    };
    let world = World::new(7);
    let fabric = shape.build(&world);
    let paths = paths_of(&world, &fabric, fabric.hosts[9], 256);
    assert_eq!(paths, paths_of(&world, &fabric, fabric.hosts[9], 256), "it does not change");
    let mut share = BTreeMap::new();
    paths.iter().for_each(|path| *share.entry(*path).or_insert(0_u64) += 1);
    for path in 0..4 {
        common::assert_share(share[&path], 256, 0.25, 1.0);
    }
    let elsewhere = paths_of(&world, &fabric, fabric.hosts[17], 256);
    assert_ne!(paths, elsewhere, "each destination has a spread of its own");
    let again = World::new(7);
    let fabric = shape.build(&again);
    assert_eq!(paths, paths_of(&again, &fabric, fabric.hosts[9], 256), "one seed, one spread");
    let other = World::new(8);
    let fabric = shape.build(&other);
    assert_ne!(paths, paths_of(&other, &fabric, fabric.hosts[9], 256));
}

#[test]
fn an_address_that_nobody_has_is_counted() {
    let world = World::new(1);
    let hosts = slow_pod().build(&world).hosts;
    let mut packet = TxPacket::new("10.9.9.9:4791".parse().unwrap(), 0, 0);
    packet.push(b"lost");
    assert_eq!(world.end(hosts[0]).transmit(&[packet]), 1);
    assert_eq!(settle(&world), []);
    assert_eq!(world.counters().misaddressed, 1);
}
