//! Room on the medium: pages are given out, and chunks made, only where it is there already.
//!
//! What a delete needs, room in the log and for the next checkpoint, is there before the chunk is
//! (docs/store-format.md section 4).

use std::time::Instant;

use super::engine::Store;
use super::error::{CommitStep, FlushFailed, Refused, WriteError};
use super::fullness::Fullness;
use super::header::{FILE_HEADER_BYTES, FileHeader, FileKind, data_name};
use super::limits::{
    BACK_PAGES_MAX, FULL_SAID_EVERY, MAP_CHUNK_BYTES_MAX, MAP_PAGE_BYTES, MAP_SLICE_BYTES_MAX,
    PROBE_PAGES, ROOM_AGAIN_PAGES, ROOM_AGAIN_SHARE,
};
use super::media::{Media, MediaError, MediaOp, write_zeros};
use super::record::Extent;
use super::slice::SLICE_BYTES;
use super::stats::StoreStats;

impl<M: Media> Store<M> {
    /// Gets room for more pages, in a new segment if all others have theirs; false when the medium
    /// or the capacity has no more.
    pub(crate) fn grow(&mut self) -> Result<bool, WriteError> {
        loop {
            match self.space.unbacked(self.back_pages) {
                None if self.space.may_grow() => {
                    if !self.add_segment(false)? {
                        return Ok(false);
                    }
                }
                None => return Ok(false),
                Some(extent) if self.back(extent)? => {
                    self.back_pages = (self.back_pages * 2).min(BACK_PAGES_MAX);
                    return Ok(true);
                }
                // The last of the room goes in small pieces; later tries begin with those.
                Some(extent) => {
                    self.back_pages = (extent.count / 2).max(1);
                    if extent.count == 1 {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Gets room for the pages of `extent` and for their part of the map; false when there is none.
    fn back(&mut self, extent: Extent) -> Result<bool, WriteError> {
        let pages = self.space.backed_pages() + u64::from(extent.count);
        let wanted = map_bytes(pages, self.chunks_staged()).max(pages * MAP_PAGE_BYTES);
        if !self.reserve_map(wanted)? {
            return Ok(false);
        }
        let has_room = self.allocates(extent)?;
        if has_room {
            self.space.back(extent);
        }
        Ok(has_room)
    }

    /// Whether each coming checkpoint has room for so many chunks; gets it if that is possible.
    pub(crate) fn has_room_for_chunks(&mut self, chunks: u64) -> Result<bool, Refused> {
        self.reserve_map(map_bytes(self.space.backed_pages(), chunks))
    }

    /// Whether there is a second log, and both maps have room for `byte_len` bytes; gets that if it
    /// is possible.
    fn reserve_map(&mut self, byte_len: u64) -> Result<bool, Refused> {
        if self.reserve.map_bytes >= byte_len {
            return Ok(true);
        }
        let (generation, log_bytes) = (self.log.generation + 1, self.config.log_bytes);
        let reserved = self
            .reserve
            .complete(&self.media, generation, log_bytes)
            .and_then(|()| self.reserve.grow_maps(&self.media, byte_len));
        match reserved {
            Ok(()) => Ok(true),
            Err(error) if error.is_shortage() && error.op != MediaOp::Flush => Ok(false),
            Err(error) => {
                let step = CommitStep::Checkpoint;
                let failed = FlushFailed { step, kind: error.source.kind() };
                self.fail(failed);
                Err(Refused::Failed(failed))
            }
        }
    }

    /// A change found no room: says so in the log, unless that was said.
    pub(crate) fn say_full(&mut self) {
        if !self.said.is_full() && self.said.says(Fullness::Full, Instant::now(), FULL_SAID_EVERY) {
            let StoreStats { chunks, live_bytes, capacity_bytes, .. } = self.stats();
            tracing::warn!(
                chunks,
                live_bytes,
                capacity_bytes,
                "the store is full: creates and writes are refused, reads and deletes go on; \
                 delete chunks, make room on the file system or raise capacity_bytes"
            );
        }
    }

    /// After a commit: says in the log that there is room again, where it said that there is none.
    pub(crate) fn say_room(&mut self) {
        if !self.said.is_full() {
            return;
        }
        let enough = ROOM_AGAIN_PAGES.min(self.space.backed_pages() / ROOM_AGAIN_SHARE);
        if self.space.free_pages() > enough
            && self.said.says(Fullness::Room, Instant::now(), FULL_SAID_EVERY)
        {
            let StoreStats { chunks, live_bytes, free_bytes, .. } = self.stats();
            tracing::info!(chunks, live_bytes, free_bytes, "the store has room again");
        }
    }

    /// Finds out at an opening which pages have room: all that lie inside their file, unless it has
    /// holes, as the files of earlier releases have, and the medium is too full to fill them.
    pub(crate) fn adopt(&mut self) -> Result<(), WriteError> {
        for segment in 0..self.pages.files.len() as u32 {
            let base = segment * self.pages.segment_pages;
            if self.pages.file(segment).is_err() {
                continue;
            }
            let pages = self.pages.count_of(&self.media, segment)?;
            let whole = pages > 1 && self.allocates(Extent { page: base, count: pages })?;
            let mut page = base;
            while let Some(run) = self.space.unbacked_from(page)
                && run.page < base + pages
            {
                let left = run.count.min(base + pages - run.page);
                let count = if whole { left } else { left.min(PROBE_PAGES) };
                let piece = Extent { count, ..run };
                if whole || self.allocates(piece)? {
                    self.space.back(piece);
                } else {
                    self.space.pass_over(piece);
                }
                page = piece.page + piece.count;
            }
        }
        // Where there is no room for it at all, whatever needs it asks again.
        let mut segments = (0..self.pages.files.len() as u32).rev();
        while !self.reserve_map(self.map_wanted())?
            && let Some(segment) = segments.next()
        {
            self.give_back(segment)?;
        }
        Ok(())
    }

    /// The room that both maps are to have.
    fn map_wanted(&self) -> u64 {
        let pages = self.space.backed_pages();
        map_bytes(pages, self.chunks_staged()).max(pages * MAP_PAGE_BYTES)
    }

    /// Gives the room of the free pages at the end of a segment back to the medium, which has none
    /// for a second log: so it is when an earlier release has filled it. Nothing is staged or read.
    fn give_back(&mut self, segment: u32) -> Result<(), MediaError> {
        let base = segment * self.pages.segment_pages;
        if let (Ok(file), Some(page)) = (self.pages.file(segment), self.space.give_back_tail(base))
        {
            let (_, byte_len) = self.pages.locate(page);
            let name = data_name(segment);
            let failed = MediaError::at(MediaOp::Write, &name, byte_len);
            self.media.set_len(file, byte_len).map_err(failed)?;
        }
        Ok(())
    }

    /// Whether the medium gives `extent` room.
    fn allocates(&self, extent: Extent) -> Result<bool, MediaError> {
        match self.pages.allocate(&self.media, extent) {
            Ok(()) => Ok(true),
            Err(error) if error.is_full() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes one more segment, durable before any record can name it; false on a full medium.
    ///
    /// Its pages have no room yet. Those of one that is filled with zeros have theirs, and later
    /// flushes of it write no new metadata.
    pub(crate) fn add_segment(&mut self, fill: bool) -> Result<bool, WriteError> {
        let index = self.pages.files.len() as u32;
        let name = data_name(index);
        let header = FileHeader { kind: FileKind::Data, number: u64::from(index), ..self.identity };
        let made = make_segment(&self.media, &name, &header, fill);
        let flushed = made.and_then(|file| {
            self.media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0))?;
            Ok(file)
        });
        match flushed {
            Ok(file) => {
                self.pages.files.push(Some(file));
                self.space.add_segment();
                let all = self.space.unbacked_from(index * self.pages.segment_pages);
                if let (true, Some(extent)) = (fill, all) {
                    return self.back(extent);
                }
                Ok(true)
            }
            Err(error) if error.is_full() => {
                // Without its header the file would be taken for a leftover in any case.
                let _ = self.media.remove(&name);
                Ok(false)
            }
            Err(error) if error.op == MediaOp::Flush => {
                let step = CommitStep::DataFlush;
                let failed = FlushFailed { step, kind: error.source.kind() };
                self.fail(failed);
                Err(Refused::Failed(failed).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The most bytes that a checkpoint can have.
fn map_bytes(pages: u64, chunks: u64) -> u64 {
    FILE_HEADER_BYTES as u64 + pages * MAP_SLICE_BYTES_MAX + chunks * MAP_CHUNK_BYTES_MAX
}

fn make_segment<M: Media>(
    media: &M,
    name: &str,
    header: &FileHeader,
    fill: bool,
) -> Result<M::File, MediaError> {
    let file = media.create(name).map_err(MediaError::at(MediaOp::Create, name, 0))?;
    let write = || {
        if fill {
            let size_bytes = u64::from(header.segment_pages) * SLICE_BYTES as u64;
            write_zeros(media, &file, FILE_HEADER_BYTES as u64..size_bytes)?;
        }
        media.write_at(&file, 0, &header.emit())
    };
    write().map_err(MediaError::at(MediaOp::Write, name, 0))?;
    media.fdatasync(&file).map_err(MediaError::at(MediaOp::Flush, name, 0))?;
    Ok(file)
}
