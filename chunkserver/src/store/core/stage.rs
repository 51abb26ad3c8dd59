//! Staging: a change is checked, and joins the group that gathers; or it waits, or is refused.

use smallvec::SmallVec;
use towpath_disk::Op;
use towpath_transport::Class;

use super::change::{Change, Head, Kept, Member};
use super::changes::{Client, Pending};
use super::held::Asked;
use super::io::Purpose;
use super::map::blocks_of;
use super::map_page::ChunkHead;
use super::merge::Edge;
use super::state::StoreCore;
use crate::store::error::{ChangeError, Refused};
use crate::store::limits::{CHAIN_MAX, CHUNK_BYTES_MAX};
use crate::store::place::slices_in;
use crate::store::request::{NewChunk, Request, Terms};
use crate::store::results::Ticket;
use crate::store::slice::{ChunkId, SLICE_BYTES};

/// Most members of a class that gather: what is answered together, some 100 us of work.
const GROUP_MEMBERS_MAX: usize = 1024;

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

/// What staging knows of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) chunk: ChunkId,
    /// As the changes under way leave it.
    pub(super) head: Option<Head>,
    /// Changes are under way.
    pub(super) is_pending: bool,
    /// Other changes wait until the fate of the last of them is known.
    is_barrier: bool,
    /// A change of it is lost, and none under way deletes the chunk.
    is_suspect: bool,
}

impl Known {
    /// The chunk, where it is there and sound.
    pub(super) fn sound(&self) -> Result<Head, ChangeError> {
        match (self.head, self.is_suspect) {
            (None, _) => Err(ChangeError::NoSuchChunk(self.chunk)),
            (Some(_), true) => Err(ChangeError::Suspect(self.chunk)),
            (Some(head), false) => Ok(head),
        }
    }
}

/// What is staged: the change, what it will take, and what is to be done for it.
pub(super) struct Staged {
    pub(super) change: Change,
    pub(super) terms: Terms,
    /// Slots and blocks that it will take.
    pub(super) slots: u64,
    pub(super) blocks: u64,
    /// Slices that stand in the log.
    pub(super) kept: Kept,
    /// Slices that are written in part.
    pub(super) edges: Vec<Edge>,
    /// Writes of its data.
    pub(super) writes: SmallVec<[Op; 1]>,
    /// What was written of it before it was asked for.
    pub(super) early: Option<usize>,
}

impl Staged {
    pub(super) fn new(change: Change, terms: Terms) -> Self {
        Self {
            change,
            terms,
            slots: 0,
            blocks: 0,
            kept: Kept::new(),
            edges: Vec::new(),
            writes: SmallVec::new(),
            early: None,
        }
    }
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Stages a change, unless one of the same chunk waits before it, or has to be decided first.
    pub(super) fn change(&mut self, asked: Asked<W>) {
        let known = self.known(asked.request.chunk());
        if known.is_barrier || self.held.has(known.chunk) {
            return self.held.push(asked);
        }
        let staged = self.stage(&known, &asked);
        match staged {
            Ok(staged) => self.begin(asked, known.head, staged),
            Err(Stop::Hold) => self.held.push(asked),
            Err(Stop::Known(version)) => self.settle(asked, Ok(Ticket(version))),
            Err(Stop::Refuse(error)) => self.settle(asked, Err(error)),
        }
    }

    fn stage(&mut self, known: &Known, asked: &Asked<W>) -> Result<Staged, Stop> {
        self.check_usable()?;
        let class = asked.class;
        match asked.request {
            Request::Create { limit_bytes, kind, stamp, .. } => {
                self.stage_create(known, class, limit_bytes, (kind, stamp))
            }
            Request::Chain { chain, version, stamp, .. } => {
                self.stage_chain(known, class, chain, (version, stamp))
            }
            Request::Finish { byte_len, terms, .. } => {
                let head = known.sound()?;
                self.check_terms(known, terms)?;
                if head.byte_len != byte_len {
                    return Err(ChangeError::WrongLength { byte_len: head.byte_len }.into());
                }
                self.stage_plain(class, Change::Finish { byte_len }, terms)
            }
            Request::Clear { ref clear, terms, .. } => self.stage_clear(known, class, clear, terms),
            Request::Delete { version, .. } => {
                let Head { chain, .. } = known.head.ok_or(ChangeError::NoSuchChunk(known.chunk))?;
                // Nothing is left that could differ between replicas: a delete names no chain
                // version.
                let terms = Terms { version, stamp: 0, chain };
                self.check_terms(known, terms)?;
                self.stage_plain(class, Change::Delete, terms)
            }
            _ => self.stage_write(known, asked),
        }
    }

