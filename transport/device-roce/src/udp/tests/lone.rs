//! Short packets that come alone, for which the kernel is told not to coalesce.

use super::super::limits::{LONE_BYTES_MAX, LONE_PACKETS, TCLASS_ASKED_FIRST};
use super::super::{TimestampSource, UdpConfig, UdpLink};
use super::{
    V4, V6, bind, bytes_of, collect, collect_now, link, packets, payloads, settle, stock, trip,
};
use towpath_verbs::PacketLink;

/// Sends a run, and says how many of its packets came in one piece with others.
fn run(tx: &mut UdpLink, rx: &mut UdpLink, sizes: &[usize]) -> u64 {
    let before = rx.udp_counters().segments_received;
    let sent = payloads(sizes);
    assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), sizes.len());
    assert_eq!(bytes_of(&collect(rx, sizes.len())), sent);
    rx.udp_counters().segments_received - before
}

#[test]
fn a_run_after_short_packets_comes_whole_and_the_next_in_one_piece() {
    for ip in [V4, V6] {
        let (mut tx, mut rx) = (link(ip), link(ip));
        if !(tx.segmentation() && rx.coalescing()) {
            return;
        }
        for _ in 0..TCLASS_ASKED_FIRST + LONE_PACKETS {
            trip(&mut tx, &mut rx, 144);
        }
        assert!(rx.is_coalescing_paused(), "{ip}");
        // Expect: the kernel cuts it, and is told at its first packet to do so no more.
        assert_eq!(run(&mut tx, &mut rx, &[4_112; 15]), 0, "{ip}");
        assert!(!rx.is_coalescing_paused(), "{ip}");
        assert_eq!(run(&mut tx, &mut rx, &[4_112; 15]), 15, "{ip}");
        assert_eq!(rx.counters().packets_dropped, 0, "{ip}");
    }
}

#[test]
fn packets_that_are_long_or_not_alone_end_it_and_short_ones_begin_anew() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    if !rx.coalescing() {
        return;
    }
    for _ in 1..LONE_PACKETS {
        trip(&mut tx, &mut rx, 144);
    }
    trip(&mut tx, &mut rx, LONE_BYTES_MAX + 1);
    for _ in 1..LONE_PACKETS {
        trip(&mut tx, &mut rx, LONE_BYTES_MAX);
    }
    assert!(!rx.is_coalescing_paused(), "one is missing");
    trip(&mut tx, &mut rx, 1);
    assert!(rx.is_coalescing_paused());
    // Expect: of packets that wait together the first calls see one, the next more.
    assert_eq!(collect_now(&mut rx), 0);
    let sent = payloads(&[144; 8]);
    for payload in &sent {
        assert_eq!(tx.transmit(&packets(rx.local_addr(), std::slice::from_ref(payload))), 1);
    }
    settle(&mut rx);
    assert_eq!(bytes_of(&collect(&mut rx, 8)), sent);
    assert!(!rx.is_coalescing_paused());
}

#[test]
fn a_run_that_waits_while_short_packets_would_stop_coalescing_is_cut_right() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    if !(tx.segmentation() && rx.coalescing()) {
        return;
    }
    for _ in 1..LONE_PACKETS {
        trip(&mut tx, &mut rx, 144);
    }
    // The next call asks for one datagram.
    assert_eq!(collect_now(&mut rx), 0);
    let sent = payloads(&[144, 300, 300, 300, 300, 299]);
    assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), 6);
    settle(&mut rx);
    let before = rx.udp_counters().messages_received;
    assert_eq!(bytes_of(&collect(&mut rx, 6)), sent);
    assert_eq!(rx.udp_counters().messages_received - before, 2);
    assert!(!rx.is_coalescing_paused());
}

#[test]
fn short_runs_do_not_count_as_packets_that_come_alone() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    if !(tx.segmentation() && rx.coalescing()) {
        return;
    }
    for _ in 0..=LONE_PACKETS {
        assert_eq!(run(&mut tx, &mut rx, &[100; 3]), 3);
    }
    assert!(!rx.is_coalescing_paused());
}

#[test]
fn what_all_short_packets_have_is_had_without_coalescing_by_packets_of_any_length() {
    for ip in [V4, V6] {
        let config = UdpConfig::new(ip).coalescing(false);
        let (mut tx, mut rx) = (bind(config.clone()), bind(config));
        for _ in 0..TCLASS_ASKED_FIRST + 3 {
            trip(&mut tx, &mut rx, 144);
        }
        trip(&mut tx, &mut rx, 4_112);
        let longest = tx.caps().packet_bytes_max as usize;
        trip(&mut tx, &mut rx, longest);
        assert_eq!(run(&mut tx, &mut rx, &[4_112; 15]), 0, "{ip}");
    }
}

#[test]
fn what_is_advertised_fits_in_full_packets_after_short_ones() {
    let (mut tx, mut rx) = (bind(stock(V4)), bind(stock(V4)));
    if !(tx.segmentation() && rx.coalescing()) {
        return;
    }
    for _ in 0..LONE_PACKETS {
        trip(&mut tx, &mut rx, 144);
    }
    assert!(rx.is_coalescing_paused());
    let caps = rx.caps();
    let run_bytes = 15 * 4_112 + u64::from(caps.rx_charge_bytes);
    let runs = caps.rx_buffer_bytes.expect("a socket has a bound") / run_bytes;
    let sent = payloads(&[4_112; 15]);
    for _ in 0..runs {
        assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), 15);
    }
    settle(&mut rx);
    assert_eq!(collect(&mut rx, 15 * runs as usize).len(), 15 * runs as usize);
    assert_eq!(rx.counters().packets_dropped, 0);
}

#[test]
fn what_the_kernel_drops_meanwhile_is_counted_at_once_and_once() {
    let (mut tx, mut rx) = (bind(stock(V4)), bind(stock(V4)));
    for _ in 0..TCLASS_ASKED_FIRST + LONE_PACKETS {
        trip(&mut tx, &mut rx, 144);
    }
    let sent = payloads(&[144]);
    let count = 2_000;
    for _ in 0..count {
        assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), 1);
    }
    settle(&mut rx);
    let dropped = rx.counters().packets_dropped;
    assert!(dropped > 0);
    assert_eq!(collect_now(&mut rx) as u64 + dropped, count);
    trip(&mut tx, &mut rx, 144);
    assert_eq!(rx.counters().packets_dropped, dropped);
}

#[test]
fn where_each_traffic_class_or_the_kernels_times_are_wanted_all_stays_as_it_was() {
    let config = UdpConfig::new(V4).timestamps(TimestampSource::Kernel);
    let (mut tx, mut timed, mut rx) = (link(V4), bind(config), link(V4));
    for _ in 0..TCLASS_ASKED_FIRST + LONE_PACKETS {
        trip(&mut tx, &mut timed, 144);
        trip(&mut tx, &mut rx, 144);
    }
    assert!(!timed.is_coalescing_paused());
    assert_eq!(rx.is_coalescing_paused(), rx.coalescing());
    rx.look_at_each_tclass();
    assert!(!rx.is_coalescing_paused());
    if tx.segmentation() && rx.coalescing() {
        assert_eq!(run(&mut tx, &mut rx, &[100; 15]), 15);
    }
    for _ in 0..=LONE_PACKETS {
        trip(&mut tx, &mut rx, 144);
    }
    assert!(!rx.is_coalescing_paused());
}
