//! When packets leave, by the kernel's stamps: on loopback, and between two interfaces.

use super::super::{TimestampSource, UdpConfig, UdpLink};
use super::{V4, V6, bind, collect, link, packets, payloads};
use std::thread::sleep;
use std::time::Duration;
use towpath_base::Nanos;
use towpath_verbs::PacketLink;

/// Sends `sizes` once stamps are wanted again; says whether what was told lies within the call.
fn send_stamped(tx: &mut UdpLink, rx: &mut UdpLink, sizes: &[usize]) -> bool {
    sleep(Duration::from_millis(5));
    tx.left_at();
    let sent = payloads(sizes);
    let began = tx.now();
    assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), sizes.len());
    let left_at = tx.left_at();
    let ended = tx.now();
    assert_eq!(collect(rx, sizes.len()).len(), sizes.len());
    (began..=ended).contains(&left_at)
}

#[test]
fn on_loopback_each_kind_of_send_is_stamped_within_its_call() {
    for ip in [V4, V6] {
        let (mut tx, mut rx) = (link(ip), link(ip));
        let kinds: [&[usize]; 5] = [&[40], &[4_000], &[1_000; 12], &[4_000; 40], &[40, 4_000, 40]];
        for sizes in kinds {
            assert!(send_stamped(&mut tx, &mut rx, sizes), "{ip}, {sizes:?}");
        }
        let counters = tx.udp_counters();
        assert_eq!(counters.stamps_taken, 5, "{ip}: {counters:?}");
        assert_eq!((counters.stamps_missing, counters.stamps_bad), (0, 0), "{ip}: {counters:?}");
        let times = tx.send_times();
        assert!(times.stamped && !times.by_card && times.before_end_ns >= 0, "{ip}: {times:?}");
    }
}

#[test]
fn what_is_known_of_sends_can_be_measured_before_any() {
    let mut link = link(V4);
    assert!(!link.send_times().stamped);
    let times = link.measure_send_times();
    assert!(times.stamped && times.before_end_ns >= 0, "{times:?}");
    assert!(link.udp_counters().stamps_taken > 1);
}

#[test]
fn one_batch_in_a_while_asks_and_none_where_calls_tell_the_time() {
    let (mut tx, mut rx) = (link(V4), link(V4));
    let sent = payloads(&[40]);
    for _ in 0..200 {
        tx.transmit(&packets(rx.local_addr(), &sent));
        tx.left_at();
        collect(&mut rx, 1);
    }
    let stamps = tx.udp_counters().stamps_taken;
    assert!((1..100).contains(&stamps), "{stamps} of 200");
    let mut tx = bind(UdpConfig::new(V4).timestamps(TimestampSource::Call));
    assert!(send_stamped(&mut tx, &mut rx, &[40]));
    assert_eq!(tx.udp_counters().stamps_taken, 0);
    assert!(!tx.send_times().stamped);
}

/// Where source port 0 is the socket that receives, too, stamps of both ways come on it.
#[test]
fn a_socket_that_sends_and_receives_tells_of_both() {
    let config = || UdpConfig::new(V4).foreign_peers(true).timestamps(TimestampSource::Kernel);
    let Ok(mut one) = UdpLink::bind(config()) else {
        // Another process has the port of RoCE.
        return;
    };
    let mut other = link(V4);
    assert!(send_stamped(&mut one, &mut other, &[40]));
    assert_eq!(one.udp_counters().stamps_taken, 1);
    let sent = payloads(&[40; 3]);
    let before = one.now();
    assert_eq!(other.transmit(&packets(one.local_addr(), &sent)), 3);
    let after = one.now();
    sleep(Duration::from_millis(5));
    let mut times = Vec::new();
    while times.len() < 3 {
        one.receive(9, &mut |packet| times.push(packet.timestamp));
    }
    let slack = Nanos::from_micros(100);
    assert!(times.iter().all(|&at| before <= at + slack && at <= after + slack), "{times:?}");
    assert_eq!(one.udp_counters().truncated, 0);
    // What was stamped left nothing behind that would end a wait.
    assert!(!one.wait_readable(Duration::from_millis(1)));
}
