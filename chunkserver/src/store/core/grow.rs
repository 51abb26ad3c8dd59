//! The map of a sparse store gets its room as it grows.
//!
//! A page of the map has its room, and the directory has that of its entry, before a block there is
//! promised to a change. So neither a commit nor a checkpoint needs room that may not be there, and
//! an empty store takes little.

use towpath_disk::{Op, PageNumber};

use super::io::Purpose;
use super::map_page::BLOCKS;
use super::page::PAGE_BYTES;
use super::state::StoreCore;

/// Pages of the map that get their room together, 1 MiB at each of their two places: blocks for
/// some 1,800 small chunks, or 460 MB of large ones.
const GROW_PAGES: u32 = 256;

/// Blocks that are free when more get their room: what is committed meanwhile takes fewer.
const BLOCKS_LOW: u64 = GROW_PAGES as u64 * BLOCKS as u64 / 2;

/// How much of the map has its room.
#[derive(Debug, Default)]
pub(super) struct MapRoom {
    /// Pages of the map, from the first on, that have it at both places.
    pages: u32,
    /// The same when what is under way is done, and how many writes of it are left.
    growing: Option<(u32, usize)>,
    /// A write found no room.
    has_failed: bool,
    /// A change waits for what is under way, or did.
    is_waited_for: bool,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// What is used has its room: it was there before it was used. Of a store that is not sparse
    /// all has.
    pub(super) fn begin_with_map_room(&mut self) {
        let used = self.map.pages_used().max(self.checkpoints.entries().len() as u32);
        self.space.map.pages = if self.space.is_sparse() { used } else { self.layout.map_pages };
        self.limit_blocks();
    }

    fn limit_blocks(&mut self) {
        let blocks = self.space.map.pages.saturating_mul(BLOCKS as u32);
        self.map.limit_slots(blocks.min(self.layout.blocks()));
    }

    /// Gives more of the map its room where few blocks are left.
    pub(super) fn grow_map(&mut self) {
        let few = self.map.blocks_free() < self.changes.promised().blocks + BLOCKS_LOW;
        if few && !self.space.map.has_failed {
            self.begin_growing();
        }
    }

    fn begin_growing(&mut self) {
        let MapRoom { pages, growing, .. } = self.space.map;
        let to = pages.saturating_add(GROW_PAGES).min(self.layout.map_pages);
        if growing.is_some() || pages == to || self.check_usable().is_err() {
            return;
        }
        self.space.map.has_failed = false;
        let runs = self.layout.map_runs(pages, to);
        let bytes: u64 = runs.iter().map(|(_, count)| u64::from(*count) * PAGE_BYTES as u64).sum();
        let ops = match self.is_room_for(bytes) {
            true => runs.iter().map(|(at, count)| self.zeros(*at, *count)).collect(),
            false => Err(std::io::ErrorKind::StorageFull.into()),
        };
        let Ok(ops): std::io::Result<Vec<Op>> = ops else {
            self.space.map.has_failed = true;
            return;
        };
        self.space.map.growing = Some((to, ops.len()));
        ops.into_iter().for_each(|op| self.io.submit(Purpose::MapRoom, op));
    }

    /// Gives pages their room by zeros.
    pub(super) fn zeros(&self, at: PageNumber, count: u32) -> std::io::Result<Op> {
        let from = self.io.memory.all_filled(count as usize, |buf| buf.fill(0))?;
        Ok(Op::write_all(at, from))
    }

    /// Pages of the map have their room, or found none.
    pub(super) fn on_map_room(&mut self, is_done: bool) {
        self.space.map.has_failed |= !is_done;
        let Some((to, left)) = &mut self.space.map.growing else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        let to = *to;
        self.space.map.growing = None;
        if !self.space.map.has_failed {
            self.space.map.pages = to;
            self.limit_blocks();
        }
        self.measure_room();
        self.held.wake();
    }

    /// Whether the map may have more blocks soon. Each change that finds none tries once.
    pub(super) fn may_get_blocks(&mut self) -> bool {
        if self.space.map.growing.is_none() {
            let was_waited_for = std::mem::take(&mut self.space.map.is_waited_for);
            if std::mem::take(&mut self.space.map.has_failed) && was_waited_for {
                return false;
            }
            self.begin_growing();
        }
        self.space.map.is_waited_for = self.space.map.growing.is_some();
        self.space.map.is_waited_for
    }
}
