//! The map: which page and checksum each slice of each chunk has, in blocks that have a place on
//! the disk each.

mod steps;

use std::collections::{BTreeMap, BTreeSet};

use super::map_page::{BLOCK_SLICES, BLOCKS, BlockImage, BlockView, ChunkHead, Slices, encode};
use super::page::{PageBytes, PageHead};
use crate::store::clear::{ClearBody, SlicePut};
use crate::store::error::ApplyError;
use crate::store::limits::CHUNK_BYTES_MAX;
use crate::store::place::{LOST_PAGE, SliceRef};
use crate::store::record::{Body, Record, WriteBody};
use crate::store::request::NewChunk;
use crate::store::results::ChunkStat;
use crate::store::slice::ChunkId;

/// One block of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    /// Its place in the pages of the map.
    slot: u32,
    /// The chunk when the block was changed last.
    head: ChunkHead,
    slices: Box<Slices>,
}

/// One chunk. It has at least one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) head: ChunkHead,
    blocks: BTreeMap<u32, Block>,
    /// Clears that have not visited all of their blocks, the oldest first.
    clears: Vec<Clearing>,
}

impl Chunk {
    pub(crate) fn slice(&self, index: u64) -> SliceRef {
        let (block, at) = split(index);
        let found = self.blocks.get(&block).filter(|block| !self.is_cleared(block, index));
        found.map_or_else(SliceRef::default, |block| block.slices[at])
    }

    /// What is known of it beside its slices.
    pub(crate) fn stat(&self, chunk: ChunkId) -> ChunkStat {
        let ChunkHead {
            byte_len, limit_bytes, version, suspect, unfinished, resident, chain, ..
        } = self.head;
        ChunkStat { chunk, byte_len, limit_bytes, version, suspect, unfinished, resident, chain }
    }

    /// Where `count` slices from one on lie.
    pub(crate) fn slices(&self, first: u64, count: u64) -> impl Iterator<Item = SliceRef> {
        let mut last = None;
        (first..first + count).map(move |index| {
            let (number, at) = split(index);
            let block = match last {
                Some((known, block)) if known == number => block,
                _ => self.blocks.get(&number),
            };
            last = Some((number, block));
            let block = block.filter(|block| !self.is_cleared(block, index));
            block.map_or_else(SliceRef::default, |block| block.slices[at])
        })
    }

    /// A block, if it is the one in that slot.
    fn block_in(&self, index: u32, slot: usize) -> Option<&Block> {
        self.blocks.get(&index).filter(|block| block.slot as usize == slot)
    }

    /// The slices that were written, from index `from` on.
    pub(crate) fn slices_from(&self, from: u64) -> impl Iterator<Item = (u64, SliceRef)> {
        self.blocks.range(split(from).0..).flat_map(move |(index, block)| {
            let base = u64::from(*index) * BLOCK_SLICES as u64;
            let slices = block.slices.iter().enumerate();
            slices.map(move |(at, slice)| (base + at as u64, *slice)).filter(
                move |(index, slice)| {
                    *index >= from && !slice.is_hole() && !self.is_cleared(block, *index)
                },
            )
        })
    }

    /// Blocks that these slices need and the chunk has not, or may lose to a clear.
    pub(crate) fn blocks_missing(&self, first: u64, count: u64) -> u64 {
        if !self.clears.is_empty() {
            return blocks_of(first, count);
        }
        let blocks = split(first).0..=split(first + count - 1).0;
        let there = self.blocks.range(blocks.clone()).count() as u64;
        u64::from(blocks.end() - blocks.start()) + 1 - there
    }
}

/// Block and place there of a slice.
fn split(slice: u64) -> (u32, usize) {
    ((slice / BLOCK_SLICES as u64) as u32, (slice % BLOCK_SLICES as u64) as usize)
}

/// Blocks that slices from `first` on touch.
pub(crate) fn blocks_of(first: u64, count: u64) -> u64 {
    u64::from(split(first + count - 1).0 - split(first).0) + 1
}

/// A clear that has not visited all of its blocks: slices of its range are holes in each block that
/// was changed last before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clearing {
    /// Its slices.
    first: u64,
    end: u64,
    /// The number of its record.
    version: u64,
    /// The block that it visits next.
    next: u32,
}

/// Whose block is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    chunk: ChunkId,
    index: u32,
}

