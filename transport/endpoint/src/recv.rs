//! Receive buffers: a header slot and a payload buffer each, by slot number.

use crate::bell::Bell;
use crate::event::LinkId;
use crate::held::Held;
use crate::limits::SLOTS_AT_A_TIME;
use crate::message::{Chunk, Loan, Returns};
use crate::spare::Spare;
use crate::wr_id::WrId;
use std::sync::Arc;
use towpath_base::{Nanos, Time};
use towpath_memory::{Buf, Pool, Region};
use towpath_proto::limits::{HEADER_BYTES, PACKED_BYTES_MAX};
use towpath_proto::wire::{begins_chunk, next_in_pack, payload_bytes};
use towpath_proto::{ChannelId, ChunkRef, Class};
use towpath_verbs::{Access, Device, RecvWr, SgList};

/// Where a slot is posted, or whose chunk it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) link: LinkId,
    pub(crate) path: u8,
    pub(crate) channel: ChannelId,
}

/// A header slot and a payload buffer, and the work request that posts them.
pub(crate) struct Slot {
    header: Held,
    /// Here while the payload is not with the application.
    payload: Option<Box<Loan>>,
    wr: RecvWr,
    pub(crate) home: Option<Home>,
    /// Whose links it is for, while it is not free.
    pub(crate) class: Class,
    /// For a chunk that came in a pack: it is never posted.
    pub(crate) is_small: bool,
}

impl Slot {
    /// The work request of a slot that is at home; from here on the device has its buffers.
    #[inline]
    pub(crate) fn lend(&mut self) -> Option<&RecvWr> {
        let payload = self.payload.as_deref_mut()?;
        (self.header.lend() && payload.buf.lend()).then_some(&self.wr)
    }

    /// The header and the payload of a completion of `byte_len` bytes, without what only fills a
    /// packet up. Chunks behind it are copied to `rest`, if all are no longer than
    /// `pack_bytes_max`. None when it is too short.
    #[inline]
    pub(crate) fn received(
        &mut self,
        byte_len: u32,
        (rest, pack_bytes_max): (&mut Vec<u8>, u32),
    ) -> Option<(&[u8; HEADER_BYTES], &[u8])> {
        let len = (byte_len as usize).checked_sub(HEADER_BYTES)?;
        let header = self.header.buf()?.first_chunk()?;
        let payload = self.payload.as_deref_mut()?.buf.buf_mut()?;
        let own = payload_bytes(header, len);
        if next_in_pack(own) < len && byte_len <= pack_bytes_max {
            payload.set_len(len).ok()?;
            let behind = &payload[next_in_pack(own)..];
            if begins_chunk(behind) {
                rest.extend_from_slice(behind);
            }
        }
        payload.set_len(own).ok()?;
        Some((header, payload))
    }
}

/// All receive buffers of an endpoint.
pub(crate) struct RecvTable {
    slots: Vec<Slot>,
    free: Spare,
    slots_max: usize,
    /// Of those that are small: how many there are, and which are free.
    small: usize,
    small_free: Vec<u32>,
    chunk_bytes: usize,
    returns: Arc<Returns>,
}

impl RecvTable {
    /// Buffers that come back from other threads ring `bell`. Memory that is not needed for `quiet`
    /// goes back to the system.
    pub(crate) fn new(
        slots_max: usize,
        chunk_bytes_max: u32,
        (bell, quiet): (Arc<Bell>, Nanos),
    ) -> Self {
        Self {
            slots: Vec::new(),
            free: Spare::new(quiet),
            slots_max,
            small: 0,
            small_free: Vec::new(),
            chunk_bytes: chunk_bytes_max as usize,
            // As many small ones as others: each is for a chunk that has a credit.
            returns: Returns::new(2 * slots_max, bell),
        }
    }

