//! The group commit: records and small writes in both copies of the log, data beside them, what
//! makes them last, and then all of it is there.

use towpath_disk::{DiskError, DurableWrites, Op};

use super::group::{Change, Group, Head, Member};
use super::io::Purpose;
use super::join::{Joining, LOGGED_PAGES_MAX};
use super::layout::LOG_COPIES;
use super::log::writes;
use super::page::PAGE_BYTES;
use super::read::stored_crc;
use super::state::StoreCore;
use super::superblock::LogPoint;
use super::write::write_failed;
use crate::store::error::{ChangeError, CommitStep, FlushFailed, Refused};
use crate::store::place::slices_in;
use crate::store::record::{Body, Frame, Op as RecordOp, Record, parse_record};
use crate::store::request::NewChunk;
use crate::store::residence::SlicePlace;
use crate::store::slice::{ChunkId, SLICE_BYTES, hole_crc};
use towpath_memory::Frozen;

/// Groups between two looks at the room that the file system has left: some milliseconds, in which
/// it loses little beside what writes leave alone.
const ROOM_LOOK_GROUPS: u64 = 64;

/// Groups that are under way together: while one becomes durable, the next ones are written.
const CLOSED_MAX: usize = 4;

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Makes a group of what gathers: of the changes that may [join](Self::joining) it. Where
    /// others are under way, only if it is full. Without room in the log it waits for a checkpoint.
    pub(super) fn close_group(&mut self) {
        while self.may_close() && self.close_one() {}
    }

    fn may_close(&self) -> bool {
        let Some(last) = self.closed.back() else { return self.failed.is_none() };
        let is_full = self.gathering.logged_pages >= LOGGED_PAGES_MAX;
        self.failed.is_none() && is_full && last.is_settled() && self.closed.len() < CLOSED_MAX
    }

    fn close_one(&mut self) -> bool {
        let Joining { members, is_logged, passed_over } = self.joining();
        if members.is_empty() {
            return false;
        }
        let record_bytes: usize = members.iter().map(|key| self.members[*key].record_bytes).sum();
        let logged: usize = members.iter().map(|key| self.members[*key].logged_pages()).sum();
        let pages = record_bytes.div_ceil(PAGE_BYTES) + logged;
        if !self.log.has_room(pages as u64) || self.map.saved_pages() >= super::SAVED_PAGES_MAX {
            self.wants_checkpoint |= self.checkpoint.is_none();
            return false;
        }
        if !self.away.has_room(logged) {
            return false;
        }
        let mut data_left = 0;
        for (key, version) in members.iter().zip(self.log.end.sequence..) {
            let member = &mut self.members[*key];
            (member.is_closed, member.version) = (true, version);
            data_left += member.writes_left;
        }
        let gathered = std::mem::take(&mut self.gathering).members;
        for key in gathered.into_iter().filter(|key| !self.members[*key].is_closed) {
            self.gathering.add(key, &self.members[key]);
        }
        self.gathering.passed_over = passed_over;
        let start = self.log.end;
        self.write_records(Group { members, start, is_logged, data_left, ..Group::default() });
        self.may_retry |= !self.held.is_empty();
        true
    }

    /// Makes the records of a group, and gives what is to be written behind them.
    fn encode(&self, group: &mut Group) -> Vec<Frozen> {
        group.bytes.clear();
        let LogPoint { page, mut sequence, mut crc } = group.start;
        let record_bytes: usize =
            group.members.iter().map(|key| self.members[*key].record_bytes).sum();
        let record_pages = record_bytes.div_ceil(PAGE_BYTES);
        let mut logged = Vec::new();
        for key in &group.members {
            let member = &self.members[*key];
            let from_record = record_pages + logged.len() - group.bytes.len() / PAGE_BYTES;
            let op = match member.failed {
                Some(_) => RecordOp::Void { record_bytes: member.record_bytes },
                None => {
                    logged.extend(member.change.logged().iter().flatten().cloned());
                    member.change.op(from_record as u32)
                }
            };
            let frame = Frame {
                sequence,
                durable_sequence: self.log.durable_sequence(),
                generation: self.published.superblock.generation,
                previous_crc: crc,
            };
            let stamp = if member.failed.is_some() { 0 } else { member.terms.stamp };
            crc = op.encode(self.key, frame, (member.chunk, stamp), &mut group.bytes);
            sequence += 1;
        }
        group.bytes.resize(record_pages * PAGE_BYTES, 0);
        let page = page + (record_pages + logged.len()) as u64;
        group.end = LogPoint { page, sequence, crc };
        logged
    }

    fn write_records(&mut self, mut group: Group) {
        let logged = self.encode(&mut group);
        self.log.end = group.end;
        let durable_from = self.durable_from(&group);
        let records = self.memory.frozen(&group.bytes);
        let ops = records.map(|mut pieces| {
            pieces.extend(logged);
            let at = (&self.layout, &self.log.ring);
            writes(at, group.start.page, &pieces, durable_from)
        });
        match ops {
            Ok(ops) => {
                group.log_left = ops.len();
                let group_number = group.number();
                self.closed.push_back(group);
                let purpose = || Purpose::Log { group: group_number };
                ops.into_iter().for_each(|op| self.io.submit(purpose(), op));
            }
            Err(error) => {
                self.closed.push_back(group);
                self.fail(CommitStep::LogAppend, error.kind());
            }
        }
    }

    /// The first copy of the log whose writes are durable, of those of a group. Where the last one
    /// flushes the whole device, the other one lasts with the next group at the latest: one copy is
    /// enough.
    fn durable_from(&self, group: &Group) -> u64 {
        #[cfg(test)]
        if self.bug == Some(super::tests::Bug::SkipFlush) {
            return LOG_COPIES;
        }
        match self.io.durable_writes() {
            DurableWrites::Own if group.is_logged => 0,
            DurableWrites::AndAllBefore if group.is_logged => LOG_COPIES - 1,
            _ => LOG_COPIES,
        }
    }

    /// Records are in one copy of the log, or could not be written there. One copy is enough.
    pub(super) fn on_log(&mut self, number: u64, op: &Op, outcome: Result<(), DiskError>) {
        let group = self.closed.iter_mut().find(|group| group.number() == number);
        let Some(group) = group else { return };
        group.log_left -= 1;
        if let Err(error) = outcome {
            if error.is_final() {
                return self.fail(CommitStep::LogFlush, error.source.kind());
            }
            let page = self.layout.slot_of(op.at());
            // Records that were written anew may still stand in that copy as they were before.
            if group.is_rewritten || group.bad_pages.contains(&page) {
                return self.fail(CommitStep::LogAppend, error.source.kind());
            }
            group.bad_pages.push(page);
            // The other copy may not last.
            group.is_logged &= !op.is_durable_write();
            tracing::error!(%error, "a copy of the log cannot be written: the other one has to do");
        }
        group.is_durable = group.is_logged && group.log_left == 0;
        self.flush_when_written();
        self.apply_durable();
    }

    pub(super) fn on_data(&mut self, key: usize, op: Op, outcome: Result<(), DiskError>) {
        // Of a store that has failed nobody waits for it any more.
        let Some(member) = self.members.get_mut(key).filter(|_| self.failed.is_none()) else {
            return;
        };
        member.writes_left -= 1;
        if member.is_closed
            && let Some(group) = self.closed.back_mut()
        {
            group.data_left -= 1;
        }
        match outcome {
            Ok(()) => self.keep(key, op),
            Err(error) => {
                self.quarantine(&op, &error);
                let failed = write_failed(&error);
                self.note_full(&failed);
                self.member_failed(key, failed);
            }
        }
        self.flush_when_written();
    }

    /// Keeps what was written where memory of resident chunks takes it.
    fn keep(&mut self, key: usize, op: Op) {
        let Op::Write { at, from, .. } = op else { return };
        let Some(member) = self.members.get_mut(key) else { return };
        let Some(kept) = &mut member.kept else { return };
        let first = (at.0 + 1 - self.layout.data_page(1).0) as u32;
        let Some(mut position) = member.change.position_of(first) else { return };
        for pages in from {
            let count = pages.count() as usize;
            kept.push((position, pages));
            position += count;
        }
    }

    /// A member does not happen: its record becomes void, and whoever said afterwards how long the
    /// chunk is may be wrong.
    pub(super) fn member_failed(&mut self, key: usize, failure: ChangeError) {
        let Some(member) = self.members.get_mut(key) else { return };
        let (chunk, is_first) = (member.chunk, member.failed.is_none());
        if is_first {
            member.failed = Some(failure);
            self.reconsider(chunk);
        }
        let is_stale = is_first && self.members.get(key).is_some_and(|member| member.is_closed);
        if let Some(group) = self.closed.back_mut().filter(|_| is_stale) {
            group.is_stale = true;
        }
    }

    /// Follows the changes of a chunk that are under way anew: those that cannot happen any more
    /// fail as well.
    fn reconsider(&mut self, chunk: ChunkId) {
        let mut head = self.committed_head(chunk);
        let closed = self.closed.iter().flat_map(|group| group.members.iter());
        let keys: Vec<_> = closed.chain(&self.gathering.members).copied().collect();
        for key in keys {
            let is_resident = self.residence.is_some();
            let member = &mut self.members[key];
            if member.chunk != chunk || member.failed.is_some() {
                continue;
            }
            let Head { byte_len, version, .. } = head.unwrap_or_default();
            if member.terms.version.is_some_and(|expected| expected != version) {
                member.failed = Some(Refused::OtherVersion { version }.into());
                continue;
            }
            if matches!(member.change, Change::Finish { byte_len: wanted } if wanted != byte_len) {
                member.failed = Some(ChangeError::WrongLength { byte_len });
                continue;
            }
            head = match member.change {
                Change::Create { limit_bytes, kind: NewChunk { resident, chain, .. } } => {
                    let has_slots = resident && is_resident;
                    Some(Head { limit_bytes, has_slots, chain, ..Head::default() })
                }
                Change::Chain { chain } => head.map(|head| Head { chain, ..head }),
                Change::Delete => None,
                _ => {
                    let byte_len = member.change.byte_len(byte_len);
                    head.map(|head| Head { byte_len, ..head })
                }
            };
            let (version, stamp) = (member.version, member.terms.stamp);
            head = head.map(|head| Head { version, stamp, ..head });
        }
        if let Some(pending) = self.pending.get_mut(&chunk) {
            pending.head = head;
        }
    }

    /// Flushes a group once all of it is written, where it needs a flush; where a member has
    /// failed, the records are written again first.
    fn flush_when_written(&mut self) {
        let is_written =
            |group: &&mut Group| group.log_left == 0 && group.data_left == 0 && !group.is_settled();
        let Some(group) = self.closed.iter_mut().find(is_written) else { return };
        // Nothing comes behind a group that may be stale.
        if group.is_stale {
            let Some(mut group) = self.closed.pop_back() else { return };
            (group.is_stale, group.is_rewritten) = (false, true);
            if !group.bad_pages.is_empty() {
                self.closed.push_back(group);
                return self.fail(CommitStep::LogAppend, std::io::ErrorKind::Other);
            }
            return self.write_records(group);
        }
        group.is_flushing = true;
        let number = group.number();
        #[cfg(test)]
        if self.bug == Some(super::tests::Bug::SkipFlush) {
            return self.on_flush(number, Ok(()));
        }
        self.io.submit(Purpose::Flush { group: number }, Op::Flush);
    }

    pub(super) fn on_flush(&mut self, number: u64, outcome: Result<(), DiskError>) {
        if let Err(error) = outcome {
            return self.fail(CommitStep::LogFlush, error.source.kind());
        }
        let group = self.closed.iter_mut().find(|group| group.number() == number);
        group.into_iter().for_each(|group| group.is_durable = true);
        self.apply_durable();
    }

    /// Applies the groups that are durable, with all before them.
    fn apply_durable(&mut self) {
        while let Some(group) = self.closed.pop_front_if(|group| group.is_durable) {
            self.apply_group(&group);
        }
    }

    /// Applies the records of a durable group by the same code that replays them.
    fn apply_group(&mut self, group: &Group) {
        let (mut at, mut is_seal) = (0, true);
        for key in &group.members {
            let member = self.members.remove(*key);
            is_seal &= matches!(member.change, Change::Seal);
            let (record, len) =
                parse_record(&group.bytes[at..], self.key).expect("it was encoded here");
            at += len;
            // As much as it may have taken, until the next look.
            self.room_bytes = self.room_bytes.saturating_sub(member.data_bytes());
            self.forget_member(&member);
            let blocks_left = match &member.failed {
                None => {
                    let blocks_left = self.map.blocks_left_by(&record);
                    self.apply(&record, &member);
                    blocks_left
                }
                // Nothing names its pages.
                Some(_) => {
                    let pages = member.change.pages();
                    pages.into_iter().for_each(|extent| self.space.release(extent));
                    0
                }
            };
            if let Some(to) = member.to {
                debug_assert_eq!(record.frame.sequence, member.version);
                let ticket = Self::ticket(record.frame.sequence);
                self.answer_with(Some(to), member.into_reply(Ok(ticket)), blocks_left);
            }
        }
        let sealed = self.log.durable_sequence();
        self.space.committed();
        self.log.applied = group.end;
        self.sealed = if is_seal { self.log.durable_sequence() } else { sealed };
        self.counts.commits += 1;
        let is_due = self.counts.commits.is_multiple_of(ROOM_LOOK_GROUPS);
        if is_due || self.is_full || !self.held.is_empty() {
            self.measure_room();
        }
        self.look_for_room();
        self.may_retry |= !self.held.is_empty();
    }

    fn apply(&mut self, record: &Record<'_>, member: &Member<W>) {
        let (space, away) = (&mut self.space, &mut self.away);
        #[cfg(test)]
        let early = self.bug == Some(super::tests::Bug::ReuseTooEarly);
        let mut retire = |page| {
            #[cfg(test)]
            if early {
                return;
            }
            away.remove(page);
            space.retire(page);
        };
        self.map.begin(record, &mut retire).expect("staging checked that the record fits");
        if let Body::Write(write) = &record.body {
            let logged = write.slices().zip(member.change.logged());
            for ((page, _), bytes) in logged {
                bytes.iter().for_each(|bytes| self.away.insert(page, bytes.clone()));
            }
        }
        self.follow(record, member);
        match &record.body {
            Body::Create { .. } => {
                self.counts.creates += 1;
                self.watch.iter_mut().for_each(|watch| watch.created(record.chunk));
            }
            Body::Write(write) => {
                self.counts.writes += 1;
                self.counts.write_bytes += write.byte_len;
            }
            Body::Delete => {
                self.counts.deletes += 1;
                self.watch.iter_mut().for_each(|watch| watch.deleted(record.chunk));
            }
            Body::Chain { .. } | Body::Clear(_) | Body::Finish | Body::Seal | Body::Void => {}
        }
    }

    /// Does to the memory of resident chunks what a record did.
    fn follow(&mut self, record: &Record<'_>, member: &Member<W>) {
        let (id, version) = (record.chunk, record.frame.sequence);
        let chunk = self.map.chunks.get(&id);
        let Some(residence) = &mut self.residence else { return };
        match (&record.body, chunk) {
            (Body::Create { kind: NewChunk { resident: true, .. }, .. }, _) => residence.place(id),
            (Body::Write(_) | Body::Clear(_), Some(chunk)) if residence.holds(id) => {
                let slices = slices_in(chunk.head.byte_len);
                residence.shrink(id, slices);
                if !residence.grow(id, slices, version) {
                    // Staging has seen to it. What is not in memory is served from the disk.
                    tracing::error!(chunk = %id, "a resident chunk has lost its place in memory");
                    residence.remove(id);
                    return;
                }
                if let Body::Clear(clear) = &record.body {
                    for slice in clear.first..slices.min(clear.first + clear.count) {
                        let zeros = (hole_crc(id, slice), &[0; SLICE_BYTES][..]);
                        residence.put(SlicePlace { chunk: id, slice }, version, Some(zeros));
                    }
                }
                for (slice, bytes) in member.logged_slices() {
                    let place = SlicePlace { chunk: id, slice };
                    let crc = stored_crc(id, slice, chunk.slice(slice));
                    residence.put(place, version, Some((crc, bytes)));
                }
                for (first, pages) in member.kept.iter().flatten() {
                    for (at, bytes) in pages.chunks_exact(SLICE_BYTES).enumerate() {
                        let Some(slice) = member.change.slice(first + at) else { continue };
                        let place = SlicePlace { chunk: id, slice };
                        let crc = stored_crc(id, slice, chunk.slice(slice));
                        residence.put(place, version, Some((crc, bytes)));
                    }
                }
            }
            (Body::Delete, _) => residence.remove(id),
            _ => {}
        }
    }

    pub(super) fn measure_room(&mut self) {
        if self.is_sparse {
            // What does not tell has no more, as far as anybody can rely on it.
            self.room_bytes = self.io.disk().free_bytes().unwrap_or(0);
        }
    }

    /// Refuses all changes from now on. What is under way may be there after a restart, or not.
    pub(super) fn fail(&mut self, step: CommitStep, kind: std::io::ErrorKind) {
        if self.failed.is_some() {
            return;
        }
        let failed = FlushFailed { step, kind };
        tracing::error!(%failed, "the store has stopped taking changes");
        self.failed = Some(failed);
        self.checkpoint = None;
        let closed = std::mem::take(&mut self.closed);
        let gathered = std::mem::take(&mut self.gathering).members;
        let undecided = closed
            .into_iter()
            .flat_map(|group| group.members)
            .map(|key| (key, Refused::Undecided(failed)));
        let refused = gathered.into_iter().map(|key| (key, Refused::Failed(failed)));
        for (key, refused) in undecided.chain(refused) {
            let mut member = self.members.remove(key);
            self.forget_member(&member);
            member.failed = None;
            let to = member.to;
            self.answer(to, member.into_reply(Err(refused)));
        }
        self.refuse_held();
    }
}
