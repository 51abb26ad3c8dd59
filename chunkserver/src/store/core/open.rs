//! Opening: the newest checkpoint that is whole, and what the log says since
//! (docs/store-core.md section 8).

use std::collections::{HashMap, VecDeque};
use std::io;

use slab::Slab;
use towpath_disk::{Disk, PageNumber};
use towpath_transport::Class;

use super::blocking::Blocking;
use super::checkpoint::Published;
use super::create::create;
use super::early::Earlies;
use super::group::Gathering;
use super::io::Io;
use super::layout::Layout;
use super::load::{Loaded, load};
use super::log::Log;
use super::memory::Memory;
use super::page::{PAGE_BYTES, PageError};
use super::replay::{Replay, ReplayError, Replayed};
use super::state::StoreCore;
use super::superblock::Superblock;
use super::tape::Tape;
use crate::store::damage::{Damage, DamageKind};
use crate::store::error::OpenError;
use crate::store::media::{MediaError, MediaOp};
use crate::store::record::{Extent, LogKey};
use crate::store::space::{PageClash, Space};
use crate::store::stats::StoreStats;

/// How a store is opened, and made where there is none.
#[derive(Clone, Copy, Debug)]
pub struct CoreConfig {
    /// Pages of each copy of the log of a new store.
    pub log_pages: u64,
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
        Layout::for_data(data_pages, self.log_pages).map(|layout| layout.page_count)
    }

    /// How many pages of a new disk must have their room from the beginning, all where the data has
    /// it too; none where the disk is too small for a store.
    #[must_use]
    pub fn room_pages(&self, page_count: u64) -> Option<u64> {
        let layout = Layout::new(page_count, self.log_pages)?;
        Some(if self.is_sparse { layout.metadata_pages() } else { page_count })
    }
}

/// The superblocks that are there, the newest first, and what is wrong with others.
pub(super) struct Superblocks {
    pub(super) found: Vec<Superblock>,
    damage: Vec<Damage>,
}

pub(super) fn io_error(op: MediaOp) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Media(MediaError::at(op, super::DISK_NAME, 0)(source))
}

pub(super) fn read_superblocks(disk: &mut Blocking<'_>) -> Result<Superblocks, OpenError> {
    let (mut found, mut damage) = (Vec::new(), Vec::new());
    let last = disk.disk().page_count() - 1;
    for at in [PageNumber(0), PageNumber(last)] {
        let page = disk.page(at).map_err(io_error(MediaOp::Read))?;
        let why = match page.as_deref().map(Superblock::decode) {
            Some(Ok(superblock)) if superblock.layout.superblock(superblock.generation) == at => {
                found.push(superblock);
                continue;
            }
            Some(Err(PageError::Version(version))) => {
                let why = format!("it is of format version {version}");
                return Err(OpenError::Checkpoint { file: super::DISK_NAME.into(), why });
            }
            Some(_) if page.is_some_and(|page| page.iter().all(|byte| *byte == 0)) => continue,
            Some(_) => "a superblock is damaged",
            None => "a superblock cannot be read",
        };
        let kind = DamageKind::Map { why: why.to_owned() };
        damage.push(Damage { file: super::DISK_NAME.into(), offset: at.byte_offset(), kind });
    }
    found.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
    Ok(Superblocks { found, damage })
}

/// What has been read of a store.
pub(super) struct Opened {
    pub(super) superblock: Superblock,
    pub(super) loaded: Loaded,
    pub(super) replayed: Replayed,
    floor: u64,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Opens the store on `disk`, and makes one where there never was any. It waits for the disk.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was changed then, unless the disk failed.
    pub fn open(mut disk: Box<dyn Disk>, config: &CoreConfig) -> Result<Self, OpenError> {
        let memory = Memory::new().map_err(io_error(MediaOp::Open))?;
        let opened = {
            let mut disk = Blocking::new(&mut *disk, &memory);
            let mut superblocks = read_superblocks(&mut disk)?;
            if superblocks.found.is_empty() {
                superblocks.found = vec![make(&mut disk, config, config.first_sequence())?];
                superblocks.damage.clear();
            }
            read(&mut disk, superblocks, true)?
        };
        Self::of(disk, memory, opened, config)
    }

