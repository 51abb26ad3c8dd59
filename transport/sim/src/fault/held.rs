//! Packets that are held back, in the order in which they come out. Bounded.

use crate::limits::{HELD_BYTES_MAX, HELD_PACKETS_MAX};
use core::net::SocketAddr;
use std::collections::BTreeMap;
use towpath_base::Time;
use towpath_verbs::{RxPacket, TxPacket};

/// A packet that is held back, with its bytes in one piece.
#[derive(Clone, Debug)]
pub(super) struct Parked<O> {
    pub(super) origin: O,
    pub(super) bytes: Vec<u8>,
}

/// What else is known of a packet that is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxOrigin {
    pub(super) dest: SocketAddr,
    pub(super) source_port: u16,
    pub(super) tclass: u8,
}

/// What else is known of a packet that was received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) source: SocketAddr,
    pub(super) dest: SocketAddr,
    pub(super) tclass: Option<u8>,
}

impl Parked<TxOrigin> {
    pub(super) fn lend(&self) -> TxPacket<'_> {
        let TxOrigin { dest, source_port, tclass } = self.origin;
        let mut packet = TxPacket::new(dest, source_port, tclass);
        packet.push(&self.bytes);
        packet
    }
}

impl Parked<Received> {
    pub(super) fn lend(&self, timestamp: Time) -> RxPacket<'_> {
        let Received { source, dest, tclass } = self.origin;
        RxPacket { source, dest, tclass, bytes: &self.bytes, timestamp }
    }
}

/// Too much is held back already.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HoldFull;

/// The order among packets that are due at one time is the order in which they were parked.
pub(super) type Ticket = (Time, u64);

#[derive(Debug)]
pub(super) struct Held<O> {
    by_time: BTreeMap<Ticket, Slot<O>>,
    /// Those that also wait for a packet's number, by that number.
    by_number: BTreeMap<(u64, u64), Ticket>,
    bytes: usize,
    sequence: u64,
}

#[derive(Debug)]
struct Slot<O> {
    packet: Parked<O>,
    after_number: Option<u64>,
}

impl<O> Held<O> {
    pub(super) fn new() -> Self {
        Self { by_time: BTreeMap::new(), by_number: BTreeMap::new(), bytes: 0, sequence: 0 }
    }

    /// Parks a packet until `due`, or until the packet of number `after_number` has gone by.
    pub(super) fn park(
        &mut self,
        due: Time,
        after_number: Option<u64>,
        packet: Parked<O>,
    ) -> Result<(), HoldFull> {
        let bytes = self.bytes + packet.bytes.len();
        if self.by_time.len() == HELD_PACKETS_MAX || bytes > HELD_BYTES_MAX {
            return Err(HoldFull);
        }
        let ticket = (due, self.sequence);
        self.sequence += 1;
        self.bytes = bytes;
        if let Some(number) = after_number {
            self.by_number.insert((number, ticket.1), ticket);
        }
        self.by_time.insert(ticket, Slot { packet, after_number });
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.by_time.keys().next().map(|ticket| ticket.0)
    }

    /// The number that the next one waits for.
    pub(super) fn next_number(&self) -> Option<u64> {
        self.by_number.keys().next().map(|key| key.0)
    }

    /// Lends those that are due at `now` or waited for `number` or less, without taking them out.
    pub(super) fn ready(
        &self,
        now: Time,
        number: u64,
    ) -> impl Iterator<Item = (Ticket, &Parked<O>)> {
        let overtaken = self.by_number.range(..=(number, u64::MAX)).map(|(_, ticket)| ticket);
        let overtaken = overtaken.filter(move |ticket| ticket.0 > now);
        let due = self.by_time.range(..=(now, u64::MAX)).map(|(ticket, _)| ticket);
        due.chain(overtaken).map(|ticket| (*ticket, &self.by_time[ticket].packet))
    }

    /// Takes one out.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Parked<O>> {
        let slot = self.by_time.remove(&ticket)?;
        self.bytes -= slot.packet.bytes.len();
        if let Some(number) = slot.after_number {
            self.by_number.remove(&(number, ticket.1));
        }
        Some(slot.packet)
    }
}
