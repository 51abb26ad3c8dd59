//! How much room a store has left, as its operator is to hear of it.

use super::state::StoreCore;
use crate::store::limits::{ROOM_AGAIN_PAGES, ROOM_AGAIN_SHARE};
use crate::store::slice::SLICE_BYTES;
use crate::store::stats::StoreStats;

/// Part of the capacity that is left when a store is nearly full: some hours of a busy one.
const NEARLY_FULL_SHARE: u64 = 16;

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
        match (self.is_full, free_bytes < capacity_bytes / NEARLY_FULL_SHARE) {
            (true, _) => Room::None,
            (false, true) => Room::NearlyNone,
            (false, false) => Room::Enough,
        }
    }

    /// Looks at the room that the file system has left: others may have filled it, or made room.
    pub(super) fn notice_room(&mut self) {
        self.measure_room();
        self.away.try_again();
        self.go_home();
        self.is_full |= self.stats().free_bytes == 0;
        self.look_for_room();
    }

    /// Pages have become free: a store that was full may have room again.
    pub(super) fn look_for_room(&mut self) {
        if self.is_full {
            let StoreStats { free_bytes, capacity_bytes, .. } = self.stats();
            let enough = capacity_bytes / ROOM_AGAIN_SHARE;
            self.is_full = free_bytes <= enough.min(ROOM_AGAIN_PAGES * SLICE_BYTES as u64);
        }
    }
}
