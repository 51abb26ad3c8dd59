//! The log gets longer as it is used, up to its area: the more it holds, the more slices are
//! overwritten before they are brought home, and the fewer checkpoints there are.

use super::io::Purpose;
use super::layout::LOG_COPIES;
use super::memory::LONG_PAGES;
use super::page::PAGE_BYTES;
use super::ring::Ring;
use super::state::StoreCore;

/// Pages that get their room at a time, 256 KiB: some 100 us of a disk.
const STEP_PAGES: u64 = LONG_PAGES as u64;

/// How much of the area of the log is getting its room.
#[derive(Debug, Default)]
pub(super) struct LogRoom {
    /// Pages that the ring is to have.
    wanted: u64,
    /// Of them, those that have their room, from the first on.
    ready: u64,
    /// Writes under way.
    under_way: u64,
    /// There was no room: the log stays as long as it is.
    has_failed: bool,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Begins to make the log twice as long, where a quarter of it was used up. The first
    /// checkpoint that begins when all of that has its room says so.
    pub(super) fn lengthen_log(&mut self) {
        let now = self.commits.log.ring.now.pages;
        let wanted = (2 * now).min(self.layout.log_pages);
        let bytes = LOG_COPIES * (wanted - now) * PAGE_BYTES as u64;
        let is_wanted = self.commits.log.is_checkpoint_due() && !self.commits.room.has_failed;
        if is_wanted && wanted > now && self.commits.room.wanted < wanted && self.is_room_for(bytes)
        {
            (self.commits.room.wanted, self.commits.room.ready) = (wanted, now);
            self.go_on_with_log_room();
        }
    }

    /// How the log lies from the checkpoint on that begins now.
    pub(super) fn next_ring(&self) -> Ring {
        let LogRoom { wanted, ready, .. } = self.commits.room;
        let grown = if ready >= wanted { self.commits.log.grown(ready) } else { None };
        grown.unwrap_or(self.commits.log.ring)
    }

    /// Writes zeros to both copies, a little at a time.
    fn go_on_with_log_room(&mut self) {
        let LogRoom { wanted, ready, .. } = self.commits.room;
        let count = (wanted - ready).min(STEP_PAGES);
        if count == 0 {
            return;
        }
        for copy in 0..LOG_COPIES {
            let Ok(op) = self.zeros(self.layout.log_slot(copy, ready), count as u32) else {
                self.commits.room.has_failed = true;
                return;
            };
            self.commits.room.under_way += 1;
            self.io.submit(Purpose::LogRoom, op);
        }
    }

    /// Pages have their room, or found none.
    pub(super) fn on_log_room(&mut self, is_done: bool) {
        self.commits.room.under_way -= 1;
        self.commits.room.has_failed |= !is_done;
        if self.commits.room.has_failed {
            self.commits.room.wanted = 0;
        } else if self.commits.room.under_way == 0 {
            let LogRoom { wanted, ready, .. } = self.commits.room;
            self.commits.room.ready = wanted.min(ready + STEP_PAGES);
            self.go_on_with_log_room();
        }
    }
}
