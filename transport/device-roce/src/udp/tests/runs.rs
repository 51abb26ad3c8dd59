//! What packets become on their way: runs are cut and joined, bytes and order stay.

use super::super::limits::{TCLASS_ASKED_FIRST, TCLASS_UNASKED};
use super::super::{TimestampSource, UdpConfig, UdpLink};
use super::{V4, V6, bind, bytes_of, collect, link, packets, payloads, stock};
use core::net::IpAddr;
use towpath_base::Prng;
use towpath_verbs::{PacketLink, TxPacket, link::PARTS_MAX};

/// Splits `payload` into pieces at random places.
fn push_in_parts<'a>(packet: &mut TxPacket<'a>, mut payload: &'a [u8], rng: &mut Prng) {
    for _ in 1..PARTS_MAX {
        let cut = rng.between(0, payload.len() as u64) as usize;
        let (part, rest) = payload.split_at(cut);
        packet.push(part);
        payload = rest;
    }
    packet.push(payload);
}

/// Sends packets of random sizes in random pieces; returns what came and what was sent.
fn mixed_trip(ip: IpAddr, seed: u64, segmentation: bool, coalescing: bool) {
    let what = format!("seed {seed}, {ip}, segmentation {segmentation}, coalescing {coalescing}");
    let mut rng = Prng::new(seed);
    let config = stock(ip).segmentation(segmentation).coalescing(coalescing);
    let (mut tx, mut rx) = (bind(config.clone().source_ports(3)), bind(config));
    for _ in 0..60 {
        // No more than the stock buffer holds, however the kernel charges a packet of up to 9 KB.
        let mut sent = Vec::new();
        while sent.len() < 12 {
            let size = match rng.below(4) {
                0 => rng.between(1, 200),
                1 => rng.between(200, 2_000),
                2 => 4_112,
                _ => rng.between(2_000, 9_000),
            };
            for _ in 0..rng.between(1, 8) {
                let mut payload = vec![0; size as usize];
                rng.fill(&mut payload);
                sent.push(payload);
            }
        }
        let port = rng.below(3) as u16;
        let list: Vec<_> = sent
            .iter()
            .map(|payload| {
                let mut packet = TxPacket::new(rx.local_addr(), port, 0);
                push_in_parts(&mut packet, payload, &mut rng);
                packet
            })
            .collect();
        assert_eq!(tx.transmit(&list), list.len(), "{what}");
        let seen = collect(&mut rx, sent.len());
        assert_eq!(bytes_of(&seen), sent, "{what}");
        assert!(seen.iter().all(|seen| seen.source == tx.source_addr(port)), "{what}");
    }
    assert_eq!(rx.counters().packets_dropped, 0, "{what}");
    let (sent, received) = (tx.counters(), rx.counters());
    assert_eq!(sent.packets_sent, received.packets_received, "{what}");
    assert_eq!(sent.bytes_sent, received.bytes_received, "{what}");
    assert_eq!(sent.send_errors, 0, "{what}");
}

#[test]
fn mixed_packets_in_pieces_arrive_in_order_and_whole_with_and_without_offload() {
    for (seed, ip) in [(1, V4), (2, V6)] {
        for (segmentation, coalescing) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            mixed_trip(ip, seed, segmentation, coalescing);
        }
    }
}

/// Sends packets of `sizes` and says in how many messages they went.
fn messages_of(sizes: &[usize]) -> u64 {
    let (mut tx, mut rx) = (link(V4), link(V4));
    let sent = payloads(sizes);
    assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), sizes.len());
    assert_eq!(bytes_of(&collect(&mut rx, sizes.len())), sent);
    assert_eq!(rx.udp_counters().messages_received, tx.udp_counters().messages_sent);
    tx.udp_counters().messages_sent
}

