//! Opens a store, and makes one where there is none.

use std::io;

use towpath_disk::Disk;

use super::blocking::Blocking;
use super::changes::Changes;
use super::checkpoint::{Checkpoints, Published};
use super::create::create;
use super::early::Earlies;
use super::followers::Followers;
use super::foreign::clear_for_store;
use super::group::Commits;
use super::held::Held;
use super::io::Io;
use super::layout::Layout;
use super::log::Log;
use super::map::Map;
use super::memory::Memory;
use super::page::PAGE_BYTES;
use super::read::Reads;
use super::recover::{Opened, read, read_superblocks};
use super::ring::Ring;
use super::space::{PageClash, Pages, Space};
use super::state::{Health, StoreCore};
use super::superblock::Superblock;
use crate::store::error::OpenError;
use crate::store::hash::NameHash;
use crate::store::media::{MediaError, MediaOp};
use crate::store::record::{Extent, LogKey};
use crate::store::stats::StoreStats;

/// How a store is opened, and made where there is none.
#[derive(Clone, Copy, Debug)]
pub struct CoreConfig {
    /// Pages of each copy of the log of a new store, as it begins.
    pub log_pages: u64,
    /// Pages that each may become as it grows, unless the disk is too short for that; no fewer than
    /// it begins with.
    pub log_pages_max: u64,
    /// The most chunks.
    pub chunks_max: u64,
    /// The number of a new store, which all its pages carry.
    pub store_id: u64,
    /// A random number for a new store, that nobody is told.
    pub log_nonce: u64,
    /// A random number for a new store: where the numbers of its records begin, and so the versions
    /// of its chunks. No other store has the same ones then.
    pub version_seed: u64,
    /// Pages of data of a new store get their room when they are written.
    pub is_sparse: bool,
}

/// Part of a disk that the area of each copy of the log takes at most, where it may grow.
const LOG_AREA_SHARE: u64 = 32;

/// Where a store may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewStore {
    /// Nowhere: there has to be one.
    Never,
    /// On a disk that is empty: zeros at both ends.
    OnEmpty,
    /// Also on one that holds something else, which is destroyed. What can be told for a store is
    /// never destroyed, be it damaged.
    OnAnything,
}

impl CoreConfig {
    /// The number of the first record of a new store, from 1 on: zero stands for none. It is in the
    /// lower half of the numbers that versions may have, which are of 62 bits
    /// (docs/storage-protocol.md section 8): the upper half lasts for 70 years of a billion changes
    /// a second.
    pub(super) fn first_sequence(&self) -> u64 {
        1 + (self.version_seed >> 3)
    }

    /// How many pages a new disk has that keeps so many bytes of slices; none where there cannot be
    /// one.
    #[must_use]
    pub fn page_count(&self, data_bytes: u64) -> Option<u64> {
        let data_pages = data_bytes / PAGE_BYTES as u64;
        let area = self.log_area(data_pages);
        Layout::for_data(data_pages, area).map(|layout| layout.page_count)
    }

    /// How many pages of a new disk must have their room from the beginning, all where the data has
    /// it too; none where the disk is too small for a store.
    #[must_use]
    pub fn room_pages(&self, page_count: u64) -> Option<u64> {
        Layout::new(page_count, self.log_area(page_count))?;
        // The other copy of the log gets its room by the zeros that are written to it.
        Some(if self.is_sparse { 1 + self.log_pages } else { page_count })
    }

    /// Pages of the area of each copy of the log, on a disk of so many pages.
    fn log_area(&self, page_count: u64) -> u64 {
        self.log_pages.max(self.log_pages_max.min(page_count / LOG_AREA_SHARE))
    }
}

