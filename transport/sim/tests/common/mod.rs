//! A packet link that a test can look into, and numbered packets to send through it.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod fabric;

use core::net::{Ipv4Addr, SocketAddr};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use towpath_base::{Nanos, Time};
use towpath_verbs::{LinkCaps, LinkCounters, PacketLink, QpShare, RxPacket, TxPacket};

/// The longest packet of a [`Bench`].
pub(crate) const PACKET_BYTES_MAX: u32 = 256;

/// What a [`BenchLink`] did and does; the test keeps one end, the link the other.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) now: Time,
    /// How many packets each `transmit` takes in turn; all, once it is empty.
    pub(crate) takes: VecDeque<usize>,
    /// The packets taken: source port, bytes.
    pub(crate) sent: Vec<(u16, Vec<u8>)>,
    /// How many packets each `transmit` was offered.
    pub(crate) offers: Vec<usize>,
    /// Where the first byte of each packet taken lay.
    pub(crate) pointers: Vec<*const u8>,
    /// The packets to receive: UDP source port, bytes.
    pub(crate) arriving: VecDeque<(u16, Vec<u8>)>,
}

#[derive(Clone, Default)]
pub(crate) struct Bench(pub(crate) Rc<RefCell<State>>);

pub(crate) struct BenchLink(Bench);

impl Bench {
    pub(crate) fn link(&self) -> BenchLink {
        BenchLink(self.clone())
    }

    pub(crate) fn go_to(&self, time: Time) {
        self.0.borrow_mut().now = time;
    }

    /// The numbers of the packets that the link took.
    pub(crate) fn sent_numbers(&self) -> Vec<u32> {
        self.0.borrow().sent.iter().map(|(_, bytes)| number_of(bytes)).collect()
    }
}

pub(crate) fn peer() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), 4791))
}

/// Packets that say their number, in 8 bytes.
pub(crate) fn numbered(range: core::ops::Range<u32>) -> Vec<[u8; 8]> {
    range.map(|number| (u64::from(number) << 32).to_be_bytes()).collect()
}

pub(crate) fn number_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("a numbered packet"))
}

/// The packets, spread over `source_ports` in turn.
pub(crate) fn packets(bytes: &[[u8; 8]], source_ports: u16) -> Vec<TxPacket<'_>> {
    let ports = (0..source_ports).cycle();
    bytes
        .iter()
        .zip(ports)
        .map(|(bytes, port)| {
            let mut packet = TxPacket::new(peer(), port, 0);
            packet.push(bytes);
            packet
        })
        .collect()
}

/// Sends the numbers `range` in batches of `batch`, offering again what is not taken.
pub(crate) fn send_numbers(link: &mut impl PacketLink, range: core::ops::Range<u32>, batch: usize) {
    let bytes = numbered(range);
    for part in bytes.chunks(batch) {
        let packets = packets(part, 1);
        let mut done = 0;
        while done < packets.len() {
            done += link.transmit(&packets[done..]);
        }
    }
}

/// Asserts that `hits` of `n` trials is within five standard deviations of probability `p`;
/// `spread` is the factor by which dependence between trials widens the variance.
#[track_caller]
pub(crate) fn assert_share(hits: u64, n: u64, p: f64, spread: f64) {
    let (mean, deviation) = (n as f64 * p, (n as f64 * p * (1.0 - p) * spread).sqrt());
    let off = (hits as f64 - mean).abs();
    assert!(off < 5.0 * deviation, "{hits} of {n}; expected {mean:.0} +- {deviation:.0}");
}

impl PacketLink for BenchLink {
    fn caps(&self) -> LinkCaps {
        LinkCaps {
            packet_bytes_max: PACKET_BYTES_MAX,
            source_ports: 8,
            rx_buffer_bytes: None,
            rx_charge_bytes: 0,
            delay_noise: Nanos::ZERO,
            foreign_peers: false,
            qp_share: QpShare::ALL,
        }
    }

    fn local_addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 4791))
    }

    fn now(&self) -> Time {
        self.0.0.borrow().now
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 50_000 + source_port))
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        let mut state = self.0.0.borrow_mut();
        state.offers.push(packets.len());
        let take = state.takes.pop_front().unwrap_or(usize::MAX).min(packets.len());
        for packet in &packets[..take] {
            state.pointers.push(packet.parts()[0].as_ptr());
            state.sent.push((packet.source_port, packet.parts().concat()));
        }
        take
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        for count in 0..budget {
            let (now, arrived) = {
                let mut state = self.0.0.borrow_mut();
                (state.now, state.arriving.pop_front())
            };
            let Some((port, bytes)) = arrived else { return count };
            let source = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), port));
            let (dest, timestamp) = (self.local_addr(), now);
            sink(RxPacket { source, dest, tclass: Some(0), bytes: &bytes, timestamp });
        }
        budget
    }

    fn counters(&self) -> LinkCounters {
        LinkCounters { packets_sent: self.0.0.borrow().sent.len() as u64, ..Default::default() }
    }
}
