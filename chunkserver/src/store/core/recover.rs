//! Recovery: the newest generation that is whole, and what the log says since
//! (docs/store-core.md section 8).

use std::io;

use towpath_disk::PageNumber;

use super::away::Away;
use super::blocking::Blocking;
use super::foreign::clear_for_store;
use super::join::LOGGED_PAGES_MAX;
use super::layout::Layout;
use super::load::{Loaded, load};
use super::log::Log;
use super::open::{io_error, space_of};
use super::page::{Kind, PAGE_BYTES, PageBytes, PageError, open as open_page};
use super::replay::{Replay, ReplayError, Replayed};
use super::ring::Ring;
use super::space::{PageClash, Pages};
use super::superblock::{Superblock, decode_copies, encode_page};
use super::tape::Tape;
use super::{damage_at, map_damage};
use crate::store::damage::{Damage, DamageKind};
use crate::store::error::OpenError;
use crate::store::media::MediaOp;
use crate::store::record::LogKey;

/// The numbers of generations on one disk lie closer together: a page that says otherwise is none
/// of ours.
const GENERATIONS_APART_MAX: u64 = 1 << 32;

/// Pages that get their room together, 1 MiB.
const ROOM_PAGES: u32 = 256;

/// The superblocks that are there, the newest first, and what is wrong with others.
#[derive(Default)]
pub(super) struct Superblocks {
    pub(super) found: Vec<Superblock>,
    copies: Vec<Superblock>,
    damage: Vec<Damage>,
    /// Pages for superblocks that are all zeros.
    blank: Vec<PageNumber>,
}

impl Superblocks {
    fn note(&mut self, at: PageNumber, why: &str) {
        self.damage.push(map_damage(at, why));
    }

    /// Takes in what a page has that is for superblocks of even generations, or of odd ones.
    fn look(&mut self, disk: &mut Blocking<'_>, at: PageNumber, odd: u64) -> Result<(), OpenError> {
        let Some(page) = disk.page(at).map_err(io_error(MediaOp::Read))? else {
            self.note(at, "a superblock cannot be read");
            return Ok(());
        };
        if is_blank(&page) {
            self.blank.push(at);
            return Ok(());
        }
        let is_here =
            |found: &Superblock| found.generation % 2 == odd && found.layout.superblock(odd) == at;
        match Superblock::decode(&page) {
            Ok(superblock) if is_here(&superblock) => self.found.push(superblock),
            Err(PageError::Version(version)) => {
                let why = format!("it is of format version {version}");
                return Err(OpenError::Checkpoint { file: super::DISK_NAME.into(), why });
            }
            _ => self.note(at, "a superblock is damaged"),
        }
        let [own, other] = decode_copies(&page);
        self.copies.extend(own.filter(is_here));
        self.copies.extend(other.filter(|copy| copy.generation % 2 != odd));
        Ok(())
    }
}

pub(super) fn is_blank(page: &PageBytes) -> bool {
    page.iter().all(|byte| *byte == 0)
}

pub(super) fn no_superblock() -> OpenError {
    let why = String::from("neither superblock is whole");
    OpenError::Checkpoint { file: super::DISK_NAME.into(), why }
}

/// Reads both pages of superblocks, and the copies that each has of both.
pub(super) fn read_superblocks(disk: &mut Blocking<'_>) -> Result<Superblocks, OpenError> {
    let mut superblocks = Superblocks::default();
    superblocks.look(disk, PageNumber(0), 0)?;
    // The disk may be longer than its store since that was made, or shorter.
    let page_count = superblocks.found.iter().chain(&superblocks.copies).next();
    let page_count = page_count.map_or(disk.disk().page_count(), |any| any.layout.page_count);
    superblocks.look(disk, PageNumber(page_count - 1), 1)?;
    let copies = std::mem::take(&mut superblocks.copies);
    superblocks.found.extend(copies);
    // Where a copy has the number of a superblock, that comes first.
    superblocks.found.sort_by_key(|found| std::cmp::Reverse(found.generation));
    superblocks.found.dedup_by_key(|found| found.generation);
    if !superblocks.found.is_empty() {
        for at in std::mem::take(&mut superblocks.blank) {
            superblocks.note(at, "a superblock is missing");
        }
    }
    Ok(superblocks)
}

