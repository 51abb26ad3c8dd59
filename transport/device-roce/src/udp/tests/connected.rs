//! Sockets that only send, and where they are connected to.

use super::super::limits::RECONNECT_AFTER;
use super::super::{PortChoice, UdpConfig};
use super::{V4, V6, bind, link, packets, payloads, trip};
use core::net::IpAddr;
use towpath_verbs::PacketLink;

#[test]
fn on_loopback_what_sends_is_connected_to_the_first_place_and_others_are_reached_too() {
    for ip in [V4, V6] {
        let (mut tx, mut a, mut b) = (link(ip), link(ip), link(ip));
        assert_ne!(tx.source_addr(0), tx.local_addr(), "{ip}");
        assert_eq!(tx.connected_to(0), None, "{ip}");
        for _ in 0..3 {
            trip(&mut tx, &mut a, 100);
            trip(&mut tx, &mut b, 100);
            assert_eq!(tx.connected_to(0), Some(a.local_addr()), "{ip}");
        }
        // Expect: what is connected takes nothing in, so that strangers reach the link as before.
        trip(&mut b, &mut tx, 100);
        trip(&mut a, &mut tx, 100);
        let (sent, errors) = (tx.counters().packets_sent, tx.counters().send_errors);
        assert_eq!((sent, errors, tx.connected_to(1)), (6, 0, None), "{ip}");
    }
}

#[test]
fn a_place_that_is_sent_to_no_more_gives_its_socket_up() {
    let (mut tx, mut a, mut b) = (link(V4), link(V4), link(V4));
    trip(&mut tx, &mut a, 100);
    for _ in 0..RECONNECT_AFTER {
        trip(&mut tx, &mut b, 100);
    }
    // Expect: one packet to the old place begins the count anew.
    trip(&mut tx, &mut a, 100);
    for _ in 0..RECONNECT_AFTER {
        trip(&mut tx, &mut b, 100);
    }
    assert_eq!(tx.connected_to(0), Some(a.local_addr()));
    trip(&mut tx, &mut b, 100);
    assert_eq!(tx.connected_to(0), Some(b.local_addr()));
    trip(&mut tx, &mut a, 100);
}

#[test]
fn a_peer_that_was_gone_for_a_while_is_reached_when_it_is_back() {
    let (mut tx, mut other) = (link(V4), link(V4));
    let ip = IpAddr::from([127, 47, 91, 5]);
    let mut rx = link(ip);
    let place = rx.local_addr();
    trip(&mut tx, &mut rx, 100);
    drop(rx);
    let sent = payloads(&[100]);
    for _ in 0..10 {
        // Each but the first of these finds the refusal of the one before.
        assert_eq!(tx.transmit(&packets(place, &sent)), 1);
        trip(&mut tx, &mut other, 100);
    }
    let mut rx = bind(UdpConfig::new(ip).port(PortChoice::Exact(place.port())));
    trip(&mut tx, &mut rx, 100);
    assert_eq!(tx.counters().send_errors, 0);
}

#[test]
fn packets_for_foreign_peers_of_ipv4_leave_from_where_packets_come_in() {
    let ip = IpAddr::from([127, 47, 91, 6]);
    let (mut tx, mut rx) = (bind(UdpConfig::new(ip).foreign_peers(true)), link(V4));
    assert_eq!(tx.source_addr(0), tx.local_addr());
    trip(&mut tx, &mut rx, 100);
    // Expect: an ID of 0, which only a socket has that is not connected.
    assert_eq!(tx.connected_to(0), None);
}
