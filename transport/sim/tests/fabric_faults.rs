//! Faults of one wire, one cable, one switch or one host stay there, and come and go on time.

mod common;

use common::assert_share;
use common::fabric::{numbers, run, send, send_train, settle, slow_host, slow_pod};
use std::collections::BTreeSet;
use towpath_base::{Nanos, Time};
use towpath_sim::{Burst, Change, Fabric, FaultPlan, Health, HostConfig, LeafSpine, Star, World};

const PORTS: u16 = 64;

/// Hosts with many source ports and much room.
fn pod() -> LeafSpine {
    let host = HostConfig { source_ports: PORTS, nic_queue_bytes: 1 << 30, ..slow_host() };
    LeafSpine { host, ..slow_pod() }
}

/// Which source ports get a packet from the first leaf to the second.
fn ports_through(world: &World, fabric: &Fabric) -> BTreeSet<u64> {
    for port in 0..PORTS {
        assert!(send(world, [fabric.hosts[0], fabric.hosts[9]], port, u32::from(port), 100));
    }
    numbers(&settle(world)).into_iter().collect()
}

fn all() -> BTreeSet<u64> {
    (0..u64::from(PORTS)).collect()
}

#[test]
fn a_black_hole_on_one_cable_takes_the_ports_whose_path_it_is_and_no_others() {
    let world = World::new(5);
    let fabric = pod().build(&world);
    let mut lost_ports = BTreeSet::new();
    for uplink in &fabric.uplinks[..4] {
        world.change(Change::Cable(*uplink, Health::Silent));
        let through = ports_through(&world, &fabric);
        let lost: BTreeSet<u64> = all().difference(&through).copied().collect();
        assert!((6..=28).contains(&lost.len()), "a quarter of 64, not {}", lost.len());
        assert!(lost_ports.is_disjoint(&lost), "each port has one path");
        lost_ports.extend(lost);
        world.change(Change::Cable(*uplink, Health::Up));
        assert_eq!(ports_through(&world, &fabric), all());
    }
    assert_eq!(lost_ports, all());
    assert_eq!(world.counters().dropped_down, u64::from(PORTS));
}

#[test]
fn a_cable_or_a_switch_that_is_known_to_be_down_is_gone_round() {
    let world = World::new(5);
    let fabric = pod().build(&world);
    world.change(Change::Cable(fabric.uplinks[0], Health::Down));
    // The far end of another: the leaf has to know more than its own ports.
    world.change(Change::Cable(fabric.uplinks[5], Health::Down));
    assert_eq!(ports_through(&world, &fabric), all());
    world.change(Change::Switch(fabric.spines[2], Health::Down));
    assert_eq!(ports_through(&world, &fabric), all());
    world.change(Change::Switch(fabric.spines[3], Health::Down));
    assert_eq!(ports_through(&world, &fabric), all(), "the long way, over another leaf");
    world.change(Change::Switch(fabric.spines[0], Health::Down));
    assert_eq!(ports_through(&world, &fabric), BTreeSet::new());
    assert_eq!(world.counters().dropped_no_route, u64::from(PORTS));
    world.change(Change::Switch(fabric.spines[3], Health::Up));
    assert_eq!(ports_through(&world, &fabric), all());
}

#[test]
fn a_switch_that_dies_loses_what_waits_in_it_and_what_comes_until_it_is_back() {
    let world = World::new(1);
    let host = HostConfig { nic_queue_bytes: 1 << 30, ..slow_host() };
    let fabric = Star { hosts: 3, host, ..Star::default() }.build(&world);
    let hosts = &fabric.hosts;
    // Packets of both come in every 800 ns from 1,300 on, and one leaves.
    for number in 0..50 {
        assert!(send(&world, [hosts[0], hosts[2]], 0, number, 100));
        assert!(send(&world, [hosts[1], hosts[2]], 0, 50 + number, 100));
    }
    let (dies, lives) = (Time(1_000 + 800 * 10), Time(1_000 + 800 * 20));
    world.change_at(dies, Change::Switch(fabric.leaves[0], Health::Silent));
    world.change_at(lives, Change::Switch(fabric.leaves[0], Health::Up));
    let seen = settle(&world);
    // At its death 20 had come, 9 had left and one was leaving; 20 came while it was dead.
    assert_eq!(world.counters().dropped_down, 10 + 20);
    assert_eq!(seen.len(), 10 + 60);
    let down = |at: &&Time| (dies.0 + 1_300..lives.0 + 1_300).contains(&at.0);
    assert_eq!(seen.iter().map(|seen| &seen.at).filter(down).count(), 0);
}

