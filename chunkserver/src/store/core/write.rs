//! Writes: their slices go to fresh pages while the group that they belong to still gathers.

use std::io;

use smallvec::SmallVec;
use towpath_disk::{DiskError, Op};
use towpath_transport::Class;

use super::change::{Change, Head, Kept};
use super::held::Asked;
use super::memory::LONG_PAGES;
use super::merge::Edge;
use super::space::EDGE_PAGES;
use super::stage::{Known, Staged, Stop, asker, slots_wanted};
use super::state::StoreCore;
use crate::store::error::{ChangeError, Refused};
use crate::store::gather::Gather;
use crate::store::limits::{LOGGED_BYTES_MAX, WRITE_BYTES_MAX};
use crate::store::media::{MediaError, MediaOp};
use crate::store::record::{Extent, Extents};
use crate::store::request::{Request, Terms};
use crate::store::slice::{ChunkId, SLICE_BYTES, Span, fragment_crc, slice_crc};

/// Bytes of data of a class that gather at most: some milliseconds of a disk.
const GROUP_DATA_BYTES_MAX: u64 = 32 << 20;

/// Pages that are written by one operation, by class: what a higher class waits for at a time.
pub(super) const OP_PAGES: [usize; Class::COUNT] =
    [16 * LONG_PAGES, 4 * LONG_PAGES, LONG_PAGES / 2];

/// A write, as it was asked for.
struct Wanted<'a, W> {
    class: Class,
    chunk: ChunkId,
    data: &'a [W],
    crcs: &'a [u32],
    span: Span,
    /// What was staged of it.
    early: Option<usize>,
}

