//! The state of a world, and what each event does to it.

mod build;
mod change;
mod drive;
mod foresee;
mod send;
mod travel;

use super::WorldCounters;
use super::agenda::{Agenda, Event};
use super::change::{Change, Health};
use super::clock::VirtualClock;
use super::faults::WireFaults;
use super::flight::Flights;
use super::host::{Berth, Host};
use super::ids::{HostId, LinkId, WireId};
use super::routes::{Hop, Routes};
use super::switch::Switch;
use super::trace::{PacketFate, Trace, TraceEvent};
use super::wire::{Wire, WireCounters};
use crate::fault::{FaultCounters, FaultPlan};
use crate::limits::CLASSES;
use foresee::Sight;
use std::collections::BTreeMap;
use towpath_base::Prng;

pub(super) struct Engine {
    clock: VirtualClock,
    prng: Prng,
    agenda: Agenda,
    flights: Flights,
    wires: Vec<Wire>,
    hosts: Vec<Host>,
    berths: Vec<Berth>,
    /// The hosts that have addresses of the world's own, in the order of those.
    addressed: Vec<u32>,
    switches: Vec<Switch>,
    hops: Vec<Hop>,
    cables: BTreeMap<LinkId, Health>,
    /// What is to change, by number, and the number of the next.
    changes: BTreeMap<u32, Change>,
    next_change: u32,
    /// `None` after a change, until a packet needs them.
    routes: Option<Routes>,
    /// The queue that each DSCP goes to.
    classes: [u8; 64],
    ecmp_salt: u64,
    woken: Vec<HostId>,
    /// The events of an instant, while it goes on.
    instant: Vec<Event>,
    /// See `foresee`.
    sights: Vec<Sight>,
    trace: Trace,
    counters: WorldCounters,
}

impl Engine {
    pub(super) fn new(clock: VirtualClock, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let ecmp_salt = prng.next_u64();
        Self {
            clock,
            prng,
            agenda: Agenda::new(),
            flights: Flights::new(),
            wires: Vec::new(),
            hosts: Vec::new(),
            berths: Vec::new(),
            addressed: Vec::new(),
            switches: Vec::new(),
            hops: Vec::new(),
            cables: BTreeMap::new(),
            changes: BTreeMap::new(),
            next_change: 0,
            routes: None,
            classes: [(CLASSES - 1) as u8; 64],
            ecmp_salt,
            woken: Vec::new(),
            instant: Vec::new(),
            sights: Vec::new(),
            trace: Trace::new(),
            counters: WorldCounters::default(),
        }
    }

    pub(super) fn next_seed(&mut self) -> u64 {
        self.prng.next_u64()
    }

    pub(super) fn host(&self, host: HostId) -> &Host {
        &self.hosts[host.index()]
    }

    pub(super) fn set_faults(&mut self, wire: WireId, plan: FaultPlan) {
        match &mut self.wires[wire.index()].faults {
            Some(faults) => faults.plan = plan,
            none => *none = Some(Box::new(WireFaults::new(plan, self.prng.next_u64()))),
        }
    }

    pub(super) fn fault_counters(&self, wire: WireId) -> FaultCounters {
        let faults = self.wires[wire.index()].faults.as_ref();
        faults.map(|faults| faults.counters).unwrap_or_default()
    }

    pub(super) fn wire_counters(&self, wire: WireId) -> WireCounters {
        self.wires[wire.index()].counters
    }

    pub(super) fn queued_bytes(&mut self, wire: WireId) -> u64 {
        self.settle(wire.0);
        self.wires[wire.index()].queued_bytes()
    }

    pub(super) fn set_class(&mut self, dscp: u8, class: u8) {
        if let Some(entry) = self.classes.get_mut(usize::from(dscp)) {
            *entry = class.min((CLASSES - 1) as u8);
        }
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

    /// Counts and traces what became of a flight.
    fn finish(&mut self, flight: u32, fate: PacketFate) {
        let ended = &self.flights[flight];
        self.trace.record(self.clock.now(), ended, fate);
        let counters = &mut self.counters;
        *match fate {
            PacketFate::Delivered => &mut counters.delivered,
            PacketFate::DroppedQueue => &mut counters.dropped_queue,
            PacketFate::DroppedRxBuffer => &mut counters.dropped_rx_buffer,
            PacketFate::Misaddressed => &mut counters.misaddressed,
            PacketFate::DroppedFault => &mut counters.dropped_fault,
            PacketFate::DroppedNoRoute => &mut counters.dropped_no_route,
            PacketFate::DroppedDown => &mut counters.dropped_down,
        } += u64::from(ended.packets);
        if fate != PacketFate::Delivered {
            self.flights.free(flight);
        }
    }
}
