//! Requests on their way to the store, and what is kept of them for the answer.

use towpath_fastpath::limits::RUNS_MAX;
use towpath_fastpath::server::StorageRequest;
use towpath_fastpath::wire::{ClearHeader, ReadHeader, WriteHeader};
use towpath_rpc::{Piece, RequestKey, Responder};
use towpath_transport::{Buf, LinkId, Time};

use super::clients::Leave;
use super::limits::LIST_PAGE_MAX;
use super::onward::Passed;
use super::open::Staged;
use super::scheduler::Kind;
use super::scrub::Scrub;
use super::spare::Spare;
use super::trace::Trace;
use crate::store::disks::Target;
use crate::store::{ChunkId, Clear, Request, SLICE_BYTES};

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
pub(super) struct Ask {
    pub(super) op: StorageRequest,
    pub(super) with: With,
}

/// What belongs to a request beside what came before its data.
#[derive(Debug)]
pub(super) enum With {
    Nothing,
    /// Of a write its data, as far as it is not staged: until the store has it.
    Data(Vec<Piece>, Staged),
    /// Of a scrub what it found so far.
    Found(Scrub),
}

/// The bytes that a request is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) chunk: ChunkId,
    pub(super) offset: u64,
    pub(super) byte_len: u64,
}

impl Place {
    pub(super) fn of(header: &WriteHeader) -> Self {
        let &WriteHeader { chunk, offset, length, .. } = header;
        Self { chunk, offset, byte_len: length.into() }
    }
}

impl Ask {
    /// What a client asks for, without data.
    pub(super) fn new(op: StorageRequest) -> Self {
        let with = match &op {
            &StorageRequest::Scrub { budget_slices } => With::Found(Scrub::new(budget_slices)),
            _ => With::Nothing,
        };
        Self { op, with }
    }

    /// A write and its data.
    pub(super) fn write(
        header: WriteHeader,
        crcs: Vec<u32>,
        data: Vec<Piece>,
        staged: Staged,
    ) -> Self {
        Self { op: StorageRequest::Write { header, crcs }, with: With::Data(data, staged) }
    }

    /// The bytes that it is about, if it is about a chunk.
    pub(super) fn place(&self) -> Option<Place> {
        let (Target::New(chunk) | Target::Chunk(chunk)) = self.target()? else { return None };
        let (offset, byte_len) = match &self.op {
            StorageRequest::Read(header) => (header.offset, header.length.into()),
            StorageRequest::Write { header, .. } => (header.offset, header.length.into()),
            StorageRequest::Clear(header) => match header.clear {
                Clear::Trim { offset, byte_len } | Clear::Zero { offset, byte_len } => {
                    (offset, byte_len)
                }
                Clear::Truncate { byte_len } => (byte_len, 0),
            },
            StorageRequest::Digest { range, .. } | StorageRequest::Sketch { range, .. } => {
                (range.offset, range.length.into())
            }
            StorageRequest::Finish { byte_len, .. } => (0, *byte_len),
            StorageRequest::Locate { first_slice, .. } => {
                (first_slice.saturating_mul(SLICE_BYTES as u64), 0)
            }
            _ => (0, 0),
        };
        Some(Place { chunk, offset, byte_len })
    }

    /// What it does at the store, and with how many bytes.
    pub(super) fn kind(&self) -> (Kind, u64) {
        match (&self.op, &self.with) {
            (StorageRequest::Read(header), _) => (Kind::Read, header.length.into()),
            (StorageRequest::Sketch { range, .. }, _) => (Kind::Sketch, range.length.into()),
            (StorageRequest::Write { header, .. }, _) => (Kind::Write, header.length.into()),
            (
                StorageRequest::Chain { .. }
                | StorageRequest::Clear(_)
                | StorageRequest::Create { .. }
                | StorageRequest::Delete { .. }
                | StorageRequest::Finish { .. },
                _,
            ) => (Kind::Change, 0),
            (_, With::Found(scrub)) => (Kind::Scrub, scrub.step() * SLICE_BYTES as u64),
            _ => (Kind::Look, 0),
        }
    }

