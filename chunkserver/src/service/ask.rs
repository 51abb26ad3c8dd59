//! Requests on their way to the store, and what is kept of them for the answer.

use towpath_fastpath::digest::SliceRange;
use towpath_fastpath::limits::RUNS_MAX;
use towpath_fastpath::qos::wire::JoinRequest;
use towpath_fastpath::server::StorageRequest;
use towpath_fastpath::wire::{ClearHeader, Method, ReadHeader, WriteHeader};
use towpath_rpc::{Piece, RequestKey, Responder};
use towpath_transport::{Buf, LinkId, Time};

use super::entries::Leave;
use super::limits::{LIST_PAGE_MAX, SCRUB_BUDGET_DEFAULT, SCRUB_BUDGET_MAX};
use super::onward::Passed;
use super::policy::Staged;
use super::scheduler::Kind;
use super::scrub::Scrub;
use super::spare::Spare;
use super::trace::{Place, Trace};
use crate::store::disks::Target;
use crate::store::{ChunkId, Clear, NewChunk, Request, SLICE_BYTES, Terms};

/// A request of a client that waits for the store, or that the store has.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) responder: Responder,
    pub(super) deadline: Time,
    pub(super) ask: Ask,
    /// Of a change that the store has.
    pub(super) leave: Leave,
    /// Of a write that was passed on: all behind have made it.
    pub(super) passed: Option<Passed>,
    pub(super) trace: Trace,
}

impl Job {
    /// Whether it need not be done where nobody waits for it any more.
    pub(super) fn may_be_given_up(&self) -> bool {
        !self.passed.as_ref().is_some_and(Passed::must_be_made)
    }

    pub(super) fn is(&self, request: RequestKey) -> bool {
        self.responder.request_key() == request
    }
}

/// What the store is asked.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most are requests, and each has a place once")]
pub(super) enum Asked {
    /// A request.
    Job(Job),
    /// For this server's part of a range that is made anew: the chunk, the first byte, how many.
    Own { request: RequestKey, link: LinkId, bytes: (ChunkId, u64, usize) },
    /// To take slices of a write whose data is still coming, and where they are in the data.
    Stage { request: RequestKey, offset: usize },
    /// Whether it would make a write that is passed on.
    MayWrite { request: RequestKey },
    /// To forget what it took of a write.
    Unstage,
}

impl Asked {
    /// What the store is asked about; none where it answers without looking, or was asked already.
    pub(super) fn target(&self) -> Option<Target> {
        match self {
            Self::Job(job) => job.ask.target(),
            Self::Own { bytes: (chunk, ..), .. } => Some(Target::Chunk(*chunk)),
            Self::Stage { .. } | Self::MayWrite { .. } | Self::Unstage => None,
        }
    }

    /// The request to the store, of what waited for it. A read comes with its buffer.
    pub(super) fn take_request(
        &mut self,
        buf: Option<Buf>,
        spare: &mut Spare,
    ) -> Option<Request<Piece, Buf>> {
        match self {
            Self::Job(job) => job.ask.take_request(buf, spare),
            &mut Self::Own { bytes: (chunk, offset, byte_len), .. } => {
                Some(Request::Read { chunk, offset, byte_len, buf: buf?, crcs: spare.take_crcs() })
            }
            Self::Stage { .. } | Self::MayWrite { .. } | Self::Unstage => None,
        }
    }
}

/// A request as the service keeps it until its answer is there.
#[derive(Debug)]
pub(super) enum Ask {
    /// A higher chain version for a chunk.
    Chain { chunk: ChunkId, chain: u32, version: Option<u64>, stamp: u64 },
    /// Bytes of a chunk less.
    Clear(ClearHeader),
    /// A new chunk, with its size limit, of which kind, and with its stamp.
    Create(ChunkId, Option<u64>, NewChunk, u64),
    /// A chunk of so many bytes is whole.
    Finish(ChunkId, u64, Terms),
    /// A chunk less, where it has a version.
    Delete(ChunkId, Option<u64>),
    /// The checksums of slices.
    Digest(ChunkId, SliceRange),
    /// The server's state.
    Info,
    /// The link says whose it is.
    Join(JoinRequest),
    /// So many entries of the listing, after a name.
    List(Option<ChunkId>, usize),
    /// Where the slices of a chunk lie in memory, from one on.
    Locate(ChunkId, u64),
    /// A read.
    Read(ReadHeader),
    /// The capabilities of a serial number hold no more; when they have expired.
    Revoke(u64, u64),
    /// A scrub, with what it found so far.
    Scrub(Scrub),
    /// The link replaces the older ones of a session: its number and this link's epoch.
    Session(u128, u64),
    /// Sketches of slices, by a seed.
    Sketch(ChunkId, SliceRange, u64),
    /// The state of a chunk.
    Stat(ChunkId),
    /// A write: its data, as far as it is not staged, and its checksums are here until the store
    /// has them.
    Write(WriteHeader, Vec<Piece>, Vec<u32>, Staged),
}

