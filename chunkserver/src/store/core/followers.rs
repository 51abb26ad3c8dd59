//! Those that follow what commits change: memory in which the slices of resident chunks are kept as
//! well, and who follows which chunks there are.

use super::map::{Chunk, Map};
use super::read::stored_crc;
use crate::store::place::slices_in;
use crate::store::record::{Body, Record};
use crate::store::request::NewChunk;
use crate::store::residence::{Residence, SlicePlace, Slots};
use crate::store::slice::{ChunkId, SLICE_BYTES, hole_crc};

/// Is told of chunks that come and go, in the order in which they do, before whoever asked for it
/// has the answer.
pub trait Watch {
    /// The chunk is there, durably.
    fn created(&mut self, chunk: ChunkId);
    /// The chunk is there no more.
    fn deleted(&mut self, chunk: ChunkId);
}

/// Who follows the commits of a store.
#[derive(Default)]
pub(super) struct Followers {
    residence: Option<Box<dyn Residence>>,
    watch: Option<Box<dyn Watch>>,
}

impl Followers {
    pub(super) fn keep_in(&mut self, residence: Box<dyn Residence>) {
        self.residence = Some(residence);
    }

    pub(super) fn watch(&mut self, watch: Box<dyn Watch>) {
        self.watch = Some(watch);
    }

    /// Whether there is memory for resident chunks.
    pub(super) fn has_residence(&self) -> bool {
        self.residence.is_some()
    }

    /// Whether the slices of a chunk are in memory.
    pub(super) fn holds(&self, chunk: ChunkId) -> bool {
        self.residence.as_ref().is_some_and(|residence| residence.holds(chunk))
    }

    /// Slices that still fit in memory.
    pub(super) fn slots_free(&self) -> u64 {
        self.residence.as_ref().map_or(0, |residence| residence.slots_free())
    }

    /// Where the slices of a chunk lie from one on, and whether there are more; none of one that is
    /// not in memory.
    pub(super) fn runs(
        &self,
        chunk: ChunkId,
        first_slice: u64,
        runs_max: usize,
    ) -> Option<(Vec<Slots>, bool)> {
        let residence = self.residence.as_ref().filter(|residence| residence.holds(chunk))?;
        Some(residence.runs(chunk, first_slice, runs_max))
    }

    /// Bytes of slices in memory, and how many there may be.
    pub(super) fn resident_bytes(&self) -> (u64, u64) {
        let Some(residence) = &self.residence else { return (0, 0) };
        let (slots, free) = (residence.slots(), residence.slots_free());
        (slots.saturating_sub(free) * SLICE_BYTES as u64, slots * SLICE_BYTES as u64)
    }

    /// A record was applied to the map, which wrote these slices.
    pub(super) fn follow<'a>(
        &mut self,
        record: &Record<'_>,
        map: &Map,
        slices: impl Iterator<Item = (u64, &'a [u8])>,
    ) {
        let id = record.chunk;
        if let Some(residence) = &mut self.residence {
            follow_in(&mut **residence, record, map.chunks.get(&id), slices);
        }
        let Some(watch) = &mut self.watch else { return };
        match record.body {
            Body::Create { .. } => watch.created(id),
            Body::Delete => watch.deleted(id),
            _ => {}
        }
    }
}

/// Does to memory what a record did.
fn follow_in<'a>(
    residence: &mut dyn Residence,
    record: &Record<'_>,
    chunk: Option<&Chunk>,
    slices: impl Iterator<Item = (u64, &'a [u8])>,
) {
    let (id, version) = (record.chunk, record.frame.sequence);
    match (&record.body, chunk) {
        (Body::Create { kind: NewChunk { resident: true, .. }, .. }, _) => residence.place(id),
        (Body::Delete, _) => residence.remove(id),
        (Body::Write(_) | Body::Clear(_), Some(chunk)) if residence.holds(id) => {
            let count = slices_in(chunk.head.byte_len);
            residence.shrink(id, count);
            if !residence.grow(id, count, version) {
                // Staging has seen to it. What is not in memory is served from the disk.
                tracing::error!(chunk = %id, "a resident chunk has lost its place in memory");
                return residence.remove(id);
            }
            if let Body::Clear(clear) = &record.body {
                for slice in clear.first..count.min(clear.first + clear.count) {
                    let zeros = (hole_crc(id, slice), &[0; SLICE_BYTES][..]);
                    residence.put(SlicePlace { chunk: id, slice }, version, Some(zeros));
                }
            }
            for (slice, bytes) in slices {
                let crc = stored_crc(id, slice, chunk.slice(slice));
                residence.put(SlicePlace { chunk: id, slice }, version, Some((crc, bytes)));
            }
        }
        _ => {}
    }
}
