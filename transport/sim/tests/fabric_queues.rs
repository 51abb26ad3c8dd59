//! Full queues mark or pause, and classes go before each other.

mod common;

use common::assert_share;
use common::fabric::{CAPABLE, numbers, run, send, send_train, settle, slow_host, slow_pod};
use towpath_base::{Nanos, Time};
use towpath_sim::limits::CLASSES;
use towpath_sim::{
    EcnConfig, Fabric, HostConfig, HostId, PfcConfig, QueueConfig, Star, SwitchConfig, Turn,
    WireCounters, World,
};
use towpath_verbs::{PacketLink, TxPacket};

/// The ECN bits of a packet that was marked.
const MARKED: u8 = 0b11;

fn star(world: &World, hosts: usize, switch: SwitchConfig) -> Fabric {
    let host = HostConfig { nic_queue_bytes: 1 << 30, ..slow_host() };
    Star { hosts, host, switch }.build(world)
}

#[test]
fn a_packet_is_marked_by_the_queue_that_it_joins() {
    let world = World::new(1);
    let ecn = Some(EcnConfig { min_bytes: 400, max_bytes: 400, p_max_ppm: 0 });
    let hosts = star(&world, 3, SwitchConfig { ecn, ..SwitchConfig::default() }).hosts;
    // Each round two come and one goes.
    for number in 0..10 {
        assert!(send(&world, [hosts[0], hosts[2]], 0, number, 100));
        assert!(send(&world, [hosts[1], hosts[2]], 0, 100 + number, 100));
    }
    let marked: Vec<u64> = settle(&world)
        .iter()
        .filter(|seen| seen.tclass == MARKED)
        .map(|seen| seen.number)
        .collect();
    // Before its own 2n + 1 the first of round n finds 2n less n that went.
    let expected: Vec<u64> = [103].into_iter().chain((4..10).flat_map(|n| [n, 100 + n])).collect();
    assert_eq!(marked, expected);
    assert_eq!(world.counters().ecn_marked, 13);
}

#[test]
fn marks_become_likelier_as_the_queue_grows() {
    let world = World::new(3);
    let ecn = Some(EcnConfig { min_bytes: 0, max_bytes: 2_000_000, p_max_ppm: 400_000 });
    let switch = SwitchConfig { ecn, port_buffer_bytes: 1 << 30, ..SwitchConfig::default() };
    let hosts = star(&world, 3, switch).hosts;
    for number in 0..20_000 {
        assert!(send(&world, [hosts[0], hosts[2]], 0, number, 100));
        assert!(send(&world, [hosts[1], hosts[2]], 0, number, 100));
    }
    let seen = settle(&world);
    // The queue grows evenly to 2,000,000 bytes: 0 to 40 % are marked, 20 % of all.
    for (quarter, part) in seen.chunks(10_000).enumerate() {
        let marked = part.iter().filter(|seen| seen.tclass == MARKED).count() as u64;
        assert_share(marked, 10_000, 0.05 + 0.1 * quarter as f64, 1.0);
    }
}

#[test]
fn a_sender_that_is_not_capable_of_marks_gets_none() {
    let world = World::new(1);
    let ecn = Some(EcnConfig { min_bytes: 0, max_bytes: 0, p_max_ppm: 0 });
    let hosts = star(&world, 2, SwitchConfig { ecn, ..SwitchConfig::default() }).hosts;
    for tclass in [0, CAPABLE, 0b01, 0xb8 | CAPABLE] {
        let mut packet = TxPacket::new(world.end(hosts[1]).local_addr(), 0, tclass);
        packet.push(&[0; 4]);
        world.end(hosts[0]).transmit(&[packet]);
    }
    let classes: Vec<u8> = settle(&world).iter().map(|seen| seen.tclass).collect();
    assert_eq!(classes, [0, MARKED, MARKED, 0xb8 | MARKED]);
}

