//! Receive buffers: a header slot and a buffer for the body each, by slot number.

use super::spare::Spare;
use crate::bell::Bell;
use crate::held::Held;
use crate::ids::LinkId;
use crate::message::{Chunk, Loan, Returned, Returns};
use crate::wr_id::{NO_QUEUE, WrId};
use std::sync::Arc;
use towpath_base::passes::{Pass, note};
use towpath_base::{Nanos, Time};
use towpath_memory::{Buf, Pool, Region, RegionId};
use towpath_proto::limits::HEADER_BYTES;
use towpath_proto::{ChannelId, ChunkRef};
use towpath_verbs::{Access, Device, PdNum, RecvWr, SgList};

/// A header slot and a payload buffer, and the work request that posts them.
pub(crate) struct Slot {
    header: Held,
    /// Shared with the pieces that lie in it, while any are out.
    loan: Arc<Loan>,
    /// Pieces that the link or the application has.
    pieces: u16,
    wr: RecvWr,
    /// The link that has them.
    pub(crate) holder: Option<LinkId>,
    /// Where it is posted, while it is not free.
    pub(crate) queue: u32,
}

impl Slot {
    /// The buffer of a slot of which no piece is out.
    #[inline]
    fn buf(&mut self) -> Option<&mut Held> {
        debug_assert!(self.pieces == 0, "who has a piece shares the buffer");
        Arc::get_mut(&mut self.loan).map(|loan| &mut loan.buf)
    }

    /// The same, for bytes of which nothing is known yet.
    #[inline]
    fn buf_of_new(&mut self) -> Option<&mut Buf> {
        debug_assert!(self.pieces == 0, "who has a piece shares the buffer");
        let Loan { buf, page_crcs, .. } = Arc::get_mut(&mut self.loan)?;
        page_crcs.clear();
        buf.buf_mut()
    }

    /// The work request of a slot that is at home; from here on the device has its buffers.
    #[inline]
    pub(crate) fn lend(&mut self) -> Option<&RecvWr> {
        let lent = self.buf()?.lend() && self.header.lend();
        lent.then_some(&self.wr)
    }

    /// The header of a completion of `byte_len` bytes, and what holds the body. None when it is too
    /// short.
    #[inline]
    pub(crate) fn received(&mut self, byte_len: u32) -> Option<([u8; HEADER_BYTES], Arc<Loan>)> {
        let len = (byte_len as usize).checked_sub(HEADER_BYTES)?;
        let header = *self.header.buf()?.first_chunk()?;
        self.buf_of_new()?.set_len(len).ok()?;
        Some((header, Arc::clone(&self.loan)))
    }

    /// What holds the body.
    pub(crate) fn loan(&self) -> Arc<Loan> {
        Arc::clone(&self.loan)
    }

    /// The body of what came, to be opened in place.
    pub(crate) fn body_mut(&mut self) -> Option<&mut Buf> {
        self.buf()?.buf_mut()
    }

    /// So many pieces are kept of what came here, of whose pages the link has taken CRCs, or not.
    /// The list of these is exchanged for an empty one.
    #[inline]
    pub(crate) fn keep(&mut self, pieces: u16, holder: LinkId, page_crcs: &mut Vec<u32>) {
        // Nobody has a piece before the application takes events.
        if !page_crcs.is_empty()
            && let Some(loan) = Arc::get_mut(&mut self.loan)
        {
            std::mem::swap(&mut loan.page_crcs, page_crcs);
        }
        (self.pieces, self.holder) = (pieces, Some(holder));
    }

    /// Copies what a stream brought to a slot that is at home.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> bool {
        let filled = self.buf_of_new().map(|buf| {
            buf.set_len(0)?;
            buf.extend(bytes)
        });
        matches!(filled, Some(Ok(())))
    }

    /// Makes room for a piece of so many bytes that is put together here.
    fn begin_piece(&mut self, length: usize) -> bool {
        self.buf_of_new().is_some_and(|buf| buf.set_len(length).is_ok())
    }

    /// Copies a part of the piece that is put together here.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let buf = Arc::get_mut(&mut self.loan).and_then(|loan| loan.buf.buf_mut());
        let place = buf.and_then(|buf| buf.get_mut(at..at + bytes.len()));
        debug_assert!(place.is_some(), "a part lies within its piece");
        if let Some(place) = place {
            place.copy_from_slice(bytes);
            note(Pass::Copy, bytes.len());
        }
    }
}

/// All receive buffers of an endpoint.
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Spare,
    slots_max: usize,
    chunk_bytes: usize,
    returns: Arc<Returns>,
    /// The regions of the payload buffers with their keys, in order: for what is sent on.
    regions: Vec<(RegionId, u32)>,
}

