//! The registered memory of a queue pair: slots to receive in, and slots to send from.

use std::ops::Range;
use towpath_memory::{MemoryError, Region, SharedMemory};
use towpath_verbs::{Access, Device, MrKeys, PdNum, QpType, RecvWr, SgList, Sge, VerbError};

/// Bytes in front of each received datagram: its routing header, as verbs have it.
const GRH_BYTES: u32 = 40;

/// Slots begin at multiples of this: a line of cache each.
const ALIGN: usize = 64;

/// Why there is no memory for messages.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum SlotsError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Verb(#[from] VerbError),
}

/// As many slots to receive in as to send from, each for one message. Peers do not reach them.
#[derive(Debug)]
pub(crate) struct Slots {
    memory: SharedMemory,
    keys: MrKeys,
    /// Bytes in front of what is received.
    head: usize,
    recv_bytes: usize,
    recv_stride: usize,
    send_at: usize,
    send_stride: usize,
}

impl Slots {
    /// For messages of up to `recv_max` bytes in, and of up to `send_max` out.
    pub(crate) fn new<D: Device<Memory = Region>>(
        device: &mut D,
        (count, qp_type): (u32, QpType),
        recv_max: u32,
        send_max: u32,
    ) -> Result<Self, SlotsError> {
        let head = if qp_type == QpType::Ud { GRH_BYTES as usize } else { 0 };
        let recv_bytes = head + recv_max as usize;
        let recv_stride = recv_bytes.next_multiple_of(ALIGN);
        let send_stride = (send_max as usize).next_multiple_of(ALIGN);
        let send_at = recv_stride * count as usize;
        let memory = SharedMemory::new(send_at + send_stride * count as usize)?;
        let keys = device.reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::LOCAL)?;
        Ok(Self { memory, keys, head, recv_bytes, recv_stride, send_at, send_stride })
    }

    /// Gives it up, when the queue pair is gone.
    pub(crate) fn free<D: Device<Memory = Region>>(self, device: &mut D) {
        // It was registered there, or the device is gone with all that it had.
        let _ = device.dereg_mr(self.keys.lkey);
    }

    fn entry(&self, at: usize, length: usize) -> SgList {
        let addr = self.memory.addr() + at as u64;
        // A message has fewer than 4 GiB.
        SgList::one(Sge { addr, length: length as u32, lkey: self.keys.lkey })
    }

    /// A receive in that slot.
    pub(crate) fn recv(&self, wr_id: u64, slot: u32) -> RecvWr {
        let sg_list = self.entry(self.recv_stride * slot as usize, self.recv_bytes);
        RecvWr { wr_id, sg_list }
    }

    /// Appends the message that was received in that slot, of which the device said `byte_len`;
    /// where in `out` it lies.
    pub(crate) fn take(&self, slot: u32, byte_len: u32, out: &mut Vec<u8>) -> Range<usize> {
        let begin = out.len();
        let len = (byte_len as usize).min(self.recv_bytes).saturating_sub(self.head);
        out.resize(begin + len, 0);
        if self
            .memory
            .read(self.recv_stride * slot as usize + self.head, &mut out[begin..])
            .is_err()
        {
            // No slot lies elsewhere.
            out.truncate(begin);
        }
        begin..out.len()
    }

    /// Puts a message into that slot, which is free and long enough; none where it is not.
    pub(crate) fn put(&self, slot: u32, message: &[u8]) -> Option<SgList> {
        let at = self.send_at + self.send_stride * slot as usize;
        if message.len() > self.send_stride || self.memory.write(at, message).is_err() {
            return None;
        }
        Some(self.entry(at, message.len()))
    }
}
