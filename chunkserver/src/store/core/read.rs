//! Reads: only committed data, only slices whose bytes have their checksum, any number at a time.

use slab::Slab;
use smallvec::{SmallVec, smallvec};
use towpath_disk::{DiskError, Op, ReadPages};
use towpath_memory::Buf;
use towpath_transport::Class;

use super::changes::Client;
use super::io::Purpose;
use super::memory::LONG_PAGES;
use super::merge::Edge;
use super::page::PAGE_BYTES;
use super::scrub::Scrubs;
use super::space::Pin;
use super::state::StoreCore;
use crate::store::error::ReadError;
use crate::store::limits::WRITE_BYTES_MAX;
use crate::store::media::{MediaError, MediaOp};
use crate::store::place::SliceRef;
use crate::store::request::Reply;
use crate::store::results::ReadDone;
use crate::store::slice::{ChunkId, SLICE_BYTES, Span, fragment_crc, hole_crc, slice_crc};

/// What becomes of a read once it is done.
#[derive(Debug)]
pub(super) enum Then {
    /// Whoever asked is answered.
    Answer(Option<Client>, ReadDone),
    /// The slice is merged with a part that is written.
    Merge(Box<Edge>),
    /// A scrub has looked at the slice.
    Scrub,
}

/// A read under way. Its pages are not used again before it is over.
#[derive(Debug)]
struct Reading {
    then: Then,
    class: Class,
    chunk: ChunkId,
    span: Span,
    slices: SmallVec<[SliceRef; 4]>,
    pin: Pin,
    /// None while the disk fills it.
    buf: Option<Buf>,
    crcs: Vec<u32>,
    under_way: usize,
    error: Option<ReadError>,
}

/// Reads and scrubs under way.
#[derive(Debug, Default)]
pub(super) struct Reads {
    all: Slab<Reading>,
    pub(super) scrubs: Scrubs,
}

impl Reads {
    /// Whether anybody waits for a read.
    pub(super) fn is_reading(&self) -> bool {
        self.all.len() > self.scrubs.under_way()
    }
}

/// The checksum that stands for a slice: the stored one, or that of zeros.
pub(super) fn stored_crc(chunk: ChunkId, slice: u64, at: SliceRef) -> u32 {
    if at.is_hole() { hole_crc(chunk, slice) } else { at.crc }
}

impl Reading {
    fn slice(&self, position: usize) -> u64 {
        self.span.first() + position as u64
    }

    /// Takes the checksum of a slice whose page is known to be sound, and with a buffer its bytes.
    fn take(&mut self, position: usize, page: Option<&[u8]>) {
        let slice = self.slice(position);
        let (from, len) = self.span.part(slice);
        let to = (slice * SLICE_BYTES as u64 + from as u64 - self.span.start()) as usize;
        if let Some(buf) = &mut self.buf {
            match page {
                Some(page) => buf[to..to + len].copy_from_slice(&page[from..from + len]),
                None => buf[to..to + len].fill(0),
            }
        }
        let is_stored = len == SLICE_BYTES
            || matches!(self.then, Then::Answer(_, done)
                if from == 0 && self.span.end() == done.chunk_bytes);
        let crc = match (is_stored, page) {
            (true, _) => stored_crc(self.chunk, slice, self.slices[position]),
            (false, Some(page)) => {
                fragment_crc(self.chunk, slice, from as u32, &page[from..from + len])
            }
            (false, None) => {
                let zeros = [0; SLICE_BYTES];
                fragment_crc(self.chunk, slice, from as u32, &zeros[..len])
            }
        };
        // Nobody else wants any.
        if let Some(place) = self.crcs.get_mut(position) {
            *place = crc;
        }
    }

    fn is_sound(&self, position: usize, page: &[u8]) -> bool {
        slice_crc(self.chunk, self.slice(position), page) == self.slices[position].crc
    }

