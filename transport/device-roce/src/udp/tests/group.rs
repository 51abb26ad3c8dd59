//! Several links on one port: packets come to the link of their queue pair, each once.

use super::super::limits::{HANDED_BYTES_MAX, HANDED_PACKETS_MAX};
use super::super::{PortChoice, Steering, UdpConfig, UdpError, UdpLink, sys};
use super::{PATIENCE, V4, V6, bind, settle, stock};
use core::net::{IpAddr, SocketAddr};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;
use towpath_base::{Nanos, Prng};
use towpath_verbs::{PacketLink, QpNum, QpShare, SHARES_MAX, TxPacket};

fn group(config: UdpConfig, count: usize) -> Vec<UdpLink> {
    UdpLink::bind_group(config, count).expect("loopback is there")
}

/// A packet for a queue pair, marked with a number.
fn packet_for(qp_num: QpNum, mark: u32, byte_len: usize) -> Vec<u8> {
    let mut bytes = vec![0x5a; byte_len.max(12)];
    bytes[4..8].copy_from_slice(&qp_num.0.to_be_bytes());
    bytes[8..12].copy_from_slice(&mark.to_be_bytes());
    bytes
}

fn mark_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[8..12].try_into().expect("four bytes"))
}

/// What has come to each link, once `count` packets have come or none comes any more.
fn collect(links: &mut [UdpLink], count: usize) -> Vec<Vec<Vec<u8>>> {
    let mut seen = vec![Vec::new(); links.len()];
    let mut looks = 0;
    loop {
        let mut moved = 0;
        for (link, seen) in links.iter_mut().zip(&mut seen) {
            moved += link.receive(16, &mut |packet| seen.push(packet.bytes.to_vec()));
        }
        if seen.iter().map(Vec::len).sum::<usize>() == count {
            return seen;
        }
        // A packet that is somewhere else than it was is not lost yet.
        looks = if moved > 0 { 0 } else { looks + 1 };
        if looks > 40 {
            return seen;
        }
        let _ = moved > 0 || links.iter_mut().any(|link| link.wait_readable(PATIENCE / 40));
    }
}

fn handed_over(links: &[UdpLink]) -> u64 {
    let each = links.iter().map(|link| link.udp_counters().handed_over);
    let lost: u64 = links.iter().map(|link| link.udp_counters().handed_over_lost).sum();
    assert_eq!(lost, 0);
    let all = each.sum();
    assert_eq!(links.iter().map(|link| link.udp_counters().taken_over).sum::<u64>(), all);
    all
}

/// Random packets for random queue pairs; returns how many were handed over.
fn trip(ip: IpAddr, count: usize, seed: u64, kernel_steering: bool) -> u64 {
    let mut rng = Prng::new(seed);
    let (segmentation, coalescing) = (rng.chance(0.7), rng.chance(0.7));
    let what = format!(
        "seed {seed}, {ip}, {count} links, steering {kernel_steering}, segmentation \
         {segmentation}, coalescing {coalescing}"
    );
    let config = stock(ip).coalescing(coalescing).kernel_steering(kernel_steering);
    let mut links = group(config.source_ports(2), count);
    let mut tx = bind(stock(ip).segmentation(segmentation).source_ports(3));
    let share = links[0].caps().qp_share;
    let dest = links[0].local_addr();
    assert!(links.iter().all(|link| link.local_addr() == dest), "{what}");
    for _ in 0..20 {
        let special = [QpNum(0), QpNum(1), QpNum::MAX];
        let qps: Vec<_> = (0..6).map(|_| QpNum(rng.next_u32() & QpNum::MAX.0)).collect();
        let mut sent = Vec::new();
        while sent.len() < 40 {
            let (size, port) = (rng.between(12, 1_500) as usize, rng.below(3) as u16);
            let from = if rng.chance(0.1) { &special[..] } else { &qps[..] };
            for _ in 0..rng.between(1, 6) {
                let qp_num = from[rng.below(from.len() as u64) as usize];
                sent.push((qp_num, port, packet_for(qp_num, sent.len() as u32, size)));
            }
        }
        let list: Vec<_> = sent
            .iter()
            .map(|(_, port, bytes)| {
                let mut packet = TxPacket::new(dest, *port, 0);
                packet.push(bytes);
                packet
            })
            .collect();
        assert_eq!(tx.transmit(&list), list.len(), "{what}");
        for (index, mut seen) in collect(&mut links, sent.len()).into_iter().enumerate() {
            let owned = |qp_num| usize::from(share.owner_of(qp_num)) == index;
            let expected: Vec<_> = sent.iter().filter(|(qp_num, ..)| owned(*qp_num)).collect();
            if kernel_steering {
                // Of one sending socket they come in their order.
                for port in 0..3 {
                    let of_port = |bytes: &&Vec<u8>| sent[mark_of(bytes) as usize].1 == port;
                    let marks: Vec<_> =
                        seen.iter().filter(of_port).map(|bytes| mark_of(bytes)).collect();
                    assert!(marks.is_sorted(), "{what}: {marks:?}");
                }
            }
            seen.sort_by_key(|bytes| mark_of(bytes));
            let seen: Vec<_> = seen.iter().collect();
            assert_eq!(seen, expected.iter().map(|(.., b)| b).collect::<Vec<_>>(), "{what}");
        }
    }
    handed_over(&links)
}

