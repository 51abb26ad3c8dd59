//! One end of a virtual wire, as the [`PacketLink`] that a device is given.

use super::clock::VirtualClock;
use super::engine::Engine;
use super::ids::HostId;
use super::train::{RxTrain, TxTrain};
use core::net::SocketAddr;
use std::cell::RefCell;
use std::rc::Rc;
use towpath_base::Time;
use towpath_verbs::{LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};

/// Where a host meets the wire.
///
/// An end of [`World::link`](super::World::link) takes every packet at once: what its queue cannot
/// hold is dropped at the tail, as in a switch, and counted by the world. A host on a switch has a
/// network card that takes no more than it can hold, and is woken when there is room again.
pub struct VirtualLink {
    clock: VirtualClock,
    engine: Rc<RefCell<Engine>>,
    host: HostId,
}

impl VirtualLink {
    pub(super) fn new(clock: VirtualClock, engine: &Rc<RefCell<Engine>>, host: HostId) -> Self {
        Self { clock, engine: Rc::clone(engine), host }
    }

    /// The host whose end it is.
    #[must_use]
    pub fn host(&self) -> HostId {
        self.host
    }

    /// Sends trains in order and returns how many were taken, as
    /// [`transmit`](PacketLink::transmit) does with packets.
    pub fn transmit_trains(&mut self, trains: &[TxTrain<'_>]) -> usize {
        let mut engine = self.engine.borrow_mut();
        let taken = trains.iter().position(|train| !engine.send_train(self.host, train));
        taken.unwrap_or(trains.len())
    }

    /// Hands at most `budget` received trains to `sink`, in order of arrival; returns how many.
    /// Packets and trains are received apart, and share the receive buffer.
    pub fn receive_trains(&mut self, budget: usize, sink: &mut dyn FnMut(RxTrain<'_>)) -> usize {
        for count in 0..budget {
            let Some(taken) = self.engine.borrow_mut().take(self.host, true) else {
                return count;
            };
            sink(RxTrain {
                source: taken.source,
                dest: taken.dest,
                tclass: taken.tclass,
                packets: taken.packets,
                byte_len: taken.byte_len,
                token: taken.token,
                bytes: &taken.bytes,
                is_damaged: taken.is_damaged,
                timestamp: taken.landed_at,
            });
            self.engine.borrow_mut().give_back(taken);
        }
        budget
    }
}

impl PacketLink for VirtualLink {
    fn caps(&self) -> LinkCaps {
        self.engine.borrow().host(self.host).caps()
    }

    fn local_addr(&self) -> SocketAddr {
        self.engine.borrow().host(self.host).addr
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.engine.borrow().host(self.host).source_addr(source_port)
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        let mut engine = self.engine.borrow_mut();
        let taken = packets.iter().position(|packet| !engine.send(self.host, packet));
        taken.unwrap_or(packets.len())
    }

    fn left_at(&mut self) -> Time {
        self.engine.borrow().host(self.host).left_at(self.clock.now())
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        for count in 0..budget {
            // Borrowed per packet: the sink may look at the world.
            let Some(taken) = self.engine.borrow_mut().take(self.host, false) else {
                return count;
            };
            sink(RxPacket {
                source: taken.source,
                dest: taken.dest,
                tclass: Some(taken.tclass),
                bytes: &taken.bytes,
                timestamp: taken.landed_at,
            });
            self.engine.borrow_mut().give_back(taken);
        }
        budget
    }

    fn counters(&self) -> LinkCounters {
        self.engine.borrow().host(self.host).counters
    }
}
