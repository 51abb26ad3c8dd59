//! Setting up, and sends that cannot work.

use super::super::{PortChoice, ROCE_PORT, UdpConfig, UdpError, UdpLink};
use super::{V4, V6, bind, collect, collect_now, link, packets, payloads};
use core::net::{IpAddr, Ipv4Addr};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use towpath_verbs::{PacketLink, TxPacket};

/// An address of 127/8 that no other test uses: nobody else is given a port there meanwhile.
fn own_v4(test: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 47, 91, test))
}

#[test]
fn a_port_that_is_taken_is_named_in_the_error() {
    let ip = own_v4(3);
    let owner = link(ip);
    let taken = owner.local_addr();
    let config = UdpConfig::new(ip).port(PortChoice::Exact(taken.port()));
    let error = UdpLink::bind(config).expect_err("the port is taken");
    assert!(matches!(&error, UdpError::PortInUse(addr) if *addr == taken), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&taken.port().to_string()) && text.contains("in use"), "{text}");
    // Expect: the same port is free once its owner is gone.
    drop(owner);
    let config = UdpConfig::new(ip).port(PortChoice::Exact(taken.port()));
    assert_eq!(bind(config).local_addr(), taken);
}

#[test]
fn the_roce_port_is_taken_by_the_first_and_others_get_a_free_one() {
    let ip = own_v4(1);
    let config = UdpConfig::new(ip).port(PortChoice::Roce4791OrEphemeral);
    let (first, second) = (bind(config.clone()), bind(config));
    assert_eq!(first.local_addr().port(), ROCE_PORT);
    assert_ne!(second.local_addr().port(), ROCE_PORT);
}

#[test]
fn foreign_peers_get_the_port_and_the_packets_that_they_need() {
    let v4 = own_v4(2);
    for (ip, as_asked) in [(v4, false), (V6, true)] {
        let config = UdpConfig::new(ip).port(PortChoice::Ephemeral).segmentation(true);
        let offload_works = bind(config.clone()).segmentation();
        let foreign = bind(config.foreign_peers(true));
        assert_eq!(foreign.local_addr().port(), ROCE_PORT);
        assert_eq!(foreign.segmentation(), offload_works && as_asked, "{ip}");
        assert!(foreign.caps().foreign_peers);
    }
    assert!(!link(V4).caps().foreign_peers);
}

#[test]
fn a_foreign_or_unspecified_address_is_refused_with_its_reason() {
    // TEST-NET-1 is on no host.
    let foreign = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let error = UdpLink::bind(UdpConfig::new(foreign)).expect_err("not ours");
    assert!(matches!(error, UdpError::AddressNotLocal(ip) if ip == foreign), "{error:?}");
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let error = UdpLink::bind(UdpConfig::new(any)).expect_err("not one address");
    assert!(matches!(error, UdpError::Unspecified(_)), "{error:?}");
}

#[test]
fn each_source_port_is_another_port_of_the_same_address() {
    for ip in [V4, V6] {
        let tx = bind(UdpConfig::new(ip).source_ports(4));
        assert_eq!(tx.caps().source_ports, 4);
        let mut ports: Vec<_> = (0..4).map(|index| tx.source_addr(index).port()).collect();
        assert!((0..4).all(|index| tx.source_addr(index).ip() == ip));
        assert!((0..4).all(|index| tx.source_addr(index) != tx.local_addr()));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 4);
    }
}

#[test]
fn a_place_where_nobody_listens_does_not_stop_the_others() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    let nowhere = link(own_v4(4)).local_addr();
    let sent = payloads(&[500; 20]);
    for _ in 0..5 {
        let mut list = packets(nowhere, &sent);
        list.extend(packets(rx.local_addr(), &sent));
        assert_eq!(tx.transmit(&list), 40);
        assert_eq!(collect(&mut rx, 20).len(), 20);
        assert_eq!(collect_now(&mut tx), 0);
    }
}

#[test]
fn packets_that_cannot_be_sent_count_as_taken_and_lost() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    let (dest, good) = (rx.local_addr(), [1; 50]);
    let too_long = vec![0; tx.caps().packet_bytes_max as usize + 1];
    let other_family = link(V6).local_addr();
    let broadcast = (Ipv4Addr::BROADCAST, dest.port()).into();
    let mut list = Vec::new();
    for (place, port, payload) in [
        (dest, 0, &good[..]),
        (dest, 0, &too_long),
        (dest, tx.caps().source_ports, &good),
        (other_family, 0, &good),
        (broadcast, 0, &good),
        (dest, 0, &good),
    ] {
        let mut packet = TxPacket::new(place, port, 0);
        packet.push(payload);
        list.push(packet);
    }
    assert_eq!(tx.transmit(&list), list.len());
    assert_eq!(collect(&mut rx, 2).len(), 2);
    assert_eq!((tx.counters().packets_sent, tx.counters().send_errors), (2, 4));
    // Expect: what was refused for its place did not cost the offload.
    assert_eq!(tx.segmentation(), link(V4).segmentation());
}

#[test]
fn the_longest_packet_goes_through_in_both_families() {
    for ip in [V4, V6] {
        let (mut tx, mut rx) = (link(ip), link(ip));
        let sent = payloads(&[tx.caps().packet_bytes_max as usize]);
        assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), 1);
        assert_eq!(collect(&mut rx, 1)[0].bytes, sent[0]);
    }
}

#[test]
fn waiting_ends_with_a_packet_or_with_the_time() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    assert!(!rx.wait_readable(Duration::from_millis(1)));
    tx.transmit(&packets(rx.local_addr(), &payloads(&[10])));
    assert!(rx.wait_readable(super::PATIENCE));
    assert_eq!(collect(&mut rx, 1).len(), 1);
}

#[test]
fn waiting_ends_with_a_ring_that_came_before() {
    let mut rx = link(V4);
    let waker = rx.waker().expect("sockets wait");
    waker.wake_by_ref();
    assert!(rx.wait_readable(super::PATIENCE));
    assert!(!rx.wait_readable(Duration::from_millis(1)));
    waker.wake();
    assert!(rx.wait(towpath_base::Nanos::from_secs(10)), "and through the trait");
}

#[test]
fn waiting_ends_with_a_watched_file_while_it_has_something() {
    let mut rx = link(V4);
    let (mut near, far) = UnixStream::pair().expect("two sockets");
    assert!(rx.watch_file(near.as_raw_fd()));
    assert!(!rx.wait_readable(Duration::from_millis(1)));
    (&far).write_all(b"a").expect("room");
    assert!(rx.wait_readable(super::PATIENCE));
    assert!(rx.wait_readable(super::PATIENCE), "nobody has taken it");
    near.read_exact(&mut [0]).expect("a byte");
    assert!(!rx.wait_readable(Duration::from_millis(1)));
    (&far).write_all(b"b").expect("room");
    assert!(rx.watch_file(-1));
    assert!(!rx.wait_readable(Duration::from_millis(1)), "it is watched no more");
}

#[test]
fn a_link_can_be_given_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<UdpLink>();
}
