//! Staging: checks a change, writes its data to fresh pages, queues its log record.

use super::engine::{Head, Staged, Store, Ticket};
use super::error::{CreateError, DeleteError, FinishError, Refused, WriteError};
use super::gather::Gather;
use super::limits::{CHUNK_BYTES_MAX, WRITE_BYTES_MAX};
use super::map::SliceRef;
use super::media::{Media, MediaError};
use super::pages::{SliceFault, SliceName};
use super::record::{Body, Extent, Op, parse_record};
use super::residence::slots_wanted;
use super::slice::{ChunkId, SLICE_BYTES, Span, fragment_crc, slice_crc};

/// A write as its writer describes it.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a, S> {
    /// The chunk.
    pub chunk: ChunkId,
    /// First byte in the chunk.
    pub offset: u64,
    /// The data, piece after piece.
    pub data: &'a [S],
    /// One checksum per touched slice, as [`writer_crcs`](super::writer_crcs) makes them.
    pub crcs: &'a [u32],
    /// The caller has checked the data of whole slices against `crcs` already. Fragments at the
    /// edges are checked here in any case, after they were copied.
    pub verified: bool,
}

impl<M: Media> Store<M> {
    /// Stages a new, empty chunk that may grow to `limit_bytes` (the most a chunk can have when
    /// none is given).
    ///
    /// # Errors
    /// See [`CreateError`]; nothing was staged.
    pub fn stage_create(
        &mut self,
        chunk: ChunkId,
        limit_bytes: Option<u64>,
    ) -> Result<Ticket, CreateError> {
        self.stage_new(chunk, limit_bytes, false, false)
    }

    /// As [`stage_create`](Self::stage_create), of a chunk that is not whole before
    /// [`stage_finish`](Self::stage_finish).
    ///
    /// # Errors
    /// See [`CreateError`]; nothing was staged.
    pub fn stage_unfinished(
        &mut self,
        chunk: ChunkId,
        limit_bytes: Option<u64>,
    ) -> Result<Ticket, CreateError> {
        self.stage_new(chunk, limit_bytes, true, false)
    }

    /// As [`stage_create`](Self::stage_create), of a chunk that may be unfinished, and whose slices
    /// may be kept in memory as well.
    ///
    /// # Errors
    /// See [`CreateError`]; nothing was staged.
    pub fn stage_new(
        &mut self,
        chunk: ChunkId,
        limit_bytes: Option<u64>,
        unfinished: bool,
        resident: bool,
    ) -> Result<Ticket, CreateError> {
        self.check_usable()?;
        let limit_bytes = limit_bytes.unwrap_or(CHUNK_BYTES_MAX);
        if limit_bytes == 0 || limit_bytes > CHUNK_BYTES_MAX {
            return Err(CreateError::Limit(limit_bytes));
        }
        if self.head(chunk).is_some() {
            return Err(CreateError::Exists(chunk));
        }
        let chunks = self.chunks_staged();
        if chunks >= self.config.chunks_max {
            return Err(CreateError::TooManyChunks(self.config.chunks_max));
        }
        if resident {
            // Without room for its first slice it could only be written to in vain.
            self.check_slots(1)?;
        }
        let op = Op::Create { limit_bytes, unfinished, resident };
        self.log.room(op.encoded_len(), false).map_err(|r| self.count_refusal(r))?;
        if !self.has_room_for_chunks(chunks + 1)? {
            return Err(self.no_room().into());
        }
        self.pending_chunks += 1;
        Ok(self.push(chunk, &op, Some(Head { byte_len: 0, limit_bytes, has_slots: resident })))
    }