/// Runs of slices that are not on the disk, or on the way there: the position of the first, and
/// where they go.
type Fresh = SmallVec<[(usize, Extent); 1]>;

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Checks a write, takes its pages, and makes ready what is to be written.
    pub(super) fn stage_write(&mut self, known: &Known, asked: &Asked<W>) -> Result<Staged, Stop> {
        let Request::Write { chunk, offset, ref data, ref crcs, staged, verified, terms } =
            asked.request
        else {
            return Err(ChangeError::NoSuchChunk(known.chunk).into());
        };
        let early = staged.map(|stage| {
            let found = self.early.find(asker(asked.to), stage, chunk);
            found.ok_or(ChangeError::NotStaged)
        });
        let early = early.transpose()?;
        if let Some(failed) = early.and_then(|key| self.early.take_failure(key)) {
            return Err(failed.into());
        }
        let staged_count = early.map_or(0, |key| self.early.pages(key).len() as u64);
        let byte_len: u64 = data.iter().map(|piece| piece.as_ref().len() as u64).sum();
        let byte_len = byte_len + staged_count * SLICE_BYTES as u64;
        let (span, head) = check_range(known, offset, byte_len)?;
        let (class, data, crcs) = (asked.class, &data[..], &crcs[..]);
        let wanted = Wanted { class, chunk, data, crcs, span, early };
        self.check_lists(&wanted, head)?;
        self.check_terms(known, terms)?;
        let (slots, blocks) = self.check_space(known, head, span)?;
        let mut edges = self.edges(&wanted, staged_count)?;
        if !verified {
            self.check_wire(&wanted)?;
        }
        let count = span.count() as u32;
        // At worst each slice gets an extent of its own.
        self.check_group(class, 112 + 12 * count as usize)?;
        let gathered = self.changes.gathered(class).data_bytes;
        if gathered > 0 && gathered + u64::from(count) * SLICE_BYTES as u64 > GROUP_DATA_BYTES_MAX {
            return Err(Stop::Hold);
        }
        let taken = self.space.take(count - staged_count as u32, EDGE_PAGES);
        let taken = taken.ok_or_else(|| self.no_pages())?;
        let (extents, fresh) = self.place(&wanted, taken);
        for edge in &mut edges {
            edge.page = page_at(&extents, edge.position);
        }
        // The bytes of few slices stand in the log, where that makes them last by itself.
        let is_logged = early.is_none() && byte_len <= LOGGED_BYTES_MAX && self.io.writes_durably();
        #[cfg(test)]
        self.free_early(known, span);
        let change = Change::Write { offset, byte_len, extents, crcs: Vec::new(), is_logged };
        let mut staged = Staged { slots, blocks, edges, early, ..Staged::new(change, terms) };
        let made = match is_logged {
            true => self.logged(&wanted).map(|kept| staged.kept = kept),
            false => self.copies(&wanted, &fresh).map(|writes| staged.writes = writes),
        };
        match made {
            Ok(()) => Ok(staged),
            Err(source) => {
                fresh.iter().for_each(|(_, extent)| self.space.pages.release(*extent));
                Err(MediaError::memory(MediaOp::Write, source).into())
            }
        }
    }

    /// Whether a write would be made now.
    pub(super) fn would_write(
        &mut self,
        chunk: ChunkId,
        (offset, byte_len): (u64, u64),
        terms: Terms,
    ) -> Result<(), ChangeError> {
        let known = self.known(chunk);
        let mut check = || -> Result<(), Stop> {
            self.check_usable()?;
            let (span, head) = check_range(&known, offset, byte_len)?;
            match self.check_terms(&known, terms) {
                // What is under way comes before the write in any case.
                Ok(()) | Err(Stop::Hold) => {}
                stopped => return stopped,
            }
            self.check_space(&known, head, span)?;
            match self.space.pages.free_pages() < span.count() + EDGE_PAGES {
                true => Err(self.no_pages()),
                false => Ok(()),
            }
        };
        match check() {
            // What was made before is made again without harm.
            Ok(()) | Err(Stop::Known(_)) => Ok(()),
            // It may find room in a while.
            Err(Stop::Hold) => Err(ChangeError::NotStaged),
            Err(Stop::Refuse(error)) => Err(error),
        }
    }

    /// Whether there is room for the slices of a write, but for pages; gives the slots and blocks
    /// that it takes.
    fn check_space(&mut self, known: &Known, head: Head, span: Span) -> Result<(u64, u64), Stop> {
        let slots = slots_wanted(head, span.end());
        self.check_slots(slots)?;
        let blocks = self.blocks_for(known, span.first(), span.count());
        self.check_blocks(blocks)?;
        self.check_room(span.count() * SLICE_BYTES as u64)?;
        Ok((slots, blocks))
    }

    /// Whether there is a checksum for each slice, and those that are staged are of the write.
    fn check_lists(&self, wanted: &Wanted<'_, W>, head: Head) -> Result<(), ChangeError> {
        let (expected, found) = (wanted.span.count(), wanted.crcs.len() as u64);
        if expected != found {
            return Err(ChangeError::CrcCount { expected, found });
        }
        let Some(key) = wanted.early else { return Ok(()) };
        let mut staged = self.early.pages(key).keys();
        // Slices of resident chunks must be in memory as well: it was made anew meanwhile.
        match head.has_slots || !staged.all(|slice| wanted.span.covers(*slice)) {
            true => Err(ChangeError::NotStaged),
            false => Ok(()),
        }
    }

    /// Puts the pages of staged slices and those that were taken in the order of the slices.
    fn place(&self, wanted: &Wanted<'_, W>, taken: Extents) -> (Extents, Fresh) {
        let Some(key) = wanted.early else {
            let mut position = 0;
            let fresh = taken.iter().map(|extent| {
                let first = position;
                position += extent.count as usize;
                (first, *extent)
            });
            let fresh = fresh.collect();
            return (taken, fresh);
        };
        let mut taken = taken.iter().flat_map(|extent| extent.page..extent.page + extent.count);
        let (mut extents, mut fresh) = (Extents::new(), Fresh::new());
        for (position, slice) in (0..wanted.span.count() as usize).zip(wanted.span.first()..) {
            let known = self.early.pages(key).get(&slice).copied();
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
        (extents, fresh)
    }

    /// The slices that are written in part, checked as they lie in memory of the store. Their pages
    /// are still to be taken.
    fn edges(&mut self, wanted: &Wanted<'_, W>, staged_count: u64) -> Result<Vec<Edge>, Stop> {
        let Wanted { chunk, span, .. } = *wanted;
        let mut edges = Vec::new();
        let last = span.first() + span.count() - 1;
        let ends = [Some(span.first()), (last > span.first()).then_some(last)];
        for slice in ends.into_iter().flatten().filter(|slice| !span.covers(*slice)) {
            let old = self.newest(chunk, slice)?;
            let (from, len) = span.part(slice);
            let before = (slice * SLICE_BYTES as u64).saturating_sub(span.start());
            // Staged slices are all between the two.
            let staged = if slice > span.first() { staged_count } else { 0 };
            let before = before.saturating_sub(staged * SLICE_BYTES as u64);
            let mut bytes = vec![0; len];
            let mut data = Gather::new(wanted.data);
            data.skip(before as usize);
            data.copy(&mut bytes);
            let position = (slice - span.first()) as usize;
            if fragment_crc(chunk, slice, from as u32, &bytes) != wanted.crcs[position] {
                self.health.counts.wire_corrupt += 1;
                return Err(ChangeError::WireCorrupt { slice }.into());
            }
            let (member, page) = (0, 0);
            edges.push(Edge { member, chunk, slice, position, page, from, bytes, old });
        }
        Ok(edges)
    }

    fn check_wire(&mut self, wanted: &Wanted<'_, W>) -> Result<(), ChangeError> {
        let Wanted { chunk, span, .. } = *wanted;
        let mut data = Gather::new(wanted.data);
        let mut scratch = [0; SLICE_BYTES];
        for (slice, crc) in (span.first()..).zip(wanted.crcs) {
            if wanted.early.is_some_and(|key| self.early.pages(key).contains_key(&slice)) {
                continue;
            }
            let (_, len) = span.part(slice);
            if len < SLICE_BYTES {
                data.skip(len);
                continue;
            }
            let bytes = data.together(len, &mut scratch);
            if slice_crc(chunk, slice, bytes) != *crc {
                self.health.counts.wire_corrupt += 1;
                return Err(ChangeError::WireCorrupt { slice });
            }
        }
        Ok(())
    }

    /// The slices that are written whole, in memory that the log and their pages are written from.
    fn logged(&self, wanted: &Wanted<'_, W>) -> io::Result<Kept> {
        let Wanted { span, .. } = *wanted;
        let (mut data, mut kept) = (Gather::new(wanted.data), Kept::new());
        for (position, slice) in (0..span.count() as usize).zip(span.first()..) {
            match span.covers(slice) {
                true => {
                    kept.push((position, self.io.memory.frozen_page(|page| data.copy(page))?));
                }
                false => data.skip(span.part(slice).1),
            }
        }
        Ok(kept)
    }

    /// The writes of the slices that are written whole and are not on their way.
    fn copies(
        &self,
        wanted: &Wanted<'_, W>,
        fresh: &[(usize, Extent)],
    ) -> io::Result<SmallVec<[Op; 1]>> {
        let Wanted { span, class, .. } = *wanted;
        let mut data = Gather::new(wanted.data);
        let mut writes = SmallVec::new();
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
                let run = run.min(OP_PAGES[class.index()]);
                let from = self.io.memory.all_filled(run, |buf| data.copy(buf))?;
                writes.push(Op::write_all(self.layout.data_page(page), from));
                (page, position) = (page + run as u32, position + run);
            }
        }
        Ok(writes)
    }
}

