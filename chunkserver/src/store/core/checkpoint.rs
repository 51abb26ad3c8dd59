//! The checkpoint: pages of the map that have changed go to the disk while requests are served
//! (docs/store-core.md section 7).

use towpath_disk::{DiskError, Op};

use super::directory::{ENTRIES, Entry, encode};
use super::io::Purpose;
use super::page::{PAGE_BYTES, PageHead};
use super::ring::Ring;
use super::state::StoreCore;
use super::superblock::{LogPoint, Superblock, encode_page};
use crate::store::error::CommitStep;

/// Operations of a checkpoint that are under way together while nobody changes anything.
const UNDER_WAY_MAX: usize = 8;

/// The same beside changes: whatever is under way may be before their flush.
const UNDER_WAY_BESIDE_MAX: usize = 2;

/// Pages of the map in one write, 64 KiB: some 50 us of a disk.
const PAGES_A_WRITE: usize = 16;

/// The checkpoint that is on the disk.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) superblock: Superblock,
    /// The number of the next one: no page on the disk says that it is of that one.
    pub(super) next_generation: u64,
    /// By page of the map: where its newest version is, which may be of the checkpoint under way.
    /// Should that one fail there is never another.
    pub(super) entries: Vec<Entry>,
}

/// The checkpoint that is on the disk, and the one under way.
pub(super) struct Checkpoints {
    published: Published,
    under_way: Option<Checkpoint>,
    is_wanted: bool,
}

impl Checkpoints {
    pub(super) fn new(published: Published, is_wanted: bool) -> Self {
        Self { published, under_way: None, is_wanted }
    }

    /// The generation that is on the disk.
    pub(super) fn generation(&self) -> u64 {
        self.published.superblock.generation
    }

    /// The number of the store.
    pub(super) fn store_id(&self) -> u64 {
        self.published.superblock.store_id
    }

    /// Pages of the map that the directory has.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.published.entries
    }

    /// One is to begin soon, however little of the log is used.
    pub(super) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// The same, unless one is under way.
    pub(super) fn want_another(&mut self) {
        self.is_wanted |= self.under_way.is_none();
    }

    /// Whether one is under way.
    #[cfg(test)]
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// None goes on.
    pub(super) fn give_up(&mut self) {
        self.under_way = None;
    }

    /// A write or a flush of the one under way has ended.
    fn on_ended(&mut self) {
        self.under_way.iter_mut().for_each(|checkpoint| checkpoint.under_way -= 1);
    }
}

/// What a checkpoint does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Writes pages of the map that have changed.
    Pages,
    /// Writes pages of the directory, from one on.
    Directory(u32),
    /// Flushes what it wrote, and then does this.
    Flush(Then),
    /// Does this, when nothing is under way.
    Do(Then),
}

/// What a checkpoint does once all before is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Writes the superblock.
    Superblock,
    /// Writes a copy of the superblock to the page of the one before.
    Copy,
    /// Is done with that.
    Publish,
}

/// A checkpoint under way.
#[derive(Debug)]
pub(super) struct Checkpoint {
    generation: u64,
    start: LogPoint,
    /// How the log lies once this is published.
    ring: Ring,
    map_pages_used: u32,
    under_way: usize,
    step: Step,
    /// Once it is written.
    superblock: Option<Superblock>,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Begins a checkpoint where one is due, and goes on with the one under way.
    pub(super) fn go_on_with_checkpoint(&mut self) {
        if self.health.failed.is_some() || self.map.is_lossy {
            return;
        }
        if self.checkpoints.under_way.is_none() {
            if !self.checkpoints.is_wanted && !self.commits.log.is_checkpoint_due() {
                return;
            }
            // The pages of the map tell nothing of what is deleted in part.
            if self.map.has_steps() {
                return;
            }
            self.lengthen_log();
            self.begin_checkpoint();
        }
        while let Some(checkpoint) = self.checkpoints.under_way.take() {
            let (before, left) = (checkpoint.step, checkpoint.under_way);
            self.advance(checkpoint);
            let now = self.checkpoints.under_way.as_ref().map(|now| (now.step, now.under_way));
            if now == Some((before, left)) {
                break;
            }
        }
    }

    fn begin_checkpoint(&mut self) {
        self.checkpoints.is_wanted = false;
        self.map.freeze();
        self.away.begin_era();
        self.commits.log.on_checkpoint_begun();
        let used = self.map.pages_used().max(self.checkpoints.published.entries.len() as u32);
        self.checkpoints.published.entries.resize(used as usize, Entry::default());
        self.checkpoints.under_way = Some(Checkpoint {
            generation: self.checkpoints.published.next_generation,
            start: self.commits.log.applied,
            ring: self.next_ring(),
            map_pages_used: used,
            under_way: 0,
            step: Step::Pages,
            superblock: None,
        });
    }