#[test]
fn a_better_class_goes_first_and_has_room_of_its_own() {
    let world = World::new(1);
    let switch = SwitchConfig { port_buffer_bytes: 500, ..SwitchConfig::default() };
    let hosts = star(&world, 3, switch).hosts;
    world.set_class(46, 1);
    let send_gold = |number: u32| {
        let bytes = number.to_be_bytes().repeat(25);
        let mut packet = TxPacket::new(world.end(hosts[2]).local_addr(), 0, 46 << 2);
        packet.push(&bytes);
        world.end(hosts[1]).transmit(&[packet]);
    };
    for number in 0..20 {
        assert!(send(&world, [hosts[0], hosts[2]], 0, number, 100));
    }
    (100..120).for_each(send_gold);
    let seen = numbers(&settle(&world));
    let gold: Vec<u64> = seen.iter().copied().filter(|number| *number >= 100).collect();
    assert_eq!(gold, (100..120).collect::<Vec<_>>(), "gold lost nothing");
    // One of the others was first at the port, and those that did not fit are lost.
    assert_eq!(&seen[..3], &[0, 100, 101]);
    assert_eq!(seen[21..], [1, 2, 3, 4, 5]);
    assert_eq!(world.counters().dropped_queue, 14);
}

/// Sends a numbered packet of 100 bytes with this DSCP, capable of marks; true when it was taken.
fn send_of(world: &World, [from, to]: [HostId; 2], dscp: u8, number: u32) -> bool {
    let bytes = number.to_be_bytes().repeat(25);
    let mut packet = TxPacket::new(world.end(to).local_addr(), 0, dscp << 2 | CAPABLE);
    packet.push(&bytes);
    world.end(from).transmit(&[packet]) == 1
}

/// Queues with these turns: of DSCP 10, 20, 30, and of all else.
fn queues(world: &World, turns: [Turn; CLASSES]) -> [QueueConfig; CLASSES] {
    (0..3).for_each(|class| world.set_class(10 * (class + 1), class));
    turns.map(|turn| QueueConfig { turn, ..QueueConfig::default() })
}

#[test]
fn queues_with_weights_share_what_a_strict_one_leaves_at_a_switch_and_in_a_host() {
    let turns = [Turn::Strict, Turn::Weight(3), Turn::Weight(1), Turn::Weight(1)];
    for in_host in [false, true] {
        let world = World::new(1);
        let queues = queues(&world, turns);
        let none = [QueueConfig::default(); CLASSES];
        let [nic_queues, queues] = if in_host { [queues, none] } else { [none, queues] };
        let switch = SwitchConfig { queues, ..SwitchConfig::default() };
        let host = HostConfig { nic_queue_bytes: 1 << 30, nic_queues, ..slow_host() };
        let hosts = Star { hosts: 4, host, switch }.build(&world).hosts;
        for number in 0..400 {
            for (from, dscp) in [(0, 0), (1, 20), (2, 30)] {
                let from = hosts[if in_host { 0 } else { from }];
                assert!(send_of(&world, [from, hosts[3]], dscp, 1_000 * u32::from(dscp) + number));
            }
        }
        // In the middle of it all ten of the strict class.
        run(&world, Time(100_000));
        for number in 0..10 {
            assert!(send_of(&world, [hosts[0], hosts[3]], 10, 10_000 + number));
        }
        let seen = numbers(&settle(&world));
        let of = |thousands: u64, seen: &[u64]| {
            seen.iter().filter(|number| **number / 1_000 == thousands).count()
        };
        let last_strict = seen.iter().rposition(|number| number / 1_000 == 10).expect("it came");
        assert!(last_strict < 20, "before what waited: {last_strict}, in a host: {in_host}");
        let (head, whole) = (&seen[last_strict + 1..][..400], 5.0);
        for (thousands, weight) in [(20, 3.0), (30, 1.0), (0, 1.0)] {
            let expected = 400.0 * weight / whole;
            let came = of(thousands, head) as f64;
            assert!((came - expected).abs() <= 4.0, "{thousands}: {came}, in a host: {in_host}");
        }
    }
}

#[test]
fn each_queue_drops_and_marks_by_its_own_room_and_threshold() {
    let world = World::new(1);
    let mut queues = queues(&world, [Turn::Strict; CLASSES]);
    let ecn = |bytes| Some(EcnConfig { min_bytes: bytes, max_bytes: bytes, p_max_ppm: 0 });
    queues[0].ecn = ecn(200);
    queues[1].buffer_bytes = Some(300);
    let switch =
        SwitchConfig { port_buffer_bytes: 1_000, ecn: ecn(700), queues, ..SwitchConfig::default() };
    let hosts = star(&world, 4, switch).hosts;
    // Two come of the first class for one that goes, and so none goes of the second.
    for number in 0..9 {
        for (from, dscp) in [(1, 10), (2, 20), (3, 10)] {
            send_of(&world, [hosts[from], hosts[0]], dscp, 1_000 * u32::from(dscp) + number);
        }
    }
    let seen = settle(&world);
    let of = |thousands: u64| seen.iter().filter(move |seen| seen.number / 1_000 == thousands);
    let unmarked = |thousands| of(thousands).filter(|seen| seen.tclass & MARKED != MARKED).count();
    assert_eq!((of(10).count(), unmarked(10)), (18, 3), "two of the first round, one of the next");
    assert_eq!((of(20).count(), unmarked(20)), (3, 3), "300 bytes are the room, and below 700");
}

