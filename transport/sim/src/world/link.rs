//! One end of a virtual wire, as the [`PacketLink`] that a device is given.

use super::clock::VirtualClock;
use super::engine::Engine;
use core::net::SocketAddr;
use std::cell::RefCell;
use std::rc::Rc;
use towpath_base::Time;
use towpath_verbs::{LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};

/// One end of a virtual wire. It takes every packet at once: what its queue cannot hold is
/// dropped at the tail, as in a switch, and counted by the world.
pub struct VirtualLink {
    clock: VirtualClock,
    engine: Rc<RefCell<Engine>>,
    port: usize,
}

impl VirtualLink {
    pub(super) fn new(clock: VirtualClock, engine: &Rc<RefCell<Engine>>, port: usize) -> Self {
        Self { clock, engine: Rc::clone(engine), port }
    }
}

impl PacketLink for VirtualLink {
    fn caps(&self) -> LinkCaps {
        self.engine.borrow().port(self.port).caps
    }

    fn local_addr(&self) -> SocketAddr {
        self.engine.borrow().port(self.port).addr
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.engine.borrow().port(self.port).source_addr(source_port)
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        let mut engine = self.engine.borrow_mut();
        packets.iter().for_each(|packet| engine.send(self.port, packet));
        packets.len()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        for count in 0..budget {
            // Borrowed per packet: the sink may look at the world.
            let Some(arrived) = self.engine.borrow_mut().take(self.port) else { return count };
            sink(RxPacket {
                source: arrived.flight.source,
                dest: arrived.flight.dest,
                tclass: arrived.flight.tclass,
                bytes: &arrived.flight.bytes,
                timestamp: arrived.timestamp,
            });
        }
        budget
    }

    fn counters(&self) -> LinkCounters {
        self.engine.borrow().port(self.port).counters
    }
}
