//! Pages are written once before they are used: the first write to a page that a file system has
//! only set aside costs its journal a write more, with the flush of whoever writes it.

use towpath_disk::{Buffers, Op, WritePages};

use super::io::Purpose;
use super::memory::LONG_PAGES;
use super::state::StoreCore;
use crate::store::record::Extent;

/// Free pages that were written before are kept in store up to this many: more than one write
/// takes, and some milliseconds of a fast network.
const AHEAD_PAGES: u64 = 8192;

/// Pages that are written at once, 1 MiB.
const ONCE_PAGES: u32 = 4 * LONG_PAGES as u32;

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Writes zeros to the next pages that nobody has written to, while few others are free. Of a
    /// sparse store none: its pages get their room when they are needed.
    pub(super) fn write_ahead(&mut self) {
        let is_enough = self.space.free_pages() >= AHEAD_PAGES;
        if self.is_writing_ahead || is_enough || self.check_usable().is_err() {
            return;
        }
        let Some(extent) = self.space.unbacked(ONCE_PAGES) else { return };
        let zeros = |first: usize| {
            let pages = (extent.count as usize - first).min(LONG_PAGES);
            self.memory.filled(pages, |buf| buf.fill(0))
        };
        let from = (0..extent.count as usize).step_by(LONG_PAGES).map(zeros);
        let Ok(from) = from.collect::<std::io::Result<Buffers<WritePages>>>() else {
            // Without memory for it pages are used as they are.
            return self.on_ahead(extent);
        };
        self.is_writing_ahead = true;
        let at = self.layout.data_page(extent.page);
        self.io.submit(Purpose::Ahead(extent), Op::write_all(at, from));
    }

    /// Pages were written, or could not be: whoever writes to them then is told so.
    pub(super) fn on_ahead(&mut self, extent: Extent) {
        self.is_writing_ahead = false;
        self.space.back(extent);
        self.written_pages = self.written_pages.max(extent.page + extent.count - 1);
        self.may_retry |= !self.held.is_empty();
    }
}
