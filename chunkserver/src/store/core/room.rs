//! Room: pages are written ahead of their use, and give their room back when the file system runs
//! short; and how much room is left, as the operator of a store is to hear of it.
//!
//! The first write to a page that a file system has only set aside costs its journal a write more,
//! with the flush of whoever writes it. So pages are written once before they are used, and free
//! pages keep their room while the file system has enough. When it runs short they give it back,
//! behind whatever others have to do.

use towpath_disk::{DiskError, Op};

use super::io::Purpose;
use super::state::StoreCore;
use crate::store::record::Extent;
use crate::store::stats::StoreStats;

/// Part of the capacity that is left when a store is nearly full: some hours of a busy one.
const NEARLY_FULL_SHARE: u64 = 16;

/// Discards under way together while nobody changes or reads anything.
const DISCARDS_MAX: usize = 4;

/// The same beside others: a file system keeps writes waiting while it makes a hole.
pub(super) const DISCARDS_BESIDE_MAX: usize = 1;

/// How much room is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// Enough.
    #[default]
    Enough,
    /// Little: soon creates and writes will be refused.
    NearlyNone,
    /// A create or a write was refused, or would be, and not much has become free since.
    None,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// How much room is left.
    #[must_use]
    pub fn room(&self) -> Room {
        self.room_by(&self.stats())
    }

    /// The same by its own counters.
    pub(super) fn room_by(&self, stats: &StoreStats) -> Room {
        let &StoreStats { free_bytes, capacity_bytes, .. } = stats;
        match (self.space.is_full(), free_bytes < capacity_bytes / NEARLY_FULL_SHARE) {
            (true, _) => Room::None,
            (false, true) => Room::NearlyNone,
            (false, false) => Room::Enough,
        }
    }

    pub(super) fn measure_room(&mut self) {
        self.space.measure(self.io.disk());
    }

    /// Looks at the room that the file system has left: others may have filled it, or made room.
    pub(super) fn notice_room(&mut self) {
        self.measure_room();
        self.away.try_again();
        self.go_home();
        if self.space.free_bytes() == 0 {
            self.space.fill();
        }
        self.space.look();
    }

    /// Writes zeros to the next pages that nobody has written to.
    pub(super) fn write_ahead(&mut self) {
        if self.check_usable().is_err() {
            return;
        }
        let Some(extent) = self.space.next_ahead() else { return };
        match self.zeros(self.layout.data_page(extent.page), extent.count) {
            Ok(op) => self.io.submit(Purpose::Ahead(extent), op),
            // Without memory for it pages are used as they are.
            Err(_) => self.on_ahead(extent),
        }
    }

    pub(super) fn on_ahead(&mut self, extent: Extent) {
        self.space.on_ahead(extent);
        self.held.wake();
    }

    /// Lets free pages give their room back. Nobody waits for that but who finds no room, so a disk
    /// that has enough to do gets none of it.
    pub(super) fn give_room_back(&mut self) {
        if self.health.failed.is_some() || !self.space.gives_back() {
            return;
        }
        self.measure_room();
        let is_beside = !self.changes.is_empty() || self.reads.is_reading();
        let most = if is_beside { DISCARDS_BESIDE_MAX } else { DISCARDS_MAX };
        while self.space.gives_back() && self.space.discards() < most {
            // Who waits for room is not kept waiting by those who read.
            let is_waited_for = self.space.discards() == 0 && !self.held.is_empty();
            if self.io.is_crowded() && !is_waited_for {
                return;
            }
            let Some(extent) = self.space.next_discard() else { return };
            let (at, count) = (self.layout.data_page(extent.page), extent.count.into());
            self.io.submit(Purpose::Discard(extent), Op::Discard { at, count });
        }
    }

    /// Free pages keep their room from now on: who closes the store does not wait for it.
    pub(super) fn keep_room(&mut self) {
        self.space.pages.keep_room();
    }

    pub(super) fn on_discard(&mut self, extent: Extent) {
        self.space.on_discard(extent);
        self.measure_room();
        self.space.look();
        self.held.wake();
    }

    /// Pages of data that could not be written are not used again before the store is opened anew,
    /// unless there was only no room for them.
    pub(super) fn quarantine(&mut self, op: &Op, error: &DiskError) {
        if !error.is_full() {
            let (page, count) = (self.layout.data_page_at(op.at()), op.page_count() as u32);
            self.space.pages.quarantine(Extent { page, count });
            tracing::warn!(%error, count, "pages cannot be written, and are not used any more");
        }
    }
}
