//! A store that no server has: what is whole in it and what is not, and its repair.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use towpath_disk::{Disk, PageNumber};

use super::away::Away;
use super::blocking::Blocking;
use super::layout::Layout;
use super::map::Map;
use super::memory::Memory;
use super::open::{CoreConfig, io_error};
use super::recover::{Opened, read, read_superblocks};
use super::state::StoreCore;
use crate::store::check::{BadSlice, CheckReport, SliceRun};
use crate::store::error::{FlushFailed, OpenError};
use crate::store::media::MediaOp;
use crate::store::place::{LOST_PAGE, SliceRef};
use crate::store::slice::{ChunkId, slice_crc};

/// How long one wait of a repair is; there is always another one.
const WAIT: Duration = Duration::from_secs(10);

/// Why a store was not repaired.
#[derive(Debug, thiserror::Error)]
pub enum CoreRepairError {
    /// It cannot be read at all.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What is left could not be written.
    #[error(transparent)]
    Failed(#[from] FlushFailed),
    /// The system does not speak of the disk any more.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Looks at all that a store has on `disk`, and with `with_data` at each slice. Changes nothing.
///
/// # Errors
/// As [`StoreCore::open`]; [`OpenError::NoStore`] where there is none.
pub fn check_core(disk: &mut dyn Disk, with_data: bool) -> Result<CheckReport, OpenError> {
    let memory = Memory::new().map_err(io_error(MediaOp::Open))?;
    let mut disk = Blocking::new(disk, &memory);
    let superblocks = read_superblocks(&mut disk)?;
    let opened = read(&mut disk, superblocks, false)?;
    look(&mut disk, &opened, with_data).map_err(io_error(MediaOp::Read))
}

fn look(disk: &mut Blocking<'_>, opened: &Opened, with_data: bool) -> io::Result<CheckReport> {
    let Opened { superblock, loaded, replayed, away, .. } = opened;
    let (map, layout) = (&loaded.map, &superblock.layout);
    let mut report = CheckReport {
        generation: superblock.generation,
        chunks: map.chunks.len() as u64,
        slices: map.live_slices,
        records: replayed.records,
        torn_tail_bytes: replayed.torn_bytes,
        takes_changes: !map.is_lossy,
        damage: loaded.damage.clone(),
        suspect: map.chunks.iter().filter(|(_, c)| c.head.suspect).map(|(id, _)| *id).collect(),
        lost: lost(map, layout),
        ..CheckReport::default()
    };
    if with_data {
        look_at_data(disk, (map, away), layout, &mut report)?;
    }
    Ok(report)
}

/// The slices whose page is none, as runs.
fn lost(map: &Map, layout: &Layout) -> Vec<SliceRun> {
    let mut runs: Vec<SliceRun> = Vec::new();
    for (chunk, found) in &map.chunks {
        for (slice, _) in found.slices_from(0).filter(|(_, at)| !layout.has(at.page)) {
            match runs.last_mut() {
                Some(run) if run.chunk == *chunk && run.first + run.count == slice => {
                    run.count += 1;
                }
                _ => runs.push(SliceRun { chunk: *chunk, first: slice, count: 1 }),
            }
        }
    }
    runs
}

fn look_at_data(
    disk: &mut Blocking<'_>,
    (map, away): (&Map, &Away),
    layout: &Layout,
    report: &mut CheckReport,
) -> io::Result<()> {
    for (&chunk, found) in &map.chunks {
        let slices: Vec<(u64, SliceRef)> =
            found.slices_from(0).filter(|(_, at)| layout.has(at.page)).collect();
        // What is in the log was checked there.
        let is_at_home = |(_, at): &(u64, SliceRef)| away.get(at.page).is_none();
        report.slices_checked += slices.iter().filter(|slice| !is_at_home(slice)).count() as u64;
        let slices: Vec<_> = slices.into_iter().filter(is_at_home).collect();
        let wanted = (0..).zip(slices.iter().map(|(_, at)| layout.data_page(at.page)));
        let (checked, bad) = (&mut report.slices_checked, &mut report.bad_slices);
        disk.each(wanted, |number, page| {
            let (slice, at) = slices[number as usize];
            *checked += 1;
            let why = match page {
                Some(page) if slice_crc(chunk, slice, page) == at.crc => return,
                Some(_) => "does not have its checksum",
                None => "cannot be read",
            };
            let offset = layout.data_page(at.page).byte_offset();
            let why = format!("slice {slice} of chunk {chunk} {why} (offset {offset})");
            bad.push(BadSlice { chunk, slice, why });
        })?;
    }
    report.bad_slices.sort_by_key(|bad| (bad.chunk, bad.slice));
    Ok(())
}

/// Keeps all that is whole, and writes a sound generation of it; gives what was damaged before.
/// What is lost stays known: chunks of which a change is lost stay suspect. With `accept_loss`
/// those are served again as they are.
///
/// # Errors
/// See [`CoreRepairError`].
pub fn repair_core(
    mut disk: Box<dyn Disk>,
    config: &CoreConfig,
    accept_loss: bool,
) -> Result<CheckReport, CoreRepairError> {
    let memory = Memory::new()?;
    let (before, opened) = {
        let mut disk = Blocking::new(&mut *disk, &memory);
        let superblocks = read_superblocks(&mut disk)?;
        let mut opened = read(&mut disk, superblocks, true)?;
        let (pages, wanted) = (disk.disk().page_count(), opened.superblock.layout.page_count);
        if pages < wanted {
            let [has, wants] = [pages, wanted].map(|pages| PageNumber(pages).byte_offset());
            return Err(OpenError::Cut { has, wants }.into());
        }
        let before = look(&mut disk, &opened, false)?;
        let (map, layout) = (&mut opened.loaded.map, &opened.superblock.layout);
        if map.is_lossy {
            lose_double_claims(&mut disk, (map, &opened.away), layout)?;
        }
        map.accept(accept_loss);
        opened.space = None;
        opened.loaded.damage.clear();
        (before, opened)
    };
    let mut core = StoreCore::<Vec<u8>>::of(disk, memory, opened, config)?;
    core.request_checkpoint();
    while core.failure().is_none() && core.stats().checkpoints == 0 {
        core.turn(None)?;
        core.turn(Some(WAIT))?;
    }
    core.failure().map_or(Ok(before), |failed| Err(failed.into()))
}

/// Of slices that claim one page the page belongs to the one whose checksum it has. The record
/// that took the others away is lost. A page that is not there belongs to none.
fn lose_double_claims(
    disk: &mut Blocking<'_>,
    (map, away): (&mut Map, &Away),
    layout: &Layout,
) -> io::Result<()> {
    let mut claims: BTreeMap<u32, Vec<(ChunkId, u64, u32)>> = BTreeMap::new();
    for (chunk, found) in &map.chunks {
        for (slice, at) in found.slices_from(0) {
            claims.entry(at.page).or_default().push((*chunk, slice, at.crc));
        }
    }
    let is_odd = |page: u32, claims: usize| !layout.has(page) || claims > 1;
    for (page, claims) in claims.into_iter().filter(|(page, of)| is_odd(*page, of.len())) {
        let on_disk = match layout.has(page) {
            true => disk.page(layout.data_page(page))?,
            false => None,
        };
        let bytes = away.get(page).map(|bytes| &bytes[..]);
        let bytes = bytes.or(on_disk.as_ref().map(|bytes| &bytes[..]));
        let owns = |(chunk, slice, crc): &(ChunkId, u64, u32)| {
            bytes.is_some_and(|bytes| slice_crc(*chunk, *slice, bytes) == *crc)
        };
        let owner = claims.iter().position(owns);
        for (number, (chunk, slice, crc)) in claims.into_iter().enumerate() {
            if Some(number) != owner {
                map.set(chunk, slice, SliceRef { page: LOST_PAGE, crc });
            }
        }
    }
    Ok(())
}