    fn stage_create(
        &mut self,
        known: &Known,
        class: Class,
        limit_bytes: Option<u64>,
        (kind, stamp): (NewChunk, u64),
    ) -> Result<Staged, Stop> {
        let limit_bytes = limit_bytes.unwrap_or(CHUNK_BYTES_MAX);
        if limit_bytes == 0 || limit_bytes > CHUNK_BYTES_MAX {
            return Err(ChangeError::Limit(limit_bytes).into());
        }
        if kind.chain > CHAIN_MAX {
            return Err(ChangeError::Chain(kind.chain).into());
        }
        let terms = Terms { stamp, ..Terms::default() };
        if let Some(Head { chain, .. }) = known.head {
            self.check_terms(known, Terms { chain, ..terms })?;
            return Err(ChangeError::Exists(known.chunk).into());
        }
        let chunks =
            (self.map.chunks.len() as u64).saturating_add_signed(self.changes.promised().chunks);
        if chunks >= self.chunks_max {
            return Err(ChangeError::TooManyChunks(self.chunks_max).into());
        }
        // Without room for its first slice it could only be written to in vain.
        self.check_slots(u64::from(kind.resident))?;
        let staged = self.stage_plain(class, Change::Create { limit_bytes, kind }, terms)?;
        self.check_blocks(1)?;
        Ok(Staged { blocks: 1, ..staged })
    }

    /// Raises the chain version. A chunk that has it already stays as it is, whatever the version
    /// that the raise is meant for: what it is to bring about is so.
    fn stage_chain(
        &mut self,
        known: &Known,
        class: Class,
        chain: u32,
        (version, stamp): (Option<u64>, u64),
    ) -> Result<Staged, Stop> {
        if chain > CHAIN_MAX {
            return Err(ChangeError::Chain(chain).into());
        }
        let head = known.sound()?;
        if chain <= head.chain {
            // What is said of the chunk is durable.
            return Err(match known.is_pending {
                true => Stop::Hold,
                false if chain == head.chain => Stop::Known(head.version),
                false => Refused::OtherChain { chain: head.chain }.into(),
            });
        }
        let terms = Terms { version, stamp, chain: head.chain };
        self.check_terms(known, terms)?;
        self.stage_plain(class, Change::Chain { chain }, terms)
    }

    /// Stages a change that takes nothing but room for its record.
    fn stage_plain(&self, class: Class, change: Change, terms: Terms) -> Result<Staged, Stop> {
        self.check_group(class, change.record_bytes(terms.stamp))?;
        Ok(Staged::new(change, terms))
    }

    /// Answers a change that is not made, with its buffers. What was written of it early is given
    /// up.
    fn settle(&mut self, asked: Asked<W>, outcome: Result<Ticket, ChangeError>) {
        let Asked { to, request, .. } = asked;
        if let Request::Write { chunk, staged: Some(stage), .. } = request {
            let early = self.early.find(asker(to), stage, chunk);
            early.into_iter().for_each(|key| self.drop_early(key));
        }
        self.answer(to, request.into_reply(outcome));
    }