    /// How many slices from a position on lie together on the disk.
    fn run(&self, position: usize) -> usize {
        let first = self.slices[position];
        let rest = self.slices[position..].iter().enumerate();
        rest.take_while(|(at, slice)| first.page.checked_add(*at as u32) == Some(slice.page))
            .count()
    }
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Chooses the pages of a read, and has them read.
    pub(super) fn begin_read(
        &mut self,
        (to, class): (Option<Client>, Class),
        (chunk, offset, byte_len): (ChunkId, u64, usize),
        mut buf: Buf,
        mut crcs: Vec<u32>,
    ) {
        crcs.clear();
        let fits = buf.len() >= byte_len || buf.set_len(byte_len).is_ok();
        let planned = self.plan(chunk, offset, byte_len as u64).and_then(|planned| match fits {
            true => Ok(planned),
            false => Err(ReadError::Length { byte_len: byte_len as u64 }),
        });
        let (span, done, slices) = match planned {
            Ok(planned) => planned,
            Err(error) => return self.answer(to, Reply::Read { result: Err(error), buf, crcs }),
        };
        crcs.resize(slices.len(), 0);
        self.read(Then::Answer(to, done), class, (chunk, span, slices), (buf, crcs));
    }

    fn plan(
        &self,
        chunk: ChunkId,
        offset: u64,
        byte_len: u64,
    ) -> Result<(Span, ReadDone, SmallVec<[SliceRef; 4]>), ReadError> {
        let found = match self.map.chunks.get(&chunk) {
            Some(found) if !found.head.suspect => found,
            None if !self.map.may_miss_chunks => return Err(ReadError::NoSuchChunk(chunk)),
            _ => return Err(ReadError::Suspect(chunk)),
        };
        let head = found.head;
        if byte_len == 0 || byte_len > WRITE_BYTES_MAX {
            return Err(ReadError::Length { byte_len });
        }
        if offset.checked_add(byte_len).is_none_or(|end| end > head.byte_len) {
            return Err(ReadError::PastEnd { byte_len: head.byte_len });
        }
        let done = ReadDone {
            version: head.version,
            chunk_bytes: head.byte_len,
            unfinished: head.unfinished,
        };
        let span = Span::new(offset, byte_len);
        Ok((span, done, found.slices(span.first(), span.count()).collect()))
    }

