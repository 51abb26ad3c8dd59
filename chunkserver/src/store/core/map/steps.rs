//! What deletes and clears leave for later: their blocks and pages are freed some at a time.
//!
//! A delete or a clear takes effect at once, whatever its length: a deleted chunk is not among the
//! chunks any more, and slices of a cleared range are holes in each block that is older than the
//! clear. The blocks are visited after that, a bounded number at a time, so that no change keeps
//! others waiting. A replay visits them at once; no checkpoint begins before all are visited.

use super::{BLOCK_SLICES, BLOCKS, Block, Chunk, Clearing, LOST_PAGE, Map, blocks_of, split};
use crate::store::clear::ClearBody;
use crate::store::error::ApplyError;
use crate::store::record::{Body, Record};
use crate::store::slice::ChunkId;

/// Blocks that a delete or a clear visits at once: most are that small, and a group of the most
/// changes takes some milliseconds.
const AT_ONCE_BLOCKS: usize = 8;

/// Blocks that a step visits: some 200 us of work.
const STEP_BLOCKS: usize = 256;

/// Pages that a step frees, and at most one block's more: each may be a run of its own.
const STEP_PAGES: usize = 2048;

/// Blocks of a clear that are counted one by one: some 50 us.
const COUNTED_BLOCKS: usize = 4096;

impl Chunk {
    /// Whether a clear has taken a slice that its block still has.
    pub(super) fn is_cleared(&self, block: &Block, slice: u64) -> bool {
        self.clears.iter().any(|clear| clear.takes(block, slice))
    }
}

impl Clearing {
    fn takes(&self, block: &Block, slice: u64) -> bool {
        block.head.version < self.version && (self.first..self.end).contains(&slice)
    }
}

/// Makes holes of the slices of a block that these clears take, and appends their pages to `left`;
/// gives how many they were.
pub(super) fn clear_block(
    clears: &[Clearing],
    index: u32,
    block: &mut Block,
    left: &mut Vec<u32>,
) -> u64 {
    let base = u64::from(index) * BLOCK_SLICES as u64;
    let mut gone = 0;
    for at in 0..BLOCK_SLICES {
        let old = block.slices[at];
        let is_taken = || clears.iter().any(|clear| clear.takes(block, base + at as u64));
        if !old.is_hole() && is_taken() {
            block.slices[at] = Default::default();
            gone += 1;
            left.extend((old.page != LOST_PAGE).then_some(old.page));
        }
    }
    gone
}

impl Map {
    /// Whether blocks are still to be freed that deletes and clears left.
    pub(crate) fn has_steps(&self) -> bool {
        !self.doomed.is_empty() || !self.clearing.is_empty()
    }

    /// Blocks that a record would leave to be freed: those of a chunk that it deletes, and those in
    /// a range that it clears. Of a range with very many it is what there may be at most.
    pub(crate) fn blocks_left_by(&self, record: &Record<'_>) -> u64 {
        // Writes, which are most records, ask the map nothing.
        let cleared = match &record.body {
            Body::Delete => None,
            Body::Clear(ClearBody { first, count, .. }) if *count > 0 => Some((*first, *count)),
            _ => return 0,
        };
        let Some(chunk) = self.chunks.get(&record.chunk) else { return 0 };
        let all = chunk.blocks.len() as u64;
        let Some((first, count)) = cleared else { return all };
        let range = split(first).0..=split(first + count - 1).0;
        match chunk.blocks.range(range).take(COUNTED_BLOCKS).count() {
            COUNTED_BLOCKS => all.min(blocks_of(first, count)),
            found => found as u64,
        }
    }

    pub(super) fn at_once_blocks(&self) -> usize {
        #[cfg(test)]
        if self.has_small_steps {
            return 0;
        }
        AT_ONCE_BLOCKS
    }

    fn step_blocks(&self) -> usize {
        #[cfg(test)]
        if self.has_small_steps {
            return 1;
        }
        STEP_BLOCKS
    }

    /// Frees some of the blocks that deletes and clears left, and gives their pages to `freed`.
    pub(crate) fn step(&mut self, freed: &mut impl FnMut(u32)) {
        for _ in 0..self.step_blocks() {
            if self.left.len() >= STEP_PAGES {
                break;
            }
            let doomed = self.doomed.first_key_value().map(|(key, _)| *key);
            match (doomed, self.clearing.first().copied()) {
                (Some(key), _) => self.free_some(key, 1),
                (None, Some(id)) => self.clear_some(id, 1),
                (None, None) => break,
            }
        }
        self.left.drain(..).for_each(freed);
    }

    /// Takes a chunk away.
    pub(super) fn begin_delete(&mut self, id: ChunkId, version: u64) -> Result<(), ApplyError> {
        let mut chunk = self.chunks.remove(&id).ok_or(ApplyError::NoSuchChunk(id))?;
        chunk.clears.clear();
        self.clearing.remove(&id);
        self.doomed.insert((id, version), chunk);
        self.free_some((id, version), self.at_once_blocks());
        Ok(())
    }

    /// Frees some blocks of a chunk that is deleted.
    fn free_some(&mut self, key: (ChunkId, u64), blocks: usize) {
        for _ in 0..blocks {
            let of_first = |chunk: &Chunk| chunk.blocks.values().next().map(|block| block.slot);
            let Some(slot) = self.doomed.get(&key).and_then(of_first) else { break };
            // A checkpoint under way may still want the page as it is.
            self.touch(slot / BLOCKS as u32);
            self.owners[slot as usize] = None;
            self.free_slots.push(slot);
            let Some((_, block)) = self.doomed.get_mut(&key).and_then(|it| it.blocks.pop_first())
            else {
                break;
            };
            for slice in block.slices.iter().filter(|slice| !slice.is_hole()) {
                self.live_slices -= 1;
                self.left.extend((slice.page != LOST_PAGE).then_some(slice.page));
            }
        }
        if self.doomed.get(&key).is_some_and(|chunk| chunk.blocks.is_empty()) {
            self.doomed.remove(&key);
        }
    }

    /// Begins a clear, which has this version. `clear_some` makes holes of the slices in its range.
    pub(super) fn begin_clear(&mut self, id: ChunkId, version: u64, clear: &ClearBody) {
        let (first, end) = (clear.first, clear.first + clear.count);
        let Some(chunk) = self.chunks.get_mut(&id).filter(|_| clear.count > 0) else { return };
        chunk.clears.push(Clearing { first, end, version, next: split(first).0 });
        self.clearing.insert(id);
    }

    /// Visits some blocks of a chunk that clears have not visited. Blocks that hold nothing any
    /// more go.
    pub(super) fn clear_some(&mut self, id: ChunkId, blocks: usize) {
        for _ in 0..blocks {
            let Some(chunk) = self.chunks.get_mut(&id) else { break };
            let Some(clear) = chunk.clears.first_mut() else { break };
            let last = split(clear.end - 1).0;
            let next = chunk.blocks.range(clear.next..).next().map(|(index, _)| *index);
            let Some(index) = next.filter(|index| *index <= last) else {
                chunk.clears.remove(0);
                let head = chunk.head;
                // The block that said how the chunk is may be gone. One is always left.
                let set = self.set_head(id, head);
                debug_assert!(set.is_ok());
                continue;
            };
            clear.next = index + 1;
            let is_empty = self
                .block(id, index)
                .is_ok_and(|block| block.slices.iter().all(|slice| slice.is_hole()));
            if is_empty {
                self.remove_block(id, index);
            }
        }
        if self.chunks.get(&id).is_none_or(|chunk| chunk.clears.is_empty()) {
            self.clearing.remove(&id);
        }
    }
}
