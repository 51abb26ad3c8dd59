//! One host: its addresses, its delays, its receive buffer, its counters.

use super::config::{HostDelay, Timestamps};
use super::flight::{Flight, Flights, List, NONE};
use super::ids::WireId;
use super::trace::PacketFate;
use crate::limits::SOURCE_PORT_FIRST;
use core::net::SocketAddr;
use towpath_base::{Prng, Time};
use towpath_verbs::{LinkCaps, LinkCounters};

/// One way between software and the wire; first in, first out.
pub(super) struct Passage {
    delay: HostDelay,
    prng: Prng,
    last: Time,
}

impl Passage {
    pub(super) fn new(delay: HostDelay, seed: u64) -> Self {
        Self { delay, prng: Prng::new(seed), last: Time::ZERO }
    }

    /// When what enters at `time` comes out.
    pub(super) fn enter(&mut self, time: Time) -> Time {
        let mut out = time + self.delay.fixed;
        if self.delay.jitter.0 > 0 {
            out.0 += self.prng.between(0, self.delay.jitter.0);
        }
        self.last = self.last.max(out);
        self.last
    }
}

pub(super) struct Host {
    pub(super) addr: SocketAddr,
    pub(super) caps: LinkCaps,
    pub(super) counters: LinkCounters,
    /// The wire that leads away from here.
    pub(super) wire: WireId,
    /// Waits for room instead of losing what does not fit into the queue of its wire.
    pub(super) is_patient: bool,
    pub(super) tx: Passage,
    pub(super) rx: Passage,
    timestamps: Timestamps,
    rx_buffer_bytes: u64,
    rx_held_bytes: u64,
    /// Packets, and trains.
    arrived: [List; 2],
    /// When its timer is due; [`Time::NEVER`] while it is not set.
    pub(super) timer: Time,
    /// When the events come that look at its timer: the earliest last.
    pub(super) timer_events: Vec<Time>,
    pub(super) is_woken: bool,
}

/// What a new host is like.
pub(super) struct HostParts {
    pub(super) addr: SocketAddr,
    pub(super) caps: LinkCaps,
    pub(super) wire: WireId,
    pub(super) is_patient: bool,
    pub(super) delays: [HostDelay; 2],
    pub(super) timestamps: Timestamps,
    pub(super) rx_buffer_bytes: u64,
    pub(super) seed: u64,
}

impl Host {
    pub(super) fn new(parts: &HostParts) -> Self {
        let mut seeds = Prng::new(parts.seed);
        Self {
            addr: parts.addr,
            caps: parts.caps,
            counters: LinkCounters::default(),
            wire: parts.wire,
            is_patient: parts.is_patient,
            tx: Passage::new(parts.delays[0], seeds.next_u64()),
            rx: Passage::new(parts.delays[1], seeds.next_u64()),
            timestamps: parts.timestamps,
            rx_buffer_bytes: parts.rx_buffer_bytes,
            rx_held_bytes: 0,
            arrived: [List::EMPTY; 2],
            timer: Time::NEVER,
            timer_events: Vec::new(),
            is_woken: false,
        }
    }

    /// The local address of a source port below `caps.source_ports`.
    pub(super) fn source_addr(&self, source_port: u16) -> SocketAddr {
        SocketAddr::new(self.addr.ip(), SOURCE_PORT_FIRST.saturating_add(source_port))
    }

    /// Takes a flight that comes in, and says what became of it; one dropped for want of room is
    /// counted here.
    pub(super) fn admit(&mut self, flight: u32, now: Time, flights: &mut Flights) -> PacketFate {
        let coming = &mut flights[flight];
        if coming.dest.ip() != self.addr.ip() || coming.dest.port() != self.addr.port() {
            return PacketFate::Misaddressed;
        }
        let charge = self.charge(coming);
        if self.rx_held_bytes + charge > self.rx_buffer_bytes {
            self.counters.packets_dropped += u64::from(coming.packets);
            return PacketFate::DroppedRxBuffer;
        }
        self.rx_held_bytes += charge;
        if self.timestamps == Timestamps::Software {
            coming.tail_at = now;
        }
        let list = usize::from(coming.token.is_some());
        self.arrived[list].push(flights, flight);
        PacketFate::Delivered
    }

    /// Takes the next packet, or the next train, out of the receive buffer.
    pub(super) fn take(&mut self, flights: &Flights, is_train: bool) -> Option<u32> {
        let flight = self.arrived[usize::from(is_train)].pop(flights)?;
        let taken = &flights[flight];
        self.rx_held_bytes -= self.charge(taken);
        self.counters.packets_received += u64::from(taken.packets);
        self.counters.bytes_received += taken.byte_len;
        Some(flight)
    }

    fn charge(&self, flight: &Flight) -> u64 {
        flight.byte_len + u64::from(flight.packets) * u64::from(self.caps.rx_charge_bytes)
    }
}

/// Where a host is on the fabric.
#[derive(Clone, Copy)]
pub(super) struct Berth {
    /// The number of its switch; [`NONE`] for the end of a link.
    pub(super) leaf: u32,
    /// The wire from the switch to it.
    pub(super) wire: WireId,
}

impl Berth {
    pub(super) const fn of_link(wire: WireId) -> Self {
        Self { leaf: NONE, wire }
    }
}
