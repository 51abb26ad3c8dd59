//! A packet link on which packets vanish by the transport service that they belong to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Waker;
use towpath_base::{Nanos, Time};
use towpath_verbs::{IpMtu, LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};

/// The upper three bits of a BTH's opcode are the service: this is UC.
const SERVICE_UC: u8 = 1;

/// Of which transport services packets vanish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Services {
    /// Of none.
    #[default]
    None,
    /// Of UC.
    Uc,
    /// Of all.
    All,
}

impl Services {
    fn of(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::None,
            1 => Self::Uc,
            _ => Self::All,
        }
    }

    fn swallows(self, opcode: Option<&u8>) -> bool {
        match self {
            Self::None => false,
            Self::Uc => opcode.is_some_and(|opcode| opcode >> 5 == SERVICE_UC),
            Self::All => true,
        }
    }
}

/// What vanishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Swallows {
    /// Of what is sent.
    pub sent: Services,
    /// Of what would be received.
    pub received: Services,
}

impl Swallows {
    /// Both ways alike.
    #[must_use]
    pub const fn both(services: Services) -> Self {
        Self { sent: services, received: services }
    }
}

/// Says what vanishes, while the link is in use.
#[derive(Clone, Debug, Default)]
pub struct HoleControl {
    set: Arc<AtomicU8>,
    swallowed: Arc<AtomicU64>,
}

impl HoleControl {
    /// From now on that.
    pub fn set(&self, swallows: Swallows) {
        let set = swallows.sent as u8 | (swallows.received as u8) << 2;
        self.set.store(set, Ordering::Relaxed);
    }

    /// What it is set to.
    #[must_use]
    pub fn swallows(&self) -> Swallows {
        let set = self.set.load(Ordering::Relaxed);
        Swallows { sent: Services::of(set), received: Services::of(set >> 2) }
    }

    /// Packets that have vanished.
    #[must_use]
    pub fn swallowed(&self) -> u64 {
        self.swallowed.load(Ordering::Relaxed)
    }

    fn count(&self, packets: usize) {
        self.swallowed.fetch_add(packets as u64, Ordering::Relaxed);
    }
}

/// A link with a hole in it.
pub struct Hole<L> {
    inner: L,
    control: HoleControl,
}

impl<L> Hole<L> {
    /// `inner` with the hole that `control` makes.
    #[must_use]
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

    fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        self.inner.nic_addr(nic)
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.inner.source_addr(source_port)
    }

    fn ip_mtu(&self, dest: Option<SocketAddr>) -> Option<IpMtu> {
        self.inner.ip_mtu(dest)
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        let services = self.control.swallows().sent;
        if services == Services::None {
            return self.inner.transmit(packets);
        }
        let vanishes = |packet: &&TxPacket<'_>| {
            services.swallows(packet.parts().first().and_then(|part| part.first()))
        };
        let mut taken = 0;
        while taken < packets.len() {
            let run = packets[taken..].iter().take_while(|packet| !vanishes(packet)).count();
            let sent = match run {
                0 => 0,
                run => self.inner.transmit(&packets[taken..taken + run]),
            };
            taken += sent;
            if sent < run {
                break;
            }
            let gone = packets[taken..].iter().take_while(vanishes).count();
            self.control.count(gone);
            taken += gone;
        }
        taken
    }

    fn left_at(&mut self) -> Time {
        self.inner.left_at()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        let Self { inner, control } = self;
        let services = control.swallows().received;
        inner.receive(budget, &mut |packet| {
            if services.swallows(packet.bytes.first()) {
                control.count(1);
            } else {
                sink(packet);
            }
        })
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        self.inner.wait(timeout)
    }

    fn waker(&self) -> Option<Waker> {
        self.inner.waker()
    }

    fn counters(&self) -> LinkCounters {
        self.inner.counters()
    }
}