#[test]
fn a_host_takes_packets_of_a_class_while_another_is_full() {
    let world = World::new(1);
    let mut nic_queues = queues(&world, [Turn::Strict; CLASSES]);
    nic_queues[0].buffer_bytes = Some(200);
    nic_queues[0].ecn = Some(EcnConfig { min_bytes: 100, max_bytes: 100, p_max_ppm: 0 });
    let host = HostConfig { nic_queue_bytes: 1_000, nic_queues, ..slow_host() };
    let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
    let ends = [hosts[0], hosts[1]];
    assert_eq!((0..20).filter(|number| send_of(&world, ends, 0, *number)).count(), 10);
    assert_eq!((100..120).filter(|number| send_of(&world, ends, 10, *number)).count(), 2);
    // Room for the better class comes first, and it is told of that though the other is full.
    let mut woken = Vec::new();
    assert!(world.advance_to_next(Time(2_000), &mut woken));
    assert_eq!((world.now(), &woken[..]), (Time(1_600), &hosts[..1]));
    assert!(send_of(&world, ends, 10, 102));
    let seen = settle(&world);
    let gold: Vec<u64> = seen.iter().map(|seen| seen.number).filter(|n| *n >= 100).collect();
    assert_eq!(gold, [100, 101, 102]);
    assert_eq!(&numbers(&seen)[..3], &[0, 100, 101]);
    let marked: Vec<u64> =
        seen.iter().filter(|seen| seen.tclass & MARKED == MARKED).map(|seen| seen.number).collect();
    assert_eq!(marked, [101, 102]);
}

#[test]
fn a_better_class_that_is_not_ready_yet_does_not_hold_the_others_up() {
    let world = World::new(1);
    let tx_delay = towpath_sim::HostDelay { fixed: Nanos(5_000), jitter: Nanos::ZERO };
    let host = HostConfig { tx_delay, ..slow_host() };
    let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
    world.set_class(46, 0);
    let dest = world.end(hosts[1]).local_addr();
    for (number, tclass, at) in [(1_u32, 0, 0), (2, 0, 100), (3, 46 << 2, 12_900)] {
        run(&world, Time(at));
        let bytes = number.to_be_bytes().repeat(250);
        let mut packet = TxPacket::new(dest, 0, tclass);
        packet.push(&bytes);
        world.end(hosts[0]).transmit(&[packet]);
    }
    let seen = settle(&world);
    let arrivals: Vec<(u64, u64)> = seen.iter().map(|seen| (seen.number, seen.at.0)).collect();
    // The wire is free at 13,000; the third comes to it at 17,900.
    assert_eq!(arrivals, [(1, 22_000), (2, 30_000), (3, 38_000)]);
}

fn pfc() -> Option<PfcConfig> {
    // A round trip of the slowest cable is 2 us: 250 bytes at 1 Gb/s, 500 at 2 Gb/s.
    Some(PfcConfig { xoff_bytes: 1_000, xon_bytes: 500, headroom_bytes: 1_500 })
}

fn pauses(world: &World, fabric: &Fabric, host: usize) -> WireCounters {
    world.wire_counters(world.cable(fabric.hosts[host]).forth())
}

#[test]
fn pauses_keep_an_incast_from_losing_anything_where_it_loses_much_without() {
    let lost = |pfc| {
        let world = World::new(1);
        let switch = SwitchConfig { port_buffer_bytes: 2_000, pfc, ..SwitchConfig::default() };
        let fabric = star(&world, 9, switch);
        for number in 0..100 {
            for host in 0..8 {
                let ends = [fabric.hosts[host], fabric.hosts[8]];
                assert!(send(&world, ends, 0, number, 100));
            }
        }
        let seen = settle(&world);
        let paused: u64 = (0..8).map(|host| pauses(&world, &fabric, host).pauses).sum();
        assert_eq!(paused > 0, pfc.is_some());
        assert_eq!(world.counters().dropped_queue + seen.len() as u64, 800);
        // 800 packets at 8 ns a byte through one cable, which never waits for one.
        assert!(pfc.is_none() || world.now() == Time(1_300 + 800 * 800 + 500));
        world.counters().dropped_queue
    };
    assert_eq!(lost(pfc()), 0);
    assert!(lost(None) > 600);
}

