//! The replay: what the log says since a checkpoint (docs/store-core.md section 8).

use std::collections::{BTreeMap, HashMap};
use std::io;

use super::blocking::Blocking;
use super::damage_at;
use super::layout::Layout;
use super::map::Map;
use super::page::PAGE_BYTES;
use super::superblock::LogPoint;
use super::tape::Tape;
use crate::store::clear::SlicePut;
use crate::store::damage::LostRecords;
use crate::store::damage::{Damage, DamageKind};
use crate::store::error::ApplyError;
use crate::store::record::{Body, Record, WriteBody};
use crate::store::slice::{ChunkId, slice_crc};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// After the last group that counts.
    pub(super) end: LogPoint,
    /// The last record that something says was durable.
    pub(super) proven: u64,
    pub(super) records: u64,
    /// The last of them is a seal: nothing that matters is unproven.
    pub(super) is_sealed: bool,
    /// Bytes of records that do not count.
    pub(super) torn_bytes: u64,
    pub(super) damage: Vec<Damage>,
    /// Pages of data that records name of which nothing says that they were durable.
    pub(super) unproven: Vec<u32>,
    /// Slices whose bytes stand in the log, by their page, as the records left them.
    pub(super) logged: BTreeMap<u32, Named>,
}

/// A replay that cannot go on: a record says what cannot have happened.
#[derive(Debug)]
pub(super) enum ReplayError {
    Apply { offset: u64, source: ApplyError },
    Io(io::Error),
}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What stands at a place of the log.
enum Event {
    /// A record at that offset, with that number.
    Record(usize, u64),
    Lost(LostRecords),
}

/// Reads the log from `start` on.
pub(super) struct Replay<'s, 'a, 'd> {
    pub(super) layout: &'s Layout,
    pub(super) tape: Tape<'s>,
    pub(super) disk: &'a mut Blocking<'d>,
    /// Bytes of the largest group.
    pub(super) group_bytes_max: usize,
    pub(super) start: LogPoint,
    pub(super) proven: u64,
    /// The log does not follow from the map: records are taken in as far as they can be, and the
    /// chunks of those that do not fit are suspect.
    pub(super) is_lenient: bool,
}

