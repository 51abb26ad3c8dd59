//! The log as an opening reads it: both copies from one place on, as far as they are needed.

use std::collections::BTreeSet;
use std::io;

use super::blocking::{Blocking, Wanted};
use super::layout::{LOG_COPIES, Layout};
use super::memory::LONG_PAGES;
use super::page::{PAGE_BYTES, PageBytes};
use super::ring::Ring;
use crate::store::record::{LogKey, RECORD_ALIGN, Record, parse_header, parse_record};
use crate::store::slice::ChunkId;
use towpath_disk::PageNumber;

/// Pages of each copy that are read at once.
const STEP_PAGES: usize = 16 * LONG_PAGES;

/// Bytes of both copies of the log from `first_page` on.
pub(super) struct Tape<'a> {
    layout: &'a Layout,
    ring: Ring,
    key: LogKey,
    /// Counted from the beginning of all time.
    pub(super) first_page: u64,
    copies: [Vec<u8>; LOG_COPIES as usize],
    /// Pages of a copy, by their place on the tape, that are not on the disk as they are here.
    pub(super) mended: BTreeSet<(usize, usize)>,
}

/// A sound header somewhere further on.
pub(super) struct Sign {
    pub(super) offset: usize,
    pub(super) sequence: u64,
    pub(super) durable_sequence: u64,
    pub(super) chunk: ChunkId,
    pub(super) is_whole: bool,
}

impl<'a> Tape<'a> {
    pub(super) fn new(layout: &'a Layout, ring: Ring, key: LogKey, first_page: u64) -> Self {
        Self { layout, ring, key, first_page, copies: Default::default(), mended: BTreeSet::new() }
    }

    /// Reads on until there are `byte_len` bytes, or the whole ring.
    pub(super) fn read_to(&mut self, disk: &mut Blocking<'_>, byte_len: usize) -> io::Result<()> {
        // Never more than from the first page that is needed to the last one that may be written.
        let whole = (self.ring.limit(self.first_page) - self.first_page) as usize * PAGE_BYTES;
        while self.copies[0].len() < byte_len.min(whole) {
            let from = self.copies[0].len() / PAGE_BYTES;
            let to = (from + STEP_PAGES).min(whole / PAGE_BYTES);
            for (copy, bytes) in self.copies.iter_mut().enumerate() {
                bytes.resize(to * PAGE_BYTES, 0);
                let runs = runs((self.layout, &self.ring), copy as u64, self.first_page, from..to);
                disk.each(runs, |first, place, page: Option<&PageBytes>| {
                    let at = (first as usize + place) * PAGE_BYTES;
                    // What cannot be read is no record.
                    let page = page.unwrap_or(&[0; PAGE_BYTES]);
                    bytes[at..at + PAGE_BYTES].copy_from_slice(page);
                })?;
            }
        }
        Ok(())
    }

    /// Where a page of the tape lies, in one of the copies.
    pub(super) fn place(&self, copy: u64, page: u64) -> PageNumber {
        self.layout.log_slot(copy, self.ring.slot(self.first_page + page))
    }

    pub(super) fn len(&self) -> usize {
        self.copies[0].len()
    }

    /// The record that begins at an offset, in whichever copy has it whole, and its length.
    pub(super) fn record(&self, offset: usize) -> Option<(Record<'_>, usize)> {
        let of = |copy: &'_ Vec<u8>| parse_record(copy.get(offset..)?, self.key).ok().map(drop);
        let copy = self.copies.iter().position(|copy| of(copy).is_some())?;
        parse_record(&self.copies[copy][offset..], self.key).ok()
    }

    /// The record at an offset that is due there, from a copy that has it. The other one may have
    /// what was there before, where its page could not be written.
    pub(super) fn due(
        &self,
        offset: usize,
        is_due: impl Fn(&Record<'_>) -> bool,
    ) -> Option<(Record<'_>, usize)> {
        let of = |copy: &'_ Vec<u8>| {
            let (record, _) = parse_record(copy.get(offset..)?, self.key).ok()?;
            is_due(&record).then_some(())
        };
        let copy = self.copies.iter().position(|copy| of(copy).is_some())?;
        parse_record(&self.copies[copy][offset..], self.key).ok()
    }

