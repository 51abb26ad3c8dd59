//! The map of an old store: which page and checksum each slice of each chunk has.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::store::damage::LostRecords;
use crate::store::error::ApplyError;
use crate::store::limits::CHUNK_BYTES_MAX;
use crate::store::place::{LOST_PAGE, SliceRef};
use crate::store::record::{Body, Record, WriteBody};
use crate::store::request::NewChunk;
use crate::store::slice::ChunkId;

/// Slices in one block of the map: a sparse chunk pays for 256 KiB around each byte it has.
const BLOCK_SLICES: u32 = 64;

type Block = Box<[SliceRef; BLOCK_SLICES as usize]>;

/// One chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) byte_len: u64,
    pub(crate) limit_bytes: u64,
    /// Number of the record that changed it last.
    pub(crate) version: u64,
    /// A change of it may be lost: what the map says of it may be old, or too short.
    pub(crate) suspect: bool,
    /// What is to be put into it is not all there.
    pub(crate) unfinished: bool,
    /// Its slices are to be kept in memory as well.
    pub(crate) resident: bool,
    blocks: BTreeMap<u32, Block>,
}

impl Chunk {
    pub(crate) fn new(limit_bytes: u64, version: u64) -> Self {
        Self { limit_bytes, version, ..Self::default() }
    }

    /// Sets slices from `first` on; gives the pages they had to `freed`.
    pub(crate) fn set(
        &mut self,
        first: u64,
        slices: impl Iterator<Item = SliceRef>,
        freed: &mut impl FnMut(u32),
    ) -> u64 {
        let mut fresh = 0;
        let mut index = first as u32;
        let mut slices = slices.peekable();
        while slices.peek().is_some() {
            let block = self.blocks.entry(index / BLOCK_SLICES).or_default_block();
            let from = (index % BLOCK_SLICES) as usize;
            for slot in &mut block[from..] {
                let Some(slice) = slices.next() else { break };
                let old = std::mem::replace(slot, slice);
                if old.is_hole() {
                    fresh += 1;
                } else if old.page != LOST_PAGE {
                    freed(old.page);
                }
                index += 1;
            }
        }
        fresh
    }

    /// The slices that were written, from index `from` on.
    pub(crate) fn slices_from(&self, from: u64) -> impl Iterator<Item = (u64, SliceRef)> {
        self.blocks.range(from as u32 / BLOCK_SLICES..).flat_map(move |(block, slices)| {
            let base = u64::from(*block) * u64::from(BLOCK_SLICES);
            slices
                .iter()
                .enumerate()
                .map(move |(at, slice)| (base + at as u64, *slice))
                .filter(move |(index, slice)| *index >= from && !slice.is_hole())
        })
    }
}

trait OrDefaultBlock<'a> {
    fn or_default_block(self) -> &'a mut Block;
}

impl<'a> OrDefaultBlock<'a> for Entry<'a, u32, Block> {
    fn or_default_block(self) -> &'a mut Block {
        self.or_insert_with(|| Box::new([SliceRef::default(); BLOCK_SLICES as usize]))
    }
}

/// All chunks, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkMap {
    pub(crate) chunks: BTreeMap<ChunkId, Chunk>,
    /// Slices that have a page.
    pub(crate) live_slices: u64,
    /// Records were lost on the way here.
    lossy: bool,
}