#[test]
fn a_run_is_of_one_size_but_for_a_shorter_last() {
    if !link(V4).segmentation() {
        return;
    }
    assert_eq!(messages_of(&[300; 10]), 1);
    // The last may be shorter, and ends the run.
    assert_eq!(messages_of(&[300, 300, 299]), 1);
    assert_eq!(messages_of(&[300, 300, 299, 299]), 2);
    // A longer one begins the next.
    assert_eq!(messages_of(&[300, 300, 301]), 2);
    // 15 packets of 4,112 bytes are one message, a 16th is the next.
    assert_eq!(messages_of(&[4_112; 15]), 1);
    assert_eq!(messages_of(&[4_112; 16]), 2);
    // An empty packet goes by itself.
    assert_eq!(messages_of(&[300, 0, 300]), 3);
}

#[test]
fn a_packet_that_is_to_leave_alone_is_in_no_run() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    if !tx.segmentation() {
        return;
    }
    let sent = payloads(&[1_000; 5]);
    let mut list = packets(rx.local_addr(), &sent);
    list[2].alone = true;
    assert_eq!(tx.transmit(&list), 5);
    assert_eq!(bytes_of(&collect(&mut rx, 5)), sent);
    assert_eq!(tx.udp_counters().messages_sent, 3, "two, one, two");
}

#[test]
fn a_run_ends_at_as_many_segments_as_the_kernel_takes() {
    let probe = link(V4);
    if !probe.segmentation() {
        return;
    }
    let max = probe.segments_max();
    assert!(max == 64 || max == 128, "{max}");
    assert_eq!(messages_of(&vec![64; max]), 1);
    assert_eq!(messages_of(&vec![64; max + 1]), 2);
}

#[test]
fn a_run_ends_where_the_place_the_port_or_the_class_changes() {
    for ip in [V4, V6] {
        flows_trip(ip);
    }
}

fn flows_trip(ip: IpAddr) {
    let mut tx = bind(UdpConfig::new(ip).source_ports(2));
    let (mut a, mut b) = (link(ip), link(ip));
    let (to_a, to_b) = (a.local_addr(), b.local_addr());
    let flows = [(to_a, 0, 0), (to_a, 0, 0), (to_b, 0, 0), (to_a, 1, 0), (to_a, 1, 0x88)];
    let payload = [5; 100];
    let list = flows.map(|(dest, port, tclass)| {
        let mut packet = TxPacket::new(dest, port, tclass);
        packet.push(&payload);
        packet
    });
    assert_eq!(tx.transmit(&list), 5);
    let seen: Vec<_> = collect(&mut a, 4).into_iter().map(|seen| seen.source).collect();
    let ports = [tx.source_addr(0), tx.source_addr(1)];
    assert_eq!(seen, [ports[0], ports[0], ports[1], ports[1]]);
    assert_eq!(collect(&mut b, 1).len(), 1);
    if tx.segmentation() {
        assert_eq!(tx.udp_counters().messages_sent, 4);
    }
    assert_eq!(tx.counters().send_errors, 0);
}

#[test]
fn a_traffic_class_is_seen_as_it_was_sent_and_ends_a_run() {
    // DSCP 46 with ECN capable, DSCP 26, none, and every bit.
    let classes = [0xba_u8, 0x68, 0, 0xff];
    for ip in [V4, V6] {
        for (segmentation, coalescing) in [(true, true), (true, false), (false, false)] {
            let config = stock(ip).segmentation(segmentation).coalescing(coalescing);
            let (mut tx, mut rx) = (bind(config.clone()), bind(config));
            let sent: Vec<u8> =
                classes.into_iter().flat_map(|tclass| [tclass; 3]).chain(classes).collect();
            let payload = [5; 700];
            let list: Vec<_> = sent
                .iter()
                .map(|&tclass| {
                    let mut packet = TxPacket::new(rx.local_addr(), 0, tclass);
                    packet.push(&payload);
                    packet
                })
                .collect();
            assert_eq!(tx.transmit(&list), sent.len());
            let seen: Vec<_> =
                collect(&mut rx, sent.len()).into_iter().filter_map(|seen| seen.tclass).collect();
            assert_eq!(seen, sent, "{ip}, segmentation {segmentation}, coalescing {coalescing}");
            // 0xff three times and once more is cut apart by the classes between them.
            if tx.segmentation() {
                assert_eq!(tx.udp_counters().messages_sent, 8);
            }
        }
    }
}

