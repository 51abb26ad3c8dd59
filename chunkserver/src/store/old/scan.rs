//! The records of a log, as its copies say together (docs/store-format.md section 8).

use super::map::ChunkMap;
use crate::store::damage::LostRecords;
use crate::store::error::ApplyError;
use crate::store::record::{LogKey, RECORD_ALIGN, Record, RecordError, parse_header, parse_record};
use crate::store::slice::ChunkId;

/// What the next place of a log holds.
#[derive(Debug)]
enum Step<'a> {
    Record(Record<'a>),
    Lost(LostRecords),
    End,
}

/// Reads the records of one log in turn; each from whichever copy has it whole.
pub(crate) struct Scan<'a> {
    copies: &'a [Vec<u8>],
    key: LogKey,
    generation: u64,
    /// Where the next record is due.
    pub(crate) at: usize,
    /// Its number.
    pub(crate) next_sequence: u64,
    /// Header checksum of the record before.
    last_crc: u32,
    /// Records were lost just before: the next one repeats a checksum that is not known.
    unchained: bool,
    /// The last record that something says was on stable media.
    proven: u64,
    /// All that follows was looked through for that.
    is_surveyed: bool,
}

/// A sound header somewhere further on.
struct Sign {
    offset: usize,
    sequence: u64,
    chunk: ChunkId,
    is_whole: bool,
}

impl<'a> Scan<'a> {
    /// Begins at `at`, where record `next_sequence` is due; `proven` is the last record that is
    /// known from elsewhere to have been on stable media.
    pub(crate) fn new(
        copies: &'a [Vec<u8>],
        key: LogKey,
        generation: u64,
        at: usize,
        next_sequence: u64,
        proven: u64,
    ) -> Self {
        Self {
            copies,
            key,
            generation,
            at,
            next_sequence,
            last_crc: 0,
            unchained: false,
            proven,
            is_surveyed: false,
        }
    }

    /// Applies all records to `map`; the map learns which are lost. `recent` tells of some which
    /// chunks they changed.
    ///
    /// # Errors
    /// Where a record cannot have happened although none before it is lost: its offset, and why.
    pub(crate) fn replay(
        &mut self,
        map: &mut ChunkMap,
        recent: &[(u64, ChunkId)],
    ) -> Result<(), (u64, ApplyError)> {
        loop {
            let offset = self.at as u64;
            match self.step() {
                Step::End => break,
                Step::Lost(mut records) => {
                    records.name(recent);
                    map.lose(&records);
                }
                Step::Record(record) if map.is_lossy() => map.apply_after_loss(&record),
                Step::Record(record) => map.apply(&record, |_| ()).map_err(|e| (offset, e))?,
            }
        }
        Ok(())
    }

    /// Bytes behind the end, up to the last one that is not zero.
    fn torn_bytes(&self) -> usize {
        let rest = |copy: &Vec<u8>| {
            let rest = copy.get(self.at..).unwrap_or_default();
            rest.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1)
        };
        self.copies.iter().map(rest).max().unwrap_or(0)
    }

    /// Whether there is nothing in it: no record, and no sign that there was one.
    pub(crate) fn is_empty(&mut self) -> bool {
        matches!(self.step(), Step::End)
    }

    fn step(&mut self) -> Step<'a> {
        if let Some((record, len)) = self.record_due() {
            self.proven = self.proven.max(record.frame.durable_sequence);
            self.unchained = false;
            self.last_crc = record.header_crc;
            self.next_sequence += 1;
            self.at += len;
            return Step::Record(record);
        }
        self.gap()
    }

    /// The record that is due, from whichever copy has it, and its length.
    fn record_due(&self) -> Option<(Record<'a>, usize)> {
        self.copies.iter().find_map(|copy| {
            let (record, len) = parse_record(copy.get(self.at..)?, self.key).ok()?;
            let frame = record.frame;
            let is_due = frame.generation == self.generation
                && frame.sequence == self.next_sequence
                && (self.unchained || frame.previous_crc == self.last_crc);
            is_due.then_some((record, len))
        })
    }

    /// No copy has the record that is due. It is the end of the log, unless something says that
    /// the record was on stable media: then the records up to the next whole one are lost.
    fn gap(&mut self) -> Step<'a> {
        let (offset, first) = (self.at as u64, self.next_sequence);
        let signs = self.signs();
        let proven = self.proven;
        if proven < first && !self.stands_what_no_crash_leaves() {
            return Step::End;
        }
        let next = signs.last().filter(|sign| sign.is_whole);
        let last = next.map_or(proven.max(first), |sign| sign.sequence - 1);
        let named: Vec<_> = signs.iter().map(|sign| (sign.sequence, sign.chunk)).collect();
        let used = || self.at + self.torn_bytes();
        let end = next.map_or_else(used, |sign| sign.offset);
        self.at = end.next_multiple_of(RECORD_ALIGN);
        self.next_sequence = last + 1;
        self.unchained = true;
        let mut lost = LostRecords { first, last, offset, end: end as u64, named: Vec::new() };
        lost.name(&named);
        Step::Lost(lost)
    }

    /// The sound headers from the place of the record that is due on, of that record or later
    /// ones, up to the first whole record. What all headers further on prove is taken in the first
    /// time, so that many gaps cost no more than one.
    fn signs(&mut self) -> Vec<Sign> {
        let len = self.copies.iter().map(Vec::len).max().unwrap_or(0);
        let mut signs: Vec<Sign> = Vec::new();
        for offset in (self.at..len).step_by(RECORD_ALIGN) {
            let is_found = signs.last().is_some_and(|sign| sign.is_whole);
            if is_found && self.is_surveyed {
                break;
            }
            for copy in self.copies {
                let Some(bytes) = copy.get(offset..) else { continue };
                let Some((frame, chunk)) = parse_header(bytes, self.key) else { continue };
                if frame.generation != self.generation || frame.sequence < self.next_sequence {
                    continue;
                }
                self.proven = self.proven.max(frame.durable_sequence);
                if !signs.last().is_some_and(|sign| sign.is_whole) {
                    let is_whole = parse_record(bytes, self.key).is_ok();
                    signs.push(Sign { offset, sequence: frame.sequence, chunk, is_whole });
                }
            }
        }
        self.is_surveyed = true;
        signs
    }

    /// A record that is whole and out of place, or says something impossible.
    fn stands_what_no_crash_leaves(&self) -> bool {
        self.copies.iter().any(|copy| {
            let bytes = copy.get(self.at..).unwrap_or_default();
            matches!(parse_record(bytes, self.key), Ok(_) | Err(RecordError::Impossible { .. }))
        })
    }
}
