//! Writes: their slices go to fresh pages while the group that they belong to still gathers.

use std::io;

use smallvec::SmallVec;
use towpath_disk::{Op, WritePages};
use towpath_memory::Buf;

use super::clear::EDGE_PAGES;
use super::group::{Change, Client, Head};
use super::io::Purpose;
use super::memory::LONG_PAGES;
use super::merge::{Edge, Old};
use super::stage::{Staged, Stop};
use super::state::{Asked, StoreCore};
use crate::store::error::WriteError;
use crate::store::gather::Gather;
use crate::store::limits::WRITE_BYTES_MAX;
use crate::store::media::{MediaError, MediaOp};
use crate::store::place::slices_in;
use crate::store::record::Extent;
use crate::store::request::{Reply, Request, Terms};
use crate::store::slice::{ChunkId, SLICE_BYTES, Span, fragment_crc, slice_crc};

/// Bytes of data that one group has at most: some milliseconds of a disk.
const GROUP_DATA_BYTES_MAX: u64 = 32 << 20;

/// Pages that are written by one operation.
const OP_PAGES: usize = 16 * LONG_PAGES;

/// A write, as it was asked for.
struct Wanted<'a, W> {
    chunk: ChunkId,
    offset: u64,
    data: &'a [W],
    crcs: &'a [u32],
    is_verified: bool,
    terms: Terms,
}

/// The fragment of a slice that is written in part, and what the slice held.
pub(super) struct Fragment {
    slice: u64,
    from: usize,
    bytes: Vec<u8>,
    old: Old,
}

/// At most the first and the last slice are written in part.
type Fragments = SmallVec<[Fragment; 2]>;

impl<W: AsRef<[u8]>> StoreCore<W> {
    pub(super) fn change_slices(&mut self, to: Option<Client>, request: Request<W, Buf>) {
        let Request::Write { chunk, offset, data, crcs, verified, terms } = request else { return };
        let is_verified = verified;
        let wanted = Wanted { chunk, offset, data: &data, crcs: &crcs, is_verified, terms };
        match self.stage_write(&wanted) {
            Ok((span, head, fragments, extents)) => {
                let writes = self.copies(&wanted, span, &extents);
                match writes {
                    Ok(writes) => {
                        let crcs = crcs.clone();
                        let parts = (extents, fragments, writes);
                        self.begin_write(to, (chunk, span, head, terms), (data, crcs), parts);
                    }
                    Err(source) => {
                        extents.iter().for_each(|extent| self.space.release(*extent));
                        let media = MediaError::at(MediaOp::Write, "memory", 0)(source);
                        let result = Err(WriteError::Media(media));
                        self.answer(to, Reply::Write { result, data, crcs });
                    }
                }
            }
            Err(Stop::Hold) => {
                let request = Request::Write { chunk, offset, data, crcs, verified, terms };
                self.hold(Asked { to, request });
            }
            Err(Stop::Known(version)) => {
                let result = Ok(Self::ticket(version));
                self.answer(to, Reply::Write { result, data, crcs });
            }
            Err(Stop::Refuse(error)) => {
                self.answer(to, Reply::Write { result: Err(error), data, crcs });
            }
        }
    }

    /// Checks a write and takes its pages.
    fn stage_write(
        &mut self,
        wanted: &Wanted<'_, W>,
    ) -> Result<(Span, Head, Fragments, Vec<Extent>), Stop<WriteError>> {
        self.check_usable().map_err(Stop::widen)?;
        let (span, head) = self.check_write(wanted).map_err(Stop::Refuse)?;
        self.check_terms(wanted.chunk, wanted.terms).map_err(Stop::widen)?;
        let slots = slots_wanted(head, span.end());
        if slots > 0 {
            self.check_slots(slots).map_err(Stop::widen)?;
        }
        let fragments = self.fragments(wanted, span)?;
        if !wanted.is_verified {
            self.check_wire(wanted, span).map_err(Stop::Refuse)?;
        }
        let count = span.count() as u32;
        // At worst each slice gets an extent of its own.
        self.check_group(104 + 12 * count as usize).map_err(Stop::widen)?;
        let byte_len = u64::from(count) * SLICE_BYTES as u64;
        let data_bytes = self.gathering.data_bytes;
        if data_bytes > 0 && data_bytes + byte_len > GROUP_DATA_BYTES_MAX {
            return Err(Stop::Hold);
        }
        let blocks = self.blocks_for(wanted.chunk, span.first(), span.count());
        self.check_blocks(blocks).map_err(Stop::widen)?;
        self.check_room(byte_len).map_err(Stop::widen)?;
        let mut extents = Vec::with_capacity(1);
        let is_left = self.space.free_pages() >= u64::from(count) + EDGE_PAGES;
        if !is_left || !self.space.take(count, &mut extents) {
            return Err(self.no_room(self.may_get_pages()).widen());
        }
        Ok((span, head, fragments, extents))
    }

    fn check_write(&self, wanted: &Wanted<'_, W>) -> Result<(Span, Head), WriteError> {
        let byte_len = wanted.data.iter().map(|piece| piece.as_ref().len() as u64).sum();
        if byte_len == 0 || byte_len > WRITE_BYTES_MAX {
            return Err(WriteError::Length { byte_len });
        }
        let head = self.head(wanted.chunk).ok_or(WriteError::NoSuchChunk(wanted.chunk))?;
        if self.is_suspect(wanted.chunk) {
            return Err(WriteError::Suspect(wanted.chunk));
        }
        let limit_bytes = head.limit_bytes;
        if wanted.offset.checked_add(byte_len).is_none_or(|end| end > limit_bytes) {
            return Err(WriteError::LimitExceeded { limit_bytes });
        }
        let span = Span::new(wanted.offset, byte_len);
        let (expected, found) = (span.count(), wanted.crcs.len() as u64);
        if expected != found {
            return Err(WriteError::CrcCount { expected, found });
        }
        Ok((span, head))
    }

