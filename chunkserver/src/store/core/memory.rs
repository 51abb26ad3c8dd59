//! Memory of whole pages, for what is read and written.

use std::io;

use towpath_disk::{Buffers, ReadPages, WritePages};
use towpath_memory::{Buf, Frozen, Pool};

use super::page::{PAGE_BYTES, PageBytes};

/// Pages of one long buffer.
pub(crate) const LONG_PAGES: usize = 64;

/// Buffers of one page: those of slices that are away, and twice the operations that a disk has
/// under way. They take memory once they are used.
const SHORT_COUNT: usize = 40_000;

/// Long buffers, 16 MiB in all: a group of the usual kind.
const LONG_COUNT: usize = 64;

/// Buffers that come back; when all are out, others are made for the moment.
#[derive(Debug)]
pub(crate) struct Memory {
    short: Pool,
    long: Pool,
}

impl Memory {
    /// # Errors
    /// There is not that much memory.
    pub(crate) fn new() -> io::Result<Self> {
        let pool = |pages: usize, count| Pool::with_count(pages * PAGE_BYTES, count);
        let no_memory = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        Ok(Self {
            short: pool(1, SHORT_COUNT).map_err(no_memory)?,
            long: pool(LONG_PAGES, LONG_COUNT).map_err(no_memory)?,
        })
    }

    /// A buffer of so many pages, [`LONG_PAGES`] at most.
    fn take(&self, pages: usize) -> io::Result<Buf> {
        let pages = pages.clamp(1, LONG_PAGES);
        let pool = if pages == 1 { &self.short } else { &self.long };
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let found = pool.take().or_else(|| {
            let fresh = Pool::with_count(pages * PAGE_BYTES, 1).ok()?;
            fresh.take()
        });
        let mut buf = found.ok_or_else(no_memory)?;
        buf.set_len(pages * PAGE_BYTES).map_err(|_| no_memory())?;
        Ok(buf)
    }

    /// Pages to be filled, [`LONG_PAGES`] at most.
    pub(crate) fn to_fill(&self, pages: usize) -> io::Result<ReadPages> {
        // Buffers of a pool of whole pages begin at pages.
        ReadPages::new(self.take(pages)?).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    /// Pages to be written, [`LONG_PAGES`] at most, as `fill` makes them.
    pub(crate) fn filled(
        &self,
        pages: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> io::Result<WritePages> {
        let mut buf = self.take(pages)?;
        fill(&mut buf);
        WritePages::new(buf).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    /// Any number of pages to be written, as `fill` makes them, buffer after buffer.
    pub(crate) fn all_filled(
        &self,
        pages: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> io::Result<Buffers<WritePages>> {
        let buffers = (0..pages).step_by(LONG_PAGES);
        buffers.map(|first| self.filled((pages - first).min(LONG_PAGES), &mut fill)).collect()
    }

    /// One page of zeros.
    pub(crate) fn zeros(&self) -> io::Result<Buf> {
        let mut buf = self.take(1)?;
        buf.fill(0);
        Ok(buf)
    }

    /// One page that several writes take, as `fill` makes it.
    pub(crate) fn frozen_page(&self, fill: impl FnOnce(&mut [u8])) -> io::Result<Frozen> {
        let mut buf = self.take(1)?;
        fill(&mut buf);
        Ok(buf.freeze())
    }

    /// As many buffers as these bytes take, which are whole pages, for several writes each.
    pub(crate) fn frozen(&self, bytes: &[u8]) -> io::Result<Vec<Frozen>> {
        let parts = bytes.chunks(LONG_PAGES * PAGE_BYTES);
        let copy = |part: &[u8]| {
            let mut buf = self.take(part.len() / PAGE_BYTES)?;
            buf.copy_from_slice(part);
            Ok(buf.freeze())
        };
        parts.map(copy).collect()
    }

    /// The same for one write.
    pub(crate) fn copies(&self, bytes: &[u8]) -> io::Result<Buffers<WritePages>> {
        let to_write = |pages: Frozen| {
            WritePages::new(pages).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))
        };
        self.frozen(bytes)?.into_iter().map(to_write).collect()
    }

    /// One page to be written.
    pub(crate) fn page(&self, bytes: &PageBytes) -> io::Result<WritePages> {
        self.filled(1, |page| page.copy_from_slice(bytes))
    }
}
