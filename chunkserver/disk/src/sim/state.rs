//! The state of a simulated medium: what readers see, what is durable, what is under way.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use towpath_base::{Nanos, Prng, Time};

use super::faults::{Faults, Mischief};
use super::medium::{Spread, Timing};
use super::power::{Sectors, persist};
use crate::PAGE_BYTES;
use crate::disk::{DurableWrites, flush_lost};
use crate::op::{Op, What};

pub(super) type PageBytes = [u8; PAGE_BYTES];

/// The pages that hold something; all others are zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pages: BTreeMap<u64, Arc<PageBytes>>,
}

impl Content {
    pub(super) fn page(&self, page: u64) -> PageBytes {
        self.pages.get(&page).map_or([0; PAGE_BYTES], |bytes| **bytes)
    }

    pub(super) fn put(&mut self, page: u64, bytes: Arc<PageBytes>) {
        self.pages.insert(page, bytes);
    }

    pub(super) fn remove(&mut self, page: u64) {
        self.pages.remove(&page);
    }
}

/// A page that readers see changed, and that is not durable.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The event when it was done, or begun where it never was.
    event: u64,
    pub(super) page: u64,
    /// None where it was given back.
    pub(super) bytes: Option<Arc<PageBytes>>,
}

#[derive(Debug)]
struct Begun {
    session: u64,
    tag: u64,
    op: Op,
    /// The event when it began, or the last one before it.
    event: u64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) prng: Prng,
    pub(super) page_count: u64,
    pub(super) now: Time,
    pub(super) timing: Timing,
    pub(super) seen: Content,
    pub(super) durable: Content,
    pub(super) unflushed: Vec<Change>,
    /// By when they will be done, then in order.
    queue: BTreeMap<(Time, u64), Begun>,
    begun_count: u64,
    pub(super) session: Option<u64>,
    session_count: u64,
    pub(super) events: u64,
    pub(super) cut_at: Option<u64>,
    pub(super) is_off: bool,
    /// Pages that the file system has room for; none where all have their room.
    pub(super) room_pages: Option<u64>,
    pub(super) faults: Faults,
    pub(super) durable_writes: DurableWrites,
}

fn power_is_off() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the simulated power is off")
}

fn bad_sector() -> io::Error {
    io::Error::other("simulated bad sector")
}

fn pages_of(op: &Op) -> Range<u64> {
    op.at().0..op.at().0 + op.page_count()
}

/// The event of an operation that changes nothing any more: its power or its process is gone.
const NEVER: u64 = u64::MAX;

/// What a read that failed leaves in its memory: nothing that anybody should use.
const SCRIBBLE: u8 = 0xee;

impl State {
    pub(super) fn new(seed: u64, page_count: u64) -> Self {
        Self {
            prng: Prng::new(seed),
            page_count,
            now: Time::ZERO,
            timing: Timing::default(),
            seen: Content::default(),
            durable: Content::default(),
            unflushed: Vec::new(),
            queue: BTreeMap::new(),
            begun_count: 0,
            session: None,
            session_count: 0,
            events: 0,
            cut_at: None,
            is_off: false,
            room_pages: None,
            faults: Faults::default(),
            durable_writes: DurableWrites::Own,
        }
    }

    pub(super) fn fork(&self, prng: Prng) -> Self {
        let mut other = Self {
            prng,
            timing: self.timing,
            now: self.now,
            seen: self.seen.clone(),
            durable: self.durable.clone(),
            unflushed: self.unflushed.clone(),
            events: self.events,
            cut_at: self.cut_at,
            is_off: self.is_off,
            room_pages: self.room_pages,
            faults: self.faults.clone(),
            durable_writes: self.durable_writes,
            ..Self::new(0, self.page_count)
        };
        for begun in self.queue.values().filter(|begun| begun.event != NEVER) {
            if other.prng.chance(0.5) {
                other.apply_pages(&begun.op, other.events);
            }
        }
        other
    }

    pub(super) fn open(&mut self) -> io::Result<u64> {
        if self.is_off {
            return Err(power_is_off());
        }
        if self.session.is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.session_count += 1;
        self.session = Some(self.session_count);
        Ok(self.session_count)
    }

    fn is_live(&self, session: u64) -> bool {
        self.session == Some(session) && !self.is_off
    }

    /// Counts a boundary; the power is cut here when it should be.
    fn step(&mut self, what: What) {
        if what == What::Read {
            return;
        }
        self.events += 1;
        if self.cut_at == Some(self.events) {
            self.cut();
        }
    }

