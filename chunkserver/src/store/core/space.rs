//! Room for slices: free pages, what the file system can still give, and whether that is enough.

mod pages;

use towpath_disk::Disk;

pub(super) use pages::{PageClash, Pages, Pin};

use super::grow::MapRoom;
use super::layout::Layout;
use super::memory::LONG_PAGES;
use super::page::PAGE_BYTES;
use crate::store::limits::{ROOM_AGAIN_PAGES, ROOM_AGAIN_SHARE};
use crate::store::record::{Extent, Extents};
use crate::store::stats::StoreStats;

/// Pages that writes leave free: what is cleared in part goes to a fresh page, and gives the old
/// one back with its commit. A clear has at most two, so the store is never too full for it.
pub(super) const EDGE_PAGES: u64 = 16;

/// Most bytes of a file system that a sparse store leaves alone.
const FULL_BYTES_MAX: u64 = 64 << 20;

/// A file system runs short with so many times the bytes that writes leave alone.
const SHORT_SHARE: u64 = 4;

/// Free pages that were written before are kept in store up to this many: more than one write
/// takes, and some milliseconds of a fast network.
const AHEAD_PAGES: u64 = 8192;

/// Pages that are written at once, 1 MiB.
const ONCE_PAGES: u32 = 4 * LONG_PAGES as u32;

/// Pages of one discard, 64 MiB: a few extents of a file system.
const DISCARD_PAGES: u32 = 16384;

/// The pages of a store, and the room that they have.
pub(super) struct Space {
    pub(super) pages: Pages,
    /// Room of the map.
    pub(super) map: MapRoom,
    is_sparse: bool,
    data_pages: u32,
    /// Bytes that the file system can still give, where the pages take theirs from it.
    room_bytes: u64,
    /// Pages of data, from the first on, that were written once.
    written_pages: u32,
    is_writing_ahead: bool,
    /// A change was refused for want of room, and not much has become free since.
    is_full: bool,
    /// Discards under way, and pages of them.
    discards: usize,
    discarding_pages: u64,
}

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_BYTES as u64)
}

impl Space {
    /// Of the pages of data so many were written once, from the first on.
    pub(super) fn new(pages: Pages, layout: &Layout, is_sparse: bool, written_pages: u32) -> Self {
        Self {
            pages,
            map: MapRoom::default(),
            is_sparse,
            data_pages: layout.data_pages,
            room_bytes: 0,
            written_pages,
            is_writing_ahead: false,
            is_full: false,
            discards: 0,
            discarding_pages: 0,
        }
    }

    pub(super) fn is_sparse(&self) -> bool {
        self.is_sparse
    }

    pub(super) fn written_pages(&self) -> u32 {
        self.written_pages
    }

    /// Looks how much the file system can still give. What does not tell has no more, as far as
    /// anybody can rely on it.
    pub(super) fn measure(&mut self, disk: &dyn Disk) {
        if self.is_sparse {
            self.room_bytes = disk.free_bytes().unwrap_or(0);
        }
    }

    /// Bytes were written: until the next look at the file system, each counts as new room.
    pub(super) fn took(&mut self, byte_len: u64) {
        self.room_bytes = self.room_bytes.saturating_sub(byte_len);
    }

    /// Bytes of the file system that are left alone: others need some too, and a file system
    /// without any is slow.
    pub(super) fn full_bytes(&self) -> u64 {
        (bytes(self.data_pages.into()) / 64).min(FULL_BYTES_MAX)
    }

    /// Whether the file system has room for so many bytes, where the data takes its room from it.
    pub(super) fn has_bytes(&self, wanted: u64) -> bool {
        !self.is_sparse || self.room_bytes + bytes(self.pages.stale_pages()) >= wanted
    }

    /// The same beside the bytes that are left alone.
    pub(super) fn has_room(&self, wanted: u64) -> bool {
        self.has_bytes(wanted + self.full_bytes())
    }

    /// Whether the file system has so little left that free pages give their room back.
    pub(super) fn is_short(&self) -> bool {
        self.room_bytes < SHORT_SHARE * self.full_bytes()
    }

    /// Takes so many pages, where as many as `leaves` are left then.
    pub(super) fn take(&mut self, count: u32, leaves: u64) -> Option<Extents> {
        let mut taken = Extents::new();
        let is_left = || self.pages.free_pages() >= u64::from(count) + leaves;
        (count == 0 || (is_left() && self.pages.take(count, &mut taken))).then_some(taken)
    }

    /// Whether pages may become free that are not.
    pub(super) fn may_get_pages(&self) -> bool {
        self.pages.retired_pages() > 0
            || self.pages.unbacked_pages() > 0
            || self.pages.stale_pages() > 0
            || self.discarding_pages > 0
    }

    /// A change is refused for want of room.
    pub(super) fn fill(&mut self) {
        self.is_full = true;
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Bytes of slices that can still be written.
    pub(super) fn free_bytes(&self) -> u64 {
        let free_pages = self.pages.free_pages() + self.pages.unbacked_pages();
        let free_bytes = bytes(free_pages.saturating_sub(EDGE_PAGES));
        let room = self.room_bytes.saturating_sub(self.full_bytes());
        match self.is_sparse {
            true => free_bytes.min(room + bytes(self.pages.stale_pages())),
            false => free_bytes,
        }
    }

    fn capacity_bytes(&self) -> u64 {
        bytes(u64::from(self.data_pages).saturating_sub(EDGE_PAGES))
    }

    /// Puts what it has into counters.
    pub(super) fn tell(&self, stats: &mut StoreStats) {
        stats.free_bytes = self.free_bytes();
        stats.retired_bytes = bytes(self.pages.retired_pages() + self.discarding_pages);
        stats.capacity_bytes = self.capacity_bytes();
    }

    /// Pages may have become free: a store that was full may have room again.
    pub(super) fn look(&mut self) {
        if self.is_full {
            let enough = self.capacity_bytes() / ROOM_AGAIN_SHARE;
            self.is_full = self.free_bytes() <= enough.min(bytes(ROOM_AGAIN_PAGES));
        }
    }

    /// The next pages that nobody has written to, while few others are free: they are to be written
    /// before they are used. Of a sparse store none: its pages get their room when they are needed.
    pub(super) fn next_ahead(&mut self) -> Option<Extent> {
        if self.is_writing_ahead || self.pages.free_pages() >= AHEAD_PAGES {
            return None;
        }
        let extent = self.pages.unbacked(ONCE_PAGES);
        self.is_writing_ahead = extent.is_some();
        extent
    }

    /// Pages were written ahead, or could not be: whoever writes to them then is told so.
    pub(super) fn on_ahead(&mut self, extent: Extent) {
        self.is_writing_ahead = false;
        self.pages.back(extent);
        self.written_pages = self.written_pages.max(extent.page + extent.count - 1);
    }

    /// Whether free pages are to give their room back.
    pub(super) fn gives_back(&self) -> bool {
        self.pages.stale_pages() > 0 && self.is_short()
    }

    /// Discards under way.
    pub(super) fn discards(&self) -> usize {
        self.discards
    }

    /// The next free pages that give their room back.
    pub(super) fn next_discard(&mut self) -> Option<Extent> {
        let extent = self.pages.take_stale(DISCARD_PAGES)?;
        self.discards += 1;
        self.discarding_pages += u64::from(extent.count);
        Some(extent)
    }

    /// The room of pages is back, or stays with them: either way they can be used.
    pub(super) fn on_discard(&mut self, extent: Extent) {
        self.discards -= 1;
        self.discarding_pages -= u64::from(extent.count);
        self.pages.release(extent);
    }
}
