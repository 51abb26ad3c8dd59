//! Writes: their slices go to fresh pages while the group that they belong to still gathers.

use std::io;

use smallvec::SmallVec;
use towpath_disk::{DiskError, Op, WritePages};
use towpath_memory::Buf;
use towpath_transport::Class;

use super::clear::EDGE_PAGES;
use super::group::{Change, Client, Head, Logged};
use super::io::Purpose;
use super::memory::LONG_PAGES;
use super::merge::{Edge, Old};
use super::stage::{Staged, Stop};
use super::state::{Asked, StoreCore};
use crate::store::error::{ChangeError, Refused};
use crate::store::gather::Gather;
use crate::store::limits::{LOGGED_BYTES_MAX, WRITE_BYTES_MAX};
use crate::store::media::{MediaError, MediaOp};
use crate::store::place::slices_in;
use crate::store::record::Extent;
use crate::store::request::{Reply, Request, Terms};
use crate::store::slice::{ChunkId, SLICE_BYTES, Span, fragment_crc, slice_crc};

/// Bytes of data of a class that gather at most: some milliseconds of a disk.
const GROUP_DATA_BYTES_MAX: u64 = 32 << 20;

/// Pages that are written by one operation, by class: what a higher class waits for at a time.
pub(super) const OP_PAGES: [usize; Class::COUNT] =
    [16 * LONG_PAGES, 4 * LONG_PAGES, LONG_PAGES / 2];

/// A write, as it was asked for.
struct Wanted<'a, W> {
    chunk: ChunkId,
    offset: u64,
    data: &'a [W],
    crcs: &'a [u32],
    is_verified: bool,
    terms: Terms,
    /// What was staged of it.
    early: Option<usize>,
}

/// What is to be written of a write, beside its record.
enum Data {
    /// To its pages: the position of the first of each run, and the operation.
    Pages(Writes),
    /// Behind its record.
    Log(Logged),
}

/// Where the slices of a write go.
struct Placed {
    /// All of them, in order.
    extents: Vec<Extent>,
    /// Those that are not on the disk, or on the way there: the position of the first of each run.
    fresh: Fresh,
}

/// Runs of slices that are not on the disk: the position of the first, and where they go.
type Fresh = SmallVec<[(usize, Extent); 1]>;