    /// Turns the power off. What is under way may have reached the medium in part.
    pub(super) fn cut(&mut self) {
        self.is_off = true;
        let begun = std::mem::take(&mut self.queue);
        for begun in begun.values() {
            self.note_changes(&begun.op, begun.event);
        }
        self.queue = begun;
        // Nothing is noted twice.
        for begun in self.queue.values_mut() {
            begun.event = NEVER;
        }
    }

    fn time_of(&mut self, what: What) -> Time {
        let Timing { read, write, flush } = self.timing;
        let Spread { least, most } = match what {
            What::Read => read,
            What::Write | What::Discard => write,
            What::Flush => flush,
        };
        let jitter = self.prng.below((most - least).0.saturating_add(1));
        self.now + least + Nanos(jitter)
    }

    pub(super) fn begin(&mut self, session: u64, tag: u64, op: Op) {
        let at = self.time_of(op.what());
        let what = op.what();
        self.begun_count += 1;
        let event = if self.is_live(session) { self.events } else { NEVER };
        self.queue.insert((at, self.begun_count), Begun { session, tag, op, event });
        if event != NEVER {
            self.step(what);
        }
    }

    /// When the next operation of this opening is done.
    pub(super) fn next_at(&self, session: u64) -> Option<Time> {
        if !self.is_live(session) {
            return self.queue.values().any(|begun| begun.session == session).then_some(self.now);
        }
        let mut own = self.queue.iter().filter(|(_, begun)| begun.session == session);
        own.next().map(|((at, _), _)| *at)
    }

    /// Ends the next operation of this opening that is done by now.
    pub(super) fn end_next(&mut self, session: u64) -> Option<(u64, Op, io::Result<()>)> {
        if self.next_at(session)? > self.now {
            return None;
        }
        let own = |(key, begun): (&(Time, u64), &Begun)| (begun.session == session).then_some(*key);
        let key = self.queue.iter().find_map(own)?;
        if self.is_live(session) {
            let what = self.queue[&key].op.what();
            self.step(what);
        }
        let Begun { tag, mut op, event, .. } = self.queue.remove(&key)?;
        let outcome = match self.is_live(session) {
            true => self.carry_out(&mut op, event),
            false => Err(power_is_off()),
        };
        if let (Err(_), Op::Read { into, .. }) = (&outcome, &mut op) {
            into.iter_mut().for_each(|pages| pages.fill(SCRIBBLE));
        }
        Some((tag, op, outcome))
    }

    fn carry_out(&mut self, op: &mut Op, begun: u64) -> io::Result<()> {
        let pages = pages_of(op);
        match op {
            Op::Flush => return self.flush(begun),
            Op::Read { into, .. } => {
                let is_bad = self.faults.spoiled.range(pages.clone()).next().is_some();
                if self.faults.fails(What::Read, pages.clone()) || is_bad {
                    return Err(bad_sector());
                }
                let places = into.iter_mut().flat_map(|pages| pages.chunks_exact_mut(PAGE_BYTES));
                for (page, place) in pages.zip(places) {
                    place.copy_from_slice(&self.seen.page(page));
                }
            }
            Op::Write { is_durable, .. } => {
                let (is_durable, before) = (*is_durable, self.unflushed.len());
                self.write(op, pages)?;
                return if is_durable { self.make_last(before, begun) } else { Ok(()) };
            }
            Op::Discard { .. } => self.apply_pages(op, self.events),
        }
        Ok(())
    }

    fn write(&mut self, op: &Op, pages: Range<u64>) -> io::Result<()> {
        if self.faults.fails(What::Write, pages.clone()) {
            for mut change in changes(op, self.events) {
                change.page = self.torn(change.page, &mut change.bytes);
                self.apply(change);
            }
            return Err(bad_sector());
        }
        let mischief = self.faults.mistreats(&pages);
        for mut change in changes(op, self.events) {
            match mischief {
                None => {}
                Some(Mischief::Lost) => continue,
                Some(Mischief::Misdirected(by)) => {
                    change.page = (change.page + by % self.page_count) % self.page_count;
                }
                Some(Mischief::Torn) => {
                    change.page = self.torn(change.page, &mut change.bytes);
                }
            }
            if !self.has_room_for(change.page) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.faults.spoiled.remove(&change.page);
            self.apply(change);
        }
        Ok(())
    }