    /// What the store is asked about; none of what is answered without it.
    fn target(&self) -> Option<Target> {
        Some(match &self.op {
            StorageRequest::Create { chunk, .. } => Target::New(*chunk),
            StorageRequest::Chain { chunk, .. }
            | StorageRequest::Clear(ClearHeader { chunk, .. })
            | StorageRequest::Delete { chunk, .. }
            | StorageRequest::Digest { chunk, .. }
            | StorageRequest::Finish { chunk, .. }
            | StorageRequest::Locate { chunk, .. }
            | StorageRequest::Read(ReadHeader { chunk, .. })
            | StorageRequest::Sketch { chunk, .. }
            | StorageRequest::Stat { chunk }
            | StorageRequest::Write { header: WriteHeader { chunk, .. }, .. } => {
                Target::Chunk(*chunk)
            }
            StorageRequest::Info => Target::Server,
            StorageRequest::List { .. } => Target::All,
            StorageRequest::Scrub { .. } => Target::Any,
            StorageRequest::Forward { .. }
            | StorageRequest::Health { .. }
            | StorageRequest::Join(_)
            | StorageRequest::Qos
            | StorageRequest::Rebuild { .. }
            | StorageRequest::Revoke { .. }
            | StorageRequest::Session { .. } => return None,
        })
    }

    /// The request to the store; none of what is answered without it. A read comes with its buffer.
    fn take_request(&mut self, buf: Option<Buf>, spare: &mut Spare) -> Option<Request<Piece, Buf>> {
        let read = |chunk, offset, length: u32| {
            let (byte_len, crcs) = (length as usize, spare.take_crcs());
            Some(Request::Read { chunk, offset, byte_len, buf: buf?, crcs })
        };
        Some(match (&mut self.op, &mut self.with) {
            (&mut StorageRequest::Chain { chunk, chain, version, stamp }, _) => {
                Request::Chain { chunk, chain, version, stamp }
            }
            (&mut StorageRequest::Clear(ClearHeader { chunk, clear, terms, .. }), _) => {
                Request::Clear { chunk, clear, terms }
            }
            (&mut StorageRequest::Create { chunk, limit_bytes, kind, stamp }, _) => {
                Request::Create { chunk, limit_bytes, kind, stamp }
            }
            (&mut StorageRequest::Finish { chunk, byte_len, terms }, _) => {
                Request::Finish { chunk, byte_len, terms }
            }
            (&mut StorageRequest::Delete { chunk, version }, _) => {
                Request::Delete { chunk, version }
            }
            (&mut StorageRequest::Digest { chunk, range }, _) => Request::Digest { chunk, range },
            (StorageRequest::Info, _) => Request::Stats,
            // One more than wanted tells whether there are more.
            (&mut StorageRequest::List { after, count_max }, _) => {
                Request::List { after, count_max: page_of(count_max) + 1 }
            }
            (&mut StorageRequest::Locate { chunk, first_slice }, _) => {
                Request::Locate { chunk, first_slice, runs_max: RUNS_MAX }
            }
            (&mut StorageRequest::Read(ReadHeader { chunk, offset, length, .. }), _) => {
                read(chunk, offset, length)?
            }
            (&mut StorageRequest::Sketch { chunk, range, .. }, _) => {
                read(chunk, range.offset, range.length)?
            }
            (_, With::Found(scrub)) => Request::Scrub { budget_slices: scrub.step(), from: None },
            (&mut StorageRequest::Stat { chunk }, _) => Request::Stat { chunk },
            (StorageRequest::Write { header, crcs }, With::Data(data, staged)) => {
                let WriteHeader { chunk, offset, terms, .. } = *header;
                let (data, crcs) = (std::mem::take(data), std::mem::take(crcs));
                let (staged, verified) = (staged.name(), true);
                Request::Write { chunk, offset, data, crcs, staged, verified, terms }
            }
            _ => return None,
        })
    }
}

/// Entries of a page of the listing of which the client wants so many.
pub(super) fn page_of(count_max: u32) -> usize {
    match count_max as usize {
        0 => LIST_PAGE_MAX,
        count => count.min(LIST_PAGE_MAX),
    }
}