#[test]
fn a_flap_loses_what_lands_while_the_cable_is_down_and_nothing_else() {
    let world = World::new(1);
    let host = HostConfig { nic_queue_bytes: 1 << 30, ..slow_host() };
    let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
    let cable = world.cable(hosts[0]);
    for flap in 0..3 {
        let at = |us: u64| Time(flap * 20_000 + us * 1_000);
        world.change_at(at(10), Change::Cable(cable, Health::Silent));
        world.change_at(at(15), Change::Cable(cable, Health::Up));
    }
    for number in 0..100 {
        assert!(send(&world, [hosts[0], hosts[1]], 0, number, 100));
    }
    let expected: Vec<u64> = (0..100)
        .filter(|number| {
            let lands = (number + 1) * 800 + 500;
            lands > 60_000 || !(10_000..15_000).contains(&(lands % 20_000))
        })
        .collect();
    assert_eq!(numbers(&settle(&world)), expected);
}

#[test]
fn a_black_hole_for_one_source_port_of_one_wire_leaves_the_others_alone() {
    let world = World::new(1);
    let fabric = pod().build(&world);
    let wire = world.cable(fabric.hosts[9]).back();
    world.change_at(Time(10_000_000), Change::Faults(wire, FaultPlan::none()));
    world.set_faults(wire, FaultPlan::none().black_hole_ports([7, 11]));
    for port in 0..PORTS {
        let ends = [fabric.hosts[0], fabric.hosts[9]];
        assert!(send(&world, ends, port, u32::from(port), 100));
    }
    let through: BTreeSet<u64> = numbers(&run(&world, Time(10_000_000))).into_iter().collect();
    let lost: Vec<u64> = all().difference(&through).copied().collect();
    assert_eq!(lost, [7, 11]);
    assert_eq!(world.fault_counters(wire).black_holed, 2);
    assert_eq!(ports_through(&world, &fabric), all(), "the hole was closed on time");
}

#[test]
fn the_faults_of_a_wire_befall_packets_as_often_as_the_plan_says() {
    let world = World::new(9);
    let host = HostConfig { nic_queue_bytes: 1 << 30, rx_buffer_bytes: 1 << 40, ..slow_host() };
    let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
    let wire = world.cable(hosts[1]).back();
    let us = Nanos::from_micros(1);
    let plan = FaultPlan::none().drop(0.1).duplicate(0.05, us).corrupt(0.02);
    world.set_faults(wire, plan.reorder(0.03, 3, Nanos::from_millis(1)));
    for number in 0..20_000 {
        assert!(send(&world, [hosts[0], hosts[1]], 0, number, 100));
    }
    let seen = settle(&world);
    let counters = world.fault_counters(wire);
    assert_share(counters.dropped_random, 20_000, 0.1, 1.0);
    assert_share(counters.duplicated, 18_000, 0.05, 1.0);
    assert_share(counters.corrupted, 18_000, 0.02, 1.0);
    assert_share(counters.reordered, 18_000, 0.03, 1.0);
    assert_eq!(counters.held(), 0);
    assert_eq!(seen.len() as u64, 20_000 - counters.dropped_random + counters.duplicated);
    assert_eq!(world.counters().dropped_fault, counters.dropped_random);
}

#[test]
fn a_displaced_packet_comes_after_as_many_as_the_plan_says_or_when_its_time_is_over() {
    let world = World::new(2);
    let host = HostConfig { nic_queue_bytes: 1 << 30, ..slow_host() };
    let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
    let wire = world.cable(hosts[1]).back();
    world.set_faults(wire, FaultPlan::none().reorder(1.0, 1, Nanos::from_millis(1)));
    for number in 0..2 {
        assert!(send(&world, [hosts[0], hosts[1]], 0, number, 100));
    }
    let seen = settle(&world);
    // The second lets the first go, and nothing comes to let the second go.
    assert_eq!(numbers(&seen), [0, 1]);
    let landed = 2_600 + 800;
    assert_eq!([seen[0].at, seen[1].at], [Time(landed), Time(landed + 1_000_000)]);
    assert_eq!(seen[0].timestamp, Time(landed), "the stamp is of its late arrival");
}

