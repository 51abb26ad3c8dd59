//! The segment files of an old store, opened: those that can be used, and the pages in them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::folder::{OldFolder, byte_len};
use super::header::{FILE_HEADER_BYTES, FileHeader, FileKind, HeaderError, data_name};
use super::image::is_bad_place;
use super::map::ChunkMap;
use crate::store::error::{OpenError, SliceCorrupt};
use crate::store::media::{MediaError, MediaOp};
use crate::store::place::{LOST_PAGE, SliceRef};
use crate::store::slice::{ChunkId, SLICE_BYTES, slice_crc};

/// The segments up to the last one that holds a slice.
pub(super) struct Segments {
    /// For each its file and the whole pages in it, the header included; none for one that cannot
    /// be used.
    files: Vec<Option<(File, u32)>>,
    segment_pages: u32,
}

/// Why a slice could not be loaded.
pub(super) enum SliceFault {
    Corrupt(SliceCorrupt),
    Media(MediaError),
}

impl Segments {
    /// Opens those that hold slices of `map`; `of` is the header of its file.
    pub(super) fn open(
        folder: &OldFolder,
        names: &[String],
        of: &FileHeader,
        map: &ChunkMap,
    ) -> Result<Self, OpenError> {
        let segment_pages = of.segment_pages;
        let used = map.pages().max().map_or(0, |page| page / segment_pages + 1);
        let mut files = Vec::new();
        for index in 0..used {
            let name = data_name(index);
            let is_there = names.contains(&name);
            files.push(if is_there { open_segment(folder, &name, of, index)? } else { None });
        }
        Ok(Self { files, segment_pages })
    }

    fn file_of(&self, page: u32) -> Option<(&File, u32, u64)> {
        let (segment, at) = (page / self.segment_pages, page % self.segment_pages);
        let (file, pages) = self.files.get(segment as usize)?.as_ref()?;
        (at < *pages).then_some((file, segment, u64::from(at) * SLICE_BYTES as u64))
    }

    /// Whether there is a place for `page`.
    pub(super) fn have(&self, page: u32) -> bool {
        page != LOST_PAGE && self.file_of(page).is_some()
    }

    /// Fills `buf`, one slice, and checks it. An error or a wrong checksum is tried once more,
    /// since a bad read is not yet a bad medium.
    pub(super) fn load(
        &self,
        chunk: ChunkId,
        slice: u64,
        at: SliceRef,
        buf: &mut [u8],
    ) -> Result<(), SliceFault> {
        let Some((file, segment, offset)) = self.file_of(at.page) else {
            let gone = io::Error::new(io::ErrorKind::NotFound, "the segment is not there");
            return Err(SliceFault::Media(MediaError::at(MediaOp::Read, "the slice", 0)(gone)));
        };
        let mut read = Ok(());
        for _ in 0..2 {
            read = file.read_exact_at(buf, offset);
            if read.is_ok() && slice_crc(chunk, slice, buf) == at.crc {
                return Ok(());
            }
        }
        let file = data_name(segment);
        read.map_err(MediaError::at(MediaOp::Read, &file, offset)).map_err(SliceFault::Media)?;
        Err(SliceFault::Corrupt(SliceCorrupt { chunk, slice, file, offset }))
    }
}

/// Opens a segment; none where the file is another one. A header that is damaged is no loss: the
/// map says which segment this is, and the checksums of slices whether it is.
fn open_segment(
    folder: &OldFolder,
    name: &str,
    of: &FileHeader,
    index: u32,
) -> Result<Option<(File, u32)>, OpenError> {
    let file = folder.open(name)?;
    let pages = (byte_len(&file, name)? / SLICE_BYTES as u64).min(of.segment_pages.into()) as u32;
    let mut page = [0; FILE_HEADER_BYTES];
    match file.read_exact_at(&mut page, 0) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof || is_bad_place(&e) => {
            return Ok(Some((file, pages)));
        }
        Err(e) => return Err(MediaError::at(MediaOp::Read, name, 0)(e).into()),
    }
    let header = FileHeader::parse(FileKind::Data, &page);
    match header.and_then(|header| header.belongs(of, u64::from(index))) {
        Ok(()) => Ok(Some((file, pages))),
        Err(source @ HeaderError::Version { .. }) => {
            Err(OpenError::Header { file: name.to_owned(), source })
        }
        Err(HeaderError::Foreign { .. }) => Ok(None),
        Err(_) => {
            let others = [FileKind::Log, FileKind::Map];
            let is_other = others.iter().any(|kind| FileHeader::parse(*kind, &page).is_ok());
            Ok((!is_other).then_some((file, pages)))
        }
    }
}
