//! Staging: a change is checked, and joins the group that gathers; or it waits, or is refused.

use super::group::{Change, Head, Member, Pending};
use super::map::blocks_of;
use super::page::PAGE_BYTES;
use super::state::{Asked, StoreCore};
use crate::store::error::{CreateError, DeleteError, FinishError, Refused};
use crate::store::limits::CHUNK_BYTES_MAX;
use crate::store::request::{Reply, Request};
use crate::store::results::Ticket;
use crate::store::slice::{ChunkId, SLICE_BYTES};

/// Most members of a group: what is answered together, some 100 us of work.
const GROUP_MEMBERS_MAX: usize = 1024;

/// Why a change is not staged.
#[derive(Debug)]
pub(super) enum Stop<E> {
    /// It has to wait for what is under way.
    Hold,
    /// It is refused.
    Refuse(E),
}

impl<E> Stop<E> {
    pub(super) fn widen<F: From<E>>(self) -> Stop<F> {
        match self {
            Self::Hold => Stop::Hold,
            Self::Refuse(error) => Stop::Refuse(error.into()),
        }
    }
}

impl From<Refused> for Stop<Refused> {
    fn from(refused: Refused) -> Self {
        Self::Refuse(refused)
    }
}

/// What is staged: the change, the chunk as it leaves it, and what it will take.
pub(super) struct Staged {
    pub(super) change: Change,
    pub(super) head: Option<Head>,
    pub(super) slots: u64,
    pub(super) blocks: u64,
}