    /// Makes at least `count` slots free, with new memory where the old does not do.
    pub(crate) fn reserve<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        count: usize,
    ) -> Result<(), crate::error::LinkError> {
        let missing = count.saturating_sub(self.free.len());
        if missing == 0 {
            return Ok(());
        }
        if self.made() + missing > self.slots_max {
            let links_max = self.slots_max / count.max(1);
            return Err(crate::error::LinkError::Full { links_max });
        }
        let headers = Pool::with_count(HEADER_BYTES, missing)?;
        let page_aligned = self.chunk_bytes.next_multiple_of(towpath_memory::PAGE_BYTES);
        let payloads = Pool::with_count(page_aligned, missing)?;
        let header_lkey = device.reg_mr(headers.region(), Access::LOCAL)?.lkey;
        let payload_lkey = match device.reg_mr(payloads.region(), Access::LOCAL) {
            Ok(keys) => keys.lkey,
            Err(error) => {
                // Nothing is posted there yet; a failure to give it back leaves a spare key.
                let _ = device.dereg_mr(header_lkey);
                return Err(error.into());
            }
        };
        for _ in 0..missing {
            let (Some(mut header), Some(payload)) = (headers.take(), payloads.take()) else {
                break;
            };
            if header.set_len(HEADER_BYTES).is_err() {
                break;
            }
            self.add(header, header_lkey, payload, payload_lkey);
        }
        Ok(())
    }

    /// How many slots there are, and may be.
    pub(crate) fn made_and_max(&self) -> (usize, usize) {
        (self.made(), self.slots_max)
    }

    /// How many slots there are that can be posted.
    fn made(&self) -> usize {
        self.slots.len() - self.small
    }

    /// How many slots are posted or held.
    pub(crate) fn used(&self) -> usize {
        self.made() - self.free.len()
    }

    /// How many slots are free or may be made.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.vacant()
    }

    /// How many more slots there may be.
    pub(crate) fn vacant(&self) -> usize {
        self.slots_max - self.made()
    }

    fn add(&mut self, header: Buf, header_lkey: u32, payload: Buf, payload_lkey: u32) {
        let number = self.slots.len() as u32;
        let (mut header, mut payload) = (Held::new(header), Held::new(payload));
        header.lend();
        payload.lend();
        let wr = RecvWr {
            wr_id: WrId::DataRecv { slot: number }.pack(),
            sg_list: SgList::two(
                header.sge(header_lkey, HEADER_BYTES),
                payload.sge(payload_lkey, self.chunk_bytes),
            ),
        };
        // Not posted yet: the entries were only asked for their addresses.
        header.reclaim();
        payload.reclaim();
        self.push(header, payload, wr, false);
        self.free.push(number);
    }

    fn push(&mut self, header: Held, payload: Held, wr: RecvWr, is_small: bool) {
        let (slot, returns) = (self.slots.len() as u32, Some(Arc::clone(&self.returns)));
        let payload = Some(Box::new(Loan { buf: payload, slot, offset: 0, returns }));
        let class = Class::default();
        self.slots.push(Slot { header, payload, wr, home: None, class, is_small });
    }

    /// A free slot for a chunk that came in a pack; none when there are as many as may be, or
    /// memory is short.
    pub(crate) fn take_small(&mut self) -> Option<u32> {
        if self.small_free.is_empty() {
            self.make_small();
        }
        self.small_free.pop()
    }

    #[cold]
    fn make_small(&mut self) {
        let count = SLOTS_AT_A_TIME.min(self.slots_max - self.small);
        let pools = Pool::with_count(HEADER_BYTES, count)
            .and_then(|headers| Ok((headers, Pool::with_count(PACKED_BYTES_MAX, count)?)));
        let Ok((headers, payloads)) = pools else { return };
        for _ in 0..count {
            let (Some(header), Some(payload)) = (headers.take(), payloads.take()) else { break };
            self.small_free.push(self.slots.len() as u32);
            self.small += 1;
            self.push(Held::new(header), Held::new(payload), RecvWr::default(), true);
        }
    }

    /// A free slot for links of `class`, or for `home`, which is one of them.
    pub(crate) fn take_free(&mut self, class: Class, home: Option<Home>) -> Option<u32> {
        let slot = self.free.pop()?;
        let entry = &mut self.slots[slot as usize];
        (entry.class, entry.home) = (class, home);
        Some(slot)
    }

    /// A slot by its number.
    #[inline]
    pub(crate) fn at(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(slot as usize)
    }

    pub(crate) fn put_free(&mut self, slot: u32) {
        if let Some(entry) = self.slots.get_mut(slot as usize) {
            entry.home = None;
            if entry.is_small {
                self.small_free.push(slot);
            } else {
                self.free.push(slot);
            }
        }
    }

    /// A completion was polled: the buffers of its slot are here again. None for one that was not
    /// posted.
    #[inline]
    pub(crate) fn reclaim(&mut self, slot: u32) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(slot as usize)?;
        let payload = slot.payload.as_deref_mut()?;
        (slot.header.reclaim() && payload.buf.reclaim()).then_some(slot)
    }

    /// Copies what a stream or a pack brought to a slot that is at home; true for a small one.
    pub(crate) fn fill(&mut self, slot: u32, payload: &[u8], home: Home) -> bool {
        let Some(slot) = self.slots.get_mut(slot as usize) else { return false };
        slot.home = Some(home);
        let buf = slot.payload.as_deref_mut().and_then(|loan| loan.buf.buf_mut());
        let filled = buf.map(|buf| {
            buf.set_len(0)?;
            buf.extend(payload)
        });
        debug_assert!(
            matches!(filled, Some(Ok(()))),
            "the caller took the slot and saw the length"
        );
        slot.is_small
    }

    /// Hands a kept chunk out.
    pub(crate) fn lend_out(&mut self, chunk: &ChunkRef, channel: ChannelId) -> Option<Chunk> {
        let slot = self.slots.get_mut(chunk.buf.0 as usize)?;
        let mut loan = slot.payload.take()?;
        let len = loan.buf.buf().map(|buf| buf.len());
        debug_assert_eq!(len, Some(chunk.length as usize), "it has the length that came in");
        loan.offset = chunk.offset;
        if let Some(home) = &mut slot.home {
            home.channel = channel;
        }
        Some(Chunk::new(loan))
    }

    /// Takes a chunk back that came by the fast way; says which slot is home again. None for
    /// one of another endpoint, which then finds its own way.
    #[inline]
    pub(crate) fn take_back(&mut self, chunk: Chunk) -> Option<u32> {
        let loan = chunk.into_loan(&self.returns)?;
        self.put_home(loan)
    }

    /// Whether chunks that were dropped somewhere wait to be taken back.
    pub(crate) fn has_returned(&self) -> bool {
        !self.returns.is_empty()
    }

    /// Takes one chunk back that was dropped somewhere.
    pub(crate) fn pop_returned(&mut self) -> Option<u32> {
        let mut loan = self.returns.pop()?;
        loan.returns = Some(Arc::clone(&self.returns));
        self.put_home(loan)
    }

    #[inline]
    fn put_home(&mut self, loan: Box<Loan>) -> Option<u32> {
        let number = loan.slot;
        let slot = self.slots.get_mut(number as usize)?;
        debug_assert!(slot.payload.is_none(), "the slot's buffer was out");
        slot.payload = Some(loan);
        Some(number)
    }

    /// When [`shrink`](Self::shrink) has something to do.
    pub(crate) fn shrink_due(&self, now: Time) -> Time {
        self.free.due(now)
    }

    /// Gives memory back that has not been needed for a while. Not for a device that pins it.
    #[cold]
    pub(crate) fn shrink(&mut self, now: Time) {
        for &slot in self.free.shrink(now) {
            let slot = self.slots.get_mut(slot as usize);
            let loan = slot.and_then(|slot| slot.payload.as_deref_mut());
            if let Some(buf) = loan.and_then(|loan| loan.buf.buf_mut()) {
                buf.give_back_pages();
            }
        }
    }

    /// Free slots whose memory the system has.
    pub(crate) fn returned(&self) -> usize {
        self.free.returned()
    }

    /// How many slots there are, are free, are posted; the rest is held by links or out.
    pub(crate) fn census(&self) -> (usize, usize, usize) {
        let is_posted = |slot: &&Slot| slot.payload.as_ref().is_some_and(|loan| loan.buf.is_lent());
        let posted = self.slots.iter().filter(is_posted).count();
        let small_used = self.small - self.small_free.len();
        (self.made() + small_used, self.free.len(), posted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_small_slots_as_others_may_be_and_each_can_be_used_again() {
        let mut table = RecvTable::new(3, 4096, (Arc::default(), Nanos::from_secs(1)));
        let taken: Vec<_> = std::iter::from_fn(|| table.take_small()).collect();
        assert_eq!((taken.len(), table.take_small()), (3, None));
        assert_eq!((table.made_and_max(), table.vacant()), ((0, 3), 3), "none can be posted");
        assert_eq!(table.census(), (3, 0, 0));
        table.put_free(taken[1]);
        assert_eq!((table.take_small(), table.take_small()), (Some(taken[1]), None));
        taken.iter().for_each(|&slot| table.put_free(slot));
        assert_eq!(table.census(), (0, 0, 0));
        assert_eq!(table.take_free(Class::default(), None), None, "small ones are no others");
    }
}
