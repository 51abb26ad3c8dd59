//! What a store tells beside the data: of chunks, of reads, of scrub steps.

use super::error::SliceCorrupt;
use super::media::MediaError;
use super::slice::ChunkId;

/// What is known of a chunk without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkStat {
    /// Its name.
    pub chunk: ChunkId,
    /// Its length in bytes: one past the last byte ever written.
    pub byte_len: u64,
    /// The length that it may reach.
    pub limit_bytes: u64,
    /// Rises with every change of the chunk, and never repeats, not even after a delete.
    pub version: u64,
    /// A change of it is lost to damage: the rest may be old, and none of its bytes is served.
    pub suspect: bool,
    /// What is to be put into it is not all there, or its put was interrupted.
    pub unfinished: bool,
    /// Its slices are to be kept in memory as well.
    pub resident: bool,
    /// The chain version that changes of it must name; 0 where it has none.
    pub chain: u32,
}

/// The number of a staged change: it is acknowledged when the next commit succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a read found beside the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// Version of the chunk that was read.
    pub version: u64,
    /// Length of the chunk then, in bytes.
    pub chunk_bytes: u64,
    /// The chunk is unfinished: who asks for a whole one is not to be given it.
    pub unfinished: bool,
}

/// What one step found.
#[derive(Debug, Default)]
pub struct ScrubReport {
    /// Slices checked.
    pub slices: u64,
    /// Bytes read for it.
    pub bytes: u64,
    /// Damaged slices, and where they lie.
    pub corrupt: Vec<SliceCorrupt>,
    /// Slices that the medium would not read.
    pub unreadable: Vec<MediaError>,
    /// The step reached the last slice of the last chunk: the next one begins a new pass.
    pub pass_done: bool,
    /// The chunk and slice where the next step begins.
    pub next: (ChunkId, u64),
}