/// Pages of the map that have changed since the last checkpoint, and those of the one under way.
#[derive(Debug, Default)]
struct Changed {
    /// Since the last freeze.
    dirty: BTreeSet<u32>,
    /// Changed before the last freeze, not written yet, and not changed since.
    frozen: BTreeSet<u32>,
    /// As they were at the freeze; changed since, and not written yet.
    saved: BTreeMap<u32, Vec<Option<BlockImage>>>,
}

/// All chunks, in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Map {
    pub(crate) chunks: BTreeMap<ChunkId, Chunk>,
    /// Slices that have a page.
    pub(crate) live_slices: u64,
    /// By slot.
    owners: Vec<Option<Owner>>,
    free_slots: Vec<u32>,
    slots_max: u32,
    changed: Changed,
    /// Deleted chunks whose blocks are not all free yet, with the version of the delete.
    doomed: BTreeMap<(ChunkId, u64), Chunk>,
    /// Chunks with clears that have not visited all of their blocks.
    clearing: BTreeSet<ChunkId>,
    /// Pages that no slice has any more, until somebody takes them.
    left: Vec<u32>,
    /// A test wants one block a step, and none at once.
    #[cfg(test)]
    pub(crate) has_small_steps: bool,
    /// Records were lost on the way here.
    pub(crate) is_lossy: bool,
    /// What made a chunk may be among them.
    pub(crate) may_miss_chunks: bool,
}

impl Map {
    pub(crate) fn new(slots_max: u32) -> Self {
        Self { slots_max, ..Self::default() }
    }

    /// Blocks that are free.
    pub(crate) fn blocks_free(&self) -> u64 {
        u64::from(self.slots_max) - (self.owners.len() - self.free_slots.len()) as u64
    }

    /// From now on it has so many slots, those that are used at least.
    pub(crate) fn limit_slots(&mut self, slots_max: u32) {
        self.slots_max = slots_max.max(self.owners.len() as u32);
    }

    /// Pages that may hold a block.
    pub(crate) fn pages_used(&self) -> u32 {
        self.owners.len().div_ceil(BLOCKS) as u32
    }

    /// Takes in a block that a page holds in slot `slot`; false where two are the same. After the
    /// last one [`finish_load`](Self::finish_load) is called.
    pub(crate) fn load(&mut self, slot: u32, image: BlockImage) -> bool {
        if self.owners.len() <= slot as usize {
            self.owners.resize(slot as usize + 1, None);
        }
        let BlockImage { chunk, index, head, slices } = image;
        self.owners[slot as usize] = Some(Owner { chunk, index });
        self.live_slices += slices.iter().filter(|slice| !slice.is_hole()).count() as u64;
        let found = self.chunks.entry(chunk).or_default();
        if head.version >= found.head.version {
            found.head = head;
        }
        found.blocks.insert(index, Block { slot, head, slices }).is_none()
    }

    /// Completes what was loaded, from `pages_used` pages.
    pub(crate) fn finish_load(&mut self, pages_used: u32) {
        let slots = (pages_used as usize * BLOCKS).min(self.slots_max as usize);
        self.owners.resize(slots.max(self.owners.len()), None);
        let free = self.owners.iter().enumerate().filter(|(_, owner)| owner.is_none());
        // The lowest is given out first.
        self.free_slots = free.map(|(slot, _)| slot as u32).rev().collect();
    }

    /// A block of `page` is about to change.
    fn touch(&mut self, page: u32) {
        if self.changed.frozen.remove(&page) {
            let blocks = self.views(page).map(|view| view.map(image)).collect();
            self.changed.saved.insert(page, blocks);
        }
        self.changed.dirty.insert(page);
    }