pub(super) fn io_error(op: MediaOp) -> impl FnOnce(io::Error) -> OpenError {
    move |source| MediaError::new(op, super::DISK_NAME, 0, source).into()
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Opens the store on `disk`, and makes one where the disk is empty: zeros at both ends. It
    /// waits for the disk.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was changed then, unless the disk failed.
    pub fn open(disk: Box<dyn Disk>, config: &CoreConfig) -> Result<Self, OpenError> {
        Self::open_or_make(disk, config, NewStore::OnEmpty)
    }

    /// As [`open`](Self::open), with a say in where a store is made.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`OpenError::NoStore`] where the disk is empty and is to have one.
    pub fn open_or_make(
        mut disk: Box<dyn Disk>,
        config: &CoreConfig,
        new: NewStore,
    ) -> Result<Self, OpenError> {
        let memory = Memory::new().map_err(io_error(MediaOp::Open))?;
        let opened = {
            let mut disk = Blocking::new(&mut *disk, &memory);
            let mut superblocks = read_superblocks(&mut disk)?;
            if superblocks.found.is_empty() {
                make(&mut disk, config, config.first_sequence(), new)?;
                superblocks = read_superblocks(&mut disk)?;
            }
            read(&mut disk, superblocks, true)?
        };
        Self::of(disk, memory, opened, config)
    }

    pub(super) fn of(
        disk: Box<dyn Disk>,
        memory: Memory,
        opened: Opened,
        config: &CoreConfig,
    ) -> Result<Self, OpenError> {
        let Opened { superblock, ring, next_generation, loaded, replayed, floor, space, away } =
            opened;
        let Superblock { layout, start, is_sparse, .. } = superblock;
        let clash = |PageClash(page)| OpenError::Page { page };
        let (mut pages, written) = match space {
            Some(space) => space,
            None => space_of(&superblock, &loaded.map).map_err(clash)?,
        };
        if is_sparse && disk.can_discard() {
            pages.give_room_back();
        }
        let hash = NameHash::default();
        let key = LogKey::new(superblock.log_nonce);
        let log = Log::new(ring, floor, start, replayed.end);
        let sealed = if replayed.is_sealed { replayed.end.sequence - 1 } else { replayed.proven };
        // What is damaged is written anew.
        let wants_checkpoint = !loaded.damage.is_empty();
        let published = Published { superblock, next_generation, entries: loaded.entries };
        let counts = StoreStats {
            records_replayed: replayed.records,
            torn_tail_bytes: replayed.torn_bytes,
            ..StoreStats::default()
        };
        let mut core = Self {
            io: Io::new(disk, memory),
            layout,
            chunks_max: config.chunks_max,
            map: loaded.map,
            space: Space::new(pages, &layout, is_sparse, written),
            changes: Changes::new(hash),
            held: Held::new(hash),
            commits: Commits::new(key, log, sealed),
            checkpoints: Checkpoints::new(published, wants_checkpoint),
            away,
            early: Earlies::default(),
            reads: Reads::default(),
            followers: Followers::default(),
            health: Health { failed: None, damage: loaded.damage, counts },
            answers: Vec::new(),
            #[cfg(test)]
            bug: None,
        };
        core.measure_room();
        core.begin_with_map_room();
        Ok(core)
    }
}

/// Makes a store where there never was one.
fn make(
    disk: &mut Blocking<'_>,
    config: &CoreConfig,
    first_sequence: u64,
    new: NewStore,
) -> Result<(), OpenError> {
    let page_count = disk.disk().page_count();
    clear_for_store(disk, new == NewStore::OnAnything)?;
    if new == NewStore::Never {
        return Err(OpenError::NoStore);
    }
    let layout = Layout::new(page_count, config.log_area(page_count));
    let layout = layout.ok_or(OpenError::TooSmall { pages: page_count })?;
    let ids = (config.store_id, config.log_nonce);
    let ring = Ring::new(config.log_pages);
    create(disk, layout, ring, ids, config.is_sparse, first_sequence)
        .map_err(io_error(MediaOp::Create))
}

/// The pages that no slice has.
///
/// Those behind the `written` first ones, and behind the last one that some slice has, are used
/// when they were written once. Gives how many pages were.
pub(super) fn space_of(superblock: &Superblock, map: &Map) -> Result<(Pages, u32), PageClash> {
    let Superblock { layout, is_sparse, .. } = superblock;
    let written = if *is_sparse { u32::MAX } else { superblock.written_pages };
    let mut space = Pages::new(layout.data_pages + 1);
    let highest = space.claim(map.pages(), map.is_lossy)?;
    let written = written.max(highest);
    while let Some(extent) = space.unbacked(u32::MAX).filter(|extent| extent.page <= written) {
        let count = extent.count.min(written - extent.page + 1);
        space.back(Extent { count, ..extent });
    }
    Ok((space, written))
}