/// The writes of such runs.
type Writes = SmallVec<[(usize, Op); 1]>;

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
    /// Counts a write that failed for want of room.
    pub(super) fn note_full(&mut self, failed: &ChangeError) {
        if matches!(failed, ChangeError::Refused(Refused::NoSpace)) {
            self.counts.no_space += 1;
            self.is_full = true;
        }
    }

    pub(super) fn change_slices(&mut self, to: Option<Client>, request: Request<W, Buf>) {
        let Request::Write { chunk, offset, data, crcs, staged, verified, terms } = request else {
            return;
        };
        let asker = to.map_or(usize::MAX, |to| to.asker);
        let early = staged.map(|stage| self.early.find(asker, stage, chunk));
        let lost = match early {
            Some(None) => Some(ChangeError::NotStaged),
            Some(Some(key)) => self.early.take_failure(key),
            None => None,
        };
        let early = early.flatten();
        if let Some(error) = lost {
            early.into_iter().for_each(|key| self.drop_early(key));
            return self.answer(to, Reply::Write { result: Err(error), data, crcs });
        }
        let is_verified = verified;
        let wanted = Wanted { chunk, offset, data: &data, crcs: &crcs, is_verified, early, terms };
        let result = match self.stage_write(&wanted) {
            Ok((span, head, fragments, placed)) => {
                let data_of = match self.is_to_be_logged(&wanted, span) {
                    true => self.logged(&wanted, span).map(Data::Log),
                    false => self.copies(&wanted, span, &placed.fresh).map(Data::Pages),
                };
                match data_of {
                    Ok(data_of) => {
                        let parts = (placed.extents, fragments, data_of);
                        let data = (data, crcs);
                        let of = (chunk, span, head, terms);
                        return self.begin_write(to, of, early, data, parts);
                    }
                    Err(source) => {
                        placed.fresh.iter().for_each(|(_, extent)| self.space.release(*extent));
                        let media = MediaError::at(MediaOp::Write, "memory", 0)(source);
                        Err(ChangeError::Media(media))
                    }
                }
            }
            Err(Stop::Hold) => {
                let request = Request::Write { chunk, offset, data, crcs, staged, verified, terms };
                return self.hold(Asked { to, request });
            }
            Err(Stop::Known(version)) => Ok(Self::ticket(version)),
            Err(Stop::Refuse(error)) => Err(error),
        };
        early.into_iter().for_each(|key| self.drop_early(key));
        self.answer(to, Reply::Write { result, data, crcs });
    }

    /// Checks a write and takes its pages.
    fn stage_write(
        &mut self,
        wanted: &Wanted<'_, W>,
    ) -> Result<(Span, Head, Fragments, Placed), Stop> {
        self.check_usable()?;
        let (span, head) = self.check_write(wanted)?;
        self.check_terms(wanted.chunk, wanted.terms)?;
        let slots = slots_wanted(head, span.end());
        if slots > 0 {
            self.check_slots(slots)?;
        }
        let fragments = self.fragments(wanted, span)?;
        if !wanted.is_verified {
            self.check_wire(wanted, span)?;
        }
        let count = span.count() as u32;
        // At worst each slice gets an extent of its own.
        self.check_group(112 + 12 * count as usize)?;
        let byte_len = u64::from(count) * SLICE_BYTES as u64;
        let data_bytes = self.gathering.by_class[self.staging.index()].data_bytes;
        if data_bytes > 0 && data_bytes + byte_len > GROUP_DATA_BYTES_MAX {
            return Err(Stop::Hold);
        }
        let blocks = self.blocks_for(wanted.chunk, span.first(), span.count());
        self.check_blocks(blocks)?;
        self.check_room(byte_len)?;
        let missing = count - self.staged_count(wanted) as u32;
        let mut taken = Vec::with_capacity(1);
        let is_left = self.space.free_pages() >= u64::from(missing) + EDGE_PAGES;
        if missing > 0 && (!is_left || !self.space.take(missing, &mut taken)) {
            return Err(self.no_room(self.may_get_pages()));
        }
        Ok((span, head, fragments, self.place(wanted, span, taken)))
    }

    fn staged_count(&self, wanted: &Wanted<'_, W>) -> u64 {
        wanted.early.map_or(0, |key| self.early.get(key).pages.len() as u64)
    }

    fn is_staged(&self, wanted: &Wanted<'_, W>, slice: u64) -> bool {
        wanted.early.is_some_and(|key| self.early.get(key).pages.contains_key(&slice))
    }

    /// Puts the pages of staged slices and those that were taken in the order of the slices.
    fn place(&self, wanted: &Wanted<'_, W>, span: Span, taken: Vec<Extent>) -> Placed {
        let Some(key) = wanted.early else {
            let mut position = 0;
            let fresh = taken.iter().map(|extent| {
                let first = position;
                position += extent.count as usize;
                (first, *extent)
            });
            return Placed { fresh: fresh.collect(), extents: taken };
        };
        let mut taken = taken.iter().flat_map(|extent| extent.page..extent.page + extent.count);
        let (mut extents, mut fresh) = (Vec::<Extent>::new(), Fresh::new());
        for (position, slice) in (0..span.count() as usize).zip(span.first()..) {
            let known = self.early.get(key).pages.get(&slice).copied();
            // As many were taken as are not known.
            let Some(page) = known.or_else(|| taken.next()) else { break };
            match extents.last_mut() {
                Some(last) if last.page + last.count == page => last.count += 1,
                _ => extents.push(Extent { page, count: 1 }),
            }
            if known.is_some() {
                continue;
            }
            match fresh.last_mut() {
                Some((first, last))
                    if last.page + last.count == page
                        && *first + last.count as usize == position =>
                {
                    last.count += 1;
                }
                _ => fresh.push((position, Extent { page, count: 1 })),
            }
        }
        Placed { extents, fresh }
    }

    /// Whether a write would be made now.
    pub(super) fn would_write(
        &mut self,
        chunk: ChunkId,
        (offset, byte_len): (u64, u64),
        terms: Terms,
    ) -> Result<(), ChangeError> {
        match self.check_to_write(chunk, (offset, byte_len), terms) {
            // What was made before is made again without harm.
            Ok(()) | Err(Stop::Known(_)) => Ok(()),
            // It may find room in a while.
            Err(Stop::Hold) => Err(ChangeError::NotStaged),
            Err(Stop::Refuse(error)) => Err(error),
        }
    }

    fn check_to_write(
        &mut self,
        chunk: ChunkId,
        (offset, byte_len): (u64, u64),
        terms: Terms,
    ) -> Result<(), Stop> {
        self.check_usable()?;
        if byte_len == 0 || byte_len > WRITE_BYTES_MAX {
            return Err(ChangeError::Length { byte_len }.into());
        }
        let (span, head) = self.check_place(chunk, offset, byte_len)?;
        match self.check_terms(chunk, terms) {
            // What is under way comes before the write in any case.
            Ok(()) | Err(Stop::Hold) => {}
            Err(stop) => return Err(stop),
        }
        let slots = slots_wanted(head, span.end());
        if slots > 0 {
            self.check_slots(slots)?;
        }
        let blocks = self.blocks_for(chunk, span.first(), span.count());
        self.check_blocks(blocks)?;
        self.check_room(span.count() * SLICE_BYTES as u64)?;
        if self.space.free_pages() < span.count() + EDGE_PAGES {
            return Err(self.no_room(self.may_get_pages()));
        }
        Ok(())
    }

    /// Whether a chunk can have these bytes.
    fn check_place(
        &self,
        chunk: ChunkId,
        offset: u64,
        byte_len: u64,
    ) -> Result<(Span, Head), ChangeError> {
        let head = self.head(chunk).ok_or(ChangeError::NoSuchChunk(chunk))?;
        if self.is_suspect(chunk) {
            return Err(ChangeError::Suspect(chunk));
        }
        let limit_bytes = head.limit_bytes;
        if offset.checked_add(byte_len).is_none_or(|end| end > limit_bytes) {
            return Err(ChangeError::LimitExceeded { limit_bytes });
        }
        Ok((Span::new(offset, byte_len), head))
    }

    fn check_write(&self, wanted: &Wanted<'_, W>) -> Result<(Span, Head), ChangeError> {
        let byte_len: u64 = wanted.data.iter().map(|piece| piece.as_ref().len() as u64).sum();
        let byte_len = byte_len + self.staged_count(wanted) * SLICE_BYTES as u64;
        if byte_len == 0 || byte_len > WRITE_BYTES_MAX {
            return Err(ChangeError::Length { byte_len });
        }
        let (span, head) = self.check_place(wanted.chunk, wanted.offset, byte_len)?;
        let (expected, found) = (span.count(), wanted.crcs.len() as u64);
        if expected != found {
            return Err(ChangeError::CrcCount { expected, found });
        }
        if let Some(key) = wanted.early {
            let covers = |slice: &u64| span.covers(*slice);
            // Slices of resident chunks must be in memory as well: it was made anew meanwhile.
            if head.has_slots || !self.early.get(key).pages.keys().all(covers) {
                return Err(ChangeError::NotStaged);
            }
        }
        Ok((span, head))
    }

    /// The slices that are written in part, checked as they lie in memory of the store.
    fn fragments(&mut self, wanted: &Wanted<'_, W>, span: Span) -> Result<Fragments, Stop> {
        let mut fragments = Fragments::new();
        let last = span.first() + span.count() - 1;
        let edges = [Some(span.first()), (last > span.first()).then_some(last)];
        for slice in edges.into_iter().flatten().filter(|slice| !span.covers(*slice)) {
            let old = self.newest(wanted.chunk, slice)?;
            let (from, len) = span.part(slice);
            let before = (slice * SLICE_BYTES as u64).saturating_sub(span.start());
            // Staged slices are all between the two.
            let staged = if slice > span.first() { self.staged_count(wanted) } else { 0 };
            let before = before.saturating_sub(staged * SLICE_BYTES as u64);
            let mut bytes = vec![0; len];
            let mut data = Gather::new(wanted.data);
            data.skip(before as usize);
            data.copy(&mut bytes);
            let crc = wanted.crcs[(slice - span.first()) as usize];
            if fragment_crc(wanted.chunk, slice, from as u32, &bytes) != crc {
                self.counts.wire_corrupt += 1;
                return Err(ChangeError::WireCorrupt { slice }.into());
            }
            fragments.push(Fragment { slice, from, bytes, old });
        }
        Ok(fragments)
    }

    fn check_wire(&mut self, wanted: &Wanted<'_, W>, span: Span) -> Result<(), ChangeError> {
        let mut data = Gather::new(wanted.data);
        let mut scratch = [0; SLICE_BYTES];
        for (slice, crc) in (span.first()..).zip(wanted.crcs) {
            if self.is_staged(wanted, slice) {
                continue;
            }
            let (_, len) = span.part(slice);
            if len < SLICE_BYTES {
                data.skip(len);
                continue;
            }
            let bytes = data.together(len, &mut scratch);
            if slice_crc(wanted.chunk, slice, bytes) != *crc {
                self.counts.wire_corrupt += 1;
                return Err(ChangeError::WireCorrupt { slice });
            }
        }
        Ok(())
    }

    /// Whether the bytes of a write stand in the log: they are few, and the log makes them last by
    /// itself.
    fn is_to_be_logged(&self, wanted: &Wanted<'_, W>, span: Span) -> bool {
        let byte_len = span.end() - span.start();
        wanted.early.is_none() && byte_len <= LOGGED_BYTES_MAX && self.io.writes_durably()
    }

    /// The slices that are written whole, in memory that the log and their pages are written from.
    fn logged(&self, wanted: &Wanted<'_, W>, span: Span) -> io::Result<Logged> {
        let mut data = Gather::new(wanted.data);
        let slices = span.first()..span.first() + span.count();
        let copy = |slice| {
            if !span.covers(slice) {
                data.skip(span.part(slice).1);
                return Ok(None);
            }
            self.memory.frozen_page(|page| data.copy(page)).map(Some)
        };
        slices.map(copy).collect()
    }

    /// The writes of the slices that are written whole and are not on their way: position of the
    /// first, and the operation.
    fn copies(
        &self,
        wanted: &Wanted<'_, W>,
        span: Span,
        fresh: &[(usize, Extent)],
    ) -> io::Result<Writes> {
        let mut data = Gather::new(wanted.data);
        let mut writes = Writes::new();
        for &(first, Extent { page, count }) in fresh {
            let (mut position, mut page, end) = (first, page, page + count);
            while page < end {
                let slice = span.first() + position as u64;
                if !span.covers(slice) {
                    data.skip(span.part(slice).1);
                    (page, position) = (page + 1, position + 1);
                    continue;
                }
                let whole_to = span.end() / SLICE_BYTES as u64;
                let run = u64::from(end - page).min(whole_to - slice) as usize;
                let run = run.min(OP_PAGES[self.staging.index()]);
                let mut from = towpath_disk::Buffers::<WritePages>::new();
                for first in (0..run).step_by(LONG_PAGES) {
                    let pages = (run - first).min(LONG_PAGES);
                    from.push(self.memory.filled(pages, |buf| data.copy(buf))?);
                }
                writes.push((position, Op::write_all(self.layout.data_page(page), from)));
                (page, position) = (page + run as u32, position + run);
            }
        }
        Ok(writes)
    }

    fn begin_write(
        &mut self,
        to: Option<Client>,
        (chunk, span, head, terms): (ChunkId, Span, Head, Terms),
        early: Option<usize>,
        (data, crcs): (Vec<W>, Vec<u32>),
        (extents, fragments, data_of): (Vec<Extent>, Fragments, Data),
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
        let (writes, logged) = match data_of {
            Data::Pages(writes) => (writes, None),
            Data::Log(logged) => (Writes::new(), Some(logged)),
        };
        let change = Change::Write { offset: span.start(), byte_len, extents, crcs, logged };
        let member = self.join(to, chunk, Staged { change, terms, head, slots, blocks }, data);
        let under_way = early.map_or(0, |key| self.early.get(key).writes_left);
        self.members[member].writes_left = writes.len() + under_way;
        if let Some(key) = early {
            self.early.hand_over(key, member);
        }
        self.members[member].merges_left = edges.len();
        for (_, op) in writes {
            self.io.submit_as(self.staging, Purpose::Data { member }, op);
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

/// What a write comes to whose data does not get to the disk.
pub(super) fn write_failed(error: &DiskError) -> ChangeError {
    match error.is_full() {
        true => ChangeError::Refused(Refused::NoSpace),
        false => ChangeError::Media(super::media_error(error)),
    }
}

/// How many slots a change adds to a chunk that it makes reach to `end`.
pub(super) fn slots_wanted(head: Head, end: u64) -> u64 {
    if !head.has_slots {
        return 0;
    }
    slices_in(end.max(head.byte_len)) - slices_in(head.byte_len)
}