#[test]
fn of_many_calls_one_in_64_tells_a_traffic_class_until_each_is_asked_to() {
    for ip in [V4, V6] {
        let (mut tx, mut rx) = (bind(stock(ip)), bind(stock(ip)));
        let dest = rx.local_addr();
        let mut send_one = |rx: &mut UdpLink| {
            let mut packet = TxPacket::new(dest, 0, 0x68);
            packet.push(&[5; 700]);
            assert_eq!(tx.transmit(&[packet]), 1);
            collect(rx, 1).first().expect("it came").tclass
        };
        let mut told = |rx: &mut UdpLink, count: u32| {
            let classes: Vec<_> = (0..count).filter_map(|_| send_one(rx)).collect();
            assert!(classes.iter().all(|&class| class == 0x68), "{ip}: {classes:?}");
            classes.len() as u32
        };
        assert_eq!(told(&mut rx, TCLASS_ASKED_FIRST), TCLASS_ASKED_FIRST, "{ip}");
        assert_eq!(told(&mut rx, 3 * (TCLASS_UNASKED + 1)), 3, "{ip}");
        rx.look_at_each_tclass();
        assert_eq!(told(&mut rx, 200), 200, "{ip}");
    }
}

#[test]
fn what_is_over_the_budget_is_kept_for_the_next_call() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    let sent = payloads(&[700; 40]);
    assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), 40);
    let mut seen = Vec::new();
    while seen.len() < 40 {
        let before = seen.len();
        let handed = rx.receive(7, &mut |packet| seen.push(packet.bytes.to_vec()));
        assert!(handed <= 7 && handed == seen.len() - before);
        assert!(handed > 0 || rx.wait_readable(super::PATIENCE));
    }
    assert_eq!(seen, sent);
    // Each datagram is counted once, however many calls it took to hand it on.
    assert_eq!(rx.udp_counters().messages_received, tx.udp_counters().messages_sent);
}

#[test]
fn a_budget_of_nothing_hands_nothing_on() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    let sent = payloads(&[64]);
    tx.transmit(&packets(rx.local_addr(), &sent));
    assert!(rx.wait_readable(super::PATIENCE));
    assert_eq!(rx.receive(0, &mut |_| {}), 0);
    assert_eq!(collect(&mut rx, 1).len(), 1);
}

#[test]
fn a_refused_run_goes_out_packet_by_packet_and_offload_is_given_up() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    if !tx.segmentation() {
        return;
    }
    // The kernel refuses offload on sockets that send no checksum.
    tx.break_segmentation();
    let sent = payloads(&[900; 30]);
    assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), 30);
    assert_eq!(bytes_of(&collect(&mut rx, 30)), sent);
    assert_eq!(tx.udp_counters().segmentation_refused, 1);
    assert_eq!((tx.counters().packets_sent, tx.counters().send_errors), (30, 0));
    assert!(!tx.segmentation());
    // Expect: the next packets are not offered as a run again.
    assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), 30);
    assert_eq!(bytes_of(&collect(&mut rx, 30)), sent);
    assert_eq!(tx.udp_counters().segmentation_refused, 1);
    assert_eq!(tx.udp_counters().messages_sent, 60);
}

#[test]
fn times_lie_between_the_send_and_the_receipt_and_never_go_back() {
    for source in [TimestampSource::Call, TimestampSource::Kernel] {
        let (mut tx, mut rx) = (link(V4), bind(UdpConfig::new(V4).timestamps(source)));
        let sent = payloads(&[80; 3]);
        let mut last = rx.now();
        for _ in 0..20 {
            let before = rx.now();
            tx.transmit(&packets(rx.local_addr(), &sent));
            assert!(rx.wait_readable(super::PATIENCE));
            let mut times = Vec::new();
            while times.len() < 3 {
                rx.receive(9, &mut |packet| times.push(packet.timestamp));
            }
            let after = rx.now();
            for time in times {
                // The wall clock is read a little apart from the link's: 1 ms of slack.
                assert!(time.0 + 1_000_000 >= before.0 && time <= after, "{source:?}");
                assert!(time.0 + 1_000_000 >= last.0, "{source:?}");
                last = time;
            }
        }
    }
}
