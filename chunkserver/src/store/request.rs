//! What a store is asked, and what it answers.

use super::error::{ChangeError, LookError, ReadError};
use super::residence::Located;
use super::results::{ChunkStat, ReadDone, ScrubReport, Ticket};
use super::slice::ChunkId;
use super::stats::StoreStats;
pub use towpath_fastpath::change::{Clear, NewChunk, Terms};
use towpath_fastpath::digest::{DigestReply, SliceRange};

/// What a store is asked; buffers come back with the answer, whatever it is.
#[derive(Debug)]
pub enum Request<W, R = W> {
    /// Make a chunk.
    Create {
        /// Its name.
        chunk: ChunkId,
        /// The length that it may reach; none for the most a chunk can have.
        limit_bytes: Option<u64>,
        /// Of which kind.
        kind: NewChunk,
        /// See [`Terms::stamp`].
        stamp: u64,
    },
    /// Raise the chain version of a chunk: changes that name a lower one are refused from then on.
    Chain {
        /// Its name.
        chunk: ChunkId,
        /// The chain version that it gets. A chunk that has it already stays as it is.
        chain: u32,
        /// The version that it must have; none where it may have any.
        version: Option<u64>,
        /// See [`Terms::stamp`].
        stamp: u64,
    },
    /// Say that a chunk is whole.
    Finish {
        /// Its name.
        chunk: ChunkId,
        /// Its length in bytes.
        byte_len: u64,
        /// On what terms.
        terms: Terms,
    },
    /// Take bytes of a chunk away.
    Clear {
        /// Its name.
        chunk: ChunkId,
        /// Which bytes, and what becomes of them.
        clear: Clear,
        /// On what terms.
        terms: Terms,
    },
    /// Take a chunk away. Nothing is left to keep a stamp.
    Delete {
        /// Its name.
        chunk: ChunkId,
        /// The version that it must have; none where it may have any.
        version: Option<u64>,
    },
    /// Tell the checksums of the slices of a range, as far as the chunk has them, without reading
    /// any.
    Digest {
        /// The chunk.
        chunk: ChunkId,
        /// Which of its slices.
        range: SliceRange,
    },
    /// List chunks in the order of their names, the first one after `after`.
    List {
        /// The last name that the caller has.
        after: Option<ChunkId>,
        /// Most chunks wanted; never more than [`LIST_MAX`](super::limits::LIST_MAX) come.
        count_max: usize,
    },
    /// Say where the slices of a chunk lie in memory.
    Locate {
        /// The chunk.
        chunk: ChunkId,
        /// The first slice that the caller wants to know of.
        first_slice: u64,
        /// Most runs wanted.
        runs_max: usize,
    },
    /// Say whether a write would be made now, for one that is made only when others have made it: a
    /// later one can still fail by the medium, or for want of room that others took.
    MayWrite {
        /// The chunk.
        chunk: ChunkId,
        /// First byte.
        offset: u64,
        /// How many bytes.
        byte_len: u64,
        /// On what terms.
        terms: Terms,
    },
    /// Read bytes, with one checksum for each slice that is touched: the stored one of a slice that
    /// is read whole or up to the end of the chunk, and of other edges that of the part
    /// ([`fragment_crc`](super::fragment_crc)), made once the whole slice was checked.
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
    /// Check the next slices in the order of chunks. Chunks that are made or deleted between two
    /// such requests are met or missed according to their name; nothing else is passed over.
    Scrub {
        /// Most slices to check.
        budget_slices: u64,
        /// The chunk and slice to begin with, for who keeps the place; none: where the last such
        /// request ended.
        from: Option<(ChunkId, u64)>,
    },
    /// Have whole slices on the disk before the write is asked for that they are of, while the
    /// rest of its data still comes. A store that has no room for them now does not take them, and
    /// keeps some of its room from each owner for others.
    Stage {
        /// What the caller calls the write.
        stage: u64,
        /// Whom the caller asks for, as it calls them.
        owner: usize,
        /// The chunk.
        chunk: ChunkId,
        /// The first of the slices.
        first_slice: u64,
        /// Their data, piece after piece, which the caller has checked.
        data: Vec<W>,
    },
    /// The state of a chunk.
    Stat {
        /// The chunk.
        chunk: ChunkId,
    },
    /// The counters.
    Stats,
    /// Forget what was staged for a write, which will not be asked for.
    Unstage {
        /// What the caller called it.
        stage: u64,
        /// The disk that was asked to take it, where there are several.
        disk: usize,
    },
    /// Write bytes.
    Write {
        /// The chunk.
        chunk: ChunkId,
        /// First byte.
        offset: u64,
        /// The data, piece after piece, but for slices that are staged.
        data: Vec<W>,
        /// One checksum per touched slice, as [`writer_crcs`](super::writer_crcs) makes them.
        crcs: Vec<u32>,
        /// What the caller calls the write, where slices of it are staged. They are the write's
        /// from now on, however it ends.
        staged: Option<u64>,
        /// The caller has checked the data of whole slices against `crcs` already. Fragments at the
        /// edges are checked by the store in any case, after they were copied.
        verified: bool,
        /// On what terms.
        terms: Terms,
    },
}

