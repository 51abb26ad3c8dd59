//! Scrub: checks every committed slice, some at a time.

use std::collections::VecDeque;

use towpath_disk::{DiskError, Op};
use towpath_transport::Class;

use super::changes::Client;
use super::io::Purpose;
use super::page::PAGE_BYTES;
use super::space::Pin;
use super::state::StoreCore;
use crate::store::media::{MediaError, MediaOp};
use crate::store::place::SliceRef;
use crate::store::request::Reply;
use crate::store::results::ScrubReport;
use crate::store::slice::{ChunkId, slice_crc};

/// Slices that are read together: a scrub gives way to others.
const UNDER_WAY_MAX: usize = 16;

/// A slice that is being looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
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

/// A step of a scrub under way.
#[derive(Debug)]
struct Scrubbing {
    to: Option<Client>,
    /// Slices that it may still look at.
    budget: u64,
    /// Where it goes on, of one that does not share the place of the others.
    from: Option<(ChunkId, u64)>,
    under_way: usize,
    /// No page of what is being looked at is used again. None before the first look.
    pin: Option<Pin>,
    report: ScrubReport,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    pub(super) fn begin_scrub(
        &mut self,
        to: Option<Client>,
        budget: u64,
        from: Option<(ChunkId, u64)>,
    ) {
        let (under_way, pin, report) = (0, None, ScrubReport::default());
        self.reads.scrubs.queue.push_back(Scrubbing { to, budget, from, under_way, pin, report });
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
            if let Some(pin) = scrub.pin.take() {
                self.space.pages.unpin(pin);
                self.held.wake();
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
        if scrub.pin.is_none() {
            scrub.pin = Some(self.space.pages.pin());
        }
        self.look_at(looked, false, scrub);
    }

    fn look_at(&mut self, looked: Looked, is_second: bool, scrub: &mut Scrubbing) {
        if !self.layout.has(looked.at.page) {
            let corrupt = self.corrupt(looked.chunk, looked.slice, looked.at);
            scrub.report.corrupt.push(corrupt);
            return;
        }
        if self.away.get(looked.at.page).is_some() {
            // It is in memory, and will be looked at when it is at home.
            return;
        }
        match self.io.memory.to_fill(1) {
            Ok(into) => {
                scrub.under_way += 1;
                let op = Op::read(self.layout.data_page(looked.at.page), into);
                let purpose = Purpose::Scrub { slice: looked, is_second };
                self.io.submit_as(Class::Copper, purpose, op);
            }
            Err(error) => {
                let error = MediaError::at(MediaOp::Read, "memory", 0)(error);
                scrub.report.unreadable.push(error);
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

    pub(super) fn on_scrub(
        &mut self,
        looked: Looked,
        is_second: bool,
        op: Op,
        outcome: Result<(), DiskError>,
    ) {
        let Op::Read { mut into, .. } = op else { return };
        let (Some(page), Some(mut scrub)) = (into.pop(), self.reads.scrubs.queue.pop_front())
        else {
            return;
        };
        scrub.under_way -= 1;
        let Looked { chunk, slice, at } = looked;
        let is_sound = outcome.is_ok() && slice_crc(chunk, slice, &page) == at.crc;
        match (is_sound, is_second, outcome) {
            (true, ..) => {}
            (false, false, _) => {
                self.health.counts.reads_retried += 1;
                self.look_at(looked, true, &mut scrub);
            }
            (false, true, Err(error)) => {
                scrub.report.unreadable.push(super::media_error(&error));
            }
            (false, true, Ok(())) => {
                self.health.counts.slices_corrupt += 1;
                scrub.report.corrupt.push(self.corrupt(chunk, slice, at));
            }
        }
        self.reads.scrubs.queue.push_front(scrub);
        self.go_on_with_scrub();
    }
}