    /// Has a change that is staged join the group that gathers, and begins to bring its data to the
    /// disk. Its chunk was like `before`.
    fn begin(&mut self, asked: Asked<W>, before: Option<Head>, staged: Staged) {
        let Asked { to, class, request } = asked;
        let chunk = request.chunk();
        let Staged { mut change, terms, slots, blocks, kept, edges, writes, early } = staged;
        let data = match (request, &mut change) {
            (Request::Write { data, crcs: asked, .. }, Change::Write { crcs, .. }) => {
                *crcs = asked;
                data
            }
            _ => Vec::new(),
        };
        let under_way = early.map_or(0, |key| self.early.writes_left(key));
        let mut member = Member::new((to, class, chunk), change, terms);
        (member.data, member.kept, member.slots, member.blocks) = (data, kept, slots, blocks);
        (member.writes_left, member.merges_left) = (writes.len() + under_way, edges.len());
        let head = member.head_after(before, self.followers.has_residence());
        member.keeps = head.is_some_and(|head| head.has_slots);
        let key = self.changes.add(member, head);
        if let Some(early) = early {
            self.early.hand_over(early, key);
        }
        for op in writes {
            self.io.submit_as(class, Purpose::Data { member: key }, op);
        }
        for edge in edges {
            self.begin_merge(Edge { member: key, ..edge });
        }
    }

    /// What is known of a chunk, with all that is under way.
    pub(super) fn known(&self, chunk: ChunkId) -> Known {
        if let Some(&Pending { head, is_barrier, .. }) = self.changes.pending(chunk) {
            return Known { chunk, head, is_pending: true, is_barrier, is_suspect: false };
        }
        let found = self.map.chunks.get(&chunk).map(|found| &found.head);
        let head = found.map(|found| self.head_of(chunk, found));
        let is_suspect = found.is_some_and(|found| found.suspect);
        Known { chunk, head, is_pending: false, is_barrier: false, is_suspect }
    }

    /// The chunk as it is durable.
    pub(super) fn committed_head(&self, chunk: ChunkId) -> Option<Head> {
        Some(self.head_of(chunk, &self.map.chunks.get(&chunk)?.head))
    }

    fn head_of(&self, chunk: ChunkId, found: &ChunkHead) -> Head {
        let &ChunkHead { byte_len, limit_bytes, version, stamp, resident, chain, .. } = found;
        let has_slots = resident && self.followers.holds(chunk);
        Head { byte_len, limit_bytes, has_slots, version, stamp, chain }
    }

    /// Whether a change that is made on these terms is made now. One for a version waits until
    /// nothing of the chunk is under way: the number of a change is not known before its group
    /// closes. Only then is it said that there is another version or chain version, or that the
    /// change was made before: that is durable then.
    pub(super) fn check_terms(&self, known: &Known, terms: Terms) -> Result<(), Stop> {
        let Some(Head { version, stamp, chain, .. }) = known.head else { return Ok(()) };
        #[cfg(test)]
        let terms = self.mistaken(terms, chain);
        let is_known = terms.stamp != 0 && terms.stamp == stamp;
        let is_other = terms.version.is_some_and(|expected| expected != version);
        let is_other_chain = terms.chain != chain;
        let waits = known.is_pending && terms.version.is_some();
        match is_known || is_other || is_other_chain || waits {
            false => Ok(()),
            true if known.is_pending => Err(Stop::Hold),
            true if is_known => Err(Stop::Known(version)),
            true if is_other_chain => Err(Refused::OtherChain { chain }.into()),
            true => Err(Refused::OtherVersion { version }.into()),
        }
    }

    /// A delete that nobody waits for, of the chunk as it is: what was changed meanwhile stays.
    pub fn delete_unasked(&mut self, chunk: ChunkId, version: u64) {
        let request = Request::Delete { chunk, version: Some(version) };
        self.change(Asked { to: None, class: Class::Copper, request });
    }

    /// Whether changes of a chunk are under way, or wait.
    #[must_use]
    pub fn is_changing(&self, chunk: ChunkId) -> bool {
        self.changes.pending(chunk).is_some() || self.held.has(chunk)
    }

    /// Says in the log that all before was durable, unless a record has said so since. With it the
    /// next opening tells damage of the last records from an unfinished group. It costs a flush: it
    /// is for moments in which nothing is to be done.
    pub fn seal(&mut self) {
        if self.changes.is_empty() && self.wants_seal() {
            let of = (None, Class::default(), ChunkId::default());
            self.changes.add(Member::new(of, Change::Seal, Terms::default()), None);
        }
    }

