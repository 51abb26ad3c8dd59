//! Resident chunks: their slices are kept in memory as well, as the commits leave them.

use std::fmt;

use super::slice::ChunkId;

/// Memory for the slices of resident chunks. A store tells it what its commits change, before
/// whoever asked for the change is answered, in the order of the commits.
pub trait Residence: fmt::Debug + Send {
    /// Slices that it holds at most.
    fn slots(&self) -> u64;

    /// Slices that it can still take in.
    fn slots_free(&self) -> u64;

    /// Whether it has the slices of a chunk.
    fn holds(&self, chunk: ChunkId) -> bool;

    /// Takes a chunk of no slices in.
    fn place(&mut self, chunk: ChunkId);

    /// A chunk that it holds spans `slices` from now on; new ones are zeros of that version. False
    /// where they do not fit: nothing is changed then.
    fn grow(&mut self, chunk: ChunkId, slices: u64, version: u64) -> bool;

    /// A chunk that it holds spans no more than `slices` from now on.
    fn shrink(&mut self, chunk: ChunkId, slices: u64);

    /// Puts a slice of a chunk that it holds, with its checksum; none where the medium does not
    /// give the bytes.
    fn put(&mut self, name: SlicePlace, version: u64, content: Option<(u32, &[u8])>);

    /// Lets a chunk go, if it holds it.
    fn remove(&mut self, chunk: ChunkId);

    /// Where the slices of a chunk lie from one on: runs of slots, and whether there are more.
    fn runs(&self, chunk: ChunkId, first_slice: u64, runs_max: usize) -> (Vec<Slots>, bool);
}

/// A slice: its chunk and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlicePlace {
    /// The chunk.
    pub chunk: ChunkId,
    /// Index in the chunk.
    pub slice: u64,
}

/// Slots that lie together and hold slices that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The slice in the first of them.
    pub first_slice: u64,
    /// The first of them.
    pub slot: u32,
    /// How many.
    pub count: u32,
}

/// Where the slices of a chunk lie in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Its version.
    pub version: u64,
    /// Its length in bytes.
    pub byte_len: u64,
    /// Its slots from the slice on that was asked for; none where it has none.
    pub slots: Option<(Vec<Slots>, bool)>,
}