/// What has been read of a store.
pub(super) struct Opened {
    pub(super) superblock: Superblock,
    /// How the log lies, as the newest superblock has it.
    pub(super) ring: Ring,
    /// The number of the next generation.
    pub(super) next_generation: u64,
    pub(super) loaded: Loaded,
    pub(super) replayed: Replayed,
    /// The first page of the log that a restart may need.
    pub(super) floor: u64,
    /// The pages that no slice has, and how many were written once; none where changes are lost.
    pub(super) space: Option<(Pages, u32)>,
    /// Slices that are in the log and not at their pages.
    pub(super) away: Away,
}

/// A generation with what the log says since.
struct Generation<'a> {
    superblock: &'a Superblock,
    loaded: Loaded,
    replayed: Replayed,
    tape: Tape<'a>,
}

/// Reads the newest generation that is whole and from which the log follows, or what there is of
/// the newest. The map tells whether changes are lost, so that the store takes no others: whoever
/// opens a store and whoever checks it ask the same.
///
/// With `settles` what was read is made to last, unless changes are lost.
pub(super) fn read(
    disk: &mut Blocking<'_>,
    superblocks: Superblocks,
    settles: bool,
) -> Result<Opened, OpenError> {
    let Superblocks { found, mut damage, .. } = superblocks;
    let Some(newest) = found.first() else {
        clear_for_store(disk, false)?;
        return Err(OpenError::NoStore);
    };
    let are_superblocks_whole = damage.is_empty();
    let cut = cut_off(disk, &newest.layout)?;
    let Generation { superblock, mut loaded, replayed, mut tape } =
        choose(disk, &found, &mut damage)?;
    damage.extend(replayed.damage.iter().cloned());
    loaded.map.is_lossy |= cut.is_some();
    damage.extend(cut);
    let mut space = None;
    if !loaded.map.is_lossy {
        match space_of(superblock, &loaded.map) {
            Ok(found) => space = Some(found),
            Err(PageClash(page)) => {
                let why = format!("page {page} is used by two slices, or is not there");
                let offset = superblock.layout.data_page(page).byte_offset();
                damage.push(damage_at(offset, DamageKind::Misfit { why }));
                loaded.map.is_lossy = true;
            }
        }
    }
    if settles && !loaded.map.is_lossy {
        let pages_used = loaded.map.pages_used();
        settle(disk, superblock, &found, (&mut tape, &replayed, pages_used))
            .map_err(io_error(MediaOp::Write))?;
    }
    let away = find_away(disk, &tape, &replayed, &superblock.layout, &mut damage)
        .map_err(io_error(MediaOp::Read))?;
    loaded.damage = damage;
    let is_newest = superblock == newest && are_superblocks_whole;
    let next_generation =
        next_generation(disk, superblock, newest, is_newest).map_err(io_error(MediaOp::Read))?;
    let before = found.iter().find(|found| found.generation < superblock.generation);
    let floor = before.map_or(superblock.start.page, |before| before.start.page);
    let ring = newest.ring;
    Ok(Opened {
        superblock: *superblock,
        ring,
        next_generation,
        loaded,
        replayed,
        floor,
        space,
        away,
    })
}

/// The slices whose bytes the log has. One whose bytes are damaged there may be at home already.
fn find_away(
    disk: &mut Blocking<'_>,
    tape: &Tape<'_>,
    replayed: &Replayed,
    layout: &Layout,
    damage: &mut Vec<Damage>,
) -> io::Result<Away> {
    let mut away = Away::default();
    for (&page, slice) in &replayed.logged {
        let bytes = slice.logged_at.and_then(|at| tape.page(at, &|bytes| slice.is(bytes)));
        match bytes {
            Some(bytes) => {
                let copy = disk.memory().frozen_page(|page| page.copy_from_slice(bytes))?;
                away.insert(page, copy);
            }
            None => {
                let at = layout.data_page(page);
                if disk.page(at)?.is_none_or(|bytes| !slice.is(&bytes[..])) {
                    let kind = DamageKind::Slice { chunk: slice.chunk, slice: slice.slice };
                    damage.push(damage_at(at.byte_offset(), kind));
                }
            }
        }
    }
    Ok(away)
}

