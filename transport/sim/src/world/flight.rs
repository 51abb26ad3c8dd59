//! Packets under way, in a slab: a flight is a number, its buffer is used again.

use core::net::SocketAddr;
use core::ops::{Index, IndexMut};
use towpath_base::Time;

/// No flight, or no host.
pub(super) const NONE: u32 = u32::MAX;

/// A packet, or a train of packets that stands for a whole message.
///
/// In this order, so that what every hop needs is in one cache line and the ends in the next.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Flight {
    /// The next one in the list that this one is in.
    pub(super) next: u32,
    /// The wire that it is on or waits for.
    pub(super) wire: u32,
    /// The wire on which it came to the switch that it is in; [`NONE`] at a host.
    pub(super) ingress: u32,
    /// [`NONE`] where nobody has the address.
    pub(super) dest_host: u32,
    /// What equal-cost paths are chosen by.
    pub(super) flow: u64,
    /// Not on a wire before this.
    pub(super) ready_at: Time,
    /// When its last packet lands.
    pub(super) tail_at: Time,
    /// A hash of what it carries, and of what faults did to that. It is made when it is sent, from
    /// bytes that are in the cache; those of a packet that lands seldom are.
    pub(super) content: u64,
    /// BTH to ICRC, over all packets.
    pub(super) byte_len: u32,
    pub(super) packets: u32,
    pub(super) source_port: u16,
    pub(super) tclass: u8,
    /// The faults of the wire that it is on have had their turn.
    pub(super) is_judged: bool,
    pub(super) is_train: bool,
    /// A fault changed its bytes.
    pub(super) is_damaged: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) source: SocketAddr,
    /// What the sender of a train wants its receiver to be told.
    pub(super) token: u64,
}

const _: () = assert!(size_of::<Flight>() == 128, "two cache lines");

impl Flight {
    /// The bytes of one of its packets, BTH to ICRC; they count as equally long.
    pub(super) fn packet_bytes(&self) -> u64 {
        u64::from(self.byte_len.div_ceil(self.packets))
    }
}

/// First in, first out; linked through the flights.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(super) fn front(self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(super) fn push(&mut self, flights: &mut Flights, flight: u32) {
        flights[flight].next = NONE;
        match self.tail {
            NONE => self.head = flight,
            tail => flights[tail].next = flight,
        }
        self.tail = flight;
    }

    pub(super) fn pop(&mut self, flights: &Flights) -> Option<u32> {
        let flight = self.front()?;
        self.head = flights[flight].next;
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(flight)
    }
}

pub(super) struct Flights {
    slots: Vec<Flight>,
    free: u32,
}

impl Flights {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: NONE }
    }

    /// A slot for a flight, with an empty buffer that may have been used before; `fresh` is given
    /// that buffer.
    pub(super) fn launch(&mut self, fresh: impl FnOnce(Vec<u8>) -> Flight) -> u32 {
        if self.free == NONE {
            let flight = self.slots.len() as u32;
            self.slots.push(fresh(Vec::new()));
            return flight;
        }
        let flight = self.free;
        let slot = &mut self.slots[flight as usize];
        self.free = slot.next;
        let mut bytes = core::mem::take(&mut slot.bytes);
        bytes.clear();
        *slot = fresh(bytes);
        flight
    }

    /// A second flight like the first.
    pub(super) fn copy(&mut self, flight: u32) -> u32 {
        // Taken out for a while, for both are in the same slab.
        let bytes = core::mem::take(&mut self[flight].bytes);
        let like = Flight { bytes: Vec::new(), ..self[flight].clone() };
        let copy = self.launch(|mut fresh| {
            fresh.extend_from_slice(&bytes);
            Flight { is_judged: true, bytes: fresh, ..like }
        });
        self[flight].bytes = bytes;
        copy
    }

    pub(super) fn free(&mut self, flight: u32) {
        self[flight].next = self.free;
        self.free = flight;
    }
}

impl Index<u32> for Flights {
    type Output = Flight;

    fn index(&self, flight: u32) -> &Flight {
        &self.slots[flight as usize]
    }
}

impl IndexMut<u32> for Flights {
    fn index_mut(&mut self, flight: u32) -> &mut Flight {
        &mut self.slots[flight as usize]
    }
}