    fn advance(&mut self, mut checkpoint: Checkpoint) {
        let outcome = match checkpoint.step {
            Step::Pages => self.write_map_pages(&mut checkpoint),
            Step::Directory(page) => self.write_directory_page(&mut checkpoint, page),
            _ if checkpoint.under_way > 0 => Ok(()),
            // What the log before it holds is to be at home by then.
            Step::Flush(Then::Superblock) if self.away.has_old() => Ok(()),
            Step::Flush(then) => {
                checkpoint.step = Step::Do(then);
                #[cfg(test)]
                let skips = self.bug == Some(super::tests::Bug::SkipMapFlush);
                #[cfg(not(test))]
                let skips = false;
                if !skips || then != Then::Superblock {
                    checkpoint.under_way += 1;
                    self.io.submit(Purpose::Checkpoint, Op::Flush);
                }
                Ok(())
            }
            Step::Do(Then::Superblock) => {
                let new = self.superblock(&checkpoint);
                checkpoint.superblock = Some(new);
                let before = self.checkpoints.published.superblock;
                self.write_superblock(&mut checkpoint, (&new, &before), Then::Copy)
            }
            Step::Do(Then::Copy) => {
                let before = self.checkpoints.published.superblock;
                let new = checkpoint.superblock.unwrap_or(before);
                self.write_superblock(&mut checkpoint, (&before, &new), Then::Publish)
            }
            Step::Do(Then::Publish) => return self.publish(checkpoint),
        };
        self.checkpoints.under_way = Some(checkpoint);
        if let Err(error) = outcome {
            self.fail_at(CommitStep::Checkpoint, &error);
        }
    }

    fn may_write(&self, checkpoint: &Checkpoint) -> bool {
        let max = match (self.io.is_crowded(), self.changes.is_empty() && !self.reads.is_reading())
        {
            (true, _) => 1,
            (false, false) => UNDER_WAY_BESIDE_MAX,
            (false, true) => UNDER_WAY_MAX,
        };
        checkpoint.under_way < max
    }

    /// Pages that follow each other, to the places that do not hold their current version.
    fn write_map_pages(&mut self, checkpoint: &mut Checkpoint) -> std::io::Result<()> {
        if !self.may_write(checkpoint) {
            return Ok(());
        }
        let (store_id, generation) = (self.checkpoints.store_id(), checkpoint.generation);
        let head = PageHead { store_id, generation, index: 0 };
        let (mut first, mut run) = (None, Vec::new());
        while run.len() < PAGES_A_WRITE
            && let Some(next) = self.map.next_frozen()
            && let Some(entry) = self.checkpoints.published.entries.get_mut(next as usize)
        {
            let place = if entry.generation == 0 { 0 } else { 1 - entry.place };
            let (from, at) = *first.get_or_insert((next, place));
            if next != from + run.len() as u32 || place != at {
                break;
            }
            let Some((_, bytes, crc)) = self.map.take_frozen(head) else { break };
            *entry = Entry { generation, crc, place };
            run.push(bytes);
        }
        let Some((page, place)) = first else {
            checkpoint.step = Step::Directory(0);
            return Ok(());
        };
        let from = self.io.memory.filled(run.len(), |buf| {
            let pages = buf.chunks_exact_mut(PAGE_BYTES).zip(&run);
            pages.for_each(|(page, bytes)| page.copy_from_slice(&bytes[..]));
        })?;
        let op = Op::write(self.layout.map_page(page, place), from);
        checkpoint.under_way += 1;
        self.io.submit(Purpose::Checkpoint, op);
        Ok(())
    }

    fn write_directory_page(
        &mut self,
        checkpoint: &mut Checkpoint,
        page: u32,
    ) -> std::io::Result<()> {
        if !self.may_write(checkpoint) {
            return Ok(());
        }
        let first = page * ENTRIES as u32;
        if first >= checkpoint.map_pages_used {
            checkpoint.step = Step::Flush(Then::Superblock);
            return Ok(());
        }
        let Checkpoint { generation, map_pages_used, .. } = *checkpoint;
        let head =
            PageHead { store_id: self.checkpoints.store_id(), generation, index: page.into() };
        let last = map_pages_used.min(first + ENTRIES as u32);
        let entries = &self.checkpoints.published.entries[first as usize..last as usize];
        let bytes = encode(head, entries.iter().copied());
        let at = self.layout.directory_page(generation, page);
        let op = Op::write(at, self.io.memory.page(&bytes)?);
        checkpoint.step = Step::Directory(page + 1);
        checkpoint.under_way += 1;
        self.io.submit(Purpose::Checkpoint, op);
        Ok(())
    }

    /// Writes the page of a superblock, with a copy of another one. The new one goes first, and
    /// when that is durable the one before: damage of one page takes neither.
    fn write_superblock(
        &mut self,
        checkpoint: &mut Checkpoint,
        (own, other): (&Superblock, &Superblock),
        then: Then,
    ) -> std::io::Result<()> {
        let bytes = encode_page(Some(own), Some(other));
        let op = Op::write(self.layout.superblock(own.generation), self.io.memory.page(&bytes)?);
        checkpoint.step = Step::Flush(then);
        checkpoint.under_way += 1;
        self.io.submit(Purpose::Checkpoint, op);
        Ok(())
    }

    fn superblock(&self, checkpoint: &Checkpoint) -> Superblock {
        let &Checkpoint { generation, start, ring, map_pages_used, .. } = checkpoint;
        let written_pages = self.space.written_pages();
        let before = self.checkpoints.published.superblock;
        Superblock { generation, start, ring, map_pages_used, written_pages, ..before }
    }

    /// The checkpoint is durable. The log before that of the generation before is free.
    fn publish(&mut self, checkpoint: Checkpoint) {
        let Checkpoint { generation, start, ring, superblock, .. } = checkpoint;
        self.checkpoints.published.superblock =
            superblock.unwrap_or(self.checkpoints.published.superblock);
        self.checkpoints.published.next_generation = generation + 1;
        self.commits.log.ring = ring;
        self.commits.log.on_checkpoint_done(start);
        self.health.counts.checkpoints += 1;
        self.close_group();
    }

    pub(super) fn on_checkpoint(&mut self, outcome: Result<(), DiskError>) {
        if let Err(error) = outcome {
            return self.fail_at(CommitStep::Checkpoint, &error.source);
        }
        self.checkpoints.on_ended();
    }
}
