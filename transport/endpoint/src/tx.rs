//! What the paths of a link have posted: headers by the order of posting, from one stock.

use crate::held::Held;
use crate::pack::{Open, Packs};
use crate::wr_id::WrId;
use std::ops::RangeInclusive;
use towpath_memory::{Buf, MemoryError, Pool};
use towpath_proto::limits::HEADER_BYTES;
use towpath_verbs::Sge;

/// One header. Exactly a cache line: what is known of a send is fetched at once.
#[repr(align(64))]
struct Slot {
    header: Held,
    /// Of the header, once its key is known.
    sge: Sge,
    /// Of the last chunk that it sends.
    number: u64,
    /// Headers and payloads.
    bytes: u32,
    /// How many chunks it sends, numbered in a row.
    chunks: u16,
    /// Which pack they are in, plus one; 0 for one that is by itself.
    pack: u16,
}

impl Slot {
    fn numbers(&self) -> RangeInclusive<u64> {
        self.number + 1 - u64::from(self.chunks)..=self.number
    }
}

/// The headers of a link. Its paths share them, and the one that came home last goes out next: so
/// there are few in use, which stay in the cache, however many paths take turns.
#[derive(Default)]
pub(crate) struct TxSlots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Queues that are full.
    full: u32,
    posted_bytes: u64,
    pub(crate) packs: Packs,
}

impl TxSlots {
    /// So many headers, and their pool, to be registered.
    pub(crate) fn new(count: usize) -> Result<(Self, Pool), MemoryError> {
        let pool = Pool::with_count(HEADER_BYTES, count)?;
        let slot = |_| {
            let mut buf = pool.take()?;
            buf.set_len(HEADER_BYTES).ok()?;
            let (header, sge) = (Held::new(buf), Sge::default());
            Some(Slot { header, sge, number: 0, bytes: 0, chunks: 0, pack: 0 })
        };
        let slots: Vec<Slot> = (0..count).map_while(slot).collect();
        let free = (0..slots.len() as u32).collect();
        Ok((Self { slots, free, ..Self::default() }, pool))
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

    /// Whether the send queue of any path is full.
    pub(crate) fn any_full(&self) -> bool {
        self.full > 0
    }

    /// Bytes that were posted and that no completion told of yet.
    pub(crate) fn posted_bytes(&self) -> u64 {
        self.posted_bytes
    }
}

/// The send queue of a path: which headers are posted, oldest first. Positions count up and wrap.
pub(crate) struct TxQueue {
    depth: u32,
    /// The oldest posted, and the next to post.
    tail: u32,
    head: u32,
    /// The slot of each position, modulo its length, which is a power of two. Not a list through
    /// the slots: those would come from memory one after the other.
    places: Box<[u32]>,
    posted_bytes: u64,
    /// What was pushed last, while chunks may join it.
    open: Option<Open>,
}

impl TxQueue {
    /// Of at most `depth` sends: as many slots must be there for it.
    pub(crate) fn new(depth: u32) -> Self {
        let places = vec![0; depth.next_power_of_two() as usize].into_boxed_slice();
        Self { depth, tail: 0, head: 0, places, posted_bytes: 0, open: None }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.outstanding() >= self.depth
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// See [`TxSlots::posted_bytes`].
    pub(crate) fn posted_bytes(&self) -> u64 {
        self.posted_bytes
    }

    fn place_mut(&mut self, position: u32) -> &mut u32 {
        let mask = self.places.len() - 1;
        &mut self.places[position as usize & mask]
    }

    /// Writes the next header, to be followed by `payload_bytes`; returns its position and gather
    /// entry. The queue must not be full.
    pub(crate) fn push(
        &mut self,
        slots: &mut TxSlots,
        (number, payload_bytes): (u64, u32),
        write: impl FnOnce(&mut [u8; HEADER_BYTES]),
    ) -> (u32, Sge) {
        debug_assert!(self.open.is_none(), "the caller closes what was pushed before");
        let bytes = HEADER_BYTES as u32 + payload_bytes;
        let (position, slot) = self.take_slot(slots, number, bytes);
        if let Some(bytes) = slot.header.buf_mut().and_then(|buf: &mut Buf| buf.first_chunk_mut()) {
            write(bytes);
        }
        slot.header.lend();
        (position, slot.sge)
    }

    /// The slot of the next position, for one chunk so far.
    #[inline]
    fn take_slot<'s>(
        &mut self,
        slots: &'s mut TxSlots,
        number: u64,
        bytes: u32,
    ) -> (u32, &'s mut Slot) {
        debug_assert!(!self.is_full(), "the caller checks for room");
        let position = self.head;
        let place = slots.free.pop().expect("as many slots as all queues are deep");
        *self.place_mut(position) = place;
        self.head = position.wrapping_add(1);
        self.posted_bytes += u64::from(bytes);
        slots.posted_bytes += u64::from(bytes);
        slots.full += u32::from(self.is_full());
        let slot = &mut slots.slots[place as usize];
        (slot.number, slot.bytes, slot.chunks, slot.pack) = (number, bytes, 1, 0);
        (position, slot)
    }

