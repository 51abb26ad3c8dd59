//! The log as a ring: where its end is, and how much of it is still needed
//! (docs/store-core.md section 4).

use towpath_disk::{Buffers, OP_BUFFERS_MAX, Op, WritePages};
use towpath_memory::Frozen;

use super::layout::{LOG_COPIES, Layout};
use super::page::PAGE_BYTES;
use super::ring::Ring;
use super::superblock::LogPoint;

/// Part of a copy of the log that one group fills at most: some groups are always on their way.
const GROUP_SHARE: u64 = 8;

/// Most bytes of the records of a group: they are written in one go.
const GROUP_BYTES_MAX: u64 = 4 << 20;

/// Part of a copy of the log after which a checkpoint is due: two generations keep theirs, and
/// there is as much for what is committed while a checkpoint is written.
const CHECKPOINT_SHARE: u64 = 4;

/// Where the log ends, and from where on it is needed.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) ring: Ring,
    /// The first page that a restart may need.
    floor: u64,
    /// What the current checkpoint begins with.
    pub(super) start: LogPoint,
    /// After the last group that is durable and applied.
    pub(super) applied: LogPoint,
    /// After the group under way.
    pub(super) end: LogPoint,
}

impl Log {
    pub(super) fn new(ring: Ring, floor: u64, start: LogPoint, applied: LogPoint) -> Self {
        Self { ring, floor, start, applied, end: applied }
    }

    /// Bytes of records that a group may have.
    pub(super) fn group_bytes_max(&self) -> u64 {
        (self.ring.now.pages / GROUP_SHARE * PAGE_BYTES as u64).min(GROUP_BYTES_MAX)
    }

    /// Whether so many more pages overwrite nothing that is needed.
    pub(super) fn has_room(&self, pages: u64) -> bool {
        self.end.page + pages <= self.ring.limit(self.floor)
    }

    /// Whether enough is used that a checkpoint is worth its writes.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        self.end.page - self.start.page >= self.ring.now.pages / CHECKPOINT_SHARE
    }

    /// Bytes used since the current checkpoint.
    pub(super) fn used_bytes(&self) -> u64 {
        (self.end.page - self.start.page) * PAGE_BYTES as u64
    }

    /// The last record that is durable.
    pub(super) fn durable_sequence(&self) -> u64 {
        self.applied.sequence - 1
    }

    /// A checkpoint begins to write over the generation before the current one.
    pub(super) fn on_checkpoint_begun(&mut self) {
        self.floor = self.start.page;
    }

    /// The ring when it has so many pages, from the next checkpoint on; none while what was before
    /// it grew last is needed.
    pub(super) fn grown(&self, pages: u64) -> Option<Ring> {
        self.ring.grown(self.floor, pages)
    }

    /// The checkpoint that begins with `start` is durable; the one before stays as it is until the
    /// next begins.
    pub(super) fn on_checkpoint_done(&mut self, start: LogPoint) {
        self.start = start;
    }

    /// The writes that bring pieces of whole pages to both copies, one write a copy unless the ring
    /// ends between them. Those to the copies from `durable_from` on are durable, and come last.
    pub(super) fn writes(
        &self,
        layout: &Layout,
        first_page: u64,
        pieces: &[Frozen],
        durable_from: u64,
    ) -> Vec<Op> {
        let mut ops = Vec::with_capacity(2);
        for copy in 0..LOG_COPIES {
            let is_durable = copy >= durable_from;
            let (mut page, mut begin) = (first_page, first_page);
            let mut from = Buffers::<WritePages>::new();
            let mut end = |from: &mut Buffers<WritePages>, begin: u64| {
                let (at, from) =
                    (layout.log_slot(copy, self.ring.slot(begin)), std::mem::take(from));
                ops.push(Op::Write { at, from, is_durable });
            };
            for piece in pieces {
                let count = (piece.len() / PAGE_BYTES) as u32;
                let mut done = 0;
                while done < count {
                    let together = self.ring.together(page);
                    let part = u64::from(count - done).min(together) as u32;
                    // They are whole pages that begin at a page.
                    from.extend(WritePages::part(piece.clone(), done..done + part));
                    (page, done) = (page + u64::from(part), done + part);
                    if u64::from(part) == together || from.len() == OP_BUFFERS_MAX {
                        end(&mut from, begin);
                        begin = page;
                    }
                }
            }
            if !from.is_empty() {
                end(&mut from, begin);
            }
        }
        ops
    }
}