    /// Whether changes are durable of which no record says so.
    pub fn wants_seal(&self) -> bool {
        self.commits.wants_seal() && self.check_usable().is_ok()
    }

    pub(super) fn check_usable(&self) -> Result<(), Refused> {
        if self.map.is_lossy {
            return Err(Refused::Damaged);
        }
        self.health.failed.map_or(Ok(()), |failed| Err(Refused::Failed(failed)))
    }

    /// Whether a record finds room in the group that gathers.
    pub(super) fn check_group(&self, class: Class, record_bytes: usize) -> Result<(), Stop> {
        let gathered = self.changes.gathered(class);
        let full = gathered.record_bytes + record_bytes as u64 > self.commits.group_bytes_max();
        match full || gathered.members >= GROUP_MEMBERS_MAX {
            true => Err(Stop::Hold),
            false => Ok(()),
        }
    }

    /// Whether the map has room for so many more blocks.
    pub(super) fn check_blocks(&mut self, blocks: u64) -> Result<(), Stop> {
        match self.changes.promised().blocks + blocks <= self.map.blocks_free() {
            true => Ok(()),
            // Deletes may give some, under way or not done yet, and a sparse store may give its map
            // more room.
            false => {
                let may_grow = self.may_get_blocks();
                Err(self.no_room(may_grow || !self.changes.is_empty() || self.has_steps()))
            }
        }
    }

    /// Blocks that a write needs, as far as the map knows.
    pub(super) fn blocks_for(&self, known: &Known, first: u64, count: u64) -> u64 {
        match self.map.chunks.get(&known.chunk).filter(|_| !known.is_pending) {
            Some(found) => found.blocks_missing(first, count),
            None => blocks_of(first, count),
        }
    }

    /// The answer to a change for which there are no pages: where some may come, it waits.
    pub(super) fn no_pages(&mut self) -> Stop {
        let under_way = !self.changes.is_empty() || self.has_steps();
        self.no_room(under_way || self.space.may_get_pages())
    }

    /// The answer to a change for which there is no room: where some may come, it waits.
    fn no_room(&mut self, some_may_come: bool) -> Stop {
        if some_may_come {
            return Stop::Hold;
        }
        self.note_full();
        Refused::NoSpace.into()
    }

    /// Counts a change that failed for want of room.
    pub(super) fn note_full(&mut self) {
        self.health.counts.no_space += 1;
        self.space.fill();
    }

    /// The same of a write, if that is why it failed.
    pub(super) fn note_if_full(&mut self, failed: &ChangeError) {
        if matches!(failed, ChangeError::Refused(Refused::NoSpace)) {
            self.note_full();
        }
    }

    /// Whether so many slots are free that nothing under way will take.
    pub(super) fn check_slots(&self, wanted: u64) -> Result<(), Stop> {
        let left = self.followers.slots_free().saturating_sub(self.changes.promised().slots);
        match left >= wanted {
            true => Ok(()),
            false if !self.changes.is_empty() => Err(Stop::Hold),
            false => {
                let left_bytes = left * SLICE_BYTES as u64;
                Err(Refused::ResidentFull { left_bytes }.into())
            }
        }
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
            false => Err(self.no_pages()),
        }
    }

    pub(super) fn is_room_for(&self, byte_len: u64) -> bool {
        let under_way = self.changes.data_bytes() + self.early.bytes() + self.away.byte_len();
        self.space.has_room(under_way + byte_len)
    }
}

/// The number of who asks.
pub(super) fn asker(to: Option<Client>) -> usize {
    to.map_or(usize::MAX, |to| to.asker)
}

/// How many slots a change adds to a chunk that it makes reach to `end`.
pub(super) fn slots_wanted(head: Head, end: u64) -> u64 {
    if !head.has_slots {
        return 0;
    }
    slices_in(end.max(head.byte_len)) - slices_in(head.byte_len)
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
