//! When packets leave an interface that is not loopback, by the kernel's stamps: on the socket that
//! receives, and behind a queue of the host.
//!
//! The hosts are network namespaces, which not everybody may make: see `towpath_tests::wires`.

use std::thread::sleep;
use std::time::{Duration, Instant};
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_tests::namespace::within;
use towpath_tests::wires::{End, Host, skipped, wire};
use towpath_verbs::{PacketLink, TxPacket};

/// Two hosts with a wire between them, and a link on each, by IPv4 or IPv6.
fn pair(v6: bool) -> Option<(Host, Host, UdpLink, UdpLink)> {
    let made = || {
        let (near, far) = (Host::new()?, Host::new()?);
        let ends = (["10.76.0.1/24", "fd76::1/64"], ["10.76.0.2/24", "fd76::2/64"]);
        let end = |host, addrs| End { host, name: "wire0", addrs, mtu: 9000 };
        wire(&end(&near, &ends.0), &end(&far, &ends.1))?;
        let link = |host: &Host, ip: &str| {
            let config = UdpConfig::new(ip.parse().expect("an address"));
            let bound = within(&host.file(), || UdpLink::bind(config));
            bound.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
        };
        let ips = if v6 { ["fd76::1", "fd76::2"] } else { ["10.76.0.1", "10.76.0.2"] };
        let (one, other) = (link(&near, ips[0])?, link(&far, ips[1])?);
        Ok((near, far, one, other))
    };
    skipped(made())
}

/// Sends a run of packets, so that a stamp is asked for; whether it left within the call.
fn send(link: &mut UdpLink, far: &UdpLink, source_port: u16, bytes: &[u8]) -> bool {
    sleep(Duration::from_millis(5));
    link.left_at();
    let mut packet = TxPacket::new(far.local_addr(), source_port, 0);
    packet.push(bytes);
    let began = link.now();
    assert_eq!(link.transmit(&[packet; 4]), 4);
    let left_at = link.left_at();
    (began..=link.now()).contains(&left_at)
}

/// Receives so many packets within a while.
fn receive(link: &mut UdpLink, count: usize) -> usize {
    let (begin, mut seen) = (Instant::now(), 0);
    while seen < count && begin.elapsed() < Duration::from_secs(10) {
        match link.receive(64, &mut |_| {}) {
            0 => drop(link.wait_readable(Duration::from_millis(1))),
            count => seen += count,
        }
    }
    seen
}

#[test]
fn sends_of_each_socket_are_stamped_also_of_that_which_receives() {
    for v6 in [false, true] {
        let Some((_near, _far, mut one, mut other)) = pair(v6) else { return };
        for source_port in [0, 1, 0] {
            assert!(send(&mut one, &other, source_port, &[1; 4_000]));
            assert_eq!(receive(&mut other, 4), 4);
            assert!(send(&mut other, &one, 0, &[2; 40]));
            assert_eq!(receive(&mut one, 4), 4);
        }
        for link in [&mut one, &mut other] {
            let counters = link.udp_counters();
            assert_eq!(counters.stamps_taken, 3, "{counters:?}");
            assert_eq!((counters.stamps_missing, counters.stamps_bad), (0, 0), "{counters:?}");
            assert_eq!((counters.truncated, counters.receive_errors), (0, 0), "{counters:?}");
            assert!(link.send_times().stamped);
            assert!(!link.wait_readable(Duration::from_millis(1)), "nothing ends waits");
        }
    }
}

/// A queue of the host in front of the wire is one of the network: what waits in it counts as sent
/// when the call is over, and its late stamp does not keep the sender awake.
#[test]
fn what_waits_for_the_interface_counts_as_sent_at_the_end_of_its_call() {
    let Some((near, _far, mut one, mut other)) = pair(false) else { return };
    let slow = "tc qdisc add dev wire0 root tbf rate 4mbit burst 10kb latency 400ms";
    if skipped(near.run(slow)).is_none() {
        return;
    }
    // The burst passes, the rest waits: 32 KB take 45 ms, and the second run begins after 5.
    for _ in 0..2 {
        assert!(send(&mut one, &other, 0, &[1; 4_000]));
    }
    assert_eq!(receive(&mut other, 8), 8);
    sleep(Duration::from_millis(5));
    one.receive(1, &mut |_| {});
    let counters = one.udp_counters();
    assert!(counters.stamps_queued >= 1, "{counters:?}");
    assert_eq!((counters.stamps_missing, counters.stamps_bad), (0, 0), "{counters:?}");
    let begin = Instant::now();
    assert!(!one.wait_readable(Duration::from_millis(20)));
    assert!(begin.elapsed() >= Duration::from_millis(20), "a wait lasts");
}