#[test]
fn every_packet_comes_once_to_the_link_of_its_queue_pair_and_none_by_another() {
    for (seed, ip) in [(1, V4), (2, V6)] {
        for count in [1, 2, 3, 8] {
            let steering = group(UdpConfig::new(ip), count)[0].steering();
            let expected = if count == 1 { Steering::Alone } else { Steering::Kernel };
            assert_eq!(steering, expected, "this kernel takes the program");
            assert_eq!(trip(ip, count, seed + 10 * count as u64, true), 0);
        }
    }
}

#[test]
fn every_packet_comes_once_where_the_kernel_does_not_steer() {
    for (seed, ip) in [(3, V4), (4, V6)] {
        for count in [2, 3, 8] {
            assert!(trip(ip, count, seed + 10 * count as u64, false) > 0);
        }
    }
    let links = group(UdpConfig::new(V4).kernel_steering(false), 2);
    assert_eq!(links[0].steering(), Steering::HandedOver { refused: None });
    // What a peer may send is no more than the queues hold.
    let caps = links[1].caps();
    assert!(caps.rx_buffer_bytes <= Some((HANDED_PACKETS_MAX * HANDED_BYTES_MAX) as u64));
    assert!(caps.rx_charge_bytes as usize >= HANDED_BYTES_MAX);
}

#[test]
fn a_run_is_for_one_queue_pair() {
    let (mut tx, mut rx) = (bind(UdpConfig::new(V4)), bind(UdpConfig::new(V4)));
    if !tx.segmentation() {
        return;
    }
    let sent: Vec<_> = [8, 8, 8, 9, 9, 8].map(|qp| packet_for(QpNum(qp), qp, 300)).into();
    let dest = rx.local_addr();
    let list: Vec<_> = sent
        .iter()
        .map(|bytes| {
            let mut packet = TxPacket::new(dest, 0, 0);
            // The queue pair's number is in two pieces.
            packet.push(&bytes[..6]);
            packet.push(&bytes[6..]);
            packet
        })
        .collect();
    assert_eq!(tx.transmit(&list), sent.len());
    assert_eq!(collect(std::slice::from_mut(&mut rx), sent.len()), [sent]);
    assert_eq!(tx.udp_counters().messages_sent, 3);
}

/// Sends packets as one run, as a network card may join them.
fn send_joined(to: SocketAddr, packets: &[Vec<u8>]) {
    let tx = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).expect("a free port");
    let segment = packets[0].len() as i32;
    sys::set_option(tx.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, segment).expect("offload");
    tx.send_to(&packets.concat(), to).expect("it fits");
}

#[test]
fn packets_that_were_joined_on_the_way_part_again() {
    for coalescing in [true, false] {
        let mut links = group(UdpConfig::new(V4).coalescing(coalescing), 3);
        if !links[0].segmentation() {
            return;
        }
        let share = links[0].caps().qp_share;
        let sent: Vec<_> = (0..30).map(|n| packet_for(QpNum(100 + n), n, 500)).collect();
        send_joined(links[0].local_addr(), &sent);
        let seen = collect(&mut links, sent.len());
        for (index, seen) in seen.iter().enumerate() {
            let owned = |n: &u32| usize::from(share.owner_of(QpNum(100 + n))) == index;
            let marks: Vec<_> = seen.iter().map(|bytes| mark_of(bytes)).collect();
            assert_eq!(marks, (0..30).filter(owned).collect::<Vec<_>>());
        }
        // The whole run came to the owner of 100, which is the first.
        assert_eq!(links[0].udp_counters().handed_over, (seen[1].len() + seen[2].len()) as u64);
        assert_eq!(handed_over(&links), links[0].udp_counters().handed_over);
    }
}