    /// Reads one whole slice into memory of the store.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn read_slice(
        &mut self,
        then: Then,
        class: Class,
        (chunk, slice, at): (ChunkId, u64, SliceRef),
    ) -> Result<(), MediaError> {
        let no_memory = |source| MediaError::memory(MediaOp::Read, source);
        let buf = self.io.memory.to_fill(1).map_err(no_memory)?.into_buf();
        let span = Span::new(slice * SLICE_BYTES as u64, SLICE_BYTES as u64);
        self.read(then, class, (chunk, span, smallvec![at]), (buf, Vec::new()));
        Ok(())
    }

    fn read(
        &mut self,
        then: Then,
        class: Class,
        (chunk, span, slices): (ChunkId, Span, SmallVec<[SliceRef; 4]>),
        (buf, crcs): (Buf, Vec<u32>),
    ) {
        let (pin, under_way, error) = (self.space.pages.pin(), 0, None);
        let buf = Some(buf);
        let reading =
            Reading { then, class, chunk, span, slices, pin, buf, crcs, under_way, error };
        let read = self.reads.all.insert(reading);
        if !self.read_directly(read) {
            self.read_in_runs(read);
        }
        self.finish_read_when_done(read);
    }

    /// Has the disk fill the caller's buffer, where all slices lie together and the buffer begins
    /// at a page and has room for whole ones.
    fn read_directly(&mut self, read: usize) -> bool {
        let reading = &mut self.reads.all[read];
        let count = reading.slices.len();
        let first = reading.slices[0];
        let is_together = reading.run(0) == count
            && !self.away.has_any(first.page, count)
            && reading.span.start().is_multiple_of(PAGE_BYTES as u64);
        let is_there = self.layout.has(first.page)
            && self.layout.has(first.page.saturating_add(count as u32 - 1));
        if !is_together || !is_there || count as u64 > towpath_disk::OP_PAGES_MAX {
            return false;
        }
        let Some(buf) = reading.buf.take() else { return false };
        match ReadPages::part(buf, 0..count as u32) {
            Ok(into) => {
                reading.under_way += 1;
                let at = self.layout.data_page(first.page);
                let purpose = Purpose::Read { read, position: 0, is_second: false };
                self.io.submit_as(self.reads.all[read].class, purpose, Op::read(at, into));
                true
            }
            Err(buf) => {
                reading.buf = Some(buf);
                false
            }
        }
    }

    /// Reads what lies together, run by run, into memory of the store.
    fn read_in_runs(&mut self, read: usize) {
        let mut position = 0;
        while position < self.reads.all[read].slices.len() {
            let first = self.reads.all[read].slices[position];
            if first.is_hole() {
                self.reads.all[read].take(position, None);
                position += 1;
                continue;
            }
            if let Some(bytes) = self.away.get(first.page) {
                // It was checked when it came, and is in memory since.
                self.reads.all[read].take(position, Some(bytes));
                position += 1;
                continue;
            }
            let run = self.reads.all[read].run(position).min(LONG_PAGES);
            let is_at_home = |at: &usize| self.away.get(first.page + *at as u32).is_none();
            let count = (0..run).take_while(is_at_home).count();
            self.read_pages((read, position, false), first.page, count);
            position += count;
        }
    }

    fn read_pages(
        &mut self,
        (read, position, is_second): (usize, usize, bool),
        page: u32,
        count: usize,
    ) {
        let last = page.saturating_add(count as u32 - 1);
        if !self.layout.has(page) || !self.layout.has(last) {
            return self.read_failed(read, position, None);
        }
        match self.io.memory.to_fill(count) {
            Ok(into) => {
                self.reads.all[read].under_way += 1;
                let purpose = Purpose::Read { read, position, is_second };
                let op = Op::read(self.layout.data_page(page), into);
                self.io.submit_as(self.reads.all[read].class, purpose, op);
            }
            Err(source) => {
                let error = MediaError::memory(MediaOp::Read, source);
                self.read_failed(read, position, Some(error));
            }
        }
    }

    fn read_failed(&mut self, read: usize, position: usize, media: Option<MediaError>) {
        let reading = &self.reads.all[read];
        let (chunk, slice) = (reading.chunk, reading.slice(position));
        let error = match media {
            Some(error) => ReadError::Media(error),
            None => {
                self.health.counts.slices_corrupt += 1;
                ReadError::Corrupt(self.corrupt(chunk, slice, reading.slices[position]))
            }
        };
        self.reads.all[read].error.get_or_insert(error);
    }

    /// Slices have been read: those that are sound are taken, the others read once more, since a
    /// bad read is not yet a bad disk.
    pub(super) fn on_read(
        &mut self,
        (read, position, is_second): (usize, usize, bool),
        op: Op,
        outcome: Result<(), DiskError>,
    ) {
        let Op::Read { mut into, .. } = op else { return };
        let Some(pages) = into.pop() else { return };
        let reading = &mut self.reads.all[read];
        reading.under_way -= 1;
        let is_direct = reading.buf.is_none();
        let count = pages.count() as usize;
        let mut bad = Vec::new();
        for (at, page) in pages.chunks_exact(PAGE_BYTES).enumerate() {
            match outcome.is_ok() && reading.is_sound(position + at, page) {
                true => reading.take(position + at, Some(page)),
                false => bad.push(position + at),
            }
        }
        if is_direct {
            reading.buf = Some(pages.into_buf());
        }
        debug_assert!(bad.len() <= count);
        for position in bad {
            if !is_second {
                self.health.counts.reads_retried += 1;
                let page = self.reads.all[read].slices[position].page;
                self.read_pages((read, position, true), page, 1);
                continue;
            }
            let media = outcome.as_ref().err().map(super::media_error);
            self.read_failed(read, position, media);
        }
        self.finish_read_when_done(read);
    }

    fn finish_read_when_done(&mut self, read: usize) {
        if self.reads.all[read].under_way > 0 {
            return;
        }
        let Reading { then, span, pin, buf, crcs, error, .. } = self.reads.all.remove(read);
        self.space.pages.unpin(pin);
        self.held.wake();
        // It is there when nothing is under way.
        let Some(mut buf) = buf else { return };
        let byte_len = span.end() - span.start();
        if buf.len() > byte_len as usize {
            // It shrinks, which always goes.
            let _ = buf.set_len(byte_len as usize);
        }
        let (to, done) = match then {
            Then::Answer(to, done) => (to, done),
            Then::Merge(edge) => return self.on_edge(*edge, error.map_or(Ok(buf), Err)),
            Then::Scrub => return self.on_scrub(error),
        };
        let result = match error {
            Some(error) => {
                buf.fill(0);
                Err(error)
            }
            None => {
                self.health.counts.reads += 1;
                self.health.counts.read_bytes += byte_len;
                Ok(done)
            }
        };
        self.answer(to, Reply::Read { result, buf, crcs });
    }
}
