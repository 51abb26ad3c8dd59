//! Scrub: checks every committed slice, some at a time.

use std::collections::VecDeque;

use towpath_transport::Class;

use super::changes::Client;
use super::page::PAGE_BYTES;
use super::read::Then;
use super::state::StoreCore;
use crate::store::error::ReadError;
use crate::store::place::SliceRef;
use crate::store::request::Reply;
use crate::store::results::ScrubReport;
use crate::store::slice::ChunkId;

/// Slices that are read together: a scrub gives way to others.
const UNDER_WAY_MAX: usize = 16;

/// A slice that is being looked at.
#[derive(Clone, Copy, Debug)]
struct Looked {
    chunk: ChunkId,
    slice: u64,
    at: SliceRef,
}

/// The steps of scrubs, of which one is done after the other.
#[derive(Debug, Default)]
pub(super) struct Scrubs {
    queue: VecDeque<Scrubbing>,
    /// Where the next step goes on.
    cursor: (ChunkId, u64),
}

impl Scrubs {
    /// How many slices are being read.
    pub(super) fn under_way(&self) -> usize {
        self.queue.front().map_or(0, |scrub| scrub.under_way)
    }
}

/// A step of a scrub under way.
#[derive(Debug)]
struct Scrubbing {
    to: Option<Client>,
    /// Slices that it may still look at.
    budget: u64,
    /// Where it goes on, of one that does not share the place of the others.
    from: Option<(ChunkId, u64)>,
    under_way: usize,
    report: ScrubReport,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    pub(super) fn begin_scrub(
        &mut self,
        to: Option<Client>,
        budget: u64,
        from: Option<(ChunkId, u64)>,
    ) {
        let (under_way, report) = (0, ScrubReport::default());
        self.reads.scrubs.queue.push_back(Scrubbing { to, budget, from, under_way, report });
        if self.reads.scrubs.queue.len() == 1 {
            self.go_on_with_scrub();
        }
    }

    fn go_on_with_scrub(&mut self) {
        while let Some(mut scrub) = self.reads.scrubs.queue.pop_front() {
            while scrub.under_way < UNDER_WAY_MAX && scrub.budget > 0 && !scrub.report.pass_done {
                self.look_at_next(&mut scrub);
            }
            if scrub.under_way > 0 {
                self.reads.scrubs.queue.push_front(scrub);
                return;
            }
            self.health.counts.slices_scrubbed += scrub.report.slices;
            scrub.report.next = scrub.from.unwrap_or(self.reads.scrubs.cursor);
            self.answer(scrub.to, Reply::Scrub(scrub.report));
        }
    }

    fn look_at_next(&mut self, scrub: &mut Scrubbing) {
        let (chunk, slice) = scrub.from.unwrap_or(self.reads.scrubs.cursor);
        let looked = self.next_slice(chunk, slice);
        scrub.report.pass_done = looked.is_none();
        let next = looked.map(|looked| (looked.chunk, looked.slice + 1)).unwrap_or_default();
        *scrub.from.as_mut().unwrap_or(&mut self.reads.scrubs.cursor) = next;
        let Some(looked) = looked else { return };
        scrub.budget -= 1;
        scrub.report.slices += 1;
        scrub.report.bytes += PAGE_BYTES as u64;
        self.look_at(looked, scrub);
    }

    fn look_at(&mut self, looked: Looked, scrub: &mut Scrubbing) {
        let Looked { chunk, slice, at } = looked;
        if !self.layout.has(at.page) {
            scrub.report.corrupt.push(*self.corrupt(chunk, slice, at));
        } else if self.away.get(at.page).is_none() {
            // What is away is in memory, and is looked at when it is at home.
            match self.read_slice(Then::Scrub, Class::Copper, (chunk, slice, at)) {
                Ok(()) => scrub.under_way += 1,
                Err(error) => scrub.report.unreadable.push(error),
            }
        }
    }

    /// The first written slice at or after `slice` of `chunk`.
    fn next_slice(&self, chunk: ChunkId, slice: u64) -> Option<Looked> {
        self.map.chunks.range(chunk..).find_map(|(id, found)| {
            let from = if *id == chunk { slice } else { 0 };
            let (slice, at) = found.slices_from(from).next()?;
            Some(Looked { chunk: *id, slice, at })
        })
    }

    /// A slice was read; what it lacks.
    pub(super) fn on_scrub(&mut self, error: Option<ReadError>) {
        let Some(scrub) = self.reads.scrubs.queue.front_mut() else { return };
        scrub.under_way -= 1;
        match error {
            Some(ReadError::Corrupt(found)) => scrub.report.corrupt.push(*found),
            Some(ReadError::Media(error)) => scrub.report.unreadable.push(error),
            _ => {}
        }
        self.go_on_with_scrub();
    }
}
