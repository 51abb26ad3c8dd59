//! What the paths of a link have posted: headers by the order of posting, from one stock.

use super::Company;
use crate::held::Held;
use crate::wr_id::WrId;
use std::iter;
use towpath_memory::{Buf, Pool};
use towpath_proto::limits::HEADER_BYTES;
use towpath_verbs::Sge;

/// One header. Exactly a cache line: what is known of a send is fetched at once.
#[repr(align(64))]
struct Slot {
    header: Held,
    /// Of the header, once its key is known.
    sge: Sge,
    /// Of the chunk.
    number: u64,
    /// Header and body.
    bytes: u32,
    /// Which buffer of the [`Company`] it takes.
    company: Option<u16>,
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
    pub(crate) company: Company,
}

impl TxSlots {
    /// Of all headers of a pool, which is registered under this key.
    pub(crate) fn new(pool: &Pool, lkey: u32, company: Company) -> Self {
        let slot = || {
            let mut buf = pool.take()?;
            buf.set_len(HEADER_BYTES).ok()?;
            let (header, sge) = Held::with_entry(buf, lkey, HEADER_BYTES);
            Some(Slot { header, sge, number: 0, bytes: 0, company: None })
        };
        let slots: Vec<Slot> = iter::from_fn(slot).collect();
        let free = (0..slots.len() as u32).collect();
        Self { slots, free, full: 0, posted_bytes: 0, company }
    }

