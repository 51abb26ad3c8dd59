//! The virtual wire keeps time, order and bounds, and replays from its seed.

mod common;

use common::{number_of, numbered};
use core::net::{Ipv6Addr, SocketAddr};
use towpath_base::{Nanos, Prng, Time};
use towpath_sim::world::PacketFate;
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, VirtualLink, World};
use towpath_verbs::{PacketLink, TxPacket};

fn send(link: &mut impl PacketLink, dest: SocketAddr, source_port: u16, bytes: &[u8]) {
    let mut packet = TxPacket::new(dest, source_port, 0);
    packet.push(bytes);
    assert_eq!(link.transmit(&[packet]), 1);
}

/// Runs until nothing is under way.
fn settle(world: &World) {
    while let Some(time) = world.next_event_time() {
        world.advance_to(time);
    }
}

fn arrivals(link: &mut VirtualLink) -> Vec<(Time, u32)> {
    let mut seen = Vec::new();
    link.receive(usize::MAX, &mut |packet| seen.push((packet.timestamp, number_of(packet.bytes))));
    seen
}

/// 3 bits a nanosecond do not divide a packet's bits, so rounding would show.
fn slow() -> LinkConfig {
    LinkConfig { rate_bits_per_s: 3_000_000_000, overhead_bytes: 0, ..LinkConfig::default() }
}

#[test]
fn packets_arrive_in_order_at_the_rate_after_the_delay() {
    let world = World::new(1);
    let config = LinkConfig { delay: Nanos(1_000), rx_buffer_bytes: 1 << 20, ..slow() };
    let (mut near, mut far) = world.link(&config);
    for bytes in numbered(0..300) {
        send(&mut near, far.local_addr(), 0, &bytes);
    }
    settle(&world);
    let expected = (0..300_u32).map(|n| (Time(1_000 + (u64::from(n) + 1) * 64 / 3), n));
    assert_eq!(arrivals(&mut far), expected.collect::<Vec<_>>());
}

#[test]
fn an_idle_wire_starts_afresh_and_the_directions_do_not_share_their_rate() {
    let world = World::new(1);
    let (mut near, mut far) = world.link(&LinkConfig { delay: Nanos(10), ..slow() });
    world.advance_to(Time(1_000));
    send(&mut near, far.local_addr(), 0, &[0; 300]);
    send(&mut far, near.local_addr(), 0, &[0; 300]);
    settle(&world);
    assert_eq!(arrivals(&mut far), [(Time(1_810), 0)]);
    assert_eq!(arrivals(&mut near), [(Time(1_810), 0)]);
}

#[test]
fn advancing_delivers_what_is_due_and_nothing_else_and_never_goes_back() {
    let world = World::new(1);
    let config = LinkConfig { rate_bits_per_s: 0, delay: Nanos(100), ..LinkConfig::default() };
    let (mut near, mut far) = world.link(&config);
    send(&mut near, far.local_addr(), 0, &[0; 4]);
    assert_eq!(world.next_event_time(), Some(Time(100)));
    world.advance_to(Time(99));
    assert_eq!(arrivals(&mut far), []);
    world.advance_to(Time(100));
    world.advance_to(Time(50));
    assert_eq!((world.now(), near.now(), world.clock().now()), (Time(100), Time(100), Time(100)));
    assert_eq!(arrivals(&mut far), [(Time(100), 0)]);
    assert_eq!(world.next_event_time(), None);
}

#[test]
fn a_full_queue_drops_at_its_tail_and_has_room_again_as_it_drains() {
    let world = World::new(1);
    let (mut near, mut far) = world.link(&LinkConfig { queue_bytes: 24, ..slow() });
    let bytes = numbered(0..5);
    for bytes in &bytes[..4] {
        send(&mut near, far.local_addr(), 0, bytes);
    }
    assert_eq!(world.counters().dropped_queue, 1);
    // The first of three is wholly sent after 64 / 3 ns.
    world.advance_to(Time(22));
    send(&mut near, far.local_addr(), 0, &bytes[4]);
    settle(&world);
    let numbers: Vec<u32> = arrivals(&mut far).iter().map(|arrival| arrival.1).collect();
    assert_eq!(numbers, [0, 1, 2, 4]);
    assert_eq!((near.counters().packets_sent, far.counters().packets_received), (5, 4));
}

