//! The requests of a job: which is next, and what each took.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use towpath_base::Prng;
use towpath_fastpath::{ChunkId, ReadData};
use towpath_transport::{Nanos, Time};

use super::content::{Content, Versions};
use super::error::StoreError;
use super::latency::Latencies;
use super::offsets::Offsets;
use crate::cli::error::CliError;
use crate::cli::interrupt::Interrupt;
use crate::cli::session::{Io, Load};

/// What a job tells all others while it runs.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Requests that ended, in all phases.
    pub(super) ios: AtomicU64,
    /// Their bytes.
    pub(super) bytes: AtomicU64,
}

/// The chunks of a job.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    pub(super) names: Vec<ChunkId>,
    /// Bytes of each.
    pub(super) chunk_bytes: u64,
    /// Bytes of a page, which has a version.
    pub(super) page_bytes: u64,
}

impl Chunks {
    /// Bytes of all.
    pub(super) fn size(&self) -> u64 {
        self.names.len() as u64 * self.chunk_bytes
    }

    /// The place of a byte of the job in its chunks.
    fn place(&self, at: u64) -> (ChunkId, u64) {
        let chunk = (at / self.chunk_bytes) as usize;
        (self.names[chunk], at % self.chunk_bytes)
    }

    /// The page at an offset of a chunk.
    pub(super) fn page(&self, chunk: ChunkId, offset: u64) -> usize {
        let chunk = self.names.iter().position(|name| *name == chunk).unwrap_or(0) as u64;
        ((chunk * self.chunk_bytes + offset) / self.page_bytes) as usize
    }

    /// The pages of a request.
    fn pages(&self, io: &Io) -> std::ops::Range<usize> {
        let first = self.page(io.chunk, io.offset);
        first..first + (io.byte_len as u64).div_ceil(self.page_bytes) as usize
    }
}

/// Which requests are drawn.
#[derive(Debug)]
pub(super) struct Draw {
    /// Bytes of a request.
    pub(super) block: u64,
    pub(super) offsets: Offsets,
    /// Of 100 requests, how many are reads.
    pub(super) read_percent: u8,
    pub(super) mix: Prng,
}

/// When requests count, and when the last one is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) from: Time,
    pub(super) until: Time,
    /// Bytes that are still to be drawn.
    pub(super) left: u64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) read: Latencies,
    pub(super) write: Latencies,
    /// From the begin of the measurement to the end of its last request.
    pub(super) span: Nanos,
    /// Pages that were checked by content.
    pub(super) verified_pages: u64,
}

impl Measured {
    /// Nothing yet.
    pub(super) fn new() -> Result<Self, StoreError> {
        let (read, write) = (Latencies::new()?, Latencies::new()?);
        Ok(Self { read, write, span: Nanos(0), verified_pages: 0 })
    }

    /// What another job measured at the same time.
    pub(super) fn merge(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        self.span = self.span.max(other.span);
        self.verified_pages += other.verified_pages;
    }
}

/// The load of a job.
pub(super) struct Work<'a> {
    pub(super) chunks: &'a Chunks,
    pub(super) draw: Draw,
    pub(super) window: Window,
    pub(super) content: Content,
    /// Where contents are checked.
    pub(super) versions: Option<&'a mut Versions>,
    pub(super) live: &'a Live,
    /// Another job has failed.
    pub(super) is_over: &'a AtomicBool,
    pub(super) interrupt: &'a Interrupt,
    pub(super) measured: Measured,
    /// By the tokens of reads: the versions that were stored when each was submitted.
    pub(super) reads: Reads,
}

/// The versions that pages had when reads of them were submitted.
#[derive(Debug, Default)]
pub(super) struct Reads {
    stored: Vec<Vec<u32>>,
    free: Vec<usize>,
}

impl Reads {
    fn begin(&mut self, versions: impl Iterator<Item = u32>) -> usize {
        let token = self.free.pop().unwrap_or_else(|| {
            self.stored.push(Vec::new());
            self.stored.len() - 1
        });
        self.stored[token].clear();
        self.stored[token].extend(versions);
        token
    }