    /// Makes a store on a disk that has none, and opens it. Its records, and so the versions of its
    /// chunks, have no number below `next_sequence`: those of a store that it takes the place of
    /// were lower.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn create_after(
        mut disk: Box<dyn Disk>,
        config: &CoreConfig,
        next_sequence: u64,
    ) -> Result<Self, OpenError> {
        let memory = Memory::new().map_err(io_error(MediaOp::Open))?;
        let opened = {
            let mut disk = Blocking::new(&mut *disk, &memory);
            let first_sequence = config.first_sequence().max(next_sequence);
            let found = vec![make(&mut disk, config, first_sequence)?];
            read(&mut disk, Superblocks { found, damage: Vec::new() }, true)?
        };
        Self::of(disk, memory, opened, config)
    }

    pub(super) fn of(
        disk: Box<dyn Disk>,
        memory: Memory,
        opened: Opened,
        config: &CoreConfig,
    ) -> Result<Self, OpenError> {
        let Opened { superblock, loaded, replayed, floor } = opened;
        let Superblock { layout, start, generation, is_sparse, .. } = superblock;
        let written = if is_sparse { u32::MAX } else { superblock.written_pages };
        let (mut space, written) = space_of(&layout, &loaded, written)?;
        if is_sparse && disk.can_discard() {
            space.keep_vacated();
        }
        let mut core = Self {
            io: Io::new(disk),
            memory,
            layout,
            key: LogKey::new(superblock.log_nonce),
            log_nonce: superblock.log_nonce,
            store_id: superblock.store_id,
            is_sparse,
            chunks_max: config.chunks_max,
            map: loaded.map,
            space,
            log: Log::new(layout.log_pages, floor, start, replayed.end),
            members: Slab::new(),
            gathering: Gathering::default(),
            current: None,
            pending: HashMap::new(),
            early: Earlies::default(),
            pending_chunks: 0,
            promised_slots: 0,
            promised_blocks: 0,
            held: VecDeque::new(),
            held_of: HashMap::new(),
            may_retry: false,
            reads: Slab::new(),
            scrubs: VecDeque::new(),
            scrub_cursor: Default::default(),
            published: Published { generation, entries: loaded.entries },
            checkpoint: None,
            // What is damaged is written anew.
            wants_checkpoint: !loaded.damage.is_empty(),
            sealed: match replayed.is_sealed {
                true => replayed.end.sequence - 1,
                false => replayed.proven,
            },
            room_bytes: 0,
            written_pages: written,
            is_writing_ahead: false,
            is_full: false,
            vacating: 0,
            residence: None,
            watch: None,
            held_by: Default::default(),
            staging: Class::default(),
            failed: None,
            damage: loaded.damage,
            counts: StoreStats {
                records_replayed: replayed.records,
                torn_tail_bytes: replayed.torn_bytes,
                ..StoreStats::default()
            },
            answers: Vec::new(),
            ended: Vec::new(),
            #[cfg(test)]
            bug: None,
        };
        core.measure_room();
        Ok(core)
    }
}

fn no_superblock() -> OpenError {
    let why = String::from("neither superblock is whole");
    OpenError::Checkpoint { file: super::DISK_NAME.into(), why }
}

/// Makes a store where there never was one.
fn make(
    disk: &mut Blocking<'_>,
    config: &CoreConfig,
    first_sequence: u64,
) -> Result<Superblock, OpenError> {
    let page_count = disk.disk().page_count();
    let layout = Layout::new(page_count, config.log_pages);
    let layout = layout.ok_or(OpenError::TooSmall { pages: page_count })?;
    // The superblock of a store that was being made may be there in part; but nothing was ever
    // written to its log then.
    let mut is_blank = true;
    for copy in 0..super::layout::LOG_COPIES {
        let first = disk.page(layout.log_page(copy, 0)).map_err(io_error(MediaOp::Read))?;
        is_blank &= first.is_some_and(|page| page.iter().all(|byte| *byte == 0));
    }
    if !is_blank {
        return Err(no_superblock());
    }
    let ids = (config.store_id, config.log_nonce);
    create(disk, layout, ids, config.is_sparse, first_sequence).map_err(io_error(MediaOp::Create))
}

