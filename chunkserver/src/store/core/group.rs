//! The groups in which changes become durable, and the log that has their records.

use std::collections::VecDeque;
use std::io::ErrorKind;

use towpath_disk::{DiskError, DurableWrites, Op};
use towpath_memory::Frozen;

use super::changes::Changes;
use super::join::{JoinRules, Joining, LOGGED_PAGES_MAX};
use super::layout::{LOG_COPIES, Layout};
use super::log::Log;
use super::log_room::LogRoom;
use super::page::PAGE_BYTES;
use super::superblock::LogPoint;
use crate::store::error::{CommitStep, FlushFailed};
use crate::store::record::{Frame, LogKey};

/// Groups that are under way together: while one becomes durable, the next ones are written.
const CLOSED_MAX: usize = 4;

/// A group that is closed, and not applied.
#[derive(Debug, Default)]
pub(super) struct Group {
    members: Vec<usize>,
    start: LogPoint,
    end: LogPoint,
    /// All that is to last stands in the log, whose writes are durable: it takes no flush.
    is_logged: bool,
    is_durable: bool,
    /// Writes of records under way.
    log_left: usize,
    /// Writes of data under way.
    data_left: usize,
    /// Some member has failed since the records were written.
    is_stale: bool,
    /// The records were written anew since a member has failed.
    is_rewritten: bool,
    /// Pages of the ring from which on one copy could not be written.
    bad_pages: Vec<u64>,
    is_flushing: bool,
}

impl Group {
    /// The number by which its operations name it: that of its first record.
    pub(super) fn number(&self) -> u64 {
        self.start.sequence
    }

    /// Its members, in the order of their records.
    pub(super) fn members(&self) -> &[usize] {
        &self.members
    }

    /// Whether nothing can change what its records say any more.
    fn is_settled(&self) -> bool {
        self.is_logged || self.is_flushing || self.is_durable
    }
}

/// What is to be done for a group that is written.
pub(super) enum Next {
    /// A flush makes the group of that number last.
    Flush(u64),
    /// A member has failed: the records are written again.
    Rewrite(Group),
}

/// The log, and the groups on their way to it.
pub(super) struct Commits {
    key: LogKey,
    pub(super) log: Log,
    /// Room of the log.
    pub(super) room: LogRoom,
    /// Groups that are closed and not applied, in the order of their records.
    closed: VecDeque<Group>,
    /// The last record of which a seal says that it was durable.
    sealed: u64,
    /// The records of the group that was encoded last, in whole pages.
    bytes: Vec<u8>,
}

impl Commits {
    /// So many records are known to be durable by what the log says.
    pub(super) fn new(key: LogKey, log: Log, sealed: u64) -> Self {
        let (room, closed, bytes) = (LogRoom::default(), VecDeque::new(), Vec::new());
        Self { key, log, room, closed, sealed, bytes }
    }

    /// Whether changes are durable of which no record says so.
    pub(super) fn wants_seal(&self) -> bool {
        self.log.durable_sequence() > self.sealed
    }

    /// Bytes of records that a group may have.
    pub(super) fn group_bytes_max(&self) -> u64 {
        self.log.group_bytes_max()
    }