#[test]
fn a_pause_goes_back_hop_by_hop_and_blocks_what_is_bound_elsewhere() {
    let world = World::new(1);
    let switch = SwitchConfig { pfc: pfc(), ..SwitchConfig::default() };
    let host = HostConfig { nic_queue_bytes: 1 << 30, ..slow_host() };
    let pod = towpath_sim::LeafSpine { spines: 1, switch, host, ..slow_pod() };
    let fabric = pod.build(&world);
    let (victim, hot, idle) = (fabric.hosts[0], fabric.hosts[8], fabric.hosts[9]);
    // Three leaves send to one host; the victim sends to its idle neighbour, too.
    for number in 0..200 {
        for from in [victim, fabric.hosts[16], fabric.hosts[24]] {
            assert!(send(&world, [from, hot], 0, number, 100));
        }
    }
    assert!(send(&world, [victim, idle], 0, 999, 100));
    let seen = settle(&world);
    assert_eq!((seen.len(), world.counters().dropped_queue), (601, 0));
    let spine_to_leaf = world.wire_counters(fabric.uplinks[1].back());
    let leaf_to_spine = world.wire_counters(fabric.uplinks[0].forth());
    let host_to_leaf = pauses(&world, &fabric, 0);
    for counters in [spine_to_leaf, leaf_to_spine, host_to_leaf] {
        assert!(counters.pauses > 0 && counters.paused > Nanos(10_000), "{counters:?}");
    }
    let blocked = seen.iter().find(|seen| seen.number == 999).expect("it came in");
    // Alone it would have taken 200 * 800 ns to get out of its host.
    assert!(blocked.at > Time(400 * 800), "{blocked:?}");
}

#[test]
fn a_host_that_heeds_no_pauses_loses_what_does_not_fit() {
    let world = World::new(1);
    let switch = SwitchConfig { port_buffer_bytes: 1_000, pfc: pfc(), ..SwitchConfig::default() };
    let host = HostConfig { heeds_pauses: false, nic_queue_bytes: 1 << 30, ..slow_host() };
    let hosts = Star { hosts: 3, host, switch }.build(&world).hosts;
    for number in 0..100 {
        assert!(send(&world, [hosts[0], hosts[2]], 0, number, 100));
        assert!(send(&world, [hosts[1], hosts[2]], 0, number, 100));
    }
    settle(&world);
    assert!(world.counters().dropped_queue > 50);
}

#[test]
fn trains_are_marked_and_paused_and_dropped_as_one() {
    let world = World::new(1);
    let ecn = Some(EcnConfig { min_bytes: 1_000, max_bytes: 1_000, p_max_ppm: 0 });
    let switch = SwitchConfig { port_buffer_bytes: 3_000, ecn, ..SwitchConfig::default() };
    let hosts = star(&world, 5, switch).hosts;
    for (token, host) in hosts[..4].iter().enumerate() {
        assert!(send_train(&world, [*host, hosts[4]], 10, 100, token as u64));
    }
    let seen = settle(&world);
    assert_eq!(numbers(&seen), [0, 1, 2]);
    let marks: Vec<bool> = seen.iter().map(|seen| seen.tclass == MARKED).collect();
    assert_eq!(marks, [false, true, true]);
    let counters = world.counters();
    assert_eq!((counters.dropped_queue, counters.ecn_marked, counters.delivered), (10, 20, 30));
}

#[test]
fn a_queue_says_how_much_waits() {
    let world = World::new(1);
    let fabric = star(&world, 3, SwitchConfig::default());
    let hosts = &fabric.hosts;
    let down = world.cable(hosts[2]).back();
    for number in 0..10 {
        assert!(send(&world, [hosts[0], hosts[2]], 0, number, 100));
        assert!(send(&world, [hosts[1], hosts[2]], 0, number, 100));
    }
    assert_eq!(world.queued_bytes(world.cable(hosts[0]).forth()), 1_000);
    run(&world, Time(500 + 10 * 800));
    // Twenty came in, the first after 1,300 ns, and nine have left.
    assert_eq!(world.queued_bytes(down), 1_100);
    settle(&world);
    assert_eq!((world.queued_bytes(down), world.wire_counters(down).queued_bytes_max), (0, 1_100));
}
