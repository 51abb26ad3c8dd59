//! The store: what it holds, what it has under way, and the questions that need no data.

use std::io;
use std::time::Duration;

use towpath_disk::Disk;
use towpath_memory::Buf;
use towpath_transport::Class;

use super::away::Away;
use super::changes::{Changes, Client};
use super::checkpoint::Checkpoints;
use super::early::Earlies;
use super::followers::Followers;
use super::group::Commits;
use super::held::{Asked, Held};
use super::io::{Ended, Io, Purpose};
use super::layout::Layout;
use super::map::Map;
use super::page::PAGE_BYTES;
use super::read::Reads;
use super::space::Space;
use super::stage::asker;
use crate::store::damage::Damage;
use crate::store::error::{FlushFailed, ReadOnly};
use crate::store::limits::LIST_MAX;
use crate::store::request::{Completion, Reply, Request};
use crate::store::results::ChunkStat;
use crate::store::slice::ChunkId;
use crate::store::stats::StoreStats;

/// How a store is, and what it has done.
pub(super) struct Health {
    /// Since then it takes no changes.
    pub(super) failed: Option<FlushFailed>,
    /// What the opening found damaged.
    pub(super) damage: Vec<Damage>,
    /// Counters; what there is of room and chunks is added when somebody asks.
    pub(super) counts: StoreStats,
}

/// A store of chunks on one [`Disk`].
///
/// It never sleeps and has no thread: requests go [in](Self::submit), answers come
/// [out](Self::take_answers), and in between [`turn`](Self::turn) takes what the disk has done and
/// gives it more. Changes take effect, chunk by chunk, in the order in which they went in, and are
/// answered when they are durable; reads see what is durable. The bytes on the disk are described
/// in docs/store-core.md.
pub struct StoreCore<W> {
    /// The disk, and memory for what it reads and writes.
    pub(super) io: Io,
    /// Where everything lies.
    pub(super) layout: Layout,
    pub(super) chunks_max: u64,
    /// What each slice is, as it is durable.
    pub(super) map: Map,
    /// The pages that no slice has, and the room that is left.
    pub(super) space: Space,
    /// Changes that are neither durable nor refused.
    pub(super) changes: Changes<W>,
    /// Changes that wait before they are staged.
    pub(super) held: Held<W>,
    /// The log, and the groups on their way to it.
    pub(super) commits: Commits,
    /// The map as it is on the disk, and is about to be.
    pub(super) checkpoints: Checkpoints,
    /// Slices that are in the log and not at their pages yet.
    pub(super) away: Away,
    /// Slices of writes that are still to be asked for.
    pub(super) early: Earlies,
    /// Reads and scrubs under way.
    pub(super) reads: Reads,
    /// Memory of resident chunks, and who follows which chunks there are.
    pub(super) followers: Followers,
    pub(super) health: Health,
    pub(super) answers: Vec<(usize, Completion<W, Buf>)>,
    #[cfg(test)]
    pub(super) bug: Option<super::tests::Bug>,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Takes a request. Its answer is among those that a later [`turn`](Self::turn) brings, or at
    /// once among those to [take](Self::take_answers).
    pub fn submit(&mut self, to: Client, request: Request<W, Buf>) {
        self.submit_as(Class::default(), to, request);
    }

    /// Takes a request of a class. What a higher class asks for waits for none of a lower one's
    /// bytes: not in a group of changes, nor, but for a few, at the disk.
    pub fn submit_as(&mut self, class: Class, to: Client, request: Request<W, Buf>) {
        let to = Some(to);
        let reply = match request {
            Request::Create { .. }
            | Request::Chain { .. }
            | Request::Finish { .. }
            | Request::Clear { .. }
            | Request::Delete { .. }
            | Request::Write { .. } => return self.change(Asked { to, class, request }),
            Request::Digest { chunk, range } => Reply::Digest(self.digest(chunk, range)),
            Request::List { after, count_max } => Reply::List(self.list(after, count_max)),
            Request::Locate { chunk, first_slice, runs_max } => {
                Reply::Locate(self.locate(chunk, first_slice, runs_max))
            }
            Request::MayWrite { chunk, offset, byte_len, terms } => {
                Reply::MayWrite(self.would_write(chunk, (offset, byte_len), terms))
            }
            Request::Read { chunk, offset, byte_len, buf, crcs } => {
                return self.begin_read((to, class), (chunk, offset, byte_len), buf, crcs);
            }
            Request::Scrub { budget_slices, from } => {
                return self.begin_scrub(to, budget_slices, from);
            }
            Request::Stage { stage, owner, chunk, first_slice, data } => {
                let owner = (asker(to), owner);
                let is_staged = self.begin_early(class, owner, stage, (chunk, first_slice), &data);
                Reply::Stage { is_staged, data }
            }
            Request::Unstage { stage, .. } => {
                self.drop_early_of(asker(to), stage);
                Reply::Unstage
            }
            Request::Stat { chunk } => Reply::Stat(self.stat(chunk)),
            Request::Stats => Reply::Stats(Box::new(self.stats())),
        };
        self.answer(to, reply);
    }

    pub(super) fn answer(&mut self, to: Option<Client>, reply: Reply<W, Buf>) {
        self.answer_with(to, reply, 0);
    }

    /// The same of a change that leaves so many blocks to be freed.
    pub(super) fn answer_with(
        &mut self,
        to: Option<Client>,
        reply: Reply<W, Buf>,
        blocks_left: u64,
    ) {
        if let Some(Client { asker, token }) = to {
            let flush_ns = if reply.is_change() { self.io.flush_ns } else { 0 };
            self.answers.push((asker, Completion { token, reply, flush_ns, blocks_left }));
        }
    }

