//! A store that no server has: what is whole in it and what is not, and its repair.

use std::collections::BTreeMap;

use thiserror::Error;

use super::checkpoint::{encode_checkpoint, write_map};
use super::config::StoreConfig;
use super::damage::{Damage, DamageKind};
use super::engine::Store;
use super::error::{FlushFailed, OpenError};
use super::header::{
    FileHeader, FileKind, MAP_TEMPORARY, data_name, log_name, map_name, number_in,
};
use super::image::read_log;
use super::limits::{LOG_BYTES_MAX, LOG_BYTES_MIN};
use super::load::{Loaded, load, read_map};
use super::log::make_log;
use super::map::{ChunkMap, LOST_PAGE, SliceRef};
use super::mark::Mark;
use super::media::{Media, MediaError, MediaOp};
use super::open::{list, lock};
use super::pages::{Pages, SliceFault, SliceName};
use super::segments::{Segments, identity_of, open_segments};
use super::settle::set_aside;
use super::slice::{ChunkId, SLICE_BYTES, slice_crc};

/// Slices of one chunk that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceRun {
    /// The chunk.
    pub chunk: ChunkId,
    /// Index of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// A slice that was read and is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSlice {
    /// The chunk.
    pub chunk: ChunkId,
    /// Index of the slice.
    pub slice: u64,
    /// What is wrong with it, and where.
    pub why: String,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The current generation.
    pub generation: u64,
    /// Chunks that are known.
    pub chunks: u64,
    /// Slices that the map has.
    pub slices: u64,
    /// Records in the current log.
    pub records: u64,
    /// Bytes of an unfinished commit at the end of the current log.
    pub torn_tail_bytes: u64,
    /// What is damaged of headers, maps, logs and segment files.
    pub damage: Vec<Damage>,
    /// Chunks of which a change is lost.
    pub suspect: Vec<ChunkId>,
    /// Slices whose place is gone, with their segment.
    pub lost: Vec<SliceRun>,
    /// Slices that were read.
    pub slices_checked: u64,
    /// Those of them that are damaged.
    pub bad_slices: Vec<BadSlice>,
}

impl CheckReport {
    /// Nothing is damaged, and nothing lost.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
            && self.suspect.is_empty()
            && self.lost.is_empty()
            && self.bad_slices.is_empty()
    }

    /// Whether changes that were acknowledged are gone, so that a server takes no others.
    #[must_use]
    pub fn loses_records(&self) -> bool {
        self.damage.iter().any(|damage| damage.kind.loses_records())
    }
}

/// Looks at all that a store has on `media`, and with `with_data` at each slice. Changes nothing.
///
/// # Errors
/// As [`Store::open`]; [`OpenError::NoStore`] where there is none.
pub fn check<M: Media>(media: &mut M, with_data: bool) -> Result<CheckReport, OpenError> {
    lock(media)?;
    let Looked { mut report, loaded, mut segments, .. } = look(media)?;
    if with_data {
        check_data(media, &loaded.map, &mut segments, &mut report);
    }
    Ok(report)
}

/// What a store has, and what is wrong with it.
pub(super) struct Looked<F> {
    names: Vec<String>,
    mark: Option<Mark>,
    pub(super) loaded: Loaded<F>,
    pub(super) segments: Segments<F>,
    pub(super) report: CheckReport,
}

pub(super) fn look<M: Media>(media: &M) -> Result<Looked<M::File>, OpenError> {
    let names = list(media)?;
    let mark = Mark::read(media, &names)?;
    let loaded = load(media, &names, mark.as_ref())?.ok_or(OpenError::NoStore)?;
    let identity = identity_of(&loaded.header);
    let segments = open_segments(media, &names, &identity, &loaded.map)?;
    let map = &loaded.map;
    let is_gone = |page: u32| page == LOST_PAGE || !segments.have(page);
    let mut damage = loaded.damage.clone();
    damage.extend(segments.damage.iter().cloned());
    if loaded.map_again.is_none() && !loaded.is_lossy() {
        damage.extend(check_spare(media, &names, loaded.header.number - 1)?);
    }
    let report = CheckReport {
        generation: loaded.header.number,
        chunks: map.chunks.len() as u64,
        slices: map.live_slices,
        records: loaded.log.records,
        torn_tail_bytes: loaded.log.torn_bytes,
        damage,
        suspect: map.chunks.iter().filter(|(_, c)| c.suspect).map(|(id, _)| *id).collect(),
        lost: runs(map, is_gone),
        ..CheckReport::default()
    };
    Ok(Looked { names, mark, loaded, segments, report })
}

