//! The store: what it holds, and the questions that need no data.

use std::collections::HashMap;

use super::config::StoreConfig;
use super::damage::Damage;
use super::error::FlushFailed;
use super::fullness::Said;
use super::header::FileHeader;
use super::limits::{LIST_MAX, PAGE_BYTES_ON_MEDIUM};
use super::log::Log;
use super::map::{ChunkMap, SliceRef};
use super::mark::Marker;
use super::media::Media;
use super::pages::Pages;
use super::record::Extent;
use super::reserve::Reserve;
use super::residence::Residence;
use super::scrub::ScrubCursor;
use super::slice::{ChunkId, SLICE_BYTES};
use super::space::Space;
use super::stats::StoreStats;

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
}

/// The number of a staged change: it is acknowledged when the next commit succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// State of a chunk as the staged changes will leave it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) byte_len: u64,
    pub(crate) limit_bytes: u64,
    /// Its slices take slots in memory.
    pub(crate) has_slots: bool,
}

/// A staged record: its chunk, and its offset among the staged bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    pub(crate) chunk: ChunkId,
    pub(crate) at: usize,
}

/// A store of chunks on one medium (a directory, or a simulated disk), owned by one thread.
///
/// Chunks consist of 4 KiB slices. A change is first staged (`stage_create`, `stage_write`,
/// `stage_delete`), which writes its data to free pages. [`commit`](Self::commit) then makes all
/// staged changes visible and durable together. Reads see committed changes only. A change that
/// staging refuses has no effect.
///
/// The bytes on the medium are described in docs/store-format.md.
pub struct Store<M: Media> {
    pub(crate) media: M,
    pub(crate) config: StoreConfig,
    /// Header fields that all files of this store share.
    pub(crate) identity: FileHeader,
    pub(crate) pages: Pages<M::File>,
    pub(crate) log: Log<M::File>,
    pub(crate) reserve: Reserve<M::File>,
    pub(crate) map: ChunkMap,
    pub(crate) space: Space,
    /// How many pages are to get their room next.
    pub(crate) back_pages: u32,
    /// What the log says about room.
    pub(crate) said: Said,
    pub(crate) failed: Option<FlushFailed>,
    pub(crate) damage: Vec<Damage>,
    pub(crate) marker: Marker<M::File>,
    /// Changes that were acknowledged are lost: no other is taken, and no file changed.
    pub(crate) is_lossy: bool,
    pub(crate) staged: Vec<Staged>,
    pub(crate) pending: HashMap<ChunkId, Option<Head>>,
    /// Chunks made less chunks deleted by what is staged.
    pub(crate) pending_chunks: i64,
    /// Where slices of resident chunks are kept as well.
    pub(crate) residence: Option<Box<dyn Residence>>,
    /// Slots that what is staged will take.
    pub(crate) promised_slots: u64,
    /// Segments with staged data that is not flushed.
    pub(crate) dirty: Vec<u32>,
    pub(crate) scratch: Box<[u8; SLICE_BYTES]>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) crcs: Vec<u32>,
    pub(crate) spare_slices: Vec<SliceRef>,
    pub(crate) scrub: ScrubCursor,
    pub(crate) counts: StoreStats,
    #[cfg(test)]
    pub(crate) bug: Option<Bug>,
}

/// Mistakes that the crash tests make on purpose, to see that they would notice.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A commit does not flush the data.
    SkipDataFlush,
    /// A commit does not flush the log.
    SkipLogFlush,
    /// A checkpoint does not flush the directory.
    SkipDirFlush,
    /// Pages of overwritten slices are free before the commit.
    ReuseTooEarly,
}

impl<M: Media> Store<M> {
    #[cfg(test)]
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// The committed state of a chunk.
    #[must_use]
    pub fn stat(&self, chunk: ChunkId) -> Option<ChunkStat> {
        match self.map.chunks.get(&chunk) {
            Some(c) => Some(ChunkStat {
                chunk,
                byte_len: c.byte_len,
                limit_bytes: c.limit_bytes,
                version: c.version,
                suspect: c.suspect,
                unfinished: c.unfinished,
                resident: c.resident,
            }),
            // What made it may be lost.
            None if self.map.may_miss_chunks() => {
                let nothing = ChunkStat { chunk, ..ChunkStat::default() };
                Some(ChunkStat { suspect: true, ..nothing })
            }
            None => None,
        }
    }

    /// What the opening found damaged.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Whether changes are refused because others are lost to damage.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_lossy
    }

    /// Committed chunks in the order of their names, the first one after `after`; at most
    /// `count_max` and never more than [`LIST_MAX`]. A listing goes on from the last name it got.
    #[must_use]
    pub fn list(&self, after: Option<ChunkId>, count_max: usize) -> Vec<ChunkStat> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let chunks = self.map.chunks.range((from, Unbounded));
        chunks.take(count_max.min(LIST_MAX)).filter_map(|(id, _)| self.stat(*id)).collect()
    }

    /// Counters and space.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let bytes = |pages: u64| pages.saturating_mul(SLICE_BYTES as u64);
        // A medium that does not tell has no more, as far as anybody can rely on it.
        let backable = self.media.free_bytes().unwrap_or(0) / PAGE_BYTES_ON_MEDIUM;
        let pages_max = self.space.pages_max(backable);
        let retired = self.space.retired_pages();
        let (resident_bytes, resident_bytes_max) = self.resident_bytes();
        StoreStats {
            reads_retried: self.pages.retried,
            slices_corrupt: self.pages.corrupt,
            chunks: self.map.chunks.len() as u64,
            log_bytes: self.log.end,
            live_bytes: bytes(self.map.live_slices),
            free_bytes: bytes(pages_max.saturating_sub(self.map.live_slices + retired)),
            retired_bytes: bytes(retired),
            capacity_bytes: bytes(pages_max),
            resident_bytes,
            resident_bytes_max,
            failed: self.failed.is_some() || self.is_lossy,
            ..self.counts
        }
    }

    /// Why the store takes no more changes, if it does not.
    #[must_use]
    pub fn failure(&self) -> Option<FlushFailed> {
        self.failed
    }

    /// The medium, for tests and tools that look behind the store.
    #[must_use]
    pub fn media(&self) -> &M {
        &self.media
    }

    /// Bytes of staged log records; zero means that a commit has nothing to do.
    #[must_use]
    pub fn staged_bytes(&self) -> usize {
        self.log.staged.len()
    }
}