impl Replay<'_, '_, '_> {
    /// Applies to `map` all records that count.
    pub(super) fn run(&mut self, map: &mut Map) -> Result<Replayed, ReplayError> {
        let (events, scanned) = self.scan()?;
        let mut replayed = Replayed { proven: self.proven, ..Replayed::default() };
        let (mut end, mut records_end) = (0, 0);
        let mut last = (self.start.sequence, self.start.crc);
        let counting = self.counting(&events, &mut replayed)?;
        let mut unproven_from = None;
        for event in events.into_iter().take(counting) {
            let (offset, due) = match event {
                Event::Record(offset, sequence) => {
                    if sequence > self.proven {
                        unproven_from.get_or_insert(offset);
                    }
                    (offset, sequence)
                }
                Event::Lost(lost) => {
                    lose(map, &lost);
                    (end, last) = (lost.end as usize, (lost.last + 1, 0));
                    records_end = end;
                    let offset = self.byte_offset(lost.offset as usize);
                    replayed.damage.push(damage_at(offset, DamageKind::LostRecords(lost)));
                    continue;
                }
            };
            let byte_offset = self.byte_offset(offset);
            let Some((record, len)) = self.tape.numbered(offset, due) else { break };
            let (sequence, header_crc) = (record.frame.sequence, record.header_crc);
            replayed.is_sealed =
                matches!(record.body, Body::Seal) && record.frame.durable_sequence + 1 == sequence;
            if map.is_lossy {
                let odd = map.apply_after_loss(&record);
                if odd.is_some() && self.is_lenient && map.chunks.contains_key(&record.chunk) {
                    map.suspect(record.chunk, sequence);
                }
            } else {
                let applied = map.apply(&record, &mut |_| ());
                applied.map_err(|source| ReplayError::Apply { offset: byte_offset, source })?;
            }
            let (named, group_end) = (slices_of(&record, offset), data_end(&record, offset));
            let is_proven = sequence <= self.proven;
            let mut is_mended = self.tape.mend(offset, len, sequence);
            for slice in named {
                // Whoever had the page before has it no more.
                replayed.logged.remove(&slice.page);
                if let Some(at) = slice.logged_at {
                    is_mended |= self.tape.mend_page(at, &|page| slice.is(page));
                    replayed.logged.insert(slice.page, slice);
                }
            }
            if is_mended && is_proven {
                let (byte_len, records) = (len as u64, 1);
                let kind = DamageKind::LogCopy { byte_len, records };
                replayed.damage.push(damage_at(byte_offset, kind));
            }
            records_end = offset + len;
            end = end.max(offset + len).max(group_end);
            last = (sequence + 1, header_crc);
            replayed.records += 1;
        }
        replayed.torn_bytes = (scanned - end.min(scanned)) as u64;
        let page = self.start.page + end.div_ceil(PAGE_BYTES) as u64;
        replayed.end = LogPoint { page, sequence: last.0, crc: last.1 };
        self.tape.read_to(self.disk, end + 2 * PAGE_BYTES)?;
        let from = unproven_from.unwrap_or(end.next_multiple_of(PAGE_BYTES));
        self.tape.end_at(from, records_end, end);
        replayed.logged.retain(|_, slice| slice.is_in(map));
        Ok(replayed)
    }

    fn byte_offset(&self, offset: usize) -> u64 {
        let page = self.tape.place(0, (offset / PAGE_BYTES) as u64);
        page.byte_offset() + (offset % PAGE_BYTES) as u64
    }

    /// Finds all records that follow each other, and where some are missing that were durable.
    fn scan(&mut self) -> io::Result<(Vec<Event>, usize)> {
        let (mut events, mut at, mut group_end) = (Vec::new(), 0, 0);
        let (mut due, mut crc) = (self.start.sequence, Some(self.start.crc));
        loop {
            self.tape.read_to(self.disk, at + 2 * self.group_bytes_max)?;
            // The next record of the group, or the first one of the next group.
            let aligned = at.next_multiple_of(PAGE_BYTES).max(group_end);
            let is_due = |record: &Record<'_>| {
                record.frame.sequence == due
                    && crc.is_none_or(|crc| record.frame.previous_crc == crc)
            };
            let found = [at, aligned].into_iter().find_map(|offset| {
                let (record, len) = self.tape.due(offset, is_due)?;
                let data_end = data_end(&record, offset);
                Some((offset, len, record.frame, record.header_crc, data_end))
            });
            if let Some((offset, len, frame, header_crc, data_end)) = found {
                group_end = group_end.max(data_end);
                self.proven = self.proven.max(frame.durable_sequence);
                events.push(Event::Record(offset, due));
                (at, due, crc) = (offset + len, due + 1, Some(header_crc));
                continue;
            }
            let signs = self.tape.signs(at, at + 2 * self.group_bytes_max, due);
            let proof = signs.iter().map(|sign| sign.durable_sequence).max().unwrap_or(0);
            self.proven = self.proven.max(proof);
            if self.proven < due {
                return Ok((events, at));
            }
            let next = signs.last().filter(|sign| sign.is_whole && sign.sequence > due);
            let last = next.map_or(self.proven, |sign| sign.sequence - 1);
            let end = next.map_or(at, |sign| sign.offset);
            let mut named: Vec<_> = signs.iter().map(|sign| (sign.sequence, sign.chunk)).collect();
            named.retain(|(sequence, _)| (due..=last).contains(sequence));
            named.sort_unstable();
            named.dedup_by_key(|(sequence, _)| *sequence);
            let (offset, first) = (at as u64, due);
            events.push(Event::Lost(LostRecords { first, last, offset, end: end as u64, named }));
            if next.is_none() {
                return Ok((events, at));
            }
            (at, due, crc) = (end, last + 1, None);
        }
    }

    /// How many of the events count: all that are proven, and of the records behind them as many as
    /// leave no slice that reads back without its checksum. Slices that these records themselves
    /// have overwritten or deleted since need not: once that was durable, their pages may have been
    /// used again. A slice that cannot be read is no sign of a write that was cut short: its record
    /// counts, and the slice is named.
    fn counting(&mut self, events: &[Event], replayed: &mut Replayed) -> io::Result<usize> {
        let is_proven = |event: &Event| match event {
            Event::Record(_, sequence) => *sequence <= self.proven,
            Event::Lost(_) => true,
        };
        let first = events.partition_point(is_proven);
        let mut slices: Vec<(Named, usize, usize)> = Vec::new();
        let mut live: HashMap<(ChunkId, u64), usize> = HashMap::new();
        for (at, event) in events.iter().enumerate().skip(first) {
            let Event::Record(offset, due) = event else { continue };
            let Some((record, _)) = self.tape.numbered(*offset, *due) else { continue };
            let taken = |slice: u64| match &record.body {
                Body::Delete => true,
                Body::Clear(clear) => clear.takes(slice),
                _ => false,
            };
            if matches!(record.body, Body::Delete | Body::Clear(_)) {
                live.retain(|(chunk, slice), known| {
                    let is_gone = *chunk == record.chunk && taken(*slice);
                    if is_gone {
                        slices[*known].2 = at;
                    }
                    !is_gone
                });
            }
            for named in slices_of(&record, *offset) {
                if let Some(before) = live.insert((named.chunk, named.slice), slices.len()) {
                    slices[before].2 = at;
                }
                slices.push((named, at, usize::MAX));
            }
        }
        // Ends that would leave such a slice to be seen.
        let (mut bad, mut unreadable) = (Vec::new(), Vec::new());
        for (named, from, to) in slices {
            match self.look_at(&named)? {
                Look::Whole if named.logged_at.is_none() => replayed.unproven.push(named.page),
                Look::Whole => {}
                Look::Other => bad.push(from + 1..=to),
                Look::Unreadable => unreadable.push((named, from + 1..=to)),
            }
        }
        let ends = (first..=events.len()).rev();
        let good = ends.into_iter().find(|end| !bad.iter().any(|range| range.contains(end)));
        let counting = good.unwrap_or(first);
        let seen = unreadable.into_iter().filter(|(_, ends)| ends.contains(&counting));
        replayed.damage.extend(seen.map(|(Named { page, chunk, slice, .. }, _)| {
            let offset = self.layout.data_page(page).byte_offset();
            damage_at(offset, DamageKind::Slice { chunk, slice })
        }));
        Ok(counting)
    }

    /// Whether a slice reads back with its checksum.
    fn look_at(&mut self, named: &Named) -> io::Result<Look> {
        let Named { page, crc, chunk, slice, logged_at } = *named;
        if !self.layout.has(page) {
            return Ok(Look::Other);
        }
        if let Some(at) = logged_at {
            let found = self.tape.page(at, &|page| named.is(page));
            return Ok(if found.is_some() { Look::Whole } else { Look::Other });
        }
        Ok(match self.disk.page(self.layout.data_page(page))? {
            Some(page) if slice_crc(chunk, slice, &page[..]) == crc => Look::Whole,
            Some(_) => Look::Other,
            None => Look::Unreadable,
        })
    }
}