/// Reads the newest generation that is whole, or what there is of the newest.
///
/// With `settles` what was read is made to last, unless changes are lost.
pub(super) fn read(
    disk: &mut Blocking<'_>,
    superblocks: Superblocks,
    settles: bool,
) -> Result<Opened, OpenError> {
    let Superblocks { found, mut damage, .. } = superblocks;
    // Whatever came before the start of any generation was durable.
    let proven = found.iter().map(|found| found.start.sequence - 1).max().unwrap_or(0);
    let mut whole = None;
    for superblock in &found {
        let loaded = load(disk, superblock).map_err(io_error(MediaOp::Read))?;
        damage.extend(loaded.damage.iter().cloned());
        if loaded.damage.is_empty() {
            whole = Some((*superblock, loaded));
            break;
        }
    }
    let (superblock, mut loaded) = match (whole, found.first()) {
        (Some(whole), _) => whole,
        (None, Some(newest)) => {
            let mut loaded = load(disk, newest).map_err(io_error(MediaOp::Read))?;
            // Which chunks had their slices in what is lost, nothing tells.
            loaded.map.suspect_all();
            (*newest, loaded)
        }
        (None, None) if damage.is_empty() => return Err(OpenError::NoStore),
        (None, None) => return Err(no_superblock()),
    };
    let key = LogKey::new(superblock.log_nonce);
    let tape = Tape::new(&superblock.layout, key, superblock.start.page);
    let log = Log::new(superblock.layout.log_pages, 0, superblock.start, superblock.start);
    let group_bytes_max = log.group_bytes_max() as usize + PAGE_BYTES;
    let (layout, start) = (&superblock.layout, superblock.start);
    let mut replay = Replay { layout, tape, disk, group_bytes_max, start, proven };
    let replayed = match replay.run(&mut loaded.map) {
        Ok(replayed) => replayed,
        Err(ReplayError::Io(error)) => return Err(io_error(MediaOp::Read)(error)),
        Err(ReplayError::Apply { offset, source }) => {
            return Err(OpenError::Apply { file: super::DISK_NAME.into(), offset, source });
        }
    };
    let mut replayed = replayed;
    replayed.proven = replay.proven;
    damage.extend(replayed.damage.iter().cloned());
    if settles && !loaded.map.is_lossy {
        settle(&mut replay, &replayed).map_err(io_error(MediaOp::Write))?;
    }
    loaded.damage = damage;
    let before = found.iter().find(|found| found.generation + 1 == superblock.generation);
    let floor = before.map_or(superblock.start.page, |before| before.start.page);
    Ok(Opened { superblock, loaded, replayed, floor })
}

/// Makes last what was read: it may have been in a cache only, since the server before may have
/// ended before its flush, or after one that failed.
fn settle(replay: &mut Replay<'_, '_>, replayed: &Replayed) -> io::Result<()> {
    for page in &replayed.unproven {
        let at = replay.layout.data_page(*page);
        if let Some(bytes) = replay.disk.page(at)? {
            replay.disk.write(at, &bytes[..])?;
        }
    }
    replay.tape.write_back(replay.disk)?;
    replay.disk.flush()
}

/// The pages that no slice has.
///
/// Those behind the `written` first ones, and behind the last one that some slice has, are used
/// when they were written once. Gives how many pages were.
fn space_of(layout: &Layout, loaded: &Loaded, written: u32) -> Result<(Space, u32), OpenError> {
    let mut space = Space::new(layout.data_pages + 1);
    let claimed = space.claim(loaded.map.pages(), loaded.map.is_lossy);
    let highest = claimed.map_err(|PageClash(page)| OpenError::Page { page })?;
    let written = written.max(highest);
    while let Some(extent) = space.unbacked(u32::MAX).filter(|extent| extent.page <= written) {
        let count = extent.count.min(written - extent.page + 1);
        space.back(Extent { count, ..extent });
    }
    Ok((space, written))
}
