//! Which chunk has which slots of the memory.

use std::collections::HashMap;

use towpath_fastpath::resident::SLOT_BYTES;
use towpath_fastpath::slice::SLICE_BYTES;
use towpath_transport::{MemoryError, SharedMemory};

use super::runs::{FreeRuns, Run};
use super::slots::{Content, SlotMemory};
use crate::store::{ChunkId, Residence, SlicePlace, Slots};

/// Slots of one arena at most: a grant is shorter than 4 GiB, and the memory is rounded up to whole
/// pages, perhaps huge ones.
pub const SLOTS_MAX: u32 = ((u32::MAX as usize - (2 << 20)) / SLOT_BYTES) as u32;

/// Slots in memory that clients may be granted, and the chunks that have them.
#[derive(Debug)]
pub struct Arena {
    slots: SlotMemory,
    count: u32,
    free: FreeRuns,
    chunks: HashMap<ChunkId, Placed>,
}

/// The slots of one chunk: slice after slice.
#[derive(Debug, Default)]
struct Placed {
    /// Each with the slice that it begins with.
    runs: Vec<(u64, Run)>,
    slices: u64,
}

impl Placed {
    /// The place of the run that holds a slice, or of the first behind it.
    fn place(&self, slice: u64) -> usize {
        self.runs.partition_point(|(first, run)| first + u64::from(run.count) <= slice)
    }

    fn slot(&self, slice: u64) -> Option<u32> {
        let (first, run) = self.runs.get(self.place(slice))?;
        Some(run.slot + slice.checked_sub(*first)? as u32)
    }
}

impl Arena {
    /// An arena for slices of `bytes` bytes, at most [`SLOTS_MAX`] of them.
    ///
    /// # Errors
    /// [`MemoryError`] where the system has no such memory, or not one slice fits.
    pub fn new(bytes: u64) -> Result<Self, MemoryError> {
        let count = (bytes / SLICE_BYTES as u64).min(SLOTS_MAX.into()) as u32;
        let slots = SlotMemory::new(count)?;
        Ok(Self { slots, count, free: FreeRuns::new(count), chunks: HashMap::new() })
    }

    /// The memory, to be granted.
    #[must_use]
    pub fn memory(&self) -> SharedMemory {
        self.slots.memory().clone()
    }

    /// Frees a run: its slots are marked before anybody else can have them.
    fn give(&mut self, run: Run) {
        (run.slot..run.slot + run.count).for_each(|slot| self.slots.free(slot));
        self.free.give(run);
    }
}

impl Residence for Arena {
    fn slots(&self) -> u64 {
        self.count.into()
    }

    fn slots_free(&self) -> u64 {
        self.free.count()
    }

    fn holds(&self, chunk: ChunkId) -> bool {
        self.chunks.contains_key(&chunk)
    }

    fn place(&mut self, chunk: ChunkId) {
        self.chunks.entry(chunk).or_default();
    }

    fn grow(&mut self, chunk: ChunkId, slices: u64, version: u64) -> bool {
        let Some(placed) = self.chunks.get_mut(&chunk) else { return false };
        let mut missing = slices.saturating_sub(placed.slices);
        if missing > self.free.count() {
            return false;
        }
        while missing > 0 {
            let wanted = missing.min(self.count.into()) as u32;
            let first = placed.slices;
            // Behind the last run it is a part of that.
            let last = placed.runs.last_mut().map(|(_, run)| run);
            let longer = last.map_or(0, |run| {
                let taken = self.free.take_at(run.slot + run.count, wanted);
                run.count += taken;
                taken
            });
            let taken = if longer > 0 {
                longer
            } else {
                let Some(run) = self.free.take(wanted) else { return false };
                placed.runs.push((first, run));
                run.count
            };
            placed.slices += u64::from(taken);
            missing -= u64::from(taken);
            for slice in first..placed.slices {
                let slot = placed.slot(slice);
                let place = SlicePlace { chunk, slice };
                slot.iter().for_each(|s| self.slots.write(*s, place, version, Content::Zeros));
            }
        }
        true
    }

    fn shrink(&mut self, chunk: ChunkId, slices: u64) {
        let Some(placed) = self.chunks.get_mut(&chunk) else { return };
        let mut gone = Vec::new();
        while let Some((first, run)) = placed.runs.last_mut()
            && *first + u64::from(run.count) > slices
        {
            let kept = slices.saturating_sub(*first) as u32;
            gone.push(Run { slot: run.slot + kept, count: run.count - kept });
            run.count = kept;
            if kept == 0 {
                placed.runs.pop();
            }
        }
        placed.slices = placed.slices.min(slices);
        gone.into_iter().for_each(|run| self.give(run));
    }

    fn put(&mut self, name: SlicePlace, version: u64, content: Option<(u32, &[u8])>) {
        let slot = self.chunks.get(&name.chunk).and_then(|placed| placed.slot(name.slice));
        debug_assert!(slot.is_some(), "the chunk was grown before");
        let content = content.map_or(Content::Absent, |(crc, bytes)| Content::Bytes(crc, bytes));
        if let Some(slot) = slot {
            self.slots.write(slot, name, version, content);
        }
    }

    fn remove(&mut self, chunk: ChunkId) {
        if let Some(placed) = self.chunks.remove(&chunk) {
            placed.runs.into_iter().for_each(|(_, run)| self.give(run));
        }
    }

