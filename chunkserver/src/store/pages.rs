//! The segment files, addressed by page, and the check of what is read from them.

use std::io;

use super::error::SliceCorrupt;
use super::header::data_name;
use super::map::{LOST_PAGE, SliceRef};
use super::media::{Media, MediaError, MediaOp};
use super::record::Extent;
use super::slice::{ChunkId, SLICE_BYTES, hole_crc, slice_crc};

/// The open segments.
pub(crate) struct Pages<F> {
    /// None for one that cannot be used.
    pub(crate) files: Vec<Option<F>>,
    pub(crate) segment_pages: u32,
    pub(crate) retried: u64,
    pub(crate) corrupt: u64,
}

/// A slice by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceName {
    pub(crate) chunk: ChunkId,
    pub(crate) slice: u64,
}

/// Why a slice could not be loaded.
pub(crate) enum SliceFault {
    Corrupt(SliceCorrupt),
    Media(MediaError),
}

impl<F> Pages<F> {
    pub(crate) fn new(segment_pages: u32) -> Self {
        Self { files: Vec::new(), segment_pages, retried: 0, corrupt: 0 }
    }

    /// Segment of a page, and its byte offset there.
    pub(crate) fn locate(&self, page: u32) -> (u32, u64) {
        (page / self.segment_pages, u64::from(page % self.segment_pages) * SLICE_BYTES as u64)
    }

    /// Whether the segment of a page can be used.
    pub(crate) fn has(&self, page: u32) -> bool {
        self.file(page / self.segment_pages).is_ok()
    }

    /// The file of a segment.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when it is missing or another file.
    pub(crate) fn file(&self, segment: u32) -> io::Result<&F> {
        let file = self.files.get(segment as usize).and_then(Option::as_ref);
        file.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the segment is not there"))
    }

    /// Gives pages that follow each other in one segment room on the medium.
    pub(crate) fn allocate<M: Media<File = F>>(
        &self,
        media: &M,
        extent: Extent,
    ) -> Result<(), MediaError> {
        let (segment, at) = self.locate(extent.page);
        let end = at + u64::from(extent.count) * SLICE_BYTES as u64;
        self.file(segment)
            .and_then(|file| media.allocate(file, at..end))
            .map_err(|e| MediaError::at(MediaOp::Write, &data_name(segment), at)(e))
    }

    /// Whole pages in the file of a segment, its header included.
    pub(crate) fn count_of<M: Media<File = F>>(
        &self,
        media: &M,
        segment: u32,
    ) -> Result<u32, MediaError> {
        let byte_len = self
            .file(segment)
            .and_then(|file| media.len(file))
            .map_err(|e| MediaError::at(MediaOp::Read, &data_name(segment), 0)(e))?;
        Ok((byte_len / SLICE_BYTES as u64).min(self.segment_pages.into()) as u32)
    }

    pub(crate) fn write<M: Media<File = F>>(
        &self,
        media: &M,
        page: u32,
        skip: u64,
        bytes: &[u8],
    ) -> Result<(), MediaError> {
        let (segment, offset) = self.locate(page);
        let at = offset + skip;
        self.file(segment)
            .and_then(|file| media.write_at(file, at, bytes))
            .map_err(|e| MediaError::at(MediaOp::Write, &data_name(segment), at)(e))
    }

    /// Reads pages that follow each other in one segment, unchecked.
    pub(crate) fn read<M: Media<File = F>>(
        &self,
        media: &M,
        page: u32,
        buf: &mut [u8],
    ) -> Result<(), MediaError> {
        if page == LOST_PAGE {
            let lost = io::Error::new(io::ErrorKind::NotFound, "its segment was lost");
            return Err(MediaError::at(MediaOp::Read, "the slice", 0)(lost));
        }
        let (segment, offset) = self.locate(page);
        self.file(segment)
            .and_then(|file| media.read_at(file, offset, buf))
            .map_err(|e| MediaError::at(MediaOp::Read, &data_name(segment), offset)(e))
    }

    /// Fills `buf`, one slice, and checks it. An error or a wrong checksum is tried once more,
    /// since a bad read is not yet a bad medium. On failure `buf` is zeroed.
    pub(crate) fn load<M: Media<File = F>>(
        &mut self,
        media: &M,
        name: SliceName,
        at: SliceRef,
        buf: &mut [u8],
    ) -> Result<(), SliceFault> {
        if at.is_hole() {
            buf.fill(0);
            return Ok(());
        }
        let first = self.read(media, at.page, buf);
        if first.is_ok() && slice_crc(name.chunk, name.slice, buf) == at.crc {
            return Ok(());
        }
        self.load_again(media, name, at, buf)
    }

    /// The second and last try at a slice.
    pub(crate) fn load_again<M: Media<File = F>>(
        &mut self,
        media: &M,
        name: SliceName,
        at: SliceRef,
        buf: &mut [u8],
    ) -> Result<(), SliceFault> {
        self.retried += 1;
        let read = self.read(media, at.page, buf);
        if read.is_ok() && slice_crc(name.chunk, name.slice, buf) == at.crc {
            return Ok(());
        }
        buf.fill(0);
        read.map_err(SliceFault::Media)?;
        self.corrupt += 1;
        let (segment, offset) = self.locate(at.page);
        let SliceName { chunk, slice } = name;
        let file = data_name(segment);
        Err(SliceFault::Corrupt(SliceCorrupt { chunk, slice, file, offset }))
    }
}

/// The checksum that stands for a slice: the stored one, or that of zeros.
pub(crate) fn stored_crc(name: SliceName, at: SliceRef) -> u32 {
    if at.is_hole() { hole_crc(name.chunk, name.slice) } else { at.crc }
}