    /// Adds a chunk to the pack that was pushed last; false when there is none, or no room in it.
    pub(crate) fn join(
        &mut self,
        slots: &mut TxSlots,
        number: u64,
        payload: &[u8],
        write: impl FnOnce(&mut [u8; HEADER_BYTES]),
    ) -> bool {
        let Some(mut open) = self.open else { return false };
        let place = *self.place_mut(self.head.wrapping_sub(1));
        let TxSlots { slots: all, packs, posted_bytes, .. } = slots;
        let slot = &mut all[place as usize];
        if slot.number + 1 != number || !packs.has_room(&open, payload.len()) {
            return false;
        }
        packs.add(&mut open, payload, write);
        self.open = Some(open);
        let bytes = (HEADER_BYTES + payload.len()) as u32;
        (slot.number, slot.bytes, slot.chunks) = (number, slot.bytes + bytes, slot.chunks + 1);
        self.posted_bytes += u64::from(bytes);
        *posted_bytes += u64::from(bytes);
        true
    }

    /// Whether what was pushed last is a pack in which another such chunk finds no room.
    #[inline]
    pub(crate) fn is_pack_full(&self, slots: &TxSlots, payload_bytes: usize) -> bool {
        self.open.is_some_and(|open| !slots.packs.has_room(&open, payload_bytes))
    }

    /// Writes the next chunk to a pack that others may join; returns its position. None when there
    /// is none that it fits in. The queue must not be full.
    pub(crate) fn push_pack(
        &mut self,
        slots: &mut TxSlots,
        number: u64,
        payload: &[u8],
        write: impl FnOnce(&mut [u8; HEADER_BYTES]),
    ) -> Option<u32> {
        debug_assert!(self.open.is_none(), "the caller closes what was pushed before");
        let mut open = slots.packs.open(payload.len())?;
        slots.packs.add(&mut open, payload, write);
        self.open = Some(open);
        let bytes = (HEADER_BYTES + payload.len()) as u32;
        let (position, slot) = self.take_slot(slots, number, bytes);
        slot.pack = open.pack() + 1;
        Some(position)
    }

    /// Nothing more joins what was pushed last: its gather entry, if it is a pack.
    #[inline]
    pub(crate) fn close(&mut self, slots: &mut TxSlots) -> Option<Sge> {
        let open = self.open.take()?;
        Some(slots.packs.lend(&open))
    }

    /// Takes back all posted ones up to `upto`: the position and the number of the last of them.
    pub(crate) fn pop_upto(&mut self, slots: &mut TxSlots, upto: u32) -> Option<(u32, u64)> {
        let ahead = upto.wrapping_sub(self.tail) as i32;
        if ahead < 0 {
            return None;
        }
        let number = self.pop(slots, (ahead as u32 + 1).min(self.outstanding()))?;
        Some((self.tail.wrapping_sub(1), number))
    }

