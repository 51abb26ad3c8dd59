//! One host: its addresses, its delays, its receive buffer, its counters.

use super::config::{HostDelay, Timestamps};
use super::flight::{Flight, Flights, List, NONE};
use super::ids::WireId;
use super::trace::PacketFate;
use crate::limits::SOURCE_PORT_FIRST;
use core::net::SocketAddr;
use towpath_base::{Nanos, Prng, Time};
use towpath_verbs::{LinkCaps, LinkCounters, QpShare};

/// One way between software and the wire; first in, first out.
struct Passage {
    delay: HostDelay,
    prng: Prng,
    last: Time,
}

impl Passage {
    fn new(delay: HostDelay, seed: u64) -> Self {
        Self { delay, prng: Prng::new(seed), last: Time::ZERO }
    }

    /// When what enters at `time` comes out.
    fn enter(&mut self, time: Time) -> Time {
        let mut out = time + self.delay.fixed;
        if self.delay.jitter.0 > 0 {
            out.0 += self.prng.between(0, self.delay.jitter.0);
        }
        self.last = self.last.max(out);
        self.last
    }
}

/// When packets leave a host.
struct Departures {
    told: Timestamps,
    /// When the network card has sent all that it was given, where nothing pauses it.
    free_at: Time,
    last: Time,
}

/// In this order, so that what every packet needs is in few cache lines.
#[repr(C, align(64))]
pub(super) struct Host {
    /// Packets, and trains.
    arrived: [List; 2],
    rx_buffer_bytes: u64,
    rx_held_bytes: u64,
    rx_charge_bytes: u32,
    packet_bytes_max: u32,
    pub(super) source_ports: u16,
    /// Waits for room instead of losing what does not fit into the queue of its wire.
    pub(super) is_patient: bool,
    pub(super) is_woken: bool,
    timestamps: Timestamps,
    delay_noise: Nanos,
    /// The wire that leads away from here.
    pub(super) wire: WireId,
    pub(super) counters: LinkCounters,
    pub(super) addr: SocketAddr,
    /// None where software tells of the times of sends.
    departures: Option<Box<Departures>>,
    tx: Option<Box<Passage>>,
    rx: Option<Box<Passage>>,
    /// When its timer is due; [`Time::NEVER`] while it is not set.
    pub(super) timer: Time,
    /// When the events come that look at its timer: the earliest last.
    pub(super) timer_events: Vec<Time>,
}

/// What a new host is like.
pub(super) struct HostParts {
    pub(super) addr: SocketAddr,
    pub(super) caps: LinkCaps,
    pub(super) wire: WireId,
    pub(super) is_patient: bool,
    pub(super) delays: [HostDelay; 2],
    pub(super) timestamps: Timestamps,
    pub(super) send_times: Timestamps,
    pub(super) rx_buffer_bytes: u64,
    pub(super) seed: u64,
}

impl Departures {
    fn new(told: Timestamps) -> Option<Box<Self>> {
        let is_told = told != Timestamps::Software;
        is_told.then(|| Box::new(Self { told, free_at: Time::ZERO, last: Time::ZERO }))
    }
}

impl Host {
    pub(super) fn new(parts: &HostParts) -> Self {
        let mut seeds = Prng::new(parts.seed);
        let [tx, rx] = parts.delays.map(|delay| {
            let seed = seeds.next_u64();
            (delay != HostDelay::default()).then(|| Box::new(Passage::new(delay, seed)))
        });
        Self {
            arrived: [List::EMPTY; 2],
            rx_buffer_bytes: parts.rx_buffer_bytes,
            rx_held_bytes: 0,
            rx_charge_bytes: parts.caps.rx_charge_bytes,
            packet_bytes_max: parts.caps.packet_bytes_max,
            source_ports: parts.caps.source_ports,
            is_patient: parts.is_patient,
            is_woken: false,
            timestamps: parts.timestamps,
            delay_noise: parts.caps.delay_noise,
            wire: parts.wire,
            counters: LinkCounters::default(),
            addr: parts.addr,
            departures: Departures::new(parts.send_times),
            tx,
            rx,
            timer: Time::NEVER,
            timer_events: Vec::new(),
        }
    }