/// What the disk lacks of its store. Where it has not even all of the map, there is nothing to go
/// on with.
fn cut_off(disk: &Blocking<'_>, layout: &Layout) -> Result<Option<Damage>, OpenError> {
    let (pages, wanted) = (disk.disk().page_count(), layout.page_count);
    if pages >= wanted {
        return Ok(None);
    }
    let [has, wants] = [pages, wanted].map(|pages| PageNumber(pages).byte_offset());
    if pages < layout.metadata_pages() {
        return Err(OpenError::Cut { has, wants });
    }
    Ok(Some(damage_at(has, DamageKind::Cut { wants })))
}

/// The newest generation that is whole and from which the log follows. Where there is none, the
/// newest that is whole, with those chunks suspect of which the log says what cannot be; and where
/// there is none of these either, what there is of the newest, with all chunks suspect.
fn choose<'a>(
    disk: &mut Blocking<'_>,
    found: &'a [Superblock],
    damage: &mut Vec<Damage>,
) -> Result<Generation<'a>, OpenError> {
    // Whatever came before the start of any generation was durable.
    let proven = found.iter().map(|found| found.start.sequence - 1).max().unwrap_or(0);
    let mut odd: Option<(&Superblock, u64, String)> = None;
    // No page of the log was written that the newest superblock knows nothing of.
    let ring = found.first().map_or(Ring::new(1), |newest| newest.ring);
    for superblock in found {
        let loaded = load(disk, superblock).map_err(io_error(MediaOp::Read))?;
        damage.extend(loaded.damage.iter().cloned());
        if !loaded.damage.is_empty() {
            continue;
        }
        match replay(disk, (superblock, ring), loaded, proven, false) {
            Err(ReplayError::Io(error)) => return Err(io_error(MediaOp::Read)(error)),
            Err(ReplayError::Apply { offset, source }) => {
                let generation = superblock.generation;
                let why = format!("the log does not follow from generation {generation}: {source}");
                odd.get_or_insert((superblock, offset, why));
            }
            // Of an older one the log may be gone.
            Ok(other) if odd.is_some() && other.loaded.map.is_lossy => {}
            Ok(whole) => {
                let log = superblock.layout.log_slot(0, ring.slot(superblock.start.page));
                damage.extend(odd.map(|(.., why)| map_damage(log, &why)));
                return Ok(whole);
            }
        }
    }
    let superblock = odd.as_ref().map_or(&found[0], |(superblock, ..)| superblock);
    let mut loaded = load(disk, superblock).map_err(io_error(MediaOp::Read))?;
    let is_lenient = odd.is_some();
    match odd {
        Some((_, offset, why)) => {
            loaded.map.is_lossy = true;
            damage.push(damage_at(offset, DamageKind::Misfit { why }));
        }
        // Which chunks had their slices in what is lost, nothing tells.
        None => loaded.map.suspect_all(),
    }
    replay(disk, (superblock, ring), loaded, proven, is_lenient).map_err(|error| match error {
        ReplayError::Io(error) => io_error(MediaOp::Read)(error),
        ReplayError::Apply { offset, source } => {
            OpenError::Apply { file: super::DISK_NAME.into(), offset, source }
        }
    })
}

