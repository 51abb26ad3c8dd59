//! One end of a link: its addresses, its receive buffer, its counters.

use super::config::LinkConfig;
use super::trace::PacketFate;
use super::wire::Flight;
use crate::limits::{SOURCE_PORT_FIRST, SOURCE_PORTS_MAX};
use core::net::SocketAddr;
use std::collections::VecDeque;
use towpath_base::Time;
use towpath_verbs::{LinkCaps, LinkCounters};

/// A packet in a receive buffer.
pub(super) struct Arrived {
    pub(super) flight: Flight,
    pub(super) timestamp: Time,
}

pub(super) struct Port {
    pub(super) addr: SocketAddr,
    pub(super) caps: LinkCaps,
    pub(super) counters: LinkCounters,
    /// The number of the wire that leads away from here.
    pub(super) wire: usize,
    rx_buffer_bytes: u64,
    rx_held_bytes: u64,
    rx: VecDeque<Arrived>,
}

impl Port {
    pub(super) fn new(config: &LinkConfig, end: usize, wire: usize) -> Self {
        let caps = LinkCaps {
            packet_bytes_max: config.packet_bytes_max,
            source_ports: config.source_ports.min(SOURCE_PORTS_MAX),
            rx_buffer_bytes: Some(config.rx_buffer_bytes),
            rx_charge_bytes: config.rx_charge_bytes,
            short_packet_cost_percent: config.short_packet_cost_percent,
        };
        Self {
            addr: config.addrs[end],
            caps,
            counters: LinkCounters::default(),
            wire,
            rx_buffer_bytes: config.rx_buffer_bytes,
            rx_held_bytes: 0,
            rx: VecDeque::new(),
        }
    }

    /// The local address of a source port below `caps.source_ports`.
    pub(super) fn source_addr(&self, source_port: u16) -> SocketAddr {
        SocketAddr::new(self.addr.ip(), SOURCE_PORT_FIRST.saturating_add(source_port))
    }

    /// What becomes of a packet that comes in; one dropped for want of room is counted here.
    pub(super) fn admit(&mut self, flight: &Flight) -> PacketFate {
        let dest = flight.dest;
        if dest.ip() != self.addr.ip() || dest.port() != self.addr.port() {
            return PacketFate::Misaddressed;
        }
        if self.rx_held_bytes + self.charge(flight) > self.rx_buffer_bytes {
            self.counters.packets_dropped += 1;
            return PacketFate::DroppedRxBuffer;
        }
        PacketFate::Delivered
    }

    /// Puts an admitted packet into the receive buffer.
    pub(super) fn keep(&mut self, flight: Flight, now: Time) {
        self.rx_held_bytes += self.charge(&flight);
        self.rx.push_back(Arrived { flight, timestamp: now });
    }

    pub(super) fn take(&mut self) -> Option<Arrived> {
        let arrived = self.rx.pop_front()?;
        self.rx_held_bytes -= self.charge(&arrived.flight);
        self.counters.packets_received += 1;
        self.counters.bytes_received += arrived.flight.bytes.len() as u64;
        Some(arrived)
    }

    fn charge(&self, flight: &Flight) -> u64 {
        flight.bytes.len() as u64 + u64::from(self.caps.rx_charge_bytes)
    }
}
