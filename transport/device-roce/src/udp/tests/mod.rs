//! The UDP link on loopback: trips, connections, runs, refusals, overflow, several on one port.

mod connected;
mod group;
mod lone;
mod overflow;
mod runs;
mod setup;
mod stamps;

use super::{UdpConfig, UdpLink};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use towpath_verbs::{PacketLink, TxPacket};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// How long a packet that was sent over loopback may take to come in on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// What an unprivileged process gets on a machine with default limits: twice `rmem_max`.
const STOCK_BUFFER_BYTES: u32 = 425_984;

fn link(ip: IpAddr) -> UdpLink {
    UdpLink::bind(UdpConfig::new(ip)).expect("loopback is there")
}

fn stock(ip: IpAddr) -> UdpConfig {
    UdpConfig::new(ip).force_buffers(false).rx_buffer_bytes(STOCK_BUFFER_BYTES)
}

fn bind(config: UdpConfig) -> UdpLink {
    UdpLink::bind(config).expect("loopback is there")
}

/// A packet as the tests look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    source: SocketAddr,
    tclass: Option<u8>,
    bytes: Vec<u8>,
}

/// Receives until `count` packets have come in or none comes any more.
fn collect(link: &mut UdpLink, count: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let handed = link.receive(64, &mut |packet| {
            let (source, tclass, bytes) = (packet.source, packet.tclass, packet.bytes.to_vec());
            seen.push(Seen { source, tclass, bytes });
        });
        if handed == 0 && !link.wait_readable(PATIENCE) {
            break;
        }
    }
    seen
}

/// Sends one packet of `size` bytes from `tx` to `rx`, which takes it in and looks at where it came
/// from.
fn trip(tx: &mut UdpLink, rx: &mut UdpLink, size: usize) {
    let sent = payloads(&[size]);
    assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), 1);
    let seen = collect(rx, 1);
    assert_eq!((&seen[0].bytes, seen[0].source), (&sent[0], tx.source_addr(0)));
}

/// What is there now, without waiting.
fn collect_now(link: &mut UdpLink) -> usize {
    let mut count = 0;
    loop {
        match link.receive(64, &mut |_| {}) {
            0 => return count,
            handed => count += handed,
        }
    }
}

/// Packets of the given sizes; packet `i` is filled with `i`, but for the queue pair that it is
/// for, which is 0.
fn payloads(sizes: &[usize]) -> Vec<Vec<u8>> {
    let payload = |(index, &size): (usize, &usize)| {
        let mut payload = vec![index as u8; size];
        payload.iter_mut().skip(5).take(3).for_each(|byte| *byte = 0);
        payload
    };
    sizes.iter().enumerate().map(payload).collect()
}

fn packets(dest: SocketAddr, payloads: &[Vec<u8>]) -> Vec<TxPacket<'_>> {
    payloads
        .iter()
        .map(|payload| {
            let mut packet = TxPacket::new(dest, 0, 0);
            packet.push(payload);
            packet
        })
        .collect()
}

fn bytes_of(seen: &[Seen]) -> Vec<Vec<u8>> {
    seen.iter().map(|seen| seen.bytes.clone()).collect()
}

/// Waits until what was sent over loopback has reached the socket: delivery is part of the send,
/// but a loaded kernel may put it off for a moment.
fn settle(link: &mut UdpLink) {
    let _ = link.wait_readable(PATIENCE);
    std::thread::sleep(Duration::from_millis(20));
}