#[test]
fn a_full_receive_buffer_drops_and_counts_until_it_is_read() {
    let world = World::new(1);
    let config = LinkConfig { rx_buffer_bytes: 216, rx_charge_bytes: 100, ..slow() };
    let (mut near, mut far) = world.link(&config);
    for bytes in numbered(0..3) {
        send(&mut near, far.local_addr(), 0, &bytes);
    }
    settle(&world);
    assert_eq!((world.counters().delivered, world.counters().dropped_rx_buffer), (2, 1));
    assert_eq!(far.counters().packets_dropped, 1);
    assert_eq!(arrivals(&mut far).len(), 2);
    send(&mut near, far.local_addr(), 0, &numbered(3..4)[0]);
    settle(&world);
    assert_eq!(arrivals(&mut far).len(), 1);
}

#[test]
fn what_the_link_cannot_send_or_deliver_is_lost_and_counted() {
    let world = World::new(1);
    let (mut near, mut far) = world.link(&LinkConfig::default());
    let (dest, caps) = (far.local_addr(), near.caps());
    let longest = vec![0; caps.packet_bytes_max as usize];
    send(&mut near, dest, 0, &[&longest[..], &[0]].concat());
    send(&mut near, dest, caps.source_ports, b"no such port");
    assert_eq!(near.counters().send_errors, 2);
    send(&mut near, SocketAddr::new(dest.ip(), 9), 0, b"elsewhere");
    send(&mut near, dest, caps.source_ports - 1, &longest);
    settle(&world);
    assert_eq!((world.counters().misaddressed, world.counters().delivered), (1, 1));
    assert_eq!(far.receive(9, &mut |_| {}), 1);
}

#[test]
fn a_packet_shows_the_address_of_its_source_port_on_ipv6_too() {
    let end = |last| SocketAddr::from((Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last), 7_000));
    let world = World::new(1);
    let config = LinkConfig { addrs: [end(1), end(2)], ..LinkConfig::default() };
    let (mut near, mut far) = world.link(&config);
    send(&mut near, end(2), 3, b"data");
    settle(&world);
    let mut seen = Vec::new();
    far.receive(9, &mut |packet| seen.push((packet.source, packet.dest)));
    assert_eq!(seen, [(near.source_addr(3), end(2))]);
    assert_ne!(near.source_addr(3), near.source_addr(2));
    assert!(near.source_addr(3).is_ipv6());
}

#[test]
fn packets_of_two_links_that_are_due_at_once_arrive_as_they_were_sent() {
    let world = World::new(1);
    let config = LinkConfig { rate_bits_per_s: 0, ..LinkConfig::default() };
    let (mut first, far_first) = world.link(&config);
    let (mut second, _far_second) = world.link(&config);
    world.keep_trace(10);
    send(&mut second, far_first.local_addr(), 0, b"a");
    send(&mut first, far_first.local_addr(), 0, b"b");
    settle(&world);
    let wires: Vec<u32> = world.recent_trace().iter().map(|event| event.wire).collect();
    assert_eq!(wires, [2, 0]);
    assert!(world.recent_trace().iter().all(|event| event.fate == PacketFate::Delivered));
}

/// Two talkers with every fault on, for a while.
fn hash_of_a_run(seed: u64) -> u64 {
    let world = World::new(seed);
    let (near, mut far) = world.link(&LinkConfig { queue_bytes: 8_000, ..slow() });
    let us = Nanos::from_micros(1);
    let plan = FaultPlan::none().drop(0.1).duplicate(0.1, us).reorder(0.1, 4, us).corrupt(0.1);
    let plan = plan.late(0.05, us, Nanos::from_micros(90));
    let mut near = FaultLink::new(near, world.next_seed(), FaultControl::new(plan));
    let mut prng = Prng::new(world.next_seed());
    let dest = far.local_addr();
    for _ in 0..2_000 {
        let mut bytes = vec![0; prng.between(1, 900) as usize];
        prng.fill(&mut bytes);
        send(&mut near, dest, prng.below(8) as u16, &bytes);
        let times = [world.next_event_time(), near.next_release()];
        if let Some(time) = times.into_iter().flatten().min() {
            world.advance_to(time);
        }
        far.receive(16, &mut |_| {});
    }
    world.trace_hash()
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    assert_eq!(hash_of_a_run(42), hash_of_a_run(42));
    assert_ne!(hash_of_a_run(42), hash_of_a_run(43));
}