    fn end(&mut self, token: usize) -> &[u32] {
        self.free.push(token);
        &self.stored[token]
    }
}

impl Work<'_> {
    /// A block that no write has under way, where contents are checked: so a page has one of two
    /// versions.
    fn draw_place(&mut self, is_write: bool) -> (ChunkId, u64) {
        loop {
            let at = self.draw.offsets.draw() * self.draw.block;
            let (chunk, offset) = self.chunks.place(at);
            let Some(versions) = &self.versions else { return (chunk, offset) };
            let io = Io { is_write, chunk, offset, byte_len: self.draw.block as usize, token: 0 };
            if !is_write || !self.chunks.pages(&io).any(|page| versions.is_written(page)) {
                return (chunk, offset);
            }
        }
    }

    fn is_read(&mut self) -> bool {
        match self.draw.read_percent {
            0 => false,
            100 => true,
            percent => self.draw.mix.below(100) < u64::from(percent),
        }
    }

    fn check(&mut self, io: &Io, data: &ReadData) -> Result<(), StoreError> {
        let Some(versions) = &self.versions else { return Ok(()) };
        let (chunks, first) = (self.chunks, self.chunks.page(io.chunk, io.offset));
        let stored = self.reads.end(io.token);
        let checked = self.content.check((io.chunk, io.offset), &data.to_vec(), |at| {
            let page = chunks.page(io.chunk, at);
            (stored.get(page - first).copied().unwrap_or(0), versions.sent(page))
        });
        self.measured.verified_pages += stored.len() as u64;
        checked.map_err(|(offset, fault)| {
            let chunk = io.chunk.to_string();
            StoreError::Wrong { chunk, offset, fault }
        })
    }
}

impl Load for Work<'_> {
    type Error = CliError;

    fn next(&mut self, now: Time) -> Option<Io> {
        let is_over = self.interrupt.check().is_err() || self.is_over.load(Ordering::Relaxed);
        if is_over || now >= self.window.until || self.window.left == 0 {
            return None;
        }
        if now >= self.window.from {
            self.window.left = self.window.left.saturating_sub(self.draw.block);
        }
        let is_write = !self.is_read();
        let (chunk, offset) = self.draw_place(is_write);
        let byte_len = self.draw.block as usize;
        let mut io = Io { is_write, chunk, offset, byte_len, token: 0 };
        if let Some(versions) = &mut self.versions {
            let pages = self.chunks.pages(&io);
            if is_write {
                pages.for_each(|page| versions.send(page));
            } else {
                io.token = self.reads.begin(pages.map(|page| versions.stored(page)));
            }
        }
        Some(io)
    }

    fn fill(&mut self, io: &Io, out: &mut [u8]) {
        let (chunks, versions) = (self.chunks, &self.versions);
        // Without a check a version says no more than that bytes are new.
        let fresh = self.measured.write.count() as u32;
        self.content.fill((io.chunk, io.offset), out, |at| {
            versions.as_ref().map_or(fresh, |versions| versions.sent(chunks.page(io.chunk, at)))
        });
    }

    fn ended(
        &mut self,
        io: &Io,
        (since, now): (Time, Time),
        data: Option<&ReadData>,
    ) -> Result<(), CliError> {
        if let Some(data) = data {
            self.check(io, data)?;
        } else if let Some(versions) = &mut self.versions {
            self.chunks.pages(io).for_each(|page| versions.store(page));
        }
        let bytes = io.byte_len as u64;
        self.live.ios.fetch_add(1, Ordering::Relaxed);
        self.live.bytes.fetch_add(bytes, Ordering::Relaxed);
        if now >= self.window.from {
            let Measured { read, write, span, .. } = &mut self.measured;
            let direction = if io.is_write { write } else { read };
            direction.add(now.since(since), bytes);
            *span = now.since(self.window.from);
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.window.left = 0;
    }
}
