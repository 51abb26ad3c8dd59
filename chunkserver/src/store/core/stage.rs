//! Staging: a change is checked, and joins the group that gathers; or it waits, or is refused.

use super::group::{Change, Client, Head, Member};
use super::map::blocks_of;
use super::map_page::ChunkHead;
use super::page::PAGE_BYTES;
use super::state::{Asked, StoreCore};
use crate::store::error::{ChangeError, Refused};
use crate::store::limits::{CHAIN_MAX, CHUNK_BYTES_MAX};
use crate::store::request::{NewChunk, Reply, Request, Terms};
use crate::store::results::Ticket;
use crate::store::slice::{ChunkId, SLICE_BYTES};
use towpath_memory::Buf;
use towpath_transport::Class;

/// Most members of a class that gather: what is answered together, some 100 us of work.
const GROUP_MEMBERS_MAX: usize = 1024;

/// The number of a change whose group is not closed.
const UNKNOWN: u64 = 0;

/// Why a change is not staged.
#[derive(Debug)]
pub(super) enum Stop {
    /// It has to wait for what is under way.
    Hold,
    /// It was done before: the chunk has had that version since.
    Known(u64),
    /// It is refused.
    Refuse(ChangeError),
}

impl<E: Into<ChangeError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Refuse(error.into())
    }
}

/// What is staged: the change, the chunk as it leaves it but for its version, and what it will
/// take.
pub(super) struct Staged {
    pub(super) change: Change,
    pub(super) terms: Terms,
    pub(super) head: Option<Head>,
    pub(super) slots: u64,
    pub(super) blocks: u64,
}