    /// The members of all groups, in the order of their effect.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> {
        self.closed.iter().flat_map(|group| &group.members).copied()
    }

    /// Whether a group may close when so many pages of slices gather for it: where others are under
    /// way, only if it is full.
    pub(super) fn may_close(&self, logged_pages: usize) -> bool {
        let Some(last) = self.closed.back() else { return true };
        let is_full = logged_pages >= LOGGED_PAGES_MAX;
        is_full && last.is_settled() && self.closed.len() < CLOSED_MAX
    }

    /// Whether the log has room for a group.
    pub(super) fn has_room(&self, joining: &Joining) -> bool {
        let record_pages = joining.record_bytes.div_ceil(PAGE_BYTES as u64);
        self.log.has_room(record_pages + joining.logged_pages as u64)
    }

    /// Makes a group, which takes its members from those that gather.
    pub(super) fn close<W>(
        &self,
        joining: Joining,
        changes: &mut Changes<W>,
        is_logged: bool,
    ) -> Group {
        let (members, start) = (joining.members, self.log.end);
        let data_left = changes.close(&members, start.sequence, joining.passed_over);
        Group { members, start, is_logged, data_left, ..Group::default() }
    }

    /// Makes the records of a group, and gives them with what is to be written behind them.
    pub(super) fn encode<W>(
        &mut self,
        group: &mut Group,
        changes: &Changes<W>,
        generation: u64,
    ) -> (&[u8], Vec<Frozen>) {
        self.bytes.clear();
        let LogPoint { page, mut sequence, mut crc } = group.start;
        let members = || group.members.iter().filter_map(|key| changes.get(*key));
        let record_bytes: usize = members().map(|member| member.record_bytes).sum();
        let record_pages = record_bytes.div_ceil(PAGE_BYTES);
        let mut logged = Vec::new();
        for member in members() {
            let data_page = record_pages + logged.len() - self.bytes.len() / PAGE_BYTES;
            let durable_sequence = self.log.durable_sequence();
            let frame = Frame { sequence, durable_sequence, generation, previous_crc: crc };
            crc = member.record(frame, data_page as u32).encode(self.key, &mut self.bytes);
            sequence += 1;
            if member.failed.is_none() && member.logged_pages() > 0 {
                logged.extend(member.kept.iter().map(|(_, bytes)| bytes.clone()));
            }
        }
        self.bytes.resize(record_pages * PAGE_BYTES, 0);
        let page = page + (record_pages + logged.len()) as u64;
        group.end = LogPoint { page, sequence, crc };
        self.log.end = group.end;
        (&self.bytes, logged)
    }

    /// The writes of pieces of whole pages, which are those of a group.
    pub(super) fn writes(
        &self,
        layout: &Layout,
        group: &Group,
        pieces: &[Frozen],
        durable: DurableWrites,
    ) -> Vec<Op> {
        // Where the last copy flushes the whole device, the other one lasts with the next group at
        // the latest: one copy is enough.
        let durable_from = match durable {
            DurableWrites::Own if group.is_logged => 0,
            DurableWrites::AndAllBefore if group.is_logged => LOG_COPIES - 1,
            _ => LOG_COPIES,
        };
        self.log.writes(layout, group.start.page, pieces, durable_from)
    }

    /// A group is on its way, with so many writes of its records.
    pub(super) fn push(&mut self, group: Group, log_left: usize) {
        self.closed.push_back(Group { log_left, ..group });
    }

    /// A write of data of a member of the last group has ended.
    pub(super) fn on_data(&mut self) {
        self.closed.back_mut().into_iter().for_each(|group| group.data_left -= 1);
    }

    /// A member of the last group has failed.
    pub(super) fn on_member_failed(&mut self) {
        self.closed.back_mut().into_iter().for_each(|group| group.is_stale = true);
    }

    /// Records are in one copy of the log, or could not be written there. One copy is enough.
    ///
    /// # Errors
    /// Both could not be written, or one that is not known to be as it was.
    pub(super) fn on_log(
        &mut self,
        layout: &Layout,
        number: u64,
        op: &Op,
        outcome: Result<(), DiskError>,
    ) -> Result<(), FlushFailed> {
        let group = self.closed.iter_mut().find(|group| group.number() == number);
        let Some(group) = group else { return Ok(()) };
        group.log_left -= 1;
        if let Err(error) = outcome {
            let kind = error.source.kind();
            if error.is_final() {
                return Err(FlushFailed { step: CommitStep::LogFlush, kind });
            }
            let page = layout.slot_of(op.at());
            // Records that were written anew may still stand in that copy as they were before.
            if group.is_rewritten || group.bad_pages.contains(&page) {
                return Err(FlushFailed { step: CommitStep::LogAppend, kind });
            }
            group.bad_pages.push(page);
            // The other copy may not last.
            group.is_logged &= !op.is_durable_write();
            tracing::error!(%error, "a copy of the log cannot be written: the other one has to do");
        }
        group.is_durable = group.is_logged && group.log_left == 0;
        Ok(())
    }

    /// What is to be done next for a group that is written and needs a flush.
    ///
    /// # Errors
    /// Its records are to be written again, and one copy of the log takes none.
    pub(super) fn next(&mut self) -> Result<Option<Next>, FlushFailed> {
        let is_written =
            |group: &&mut Group| group.log_left == 0 && group.data_left == 0 && !group.is_settled();
        let Some(group) = self.closed.iter_mut().find(is_written) else { return Ok(None) };
        if !group.is_stale {
            group.is_flushing = true;
            return Ok(Some(Next::Flush(group.number())));
        }
        if !group.bad_pages.is_empty() {
            return Err(FlushFailed { step: CommitStep::LogAppend, kind: ErrorKind::Other });
        }
        (group.is_stale, group.is_rewritten) = (false, true);
        // Nothing comes behind a group that may be stale.
        Ok(self.closed.pop_back().map(Next::Rewrite))
    }

    /// The flush of a group is done.
    pub(super) fn on_flush(&mut self, number: u64) {
        let group = self.closed.iter_mut().find(|group| group.number() == number);
        group.into_iter().for_each(|group| group.is_durable = true);
    }

    /// The next group that is durable, with all before it.
    pub(super) fn take_durable(&mut self) -> Option<Group> {
        self.closed.pop_front_if(|group| group.is_durable)
    }

    /// A group is applied, which had nothing but a seal, or something else.
    pub(super) fn on_applied(&mut self, group: &Group, is_seal: bool) {
        let sealed = self.log.durable_sequence();
        self.log.applied = group.end;
        self.sealed = if is_seal { self.log.durable_sequence() } else { sealed };
    }

    /// No group goes on; gives the members of all.
    pub(super) fn give_up(&mut self) -> Vec<usize> {
        let members = self.members().collect();
        self.closed.clear();
        members
    }

    /// How changes join the next group.
    pub(super) fn join_rules(&self) -> JoinRules {
        JoinRules { group_bytes_max: self.group_bytes_max(), ..JoinRules::default() }
    }
}
