//! The event heap, and what each event does.

use super::WorldCounters;
use super::clock::VirtualClock;
use super::config::LinkConfig;
use super::port::{Arrived, Port};
use super::trace::{PacketFate, Trace, TraceEvent};
use super::wire::{Flight, Wire};
use core::cmp::Reverse;
use std::collections::BinaryHeap;
use towpath_base::{Prng, Time};
use towpath_verbs::TxPacket;

/// Ordered by time, then by when it was scheduled: the derive compares the fields in turn.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    time: Time,
    sequence: u64,
    /// The wire whose oldest packet arrives.
    wire: usize,
}

pub(super) struct Engine {
    clock: VirtualClock,
    prng: Prng,
    events: BinaryHeap<Reverse<Event>>,
    sequence: u64,
    wires: Vec<Wire>,
    ports: Vec<Port>,
    trace: Trace,
    counters: WorldCounters,
}

impl Engine {
    pub(super) fn new(clock: VirtualClock, seed: u64) -> Self {
        Self {
            clock,
            prng: Prng::new(seed),
            events: BinaryHeap::new(),
            sequence: 0,
            wires: Vec::new(),
            ports: Vec::new(),
            trace: Trace::new(),
            counters: WorldCounters::default(),
        }
    }

    /// Returns the numbers of the two ports.
    pub(super) fn lay_link(&mut self, config: &LinkConfig) -> [usize; 2] {
        let (port, wire) = (self.ports.len(), self.wires.len());
        for end in 0..2 {
            self.ports.push(Port::new(config, end, wire + end));
            self.wires.push(Wire::new(config, port + 1 - end));
        }
        [port, port + 1]
    }

    pub(super) fn next_seed(&mut self) -> u64 {
        self.prng.next_u64()
    }

    pub(super) fn next_event_time(&self) -> Option<Time> {
        self.events.peek().map(|Reverse(event)| event.time)
    }

    pub(super) fn advance_to(&mut self, time: Time) {
        while self.next_event_time().is_some_and(|next| next <= time) {
            if let Some(Reverse(event)) = self.events.pop() {
                self.clock.go_to(event.time);
                self.arrive(event.wire);
            }
        }
        self.clock.go_to(time);
    }

    fn arrive(&mut self, wire: usize) {
        let Some(flight) = self.wires[wire].land() else { return };
        let now = self.clock.now();
        let to_port = self.wires[wire].to_port;
        let fate = self.ports[to_port].admit(&flight);
        self.finish(wire, &flight, fate);
        if fate == PacketFate::Delivered {
            self.ports[to_port].keep(flight, now);
        }
    }

    /// Counts and traces what became of a packet.
    fn finish(&mut self, wire: usize, flight: &Flight, fate: PacketFate) {
        self.trace.record(self.clock.now(), wire, flight.source_port, &flight.bytes, fate);
        let counters = &mut self.counters;
        *match fate {
            PacketFate::Delivered => &mut counters.delivered,
            PacketFate::DroppedQueue => &mut counters.dropped_queue,
            PacketFate::DroppedRxBuffer => &mut counters.dropped_rx_buffer,
            PacketFate::Misaddressed => &mut counters.misaddressed,
        } += 1;
    }

    /// Puts a packet on the wire from `port`; whatever becomes of it, it was taken.
    pub(super) fn send(&mut self, port: usize, packet: &TxPacket<'_>) {
        let end = &mut self.ports[port];
        let byte_len = packet.byte_len();
        let too_long = byte_len > end.caps.packet_bytes_max as usize;
        if too_long || packet.source_port >= end.caps.source_ports {
            end.counters.send_errors += 1;
            return;
        }
        end.counters.packets_sent += 1;
        end.counters.bytes_sent += byte_len as u64;
        let (source, wire) = (end.source_addr(packet.source_port), end.wire);
        let mut bytes = Vec::with_capacity(byte_len);
        packet.parts().iter().for_each(|part| bytes.extend_from_slice(part));
        let TxPacket { dest, source_port, tclass, .. } = *packet;
        let flight = Flight { source, dest, source_port, tclass, bytes };
        match self.wires[wire].reserve(self.clock.now(), byte_len) {
            Ok(time) => {
                self.wires[wire].launch(flight);
                self.events.push(Reverse(Event { time, sequence: self.sequence, wire }));
                self.sequence += 1;
            }
            Err(_) => self.finish(wire, &flight, PacketFate::DroppedQueue),
        }
    }

    pub(super) fn take(&mut self, port: usize) -> Option<Arrived> {
        self.ports[port].take()
    }

    pub(super) fn port(&self, port: usize) -> &Port {
        &self.ports[port]
    }

    pub(super) fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    pub(super) fn keep_trace(&mut self, events: usize) {
        self.trace.keep(events);
    }

    pub(super) fn recent_trace(&self) -> Vec<TraceEvent> {
        self.trace.kept()
    }

    pub(super) fn counters(&self) -> WorldCounters {
        self.counters
    }
}
