//! The group commit: records and small writes in both copies of the log, data beside them, what
//! makes them last, and then all of it is there.

use towpath_disk::{DiskError, Op};

use super::change::{Change, Kind, Member};
use super::group::{Group, Next};
use super::io::Purpose;
use super::state::StoreCore;
use super::write::{page_at, write_failed};
use crate::store::error::{ChangeError, CommitStep, FlushFailed, Refused};
use crate::store::record::{Body, Frame};
use crate::store::results::Ticket;

/// Groups between two looks at the room that the file system has left: some milliseconds, in which
/// it loses little beside what writes leave alone.
const ROOM_LOOK_GROUPS: u64 = 64;

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// Makes a group of what gathers: of the changes that may join it. Where others are under way,
    /// only if it is full. Without room in the log it waits for a checkpoint.
    pub(super) fn close_group(&mut self) {
        let may_close = |core: &Self| {
            core.health.failed.is_none() && core.commits.may_close(core.changes.logged_pages())
        };
        while may_close(self) && self.close_one() {}
    }

    fn close_one(&mut self) -> bool {
        let rules = self.commits.join_rules();
        #[cfg(test)]
        let rules = rules.mistaken(self.bug);
        let joining = self.changes.joining(rules);
        if joining.members.is_empty() {
            return false;
        }
        if !self.commits.has_room(&joining) || self.map.saved_pages() >= super::SAVED_PAGES_MAX {
            self.checkpoints.want_another();
            return false;
        }
        if !self.away.has_room(joining.logged_pages) {
            return false;
        }
        // No bytes go anywhere but to the log.
        let is_logged = joining.kind != Some(Kind::Paged) && self.io.writes_durably();
        let group = self.commits.close(joining, &mut self.changes, is_logged);
        self.write_records(group);
        self.held.wake();
        true
    }

    fn write_records(&mut self, mut group: Group) {
        let generation = self.checkpoints.generation();
        let (bytes, logged) = self.commits.encode(&mut group, &self.changes, generation);
        let durable = self.io.durable_writes();
        #[cfg(test)]
        let durable = match self.bug {
            Some(super::tests::Bug::SkipFlush) => towpath_disk::DurableWrites::None,
            _ => durable,
        };
        match self.io.memory.frozen(bytes) {
            Ok(mut pieces) => {
                pieces.extend(logged);
                let ops = self.commits.writes(&self.layout, &group, &pieces, durable);
                let number = group.number();
                self.commits.push(group, ops.len());
                ops.into_iter().for_each(|op| self.io.submit(Purpose::Log { group: number }, op));
            }
            Err(error) => {
                self.commits.push(group, 0);
                self.fail_at(CommitStep::LogAppend, &error);
            }
        }
    }

    pub(super) fn on_log(&mut self, number: u64, op: &Op, outcome: Result<(), DiskError>) {
        if let Err(failed) = self.commits.on_log(&self.layout, number, op, outcome) {
            return self.fail(failed);
        }
        self.flush_when_written();
        self.apply_durable();
    }

    pub(super) fn on_data(&mut self, key: usize, op: Op, outcome: Result<(), DiskError>) {
        // Of a store that has failed nobody waits for it any more.
        let is_usable = self.health.failed.is_none();
        let Some(member) = self.changes.get_mut(key).filter(|_| is_usable) else { return };
        member.writes_left -= 1;
        if member.is_closed {
            self.commits.on_data();
        }
        match (op, outcome) {
            (Op::Write { at, from, .. }, Ok(())) => {
                member.on_written(self.layout.data_page_at(at), from);
            }
            (op, Err(error)) => {
                self.quarantine(&op, &error);
                let failed = write_failed(&error);
                self.note_if_full(&failed);
                self.member_failed(key, failed);
            }
            (_, Ok(())) => {}
        }
        self.flush_when_written();
    }

    /// A member does not happen: its record becomes void, and whoever said afterwards how long the
    /// chunk is may be wrong.
    pub(super) fn member_failed(&mut self, key: usize, error: ChangeError) {
        let Some(member) = self.changes.get_mut(key) else { return };
        if member.failed.is_some() {
            return;
        }
        member.failed = Some(error);
        if member.is_closed {
            self.commits.on_member_failed();
        }
        let chunk = member.chunk;
        let (head, keys) = (self.committed_head(chunk), self.changing());
        self.changes.reconsider(chunk, &keys, head, self.followers.has_residence());
    }

    /// The members of all groups, and those that gather, in the order of their effect.
    pub(super) fn changing(&self) -> Vec<usize> {
        self.commits.members().chain(self.changes.gathering().iter().copied()).collect()
    }

    /// Flushes a group that is written and needs a flush. If a member has failed, its records are
    /// written again first.
    fn flush_when_written(&mut self) {
        match self.commits.next() {
            Ok(None) => {}
            Ok(Some(Next::Rewrite(group))) => self.write_records(group),
            Ok(Some(Next::Flush(group))) => {
                #[cfg(test)]
                if self.bug == Some(super::tests::Bug::SkipFlush) {
                    return self.on_flush(group, Ok(()));
                }
                self.io.submit(Purpose::Flush { group }, Op::Flush);
            }
            Err(failed) => self.fail(failed),
        }
    }

    pub(super) fn on_flush(&mut self, number: u64, outcome: Result<(), DiskError>) {
        if let Err(error) = outcome {
            return self.fail_at(CommitStep::LogFlush, &error.source);
        }
        self.commits.on_flush(number);
        self.apply_durable();
    }

    /// Applies the groups that are durable, with all before them.
    fn apply_durable(&mut self) {
        while let Some(group) = self.commits.take_durable() {
            self.apply_group(&group);
        }
    }

    fn apply_group(&mut self, group: &Group) {
        let mut is_seal = true;
        for (key, sequence) in group.members().iter().zip(group.number()..) {
            let member = self.changes.remove(*key);
            debug_assert_eq!(member.version, sequence, "records follow each other");
            is_seal &= matches!(member.change, Change::Seal);
            self.space.took(member.data_bytes());
            let blocks_left = match member.failed {
                None => self.apply(&member),
                // Nothing names its pages.
                Some(_) => {
                    let pages = member.change.pages();
                    pages.into_iter().for_each(|extent| self.space.pages.release(extent));
                    0
                }
            };
            if let Some(to) = member.to {
                let reply = member.into_reply(Ok(Ticket(sequence)));
                self.answer_with(Some(to), reply, blocks_left);
            }
        }
        self.space.pages.committed();
        self.commits.on_applied(group, is_seal);
        self.health.counts.commits += 1;
        let is_due = self.health.counts.commits.is_multiple_of(ROOM_LOOK_GROUPS);
        if is_due || self.space.is_full() || !self.held.is_empty() {
            self.measure_room();
        }
        self.space.look();
        self.held.wake();
    }

    /// Applies the record of a change by the same code that replays it; gives how many blocks it
    /// leaves to be freed.
    fn apply(&mut self, member: &Member<W>) -> u64 {
        let record = member.record(Frame { sequence: member.version, ..Frame::default() }, 1);
        let blocks_left = self.map.blocks_left_by(&record);
        let (pages, away) = (&mut self.space.pages, &mut self.away);
        #[cfg(test)]
        let early = self.bug == Some(super::tests::Bug::ReuseTooEarly);
        let mut retire = |page| {
            #[cfg(test)]
            if early {
                return;
            }
            away.remove(page);
            pages.retire(page);
        };
        self.map.begin(&record, &mut retire).expect("staging checked that the record fits");
        if let Change::Write { extents, is_logged: true, .. } = &member.change {
            for (position, bytes) in &member.kept {
                self.away.insert(page_at(extents, *position), bytes.clone());
            }
        }
        self.followers.follow(&record, &self.map, member.kept_slices());
        let counts = &mut self.health.counts;
        match &record.body {
            Body::Create { .. } => counts.creates += 1,
            Body::Write(write) => {
                counts.writes += 1;
                counts.write_bytes += write.byte_len;
            }
            Body::Delete => counts.deletes += 1,
            _ => {}
        }
        blocks_left
    }

    /// Refuses all changes from now on. What is under way may be there after a restart, or not.
    pub(super) fn fail(&mut self, failed: FlushFailed) {
        if self.health.failed.is_some() {
            return;
        }
        tracing::error!(%failed, "the store has stopped taking changes");
        self.health.failed = Some(failed);
        self.checkpoints.give_up();
        let undecided = self.commits.give_up();
        let undecided = undecided.into_iter().map(|key| (key, Refused::Undecided(failed)));
        let refused = self.changes.give_up();
        let refused = refused.into_iter().map(|key| (key, Refused::Failed(failed)));
        for (key, refused) in undecided.chain(refused) {
            let member = Member { failed: None, ..self.changes.remove(key) };
            self.answer(member.to, member.into_reply(Err(refused.into())));
        }
        self.retry_held();
        debug_assert!(self.held.is_empty(), "a store that has failed refuses all");
    }

    /// Tries again what waits.
    pub(super) fn retry_held(&mut self) {
        for asked in self.held.take() {
            self.change(asked);
        }
    }

    /// What an error of the medium ends.
    pub(super) fn fail_at(&mut self, step: CommitStep, error: &std::io::Error) {
        self.fail(FlushFailed { step, kind: error.kind() });
    }
}