/// Applies what the log says since a generation to its map.
fn replay<'a>(
    disk: &mut Blocking<'_>,
    (superblock, ring): (&'a Superblock, Ring),
    mut loaded: Loaded,
    proven: u64,
    is_lenient: bool,
) -> Result<Generation<'a>, ReplayError> {
    let Superblock { layout, start, log_nonce, .. } = superblock;
    let tape = Tape::new(layout, ring, LogKey::new(*log_nonce), start.page);
    let log = Log::new(ring, 0, *start, *start);
    let group_bytes_max = log.group_bytes_max() as usize + (1 + LOGGED_PAGES_MAX) * PAGE_BYTES;
    let mut replay =
        Replay { layout, tape, disk, group_bytes_max, start: *start, proven, is_lenient };
    let mut replayed = replay.run(&mut loaded.map)?;
    replayed.proven = replay.proven;
    Ok(Generation { superblock, loaded, replayed, tape: replay.tape })
}

/// The number of the next generation: it is on the side that does not have this one, and neither
/// the superblock there nor any page of the directory there has it. A superblock that cannot be
/// read now may be read again later, so none counts as gone.
fn next_generation(
    disk: &mut Blocking<'_>,
    current: &Superblock,
    newest: &Superblock,
    is_newest: bool,
) -> io::Result<u64> {
    let Superblock { layout, store_id, generation, .. } = current;
    if is_newest {
        return Ok(generation + 1);
    }
    let page = disk.page(layout.directory_page(generation + 1, 0))?;
    let head = page.and_then(|page| Some(open_page(&page, Kind::Directory).ok()?.0));
    let written = head.filter(|head| head.store_id == *store_id).map(|head| head.generation);
    let written = written.filter(|written| written.abs_diff(*generation) < GENERATIONS_APART_MAX);
    // One that cannot be read may have the number that comes first.
    let highest = newest.generation.max(generation + 1).max(written.unwrap_or(0));
    Ok(highest + 2 - (highest + 1 - generation) % 2)
}

/// Gives pages of the map their room that records have taken which nothing proves: it may have been
/// lost with the flush that was to make both last. No generation in use has anything there. Where
/// there is none, a checkpoint will say so.
fn give_room(disk: &mut Blocking<'_>, superblock: &Superblock, pages_used: u32) {
    let first = superblock.map_pages_used.min(pages_used);
    let zeros = vec![0; ROOM_PAGES as usize * PAGE_BYTES];
    for (at, count) in superblock.layout.map_runs(first, pages_used) {
        for done in (0..count).step_by(ROOM_PAGES as usize) {
            let pages = (count - done).min(ROOM_PAGES) as usize;
            let at = PageNumber(at.0 + u64::from(done));
            if disk.write(at, &zeros[..pages * PAGE_BYTES]).is_err() {
                return;
            }
        }
    }
}

/// Makes last what was read: it may have been in a cache only, since the server before may have
/// ended before its flush, or after one that failed.
fn settle(
    disk: &mut Blocking<'_>,
    superblock: &Superblock,
    found: &[Superblock],
    (tape, replayed, map_pages_used): (&mut Tape<'_>, &Replayed, u32),
) -> io::Result<()> {
    let layout = &superblock.layout;
    for page in &replayed.unproven {
        let at = layout.data_page(*page);
        if let Some(bytes) = disk.page(at)? {
            disk.write(at, &bytes[..])?;
        }
    }
    tape.write_back(disk)?;
    let is_proven = replayed.proven + 1 >= replayed.end.sequence;
    if superblock.is_sparse && !is_proven {
        give_room(disk, superblock, map_pages_used);
    }
    // Each page of superblocks has copies of both, which older programs did not write. The one
    // that is in use is written last, when the other one has a copy of it.
    let is_other = |other: &&Superblock| other.generation.abs_diff(superblock.generation) % 2 == 1;
    let other = found.iter().find(is_other);
    for (generation, own, other) in [
        (superblock.generation + 1, other, Some(superblock)),
        (superblock.generation, Some(superblock), other),
    ] {
        let (at, bytes) = (layout.superblock(generation), encode_page(own, other));
        if disk.page(at)?.is_none_or(|found| found != bytes) {
            disk.flush()?;
            if disk.write(at, &bytes[..]).is_err() {
                // Nothing is lost yet, and all can be read: the next checkpoint meets it again.
                break;
            }
        }
    }
    disk.flush()
}
