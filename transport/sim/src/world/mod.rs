//! Virtual time: one clock, one heap of events ordered by (time, sequence), one seed.
//!
//! | file | what it is about |
//! |---|---|
//! | `engine/` | what each event does: sending, travelling, driving, building |
//! | `agenda`, `change` | the heap, and what can be changed at a time |
//! | `flight` | packets under way, in a slab |
//! | `wire`, `queue`, `turns`, `faults` | one direction of a cable: queues, turns, rate, marks |
//! | `switch`, `routes` | shortest paths, and the choice among equal ones |
//! | `host`, `link`, `train` | where packets and trains begin and end |
//! | `trace` | what became of each packet, as a hash |
//!
//! A packet costs one event for each wire that it crosses, and one more where it waited for the
//! packet before it, at each host with a delay of its own, and at each switch that pauses. No event
//! allocates once the slab and the heap have grown to their size. A world with more of anything
//! pays for the depth of the heap, which grows with the logarithm. It pays little for not fitting
//! into the cache: what happens at one instant asks for its memory at once (`engine/foresee`).
//!
//! What is not modelled: switches take no time of their own (it is part of the cable's delay) and
//! have a buffer for each port, not one that ports share; hosts heed pauses and send none; routes
//! are known everywhere at once.

mod agenda;
mod change;
mod clock;
mod config;
mod engine;
mod faults;
mod flight;
mod host;
mod ids;
mod link;
mod queue;
mod routes;
mod switch;
mod trace;
mod train;
mod turns;
mod wire;

use std::cell::RefCell;
use std::rc::Rc;

pub use change::{Change, Health};
pub use clock::VirtualClock;
pub use config::{CableConfig, HostConfig, HostDelay, LinkConfig, SwitchConfig, Timestamps};
pub use ids::{HostId, LinkId, SwitchId, WireId};
pub use link::VirtualLink;
pub use queue::{EcnConfig, PfcConfig};
pub use trace::{PacketFate, TraceEvent};
pub use train::{RxTrain, TxTrain};
pub use turns::{QueueConfig, Turn};
pub use wire::WireCounters;

use crate::fault::{FaultCounters, FaultPlan};
use engine::Engine;
use towpath_base::Time;

/// What a world did; each only grows. A train counts as so many packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldCounters {
    /// Events, timers too.
    pub events: u64,
    /// Packets that reached a receive buffer.
    pub delivered: u64,
    /// Packets dropped because the queue of their wire was full.
    pub dropped_queue: u64,
    /// Packets dropped because the receive buffer was full.
    pub dropped_rx_buffer: u64,
    /// Packets sent to an address that nobody has.
    pub misaddressed: u64,
    /// Packets that a fault of a wire took.
    pub dropped_fault: u64,
    /// Packets that no way was left for.
    pub dropped_no_route: u64,
    /// Packets that were in a switch or on a cable that went down.
    pub dropped_down: u64,
    /// Packets that were marked for congestion.
    pub ecn_marked: u64,
}

/// A virtual world: single-threaded, and the same for the same seed and the same calls.
pub struct World {
    clock: VirtualClock,
    engine: Rc<RefCell<Engine>>,
}

