//! The send queue of a path: a ring of header slots in the order of posting.

use crate::held::Held;
use crate::wr_id::WrId;
use towpath_memory::{Buf, MemoryError, Pool};
use towpath_proto::limits::HEADER_BYTES;
use towpath_verbs::Sge;

struct Slot {
    header: Held,
    /// Of the header, once its key is known.
    sge: Sge,
    number: u64,
    /// Header and payload.
    bytes: u32,
}

/// Headers of posted sends, oldest first. Positions count up and wrap; a slot is the distance from
/// the origin modulo the ring's length, a power of two.
pub(crate) struct TxRing {
    slots: Vec<Slot>,
    depth: u32,
    /// The position of the first slot. A ring that is empty begins there again: of many paths each
    /// then keeps to a few slots, which stay in the cache.
    origin: u32,
    /// The oldest posted, and the next to post.
    tail: u32,
    head: u32,
    posted_bytes: u64,
}

impl TxRing {
    /// The ring and the pool of its headers, to be registered.
    pub(crate) fn new(depth: u32) -> Result<(Self, Pool), MemoryError> {
        let len = depth.next_power_of_two() as usize;
        let pool = Pool::with_count(HEADER_BYTES, len)?;
        let slot = || {
            let mut buf = pool.take()?;
            buf.set_len(HEADER_BYTES).ok()?;
            Some(Slot { header: Held::new(buf), sge: Sge::default(), number: 0, bytes: 0 })
        };
        let slots: Vec<Slot> = std::iter::from_fn(slot).take(len).collect();
        Ok((Self { slots, depth, origin: 0, tail: 0, head: 0, posted_bytes: 0 }, pool))
    }

    /// The key of the pool of headers. Nothing is posted yet.
    pub(crate) fn set_lkey(&mut self, lkey: u32) {
        for slot in &mut self.slots {
            // Lent for as long as it takes to ask for the address.
            slot.header.lend();
            slot.sge = slot.header.sge(lkey, HEADER_BYTES);
            slot.header.reclaim();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.outstanding() >= self.depth
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Bytes that were posted and that no completion told of yet.
    pub(crate) fn posted_bytes(&self) -> u64 {
        self.posted_bytes
    }

    fn slot(&mut self, position: u32) -> &mut Slot {
        let mask = self.slots.len() - 1;
        &mut self.slots[position.wrapping_sub(self.origin) as usize & mask]
    }

    /// Writes the next header, to be followed by `payload_bytes`; returns its position and gather
    /// entry. The ring must not be full.
    pub(crate) fn push(
        &mut self,
        number: u64,
        payload_bytes: u32,
        write: impl FnOnce(&mut [u8; HEADER_BYTES]),
    ) -> (u32, Sge) {
        debug_assert!(!self.is_full(), "the caller checks for room");
        let position = self.head;
        if self.tail == position {
            self.origin = position;
        }
        self.head = position.wrapping_add(1);
        let bytes = HEADER_BYTES as u32 + payload_bytes;
        self.posted_bytes += u64::from(bytes);
        let slot = self.slot(position);
        (slot.number, slot.bytes) = (number, bytes);
        if let Some(bytes) = slot.header.buf_mut().and_then(|buf: &mut Buf| buf.first_chunk_mut()) {
            write(bytes);
        }
        slot.header.lend();
        (position, slot.sge)
    }

    /// Takes back all posted ones up to `upto`: the position and the number of the last of them.
    pub(crate) fn pop_upto(&mut self, upto: u32) -> Option<(u32, u64)> {
        let ahead = upto.wrapping_sub(self.tail) as i32;
        if ahead < 0 {
            return None;
        }
        let mut last = None;
        for _ in 0..(ahead as u32 + 1).min(self.outstanding()) {
            last = Some((self.tail, self.pop()));
        }
        last
    }

    /// Takes the oldest posted one back, whether or not a completion told of it: its number.
    pub(crate) fn pop_any(&mut self) -> Option<u64> {
        (self.outstanding() > 0).then(|| self.pop())
    }

    fn pop(&mut self) -> u64 {
        let position = self.tail;
        self.tail = position.wrapping_add(1);
        let slot = self.slot(position);
        slot.header.reclaim();
        let (number, bytes) = (slot.number, slot.bytes);
        self.posted_bytes -= u64::from(bytes);
        number
    }

    /// Takes the newest one back, which the device refused: its number.
    pub(crate) fn unpush(&mut self) -> Option<u64> {
        if self.head == self.tail {
            return None;
        }
        self.head = self.head.wrapping_sub(1);
        let position = self.head;
        let slot = self.slot(position);
        slot.header.reclaim();
        let (number, bytes) = (slot.number, slot.bytes);
        self.posted_bytes -= u64::from(bytes);
        Some(number)
    }

    pub(crate) fn wr_id(link: u16, path: u8, position: u32) -> u64 {
        WrId::DataSend { link, path, position }.pack()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_completion_tells_of_all_before_it_and_none_behind_it() {
        let (mut ring, _pool) = TxRing::new(3).expect("memory for a test");
        ring.set_lkey(7);
        for number in 10..13 {
            let (position, sge) = ring.push(number, 36, |bytes| bytes[0] = 1);
            assert_eq!((u64::from(position), sge.length, sge.lkey), (number - 10, 64, 7));
        }
        assert!(ring.is_full());
        assert_eq!(ring.posted_bytes(), 300);
        assert_eq!(ring.pop_upto(1), Some((1, 11)));
        assert_eq!((ring.outstanding(), ring.posted_bytes()), (1, 100));
        assert_eq!(ring.pop_upto(0), None, "an old completion again tells nothing");
        assert_eq!((ring.unpush(), ring.unpush()), (Some(12), None));
        assert_eq!(ring.posted_bytes(), 0);
    }

    #[test]
    fn an_empty_ring_begins_at_its_first_slot_again_and_a_full_one_holds_all() {
        let (mut ring, _pool) = TxRing::new(4).expect("memory for a test");
        ring.set_lkey(7);
        let (_, first) = ring.push(0, 0, |_| {});
        ring.push(1, 0, |_| {});
        assert_eq!(ring.pop_upto(0), Some((0, 0)));
        let (_, third) = ring.push(2, 0, |_| {});
        assert_ne!(third.addr, first.addr, "the second is still there");
        while ring.pop_any().is_some() {}
        let again: Vec<_> = (3..7).map(|number| ring.push(number, 0, |_| {})).collect();
        assert_eq!((again[0].0, again[0].1.addr), (3, first.addr));
        assert!(ring.is_full());
        let popped: Vec<_> = std::iter::from_fn(|| ring.pop_any()).collect();
        assert_eq!(popped, [3, 4, 5, 6]);
    }
}