    fn runs(&self, chunk: ChunkId, first_slice: u64, runs_max: usize) -> (Vec<Slots>, bool) {
        let Some(placed) = self.chunks.get(&chunk) else { return (Vec::new(), false) };
        let from = &placed.runs[placed.place(first_slice)..];
        let runs = from.iter().take(runs_max).map(|&(first, Run { slot, count })| {
            let skip = first_slice.saturating_sub(first) as u32;
            Slots { first_slice: first + u64::from(skip), slot: slot + skip, count: count - skip }
        });
        (runs.collect(), from.len() > runs_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;
    use towpath_fastpath::resident::{Found, inspect};
    use towpath_fastpath::slice::slice_crc;

    fn found(arena: &Arena, name: SlicePlace, slot: u32) -> Found {
        let mut bytes = [0; SLOT_BYTES];
        arena.memory().read(slot as usize * SLOT_BYTES, &mut bytes).expect("within the memory");
        inspect(name.chunk, name.slice, &bytes)
    }

    /// Every slice of every chunk, as a client finds them by pages of `page` runs.
    fn check(arena: &Arena, model: &HashMap<ChunkId, Vec<u64>>, page: usize) {
        for (&chunk, versions) in model {
            let mut next = 0;
            loop {
                let (runs, more) = arena.runs(chunk, next, page);
                for Slots { first_slice, slot, count } in runs {
                    assert_eq!(first_slice, next);
                    for at in 0..count {
                        let name = SlicePlace { chunk, slice: next };
                        let version = versions[next as usize];
                        assert_eq!(found(arena, name, slot + at), Found::Whole { version });
                        next += 1;
                    }
                }
                if !more {
                    break;
                }
            }
            assert_eq!(next, versions.len() as u64);
        }
    }

    #[test]
    fn chunks_grow_are_written_and_removed_and_each_finds_its_own_slices() {
        let seed = 8;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let slots = 64;
        let mut arena = Arena::new(slots * 4096 + 4095).expect("memory");
        let mut model: HashMap<ChunkId, Vec<u64>> = HashMap::new();
        for version in 1..3000 {
            let chunk = ChunkId(prng.below(6).into());
            match prng.below(8) {
                0 => {
                    arena.remove(chunk);
                    model.remove(&chunk);
                }
                1 => {
                    let Some(versions) = model.get_mut(&chunk) else { continue };
                    let slices = prng.below(versions.len() as u64 + 3);
                    arena.shrink(chunk, slices);
                    versions.truncate(slices as usize);
                }
                2..4 => {
                    arena.place(chunk);
                    let versions = model.entry(chunk).or_default();
                    let slices = versions.len() as u64 + prng.below(20);
                    let fits = slices - versions.len() as u64 <= arena.slots_free();
                    assert_eq!(arena.grow(chunk, slices, version), fits);
                    if fits {
                        versions.resize(slices as usize, version);
                    }
                }
                _ => {
                    let Some(versions) = model.get_mut(&chunk) else { continue };
                    if versions.is_empty() {
                        continue;
                    }
                    let slice = prng.below(versions.len() as u64);
                    let mut bytes = [0; SLICE_BYTES];
                    prng.fill(&mut bytes);
                    let content = Some((slice_crc(chunk, slice, &bytes), &bytes[..]));
                    arena.put(SlicePlace { chunk, slice }, version, content);
                    versions[slice as usize] = version;
                }
            }
            let used: usize = model.values().map(Vec::len).sum();
            assert_eq!(arena.slots_free(), slots - used as u64);
            if version % 50 == 0 {
                check(&arena, &model, prng.between(1, 5) as usize);
            }
        }
    }

    #[test]
    fn a_slot_that_was_given_back_is_nobodys_and_a_slice_that_is_not_there_says_so() {
        let mut arena = Arena::new(4096).expect("memory");
        let name = SlicePlace { chunk: ChunkId(5), slice: 0 };
        arena.place(name.chunk);
        assert!(arena.grow(name.chunk, 1, 7));
        assert!(!arena.grow(name.chunk, 2, 8), "there is one slot");
        arena.put(name, 8, None);
        assert_eq!(found(&arena, name, 0), Found::Absent);
        let bytes = [3; SLICE_BYTES];
        arena.put(name, 9, Some((slice_crc(name.chunk, 0, &bytes), &bytes)));
        assert_eq!(found(&arena, name, 0), Found::Whole { version: 9 });
        arena.remove(name.chunk);
        assert_eq!(found(&arena, name, 0), Found::Moved);
        assert_eq!(arena.runs(name.chunk, 0, 9), (Vec::new(), false));
        let other = SlicePlace { chunk: ChunkId(6), slice: 0 };
        arena.place(other.chunk);
        assert!(arena.grow(other.chunk, 1, 10));
        assert_eq!(found(&arena, name, 0), Found::Moved, "it is another's");
        assert_eq!(found(&arena, other, 0), Found::Whole { version: 10 });
        assert!(Arena::new(4095).is_err(), "no slice fits");
    }

    #[test]
    fn the_largest_arena_can_be_granted() {
        let bytes = (SLOTS_MAX as usize * SLOT_BYTES).next_multiple_of(2 << 20);
        assert!(u32::try_from(bytes).is_ok());
    }
}