    /// Makes all copies of the record of that number like the whole one.
    pub(super) fn mend(&mut self, offset: usize, byte_len: usize, sequence: u64) -> bool {
        let whole = |copy: &Vec<u8>| {
            let found = parse_record(&copy[offset..], self.key);
            found.is_ok_and(|(record, _)| record.frame.sequence == sequence)
        };
        let Some(good) = self.copies.iter().position(whole) else { return false };
        let bytes = self.copies[good][offset..offset + byte_len].to_vec();
        let mut was_bad = false;
        for (number, copy) in self.copies.iter_mut().enumerate() {
            let found = &mut copy[offset..offset + byte_len];
            if found != bytes {
                found.copy_from_slice(&bytes);
                was_bad = true;
                let pages = offset / PAGE_BYTES..=(offset + byte_len - 1) / PAGE_BYTES;
                self.mended.extend(pages.map(|page| (number, page)));
            }
        }
        was_bad
    }

    /// The page at an offset, from a copy that has it as it should be.
    pub(super) fn page(&self, at: usize, is_it: &dyn Fn(&[u8]) -> bool) -> Option<&[u8]> {
        let mut pages = self.copies.iter().filter_map(|copy| copy.get(at..at + PAGE_BYTES));
        pages.find(|page| is_it(page))
    }

    /// Makes all copies of a page like the one that is as it should be. True where one was not.
    pub(super) fn mend_page(&mut self, at: usize, is_it: &dyn Fn(&[u8]) -> bool) -> bool {
        let Some(good) = self.page(at, is_it).map(<[u8]>::to_vec) else { return false };
        let mut was_bad = false;
        for (number, copy) in self.copies.iter_mut().enumerate() {
            if copy[at..at + PAGE_BYTES] != good {
                copy[at..at + PAGE_BYTES].copy_from_slice(&good);
                self.mended.insert((number, at / PAGE_BYTES));
                was_bad = true;
            }
        }
        was_bad
    }

    /// Has the pages from one offset to the end of the log written again, with zeros behind the
    /// last record in its page, and one page of zeros behind: nothing follows there.
    pub(super) fn end_at(&mut self, from: usize, records_end: usize, end: usize) {
        let last = end.next_multiple_of(PAGE_BYTES);
        for (number, copy) in self.copies.iter_mut().enumerate() {
            let zeros = (last + PAGE_BYTES).min(copy.len());
            let page_end = records_end.next_multiple_of(PAGE_BYTES).min(copy.len());
            copy[records_end.min(page_end)..page_end].fill(0);
            copy[last.min(zeros)..zeros].fill(0);
            let pages = from / PAGE_BYTES..zeros / PAGE_BYTES;
            self.mended.extend(pages.map(|page| (number, page)));
        }
    }

    /// Writes what was mended. A page that cannot be written matters only where the other copy of
    /// it cannot be written either.
    pub(super) fn write_back(&mut self, disk: &mut Blocking<'_>) -> io::Result<()> {
        let mut bad = BTreeSet::new();
        for (copy, page) in std::mem::take(&mut self.mended) {
            let at = self.place(copy as u64, page as u64);
            let bytes = &self.copies[copy][page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
            match disk.write(at, bytes) {
                Err(error) if bad.insert(page) => {
                    tracing::error!(%error, %at, "a copy of the log cannot be written");
                }
                written => written?,
            }
        }
        Ok(())
    }

    /// The sound headers between two offsets of records from `sequence` on, up to the first whole
    /// record.
    pub(super) fn signs(&self, from: usize, to: usize, sequence: u64) -> Vec<Sign> {
        let mut signs = Vec::new();
        for offset in (from..to.min(self.len())).step_by(RECORD_ALIGN) {
            for copy in &self.copies {
                let Some((frame, chunk)) = parse_header(&copy[offset..], self.key) else {
                    continue;
                };
                if frame.sequence < sequence {
                    continue;
                }
                let is_whole = parse_record(&copy[offset..], self.key).is_ok();
                let (sequence, durable_sequence) = (frame.sequence, frame.durable_sequence);
                signs.push(Sign { offset, sequence, durable_sequence, chunk, is_whole });
                if is_whole {
                    return signs;
                }
            }
        }
        signs
    }
}

/// Runs of pages of a copy that lie together on the disk, numbered by their place on the tape.
fn runs(
    (layout, ring): (&Layout, &Ring),
    copy: u64,
    first_page: u64,
    places: std::ops::Range<usize>,
) -> Vec<Wanted> {
    let (mut runs, mut place) = (Vec::new(), places.start);
    while place < places.end {
        let page = first_page + place as u64;
        let together = usize::try_from(ring.together(page)).unwrap_or(LONG_PAGES);
        let count = (places.end - place).min(LONG_PAGES).min(together);
        let at = layout.log_slot(copy, ring.slot(page));
        runs.push(Wanted { number: place as u64, at, count });
        place += count;
    }
    runs
}
