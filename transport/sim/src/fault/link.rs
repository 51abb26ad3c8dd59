//! The decorator itself.

use super::control::FaultControl;
use super::counters::FaultCounters;
use super::dice::Hit;
use super::held::{Parked, Received, Ticket, TxOrigin};
use super::lane::{Lane, count_loss};
use crate::limits::{RECEIVE_ROUNDS_MAX, RELEASE_BATCH};
use core::ffi::c_int;
use core::net::SocketAddr;
use core::task::Waker;
use towpath_base::{Nanos, Prng, Time};
use towpath_verbs::{IpMtu, LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};

/// A packet link with faults.
///
/// Packets that nothing befalls pass by reference, in runs as long as the faults leave them, and
/// with no fault on a batch costs one look at a version number. A packet that the inner link does
/// not take has met no fate: when it is offered again the same dice fall for it.
///
/// Held packets come out on later calls of [`transmit`](PacketLink::transmit), which may be of an
/// empty batch, or [`receive`](PacketLink::receive), once they are due by the inner link's clock;
/// they are limited by [`HELD_PACKETS_MAX`](crate::limits::HELD_PACKETS_MAX) and
/// [`HELD_BYTES_MAX`](crate::limits::HELD_BYTES_MAX), beyond which they are dropped and counted.
/// While the inner link is full of released packets it takes no new ones.
pub struct FaultLink<L> {
    inner: L,
    control: FaultControl,
    version: u64,
    transmit: Lane<TxOrigin>,
    receive: Lane<Received>,
}

impl<L: PacketLink> FaultLink<L> {
    /// Puts the faults of `control` on `inner`. Links that share a control need seeds of their
    /// own.
    #[must_use]
    pub fn new(inner: L, seed: u64, control: FaultControl) -> Self {
        let mut seeds = Prng::new(seed);
        // The version first: a change in between is then seen again, not missed.
        let version = control.version();
        let plans = control.plans();
        let byte_len_max = inner.caps().packet_bytes_max as usize;
        Self {
            inner,
            control,
            version,
            transmit: Lane::new(plans.transmit, seeds.next_u64(), byte_len_max),
            receive: Lane::new(plans.receive, seeds.next_u64(), byte_len_max),
        }
    }

    /// A handle that steers it.
    #[must_use]
    pub fn control(&self) -> FaultControl {
        self.control.clone()
    }

    /// When the next held packet is due, on the inner link's clock; a driver in virtual time
    /// treats it as a timer, after which it calls `transmit` or `receive`.
    #[must_use]
    pub fn next_release(&self) -> Option<Time> {
        let times = [self.transmit.held.next_due(), self.receive.held.next_due()];
        times.into_iter().flatten().min()
    }

    /// The decorated link.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// Takes the decoration off; what is held back is lost.
    pub fn into_inner(self) -> L {
        self.inner
    }

    fn follow_control(&mut self) {
        let version = self.control.version();
        if version != self.version {
            let plans = self.control.plans();
            self.version = version;
            self.transmit.plan = plans.transmit;
            self.receive.plan = plans.receive;
        }
    }

    fn transmit_faulty(&mut self, packets: &[TxPacket<'_>], batch: &mut FaultCounters) -> usize {
        let now = self.inner.now();
        let mut done = 0;
        while self.release_sent(now, batch) && done < packets.len() {
            let run = self.transmit.run(&packets[done..]);
            let plain = &packets[done..done + run.len];
            // An empty offer is not made: a link may take it for a reason to flush.
            let sent = if plain.is_empty() { 0 } else { self.inner.transmit(plain) };
            self.transmit.take(sent, batch);
            batch.passed += sent as u64;
            done += sent;
            if sent < plain.len() {
                self.transmit.rewind(run, &plain[..sent]);
                break;
            }
            if let Some(stop) = run.stop {
                if !self.transmit_hit(&packets[done], stop.hit, now, batch) {
                    self.transmit.rewind_one(stop);
                    break;
                }
                self.transmit.take(1, batch);
                done += 1;
            }
        }
        done
    }

    /// Sees to a packet that does not pass untouched; false when the inner link is full.
    fn transmit_hit(
        &mut self,
        packet: &TxPacket<'_>,
        hit: Hit,
        now: Time,
        batch: &mut FaultCounters,
    ) -> bool {
        let mishap = match hit {
            Hit::Lose(loss) => {
                count_loss(loss, batch);
                return true;
            }
            Hit::Suffer(mishap) => mishap,
        };
        let TxPacket { dest, source_port, tclass, .. } = *packet;
        let origin = TxOrigin { dest, source_port, tclass };
        let parked = Parked { origin, bytes: packet.parts().concat() };
        let inner = &mut self.inner;
        let mut hand_on = |parked: &Parked<TxOrigin>| inner.transmit(&[parked.lend()]) == 1;
        self.transmit.befall(mishap, parked, now, batch, &mut hand_on)
    }

    /// Sends what is due or overtaken; false when the inner link is full.
    fn release_sent(&mut self, now: Time, batch: &mut FaultCounters) -> bool {
        while !self.transmit.held.is_empty() {
            let ready = self.transmit.held.ready(now, self.transmit.number).take(RELEASE_BATCH);
            let (tickets, packets): (Vec<Ticket>, Vec<TxPacket<'_>>) =
                ready.map(|(ticket, parked)| (ticket, parked.lend())).unzip();
            if packets.is_empty() {
                return true;
            }
            let sent = self.inner.transmit(&packets);
            let all = sent == packets.len();
            batch.passed += sent as u64;
            for ticket in &tickets[..sent] {
                self.transmit.held.take(*ticket);
            }
            if !all {
                return false;
            }
        }
        true
    }

    fn receive_faulty(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxPacket<'_>),
        batch: &mut FaultCounters,
    ) -> usize {
        let now = self.inner.now();
        let mut out = Intake { lane: &mut self.receive, now, batch, sink, handed: 0 };
        out.release(budget);
        // Nothing handed on means nothing there, so go on past batches that were all dropped.
        for _ in 0..RECEIVE_ROUNDS_MAX {
            let room = budget.saturating_sub(out.handed);
            if room == 0 || self.inner.receive(room, &mut |packet| out.accept(packet)) == 0 {
                break;
            }
        }
        out.handed
    }
}

/// The receiving side of one call.
struct Intake<'a> {
    lane: &'a mut Lane<Received>,
    now: Time,
    batch: &'a mut FaultCounters,
    sink: &'a mut dyn FnMut(RxPacket<'_>),
    handed: usize,
}