    /// Whether the send queue of any path is full, or what chunks of several frames need is out.
    pub(crate) fn any_full(&self) -> bool {
        self.full > 0 || self.company.is_out()
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
}

impl TxQueue {
    /// Of at most `depth` sends: as many slots must be there for it.
    pub(crate) fn new(depth: u32) -> Self {
        let places = vec![0; depth.next_power_of_two() as usize].into_boxed_slice();
        Self { depth, tail: 0, head: 0, places, posted_bytes: 0 }
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

    /// Writes the next header, to be followed by `body_bytes`, of which some may be in a buffer of
    /// the [`Company`]; returns its position and gather entry. The queue must not be full.
    #[inline]
    pub(crate) fn push(
        &mut self,
        slots: &mut TxSlots,
        (number, body_bytes, company): (u64, u32, Option<u16>),
        write: impl FnOnce(&mut [u8; HEADER_BYTES]),
    ) -> (u32, Sge) {
        debug_assert!(!self.is_full(), "the caller checks for room");
        let bytes = HEADER_BYTES as u32 + body_bytes;
        let position = self.head;
        let place = slots.free.pop().expect("as many slots as all queues are deep");
        *self.place_mut(position) = place;
        self.head = position.wrapping_add(1);
        self.posted_bytes += u64::from(bytes);
        slots.posted_bytes += u64::from(bytes);
        slots.full += u32::from(self.is_full());
        let slot = &mut slots.slots[place as usize];
        (slot.number, slot.bytes, slot.company) = (number, bytes, company);
        if let Some(bytes) = slot.header.buf_mut().and_then(|buf: &mut Buf| buf.first_chunk_mut()) {
            write(bytes);
        }
        slot.header.lend();
        (position, slot.sge)
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

    /// Takes the oldest posted one back, whether or not a completion told of it: its number.
    pub(crate) fn pop_any(&mut self, slots: &mut TxSlots) -> Option<u64> {
        if self.outstanding() == 0 { None } else { self.pop(slots, 1) }
    }

    /// Takes the `count` oldest ones back: the number of the last of them.
    fn pop(&mut self, slots: &mut TxSlots, count: u32) -> Option<u64> {
        let first = self.tail;
        slots.full -= u32::from(count > 0 && self.is_full());
        self.tail = first.wrapping_add(count);
        self.take_home(slots, first, count)
    }

    /// Takes the newest one back, which the device refused: its number.
    pub(crate) fn unpush(&mut self, slots: &mut TxSlots) -> Option<u64> {
        if self.outstanding() == 0 {
            return None;
        }
        slots.full -= u32::from(self.is_full());
        self.head = self.head.wrapping_sub(1);
        self.take_home(slots, self.head, 1)
    }

    /// The slots of so many positions are free again: the number that the last of them carried.
    fn take_home(&mut self, slots: &mut TxSlots, first: u32, count: u32) -> Option<u64> {
        let TxSlots { slots, free, posted_bytes, company, .. } = slots;
        let (mut bytes, mut number) = (0, None);
        for ahead in 0..count {
            let place = *self.place_mut(first.wrapping_add(ahead));
            let slot = &mut slots[place as usize];
            let is_back = slot.header.reclaim();
            debug_assert!(is_back, "the device is done with what it has completed or refused");
            if let Some(index) = slot.company.take() {
                company.take_home(index);
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
    use towpath_proto::limits::COPIED_BYTES_MAX;

    fn stock(count: usize) -> (TxSlots, Pool) {
        let pool = Pool::with_count(HEADER_BYTES, count).expect("memory for a test");
        (TxSlots::new(&pool, 7, company(1)), pool)
    }

    fn company(count: usize) -> Company {
        let pool = Pool::with_count(COPIED_BYTES_MAX, count).expect("memory for a test");
        Company::new(&pool, COPIED_BYTES_MAX, 9)
    }

    #[test]
    fn one_completion_tells_of_all_before_it_and_none_behind_it() {
        let ((mut slots, _pool), mut queue) = (stock(3), TxQueue::new(3));
        for number in 10..13 {
            assert!(!slots.any_full());
            let (position, sge) = queue.push(&mut slots, (number, 36, None), |bytes| bytes[0] = 1);
            assert_eq!((u64::from(position), sge.length, sge.lkey), (number - 10, 64, 7));
        }
        assert!(queue.is_full() && slots.any_full());
        assert_eq!((queue.posted_bytes(), slots.posted_bytes()), (300, 300));
        assert_eq!(queue.pop_upto(&mut slots, 1), Some((1, 11)));
        assert_eq!((queue.outstanding(), queue.posted_bytes()), (1, 100));
        assert!(!slots.any_full());
        assert_eq!(queue.pop_upto(&mut slots, 0), None, "an old completion again tells nothing");
        assert_eq!((queue.unpush(&mut slots), queue.unpush(&mut slots)), (Some(12), None));
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
                addresses.push(queue.push(&mut slots, (number, 0, None), |_| {}).1.addr);
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
            let (_, sge) = queues[number as usize % 2].push(&mut slots, (number, 0, None), |_| {});
            assert!(seen.insert(sge.addr), "posted once");
        }
        assert!(queues.iter().all(TxQueue::is_full));
        let [even, odd] = &mut queues;
        assert_eq!(odd.unpush(&mut slots), Some(5));
        assert_eq!(even.pop_upto(&mut slots, 1), Some((1, 2)));
        assert!(!slots.any_full());
        assert_eq!(odd.push(&mut slots, (7, 0, None), |_| {}).0, 2, "its position is free again");
        let drain = |queue: &mut TxQueue, slots: &mut TxSlots| {
            iter::from_fn(|| queue.pop_any(slots)).collect::<Vec<_>>()
        };
        assert_eq!((drain(even, &mut slots), drain(odd, &mut slots)), (vec![4], vec![1, 3, 7]));
        assert_eq!(slots.posted_bytes(), 0);
    }

    #[test]
    fn a_buffer_of_the_company_comes_home_with_its_chunk_and_while_all_are_out_nothing_goes() {
        let (mut slots, _pool) = stock(8);
        slots.company = company(2);
        let mut queue = TxQueue::new(8);
        for number in 0..2 {
            assert!(!slots.any_full());
            let index = slots.company.take().expect("one is free");
            let (bytes, whole) = slots.company.bytes_mut(index);
            bytes[..3].fill(7);
            assert_eq!((whole.length as usize, whole.lkey), (bytes.len(), 9));
            slots.company.lend(index);
            queue.push(&mut slots, (number, 100, Some(index)), |_| {});
        }
        assert!(slots.any_full() && slots.company.take().is_none());
        assert_eq!(queue.unpush(&mut slots), Some(1));
        assert!(!slots.any_full());
        assert_eq!(queue.pop_upto(&mut slots, 0), Some((0, 0)));
        assert_eq!((slots.company.take().is_some(), slots.company.take().is_some()), (true, true));
    }
}