/// The slices whose page `is_of`, as runs.
fn runs(map: &ChunkMap, is_of: impl Fn(u32) -> bool) -> Vec<SliceRun> {
    let mut runs: Vec<SliceRun> = Vec::new();
    for (chunk, found) in &map.chunks {
        for (slice, _) in found.slices_from(0).filter(|(_, at)| is_of(at.page)) {
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

/// What is wrong with the generation before, which the next checkpoint writes over.
fn check_spare<M: Media>(
    media: &M,
    names: &[String],
    generation: u64,
) -> Result<Option<Damage>, OpenError> {
    let (log, map) = (log_name(generation), map_name(generation));
    if !names.contains(&log) || !names.contains(&map) {
        return Ok(None);
    }
    let spare = |file: &str, why: String| {
        Some(Damage { file: file.to_owned(), offset: 0, kind: DamageKind::Spare { why } })
    };
    let mut checkpoint = match read_map(media, generation)? {
        Ok(checkpoint) => checkpoint,
        Err(why) => return Ok(spare(&map, why)),
    };
    let image = match read_log(media, names, generation, Some(&checkpoint.header))? {
        Ok(image) => image,
        Err(why) => return Ok(spare(&log, why.to_string())),
    };
    let mut scan = image.scan(checkpoint.header.next_sequence, 0);
    let replayed = scan.replay(&mut checkpoint.map, &[]);
    if replayed.is_err() || replayed.is_ok_and(|lost| !lost.is_empty()) {
        return Ok(spare(&log, String::from("records of it are damaged")));
    }
    let damage = image.damage(&scan.differing);
    Ok(damage.first().and_then(|damage| spare(&log, format!("at offset {}", damage.offset))))
}

fn check_data<M: Media>(
    media: &M,
    map: &ChunkMap,
    segments: &mut Segments<M::File>,
    report: &mut CheckReport,
) {
    let mut buf = vec![0; SLICE_BYTES];
    for (chunk, found) in &map.chunks {
        for (slice, at) in found.slices_from(0).filter(|(_, at)| at.page != LOST_PAGE) {
            if !segments.have(at.page) {
                continue;
            }
            report.slices_checked += 1;
            let name = SliceName { chunk: *chunk, slice };
            let why = match segments.pages.load(media, name, at, &mut buf) {
                Ok(()) => continue,
                Err(SliceFault::Corrupt(corrupt)) => corrupt.to_string(),
                Err(SliceFault::Media(error)) => error.to_string(),
            };
            report.bad_slices.push(BadSlice { chunk: *chunk, slice, why });
        }
    }
}

/// Why a store was not repaired. What was damaged is still as it was, or set aside.
#[derive(Debug, Error)]
pub enum RepairError {
    /// A flush failed.
    #[error(transparent)]
    Failed(#[from] FlushFailed),
    /// The medium failed.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// What the repair did would not last: its checkpoint could not be written.
    #[error(
        "there is no room, or no file descriptor, for a new map and log: make room, then repair \
         again"
    )]
    NoRoom,
    /// The store cannot be read at all.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// What was damaged before.
    pub before: CheckReport,
    /// Files that were set aside, by their new names.
    pub aside: Vec<String>,
}

/// Keeps all that is whole, writes a sound generation of it, and sets damaged files aside; none is
/// deleted. What is lost stays known: slices that are gone read as damaged, and chunks of which a
/// change is lost stay suspect. With `accept_loss` those are served again as they are.
///
/// # Errors
/// See [`RepairError`].
pub fn repair<M: Media>(
    mut media: M,
    config: StoreConfig,
    accept_loss: bool,
) -> Result<Repaired, RepairError> {
    lock(&mut media)?;
    let looked = look(&media)?;
    let log_bytes = looked.loaded.log.log.size_bytes;
    let config = match (LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&log_bytes) {
        true => config.log_bytes(log_bytes),
        false => config,
    };
    let before = looked.report.clone();
    let cut = looked.segments.cut.clone();
    let mut aside = Vec::new();
    if before.loses_records() {
        aside = begin_anew(&media, looked, config.log_bytes)?;
    } else {
        drop(looked);
    }
    let mut store = Store::open_locked(media, config)?;
    let gone = store.lose_segments(&cut);
    if accept_loss {
        for chunk in store.map.chunks.values_mut().filter(|chunk| chunk.suspect) {
            // That it was finished may be what is lost.
            (chunk.suspect, chunk.unfinished) = (false, false);
        }
    }
    store.log.wants_checkpoint = true;
    store.checkpoint_if_due();
    if let Some(failed) = store.failure() {
        return Err(failed.into());
    }
    if store.log.deferred {
        return Err(RepairError::NoRoom);
    }
    aside.append(&mut store.make_segments(&gone)?);
    store.close()?;
    Ok(Repaired { before, aside })
}

/// Writes what is left as a generation after all that are there, then sets those aside; gives
/// their names.
fn begin_anew<M: Media>(
    media: &M,
    looked: Looked<M::File>,
    log_bytes: u64,
) -> Result<Vec<String>, MediaError> {
    let Looked { names, mark, loaded, segments, .. } = looked;
    let Loaded { header, mut map, log, .. } = loaded;
    lose_double_claims(media, &mut map, &segments.pages);
    let of_store = |name: &&String| number_in(name, "map.").or(number_in(name, "log.")).is_some();
    let old: Vec<_> = names.iter().filter(of_store).collect();
    let numbers = old.iter().filter_map(|n| number_in(n, "map.").or(number_in(n, "log.")));
    let number = numbers.max().unwrap_or(0) + 1;
    let marked = mark.filter(|mark| mark.store_id == header.store_id);
    let marked = marked.map_or(0, |mark| mark.durable_sequence);
    let header = FileHeader {
        number,
        next_sequence: log.log.next_sequence.max(marked + 1),
        log_nonce: media.random(),
        ..identity_of(&header)
    };
    make_log(media, &FileHeader { kind: FileKind::Log, ..header }, log_bytes)?;
    let flush_names = || media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0));
    let name = format!("{MAP_TEMPORARY}.repair");
    let file = media.create(&name).map_err(MediaError::at(MediaOp::Create, &name, 0))?;
    write_map(media, &name, &file, &encode_checkpoint(header, &map))?;
    flush_names()?;
    let to = map_name(number);
    media.rename(&name, &to).map_err(MediaError::at(MediaOp::Rename, &to, 0))?;
    flush_names()?;
    let mut aside = Vec::new();
    for name in old {
        aside.push(set_aside(media, &names, name)?);
    }
    flush_names()?;
    Ok(aside)
}