fn chunk_of<W>(request: &Request<W, towpath_memory::Buf>) -> ChunkId {
    match request {
        Request::Create { chunk, .. }
        | Request::Finish { chunk, .. }
        | Request::Delete { chunk }
        | Request::Write { chunk, .. } => *chunk,
        _ => ChunkId::default(),
    }
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Stages a change, unless one of the same chunk waits before it.
    pub(super) fn change(&mut self, asked: Asked<W>) {
        let chunk = chunk_of(&asked.request);
        if self.held_of.contains_key(&chunk) {
            return self.hold(asked);
        }
        let Asked { to, request } = asked;
        let (stopped, reply) = match request {
            Request::Create { chunk, limit_bytes, unfinished, resident } => {
                match self.stage_create(chunk, limit_bytes, (unfinished, resident)) {
                    Ok(staged) => (Ok((chunk, staged)), None),
                    Err(Stop::Hold) => (Err(()), None),
                    Err(Stop::Refuse(error)) => (Err(()), Some(Reply::Create(Err(error)))),
                }
            }
            Request::Finish { chunk, byte_len } => match self.stage_finish(chunk, byte_len) {
                Ok(staged) => (Ok((chunk, staged)), None),
                Err(Stop::Hold) => (Err(()), None),
                Err(Stop::Refuse(error)) => (Err(()), Some(Reply::Finish(Err(error)))),
            },
            Request::Delete { chunk } => match self.stage_delete(chunk) {
                Ok(staged) => (Ok((chunk, staged)), None),
                Err(Stop::Hold) => (Err(()), None),
                Err(Stop::Refuse(error)) => (Err(()), Some(Reply::Delete(Err(error)))),
            },
            _ => return self.change_slices(to, request),
        };
        match (stopped, reply) {
            (Ok((chunk, staged)), _) => {
                self.join(to, chunk, staged, Vec::new());
            }
            (Err(()), Some(reply)) => self.answer(to, reply),
            (Err(()), None) => self.hold(Asked { to, request }),
        }
    }

    /// Keeps a change until something has changed that it may wait for.
    pub(super) fn hold(&mut self, asked: Asked<W>) {
        *self.held_of.entry(chunk_of(&asked.request)).or_insert(0) += 1;
        self.held.push_back(asked);
    }

    pub(super) fn retry_held(&mut self) {
        self.held_of.clear();
        for asked in std::mem::take(&mut self.held) {
            self.change(asked);
        }
    }

    fn stage_create(
        &mut self,
        chunk: ChunkId,
        limit_bytes: Option<u64>,
        (unfinished, resident): (bool, bool),
    ) -> Result<Staged, Stop<CreateError>> {
        self.check_usable().map_err(Stop::widen)?;
        let limit_bytes = limit_bytes.unwrap_or(CHUNK_BYTES_MAX);
        if limit_bytes == 0 || limit_bytes > CHUNK_BYTES_MAX {
            return Err(Stop::Refuse(CreateError::Limit(limit_bytes)));
        }
        if self.head(chunk).is_some() {
            return Err(Stop::Refuse(CreateError::Exists(chunk)));
        }
        let chunks = (self.map.chunks.len() as u64).saturating_add_signed(self.pending_chunks);
        if chunks >= self.chunks_max {
            return Err(Stop::Refuse(CreateError::TooManyChunks(self.chunks_max)));
        }
        if resident {
            // Without room for its first slice it could only be written to in vain.
            self.check_slots(1).map_err(Stop::widen)?;
        }
        let change = Change::Create { limit_bytes, unfinished, resident };
        self.check_group(change.op().encoded_len()).map_err(Stop::widen)?;
        self.check_blocks(1).map_err(Stop::widen)?;
        let has_slots = resident && self.residence.is_some();
        let head = Some(Head { byte_len: 0, limit_bytes, has_slots });
        Ok(Staged { change, head, slots: 0, blocks: 1 })
    }

    fn stage_finish(&mut self, chunk: ChunkId, byte_len: u64) -> Result<Staged, Stop<FinishError>> {
        self.check_usable().map_err(Stop::widen)?;
        let head = self.head(chunk).ok_or(Stop::Refuse(FinishError::NoSuchChunk(chunk)))?;
        if self.is_suspect(chunk) {
            return Err(Stop::Refuse(FinishError::Suspect(chunk)));
        }
        if head.byte_len != byte_len {
            return Err(Stop::Refuse(FinishError::Length { byte_len: head.byte_len }));
        }
        let change = Change::Finish { byte_len };
        self.check_group(change.op().encoded_len()).map_err(Stop::widen)?;
        Ok(Staged { change, head: Some(head), slots: 0, blocks: 0 })
    }

    fn stage_delete(&mut self, chunk: ChunkId) -> Result<Staged, Stop<DeleteError>> {
        self.check_usable().map_err(Stop::widen)?;
        if self.head(chunk).is_none() {
            return Err(Stop::Refuse(DeleteError::NoSuchChunk(chunk)));
        }
        let change = Change::Delete;
        self.check_group(change.op().encoded_len()).map_err(Stop::widen)?;
        Ok(Staged { change, head: None, slots: 0, blocks: 0 })
    }

    /// A delete that nobody waits for.
    pub fn delete_unasked(&mut self, chunk: ChunkId) {
        self.change(Asked { to: None, request: Request::Delete { chunk } });
    }

    /// Says in the log that all before was durable, unless a record has said so since. With it the
    /// next opening tells damage of the last records from an unfinished group. It costs a flush: it
    /// is for moments in which nothing is to be done.
    pub fn seal(&mut self) {
        if self.members.is_empty() && self.wants_seal() {
            let staged = Staged { change: Change::Seal, head: None, slots: 0, blocks: 0 };
            self.join(None, ChunkId::default(), staged, Vec::new());
        }
    }

    /// Whether changes are durable of which no record says so.
    pub fn wants_seal(&self) -> bool {
        self.log.durable_sequence() > self.sealed && self.check_usable().is_ok()
    }

    /// Adds a member to the group that gathers; gives its key.
    pub(super) fn join(
        &mut self,
        to: Option<super::group::Client>,
        chunk: ChunkId,
        staged: Staged,
        data: Vec<W>,
    ) -> usize {
        let Staged { change, head, slots, blocks } = staged;
        let record_bytes = change.op().encoded_len();
        self.gathering.record_bytes += record_bytes as u64;
        self.pending_chunks += match change {
            Change::Create { .. } => 1,
            Change::Delete => -1,
            _ => 0,
        };
        self.promised_slots += slots;
        self.promised_blocks += blocks;
        if !matches!(change, Change::Seal) {
            let pending = self.pending.entry(chunk);
            let pending = pending.or_insert(Pending { head: None, count: 0 });
            (pending.head, pending.count) = (head, pending.count + 1);
        }
        let (writes_left, merges_left, is_closed) = (0, 0, false);
        let kept = head.filter(|head| head.has_slots).map(|_| Vec::new());
        let key = self.members.insert(Member {
            to,
            chunk,
            change,
            record_bytes,
            writes_left,
            merges_left,
            data,
            failed: None,
            kept,
            slots,
            blocks,
            is_closed,
        });
        self.gathering.members.push(key);
        key
    }

    /// Gives up what is promised to a member, which is no more under way.
    pub(super) fn forget_member(&mut self, member: &Member<W>) {
        self.promised_slots -= member.slots;
        self.promised_blocks -= member.blocks;
        self.pending_chunks -= match member.change {
            Change::Create { .. } => 1,
            Change::Delete => -1,
            _ => 0,
        };
        if let Some(pending) = self.pending.get_mut(&member.chunk)
            && !matches!(member.change, Change::Seal)
        {
            pending.count -= 1;
            if pending.count == 0 {
                self.pending.remove(&member.chunk);
            }
        }
    }

    pub(super) fn check_usable(&self) -> Result<(), Stop<Refused>> {
        if self.map.is_lossy {
            return Err(Refused::Damaged.into());
        }
        self.failed.map_or(Ok(()), |failed| Err(Refused::Failed(failed).into()))
    }

    /// The chunk as the changes under way leave it.
    pub(super) fn head(&self, chunk: ChunkId) -> Option<Head> {
        match self.pending.get(&chunk) {
            Some(pending) => pending.head,
            None => self.committed_head(chunk),
        }
    }

    pub(super) fn committed_head(&self, chunk: ChunkId) -> Option<Head> {
        let head = self.map.chunks.get(&chunk)?.head;
        let has_slots = self.has_slots(chunk, head.resident);
        Some(Head { byte_len: head.byte_len, limit_bytes: head.limit_bytes, has_slots })
    }

    /// Whether a change of the chunk is lost, and none under way deletes the chunk.
    pub(super) fn is_suspect(&self, chunk: ChunkId) -> bool {
        !self.pending.contains_key(&chunk)
            && self.map.chunks.get(&chunk).is_some_and(|found| found.head.suspect)
    }

    /// Whether a record finds room in the group that gathers.
    pub(super) fn check_group(&self, record_bytes: usize) -> Result<(), Stop<Refused>> {
        let full = self.gathering.record_bytes + record_bytes as u64 > self.log.group_bytes_max();
        match full || self.gathering.members.len() >= GROUP_MEMBERS_MAX {
            true => Err(Stop::Hold),
            false => Ok(()),
        }
    }

    /// Whether the map has room for so many more blocks.
    pub(super) fn check_blocks(&mut self, blocks: u64) -> Result<(), Stop<Refused>> {
        match self.promised_blocks + blocks <= self.map.blocks_free() {
            true => Ok(()),
            // Deletes under way may give some.
            false => Err(self.no_room(!self.members.is_empty())),
        }
    }

    /// Blocks that a write needs, as far as the map knows.
    pub(super) fn blocks_for(&self, chunk: ChunkId, first: u64, count: u64) -> u64 {
        let is_there = !self.pending.contains_key(&chunk);
        match self.map.chunks.get(&chunk).filter(|_| is_there) {
            Some(found) => found.blocks_missing(first, count),
            None => blocks_of(first, count),
        }
    }

    /// Whether what is under way may give pages.
    pub(super) fn may_get_pages(&self) -> bool {
        !self.members.is_empty()
            || self.space.retired_pages() > 0
            || self.space.unbacked_pages() > 0
            || self.vacating > 0
    }

    /// The answer to a change for which there is no room: where some may come, it waits.
    pub(super) fn no_room(&mut self, some_may_come: bool) -> Stop<Refused> {
        if some_may_come {
            return Stop::Hold;
        }
        self.counts.no_space += 1;
        self.is_full = true;
        Stop::Refuse(Refused::NoSpace)
    }

    /// Whether so many slots are free that nothing under way will take.
    pub(super) fn check_slots(&self, wanted: u64) -> Result<(), Stop<Refused>> {
        let free = self.residence.as_ref().map_or(0, |residence| residence.slots_free());
        let left = free.saturating_sub(self.promised_slots);
        match left >= wanted {
            true => Ok(()),
            false if !self.members.is_empty() => Err(Stop::Hold),
            false => {
                let left_bytes = left * SLICE_BYTES as u64;
                Err(Refused::ResidentFull { left_bytes }.into())
            }
        }
    }

    /// Bytes of the file system that are left alone: others need some too, and a file system
    /// without any is slow.
    pub(super) fn full_bytes(&self) -> u64 {
        let share = u64::from(self.layout.data_pages) * PAGE_BYTES as u64 / 64;
        share.min(super::FULL_BYTES_MAX)
    }

    /// Whether the file system has room for so many bytes more, where the data takes its room from
    /// it.
    pub(super) fn check_room(&mut self, byte_len: u64) -> Result<(), Stop<Refused>> {
        let wanted = self.gathering.data_bytes + byte_len + self.full_bytes();
        match !self.is_sparse || self.room_bytes >= wanted {
            true => Ok(()),
            false => Err(self.no_room(self.may_get_pages())),
        }
    }

    /// Refuses all that waits: the store takes no change any more.
    pub(super) fn refuse_held(&mut self) {
        self.retry_held();
        debug_assert!(self.held.is_empty());
    }

    /// The ticket of a record.
    pub(super) fn ticket(sequence: u64) -> Ticket {
        Ticket(sequence)
    }
}