impl World {
    /// An empty world at [`Time::ZERO`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let clock = VirtualClock::new();
        let engine = Rc::new(RefCell::new(Engine::new(clock.clone(), seed)));
        Self { clock, engine }
    }

    /// Lays a duplex wire and returns its two ends, in the order of [`LinkConfig::addrs`].
    #[must_use]
    pub fn link(&self, config: &LinkConfig) -> (VirtualLink, VirtualLink) {
        let [near, far] = self.engine.borrow_mut().lay_link(config);
        (self.end(near), self.end(far))
    }

    /// Adds a switch.
    #[must_use]
    pub fn add_switch(&self, config: &SwitchConfig) -> SwitchId {
        self.engine.borrow_mut().add_switch(config)
    }

    /// Adds a host to a switch, and the cable between them. Its address is the world's choice:
    /// [`VirtualLink::local_addr`](towpath_verbs::PacketLink::local_addr) of its end.
    ///
    /// # Panics
    /// With more hosts than [`HOSTS_MAX`](crate::limits::HOSTS_MAX).
    #[must_use]
    pub fn add_host(&self, switch: SwitchId, config: &HostConfig) -> HostId {
        let added = self.engine.borrow_mut().add_host(switch, config);
        added.expect("a world has at most HOSTS_MAX hosts")
    }

    /// Lays a cable between two switches. Packets take the shortest way, counted in cables; among
    /// equally short ones each switch chooses by a hash of addresses and ports, so that the source
    /// port chooses the path.
    pub fn connect(&self, near: SwitchId, far: SwitchId, config: &CableConfig) -> LinkId {
        self.engine.borrow_mut().connect([near, far], config)
    }

    /// The end of a host, for a device. Each call gives the same one.
    #[must_use]
    pub fn end(&self, host: HostId) -> VirtualLink {
        VirtualLink::new(self.clock.clone(), &self.engine, host)
    }

    /// The cable of a host.
    #[must_use]
    pub fn cable(&self, host: HostId) -> LinkId {
        self.engine.borrow().host(host).wire.link()
    }

    /// Its time now.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// A handle on its clock, which reads the same time as the links.
    #[must_use]
    pub fn clock(&self) -> VirtualClock {
        self.clock.clone()
    }

    /// When the next thing happens: nothing comes in before. `None` when nothing is under way and
    /// no timer is set.
    #[must_use]
    pub fn next_event_time(&self) -> Option<Time> {
        self.engine.borrow().next_event_time()
    }

    /// Goes to `time`, and on the way hands packets that are due to the receive buffers, each at
    /// its own time. A time that is not later than now moves no clock.
    pub fn advance_to(&self, time: Time) {
        self.engine.borrow_mut().advance_to(time);
    }

    /// Goes on until a host has something to do, or to `limit`; true in the first case. Then it
    /// has stopped at that instant, all packets of the instant have come in, and the hosts are
    /// appended to `woken`, each once, in the order in which they were woken: something came in,
    /// its timer was due, or its network card has room for what it did not take.
    ///
    /// What a host sends may come in at the same instant: then the next call does not move the
    /// clock. Hosts that [`advance_to`](Self::advance_to) woke are handed out first.
    pub fn advance_to_next(&self, limit: Time, woken: &mut Vec<HostId>) -> bool {
        self.engine.borrow_mut().advance_to_next(limit, woken)
    }

    /// Sets the timer of a host, in place of what it was set to; [`Time::NEVER`] stops it. A host
    /// has one: whoever drives it keeps the earliest of many.
    pub fn set_timer(&self, host: HostId, time: Time) {
        self.engine.borrow_mut().set_timer(host, time);
    }

    /// Sends packets of a DSCP (the traffic class without its two ECN bits) to a queue of their
    /// own at each port, from 0 to [`CLASSES`](crate::limits::CLASSES)` - 1`, where all packets go
    /// at first. Queue 0 goes before all others, unless ports say otherwise:
    /// [`SwitchConfig::queues`], [`HostConfig::nic_queues`].
    pub fn set_class(&self, dscp: u8, class: u8) {
        self.engine.borrow_mut().set_class(dscp, class);
    }

    /// Changes what befalls packets at the far end of a wire, as [`Change::Faults`] does. Where
    /// [`FaultPlan`] says source port it is the index at the sending host. What is held back stays
    /// held.
    pub fn set_faults(&self, wire: WireId, plan: FaultPlan) {
        self.engine.borrow_mut().set_faults(wire, plan);
    }

    /// Changes something now.
    pub fn change(&self, change: Change) {
        self.engine.borrow_mut().change(change);
    }

    /// Changes something at a time; what changes at one time does so in the order of the calls.
    pub fn change_at(&self, time: Time, change: Change) {
        self.engine.borrow_mut().change_at(time, change);
    }

    /// What befell packets on a wire; a train counts as one.
    #[must_use]
    pub fn fault_counters(&self, wire: WireId) -> FaultCounters {
        self.engine.borrow().fault_counters(wire)
    }

    /// What a wire did.
    #[must_use]
    pub fn wire_counters(&self, wire: WireId) -> WireCounters {
        self.engine.borrow().wire_counters(wire)
    }

    /// Bytes that wait in front of a wire, and those of the packet that is being sent.
    #[must_use]
    pub fn queued_bytes(&self, wire: WireId) -> u64 {
        self.engine.borrow_mut().queued_bytes(wire)
    }

    /// A fresh seed drawn from the world's own, for a fault link or a host in it.
    #[must_use]
    pub fn next_seed(&self) -> u64 {
        self.engine.borrow_mut().next_seed()
    }

    /// A hash over each packet that was delivered or dropped: when, on which wire, what became of
    /// it, its class, its length, and its bytes: all of a short packet, of a longer one 64 at
    /// either end, where headers and ICRC are. Equal seeds and equal calls give equal hashes.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.engine.borrow().trace_hash()
    }

    /// Keeps the last `events` trace events from now on, for a test to print when it fails; zero
    /// (the default) keeps none.
    pub fn keep_trace(&self, events: usize) {
        self.engine.borrow_mut().keep_trace(events);
    }

    /// The trace events that were kept, oldest first.
    #[must_use]
    pub fn recent_trace(&self) -> Vec<TraceEvent> {
        self.engine.borrow().recent_trace()
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> WorldCounters {
        self.engine.borrow().counters()
    }
}