    fn take_slot(&mut self, owner: Owner) -> Option<u32> {
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None if self.owners.len() < self.slots_max as usize => {
                self.owners.push(None);
                self.owners.len() as u32 - 1
            }
            None => return None,
        };
        self.touch(slot / BLOCKS as u32);
        self.owners[slot as usize] = Some(owner);
        Some(slot)
    }

    /// The block of a chunk, made where it is missing, to be changed.
    fn block(&mut self, id: ChunkId, index: u32) -> Result<&mut Block, ApplyError> {
        let known = self.chunks.get(&id).and_then(|chunk| chunk.blocks.get(&index));
        let (slot, is_new) = match known.map(|block| block.slot) {
            Some(slot) => (slot, false),
            None => {
                let owner = Owner { chunk: id, index };
                (self.take_slot(owner).ok_or(ApplyError::NoBlock(id))?, true)
            }
        };
        if !is_new {
            self.touch(slot / BLOCKS as u32);
        }
        let Self { chunks, live_slices, left, .. } = self;
        let chunk = chunks.get_mut(&id).ok_or(ApplyError::NoSuchChunk(id))?;
        let &mut Chunk { head, ref mut blocks, ref clears } = chunk;
        let block = blocks.entry(index).or_insert_with(|| {
            let slices = Box::new([SliceRef::default(); BLOCK_SLICES]);
            Block { slot, head, slices }
        });
        if !clears.is_empty() {
            *live_slices -= steps::clear_block(clears, index, block, left);
            block.head = head;
        }
        Ok(block)
    }

    /// Changes what is known of a chunk beside its slices.
    fn set_head(&mut self, id: ChunkId, head: ChunkHead) -> Result<(), ApplyError> {
        let chunk = self.chunks.get_mut(&id).ok_or(ApplyError::NoSuchChunk(id))?;
        chunk.head = head;
        let first = chunk.blocks.keys().next().copied().unwrap_or(0);
        self.block(id, first)?.head = head;
        Ok(())
    }

    /// Does what a record says, all of it; gives each page that it left to `freed`.
    pub(crate) fn apply(
        &mut self,
        record: &Record<'_>,
        freed: &mut impl FnMut(u32),
    ) -> Result<(), ApplyError> {
        self.begin(record, freed)?;
        while self.has_steps() {
            self.step(freed);
        }
        Ok(())
    }

    /// Does what a record says, as far as anybody can see. What is left to be done by
    /// [`step`](Self::step) is freeing blocks and pages.
    pub(crate) fn begin(
        &mut self,
        record: &Record<'_>,
        freed: &mut impl FnMut(u32),
    ) -> Result<(), ApplyError> {
        let done = self.begin_record(record);
        self.left.drain(..).for_each(freed);
        done
    }

    fn begin_record(&mut self, record: &Record<'_>) -> Result<(), ApplyError> {
        let (id, version, stamp) = (record.chunk, record.frame.sequence, record.stamp);
        match &record.body {
            &Body::Create { limit_bytes, kind: NewChunk { unfinished, resident, chain } } => {
                if self.chunks.contains_key(&id) {
                    return Err(ApplyError::ChunkExists(id));
                }
                let rest = ChunkHead { unfinished, resident, chain, ..ChunkHead::default() };
                self.make(id, ChunkHead { limit_bytes, version, stamp, ..rest })
            }
            Body::Finish => {
                let head = self.chunks.get(&id).ok_or(ApplyError::NoSuchChunk(id))?.head;
                self.set_head(id, ChunkHead { unfinished: false, version, stamp, ..head })
            }
            &Body::Chain { chain } => {
                let head = self.chunks.get(&id).ok_or(ApplyError::NoSuchChunk(id))?.head;
                self.set_head(id, ChunkHead { chain, version, stamp, ..head })
            }
            Body::Write(write) => self.apply_write(id, (version, stamp), write),
            Body::Clear(clear) => self.apply_clear(id, (version, stamp), clear),
            Body::Delete => self.begin_delete(id, version),
            Body::Seal | Body::Void { .. } => Ok(()),
        }
    }

    fn make(&mut self, id: ChunkId, head: ChunkHead) -> Result<(), ApplyError> {
        self.chunks.insert(id, Chunk { head, ..Chunk::default() });
        let made = self.block(id, 0).map(drop);
        if made.is_err() {
            self.chunks.remove(&id);
        }
        made
    }

    fn apply_write(
        &mut self,
        id: ChunkId,
        (version, stamp): (u64, u64),
        write: &WriteBody<'_>,
    ) -> Result<(), ApplyError> {
        let span = write.span();
        let chunk = self.chunks.get_mut(&id).ok_or(ApplyError::NoSuchChunk(id))?;
        if span.end() > chunk.head.limit_bytes {
            return Err(ApplyError::LimitExceeded(id));
        }
        let byte_len = chunk.head.byte_len.max(span.end());
        chunk.head = ChunkHead { byte_len, version, stamp, ..chunk.head };
        let head = chunk.head;
        let slices = write.slices().map(|(page, crc)| SliceRef { page, crc });
        self.put(id, head, span.first(), slices)
    }

    /// Puts slices in place of those of a chunk from `first` on, which becomes like that.
    fn put(
        &mut self,
        id: ChunkId,
        head: ChunkHead,
        first: u64,
        slices: impl Iterator<Item = SliceRef>,
    ) -> Result<(), ApplyError> {
        let mut slices = slices.peekable();
        let (mut slice, mut fresh) = (first, 0);
        while slices.peek().is_some() {
            let (index, from) = split(slice);
            let mut left = std::mem::take(&mut self.left);
            let block = self.block(id, index)?;
            block.head = head;
            for (place, new) in block.slices[from..].iter_mut().zip(&mut slices) {
                let old = std::mem::replace(place, new);
                if old.is_hole() {
                    fresh += 1;
                } else if old.page != LOST_PAGE {
                    left.push(old.page);
                }
                slice += 1;
            }
            left.append(&mut self.left);
            self.left = left;
        }
        self.live_slices += fresh;
        Ok(())
    }

    fn apply_clear(
        &mut self,
        id: ChunkId,
        (version, stamp): (u64, u64),
        clear: &ClearBody,
    ) -> Result<(), ApplyError> {
        let chunk = self.chunks.get_mut(&id).ok_or(ApplyError::NoSuchChunk(id))?;
        let byte_len = clear.length.of(chunk.head.byte_len);
        if byte_len > chunk.head.limit_bytes {
            return Err(ApplyError::LimitExceeded(id));
        }
        chunk.head = ChunkHead { byte_len, version, stamp, ..chunk.head };
        let head = chunk.head;
        self.begin_clear(id, version, clear);
        for SlicePut { slice, page, crc } in clear.puts() {
            self.put(id, head, slice, std::iter::once(SliceRef { page, crc }))?;
        }
        self.clear_some(id, self.at_once_blocks());
        self.set_head(id, head)
    }

    /// Takes a block of holes away, unless the chunk has no other one.
    fn remove_block(&mut self, id: ChunkId, index: u32) {
        let chunk = self.chunks.get(&id).filter(|chunk| chunk.blocks.len() > 1);
        let Some(slot) = chunk.and_then(|chunk| Some(chunk.blocks.get(&index)?.slot)) else {
            return;
        };
        self.touch(slot / BLOCKS as u32);
        self.owners[slot as usize] = None;
        self.free_slots.push(slot);
        self.chunks.get_mut(&id).and_then(|chunk| chunk.blocks.remove(&index));
    }

    /// Takes a chunk away of which a change is lost.
    fn remove(&mut self, id: ChunkId) {
        let _ = self.begin_delete(id, 0);
        while self.has_steps() {
            self.step(&mut |_| ());
        }
    }

    /// Any chunk may have changed since.
    pub(crate) fn suspect_all(&mut self) {
        self.is_lossy = true;
        self.may_miss_chunks = true;
        self.chunks.values_mut().for_each(|chunk| chunk.head.suspect = true);
    }

    /// A change of a chunk is lost.
    pub(crate) fn suspect(&mut self, id: ChunkId, version: u64) {
        self.is_lossy = true;
        let found = self.chunks.entry(id).or_default();
        if found.head.version == 0 {
            found.head = ChunkHead { limit_bytes: CHUNK_BYTES_MAX, version, ..found.head };
        }
        found.head.suspect = true;
    }

    /// Does what a record says that may rest on records which are lost; gives what keeps it from
    /// following from the map as it was.
    pub(crate) fn apply_after_loss(&mut self, record: &Record<'_>) -> Option<ApplyError> {
        let id = record.chunk;
        let odd = self.apply(record, &mut |_| ()).err()?;
        match odd {
            // What deleted the old one is lost.
            ApplyError::ChunkExists(_) => self.remove(id),
            ApplyError::NoSuchChunk(_) if matches!(record.body, Body::Delete) => return Some(odd),
            // What made it, and perhaps wrote to it, is lost.
            ApplyError::NoSuchChunk(_) => self.suspect(id, record.frame.sequence),
            ApplyError::LimitExceeded(_) | ApplyError::NoBlock(_) => {
                self.remove(id);
                self.suspect(id, record.frame.sequence);
            }
        }
        // Where there is still no block for it, the chunk is suspect and nothing of it served.
        let _ = self.apply(record, &mut |_| ());
        Some(odd)
    }

    /// Gives a slice another place.
    pub(crate) fn set(&mut self, id: ChunkId, slice: u64, to: SliceRef) {
        let (index, at) = split(slice);
        if let Ok(block) = self.block(id, index) {
            block.slices[at] = to;
        }
    }

    /// Takes what is there as all that there is, and has every page written anew. Chunks of which
    /// a change is lost stay suspect, unless the loss is accepted.
    pub(crate) fn accept(&mut self, accept_loss: bool) {
        (self.is_lossy, self.may_miss_chunks) = (false, false);
        for id in self.chunks.keys().copied().collect::<Vec<_>>() {
            let Some(chunk) = self.chunks.get_mut(&id) else { continue };
            if accept_loss && chunk.head.suspect {
                // That it was finished may be what is lost.
                (chunk.head.suspect, chunk.head.unfinished) = (false, false);
            }
            let head = chunk.head;
            let newest = |block: &&mut Block| block.head.version == head.version;
            chunk.blocks.values_mut().filter(newest).for_each(|block| block.head = head);
            // One of which nothing is left has no block yet; where there is none for it, it goes.
            if self.set_head(id, head).is_err() {
                self.remove(id);
            }
        }
        self.changed.dirty.extend(0..self.pages_used());
    }

    /// The chunks that are not finished, as far as that is sure.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = ChunkId> {
        let is_sure = |chunk: &Chunk| chunk.head.unfinished && !chunk.head.suspect;
        self.chunks.iter().filter(move |(_, chunk)| is_sure(chunk)).map(|(id, _)| *id)
    }

    /// The pages of all slices that have one.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u32> {
        let slices = self.chunks.values().flat_map(|chunk| chunk.slices_from(0));
        slices.map(|(_, slice)| slice.page).filter(|page| *page != LOST_PAGE)
    }

    fn views(&self, page: u32) -> impl Iterator<Item = Option<BlockView<'_>>> {
        let first = page as usize * BLOCKS;
        (first..first + BLOCKS).map(move |slot| {
            let Owner { chunk, index } = (*self.owners.get(slot)?)?;
            let of_doomed = || {
                let mut doomed = self.doomed.range((chunk, 0)..=(chunk, u64::MAX));
                doomed.find_map(|(_, found)| found.block_in(index, slot))
            };
            let block = self.chunks.get(&chunk).and_then(|found| found.block_in(index, slot));
            let block = block.or_else(of_doomed)?;
            Some(BlockView { chunk, index, head: block.head, slices: &block.slices })
        })
    }

    /// Sets all pages that have changed aside for a checkpoint of the map as it is now. None of an
    /// earlier one is left then.
    pub(crate) fn freeze(&mut self) {
        debug_assert!(!self.has_steps(), "what is deleted is not among the pages");
        let Changed { dirty, frozen, saved } = &mut self.changed;
        debug_assert!(frozen.is_empty() && saved.is_empty());
        *frozen = std::mem::take(dirty);
    }

    /// Pages set aside that have changed since: they take memory.
    pub(crate) fn saved_pages(&self) -> usize {
        self.changed.saved.len()
    }

    /// The number of the page that [`take_frozen`](Self::take_frozen) gives next.
    pub(crate) fn next_frozen(&self) -> Option<u32> {
        let Changed { frozen, saved, .. } = &self.changed;
        saved.keys().next().or_else(|| frozen.first()).copied()
    }

    /// One of the pages that were set aside: its number, its bytes as they were then, and their
    /// checksum.
    pub(crate) fn take_frozen(&mut self, head: PageHead) -> Option<(u32, Box<PageBytes>, u32)> {
        let of = |page: u32| PageHead { index: page.into(), ..head };
        if let Some((page, blocks)) = self.changed.saved.pop_first() {
            let (bytes, crc) = encode(of(page), blocks.iter().map(|b| b.as_ref().map(view)));
            return Some((page, bytes, crc));
        }
        let page = self.changed.frozen.pop_first()?;
        let (bytes, crc) = encode(of(page), self.views(page));
        Some((page, bytes, crc))
    }
}

fn view(image: &BlockImage) -> BlockView<'_> {
    let BlockImage { chunk, index, head, slices } = image;
    BlockView { chunk: *chunk, index: *index, head: *head, slices }
}

fn image(view: BlockView<'_>) -> BlockImage {
    let BlockView { chunk, index, head, slices } = view;
    BlockImage { chunk, index, head, slices: Box::new(*slices) }
}
