//! The log as an opening reads it: both copies from one place on, as far as they are needed.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::blocking::Blocking;
use super::layout::{LOG_COPIES, Layout};
use super::memory::LONG_PAGES;
use super::page::PAGE_BYTES;
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
                let place = |page: u64| {
                    let slot = self.ring.slot(self.first_page + page);
                    (page, self.layout.log_slot(copy as u64, slot))
                };
                disk.each((from as u64..to as u64).map(place), |page, found| {
                    let at = page as usize * PAGE_BYTES;
                    // What cannot be read is no record.
                    let found = found.unwrap_or(&[0; PAGE_BYTES]);
                    bytes[at..at + PAGE_BYTES].copy_from_slice(found);
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

    /// The record of a number at an offset, from a copy that has it.
    pub(super) fn numbered(&self, offset: usize, sequence: u64) -> Option<(Record<'_>, usize)> {
        self.due(offset, |record| record.frame.sequence == sequence)
    }

    /// The record at an offset that is due there, from a copy that has it. The other one may have
    /// what was there before, where its page could not be written.
    pub(super) fn due(
        &self,
        offset: usize,
        is_due: impl Fn(&Record<'_>) -> bool,
    ) -> Option<(Record<'_>, usize)> {
        self.copies.iter().find_map(|copy| {
            let found = parse_record(copy.get(offset..)?, self.key).ok()?;
            is_due(&found.0).then_some(found)
        })
    }

    /// Makes all copies of the record of that number like the whole one. True where one was not.
    pub(super) fn mend(&mut self, offset: usize, byte_len: usize, sequence: u64) -> bool {
        let key = self.key;
        self.mend_bytes(offset..offset + byte_len, &|bytes| {
            let found = parse_record(bytes, key);
            found.is_ok_and(|(record, _)| record.frame.sequence == sequence)
        })
    }

    /// The page at an offset, from a copy that has it as it should be.
    pub(super) fn page(&self, at: usize, is_it: &dyn Fn(&[u8]) -> bool) -> Option<&[u8]> {
        let mut pages = self.copies.iter().filter_map(|copy| copy.get(at..at + PAGE_BYTES));
        pages.find(|page| is_it(page))
    }

    /// Makes all copies of a page like the one that is as it should be. True where one was not.
    pub(super) fn mend_page(&mut self, at: usize, is_it: &dyn Fn(&[u8]) -> bool) -> bool {
        self.mend_bytes(at..at + PAGE_BYTES, is_it)
    }

    fn mend_bytes(&mut self, range: Range<usize>, is_it: &dyn Fn(&[u8]) -> bool) -> bool {
        let mut copies = self.copies.iter().filter_map(|copy| copy.get(range.clone()));
        let Some(good) = copies.find(|bytes| is_it(bytes)).map(<[u8]>::to_vec) else {
            return false;
        };
        let mut was_bad = false;
        for (number, copy) in self.copies.iter_mut().enumerate() {
            let found = &mut copy[range.clone()];
            if found != good {
                found.copy_from_slice(&good);
                was_bad = true;
                let pages = range.start / PAGE_BYTES..=(range.end - 1) / PAGE_BYTES;
                self.mended.extend(pages.map(|page| (number, page)));
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