    /// Takes the oldest posted one back, whether or not a completion told of it: its numbers.
    pub(crate) fn pop_any(&mut self, slots: &mut TxSlots) -> Option<RangeInclusive<u64>> {
        let numbers = self.numbers_at(slots, self.tail)?;
        self.pop(slots, 1).map(|_| numbers)
    }

    /// What the send at a position carries; none where nothing is posted.
    fn numbers_at(&mut self, slots: &TxSlots, position: u32) -> Option<RangeInclusive<u64>> {
        if self.outstanding() == 0 {
            return None;
        }
        let place = *self.place_mut(position);
        Some(slots.slots[place as usize].numbers())
    }

    /// Takes the `count` oldest ones back: the number of the last of them.
    fn pop(&mut self, slots: &mut TxSlots, count: u32) -> Option<u64> {
        let first = self.tail;
        slots.full -= u32::from(count > 0 && self.is_full());
        self.tail = first.wrapping_add(count);
        self.take_home(slots, first, count)
    }

    /// Takes the newest one back, which the device refused: its numbers.
    pub(crate) fn unpush(&mut self, slots: &mut TxSlots) -> Option<RangeInclusive<u64>> {
        let numbers = self.numbers_at(slots, self.head.wrapping_sub(1))?;
        slots.full -= u32::from(self.is_full());
        self.head = self.head.wrapping_sub(1);
        self.take_home(slots, self.head, 1).map(|_| numbers)
    }

    /// The slots of so many positions are free again: the number that the last of them carried.
    fn take_home(&mut self, slots: &mut TxSlots, first: u32, count: u32) -> Option<u64> {
        let TxSlots { slots, free, posted_bytes, packs, .. } = slots;
        let (mut bytes, mut number) = (0, None);
        for ahead in 0..count {
            let place = *self.place_mut(first.wrapping_add(ahead));
            let slot = &mut slots[place as usize];
            match slot.pack {
                0 => _ = slot.header.reclaim(),
                pack => packs.take_home(pack - 1),
            }
            bytes += u64::from(slot.bytes);
            number = Some(slot.number);
            free.push(place);
        }
        self.posted_bytes -= bytes;
        *posted_bytes -= bytes;
        number
    }

    pub(crate) fn wr_id(link: u16, path: u8, position: u32) -> u64 {
        WrId::DataSend { link, path, position }.pack()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stock(count: usize) -> (TxSlots, Pool) {
        let (mut slots, pool) = TxSlots::new(count).expect("memory for a test");
        slots.set_lkey(7);
        (slots, pool)
    }

    #[test]
    fn one_completion_tells_of_all_before_it_and_none_behind_it() {
        let ((mut slots, _pool), mut queue) = (stock(3), TxQueue::new(3));
        for number in 10..13 {
            assert!(!slots.any_full());
            let (position, sge) = queue.push(&mut slots, (number, 36), |bytes| bytes[0] = 1);
            assert_eq!((u64::from(position), sge.length, sge.lkey), (number - 10, 64, 7));
        }
        assert!(queue.is_full() && slots.any_full());
        assert_eq!((queue.posted_bytes(), slots.posted_bytes()), (300, 300));
        assert_eq!(queue.pop_upto(&mut slots, 1), Some((1, 11)));
        assert_eq!((queue.outstanding(), queue.posted_bytes()), (1, 100));
        assert!(!slots.any_full());
        assert_eq!(queue.pop_upto(&mut slots, 0), None, "an old completion again tells nothing");
        assert_eq!((queue.unpush(&mut slots), queue.unpush(&mut slots)), (Some(12..=12), None));
        assert_eq!((queue.posted_bytes(), slots.posted_bytes()), (0, 0));
    }

    #[test]
    fn paths_that_take_turns_use_the_same_headers() {
        let (mut slots, _pool) = stock(8);
        let mut queues = [TxQueue::new(4), TxQueue::new(4)];
        let mut addresses: Vec<u64> = Vec::new();
        for turn in 0..6 {
            let queue = &mut queues[turn % 2];
            for number in 0..2 {
                addresses.push(queue.push(&mut slots, (number, 0), |_| {}).1.addr);
            }
            assert_eq!(
                queue.pop_upto(&mut slots, turn as u32 / 2 * 2 + 1).map(|last| last.1),
                Some(1)
            );
        }
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 2);
    }