impl Intake<'_> {
    fn accept(&mut self, packet: RxPacket<'_>) {
        match self.lane.roll(packet.source.port(), packet.bytes.len()) {
            None => {
                self.batch.passed += 1;
                self.handed += 1;
                (self.sink)(packet);
            }
            Some(Hit::Lose(loss)) => count_loss(loss, self.batch),
            Some(Hit::Suffer(mishap)) => {
                let RxPacket { source, dest, tclass, .. } = packet;
                let origin = Received { source, dest, tclass };
                let parked = Parked { origin, bytes: packet.bytes.to_vec() };
                let (handed, sink) = (&mut self.handed, &mut self.sink);
                let mut hand_on = |parked: &Parked<Received>| {
                    *handed += 1;
                    sink(parked.lend(packet.timestamp));
                    true
                };
                self.lane.befall(mishap, parked, self.now, self.batch, &mut hand_on);
            }
        }
        self.lane.take(1, self.batch);
        if self.lane.held.next_number().is_some_and(|number| number <= self.lane.number) {
            self.release(usize::MAX);
        }
    }

    /// Hands on at most `budget` packets that are due or overtaken.
    fn release(&mut self, budget: usize) {
        let ready = self.lane.held.ready(self.now, self.lane.number).take(budget);
        let tickets: Vec<Ticket> = ready.map(|(ticket, _)| ticket).collect();
        for ticket in tickets {
            if let Some(parked) = self.lane.held.take(ticket) {
                self.batch.passed += 1;
                self.handed += 1;
                (self.sink)(parked.lend(ticket.0.min(self.now)));
            }
        }
    }
}

impl<L: PacketLink> PacketLink for FaultLink<L> {
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

    fn packets_too_long(&self) -> u64 {
        self.inner.packets_too_long()
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        self.follow_control();
        let mut batch = FaultCounters::default();
        let taken = if self.transmit.is_idle() {
            let taken = self.inner.transmit(packets);
            self.transmit.take(taken, &mut batch);
            batch.passed = taken as u64;
            taken
        } else {
            self.transmit_faulty(packets, &mut batch)
        };
        self.control.add_transmit(&batch);
        taken
    }

    fn left_at(&mut self) -> Time {
        self.inner.left_at()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        self.follow_control();
        if !self.transmit.held.is_empty() {
            let mut batch = FaultCounters::default();
            self.release_sent(self.inner.now(), &mut batch);
            self.control.add_transmit(&batch);
        }
        let mut batch = FaultCounters::default();
        let handed = if self.receive.is_idle() {
            let handed = self.inner.receive(budget, sink);
            self.receive.take(handed, &mut batch);
            batch.passed = handed as u64;
            handed
        } else {
            self.receive_faulty(budget, sink, &mut batch)
        };
        self.control.add_receive(&batch);
        handed
    }

    /// Those of the inner link; what the faults did is in [`FaultControl::counters`].
    /// Wakes for packets that are held back, too.
    fn wait(&mut self, timeout: Nanos) -> bool {
        let now = self.now();
        match self.next_release() {
            Some(at) if at.since(now) < timeout => {
                self.inner.wait(at.since(now));
                true
            }
            _ => self.inner.wait(timeout),
        }
    }

    fn waker(&self) -> Option<Waker> {
        self.inner.waker()
    }

    fn watch_file(&mut self, file: c_int) -> bool {
        self.inner.watch_file(file)
    }

    fn look_at_each_tclass(&mut self) {
        self.inner.look_at_each_tclass();
    }

    fn counters(&self) -> LinkCounters {
        self.inner.counters()
    }
}