    /// A word of each cache line that a packet that comes in is going to need.
    pub(super) fn look(&self) -> u64 {
        self.rx_held_bytes ^ self.counters.packets_received ^ u64::from(self.addr.port())
    }

    pub(super) fn caps(&self) -> LinkCaps {
        LinkCaps {
            packet_bytes_max: self.packet_bytes_max,
            source_ports: self.source_ports,
            rx_buffer_bytes: Some(self.rx_buffer_bytes),
            rx_charge_bytes: self.rx_charge_bytes,
            delay_noise: self.delay_noise,
            foreign_peers: false,
            qp_share: QpShare::ALL,
        }
    }

    pub(super) fn is_too_long(&self, byte_len: usize) -> bool {
        byte_len > self.packet_bytes_max as usize
    }

    /// When what software sends now comes to the queue of the network card.
    pub(super) fn leave_software(&mut self, now: Time) -> Time {
        self.tx.as_mut().map_or(now, |tx| tx.enter(now))
    }

    /// What software handed over at `now` comes to the network card at `ready_at`, and takes `span`
    /// of the wire.
    pub(super) fn depart(&mut self, now: Time, ready_at: Time, span: Nanos) {
        let Some(of) = &mut self.departures else { return };
        of.free_at = of.free_at.max(ready_at) + span;
        of.last = match of.told {
            Timestamps::Wire => of.free_at,
            told => Time(ready_at.0 - told.part(ready_at.since(now)).0),
        };
    }

    /// When the last packet left, as the host tells.
    pub(super) fn left_at(&self, now: Time) -> Time {
        self.departures.as_ref().map_or(now, |of| of.last)
    }

    /// When software can see what came off the wire now.
    pub(super) fn enter_software(&mut self, now: Time) -> Time {
        self.rx.as_mut().map_or(now, |rx| rx.enter(now))
    }

    /// The local address of a source port below `source_ports`.
    pub(super) fn source_addr(&self, source_port: u16) -> SocketAddr {
        SocketAddr::new(self.addr.ip(), SOURCE_PORT_FIRST.saturating_add(source_port))
    }

    /// Takes a flight that comes in, and says what became of it; one dropped for want of room is
    /// counted here.
    pub(super) fn admit(&mut self, flight: u32, now: Time, flights: &mut Flights) -> PacketFate {
        let coming = &mut flights[flight];
        let charge = self.charge(coming);
        if self.rx_held_bytes + charge > self.rx_buffer_bytes {
            self.counters.packets_dropped += u64::from(coming.packets);
            return PacketFate::DroppedRxBuffer;
        }
        self.rx_held_bytes += charge;
        coming.tail_at = coming.tail_at + self.timestamps.part(now.since(coming.tail_at));
        let list = usize::from(coming.is_train);
        self.arrived[list].push(flights, flight);
        PacketFate::Delivered
    }

    /// Takes the next packet, or the next train, out of the receive buffer.
    pub(super) fn take(&mut self, flights: &Flights, is_train: bool) -> Option<u32> {
        let flight = self.arrived[usize::from(is_train)].pop(flights)?;
        let taken = &flights[flight];
        self.rx_held_bytes -= self.charge(taken);
        self.counters.packets_received += u64::from(taken.packets);
        self.counters.bytes_received += u64::from(taken.byte_len);
        Some(flight)
    }

    /// Whether packets to an address are for it.
    pub(super) fn is_at(&self, addr: SocketAddr) -> bool {
        addr.ip() == self.addr.ip() && addr.port() == self.addr.port()
    }

    fn charge(&self, flight: &Flight) -> u64 {
        u64::from(flight.byte_len) + u64::from(flight.packets) * u64::from(self.rx_charge_bytes)
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
