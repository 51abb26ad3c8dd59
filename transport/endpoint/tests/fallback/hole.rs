//! A wire on which packets vanish by the transport service that they belong to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use towpath_base::{Nanos, Time};
use towpath_verbs::{LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};

/// Which packets vanish: a set of these.
pub const SENT_UC: u8 = 1;
pub const RECEIVED_UC: u8 = 2;
pub const SENT_ALL: u8 = 4;
pub const RECEIVED_ALL: u8 = 8;

/// Says what vanishes, while the link is in use.
#[derive(Clone, Default)]
pub struct HoleControl(Arc<AtomicU8>);

impl HoleControl {
    pub fn set(&self, set: u8) {
        self.0.store(set, Ordering::Relaxed);
    }

    fn swallows(&self, uc: u8, all: u8, opcode: Option<&u8>) -> bool {
        let set = self.0.load(Ordering::Relaxed);
        // The upper three bits of the BTH's opcode are the service: 1 is UC.
        set & all != 0 || (set & uc != 0 && opcode.is_some_and(|opcode| opcode >> 5 == 1))
    }
}

/// A link with a hole in it.
pub struct Hole<L> {
    pub inner: L,
    control: HoleControl,
}

impl<L> Hole<L> {
    pub fn new(inner: L, control: HoleControl) -> Self {
        Self { inner, control }
    }
}

impl<L: PacketLink> PacketLink for Hole<L> {
    fn caps(&self) -> LinkCaps {
        self.inner.caps()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.inner.source_addr(source_port)
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        let mut taken = 0;
        for packet in packets {
            let opcode = packet.parts().first().and_then(|part| part.first());
            let vanishes = self.control.swallows(SENT_UC, SENT_ALL, opcode);
            if !vanishes && self.inner.transmit(std::slice::from_ref(packet)) == 0 {
                break;
            }
            taken += 1;
        }
        taken
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        let control = self.control.clone();
        self.inner.receive(budget, &mut |packet| {
            if !control.swallows(RECEIVED_UC, RECEIVED_ALL, packet.bytes.first()) {
                sink(packet);
            }
        })
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        self.inner.wait(timeout)
    }

    fn counters(&self) -> LinkCounters {
        self.inner.counters()
    }
}