/// The answer to a [`Request`].
#[derive(Debug)]
pub enum Reply<W, R = W> {
    /// To a create, a raise of the chain version, a finish, a clear or a delete; success means
    /// durable.
    Change(Result<Ticket, ChangeError>),
    /// To a digest.
    Digest(Result<DigestReply, LookError>),
    /// To a listing.
    List(Vec<ChunkStat>),
    /// To a locate.
    Locate(Result<Located, LookError>),
    /// To a question whether a write would be made.
    MayWrite(Result<(), ChangeError>),
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
    /// To a stage.
    Stage {
        /// Whether they were taken. Whether they got to the disk tells the answer to the write.
        is_staged: bool,
        /// The caller's buffers.
        data: Vec<W>,
    },
    /// To a stat.
    Stat(Option<ChunkStat>),
    /// To a question for the counters.
    Stats(Box<StoreStats>),
    /// To an unstage.
    Unstage,
    /// To a write; success means durable.
    Write {
        /// How it went.
        result: Result<Ticket, ChangeError>,
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
    /// How long the flush took that made the change durable; zero where none was needed.
    pub flush_ns: u64,
    /// Blocks of 64 slices beside each other that a delete or a clear takes slices of: they are
    /// freed after the answer.
    pub blocks_left: u64,
}

impl<W, R> Completion<W, R> {
    /// An answer that no change has to wait for.
    pub(crate) fn at_once(token: u64, reply: Reply<W, R>) -> Self {
        Self { token, reply, flush_ns: 0, blocks_left: 0 }
    }
}

impl<W, R> Reply<W, R> {
    /// Whether it says that a change is durable.
    pub(super) fn is_change(&self) -> bool {
        matches!(self, Self::Change(Ok(_)) | Self::Write { result: Ok(_), .. })
    }
}

impl<W, R> Request<W, R> {
    /// Whether it is a change, or belongs to one: those of one who asks stay in order, and may wait
    /// for others.
    #[must_use]
    pub fn may_be_held(&self) -> bool {
        match self {
            Self::Chain { .. }
            | Self::Clear { .. }
            | Self::Create { .. }
            | Self::Delete { .. }
            | Self::Finish { .. }
            | Self::MayWrite { .. }
            | Self::Stage { .. }
            | Self::Unstage { .. }
            | Self::Write { .. } => true,
            Self::Digest { .. }
            | Self::List { .. }
            | Self::Locate { .. }
            | Self::Read { .. }
            | Self::Scrub { .. }
            | Self::Stat { .. }
            | Self::Stats => false,
        }
    }
}

impl<W, R> Request<W, R> {
    /// The chunk that it changes; none's name where it is no change.
    pub(super) fn chunk(&self) -> ChunkId {
        match self {
            Self::Create { chunk, .. }
            | Self::Chain { chunk, .. }
            | Self::Finish { chunk, .. }
            | Self::Clear { chunk, .. }
            | Self::Delete { chunk, .. }
            | Self::Write { chunk, .. } => *chunk,
            _ => ChunkId::default(),
        }
    }

    /// The answer to a change, with the buffers.
    pub(super) fn into_reply(self, result: Result<Ticket, ChangeError>) -> Reply<W, R> {
        match self {
            Self::Write { data, crcs, .. } => Reply::Write { result, data, crcs },
            _ => Reply::Change(result),
        }
    }
}

impl<W: AsRef<[u8]>, R> Request<W, R> {
    /// Bytes of data that come with it.
    pub(super) fn byte_len(&self) -> u64 {
        match self {
            Self::Write { data, .. } | Self::Stage { data, .. } => {
                data.iter().map(|piece| piece.as_ref().len() as u64).sum()
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_small_enough_to_be_moved_on_its_way() {
        assert!(size_of::<Completion<Vec<u8>>>() <= 160);
    }

    #[test]
    fn data_counts_alike_whether_it_comes_early_or_with_its_write() {
        let (chunk, offset, terms) = (ChunkId(1), 0, Terms::default());
        let data = || vec![vec![1; 4096], vec![2; 8192]];
        let (crcs, staged, verified) = (Vec::new(), None, true);
        let write = Request::<Vec<u8>>::Write {
            chunk,
            offset,
            data: data(),
            crcs,
            staged,
            verified,
            terms,
        };
        let (stage, owner, first_slice) = (1, 2, 0);
        let early = Request::<Vec<u8>>::Stage { stage, owner, chunk, first_slice, data: data() };
        assert_eq!((write.byte_len(), early.byte_len()), (12_288, 12_288));
        assert_eq!(Request::<Vec<u8>>::Stats.byte_len(), 0);
    }
}