/// Of slices that claim one page the page belongs to the one whose checksum it has. The record
/// that took the others away is lost.
fn lose_double_claims<M: Media>(media: &M, map: &mut ChunkMap, pages: &Pages<M::File>) {
    let mut claims: BTreeMap<u32, Vec<(ChunkId, u64, u32)>> = BTreeMap::new();
    for (chunk, found) in &map.chunks {
        for (slice, at) in found.slices_from(0).filter(|(_, at)| at.page != LOST_PAGE) {
            claims.entry(at.page).or_default().push((*chunk, slice, at.crc));
        }
    }
    let mut buf = vec![0; SLICE_BYTES];
    for (page, claims) in claims.into_iter().filter(|(_, claims)| claims.len() > 1) {
        let is_read = pages.read(media, page, &mut buf).is_ok();
        let owns = |(chunk, slice, crc): &(ChunkId, u64, u32)| {
            is_read && slice_crc(*chunk, *slice, &buf) == *crc
        };
        let owner = claims.iter().position(owns);
        for (number, (chunk, slice, crc)) in claims.into_iter().enumerate() {
            if Some(number) != owner
                && let Some(found) = map.chunks.get_mut(&chunk)
            {
                let lost = SliceRef { page: LOST_PAGE, crc };
                found.set(slice, std::iter::once(lost), &mut |_| ());
            }
        }
    }
}

impl<M: Media> Store<M> {
    /// Counts what lies in segments that cannot be used as lost, and what lay behind the pages that
    /// the `cut` ones have; gives those that cannot be used.
    fn lose_segments(&mut self, cut: &[(u32, u32)]) -> Vec<u32> {
        let all = 0..self.pages.files.len() as u32;
        let gone: Vec<_> = all.filter(|index| self.pages.file(*index).is_err()).collect();
        let segment_pages = self.pages.segment_pages;
        for chunk in self.map.chunks.values_mut() {
            chunk.lose_pages(|page| {
                let (segment, at) = (page / segment_pages, page % segment_pages);
                gone.contains(&segment)
                    || cut.iter().any(|(index, pages)| *index == segment && at >= *pages)
            });
        }
        gone
    }

    /// Makes empty segments in the places of those that are `gone`, once the map on the medium
    /// says that nothing lies in them: before, each slice there would look like one that is whole.
    /// Gives the new names of the files that were there.
    fn make_segments(&self, gone: &[u32]) -> Result<Vec<String>, MediaError> {
        let names = list(&self.media)?;
        let mut aside = Vec::new();
        for index in gone {
            let name = data_name(*index);
            if names.contains(&name) {
                aside.push(set_aside(&self.media, &names, &name)?);
            }
            let (kind, number) = (FileKind::Data, u64::from(*index));
            let header = FileHeader { kind, number, ..self.identity };
            make_empty(&self.media, &name, &header)?;
        }
        self.media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0))?;
        Ok(aside)
    }
}

/// Makes a segment none of whose pages has room yet.
fn make_empty<M: Media>(media: &M, name: &str, header: &FileHeader) -> Result<(), MediaError> {
    let file = media.create(name).map_err(MediaError::at(MediaOp::Create, name, 0))?;
    media.write_at(&file, 0, &header.emit()).map_err(MediaError::at(MediaOp::Write, name, 0))?;
    media.fdatasync(&file).map_err(MediaError::at(MediaOp::Flush, name, 0))
}