    #[test]
    fn each_path_gets_its_own_back_in_its_order_and_all_slots_can_be_out() {
        let (mut slots, _pool) = stock(6);
        let mut queues = [TxQueue::new(3), TxQueue::new(3)];
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..6 {
            let (_, sge) = queues[number as usize % 2].push(&mut slots, (number, 0), |_| {});
            assert!(seen.insert(sge.addr), "posted once");
        }
        assert!(queues.iter().all(TxQueue::is_full));
        let [even, odd] = &mut queues;
        assert_eq!(odd.unpush(&mut slots), Some(5..=5));
        assert_eq!(even.pop_upto(&mut slots, 1), Some((1, 2)));
        assert!(!slots.any_full());
        assert_eq!(odd.push(&mut slots, (7, 0), |_| {}).0, 2, "its position is free again");
        let drain = |queue: &mut TxQueue, slots: &mut TxSlots| {
            std::iter::from_fn(|| queue.pop_any(slots)).flatten().collect::<Vec<_>>()
        };
        assert_eq!((drain(even, &mut slots), drain(odd, &mut slots)), (vec![4], vec![1, 3, 7]));
        assert_eq!(slots.posted_bytes(), 0);
    }

    #[test]
    fn a_pack_comes_home_with_the_numbers_of_all_its_chunks() {
        let (mut slots, _pool) = stock(8);
        let (mut packs, _packs_pool) = Packs::new(2, 512).expect("memory for a test");
        packs.set_lkey(9);
        packs.limit(256);
        slots.packs = packs;
        let mut queue = TxQueue::new(8);
        let payload = [5; 20];
        let header = |bytes: &mut [u8; HEADER_BYTES]| bytes.fill(1);

        // Three of 88 bytes would take 264.
        assert_eq!(queue.push_pack(&mut slots, 10, &payload, header), Some(0));
        assert!(!queue.is_pack_full(&slots, payload.len()));
        assert!(!queue.join(&mut slots, 12, &payload, header), "11 is missing in between");
        assert!(queue.join(&mut slots, 11, &payload, header));
        assert!(queue.is_pack_full(&slots, payload.len()));
        assert!(!queue.join(&mut slots, 12, &payload, header));
        assert!(queue.join(&mut slots, 12, &payload[..16], header), "a shorter one fits");
        let sge = queue.close(&mut slots).expect("it is a pack");
        assert_eq!((sge.length, sge.lkey, queue.close(&mut slots)), (256, 9, None));
        assert_eq!(queue.push(&mut slots, (13, 100), header).0, 1);
        assert_eq!(queue.push_pack(&mut slots, 14, &payload, header), Some(2));
        assert!(queue.join(&mut slots, 15, &payload, header));
        assert_eq!(queue.close(&mut slots).map(|sge| sge.length), Some(176));
        assert_eq!(queue.push_pack(&mut slots, 16, &payload, header), None, "both are out");

        assert_eq!(queue.posted_bytes(), 6 * 64 + 4 * 20 + 16 + 100);
        assert_eq!(queue.unpush(&mut slots), Some(14..=15));
        assert_eq!(
            queue.push_pack(&mut slots, 14, &[5; 200], header),
            None,
            "longer than a packet"
        );
        assert_eq!(queue.pop_upto(&mut slots, 0), Some((0, 12)));
        assert_eq!(queue.pop_any(&mut slots), Some(13..=13));
        assert_eq!((queue.posted_bytes(), slots.posted_bytes()), (0, 0));
        for (number, position) in [(14, 2), (15, 3)] {
            let pushed = queue.push_pack(&mut slots, number, &payload, header);
            assert_eq!(pushed, Some(position), "both are free again");
            queue.close(&mut slots);
        }
        let numbers = [14..=14, 15..=15].map(Some);
        assert_eq!([0, 1].map(|_| queue.pop_any(&mut slots)), numbers);
    }
}
