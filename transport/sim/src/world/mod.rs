//! Virtual time: one clock, one heap of events ordered by (time, sequence), one seed.
//!
//! A world has ports (where packets come in) and wires (one direction each, between ports); both
//! are numbered, and an event names a wire by its number. So a larger fabric is more ports, more
//! wires and more kinds of event, not another engine.

mod clock;
mod config;
mod engine;
mod link;
mod port;
mod trace;
mod wire;

use std::cell::RefCell;
use std::rc::Rc;

pub use clock::VirtualClock;
pub use config::LinkConfig;
pub use link::VirtualLink;
pub use trace::{PacketFate, TraceEvent};

use engine::Engine;
use towpath_base::Time;

/// What the wires of a world did; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldCounters {
    /// Packets that reached a receive buffer.
    pub delivered: u64,
    /// Packets dropped because the queue of their wire was full.
    pub dropped_queue: u64,
    /// Packets dropped because the receive buffer was full.
    pub dropped_rx_buffer: u64,
    /// Packets sent to an address that is not at the other end.
    pub misaddressed: u64,
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
        let ports = self.engine.borrow_mut().lay_link(config);
        let [a, b] = ports.map(|port| VirtualLink::new(self.clock.clone(), &self.engine, port));
        (a, b)
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

    /// When the next packet comes in; `None` when nothing is under way.
    #[must_use]
    pub fn next_event_time(&self) -> Option<Time> {
        self.engine.borrow().next_event_time()
    }

    /// Goes to `time`, and on the way hands packets that are due to the receive buffers, each at
    /// its own time. A time that is not later than now moves no clock.
    pub fn advance_to(&self, time: Time) {
        self.engine.borrow_mut().advance_to(time);
    }

    /// A fresh seed drawn from the world's own, for a fault link or a host in it.
    #[must_use]
    pub fn next_seed(&self) -> u64 {
        self.engine.borrow_mut().next_seed()
    }

    /// A hash over each packet that was delivered or dropped: when, on which wire, what became of
    /// it, and its bytes. Equal seeds and equal calls give equal hashes.
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

    /// What the wires did.
    #[must_use]
    pub fn counters(&self) -> WorldCounters {
        self.engine.borrow().counters()
    }
}