impl ChunkMap {
    /// Does what a record says; gives each page that it left to `freed`.
    pub(crate) fn apply(
        &mut self,
        record: &Record<'_>,
        mut freed: impl FnMut(u32),
    ) -> Result<(), ApplyError> {
        let id = record.chunk;
        let version = record.frame.sequence;
        match &record.body {
            &Body::Create { limit_bytes, kind } => match self.chunks.entry(id) {
                Entry::Occupied(_) => return Err(ApplyError::ChunkExists(id)),
                Entry::Vacant(vacant) => {
                    let NewChunk { unfinished, resident, .. } = kind;
                    let fresh = Chunk::new(limit_bytes, version);
                    vacant.insert(Chunk { unfinished, resident, ..fresh });
                }
            },
            Body::Finish => {
                let chunk = self.chunks.get_mut(&id).ok_or(ApplyError::NoSuchChunk(id))?;
                (chunk.unfinished, chunk.version) = (false, version);
            }
            Body::Write(write) => {
                let chunk = self.chunks.get_mut(&id).ok_or(ApplyError::NoSuchChunk(id))?;
                self.live_slices += write_slices(chunk, id, write, version, &mut freed)?;
            }
            Body::Delete => {
                let chunk = self.chunks.remove(&id).ok_or(ApplyError::NoSuchChunk(id))?;
                for (_, slice) in chunk.slices_from(0) {
                    self.live_slices -= 1;
                    if slice.page != LOST_PAGE {
                        freed(slice.page);
                    }
                }
            }
            // No record of this format does.
            Body::Chain { .. } | Body::Clear(_) => return Err(ApplyError::NoSuchChunk(id)),
            Body::Seal | Body::Void => {}
        }
        Ok(())
    }

    /// Whether records were lost on the way here.
    pub(crate) fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// Takes in that records are lost. The chunks that they changed are suspect, and where it is
    /// not known which ones those are, all are.
    pub(crate) fn lose(&mut self, lost: &LostRecords) {
        if lost.unnamed() > 0 || lost.count() == 0 {
            self.suspect_all();
        }
        self.lossy = true;
        for (sequence, id) in &lost.named {
            self.suspect(*id, *sequence);
        }
    }

    /// Any chunk may have changed since.
    pub(crate) fn suspect_all(&mut self) {
        self.lossy = true;
        self.chunks.values_mut().for_each(|chunk| chunk.suspect = true);
    }

    fn suspect(&mut self, id: ChunkId, version: u64) {
        let chunk = self.chunks.entry(id).or_insert_with(|| Chunk::new(CHUNK_BYTES_MAX, version));
        chunk.suspect = true;
    }

    /// Does what a record says that may rest on records which are lost.
    pub(crate) fn apply_after_loss(&mut self, record: &Record<'_>) {
        let id = record.chunk;
        match self.apply(record, |_| ()) {
            Ok(()) => return,
            // What deleted the old one is lost.
            Err(ApplyError::ChunkExists(_)) => self.remove(id),
            Err(ApplyError::NoSuchChunk(_)) if matches!(record.body, Body::Delete) => return,
            // What made it, and perhaps wrote to it, is lost.
            Err(ApplyError::NoSuchChunk(_)) => self.suspect(id, record.frame.sequence),
            Err(ApplyError::LimitExceeded(_) | ApplyError::NoBlock(_)) => {
                self.remove(id);
                self.suspect(id, record.frame.sequence);
            }
        }
        let applied = self.apply(record, |_| ());
        debug_assert!(applied.is_ok(), "nothing is in its way");
    }

    fn remove(&mut self, id: ChunkId) {
        if let Some(chunk) = self.chunks.remove(&id) {
            self.live_slices -= chunk.slices_from(0).count() as u64;
        }
    }

    /// The pages of all slices that have one.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u32> {
        let slices = self.chunks.values().flat_map(|c| c.slices_from(0));
        slices.map(|(_, slice)| slice.page).filter(|page| *page != LOST_PAGE)
    }
}

fn write_slices(
    chunk: &mut Chunk,
    id: ChunkId,
    write: &WriteBody<'_>,
    version: u64,
    freed: &mut impl FnMut(u32),
) -> Result<u64, ApplyError> {
    let span = write.span();
    if span.end() > chunk.limit_bytes {
        return Err(ApplyError::LimitExceeded(id));
    }
    chunk.version = version;
    chunk.byte_len = chunk.byte_len.max(span.end());
    let slices = write.slices().map(|(page, crc)| SliceRef { page, crc });
    Ok(chunk.set(span.first(), slices, freed))
}