    /// Stages that a chunk of `byte_len` bytes is whole. Nothing but its version changes in one
    /// that is finished already.
    ///
    /// # Errors
    /// See [`FinishError`]; nothing was staged.
    pub fn stage_finish(&mut self, chunk: ChunkId, byte_len: u64) -> Result<Ticket, FinishError> {
        self.check_usable()?;
        let head = self.head(chunk).ok_or(FinishError::NoSuchChunk(chunk))?;
        if self.is_suspect(chunk) {
            return Err(FinishError::Suspect(chunk));
        }
        if head.byte_len != byte_len {
            return Err(FinishError::Length { byte_len: head.byte_len });
        }
        self.log.room(Op::Finish.encoded_len(), false).map_err(|r| self.count_refusal(r))?;
        Ok(self.push(chunk, &Op::Finish, Some(head)))
    }

    /// Stages the removal of a chunk.
    ///
    /// # Errors
    /// See [`DeleteError`]; nothing was staged.
    pub fn stage_delete(&mut self, chunk: ChunkId) -> Result<Ticket, DeleteError> {
        self.check_usable()?;
        if self.head(chunk).is_none() {
            return Err(DeleteError::NoSuchChunk(chunk));
        }
        self.log.room(Op::Delete.encoded_len(), true).map_err(|r| self.count_refusal(r))?;
        self.pending_chunks -= 1;
        Ok(self.push(chunk, &Op::Delete, None))
    }

    /// Writes the data to fresh pages and stages the record that will make it visible.
    ///
    /// The writer's checksum of a slice that is written whole is stored as it is. A slice that
    /// is written in part is merged with what it held, and this is the one place where the
    /// store makes a stored checksum itself (docs/store-format.md section 2).
    ///
    /// # Errors
    /// See [`WriteError`]; nothing was staged.
    pub fn stage_write<S: AsRef<[u8]>>(
        &mut self,
        write: &Write<'_, S>,
    ) -> Result<Ticket, WriteError> {
        self.check_usable()?;
        let (span, head) = self.check_write(write)?;
        if !write.verified {
            self.check_wire(write, span)?;
        }
        let count = span.count() as u32;
        // At worst each slice gets an extent of its own: only then can room still be missing.
        let worst = 96 + 12 * count as usize;
        self.log.room(worst, false).map_err(|r| self.count_refusal(r))?;
        self.take_pages(count)?;
        if let Err(error) = self.write_pages(write, span) {
            return Err(match error {
                WriteError::Media(media) if media.is_full() => {
                    // Whatever the medium said before: they are free when it has given them room.
                    self.extents.drain(..).for_each(|extent| self.space.release_unbacked(extent));
                    self.count_refusal(Refused::NoSpace).into()
                }
                other => {
                    self.release_taken();
                    other
                }
            });
        }
        for extent in &self.extents {
            let (segment, _) = self.pages.locate(extent.page);
            if !self.dirty.contains(&segment) {
                self.dirty.push(segment);
            }
        }
        #[cfg(test)]
        self.free_early(write.chunk, span);
        self.promised_slots += slots_wanted(head, span);
        let head = Head { byte_len: head.byte_len.max(span.end()), ..head };
        let extents = std::mem::take(&mut self.extents);
        let crcs = std::mem::take(&mut self.crcs);
        let byte_len = span.end() - write.offset;
        let op = Op::Write { offset: write.offset, byte_len, extents: &extents, crcs: &crcs };
        let ticket = self.push(write.chunk, &op, Some(head));
        self.extents = extents;
        self.crcs = crcs;
        Ok(ticket)
    }

    fn check_usable(&self) -> Result<(), Refused> {
        if self.is_lossy {
            return Err(Refused::Damaged);
        }
        self.failed.map_or(Ok(()), |failed| Err(Refused::Failed(failed)))
    }

    /// How many chunks there are once all is committed that is staged.
    pub(crate) fn chunks_staged(&self) -> u64 {
        (self.map.chunks.len() as u64).saturating_add_signed(self.pending_chunks)
    }

    fn count_refusal(&mut self, refused: Refused) -> Refused {
        if refused == Refused::NoSpace {
            self.counts.no_space += 1;
            self.say_full();
        }
        refused
    }

