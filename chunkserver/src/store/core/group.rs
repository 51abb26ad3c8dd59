//! Changes on their way to the disk, and the groups in which they become durable.

use towpath_disk::WritePages;

use super::superblock::LogPoint;
use crate::store::error::{FinishError, Refused, WriteError};
use crate::store::record::{Extent, Op};
use crate::store::request::Reply;
use crate::store::results::Ticket;
use crate::store::slice::{ChunkId, Span};
use towpath_memory::Buf;

/// Who asked, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The number of who asked.
    pub asker: usize,
    /// The mark of the request.
    pub token: u64,
}

/// State of a chunk as the changes under way will leave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) byte_len: u64,
    pub(super) limit_bytes: u64,
    /// Its slices take slots in memory.
    pub(super) has_slots: bool,
}

/// A chunk that changes are under way for.
#[derive(Debug)]
pub(super) struct Pending {
    /// None where they delete it.
    pub(super) head: Option<Head>,
    /// How many they are.
    pub(super) count: usize,
}

/// What a member does.
#[derive(Debug)]
pub(super) enum Change {
    Create { limit_bytes: u64, unfinished: bool, resident: bool },
    Finish { byte_len: u64 },
    Delete,
    Write { offset: u64, byte_len: u64, extents: Vec<Extent>, crcs: Vec<u32> },
    Seal,
}

impl Change {
    pub(super) fn op(&self) -> Op<'_> {
        match self {
            &Self::Create { limit_bytes, unfinished, resident } => {
                Op::Create { limit_bytes, unfinished, resident }
            }
            Self::Finish { .. } => Op::Finish,
            Self::Delete => Op::Delete,
            Self::Write { offset, byte_len, extents, crcs } => {
                Op::Write { offset: *offset, byte_len: *byte_len, extents, crcs }
            }
            Self::Seal => Op::Seal,
        }
    }

    /// The slices that it writes.
    pub(super) fn span(&self) -> Option<Span> {
        match self {
            Self::Write { offset, byte_len, .. } => Some(Span::new(*offset, *byte_len)),
            _ => None,
        }
    }
}

/// Why a member of a group does not happen after all.
#[derive(Debug)]
pub(super) enum Failure {
    Write(WriteError),
    Finish(FinishError),
}

/// One change on its way.
#[derive(Debug)]
pub(super) struct Member<W> {
    /// None where nobody waits for it.
    pub(super) to: Option<Client>,
    pub(super) chunk: ChunkId,
    pub(super) change: Change,
    pub(super) record_bytes: usize,
    /// Writes of data under way.
    pub(super) writes_left: usize,
    /// Slices that are still to be merged with what they held.
    pub(super) merges_left: usize,
    /// The caller's buffers.
    pub(super) data: Vec<W>,
    pub(super) failed: Option<Failure>,
    /// Its slices are kept for the memory of resident chunks: the position of the first of them,
    /// and their bytes. None where they are not wanted.
    pub(super) kept: Option<Vec<(usize, WritePages)>>,
    /// Slots and blocks that it will take.
    pub(super) slots: u64,
    pub(super) blocks: u64,
    /// It is in the group under way.
    pub(super) is_closed: bool,
}

impl<W> Member<W> {
    /// The answer once its fate is known.
    pub(super) fn into_reply(self, outcome: Result<Ticket, Refused>) -> Reply<W, Buf> {
        match (self.change, self.failed) {
            (Change::Create { .. }, _) => Reply::Create(outcome.map_err(Into::into)),
            (Change::Finish { .. }, Some(Failure::Finish(error))) => Reply::Finish(Err(error)),
            (Change::Finish { .. }, _) => Reply::Finish(outcome.map_err(Into::into)),
            (Change::Write { crcs, .. }, Some(Failure::Write(error))) => {
                Reply::Write { result: Err(error), data: self.data, crcs }
            }
            (Change::Write { crcs, .. }, _) => {
                Reply::Write { result: outcome.map_err(Into::into), data: self.data, crcs }
            }
            (Change::Delete | Change::Seal, _) => Reply::Delete(outcome.map_err(Into::into)),
        }
    }
}

/// Changes that no group under way has.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// In the order of their effect.
    pub(super) members: Vec<usize>,
    pub(super) record_bytes: u64,
    pub(super) data_bytes: u64,
}

/// The group under way.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) members: Vec<usize>,
    /// Its records, in whole pages.
    pub(super) bytes: Vec<u8>,
    pub(super) start: LogPoint,
    /// Writes of records under way.
    pub(super) log_left: usize,
    /// Writes of data under way.
    pub(super) data_left: usize,
    /// Some member has failed since the records were written.
    pub(super) is_stale: bool,
    pub(super) is_flushing: bool,
}