fn chunk_of<W>(request: &Request<W, Buf>) -> ChunkId {
    match request {
        Request::Create { chunk, .. }
        | Request::Chain { chunk, .. }
        | Request::Finish { chunk, .. }
        | Request::Clear { chunk, .. }
        | Request::Delete { chunk, .. }
        | Request::Write { chunk, .. } => *chunk,
        _ => ChunkId::default(),
    }
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Stages a change, unless one of the same chunk waits before it, or has to be decided first.
    pub(super) fn change(&mut self, asked: Asked<W>) {
        let chunk = chunk_of(&asked.request);
        let must_wait = self.pending.get(&chunk).is_some_and(|pending| pending.is_barrier);
        if must_wait || self.held_of.contains_key(&chunk) {
            return self.hold(asked);
        }
        let Asked { to, request } = asked;
        match request {
            Request::Create { chunk, limit_bytes, kind, stamp } => {
                let staged = self.stage_create(chunk, limit_bytes, kind, stamp);
                self.settle_stage(Asked { to, request }, staged, Reply::Create);
            }
            Request::Chain { chunk, chain, version, stamp } => {
                let staged = self.stage_chain(chunk, chain, version, stamp);
                self.settle_stage(Asked { to, request }, staged, Reply::Chain);
            }
            Request::Finish { chunk, byte_len, terms } => {
                let staged = self.stage_finish(chunk, byte_len, terms);
                self.settle_stage(Asked { to, request }, staged, Reply::Finish);
            }
            Request::Clear { chunk, clear, terms } => self.change_by_clear(to, chunk, clear, terms),
            Request::Delete { chunk, version } => {
                let staged = self.stage_delete(chunk, version);
                self.settle_stage(Asked { to, request }, staged, Reply::Delete);
            }
            _ => self.change_slices(to, request),
        }
    }

    /// What comes of a change that has no data: it joins the group, waits, or is answered.
    fn settle_stage(
        &mut self,
        asked: Asked<W>,
        staged: Result<Staged, Stop>,
        reply: fn(Result<Ticket, ChangeError>) -> Reply<W, Buf>,
    ) {
        let (to, chunk) = (asked.to, chunk_of(&asked.request));
        match staged {
            Ok(staged) => drop(self.join(to, chunk, staged, Vec::new())),
            Err(Stop::Hold) => self.hold(asked),
            Err(Stop::Known(version)) => self.answer(to, reply(Ok(Self::ticket(version)))),
            Err(Stop::Refuse(error)) => self.answer(to, reply(Err(error))),
        }
    }

    /// Keeps a change until something has changed that it may wait for.
    pub(super) fn hold(&mut self, asked: Asked<W>) {
        *self.held_of.entry(chunk_of(&asked.request)).or_insert(0) += 1;
        self.held_by[self.staging.index()] += 1;
        self.held.push_back((self.staging, asked));
    }

    pub(super) fn retry_held(&mut self) {
        self.held_of.clear();
        self.held_by = Default::default();
        for (class, asked) in std::mem::take(&mut self.held) {
            self.staging = class;
            self.change(asked);
        }
    }

    fn stage_create(
        &mut self,
        chunk: ChunkId,
        limit_bytes: Option<u64>,
        kind: NewChunk,
        stamp: u64,
    ) -> Result<Staged, Stop> {
        self.check_usable()?;
        let limit_bytes = limit_bytes.unwrap_or(CHUNK_BYTES_MAX);
        if limit_bytes == 0 || limit_bytes > CHUNK_BYTES_MAX {
            return Err(ChangeError::Limit(limit_bytes).into());
        }
        if kind.chain > CHAIN_MAX {
            return Err(ChangeError::Chain(kind.chain).into());
        }
        let terms = Terms { stamp, ..Terms::default() };
        if let Some(Head { chain, .. }) = self.head(chunk) {
            self.check_terms(chunk, Terms { chain, ..terms })?;
            return Err(ChangeError::Exists(chunk).into());
        }
        let chunks = (self.map.chunks.len() as u64).saturating_add_signed(self.pending_chunks);
        if chunks >= self.chunks_max {
            return Err(ChangeError::TooManyChunks(self.chunks_max).into());
        }
        let NewChunk { resident, chain, .. } = kind;
        if resident {
            // Without room for its first slice it could only be written to in vain.
            self.check_slots(1)?;
        }
        let change = Change::Create { limit_bytes, kind };
        self.check_group(change.record_bytes(stamp))?;
        self.check_blocks(1)?;
        let has_slots = resident && self.residence.is_some();
        let head = Some(Head { limit_bytes, has_slots, chain, ..Head::default() });
        Ok(Staged { change, terms, head, slots: 0, blocks: 1 })
    }

    /// Raises the chain version. A chunk that has it already stays as it is, whatever the version
    /// that the raise is meant for: what it is to bring about is so.
    fn stage_chain(
        &mut self,
        chunk: ChunkId,
        chain: u32,
        version: Option<u64>,
        stamp: u64,
    ) -> Result<Staged, Stop> {
        self.check_usable()?;
        if chain > CHAIN_MAX {
            return Err(ChangeError::Chain(chain).into());
        }
        let head = self.head(chunk).ok_or(ChangeError::NoSuchChunk(chunk))?;
        if self.is_suspect(chunk) {
            return Err(ChangeError::Suspect(chunk).into());
        }
        let terms = Terms { version, stamp, chain: head.chain };
        if chain <= head.chain {
            // What is said of the chunk is durable.
            return Err(match self.pending.contains_key(&chunk) {
                true => Stop::Hold,
                false if chain == head.chain => Stop::Known(head.version),
                false => Stop::Refuse(Refused::OtherChain { chain: head.chain }.into()),
            });
        }
        self.check_terms(chunk, terms)?;
        let change = Change::Chain { chain };
        self.check_group(change.record_bytes(stamp))?;
        let head = Some(Head { chain, ..head });
        Ok(Staged { change, terms, head, slots: 0, blocks: 0 })
    }

    fn stage_finish(
        &mut self,
        chunk: ChunkId,
        byte_len: u64,
        terms: Terms,
    ) -> Result<Staged, Stop> {
        self.check_usable()?;
        let head = self.head(chunk).ok_or(ChangeError::NoSuchChunk(chunk))?;
        if self.is_suspect(chunk) {
            return Err(ChangeError::Suspect(chunk).into());
        }
        self.check_terms(chunk, terms)?;
        if head.byte_len != byte_len {
            return Err(ChangeError::WrongLength { byte_len: head.byte_len }.into());
        }
        let change = Change::Finish { byte_len };
        self.check_group(change.record_bytes(terms.stamp))?;
        Ok(Staged { change, terms, head: Some(head), slots: 0, blocks: 0 })
    }

    fn stage_delete(&mut self, chunk: ChunkId, version: Option<u64>) -> Result<Staged, Stop> {
        self.check_usable()?;
        let Some(Head { chain, .. }) = self.head(chunk) else {
            return Err(ChangeError::NoSuchChunk(chunk).into());
        };
        // Nothing is left that could differ between replicas: a delete names no chain version.
        let terms = Terms { version, stamp: 0, chain };
        self.check_terms(chunk, terms)?;
        let change = Change::Delete;
        self.check_group(change.record_bytes(0))?;
        Ok(Staged { change, terms, head: None, slots: 0, blocks: 0 })
    }

    /// Whether a change that is made on these terms is made now. One for a version waits until
    /// nothing of the chunk is under way: the number of a change is not known before its group
    /// closes. Only then is it said that there is another version or chain version, or that the
    /// change was made before: that is durable then.
    pub(super) fn check_terms(&self, chunk: ChunkId, terms: Terms) -> Result<(), Stop> {
        let pending = self.pending.get(&chunk);
        let head = pending.map_or_else(|| self.committed_head(chunk), |pending| pending.head);
        let Some(Head { version, stamp, chain, .. }) = head else { return Ok(()) };
        #[cfg(test)]
        let terms = self.mistaken(terms, chain);
        let is_known = terms.stamp != 0 && terms.stamp == stamp;
        let is_other = terms.version.is_some_and(|expected| expected != version);
        let is_other_chain = terms.chain != chain;
        let is_pending = pending.is_some();
        let waits = is_pending && terms.version.is_some();
        match is_known || is_other || is_other_chain || waits {
            false => Ok(()),
            true if is_pending => Err(Stop::Hold),
            true if is_known => Err(Stop::Known(version)),
            true if is_other_chain => Err(Refused::OtherChain { chain }.into()),
            true => Err(Refused::OtherVersion { version }.into()),
        }
    }

    /// A delete that nobody waits for, of the chunk as it is: what was changed meanwhile stays.
    pub fn delete_unasked(&mut self, chunk: ChunkId, version: u64) {
        self.staging = Class::Copper;
        let version = Some(version);
        self.change(Asked { to: None, request: Request::Delete { chunk, version } });
    }

    /// Whether changes of a chunk are under way, or wait.
    #[must_use]
    pub fn is_changing(&self, chunk: ChunkId) -> bool {
        self.pending.contains_key(&chunk) || self.held_of.contains_key(&chunk)
    }

    /// Says in the log that all before was durable, unless a record has said so since. With it the
    /// next opening tells damage of the last records from an unfinished group. It costs a flush: it
    /// is for moments in which nothing is to be done.
    pub fn seal(&mut self) {
        if self.members.is_empty() && self.wants_seal() {
            let (change, terms) = (Change::Seal, Terms::default());
            let staged = Staged { change, terms, head: None, slots: 0, blocks: 0 };
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
        to: Option<Client>,
        chunk: ChunkId,
        staged: Staged,
        data: Vec<W>,
    ) -> usize {
        let Staged { change, terms, head, slots, blocks } = staged;
        let record_bytes = change.record_bytes(terms.stamp);
        let (version, stamp) = (UNKNOWN, terms.stamp);
        let head = head.map(|head| Head { version, stamp, ..head });
        self.pending_chunks += match change {
            Change::Create { .. } => 1,
            Change::Delete => -1,
            _ => 0,
        };
        self.promised_slots += slots;
        self.promised_blocks += blocks;
        let (writes_left, merges_left, is_closed) = (0, 0, false);
        let kept = head.filter(|head| head.has_slots).map(|_| Vec::new());
        let member = Member {
            to,
            class: self.staging,
            chunk,
            change,
            terms,
            version,
            record_bytes,
            writes_left,
            merges_left,
            data,
            failed: None,
            kept,
            slots,
            blocks,
            is_closed,
        };
        if !matches!(member.change, Change::Seal) {
            let pending = self.pending.entry(chunk).or_default();
            (pending.head, pending.count) = (head, pending.count + 1);
            pending.is_barrier |= member.is_barrier();
        }
        let key = self.members.insert(member);
        self.gathering.add(key, &self.members[key]);
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

    pub(super) fn check_usable(&self) -> Result<(), Stop> {
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
        let ChunkHead { byte_len, limit_bytes, version, stamp, resident, chain, .. } =
            self.map.chunks.get(&chunk)?.head;
        let has_slots = self.has_slots(chunk, resident);
        Some(Head { byte_len, limit_bytes, has_slots, version, stamp, chain })
    }

    /// Whether a change of the chunk is lost, and none under way deletes the chunk.
    pub(super) fn is_suspect(&self, chunk: ChunkId) -> bool {
        !self.pending.contains_key(&chunk)
            && self.map.chunks.get(&chunk).is_some_and(|found| found.head.suspect)
    }

    /// Whether a record finds room in the group that gathers.
    pub(super) fn check_group(&self, record_bytes: usize) -> Result<(), Stop> {
        let gathered = self.gathering.by_class[self.staging.index()];
        let full = gathered.record_bytes + record_bytes as u64 > self.log.group_bytes_max();
        match full || gathered.members >= GROUP_MEMBERS_MAX {
            true => Err(Stop::Hold),
            false => Ok(()),
        }
    }

    /// Whether the map has room for so many more blocks.
    pub(super) fn check_blocks(&mut self, blocks: u64) -> Result<(), Stop> {
        match self.promised_blocks + blocks <= self.map.blocks_free() {
            true => Ok(()),
            // Deletes may give some, under way or not done yet, and a sparse store may give its map
            // more room.
            false => {
                let may_grow = self.may_get_blocks();
                let some_may_come = may_grow || !self.members.is_empty() || self.has_steps();
                Err(self.no_room(some_may_come))
            }
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
            || self.space.stale_pages() > 0
            || self.discarding.pages > 0
            || self.has_steps()
    }

    /// The answer to a change for which there is no room: where some may come, it waits.
    pub(super) fn no_room(&mut self, some_may_come: bool) -> Stop {
        if some_may_come {
            return Stop::Hold;
        }
        self.counts.no_space += 1;
        self.is_full = true;
        Refused::NoSpace.into()
    }

    /// Whether so many slots are free that nothing under way will take.
    pub(super) fn check_slots(&self, wanted: u64) -> Result<(), Stop> {
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
    pub(super) fn check_room(&mut self, byte_len: u64) -> Result<(), Stop> {
        if self.is_room_for(byte_len) {
            return Ok(());
        }
        // Some may have come since the last look.
        self.measure_room();
        match self.is_room_for(byte_len) {
            true => Ok(()),
            false => Err(self.no_room(self.may_get_pages())),
        }
    }

    /// Bytes of free pages that have their room.
    pub(super) fn backed_bytes(&self) -> u64 {
        self.space.stale_pages() * PAGE_BYTES as u64
    }

    pub(super) fn is_room_for(&self, byte_len: u64) -> bool {
        let under_way = self.gathering.data_bytes() + self.early.bytes() + self.away.byte_len();
        let wanted = under_way + byte_len + self.full_bytes();
        !self.is_sparse || self.room_bytes + self.backed_bytes() >= wanted
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

#[cfg(test)]
impl<W> StoreCore<W> {
    /// The terms as a mistake that a test makes has them.
    fn mistaken(&self, terms: Terms, chain: u32) -> Terms {
        use super::tests::Bug;
        match self.bug {
            Some(Bug::AnyVersion) => Terms { version: None, ..terms },
            Some(Bug::AnyChain) => Terms { chain, ..terms },
            _ => terms,
        }
    }
}
