//! How a slot is rewritten while others read it (docs/storage-protocol.md section 8).

use towpath_fastpath::resident::{MARK_AT, SLOT_BYTES, TRAILER_BYTES, Trailer, VERSION_MAX};
use towpath_fastpath::slice::{SLICE_BYTES, hole_crc};
use towpath_transport::{MemoryError, SharedMemory};

use crate::store::SlicePlace;

/// Slots in memory that clients read meanwhile.
#[derive(Clone, Debug)]
pub(super) struct SlotMemory {
    memory: SharedMemory,
}

impl SlotMemory {
    /// Slots that are all free.
    pub(super) fn new(slots: u32) -> Result<Self, MemoryError> {
        Ok(Self { memory: SharedMemory::new(slots as usize * SLOT_BYTES)? })
    }

    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Makes a slot free: nobody takes what it held for a slice any more.
    pub(super) fn free(&self, slot: u32) {
        let at = at(slot);
        // The mark first: from then on the trailer is none.
        self.put(at + MARK_AT, &[0; 8]);
        self.put(at + SLICE_BYTES, &[0; TRAILER_BYTES]);
    }

    /// Puts a slice, or that only the server has it.
    pub(super) fn write(
        &self,
        slot: u32,
        SlicePlace { chunk, slice }: SlicePlace,
        version: u64,
        content: Content<'_>,
    ) {
        let at = at(slot);
        let version = version.clamp(1, VERSION_MAX);
        let (slice_crc, is_absent) = match content {
            Content::Zeros => (hole_crc(chunk, slice), false),
            Content::Bytes(crc, _) => (crc, false),
            Content::Absent => (0, true),
        };
        self.put(at + MARK_AT, &Trailer::rewritten_mark(version));
        match content {
            Content::Zeros => self.put(at, &[0; SLICE_BYTES]),
            Content::Bytes(_, bytes) => self.put(at, bytes),
            Content::Absent => {}
        }
        let trailer = Trailer { chunk, slice, slice_crc, version, is_absent }.emit();
        let (rest, mark) = trailer.split_at(TRAILER_BYTES - 8);
        self.put(at + SLICE_BYTES, rest);
        self.put(at + MARK_AT, mark);
    }

    /// Each call publishes what was written before it: [`SharedMemory::write`] begins with a
    /// release fence, so that nobody sees a word of it and misses one of the call before.
    fn put(&self, at: usize, bytes: &[u8]) {
        // The arena names slots that it has, all of which lie in the memory.
        let put = self.memory.write(at, bytes);
        debug_assert!(put.is_ok(), "{put:?}");
    }
}

/// What a slot is to hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// A slice that was never written.
    Zeros,
    /// Checksum and bytes of a slice.
    Bytes(u32, &'a [u8]),
    /// The medium does not give the bytes.
    Absent,
}

fn at(slot: u32) -> usize {
    slot as usize * SLOT_BYTES
}
