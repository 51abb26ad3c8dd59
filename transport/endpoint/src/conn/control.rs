//! The control queue pair of a link: acks in and out, in small buffers of their own.

use crate::held::Held;
use crate::limits::{CONTROL_RECVS, CONTROL_SENDS, CONTROL_SLOT_BYTES};
use crate::wr_id::{NO_QP, WrId};
use towpath_base::Time;
use towpath_memory::{MemoryError, Pool};
use towpath_verbs::{Device, QpNum, RecvWr, SendOp, SendWr, SgList};

/// A control queue pair and its buffers: receives first, sends behind them.
pub(crate) struct Control {
    pub(crate) qp_num: QpNum,
    slots: Vec<Held>,
    lkey: u32,
    free_sends: Vec<u32>,
    /// When the ack in each send slot was handed to the device.
    handed_at: [Time; CONTROL_SENDS],
    recvs_posted: usize,
    /// Receives that came home, to be posted again.
    pub(crate) repost: Vec<RecvWr>,
}

impl Control {
    /// The buffers and their pool, to be registered.
    pub(crate) fn new() -> Result<(Self, Pool), MemoryError> {
        let count = CONTROL_RECVS + CONTROL_SENDS;
        let pool = Pool::with_count(CONTROL_SLOT_BYTES, count)?;
        let slots = std::iter::from_fn(|| pool.take().map(Held::new)).take(count).collect();
        let free_sends = (CONTROL_RECVS as u32..count as u32).collect();
        let qp_num = NO_QP;
        let handed_at = [Time::ZERO; CONTROL_SENDS];
        let (recvs_posted, repost) = (0, Vec::new());
        Ok((Self { qp_num, slots, lkey: 0, free_sends, handed_at, recvs_posted, repost }, pool))
    }

    pub(crate) fn set_lkey(&mut self, lkey: u32) {
        self.lkey = lkey;
    }

    /// Queues all receive slots for posting.
    pub(crate) fn fill(&mut self, link: u16) {
        (0..CONTROL_RECVS as u32).for_each(|slot| self.lend_recv(link, slot));
    }

    /// Queues a receive slot for posting.
    pub(crate) fn lend_recv(&mut self, link: u16, slot: u32) {
        let Some(held) = self.slots.get_mut(slot as usize) else { return };
        if !held.lend() {
            return;
        }
        self.recvs_posted += 1;
        let sg_list = SgList::one(held.sge(self.lkey, CONTROL_SLOT_BYTES));
        self.repost.push(RecvWr { wr_id: WrId::ControlRecv { link, slot }.pack(), sg_list });
    }

    /// Posts the receives that came home; returns how many calls the device refused.
    #[inline(never)]
    pub(crate) fn post<D: Device>(&mut self, device: &mut D) -> u64 {
        let posted = device.post_recv(self.qp_num, &self.repost);
        let refused = u64::from(posted.is_err());
        let taken = posted.err().map_or(self.repost.len(), |bad| bad.index);
        self.unpost(taken);
        refused
    }

    /// Takes the receives home that wait to be posted, from the one at `from` on.
    pub(crate) fn unpost(&mut self, from: usize) {
        let mut repost = std::mem::take(&mut self.repost);
        for wr in &repost[from..] {
            if let Some(WrId::ControlRecv { slot, .. }) = WrId::unpack(wr.wr_id) {
                self.received(slot, 0);
            }
        }
        repost.clear();
        self.repost = repost;
    }

    /// What a completed receive holds.
    pub(crate) fn received(&mut self, slot: u32, byte_len: u32) -> Option<&mut [u8]> {
        let held = self.slots.get_mut(slot as usize)?;
        if !held.reclaim() {
            return None;
        }
        self.recvs_posted -= 1;
        let buf = held.buf_mut()?;
        buf.set_len(byte_len as usize).ok()?;
        Some(buf)
    }

    pub(crate) fn has_send_slot(&self) -> bool {
        !self.free_sends.is_empty()
    }

    /// Lets `write` fill a send slot; the slot and its work request when it wrote something, to be
    /// handed to the device `now`.
    pub(crate) fn send(
        &mut self,
        link: u16,
        now: Time,
        write: impl FnOnce(&mut [u8; CONTROL_SLOT_BYTES]) -> Option<usize>,
    ) -> Option<(u32, SendWr)> {
        let &slot = self.free_sends.last()?;
        let held = self.slots.get_mut(slot as usize)?;
        let buf = held.buf_mut()?;
        buf.set_len(CONTROL_SLOT_BYTES).ok()?;
        let len = write(buf.first_chunk_mut()?)?;
        held.lend();
        self.free_sends.pop();
        self.handed_at[slot as usize % CONTROL_SENDS] = now;
        let sg_list = SgList::one(held.sge(self.lkey, len));
        let wr_id = WrId::ControlSend { link, slot }.pack();
        Some((slot, SendWr::new(wr_id, SendOp::Send, sg_list)))
    }

    /// Takes back the ack of a send slot that was not posted.
    pub(crate) fn take_back(&mut self, slot: u32, len: usize) -> Option<&[u8]> {
        self.sent(slot);
        self.slots.get(slot as usize)?.buf()?.get(..len)
    }

    /// A send completed, or was refused: when it was handed to the device.
    pub(crate) fn sent(&mut self, slot: u32) -> Option<Time> {
        let held = self.slots.get_mut(slot as usize)?;
        if !held.reclaim() {
            return None;
        }
        self.free_sends.push(slot);
        Some(self.handed_at[slot as usize % CONTROL_SENDS])
    }

    /// Whether the device holds none of its buffers.
    pub(crate) fn is_drained(&self) -> bool {
        self.recvs_posted == 0 && self.free_sends.len() == CONTROL_SENDS
    }
}
