//! What a check of a store finds.

use super::damage::Damage;
use super::slice::ChunkId;

/// Slices of one chunk that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceRun {
    /// The chunk.
    pub chunk: ChunkId,
    /// Index of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// A slice that was read and is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSlice {
    /// The chunk.
    pub chunk: ChunkId,
    /// Index of the slice.
    pub slice: u64,
    /// What is wrong with it, and where.
    pub why: String,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The current generation.
    pub generation: u64,
    /// Chunks that are known.
    pub chunks: u64,
    /// Slices that the map has.
    pub slices: u64,
    /// Records in the current log.
    pub records: u64,
    /// Bytes of an unfinished commit at the end of the current log.
    pub torn_tail_bytes: u64,
    /// Whether a server takes changes: it does not where some that were acknowledged are lost, or
    /// may be.
    pub takes_changes: bool,
    /// What is damaged of headers, maps, logs and segment files.
    pub damage: Vec<Damage>,
    /// Chunks of which a change is lost.
    pub suspect: Vec<ChunkId>,
    /// Slices whose place is gone, with their segment.
    pub lost: Vec<SliceRun>,
    /// Slices that were read.
    pub slices_checked: u64,
    /// Those of them that are damaged.
    pub bad_slices: Vec<BadSlice>,
}

impl CheckReport {
    /// Nothing is damaged, and nothing lost.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
            && self.suspect.is_empty()
            && self.lost.is_empty()
            && self.bad_slices.is_empty()
    }
}