/// What a slice that a record names reads back as.
enum Look {
    /// With its checksum.
    Whole,
    /// Something else.
    Other,
    /// The disk does not give its page.
    Unreadable,
}

/// A slice that a record names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) page: u32,
    pub(super) crc: u32,
    pub(super) chunk: ChunkId,
    pub(super) slice: u64,
    /// Where its bytes stand on the tape, if they stand in the log.
    pub(super) logged_at: Option<usize>,
}

impl Named {
    /// Whether these are its bytes.
    pub(super) fn is(&self, page: &[u8]) -> bool {
        slice_crc(self.chunk, self.slice, page) == self.crc
    }

    /// Whether it is what a chunk has there.
    fn is_in(&self, map: &Map) -> bool {
        let found = map.chunks.get(&self.chunk).map(|found| found.slice(self.slice));
        found.is_some_and(|at| (at.page, at.crc) == (self.page, self.crc))
    }
}

/// Where on the tape the bytes of the slices of a record begin that stand in the log.
fn data_at(record: &Record<'_>, offset: usize) -> Option<usize> {
    let Body::Write(WriteBody { data_page: Some(pages), .. }) = &record.body else { return None };
    Some((offset / PAGE_BYTES + *pages as usize) * PAGE_BYTES)
}

/// Where they end; zero where there are none.
pub(super) fn data_end(record: &Record<'_>, offset: usize) -> usize {
    let Body::Write(write) = &record.body else { return 0 };
    let bytes = write.span().count() as usize * PAGE_BYTES;
    data_at(record, offset).map_or(0, |at| at + bytes)
}

fn slices_of(record: &Record<'_>, offset: usize) -> Vec<Named> {
    let chunk = record.chunk;
    match &record.body {
        Body::Write(write) => {
            let data_at = data_at(record, offset);
            let slices = (write.span().first()..).zip(write.slices()).enumerate();
            let named = |(position, (slice, (page, crc)))| {
                let logged_at = data_at.map(|at| at + position * PAGE_BYTES);
                Named { page, crc, chunk, slice, logged_at }
            };
            slices.map(named).collect()
        }
        Body::Clear(clear) => {
            let named =
                |SlicePut { slice, page, crc }| Named { page, crc, chunk, slice, logged_at: None };
            clear.puts().map(named).collect()
        }
        _ => Vec::new(),
    }
}

/// Takes in that records are lost. The chunks that they changed are suspect, and where it is not
/// known which ones those are, all are.
fn lose(map: &mut Map, lost: &LostRecords) {
    if lost.unnamed() > 0 || lost.count() == 0 {
        map.suspect_all();
    }
    map.is_lossy = true;
    for (sequence, id) in &lost.named {
        map.suspect(*id, *sequence);
    }
}
