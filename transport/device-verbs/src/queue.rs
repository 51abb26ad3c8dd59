//! What is posted to a queue, in the order of posting.

use std::collections::VecDeque;
use towpath_memory::Holds;

/// Bits of a driver's `wr_id` that hold a place in a queue.
const PLACE_BITS: u32 = 40;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// Bits that hold the number of the queue pair or shared queue.
const OWNER_BITS: u32 = 22;

/// Which queue a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Recv,
    Srq,
}

/// What we hand to the driver as `wr_id`: an error completion tells little else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) kind: Kind,
    /// The slot of the queue pair, or of the shared receive queue.
    pub(crate) owner: usize,
    /// The place in the queue, counted modulo 2 to the 40.
    pub(crate) place: u64,
}

impl Ticket {
    pub(crate) fn pack(self) -> u64 {
        debug_assert!(self.owner < 1 << OWNER_BITS, "queue pair numbers have 24 bits");
        let kind = match self.kind {
            Kind::Send => 0u64,
            Kind::Recv => 1,
            Kind::Srq => 2,
        };
        kind << (PLACE_BITS + OWNER_BITS)
            | (self.owner as u64) << PLACE_BITS
            | (self.place & PLACE_MASK)
    }

    pub(crate) fn unpack(packed: u64) -> Option<Self> {
        let kind = match packed >> (PLACE_BITS + OWNER_BITS) {
            0 => Kind::Send,
            1 => Kind::Recv,
            2 => Kind::Srq,
            _ => return None,
        };
        let owner = (packed >> PLACE_BITS) as usize & ((1 << OWNER_BITS) - 1);
        Some(Self { kind, owner, place: packed & PLACE_MASK })
    }
}

/// A queue that completes in order. Its places are counted from its making on.
pub(crate) struct Fifo<T> {
    entries: VecDeque<T>,
    head: u64,
    max: usize,
}

impl<T> Fifo<T> {
    pub(crate) fn new(max: u32) -> Self {
        Self { entries: VecDeque::with_capacity(max as usize), head: 0, max: max as usize }
    }

    /// Room for more work requests.
    pub(crate) fn room(&self) -> usize {
        self.max - self.entries.len()
    }

    /// The place of the next one.
    pub(crate) fn tail(&self) -> u64 {
        self.head.wrapping_add(self.entries.len() as u64)
    }

    pub(crate) fn push(&mut self, entry: T) {
        debug_assert!(self.room() > 0, "room was asked for");
        self.entries.push_back(entry);
    }

    /// Takes the last `count` back, which the driver refused.
    pub(crate) fn unpush(&mut self, count: usize) -> impl Iterator<Item = T> {
        self.entries.drain(self.entries.len().saturating_sub(count)..)
    }

    /// How many entries end with the completion of `place`, that one included; none for a place
    /// that is not in the queue, as one from before a reset.
    pub(crate) fn upto(&self, place: u64) -> usize {
        let offset = place.wrapping_sub(self.head) & PLACE_MASK;
        if offset < self.entries.len() as u64 { offset as usize + 1 } else { 0 }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let entry = self.entries.pop_front()?;
        self.head = self.head.wrapping_add(1);
        Some(entry)
    }

    /// Takes all of them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.pop())
    }
}

/// A posted receive: the caller's word, and what the device has for it.
#[derive(Debug, Default)]
pub(crate) struct PostedRecv {
    pub(crate) wr_id: u64,
    pub(crate) list: Holds,
}

/// A shared receive queue, whose entries complete in any order.
pub(crate) struct Pool {
    entries: Vec<PostedRecv>,
    free: Vec<u32>,
}

impl Pool {
    pub(crate) fn new(max: u32) -> Self {
        let entries = (0..max).map(|_| PostedRecv::default()).collect();
        Self { entries, free: (0..max).rev().collect() }
    }

    /// Whether there is no room.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// A place for `entry`, if there is room.
    pub(crate) fn put(&mut self, entry: PostedRecv) -> Option<u64> {
        let place = self.free.pop()?;
        self.entries[place as usize] = entry;
        Some(u64::from(place))
    }

    /// All that is there, and places of nothing.
    pub(crate) fn into_all(self) -> impl Iterator<Item = PostedRecv> {
        self.entries.into_iter()
    }

    /// Takes back what was put there.
    pub(crate) fn take(&mut self, place: u64) -> Option<PostedRecv> {
        let entry = std::mem::take(self.entries.get_mut(usize::try_from(place).ok()?)?);
        self.free.push(place as u32);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_comes_back_as_it_went() {
        for kind in [Kind::Send, Kind::Recv, Kind::Srq] {
            let ticket = Ticket { kind, owner: (1 << OWNER_BITS) - 1, place: PLACE_MASK };
            assert_eq!(Ticket::unpack(ticket.pack()), Some(ticket));
        }
        assert_eq!(Ticket::unpack(u64::MAX), None);
    }

    #[test]
    fn a_completion_ends_all_before_it_and_a_stale_one_nothing() {
        let mut queue = Fifo::new(4);
        (0..4).for_each(|entry| queue.push(entry));
        assert_eq!((queue.room(), queue.upto(2), queue.upto(4)), (0, 3, 0));
        assert_eq!((queue.pop(), queue.pop()), (Some(0), Some(1)));
        assert_eq!((queue.upto(1), queue.upto(2), queue.tail()), (0, 1, 4));
        assert_eq!(queue.drain().collect::<Vec<_>>(), [2, 3]);
        assert_eq!((queue.upto(3), queue.tail(), queue.room()), (0, 4, 4));
    }

    #[test]
    fn places_go_on_past_the_bits_of_a_ticket() {
        let mut queue = Fifo::new(4);
        queue.head = PLACE_MASK;
        (0..3).for_each(|entry| queue.push(entry));
        let place = Ticket { kind: Kind::Send, owner: 0, place: queue.tail() - 1 };
        let place = Ticket::unpack(place.pack()).unwrap().place;
        assert_eq!((place, queue.upto(place)), (1, 3));
    }

    #[test]
    fn a_pool_has_as_many_places_as_it_was_made_with() {
        let mut pool = Pool::new(2);
        let entry = |wr_id| PostedRecv { wr_id, ..PostedRecv::default() };
        let places = [pool.put(entry(1)), pool.put(entry(2)), pool.put(entry(3))];
        assert_eq!(places, [Some(0), Some(1), None]);
        assert_eq!(pool.take(1).map(|entry| entry.wr_id), Some(2));
        assert_eq!(pool.put(entry(4)), Some(1));
        assert!(pool.take(2).is_none());
    }
}
