//! What a store is asked, and what it answers.

use super::engine::{ChunkStat, Ticket};
use super::error::{
    CreateError, DeleteError, FinishError, FlushFailed, LocateError, ReadError, Refused, WriteError,
};
use super::limits::WORK_HERE_BYTES_MAX;
use super::read::ReadDone;
use super::residence::Located;
use super::scrub::ScrubReport;
use super::slice::ChunkId;
use super::stats::StoreStats;

/// What a [`StoreWorker`](super::StoreWorker) is asked; buffers come back with the answer, whatever
/// it is.
#[derive(Debug)]
pub enum Request<W, R = W> {
    /// Make a chunk.
    Create {
        /// Its name.
        chunk: ChunkId,
        /// The length that it may reach; none for the most a chunk can have.
        limit_bytes: Option<u64>,
        /// It is not whole before a finish.
        unfinished: bool,
        /// Its slices are kept in memory as well.
        resident: bool,
    },
    /// Say that a chunk is whole.
    Finish {
        /// Its name.
        chunk: ChunkId,
        /// Its length in bytes.
        byte_len: u64,
    },
    /// Take a chunk away.
    Delete {
        /// Its name.
        chunk: ChunkId,
    },
    /// List chunks as [`Store::list`](super::Store::list) does.
    List {
        /// The last name that the caller has.
        after: Option<ChunkId>,
        /// Most chunks wanted.
        count_max: usize,
    },
    /// Say where the slices of a chunk lie in memory, as
    /// [`Store::locate`](super::Store::locate) does.
    Locate {
        /// The chunk.
        chunk: ChunkId,
        /// The first slice that the caller wants to know of.
        first_slice: u64,
        /// Most runs wanted.
        runs_max: usize,
    },
    /// Read as [`Store::read`](super::Store::read) does.
    Read {
        /// The chunk.
        chunk: ChunkId,
        /// First byte.
        offset: u64,
        /// How many bytes, into the front of `buf`.
        byte_len: usize,
        /// Where the data goes.
        buf: R,
        /// Where the checksums go; cleared first.
        crcs: Vec<u32>,
    },
    /// Check slices as [`Store::scrub_step`](super::Store::scrub_step) does.
    Scrub {
        /// Most slices to check.
        budget_slices: u64,
    },
    /// The state of a chunk.
    Stat {
        /// The chunk.
        chunk: ChunkId,
    },
    /// The counters.
    Stats,
    /// Write as [`Write`](super::Write) says.
    Write {
        /// The chunk.
        chunk: ChunkId,
        /// First byte.
        offset: u64,
        /// The data, piece after piece.
        data: Vec<W>,
        /// One checksum per touched slice.
        crcs: Vec<u32>,
        /// See [`Write::verified`](super::Write::verified).
        verified: bool,
    },
}

/// The answer to a [`Request`].
#[derive(Debug)]
pub enum Reply<W, R = W> {
    /// To a create; success means durable.
    Create(Result<Ticket, CreateError>),
    /// To a delete; success means durable.
    Delete(Result<Ticket, DeleteError>),
    /// To a finish; success means durable.
    Finish(Result<Ticket, FinishError>),
    /// To a listing.
    List(Vec<ChunkStat>),
    /// To a locate.
    Locate(Result<Located, LocateError>),
    /// To a read.
    Read {
        /// How it went.
        result: Result<ReadDone, ReadError>,
        /// The caller's buffer.
        buf: R,
        /// The caller's list, filled.
        crcs: Vec<u32>,
    },
    /// To a scrub.
    Scrub(ScrubReport),
    /// To a stat.
    Stat(Option<ChunkStat>),
    /// To a question for the counters.
    Stats(StoreStats),
    /// To a write; success means durable.
    Write {
        /// How it went.
        result: Result<Ticket, WriteError>,
        /// The caller's buffers.
        data: Vec<W>,
        /// The caller's list.
        crcs: Vec<u32>,
    },
}

/// A reply and the token of its request.
#[derive(Debug)]
pub struct Completion<W, R = W> {
    /// The caller's own mark.
    pub token: u64,
    /// The answer.
    pub reply: Reply<W, R>,
}

impl<W, R> Reply<W, R> {
    pub(super) fn waits_for_commit(&self) -> bool {
        matches!(
            self,
            Self::Create(Ok(_))
                | Self::Delete(Ok(_))
                | Self::Finish(Ok(_))
                | Self::Write { result: Ok(_), .. }
        )
    }

    /// The commit of the change has failed.
    pub(super) fn spoil(&mut self, failed: FlushFailed) {
        let refused = Refused::Undecided(failed);
        match self {
            Self::Create(result) => *result = Err(refused.into()),
            Self::Delete(result) => *result = Err(refused.into()),
            Self::Finish(result) => *result = Err(refused.into()),
            Self::Write { result, .. } => *result = Err(refused.into()),
            _ => {}
        }
    }
}

impl<W: AsRef<[u8]>, R> Request<W, R> {
    /// It may take longer than a network thread should be away.
    pub(super) fn is_long(&self) -> bool {
        let byte_len = match self {
            Self::Read { byte_len, .. } => *byte_len as u64,
            Self::Write { data, .. } => data.iter().map(|piece| piece.as_ref().len() as u64).sum(),
            // They pass through all slices of a chunk, and through all chunks.
            Self::Delete { .. } | Self::Scrub { .. } => return true,
            Self::Create { .. }
            | Self::Finish { .. }
            | Self::List { .. }
            | Self::Locate { .. }
            | Self::Stat { .. }
            | Self::Stats => 0,
        };
        byte_len > WORK_HERE_BYTES_MAX
    }
}
