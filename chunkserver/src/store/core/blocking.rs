//! A disk that is waited for: what opens a store has nothing else to do.

use std::io;
use std::iter::Peekable;
use std::time::Duration;

use towpath_disk::{Disk, DiskError, Done, Op, PageNumber};

use super::memory::{LONG_PAGES, Memory};
use super::page::{PAGE_BYTES, PageBytes};

/// Reads under way together: where a device gives about all that it can.
const DEPTH: usize = 32;

/// How long one wait is; there is always another one.
const WAIT: Duration = Duration::from_secs(60);

/// Pages that follow each other on the disk, numbered from the caller's number of the first on.
#[derive(Clone, Copy, Debug)]
struct Run {
    number: u64,
    at: PageNumber,
    count: usize,
}

impl Run {
    /// The next pages of a list that can be read together.
    fn next(pages: &mut Peekable<impl Iterator<Item = (u64, PageNumber)>>) -> Option<Self> {
        let (number, at) = pages.next()?;
        let mut run = Self { number, at, count: 1 };
        while run.count < LONG_PAGES {
            let due = (number + run.count as u64, PageNumber(at.0 + run.count as u64));
            if pages.next_if_eq(&due).is_none() {
                break;
            }
            run.count += 1;
        }
        Some(run)
    }
}

/// A disk, waited for.
pub(super) struct Blocking<'a> {
    disk: &'a mut dyn Disk,
    memory: &'a Memory,
    done: Vec<Done>,
}

fn not_taken(refused: &towpath_disk::Refused) -> io::Error {
    io::Error::other(refused.to_string())
}

impl<'a> Blocking<'a> {
    pub(super) fn new(disk: &'a mut dyn Disk, memory: &'a Memory) -> Self {
        Self { disk, memory, done: Vec::new() }
    }

    pub(super) fn memory(&self) -> &Memory {
        self.memory
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        self.disk
    }

    fn run(&mut self, op: Op) -> io::Result<(Op, Result<(), DiskError>)> {
        self.disk.submit(0, op).map_err(|refused| not_taken(&refused))?;
        loop {
            self.disk.wait(WAIT, &mut self.done)?;
            if let Some(Done { op, outcome, .. }) = self.done.pop() {
                return Ok((op, outcome));
            }
        }
    }

    /// One page; none where it cannot be read, tried twice, or lies behind the end of the disk.
    ///
    /// # Errors
    /// The system does not speak of the disk any more.
    pub(super) fn page(&mut self, at: PageNumber) -> io::Result<Option<Box<PageBytes>>> {
        if at.0 >= self.disk.page_count() {
            return Ok(None);
        }
        for _ in 0..2 {
            let into = self.memory.to_fill(1)?;
            if let (Op::Read { into, .. }, Ok(())) = self.run(Op::read(at, into))?
                && let Some(page) = into.first()
                && let Ok(page) = page[..].try_into()
            {
                return Ok(Some(Box::new(page)));
            }
        }
        Ok(None)
    }

    /// Reads many pages, those that lie together in one operation. The caller numbers them; `take`
    /// gets each page with its number, or none if it cannot be read.
    ///
    /// # Errors
    /// The system does not speak of the disk any more.
    pub(super) fn each(
        &mut self,
        pages: impl IntoIterator<Item = (u64, PageNumber)>,
        mut take: impl FnMut(u64, Option<&PageBytes>),
    ) -> io::Result<()> {
        let mut pages = pages.into_iter().peekable();
        let mut under_way: slab::Slab<Run> = slab::Slab::new();
        let depth = DEPTH.min(self.disk.depth());
        let mut bad = Vec::new();
        while pages.peek().is_some() || !under_way.is_empty() {
            while under_way.len() < depth
                && let Some(run) = Run::next(&mut pages)
            {
                if run.at.0 + run.count as u64 > self.disk.page_count() {
                    bad.push(run);
                    continue;
                }
                let into = self.memory.to_fill(run.count)?;
                let tag = under_way.insert(run) as u64;
                let taken = self.disk.submit(tag, Op::read(run.at, into));
                taken.map_err(|refused| not_taken(&refused))?;
            }
            self.disk.wait(WAIT, &mut self.done)?;
            for Done { tag, op, outcome } in self.done.drain(..) {
                let Some(run) = under_way.try_remove(tag as usize) else { continue };
                let (Op::Read { into, .. }, Ok(())) = (op, outcome) else {
                    bad.push(run);
                    continue;
                };
                let pages = into.iter().flat_map(|pages| pages.as_chunks::<PAGE_BYTES>().0);
                (run.number..).zip(pages).for_each(|(number, page)| take(number, Some(page)));
            }
        }
        for Run { number, at, count } in bad {
            for place in 0..count as u64 {
                let page = self.page(PageNumber(at.0 + place))?;
                take(number + place, page.as_deref());
            }
        }
        Ok(())
    }

    /// Writes whole pages.
    ///
    /// # Errors
    /// What the disk reports.
    pub(super) fn write(&mut self, at: PageNumber, bytes: &[u8]) -> io::Result<()> {
        let from = self.memory.copies(bytes)?;
        self.run(Op::write_all(at, from))?.1.map_err(|error| error.source)
    }

    /// # Errors
    /// What the disk reports.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.run(Op::Flush)?.1.map_err(|error| error.source)
    }
}