impl Ask {
    /// From what a client asks for; none where it is not the store that is asked, or a write.
    pub(super) fn new(request: StorageRequest) -> Option<Self> {
        Some(match request {
            StorageRequest::Chain { chunk, chain, version, stamp } => {
                Self::Chain { chunk, chain, version, stamp }
            }
            StorageRequest::Clear(header) => Self::Clear(header),
            StorageRequest::Create { chunk, limit_bytes, kind, stamp } => {
                Self::Create(chunk, limit_bytes, kind, stamp)
            }
            StorageRequest::Finish { chunk, byte_len, terms } => {
                Self::Finish(chunk, byte_len, terms)
            }
            StorageRequest::Delete { chunk, version } => Self::Delete(chunk, version),
            StorageRequest::Digest { chunk, range } => Self::Digest(chunk, range),
            // The store knows nothing of links, and the data of a write comes by other ways.
            StorageRequest::Health
            | StorageRequest::Qos
            | StorageRequest::Forward { .. }
            | StorageRequest::Rebuild { .. }
            | StorageRequest::Write { .. } => return None,
            StorageRequest::Info => Self::Info,
            StorageRequest::Join(join) => Self::Join(join),
            StorageRequest::List { after, count_max } => Self::List(
                after,
                match count_max as usize {
                    0 => LIST_PAGE_MAX,
                    count => count.min(LIST_PAGE_MAX),
                },
            ),
            StorageRequest::Locate { chunk, first_slice } => Self::Locate(chunk, first_slice),
            StorageRequest::Read(header) => Self::Read(header),
            StorageRequest::Revoke { serial, until_ms } => Self::Revoke(serial, until_ms),
            StorageRequest::Scrub { budget_slices } => {
                Self::Scrub(Scrub::new(match budget_slices {
                    0 => SCRUB_BUDGET_DEFAULT,
                    slices => slices.min(SCRUB_BUDGET_MAX),
                }))
            }
            StorageRequest::Session { id, epoch } => Self::Session(id, epoch),
            StorageRequest::Sketch { chunk, range, seed } => Self::Sketch(chunk, range, seed),
            StorageRequest::Stat { chunk } => Self::Stat(chunk),
        })
    }

    pub(super) fn method(&self) -> Method {
        match self {
            Self::Chain { .. } => Method::Chain,
            Self::Clear(header) => header.clear.method(),
            Self::Create(..) => Method::Create,
            Self::Finish(..) => Method::Finish,
            Self::Delete(..) => Method::Delete,
            Self::Digest(..) => Method::Digest,
            Self::Info => Method::Info,
            Self::Join(_) => Method::Join,
            Self::List(..) => Method::List,
            Self::Locate(..) => Method::Locate,
            Self::Read(_) => Method::Read,
            Self::Revoke(..) => Method::Revoke,
            Self::Scrub(_) => Method::Scrub,
            Self::Session(..) => Method::Session,
            Self::Sketch(..) => Method::Sketch,
            Self::Stat(_) => Method::Stat,
            Self::Write(..) => Method::Write,
        }
    }

    /// The bytes that it is about, if it is about a chunk.
    pub(super) fn place(&self) -> Option<Place> {
        let (chunk, offset, byte_len) = match self {
            Self::Read(header) => (header.chunk, header.offset, header.length.into()),
            Self::Write(header, ..) => (header.chunk, header.offset, header.length.into()),
            Self::Clear(header) => match header.clear {
                Clear::Trim { offset, byte_len } | Clear::Zero { offset, byte_len } => {
                    (header.chunk, offset, byte_len)
                }
                Clear::Truncate { byte_len } => (header.chunk, byte_len, 0),
            },
            Self::Chain { chunk, .. }
            | Self::Create(chunk, ..)
            | Self::Delete(chunk, _)
            | Self::Stat(chunk) => (*chunk, 0, 0),
            Self::Digest(chunk, range) | Self::Sketch(chunk, range, _) => {
                (*chunk, range.offset, range.length.into())
            }
            Self::Finish(chunk, byte_len, _) => (*chunk, 0, *byte_len),
            Self::Locate(chunk, first) => (*chunk, first.saturating_mul(SLICE_BYTES as u64), 0),
            _ => return None,
        };
        Some(Place { chunk, offset, byte_len })
    }

