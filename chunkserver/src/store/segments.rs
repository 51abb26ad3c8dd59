//! The segment files, opened: those that can be used, and what is wrong with the others.

use std::io;

use super::damage::{Damage, DamageKind};
use super::error::OpenError;
use super::header::{FILE_HEADER_BYTES, FileHeader, FileKind, HeaderError, data_name};
use super::image::is_bad_place;
use super::map::ChunkMap;
use super::media::{Media, MediaError, MediaOp};
use super::pages::Pages;
use super::slice::SLICE_BYTES;

/// What all files of a store share, from the header of one.
pub(super) fn identity_of(header: &FileHeader) -> FileHeader {
    FileHeader::new(FileKind::Map, header.store_id, 0, header.segment_pages)
}

/// Segments up to the last one that holds a slice.
pub(super) fn segments_used(identity: &FileHeader, map: &ChunkMap) -> u32 {
    map.pages().max().map_or(0, |page| page / identity.segment_pages + 1)
}

/// The segments as they were found.
pub(super) struct Segments<F> {
    pub(super) pages: Pages<F>,
    /// Those whose header is damaged, and known.
    pub(super) bad_headers: Vec<u32>,
    /// Those whose file ends before their last slice does, with the pages that it has.
    pub(super) cut: Vec<(u32, u32)>,
    pub(super) damage: Vec<Damage>,
}

impl<F> Segments<F> {
    /// Whether the medium has a place for `page`.
    pub(super) fn have(&self, page: u32) -> bool {
        let (segment, at) = (page / self.pages.segment_pages, page % self.pages.segment_pages);
        let is_cut = self.cut.iter().any(|(index, pages)| *index == segment && at >= *pages);
        self.pages.has(page) && !is_cut
    }
}

pub(super) fn open_segments<M: Media>(
    media: &M,
    names: &[String],
    identity: &FileHeader,
    map: &ChunkMap,
) -> Result<Segments<M::File>, OpenError> {
    let used = segments_used(identity, map);
    let pages = Pages::new(identity.segment_pages);
    let mut segments =
        Segments { pages, bad_headers: Vec::new(), cut: Vec::new(), damage: Vec::new() };
    let ends = ends_of(identity, map);
    loop {
        let index = segments.pages.files.len() as u32;
        let name = data_name(index);
        let is_there = names.contains(&name);
        if index >= used && !is_there {
            return Ok(segments);
        }
        let found =
            if is_there { open_segment(media, &name, identity, index)? } else { Found::Not };
        let (file, kind) = match found {
            Found::Whole(file) => (Some(file), None),
            // No slice is in it: a crash interrupted its making, and it will be made anew.
            Found::BadHeader(_) if index >= used => return Ok(segments),
            Found::BadHeader(file) => {
                segments.bad_headers.push(index);
                (Some(file), Some(DamageKind::SegmentHeader))
            }
            Found::Other(why) => (None, Some(segment_gone(identity, map, index, why.to_string()))),
            Found::Not => {
                let why = String::from("the file is missing");
                (None, Some(segment_gone(identity, map, index, why)))
            }
        };
        let is_usable = file.is_some();
        segments.pages.files.push(file);
        let damaged = kind.map(|kind| Damage { file: name.clone(), offset: 0, kind });
        segments.damage.extend(damaged);
        if is_usable && let Some(end) = ends.get(index as usize) {
            let pages = segments.pages.count_of(media, index)?;
            if pages < *end {
                segments.cut.push((index, pages));
                segments.damage.push(cut_off(identity, map, index, pages));
            }
        }
    }
}

/// For each segment up to the last one that holds a slice, the pages up to its last slice.
fn ends_of(identity: &FileHeader, map: &ChunkMap) -> Vec<u32> {
    let mut ends = vec![0; segments_used(identity, map) as usize];
    for page in map.pages() {
        let end = &mut ends[(page / identity.segment_pages) as usize];
        *end = (page % identity.segment_pages + 1).max(*end);
    }
    ends
}

fn cut_off(identity: &FileHeader, map: &ChunkMap, index: u32, pages: u32) -> Damage {
    let size = identity.segment_pages;
    let is_cut = |page: &u32| page / size == index && page % size >= pages;
    let slices = map.pages().filter(is_cut).count() as u64;
    let why = String::from("the file ends before its last slice does");
    let offset = u64::from(pages) * SLICE_BYTES as u64;
    Damage { file: data_name(index), offset, kind: DamageKind::Segment { why, slices } }
}

fn segment_gone(identity: &FileHeader, map: &ChunkMap, index: u32, why: String) -> DamageKind {
    let slices = map.pages().filter(|page| page / identity.segment_pages == index).count() as u64;
    DamageKind::Segment { why, slices }
}

/// What is found in the place of a segment.
enum Found<F> {
    Whole(F),
    /// Its header says nothing.
    BadHeader(F),
    /// Its header is sound, and that of another file.
    Other(HeaderError),
    Not,
}

fn open_segment<M: Media>(
    media: &M,
    name: &str,
    identity: &FileHeader,
    index: u32,
) -> Result<Found<M::File>, OpenError> {
    let file = media.open(name).map_err(MediaError::at(MediaOp::Open, name, 0))?;
    let mut page = [0; FILE_HEADER_BYTES];
    match media.read_at(&file, 0, &mut page) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof || is_bad_place(&e) => {
            return Ok(Found::BadHeader(file));
        }
        Err(e) => return Err(MediaError::at(MediaOp::Read, name, 0)(e).into()),
    }
    let header = FileHeader::parse(FileKind::Data, &page);
    Ok(match header.and_then(|header| header.belongs(identity, u64::from(index))) {
        Ok(()) => Found::Whole(file),
        Err(source @ HeaderError::Version { .. }) => {
            return Err(OpenError::Header { file: name.to_owned(), source });
        }
        Err(error @ HeaderError::Foreign { .. }) => Found::Other(error),
        Err(error) => {
            let others = [FileKind::Log, FileKind::Map];
            let is_other = others.iter().any(|kind| FileHeader::parse(*kind, &page).is_ok());
            if is_other { Found::Other(error) } else { Found::BadHeader(file) }
        }
    })
}