#[test]
fn late_packets_come_late_and_bursts_take_runs() {
    let world = World::new(2);
    let host = HostConfig { nic_queue_bytes: 1 << 30, ..slow_host() };
    let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
    let wire = world.cable(hosts[1]).back();
    let (low, high) = (Nanos::from_millis(50), Nanos::from_millis(60));
    world.set_faults(wire, FaultPlan::none().late(0.1, low, high));
    for number in 0..2_000 {
        assert!(send(&world, [hosts[0], hosts[1]], 0, number, 100));
    }
    let seen = settle(&world);
    assert_eq!(seen.len(), 2_000);
    let is_late = |at: Time, number: u64| {
        let late = at.since(Time(2_600 + number * 800));
        assert!(late == Nanos::ZERO || (low..=high).contains(&late));
        late > Nanos::ZERO
    };
    let late = seen.iter().filter(|seen| is_late(seen.at, seen.number)).count() as u64;
    assert_eq!(late, world.fault_counters(wire).late);
    assert_share(late, 2_000, 0.1, 1.0);
    let burst = Burst { enter: 0.01, leave: 0.1, loss: 1.0 };
    world.set_faults(wire, FaultPlan::none().burst(burst));
    for number in 0..20_000 {
        assert!(send(&world, [hosts[0], hosts[1]], 0, number, 100));
    }
    let through = numbers(&settle(&world));
    let gaps: Vec<u64> =
        through.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|gap| *gap > 0).collect();
    let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
    assert!((7.0..14.0).contains(&mean), "bursts of 10 in the mean, not {mean}");
}

#[test]
fn a_train_is_lost_when_any_of_its_packets_would_be() {
    let world = World::new(4);
    let host = HostConfig { nic_queue_bytes: 1 << 30, ..slow_host() };
    let hosts = Star { hosts: 2, host, ..Star::default() }.build(&world).hosts;
    let wire = world.cable(hosts[1]).back();
    world.set_faults(wire, FaultPlan::none().drop(0.02).corrupt(0.05));
    for token in 0..5_000 {
        assert!(send_train(&world, [hosts[0], hosts[1]], 16, 100, token));
        settle_one(&world, &hosts);
    }
    let counters = world.fault_counters(wire);
    let p = 1.0 - 0.98_f64.powi(16);
    assert_share(counters.dropped_random, 5_000, p, 1.0);
    assert_share(counters.corrupted, 5_000 - counters.dropped_random, 0.05, 1.0);
    assert_eq!(world.counters().dropped_fault, 16 * counters.dropped_random);
}

/// Lets one train through, and sees that it is damaged when the wire says so.
fn settle_one(world: &World, hosts: &[towpath_sim::HostId]) {
    let wire = world.cable(hosts[1]).back();
    let before = world.fault_counters(wire).corrupted;
    let seen = settle(world);
    let corrupted = world.fault_counters(wire).corrupted - before;
    assert_eq!(seen.iter().filter(|seen| seen.is_damaged).count() as u64, corrupted);
}

#[test]
fn a_host_that_stops_reading_loses_what_its_buffer_does_not_hold_and_nobody_else_does() {
    let world = World::new(1);
    let host = HostConfig { rx_buffer_bytes: 1_000, nic_queue_bytes: 1 << 30, ..slow_host() };
    let hosts = Star { hosts: 3, host, ..Star::default() }.build(&world).hosts;
    for number in 0..50 {
        assert!(send(&world, [hosts[0], hosts[1]], 0, number, 100));
        assert!(send(&world, [hosts[0], hosts[2]], 0, number, 100));
    }
    let (mut woken, mut read) = (Vec::new(), 0);
    while world.advance_to_next(Time::NEVER, &mut woken) {
        for host in woken.drain(..).filter(|host| *host == hosts[2]) {
            read += towpath_verbs::PacketLink::receive(&mut world.end(host), 99, &mut |_| {});
        }
    }
    assert_eq!((read, world.counters().dropped_rx_buffer), (50, 40));
}
