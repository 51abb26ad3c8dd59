//! Free pages keep their room while the file system has enough: a page that has it is written again
//! without a word to the journal. When the file system runs short they give it back, behind
//! whatever others have to do. Pages that cannot be written are put aside.

use towpath_disk::{DiskError, Op};

use super::io::Purpose;
use super::state::StoreCore;
use crate::store::record::Extent;

/// Discards under way together while nobody changes or reads anything.
const UNDER_WAY_MAX: usize = 4;

/// The same beside others: a file system keeps writes waiting while it makes a hole.
pub(super) const UNDER_WAY_BESIDE_MAX: usize = 1;

/// Pages of one discard, 64 MiB: a few extents of a file system.
const DISCARD_PAGES: u32 = 16384;

/// A file system runs short with so many times the bytes that writes leave alone.
const SHORT_SHARE: u64 = 4;

/// Discards under way.
#[derive(Debug, Default)]
pub(super) struct Discarding {
    count: usize,
    /// Pages of them.
    pub(super) pages: u64,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Whether the file system has so little left that free pages give their room back.
    pub(super) fn is_short(&self) -> bool {
        self.room_bytes < SHORT_SHARE * self.full_bytes()
    }

    /// Lets free pages give their room back, where they take it from the file system and that runs
    /// short. Nobody waits for that but who finds no room, so a disk that has enough to do gets
    /// none of it.
    pub(super) fn give_room_back(&mut self) {
        if self.failed.is_some() || self.space.stale_pages() == 0 || !self.is_short() {
            return;
        }
        self.measure_room();
        if !self.is_short() {
            return;
        }
        let is_beside = !self.members.is_empty() || !self.reads.is_empty();
        let most = if is_beside { UNDER_WAY_BESIDE_MAX } else { UNDER_WAY_MAX };
        while self.discarding.count < most {
            // Who waits for room is not kept waiting by those who read.
            let may_start =
                !self.io.is_crowded() || (self.discarding.count == 0 && !self.held.is_empty());
            let extent = if may_start { self.space.take_stale(DISCARD_PAGES) } else { None };
            let Some(Extent { page, count }) = extent else { return };
            self.discarding.count += 1;
            self.discarding.pages += u64::from(count);
            let at = self.layout.data_page(page);
            let op = Op::Discard { at, count: count.into() };
            self.io.submit(Purpose::Discard { page, count }, op);
        }
    }

    /// Free pages keep their room from now on: who closes the store does not wait for it.
    pub(super) fn keep_room(&mut self) {
        self.space.keep_room();
    }

    /// The room is back, or stays with the pages: either way they can be used.
    pub(super) fn on_discard(&mut self, page: u32, count: u32) {
        self.discarding.count -= 1;
        self.discarding.pages -= u64::from(count);
        self.space.release(Extent { page, count });
        self.measure_room();
        self.look_for_room();
        self.may_retry |= !self.held.is_empty();
    }

    /// Pages of data that could not be written are not used again before the store is opened anew,
    /// unless there was only no room for them.
    pub(super) fn quarantine(&mut self, op: &Op, error: &DiskError) {
        if !error.is_full() {
            let first = op.at().0 + 1 - self.layout.data_page(1).0;
            let (page, count) = (first as u32, op.page_count() as u32);
            self.space.quarantine(Extent { page, count });
            tracing::warn!(%error, count, "pages cannot be written, and are not used any more");
        }
    }
}