    /// The slices that are written in part, checked as they lie in memory of the store.
    fn fragments(
        &mut self,
        wanted: &Wanted<'_, W>,
        span: Span,
    ) -> Result<Fragments, Stop<WriteError>> {
        let mut fragments = Fragments::new();
        let last = span.first() + span.count() - 1;
        let edges = [Some(span.first()), (last > span.first()).then_some(last)];
        for slice in edges.into_iter().flatten().filter(|slice| !span.covers(*slice)) {
            let old = self.newest(wanted.chunk, slice)?;
            let (from, len) = span.part(slice);
            let before = (slice * SLICE_BYTES as u64).saturating_sub(span.start());
            let mut bytes = vec![0; len];
            let mut data = Gather::new(wanted.data);
            data.skip(before as usize);
            data.copy(&mut bytes);
            let crc = wanted.crcs[(slice - span.first()) as usize];
            if fragment_crc(wanted.chunk, slice, from as u32, &bytes) != crc {
                self.counts.wire_corrupt += 1;
                return Err(Stop::Refuse(WriteError::WireCorrupt { slice }));
            }
            fragments.push(Fragment { slice, from, bytes, old });
        }
        Ok(fragments)
    }

    fn check_wire(&mut self, wanted: &Wanted<'_, W>, span: Span) -> Result<(), WriteError> {
        let mut data = Gather::new(wanted.data);
        let mut scratch = [0; SLICE_BYTES];
        for (slice, crc) in (span.first()..).zip(wanted.crcs) {
            let (_, len) = span.part(slice);
            if len < SLICE_BYTES {
                data.skip(len);
                continue;
            }
            let bytes = data.together(len, &mut scratch);
            if slice_crc(wanted.chunk, slice, bytes) != *crc {
                self.counts.wire_corrupt += 1;
                return Err(WriteError::WireCorrupt { slice });
            }
        }
        Ok(())
    }

    /// The writes of the slices that are written whole: position of the first, and the operation.
    fn copies(
        &self,
        wanted: &Wanted<'_, W>,
        span: Span,
        extents: &[Extent],
    ) -> io::Result<Vec<(usize, Op)>> {
        let mut data = Gather::new(wanted.data);
        let (mut writes, mut position) = (Vec::with_capacity(extents.len()), 0);
        for &Extent { page, count } in extents {
            let (mut page, end) = (page, page + count);
            while page < end {
                let slice = span.first() + position as u64;
                if !span.covers(slice) {
                    data.skip(span.part(slice).1);
                    (page, position) = (page + 1, position + 1);
                    continue;
                }
                let whole_to = span.end() / SLICE_BYTES as u64;
                let run = u64::from(end - page).min(whole_to - slice) as usize;
                let run = run.min(OP_PAGES);
                let mut from = towpath_disk::Buffers::<WritePages>::new();
                for first in (0..run).step_by(LONG_PAGES) {
                    let pages = (run - first).min(LONG_PAGES);
                    from.push(self.memory.filled(pages, |buf| data.copy(buf))?);
                }
                writes.push((position, Op::Write { at: self.layout.data_page(page), from }));
                (page, position) = (page + run as u32, position + run);
            }
        }
        Ok(writes)
    }

    fn begin_write(
        &mut self,
        to: Option<Client>,
        (chunk, span, head, terms): (ChunkId, Span, Head, Terms),
        (data, crcs): (Vec<W>, Vec<u32>),
        (extents, fragments, writes): (Vec<Extent>, Fragments, Vec<(usize, Op)>),
    ) {
        let slots = slots_wanted(head, span.end());
        let blocks = self.blocks_for(chunk, span.first(), span.count());
        let byte_len = span.end() - span.start();
        let page_of = |position: usize| page_at(&extents, position);
        let edges: SmallVec<[_; 2]> = fragments
            .into_iter()
            .map(|fragment| {
                let Fragment { slice, from, bytes, old } = fragment;
                let position = (slice - span.first()) as usize;
                let page = page_of(position);
                let (member, is_second) = (0, false);
                Edge { member, chunk, slice, position, page, from, bytes, old, is_second }
            })
            .collect();
        #[cfg(test)]
        self.free_early(chunk, span);
        let head = Some(Head { byte_len: head.byte_len.max(span.end()), ..head });
        let change = Change::Write { offset: span.start(), byte_len, extents, crcs };
        let data_bytes = change.data_bytes();
        let member = self.join(to, chunk, Staged { change, terms, head, slots, blocks }, data);
        self.gathering.data_bytes += data_bytes;
        self.members[member].writes_left = writes.len();
        self.members[member].merges_left = edges.len();
        for (_, op) in writes {
            self.io.submit(Purpose::Data { member }, op);
        }
        for edge in edges {
            self.begin_merge(Box::new(Edge { member, ..edge }));
        }
    }
}

#[cfg(test)]
impl<W> StoreCore<W> {
    fn free_early(&mut self, chunk: ChunkId, span: Span) {
        if self.bug == Some(super::tests::Bug::ReuseTooEarly)
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

/// The page of the slice at a position.
fn page_at(extents: &[Extent], position: usize) -> u32 {
    let mut left = position as u32;
    for extent in extents {
        if left < extent.count {
            return extent.page + left;
        }
        left -= extent.count;
    }
    0
}

/// How many slots a change adds to a chunk that it makes reach to `end`.
pub(super) fn slots_wanted(head: Head, end: u64) -> u64 {
    if !head.has_slots {
        return 0;
    }
    slices_in(end.max(head.byte_len)) - slices_in(head.byte_len)
}