    /// What it does at the store, and with how many bytes.
    pub(super) fn kind(&self) -> (Kind, u64) {
        match self {
            Self::Read(header) => (Kind::Read, header.length.into()),
            Self::Sketch(_, range, _) => (Kind::Sketch, range.length.into()),
            Self::Write(header, ..) => (Kind::Write, header.length.into()),
            Self::Chain { .. }
            | Self::Clear(_)
            | Self::Create(..)
            | Self::Delete(..)
            | Self::Finish(..) => (Kind::Change, 0),
            Self::Scrub(scrub) => (Kind::Scrub, scrub.step() * SLICE_BYTES as u64),
            Self::Digest(..)
            | Self::Info
            | Self::Join(_)
            | Self::List(..)
            | Self::Locate(..)
            | Self::Revoke(..)
            | Self::Session(..)
            | Self::Stat(_) => (Kind::Look, 0),
        }
    }

    /// What the store is asked about; none of what is answered without it.
    fn target(&self) -> Option<Target> {
        Some(match self {
            Self::Create(chunk, ..) => Target::New(*chunk),
            Self::Chain { chunk, .. }
            | Self::Clear(ClearHeader { chunk, .. })
            | Self::Delete(chunk, _)
            | Self::Digest(chunk, _)
            | Self::Finish(chunk, ..)
            | Self::Locate(chunk, _)
            | Self::Read(ReadHeader { chunk, .. })
            | Self::Sketch(chunk, ..)
            | Self::Stat(chunk)
            | Self::Write(WriteHeader { chunk, .. }, ..) => Target::Chunk(*chunk),
            Self::Info => Target::Server,
            Self::List(..) => Target::All,
            Self::Scrub(_) => Target::Any,
            Self::Join(_) | Self::Revoke(..) | Self::Session(..) => return None,
        })
    }

    /// The request to the store. A read comes with its buffer.
    fn take_request(&mut self, buf: Option<Buf>, spare: &mut Spare) -> Option<Request<Piece, Buf>> {
        Some(match self {
            &mut Self::Chain { chunk, chain, version, stamp } => {
                Request::Chain { chunk, chain, version, stamp }
            }
            &mut Self::Clear(ClearHeader { chunk, clear, terms, .. }) => {
                Request::Clear { chunk, clear, terms }
            }
            &mut Self::Create(chunk, limit_bytes, kind, stamp) => {
                Request::Create { chunk, limit_bytes, kind, stamp }
            }
            &mut Self::Finish(chunk, byte_len, terms) => Request::Finish { chunk, byte_len, terms },
            &mut Self::Delete(chunk, version) => Request::Delete { chunk, version },
            &mut Self::Digest(chunk, range) => Request::Digest { chunk, range },
            Self::Info => Request::Stats,
            // One more than wanted tells whether there are more.
            &mut Self::List(after, count) => Request::List { after, count_max: count + 1 },
            &mut Self::Locate(chunk, first_slice) => {
                Request::Locate { chunk, first_slice, runs_max: RUNS_MAX }
            }
            &mut Self::Read(ReadHeader { chunk, offset, length, .. }) => Request::Read {
                chunk,
                offset,
                byte_len: length as usize,
                buf: buf?,
                crcs: spare.take_crcs(),
            },
            Self::Scrub(scrub) => Request::Scrub { budget_slices: scrub.step(), from: None },
            &mut Self::Sketch(chunk, SliceRange { offset, length }, _) => Request::Read {
                chunk,
                offset,
                byte_len: length as usize,
                buf: buf?,
                crcs: spare.take_crcs(),
            },
            // Answered without the store.
            Self::Join(_) | Self::Revoke(..) | Self::Session(..) => return None,
            &mut Self::Stat(chunk) => Request::Stat { chunk },
            Self::Write(WriteHeader { chunk, offset, terms, .. }, data, crcs, staged) => {
                Request::Write {
                    chunk: *chunk,
                    offset: *offset,
                    data: std::mem::take(data),
                    crcs: std::mem::take(crcs),
                    staged: staged.name(),
                    verified: true,
                    terms: *terms,
                }
            }
        })
    }
}