    /// Makes of the bytes of a write those of the page after only some sectors of it have got
    /// there, not all; returns the page.
    fn torn(&mut self, page: u64, bytes: &mut Option<Arc<PageBytes>>) -> u64 {
        let sectors = self.some_sectors() & !(1 << self.prng.below(u64::from(Sectors::BITS)));
        let mut content = Content::default();
        content.put(page, self.seen.page(page).into());
        persist(&mut content, &Change { event: 0, page, bytes: bytes.clone() }, sectors);
        *bytes = Some(content.page(page).into());
        page
    }

    fn has_room_for(&self, page: u64) -> bool {
        let is_used = self.seen.pages.contains_key(&page);
        is_used || self.room_pages.is_none_or(|room| (self.seen.pages.len() as u64) < room)
    }

    pub(super) fn free_bytes(&self) -> u64 {
        let room = self.room_pages.unwrap_or(0);
        room.saturating_sub(self.seen.pages.len() as u64) * PAGE_BYTES as u64
    }

    fn apply(&mut self, change: Change) {
        persist(&mut self.seen, &change, Sectors::MAX);
        self.unflushed.push(change);
    }

    fn apply_pages(&mut self, op: &Op, event: u64) {
        for change in changes(op, event) {
            self.apply(change);
        }
    }

    /// Notes what an operation under way may have brought to the medium.
    fn note_changes(&mut self, op: &Op, event: u64) {
        if event != NEVER {
            self.unflushed.extend(changes(op, event));
        }
    }

    /// Makes durable what was done before event `begun` and the flush itself.
    fn flush(&mut self, begun: u64) -> io::Result<()> {
        let fails = self.faults.flush_fails();
        let covered = self.unflushed.extract_if(.., |change| change.event <= begun);
        for change in covered.collect::<Vec<_>>() {
            let sectors = if fails { self.some_sectors() } else { Sectors::MAX };
            persist(&mut self.durable, &change, sectors);
        }
        if fails { Err(io::Error::other("simulated flush error")) } else { Ok(()) }
    }

    /// Makes durable what a write changed that began with event `begun`: the changes from `first`
    /// on.
    fn make_last(&mut self, first: usize, begun: u64) -> io::Result<()> {
        let own = self.unflushed.split_off(first);
        if self.durable_writes == DurableWrites::AndAllBefore {
            let before = self.unflushed.extract_if(.., |change| change.event <= begun);
            for change in before.collect::<Vec<_>>() {
                persist(&mut self.durable, &change, Sectors::MAX);
            }
        }
        let fails = self.faults.flush_fails();
        for change in own {
            let sectors = if fails { self.some_sectors() } else { Sectors::MAX };
            persist(&mut self.durable, &change, sectors);
            // What was there before never comes back.
            self.unflushed.retain(|older| older.page != change.page);
        }
        match fails {
            true => Err(flush_lost(io::Error::other("simulated flush error"))),
            false => Ok(()),
        }
    }

    /// Ends an opening after all that it began.
    pub(super) fn close(&mut self, session: u64) {
        if self.is_live(session) {
            while let Some(at) = self.next_at(session) {
                self.now = self.now.max(at);
                drop(self.end_next(session));
            }
            self.session = None;
        }
        self.queue.retain(|_, begun| begun.session != session);
    }

    pub(super) fn end_process(&mut self) {
        let begun = std::mem::take(&mut self.queue);
        for begun in begun.values().filter(|begun| begun.event != NEVER) {
            if self.prng.chance(0.5) {
                self.apply_pages(&begun.op, self.events);
            }
        }
        self.queue = begun;
        self.queue.values_mut().for_each(|begun| begun.event = NEVER);
        (self.session, self.is_off, self.cut_at) = (None, false, None);
    }

    pub(super) fn flip_bit(&mut self, byte_offset: u64) {
        let (page, at) = (byte_offset / PAGE_BYTES as u64, byte_offset as usize % PAGE_BYTES);
        for content in [&mut self.seen, &mut self.durable] {
            let mut bytes = content.page(page);
            bytes[at] ^= 1;
            content.put(page, bytes.into());
        }
    }
}

/// The pages that an operation changes.
fn changes(op: &Op, event: u64) -> impl Iterator<Item = Change> {
    let given_back = match op {
        Op::Discard { .. } => pages_of(op),
        _ => 0..0,
    };
    let given_back = given_back.map(move |page| Change { event, page, bytes: None });
    let from = match op {
        Op::Write { from, .. } => &from[..],
        _ => &[],
    };
    let parts = from.iter().flat_map(|pages| pages.as_chunks::<PAGE_BYTES>().0);
    let written = (op.at().0..).zip(parts).map(move |(page, bytes)| {
        let bytes = Some(Arc::new(*bytes));
        Change { event, page, bytes }
    });
    given_back.chain(written)
}