/// Whether a chunk can have these bytes.
fn check_range(known: &Known, offset: u64, byte_len: u64) -> Result<(Span, Head), ChangeError> {
    if byte_len == 0 || byte_len > WRITE_BYTES_MAX {
        return Err(ChangeError::Length { byte_len });
    }
    let head = known.sound()?;
    let limit_bytes = head.limit_bytes;
    if offset.checked_add(byte_len).is_none_or(|end| end > limit_bytes) {
        return Err(ChangeError::LimitExceeded { limit_bytes });
    }
    Ok((Span::new(offset, byte_len), head))
}

#[cfg(test)]
impl<W> StoreCore<W> {
    fn free_early(&mut self, known: &Known, span: Span) {
        if self.bug == Some(super::tests::Bug::ReuseTooEarly)
            && !known.is_pending
            && let Some(found) = self.map.chunks.get(&known.chunk)
        {
            for slice in span.first()..span.first() + span.count() {
                let old = found.slice(slice);
                if !old.is_hole() {
                    self.space.pages.release(Extent { page: old.page, count: 1 });
                }
            }
        }
    }
}

/// The page of the slice at a position.
pub(super) fn page_at(extents: &[Extent], position: usize) -> u32 {
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
        true => Refused::NoSpace.into(),
        false => ChangeError::Media(super::media_error(error)),
    }
}