    /// Whether a change of the chunk is lost, and none that is staged deletes the chunk.
    fn is_suspect(&self, chunk: ChunkId) -> bool {
        !self.pending.contains_key(&chunk)
            && self.map.chunks.get(&chunk).is_some_and(|found| found.suspect)
    }

    /// The chunk as the staged changes leave it.
    fn head(&self, chunk: ChunkId) -> Option<Head> {
        if let Some(head) = self.pending.get(&chunk) {
            return *head;
        }
        let found = self.map.chunks.get(&chunk)?;
        let has_slots = self.has_slots(chunk, found);
        Some(Head { byte_len: found.byte_len, limit_bytes: found.limit_bytes, has_slots })
    }

    fn push(&mut self, chunk: ChunkId, op: &Op<'_>, head: Option<Head>) -> Ticket {
        self.staged.push(Staged { chunk, at: self.log.staged.len() });
        self.pending.insert(chunk, head);
        Ticket(self.log.push(chunk, op))
    }

    fn check_write<S: AsRef<[u8]>>(
        &self,
        write: &Write<'_, S>,
    ) -> Result<(Span, Head), WriteError> {
        let byte_len = write.data.iter().map(|s| s.as_ref().len() as u64).sum();
        if byte_len == 0 || byte_len > WRITE_BYTES_MAX {
            return Err(WriteError::Length { byte_len });
        }
        let head = self.head(write.chunk).ok_or(WriteError::NoSuchChunk(write.chunk))?;
        if self.is_suspect(write.chunk) {
            return Err(WriteError::Suspect(write.chunk));
        }
        let limit_bytes = head.limit_bytes;
        if write.offset.checked_add(byte_len).is_none_or(|end| end > limit_bytes) {
            return Err(WriteError::LimitExceeded { limit_bytes });
        }
        let span = Span::new(write.offset, byte_len);
        let (expected, found) = (span.count(), write.crcs.len() as u64);
        if expected != found {
            return Err(WriteError::CrcCount { expected, found });
        }
        self.check_slots_of(head, span)?;
        Ok((span, head))
    }

    fn check_wire<S: AsRef<[u8]>>(
        &mut self,
        write: &Write<'_, S>,
        span: Span,
    ) -> Result<(), WriteError> {
        let mut data = Gather::new(write.data);
        for (slice, crc) in (span.first()..).zip(write.crcs) {
            let (_, len) = span.part(slice);
            if len < SLICE_BYTES {
                data.skip(len);
                continue;
            }
            let bytes = data.together(len, &mut self.scratch[..]);
            if slice_crc(write.chunk, slice, bytes) != *crc {
                self.counts.wire_corrupt += 1;
                return Err(WriteError::WireCorrupt { slice });
            }
        }
        Ok(())
    }

    /// Takes `count` pages into `self.extents`, getting more from the medium where that is needed
    /// and allowed. What is staged may free pages, so with a batch open the answer is to commit it.
    fn take_pages(&mut self, count: u32) -> Result<(), WriteError> {
        self.extents.clear();
        // It is there, but on a medium that an earlier release has filled.
        if !self.has_room_for_chunks(self.chunks_staged())? {
            return Err(self.no_room().into());
        }
        while !self.space.take(count, &mut self.extents) {
            if !self.grow()? {
                return Err(self.no_room().into());
            }
        }
        Ok(())
    }

    /// The answer to a change for which there is no room.
    fn no_room(&mut self) -> Refused {
        let again = !self.staged.is_empty();
        self.count_refusal(if again { Refused::BatchFull } else { Refused::NoSpace })
    }

    fn release_taken(&mut self) {
        for extent in self.extents.drain(..) {
            self.space.release(extent);
        }
    }