impl Slots {
    /// Pieces that come back from other threads ring `bell`. Memory that is not needed for `quiet`
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
            chunk_bytes: chunk_bytes_max as usize,
            returns: Returns::new(bell),
            regions: Vec::new(),
        }
    }

    /// The key of a region that receive buffers lie in.
    pub(crate) fn lkey_of(&self, region: RegionId) -> Option<u32> {
        let place = self.regions.binary_search_by_key(&region, |&(id, _)| id).ok()?;
        Some(self.regions[place].1)
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
        let header_lkey = device.reg_mr(PdNum::DEFAULT, headers.region(), Access::LOCAL)?.lkey;
        let payload_lkey = match device.reg_mr(PdNum::DEFAULT, payloads.region(), Access::LOCAL) {
            Ok(keys) => keys.lkey,
            Err(error) => {
                // Nothing is posted there yet; a failure to give it back leaves a spare key.
                let _ = device.dereg_mr(header_lkey);
                return Err(error.into());
            }
        };
        // Regions made later have greater numbers, so this one comes last.
        self.regions.push((payloads.region().id(), payload_lkey));
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

    /// How many slots there are.
    fn made(&self) -> usize {
        self.slots.len()
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
        let (header, of_header) = Held::with_entry(header, header_lkey, HEADER_BYTES);
        let (payload, of_payload) = Held::with_entry(payload, payload_lkey, self.chunk_bytes);
        let wr_id = WrId::DataRecv { slot: number }.pack();
        let wr = RecvWr { wr_id, sg_list: SgList::two(of_header, of_payload) };
        let loan = Arc::new(Loan::new(payload, number, Arc::clone(&self.returns)));
        let (holder, queue) = (None, NO_QUEUE);
        self.slots.push(Slot { header, loan, pieces: 0, wr, holder, queue });
        self.free.push(number);
    }

    /// A free slot for a receive queue, or for pieces of a link that go there later.
    pub(crate) fn take_free(&mut self, queue: u32, holder: Option<LinkId>) -> Option<u32> {
        let slot = self.free.pop()?;
        let entry = &mut self.slots[slot as usize];
        (entry.queue, entry.holder) = (queue, holder);
        Some(slot)
    }

    /// A slot by its number.
    #[inline]
    pub(crate) fn at(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(slot as usize)
    }

    pub(crate) fn put_free(&mut self, slot: u32) {
        if let Some(entry) = self.slots.get_mut(slot as usize) {
            entry.holder = None;
            self.free.push(slot);
        }
    }

    /// A completion was polled: the buffers of its slot are here again. None for one that was not
    /// posted.
    #[inline]
    pub(crate) fn reclaim(&mut self, slot: u32) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(slot as usize)?;
        if slot.pieces > 0 {
            return None;
        }
        let is_here = slot.buf()?.reclaim();
        (slot.header.reclaim() && is_here).then_some(slot)
    }

    /// A free slot in which a piece of so many bytes is put together.
    pub(crate) fn begin_piece(&mut self, queue: u32, holder: LinkId, length: u32) -> Option<u32> {
        if length as usize > self.chunk_bytes {
            return None;
        }
        let slot = self.take_free(queue, Some(holder))?;
        let entry = &mut self.slots[slot as usize];
        if !entry.begin_piece(length as usize) {
            self.put_free(slot);
            return None;
        }
        entry.pieces = 1;
        Some(slot)
    }

    /// Copies a part of a piece to where that is put together.
    pub(crate) fn write(&mut self, slot: u32, at: u32, bytes: &[u8]) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.write(at as usize, bytes);
        }
    }

    /// Hands a kept piece out.
    #[inline]
    pub(crate) fn lend_out(&self, piece: &ChunkRef, channel: ChannelId) -> Option<Chunk> {
        let slot = self.slots.get(piece.buf.0 as usize)?;
        debug_assert!(slot.pieces > 0, "it is kept");
        Some(Chunk::new(Arc::clone(&slot.loan), piece, channel))
    }

    /// Takes a piece back that came by the fast way: its slot and channel. None for one of another
    /// endpoint, which then finds its own way.
    #[inline]
    pub(crate) fn take_back(&self, chunk: Chunk) -> Option<Returned> {
        chunk.into_returned(&self.returns)
    }

    /// Whether pieces that were dropped somewhere wait to be taken back.
    pub(crate) fn has_returned(&self) -> bool {
        !self.returns.is_empty()
    }

    /// Takes one piece back that was dropped somewhere.
    pub(crate) fn pop_returned(&self) -> Option<Returned> {
        self.returns.pop()
    }

    /// A piece of a slot is not out any more; true when it was the last.
    #[inline]
    pub(crate) fn let_go(&mut self, slot: u32) -> bool {
        let Some(slot) = self.slots.get_mut(slot as usize) else { return false };
        debug_assert!(slot.pieces > 0, "each piece comes back once");
        slot.pieces = slot.pieces.saturating_sub(1);
        slot.pieces == 0
    }

    /// When [`shrink`](Self::shrink) has something to do.
    pub(crate) fn shrink_due(&self, now: Time) -> Time {
        self.free.due(now)
    }

    /// Gives memory back that has not been needed for a while. Not for a device that pins it.
    #[cold]
    pub(crate) fn shrink(&mut self, now: Time) {
        for &slot in self.free.shrink(now) {
            let held = self.slots.get_mut(slot as usize).and_then(Slot::buf);
            if let Some(buf) = held.and_then(|held| held.buf_mut()) {
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
        let is_posted = |slot: &&Slot| slot.loan.buf.is_lent();
        let posted = self.slots.iter().filter(is_posted).count();
        (self.made(), self.free.len(), posted)
    }
}
