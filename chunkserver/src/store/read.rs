//! Reads: only committed data, only slices whose bytes have their checksum.

use super::engine::Store;
use super::error::ReadError;
use super::limits::WRITE_BYTES_MAX;
use super::map::SliceRef;
use super::media::Media;
use super::pages::{Pages, SliceFault, SliceName, stored_crc};
use super::slice::{ChunkId, SLICE_BYTES, Span, fragment_crc, slice_crc};
use super::space::Pin;

/// What a read found beside the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// Version of the chunk that was read.
    pub version: u64,
    /// Length of the chunk then, in bytes.
    pub chunk_bytes: u64,
    /// The chunk is unfinished: who asks for a whole one is not to be given it.
    pub unfinished: bool,
}

/// A read that has chosen its pages: later commits do not change what it gives.
///
/// Its pages are not used again before it is given back to [`Store::finish_read`] or
/// [`Store::abandon_read`]; one that is dropped keeps them until the store is closed.
#[derive(Debug)]
#[must_use = "the pages stay pinned until the plan is given back"]
pub struct ReadPlan {
    chunk: ChunkId,
    span: Span,
    done: ReadDone,
    slices: Vec<SliceRef>,
    pin: Pin,
}

impl<M: Media> Store<M> {
    /// Reads `buf.len()` bytes from `offset`, and one checksum per touched slice into `crcs`
    /// (cleared first).
    ///
    /// A slice read whole, or up to the end of the chunk, comes with its stored checksum. A
    /// fragment comes with its [`fragment_crc`], made from the copied bytes after the whole
    /// slice was checked.
    ///
    /// # Errors
    /// See [`ReadError`]. On an error the content of `buf` is not to be used.
    pub fn read(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        buf: &mut [u8],
        crcs: &mut Vec<u32>,
    ) -> Result<ReadDone, ReadError> {
        let plan = self.begin_read(chunk, offset, buf.len() as u64)?;
        self.finish_read(plan, buf, crcs)
    }

    /// Chooses the pages of a read and keeps them from being used again.
    ///
    /// # Errors
    /// [`ReadError::NoSuchChunk`], [`ReadError::Suspect`], [`ReadError::Length`],
    /// [`ReadError::PastEnd`].
    pub fn begin_read(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        byte_len: u64,
    ) -> Result<ReadPlan, ReadError> {
        let found = match self.map.chunks.get(&chunk) {
            Some(found) if !found.suspect => found,
            None if !self.map.may_miss_chunks() => return Err(ReadError::NoSuchChunk(chunk)),
            _ => return Err(ReadError::Suspect(chunk)),
        };
        if byte_len == 0 || byte_len > WRITE_BYTES_MAX {
            return Err(ReadError::Length { byte_len });
        }
        if offset.checked_add(byte_len).is_none_or(|end| end > found.byte_len) {
            return Err(ReadError::PastEnd { byte_len: found.byte_len });
        }
        let span = Span::new(offset, byte_len);
        let mut slices = std::mem::take(&mut self.spare_slices);
        slices.clear();
        slices.extend((span.first()..span.first() + span.count()).map(|s| found.slice(s)));
        let done = ReadDone {
            version: found.version,
            chunk_bytes: found.byte_len,
            unfinished: found.unfinished,
        };
        Ok(ReadPlan { chunk, span, done, slices, pin: self.space.pin() })
    }

    /// Does a planned read. `buf` has the planned length.
    ///
    /// # Errors
    /// [`ReadError::Length`] when it has not, [`ReadError::Corrupt`], [`ReadError::Media`].
    pub fn finish_read(
        &mut self,
        plan: ReadPlan,
        buf: &mut [u8],
        crcs: &mut Vec<u32>,
    ) -> Result<ReadDone, ReadError> {
        crcs.clear();
        let byte_len = buf.len() as u64;
        let result = if byte_len == plan.span.end() - plan.span.start() {
            fill(&mut self.pages, &self.media, &mut self.scratch[..], &plan, buf, crcs)
        } else {
            Err(ReadError::Length { byte_len })
        };
        let done = plan.done;
        self.abandon_read(plan);
        result?;
        self.counts.reads += 1;
        self.counts.read_bytes += byte_len;
        Ok(done)
    }

    /// Gives up a planned read.
    pub fn abandon_read(&mut self, plan: ReadPlan) {
        self.space.unpin(plan.pin);
        self.spare_slices = plan.slices;
    }
}

fn fill<M: Media>(
    pages: &mut Pages<M::File>,
    media: &M,
    scratch: &mut [u8],
    plan: &ReadPlan,
    buf: &mut [u8],
    crcs: &mut Vec<u32>,
) -> Result<(), ReadError> {
    let ReadPlan { chunk, span, .. } = *plan;
    let mut rest = buf;
    let mut at = 0;
    while at < plan.slices.len() {
        let slice = span.first() + at as u64;
        if span.covers(slice) {
            let run = run_len(plan, pages.segment_pages, at);
            let (part, after) = rest.split_at_mut(run * SLICE_BYTES);
            rest = after;
            let refs = &plan.slices[at..at + run];
            load_run(pages, media, SliceName { chunk, slice }, refs, part, crcs)?;
            at += run;
        } else {
            let (from, len) = span.part(slice);
            let (part, after) = rest.split_at_mut(len);
            rest = after;
            let found = plan.slices[at];
            let name = SliceName { chunk, slice };
            pages.load(media, name, found, scratch).map_err(read_error)?;
            part.copy_from_slice(&scratch[from..from + len]);
            let to_end = from == 0 && span.end() == plan.done.chunk_bytes;
            crcs.push(if to_end {
                stored_crc(name, found)
            } else {
                fragment_crc(chunk, slice, from as u32, part)
            });
            at += 1;
        }
    }
    Ok(())
}

/// How many whole slices from position `at` on lie together on the medium, or are all holes.
fn run_len(plan: &ReadPlan, segment_pages: u32, at: usize) -> usize {
    let first = plan.slices[at];
    let segment = first.page / segment_pages;
    let mut run = 1;
    while at + run < plan.slices.len() && plan.span.covers(plan.span.first() + (at + run) as u64) {
        let next = plan.slices[at + run];
        let together = if first.is_hole() {
            next.is_hole()
        } else {
            first.page.checked_add(run as u32) == Some(next.page)
                && next.page / segment_pages == segment
        };
        if !together {
            break;
        }
        run += 1;
    }
    run
}

/// Reads slices that lie together with one call, checks them in place, and takes those that
/// fail once more, one by one.
fn load_run<M: Media>(
    pages: &mut Pages<M::File>,
    media: &M,
    first: SliceName,
    refs: &[SliceRef],
    buf: &mut [u8],
    crcs: &mut Vec<u32>,
) -> Result<(), ReadError> {
    let hole = refs[0].is_hole();
    let read = if hole {
        buf.fill(0);
        Ok(())
    } else {
        pages.read(media, refs[0].page, buf)
    };
    for (at, (found, part)) in refs.iter().zip(buf.chunks_exact_mut(SLICE_BYTES)).enumerate() {
        let name = SliceName { slice: first.slice + at as u64, ..first };
        crcs.push(stored_crc(name, *found));
        if hole || read.is_ok() && slice_crc(name.chunk, name.slice, part) == found.crc {
            continue;
        }
        pages.load_again(media, name, *found, part).map_err(read_error)?;
    }
    Ok(())
}

fn read_error(fault: SliceFault) -> ReadError {
    match fault {
        SliceFault::Corrupt(corrupt) => ReadError::Corrupt(corrupt),
        SliceFault::Media(error) => ReadError::Media(error),
    }
}
