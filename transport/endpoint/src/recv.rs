//! Receive buffers: a header slot and a payload buffer each, by slot number.

use crate::event::LinkId;
use crate::held::Held;
use crate::message::{Chunk, Returned, Returns};
use crate::wr_id::WrId;
use std::sync::Arc;
use towpath_memory::{Buf, Pool, Region};
use towpath_proto::limits::HEADER_BYTES;
use towpath_proto::{ChannelId, ChunkRef};
use towpath_verbs::{Access, Device, RecvWr, SgList};

/// Where a slot is posted, or whose chunk it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) link: LinkId,
    pub(crate) path: u8,
    pub(crate) channel: ChannelId,
}

struct Slot {
    header: Held,
    payload: Held,
    /// Here while the payload is not with the application, so that lending a chunk out and
    /// taking it back counts no references.
    returns: Option<Arc<Returns>>,
    wr: RecvWr,
    home: Option<Home>,
}

/// All receive buffers of an endpoint.
pub(crate) struct RecvTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    slots_max: usize,
    chunk_bytes: usize,
    returns: Arc<Returns>,
}

impl RecvTable {
    pub(crate) fn new(slots_max: usize, chunk_bytes_max: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            slots_max,
            chunk_bytes: chunk_bytes_max as usize,
            returns: Returns::new(slots_max),
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
        if self.slots.len() + missing > self.slots_max {
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

    fn add(&mut self, header: Buf, header_lkey: u32, payload: Buf, payload_lkey: u32) {
        let number = self.slots.len() as u32;
        let mut slot = Slot {
            header: Held::new(header),
            payload: Held::new(payload),
            returns: Some(Arc::clone(&self.returns)),
            wr: RecvWr::default(),
            home: None,
        };
        slot.header.lend();
        slot.payload.lend();
        slot.wr = RecvWr {
            wr_id: WrId::DataRecv { slot: number }.pack(),
            sg_list: SgList::two(
                slot.header.sge(header_lkey, HEADER_BYTES),
                slot.payload.sge(payload_lkey, self.chunk_bytes),
            ),
        };
        // Not posted yet: the entries were only asked for their addresses.
        slot.header.reclaim();
        slot.payload.reclaim();
        self.slots.push(slot);
        self.free.push(number);
    }

    /// A free slot, for `home`.
    pub(crate) fn take_free(&mut self, home: Option<Home>) -> Option<u32> {
        let slot = self.free.pop()?;
        self.slots[slot as usize].home = home;
        Some(slot)
    }

    pub(crate) fn put_free(&mut self, slot: u32) {
        if let Some(entry) = self.slots.get_mut(slot as usize) {
            entry.home = None;
            self.free.push(slot);
        }
    }

    /// The work request of a slot that is at home; from here on the device has its buffers.
    pub(crate) fn lend(&mut self, slot: u32) -> Option<RecvWr> {
        let slot = self.slots.get_mut(slot as usize)?;
        (slot.header.lend() && slot.payload.lend()).then_some(slot.wr)
    }

    /// A completion was polled: the buffers are here again. False for one that was not posted.
    pub(crate) fn reclaim(&mut self, slot: u32) -> bool {
        self.slots
            .get_mut(slot as usize)
            .is_some_and(|slot| slot.header.reclaim() && slot.payload.reclaim())
    }

    pub(crate) fn home(&self, slot: u32) -> Option<Home> {
        self.slots.get(slot as usize)?.home
    }

    pub(crate) fn set_home(&mut self, slot: u32, home: Home) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.home = Some(home);
        }
    }

    /// The header and the payload of a completion of `byte_len` bytes. None when it is too short.
    pub(crate) fn received(
        &mut self,
        slot: u32,
        byte_len: u32,
    ) -> Option<(&[u8; HEADER_BYTES], &[u8])> {
        let slot = self.slots.get_mut(slot as usize)?;
        let len = (byte_len as usize).checked_sub(HEADER_BYTES)?;
        slot.payload.buf_mut()?.set_len(len).ok()?;
        Some((slot.header.buf()?.first_chunk()?, slot.payload.buf()?))
    }

    /// Hands a kept chunk out.
    pub(crate) fn lend_out(&mut self, chunk: &ChunkRef, channel: ChannelId) -> Option<Chunk> {
        let slot = self.slots.get_mut(chunk.buf.0 as usize)?;
        let mut buf = slot.payload.take()?;
        let fits = buf.set_len(chunk.length as usize);
        debug_assert!(fits.is_ok(), "a chunk fits its buffer");
        if let Some(home) = &mut slot.home {
            home.channel = channel;
        }
        let returns = slot.returns.take().unwrap_or_else(|| Arc::clone(&self.returns));
        Some(Chunk::new(buf, returns, chunk.buf.0, chunk.offset))
    }

    /// Takes a chunk back that came by the fast way; says which slot is home again. None for
    /// one of another endpoint, which then finds its own way.
    pub(crate) fn take_back(&mut self, chunk: Chunk) -> Option<u32> {
        let (number, buf, returns) = chunk.into_loan()?;
        if !Arc::ptr_eq(&returns, &self.returns) {
            drop(Chunk::new(buf, returns, number, 0));
            return None;
        }
        let slot = self.slots.get_mut(number as usize)?;
        let put = slot.payload.put(buf);
        debug_assert!(put.is_ok(), "the slot's buffer was out");
        slot.returns = Some(returns);
        Some(number)
    }

    /// Takes one chunk back that was dropped somewhere.
    pub(crate) fn pop_returned(&mut self) -> Option<u32> {
        let Returned { slot: number, buf } = self.returns.pop()?;
        let slot = self.slots.get_mut(number as usize)?;
        let put = slot.payload.put(buf);
        debug_assert!(put.is_ok(), "the slot's buffer was out");
        slot.returns = Some(Arc::clone(&self.returns));
        Some(number)
    }

    /// How many slots there are, are free, are posted; the rest is held by links or out.
    pub(crate) fn census(&self) -> (usize, usize, usize) {
        let posted = self.slots.iter().filter(|slot| slot.payload.is_lent()).count();
        (self.slots.len(), self.free.len(), posted)
    }
}