    /// Writes every touched slice to its page, and puts its checksum into `self.crcs`.
    fn write_pages<S: AsRef<[u8]>>(
        &mut self,
        write: &Write<'_, S>,
        span: Span,
    ) -> Result<(), WriteError> {
        let mut data = Gather::new(write.data);
        self.crcs.clear();
        self.crcs.extend_from_slice(write.crcs);
        let mut slice = span.first();
        let mut position = 0;
        for at in 0..self.extents.len() {
            let Extent { mut page, count } = self.extents[at];
            let mut left = count;
            while left > 0 {
                let pages = if span.covers(slice) {
                    let last = span.first() + span.count() - 1;
                    let whole_to = if span.covers(last) { last + 1 } else { last };
                    let pages = left.min((whole_to - slice) as u32);
                    self.write_whole(&mut data, page, pages)?;
                    pages
                } else {
                    let crc = write.crcs[position];
                    self.crcs[position] = self.merge(write.chunk, slice, span, crc, &mut data)?;
                    self.pages.write(&self.media, page, 0, &self.scratch[..])?;
                    1
                };
                page += pages;
                left -= pages;
                slice += u64::from(pages);
                position += pages as usize;
            }
        }
        Ok(())
    }

    fn write_whole<S: AsRef<[u8]>>(
        &self,
        data: &mut Gather<'_, S>,
        page: u32,
        pages: u32,
    ) -> Result<(), MediaError> {
        let total = pages as usize * SLICE_BYTES;
        let mut done = 0;
        while done < total {
            let piece = data.piece(total - done);
            self.pages.write(&self.media, page, done as u64, piece)?;
            done += piece.len();
        }
        Ok(())
    }

    /// Puts the next fragment of `data` over the old content of `slice`, in `self.scratch`;
    /// gives the new checksum. The fragment is checked where it lies then, so that nothing can
    /// change between the check and the new checksum.
    fn merge<S: AsRef<[u8]>>(
        &mut self,
        chunk: ChunkId,
        slice: u64,
        span: Span,
        crc: u32,
        data: &mut Gather<'_, S>,
    ) -> Result<u32, WriteError> {
        let old = self.newest_slice(chunk, slice);
        let name = SliceName { chunk, slice };
        self.pages.load(&self.media, name, old, &mut self.scratch[..]).map_err(
            |fault| match fault {
                SliceFault::Corrupt(corrupt) => WriteError::OldSlice(corrupt),
                SliceFault::Media(error) => WriteError::Media(error),
            },
        )?;
        let (from, len) = span.part(slice);
        let fragment = &mut self.scratch[from..from + len];
        data.copy(fragment);
        if fragment_crc(chunk, slice, from as u32, fragment) != crc {
            self.counts.wire_corrupt += 1;
            return Err(WriteError::WireCorrupt { slice });
        }
        Ok(slice_crc(chunk, slice, &self.scratch[..]))
    }

    /// The slice as the staged changes leave it.
    fn newest_slice(&self, chunk: ChunkId, slice: u64) -> SliceRef {
        if self.pending.contains_key(&chunk) {
            for staged in self.staged.iter().rev().filter(|s| s.chunk == chunk) {
                let (record, _) = parse_record(&self.log.staged[staged.at..], self.log.key)
                    .expect("staged records are encoded here");
                let write = match record.body {
                    Body::Write(write) => write,
                    // It leaves the slices as they are.
                    Body::Finish => continue,
                    _ => return SliceRef::default(),
                };
                let span = write.span();
                if (span.first()..span.first() + span.count()).contains(&slice) {
                    let at = (slice - span.first()) as usize;
                    let (page, crc) = write.slices().nth(at).unwrap_or_default();
                    return SliceRef { page, crc };
                }
            }
        }
        self.map.chunks.get(&chunk).map_or_else(SliceRef::default, |c| c.slice(slice))
    }

    #[cfg(test)]
    fn free_early(&mut self, chunk: ChunkId, span: Span) {
        if self.has(super::engine::Bug::ReuseTooEarly)
            && !self.pending.contains_key(&chunk)
            && let Some(found) = self.map.chunks.get(&chunk)
        {
            for slice in span.first()..span.first() + span.count() {
                let old = found.slice(slice);
                if !old.is_hole() {
                    self.space.release(Extent { page: old.page, count: 1 });
                }
            }
        }
    }
}