    /// The answers that are there, each with the number of who asked.
    pub fn take_answers(&mut self) -> impl Iterator<Item = (usize, Completion<W, Buf>)> {
        self.answers.drain(..)
    }

    /// Whether more changes of a class may be taken in: those that are held are not too many for so
    /// many who ask.
    #[must_use]
    pub fn has_room(&self, class: Class, askers: usize) -> bool {
        self.held.count(class) < super::HELD_MAX * askers.max(1)
    }

    /// Whether nothing is under way, but for what waits for a checkpoint.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.io.is_idle() && self.changes.is_empty() && self.held.is_empty() && !self.has_steps()
    }

    /// Takes what the disk has done, and goes on with what that allows. Where there is a `timeout`
    /// it waits for the disk so long, if the disk has nothing done. True where the disk had done
    /// something.
    ///
    /// # Errors
    /// The system does not speak of the disk any more: nothing further is answered.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        // What is left to be done waits for nothing.
        let mut ended = self.io.poll(timeout.filter(|_| !self.can_step()))?;
        let any = !ended.is_empty();
        for ended in ended.drain(..) {
            self.on_ended(ended);
        }
        self.io.done_with(ended);
        self.go_on();
        Ok(any)
    }

    fn on_ended(&mut self, ended: Ended) {
        let Ended { purpose, op, outcome } = ended;
        match purpose {
            Purpose::Data { member } => self.on_data(member, op, outcome),
            Purpose::Early { key } => self.on_early(key, op, outcome),
            Purpose::Log { group } => self.on_log(group, &op, outcome),
            Purpose::Flush { group } => self.on_flush(group, outcome),
            Purpose::Home(moved) => self.on_home(moved, outcome),
            Purpose::Read { read, position, is_second } => {
                self.on_read((read, position, is_second), op, outcome);
            }
            Purpose::Checkpoint => self.on_checkpoint(outcome),
            Purpose::Ahead(extent) => self.on_ahead(extent),
            Purpose::MapRoom => self.on_map_room(outcome.is_ok()),
            Purpose::LogRoom => self.on_log_room(outcome.is_ok()),
            Purpose::Discard(extent) => self.on_discard(extent),
        }
    }

    fn go_on(&mut self) {
        self.write_ahead();
        self.grow_map();
        self.close_group();
        if self.held.is_due() {
            self.retry_held();
            self.close_group();
        }
        self.go_on_with_steps();
        self.go_on_with_checkpoint();
        self.go_home();
        self.give_room_back();
    }

    /// The disk.
    pub(super) fn disk(&self) -> &dyn Disk {
        self.io.disk()
    }

    /// The disk, to wait for it.
    pub fn disk_mut(&mut self) -> &mut dyn Disk {
        self.io.disk_mut()
    }

    /// The committed state of a chunk.
    #[must_use]
    pub fn stat(&self, chunk: ChunkId) -> Option<ChunkStat> {
        match self.map.chunks.get(&chunk) {
            Some(found) => Some(found.stat(chunk)),
            // What made it may be lost.
            None if self.map.may_miss_chunks => {
                Some(ChunkStat { chunk, suspect: true, ..ChunkStat::default() })
            }
            None => None,
        }
    }

    /// Committed chunks in the order of their names, the first one after `after`; at most
    /// `count_max` and never more than [`LIST_MAX`]. A listing goes on from the last name it got.
    #[must_use]
    pub fn list(&self, after: Option<ChunkId>, count_max: usize) -> Vec<ChunkStat> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let chunks = self.map.chunks.range((from, Unbounded));
        chunks.take(count_max.min(LIST_MAX)).filter_map(|(id, _)| self.stat(*id)).collect()
    }

    /// Counters and space.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let bytes = |pages: u64| pages.saturating_mul(PAGE_BYTES as u64);
        let (resident_bytes, resident_bytes_max) = self.followers.resident_bytes();
        let mut stats = StoreStats {
            chunks: self.map.chunks.len() as u64,
            log_bytes: self.commits.log.used_bytes(),
            live_bytes: bytes(self.map.live_slices),
            resident_bytes,
            resident_bytes_max,
            raw_bytes: bytes(self.layout.page_count),
            reserved_bytes: bytes(self.layout.page_count - u64::from(self.layout.data_pages)),
            failed: self.read_only().is_some(),
            read_only: self.read_only(),
            store_id: self.checkpoints.store_id(),
            ..self.health.counts
        };
        self.space.tell(&mut stats);
        stats
    }

    /// What the opening found damaged.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.health.damage
    }

    /// Whether changes are refused because others are lost to damage.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.map.is_lossy
    }

    fn read_only(&self) -> Option<ReadOnly> {
        let damaged = self.map.is_lossy.then_some(ReadOnly::Damaged);
        self.health.failed.map(ReadOnly::Failed).or(damaged)
    }

    /// What has failed, if the store takes no more changes since.
    #[must_use]
    pub fn failure(&self) -> Option<FlushFailed> {
        self.health.failed
    }

    /// The chunks whose put is not complete.
    pub fn unfinished(&self) -> impl Iterator<Item = ChunkId> {
        self.map.unfinished()
    }

    /// Writes a checkpoint soon, however little of the log is used.
    pub fn request_checkpoint(&mut self) {
        self.checkpoints.want();
    }
}