#[test]
fn a_link_that_stands_still_loses_what_is_over_and_costs_the_others_nothing() {
    let mut links = group(UdpConfig::new(V4), 3);
    if !links[0].segmentation() {
        return;
    }
    let dest = links[0].local_addr();
    // Queue pairs 4, 5 and 6 are of links 0, 1 and 2; the second does not receive.
    let run: Vec<_> = (0..30).map(|n| packet_for(QpNum(4 + n % 3), n, 1_000)).collect();
    let rounds = HANDED_PACKETS_MAX / 10 + 9;
    let mut seen = [0, 0];
    for round in 1..=rounds {
        send_joined(dest, &run);
        for _ in 0..100 {
            for (link, place) in [(0, 0), (2, 1)] {
                let _ = links[link].wait_readable(PATIENCE / 100);
                let count = &mut seen[place];
                while links[link].receive(64, &mut |_| *count += 1) > 0 {}
            }
            if seen == [10 * round; 2] {
                break;
            }
        }
    }
    assert_eq!(seen, [10 * rounds; 2]);
    let lost = (10 * rounds - HANDED_PACKETS_MAX) as u64;
    assert_eq!(links[0].udp_counters().handed_over_lost, lost);
    assert_eq!(links[0].counters().packets_dropped, lost);
    let mut late = 0;
    while links[1].receive(64, &mut |_| late += 1) > 0 {}
    assert_eq!(late, HANDED_PACKETS_MAX);
}

#[test]
fn what_is_handed_over_ends_the_wait_of_its_link() {
    let mut links = group(UdpConfig::new(V4), 2);
    if !links[0].segmentation() {
        return;
    }
    let dest = links[0].local_addr();
    // The run comes to the owner of 4; the packet for 5 is the other's.
    let run = [packet_for(QpNum(4), 0, 100), packet_for(QpNum(5), 1, 100)];
    let (mut second, mut first) = (links.remove(1), links.remove(0));
    let seen = std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            assert!(second.wait(Nanos::from_secs(10)), "woken, not timed out");
            let mut seen = Vec::new();
            second.receive(16, &mut |packet| seen.push(mark_of(packet.bytes)));
            seen
        });
        // As a rule it waits by now; if not, then its wait ends at once.
        std::thread::sleep(Duration::from_millis(20));
        send_joined(dest, &run);
        assert!(first.wait(Nanos::from_secs(10)));
        let mut seen = Vec::new();
        first.receive(16, &mut |packet| seen.push(mark_of(packet.bytes)));
        [seen, other.join().expect("no panic")]
    });
    assert_eq!(seen, [[0], [1]]);
}

#[test]
fn a_port_of_a_group_is_nobody_elses_and_stays_with_its_last_link() {
    for ip in [V4, V6] {
        let mut links = group(UdpConfig::new(ip), 3);
        let addr = links[0].local_addr();
        let taken = UdpConfig::new(ip).port(PortChoice::Exact(addr.port()));
        for count in [1, 2] {
            let error = UdpLink::bind_group(taken.clone(), count).expect_err("taken");
            assert!(matches!(error, UdpError::PortInUse(at) if at == addr), "{error:?}");
        }
        // Expect: without the first link the kernel still counts as before.
        drop(links.remove(0));
        let mut tx = bind(UdpConfig::new(ip));
        let sent: Vec<_> = (0..60).map(|n| packet_for(QpNum(4 + n), n, 200)).collect();
        let list: Vec<_> = sent
            .iter()
            .map(|bytes| {
                let mut packet = TxPacket::new(addr, 0, 0);
                packet.push(bytes);
                packet
            })
            .collect();
        assert_eq!(tx.transmit(&list), 60);
        settle(&mut links[0]);
        // Of four numbers in a row two are the first link's, who is gone.
        let seen = collect(&mut links, 30);
        assert_eq!([seen[0].len(), seen[1].len()], [15, 15]);
        assert_eq!(links.iter().map(|link| link.udp_counters().handed_over).sum::<u64>(), 0);
        assert!(UdpLink::bind_group(taken.clone(), 2).is_err());
        drop(links);
        assert_eq!(group(taken, 2)[1].local_addr(), addr);
    }
}

#[test]
fn a_group_of_none_and_one_of_too_many_are_refused() {
    for wanted in [0, usize::from(SHARES_MAX) + 1, 256, 257] {
        let error = UdpLink::bind_group(UdpConfig::new(V4), wanted).expect_err("no such group");
        assert!(matches!(error, UdpError::Group { wanted: n, .. } if n == wanted), "{error:?}");
    }
    let links = group(UdpConfig::new(V4), usize::from(SHARES_MAX));
    let shares: Vec<_> = links.iter().map(|link| link.caps().qp_share).collect();
    assert_eq!(shares.len(), 64);
    assert!(shares.iter().zip(0..).all(|(share, n)| *share == QpShare::new(n, 64).expect("64")));
}
