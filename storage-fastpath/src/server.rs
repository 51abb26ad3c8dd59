//! The serving side: requests parsed and checked, replies built.
//!
//! **Who owns the data.** A write's data arrives in the receive buffers of the endpoint. After
//! [`parse_request`] and [`verify_write`], [`Request::into_data`] gives it as pieces that go to the
//! store's thread as they are; dropping them, there or later, gives the credit back to the client.
//! A read's data is read by the store straight into a send buffer of the endpoint
//! ([`Endpoint::alloc`](towpath_transport::Endpoint::alloc)), which then goes to [`read_reply`] and
//! belongs to the endpoint.

use crate::change::{NewChunk, Terms};
use crate::control::{
    ChainRequest, ChunkRequest, CreateRequest, DeleteRequest, FinishRequest, InfoRequest,
    ListRequest, LocateRequest, RevokeRequest, ScrubRequest, SessionRequest,
};
use crate::digest::{DigestRequest, SketchRequest, SliceRange};
use crate::health::HealthRequest;
use crate::proof::Shown;
use crate::qos::wire::{JoinRequest, QosRequest};
use crate::rebuild::Rebuild;
use crate::route::{Route, RouteKind};
use crate::slice::{ChunkId, SLICE_BYTES, Span};
use crate::verify::{Coverage, verify_slices};
use crate::wire::{
    ClearHeader, ErrorReply, Method, ReadHeader, Sender, Why, WireError, WriteHeader, check_chain,
};
use prost::Message;
use smallvec::SmallVec;
use towpath_rpc::{Head, Request};

mod replies;

pub use replies::{
    changed_reply, digest_reply, done_reply, health_reply, info_reply, join_reply, list_reply,
    locate_reply, qos_reply, read_reply, respond_built, respond_error, respond_rejected,
    scrub_reply, sketch_reply, stat_reply,
};

/// What a client asks for. The data of a write stays in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageRequest {
    /// Say whose requests those of this link are.
    Join(JoinRequest),
    /// How reservations are kept.
    Qos,
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
    /// Raise the chain version of a chunk.
    Chain {
        /// Its name.
        chunk: ChunkId,
        /// The chain version that it gets.
        chain: u32,
        /// The version that it must have, unless it has that chain version already; none where it
        /// may have any.
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
    Clear(ClearHeader),
    /// Take a chunk away.
    Delete {
        /// Its name.
        chunk: ChunkId,
        /// The version that it must have; none where it may have any.
        version: Option<u64>,
    },
    /// The checksums of slices.
    Digest {
        /// The chunk.
        chunk: ChunkId,
        /// Which of its slices.
        range: SliceRange,
    },
    /// How the links of the server are.
    Health,
    /// What the server is and how it is.
    Info,
    /// Write the request's data, as long as the header says, once the servers that it is passed on
    /// to have written it.
    Forward {
        /// Along which servers, and where this one is in that.
        route: Route,
        /// Where it goes.
        header: WriteHeader,
        /// One checksum per touched slice.
        crcs: Vec<u32>,
    },
    /// Where the slices of a chunk lie in memory.
    Locate {
        /// Its name.
        chunk: ChunkId,
        /// The first slice that the client wants to know of.
        first_slice: u64,
    },
    /// One page of the listing.
    List {
        /// The last name that the caller has.
        after: Option<ChunkId>,
        /// Most entries wanted; 0: as many as go in one reply.
        count_max: u32,
    },
    /// Read bytes.
    Read(ReadHeader),
    /// Add a part of this server to a sum that goes on, or write the sum.
    Rebuild {
        /// Through which servers, and where this one is in that.
        plan: Rebuild,
        /// Where the sum is written, one checksum for each slice of it.
        crcs: Vec<u32>,
    },
    /// Have the capabilities of a serial number hold no more.
    Revoke {
        /// The serial number.
        serial: u64,
        /// When all of them have expired, in milliseconds since the Unix epoch.
        until_ms: u64,
    },
    /// Check some slices.
    Scrub {
        /// Most slices to check; 0: as the server likes.
        budget_slices: u64,
    },
    /// Refuse changes of older links of a session from now on.
    Session {
        /// The session.
        id: u128,
        /// Rises with each link of the session.
        epoch: u64,
    },
    /// Sketches of slices.
    Sketch {
        /// The chunk.
        chunk: ChunkId,
        /// Which of its slices.
        range: SliceRange,
        /// By which they are drawn.
        seed: u64,
    },
    /// The state of a chunk.
    Stat {
        /// Its name.
        chunk: ChunkId,
    },
    /// Write the request's data, as long as the header says.
    Write {
        /// Where it goes.
        header: WriteHeader,
        /// One checksum per touched slice.
        crcs: Vec<u32>,
    },
}

impl StorageRequest {
    /// Over which link it says that it goes; none where it does not say.
    #[must_use]
    pub fn sender(&self) -> Option<Sender> {
        match self {
            Self::Write { header, .. } | Self::Forward { header, .. } => Some(header.sender),
            Self::Read(header) => Some(header.sender),
            Self::Clear(header) => Some(header.sender),
            _ => None,
        }
    }
}

/// Why a request is no [`StorageRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// There is no such method.
    UnknownMethod(u16),
    /// It is malformed.
    Malformed(WireError),
}

impl Rejection {
    /// What the client is told, where it is told more than a status.
    #[must_use]
    pub fn error_reply(self) -> Option<ErrorReply> {
        match self {
            Self::UnknownMethod(_) => None,
            Self::Malformed(error) => Some(ErrorReply::BadRequest { why: Why::from(error) }),
        }
    }
}

/// What a request asks for.
///
/// # Errors
/// [`Rejection`]; [`respond_rejected`] tells the client.
pub fn parse_request(request: &Request) -> Result<StorageRequest, Rejection> {
    parse_shown(&shown(request)?)
}

/// A request and its proof.
///
/// # Errors
/// [`Rejection`] where it has a part of a proof.
pub fn shown(request: &Request) -> Result<Shown<'_>, Rejection> {
    Shown::new(request.method(), request.body(), request.data_len())
}

/// A request whose data is still on its way, and its proof.
///
/// # Errors
/// [`Rejection`] where it has a part of a proof.
pub fn shown_head(head: &Head) -> Result<Shown<'_>, Rejection> {
    Shown::new(head.method(), head.body(), head.data_len())
}

/// What a request asks for, its proof apart.
///
/// # Errors
/// [`Rejection`]; [`respond_rejected`] tells the client.
pub fn parse_shown(shown: &Shown<'_>) -> Result<StorageRequest, Rejection> {
    let parsed = parse(shown.method()?, shown.body(), shown.data_len());
    parsed.map_err(Rejection::Malformed)
}

fn parse(method: Method, body: &[u8], data_len: usize) -> Result<StorageRequest, WireError> {
    let has_data = matches!(method, Method::Write | Method::Forward | Method::Rebuild);
    let expected = if has_data { data_len } else { 0 };
    if data_len != expected {
        return Err(WireError::DataLength { expected: 0, found: data_len });
    }
    Ok(match method {
        Method::Create => create(body)?,
        Method::Write => {
            let (header, crcs) = write_of(body, data_len)?;
            StorageRequest::Write { header, crcs }
        }
        Method::Forward => forward_of(body, data_len)?,
        Method::Rebuild => rebuild_of(body, data_len)?,
        Method::Read => StorageRequest::Read(ReadHeader::parse(body)?),
        Method::Trim | Method::Zero | Method::Truncate => {
            let header = ClearHeader::parse(body)?;
            if header.clear.method() != method {
                return Err(WireError::Method(method));
            }
            StorageRequest::Clear(header)
        }
        Method::Stat => StorageRequest::Stat { chunk: decode::<ChunkRequest>(body)?.chunk.into() },
        Method::List => {
            let ListRequest { after, count_max } = decode(body)?;
            StorageRequest::List { after: after.map(Into::into), count_max }
        }
        Method::Delete => {
            let DeleteRequest { chunk, version } = decode(body)?;
            StorageRequest::Delete { chunk: chunk.into(), version }
        }
        Method::Scrub => {
            let ScrubRequest { budget_slices } = decode(body)?;
            StorageRequest::Scrub { budget_slices }
        }
        Method::Info => decode::<InfoRequest>(body).map(|_| StorageRequest::Info)?,
        Method::Health => decode::<HealthRequest>(body).map(|_| StorageRequest::Health)?,
        Method::Finish => finish(body)?,
        Method::Locate => {
            let LocateRequest { chunk, first_slice } = decode(body)?;
            StorageRequest::Locate { chunk: chunk.into(), first_slice }
        }
        Method::Digest => digest(body)?,
        Method::Sketch => sketch(body)?,
        Method::Join => StorageRequest::Join(decode(body)?),
        Method::Qos => {
            let QosRequest {} = decode(body)?;
            StorageRequest::Qos
        }
        Method::Revoke => {
            let RevokeRequest { serial, until_ms } = decode(body)?;
            StorageRequest::Revoke { serial, until_ms }
        }
        Method::Session => {
            let SessionRequest { high, low, epoch } = decode(body)?;
            StorageRequest::Session { id: u128::from(high) << 64 | u128::from(low), epoch }
        }
        Method::Chain => chain(body)?,
    })
}

fn create(body: &[u8]) -> Result<StorageRequest, WireError> {
    let CreateRequest { chunk, limit_bytes, unfinished, resident, stamp, chain } = decode(body)?;
    let kind = NewChunk { unfinished, resident, chain: check_chain(chain.into())? };
    Ok(StorageRequest::Create { chunk: chunk.into(), limit_bytes, kind, stamp })
}

fn finish(body: &[u8]) -> Result<StorageRequest, WireError> {
    let FinishRequest { chunk, byte_len, version, stamp, chain } = decode(body)?;
    let terms = Terms { version, stamp, chain: check_chain(chain.into())? };
    Ok(StorageRequest::Finish { chunk: chunk.into(), byte_len, terms })
}

fn digest(body: &[u8]) -> Result<StorageRequest, WireError> {
    let DigestRequest { chunk, offset, length } = decode(body)?;
    let range = SliceRange::new(offset, length)?;
    Ok(StorageRequest::Digest { chunk: chunk.into(), range })
}

fn sketch(body: &[u8]) -> Result<StorageRequest, WireError> {
    let SketchRequest { chunk, offset, length, seed } = decode(body)?;
    let range = SliceRange::new(offset, length)?;
    Ok(StorageRequest::Sketch { chunk: chunk.into(), range, seed })
}

fn chain(body: &[u8]) -> Result<StorageRequest, WireError> {
    let ChainRequest { chunk, chain, version, stamp } = decode(body)?;
    let (chunk, chain) = (chunk.into(), check_chain(chain.into())?);
    Ok(StorageRequest::Chain { chunk, chain, version, stamp })
}

fn forward_of(body: &[u8], data_len: usize) -> Result<StorageRequest, WireError> {
    let (route, rest) = Route::parse(body)?;
    let (header, crcs) = write_of(rest, data_len)?;
    let slices = |at: u64| at.is_multiple_of(SLICE_BYTES as u64);
    let is_whole = slices(header.offset) && slices(header.length.into());
    if route.kind() == RouteKind::Stripe && (header.terms.stamp == 0 || !is_whole) {
        // Parts of a stripe have whole slices, and what tells them from others of the same place.
        return Err(WireError::Route);
    }
    if header.terms.version.is_some() {
        // Each server numbers the versions of its own copy.
        return Err(WireError::Reserved("a version of a write that is passed on"));
    }
    Ok(StorageRequest::Forward { route, header, crcs })
}

fn rebuild_of(body: &[u8], data_len: usize) -> Result<StorageRequest, WireError> {
    let (plan, crcs) = Rebuild::parse(body)?;
    let expected = plan.data_len();
    if expected as usize != data_len {
        return Err(WireError::DataLength { expected, found: data_len });
    }
    Ok(StorageRequest::Rebuild { plan, crcs })
}

/// The header and the checksums of a write with so many bytes of data.
fn write_of(body: &[u8], data_len: usize) -> Result<(WriteHeader, Vec<u32>), WireError> {
    let (header, crcs) = WriteHeader::parse(body)?;
    if header.length as usize != data_len {
        let (expected, found) = (header.length, data_len);
        return Err(WireError::DataLength { expected, found });
    }
    Ok((header, crcs))
}

fn decode<M: Message + Default>(body: &[u8]) -> Result<M, WireError> {
    M::decode(body).map_err(|_| WireError::Protobuf)
}

/// Checks the data of a write against its checksums, by what the link took of its pages when it
/// checked what arrived, else in a pass while it is still in cache. The store may then take whole
/// slices as verified.
///
/// # Errors
/// [`ErrorReply::WireCorrupt`] with the first slice that is not as it was sent.
pub fn verify_write(
    request: &Request,
    header: &WriteHeader,
    crcs: &[u32],
) -> Result<(), ErrorReply> {
    verify_pieces(header, crcs, request.data_pieces_with_crcs())
}

/// How a piece of a write's data lies to the slices that the write touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceShape {
    /// It is whole slices and nothing else.
    WholeSlices,
    /// All that the write has of each slice that the piece touches is in it.
    Edge,
    /// The write has more of a slice than the piece has: it can be checked only with others.
    CutsSlices,
}

impl PieceShape {
    /// The shape of `len` bytes from `offset` of a write's data on.
    #[must_use]
    pub fn of(header: &WriteHeader, offset: usize, len: usize) -> Self {
        let start = header.offset + offset as u64;
        let end = start + len as u64;
        let is_edge = |at: u64| at.is_multiple_of(SLICE_BYTES as u64);
        let begins = offset == 0 || is_edge(start);
        let ends = offset + len == header.length as usize || is_edge(end);
        match (begins && ends, is_edge(start) && is_edge(end)) {
            (_, true) => Self::WholeSlices,
            (true, false) => Self::Edge,
            (false, false) => Self::CutsSlices,
        }
    }
}

/// Checks pieces of a write's data that follow each other (offset in the data, bytes, CRC32C of
/// pages) against its checksums, as [`verify_write`] does with all of them. The first begins, and
/// the last ends, with what the write has of a slice ([`PieceShape`]).
///
/// # Errors
/// [`ErrorReply::WireCorrupt`] with the first slice that is not as it was sent.
pub fn verify_pieces<'a>(
    header: &WriteHeader,
    crcs: &[u32],
    pieces: impl IntoIterator<Item = (usize, &'a [u8], &'a [u32])>,
) -> Result<(), ErrorReply> {
    let pieces: SmallVec<[_; 4]> = pieces.into_iter().collect();
    let byte_len: usize = pieces.iter().map(|(_, bytes, _)| bytes.len()).sum();
    let (Some(&(base, ..)), 1..) = (pieces.first(), byte_len) else { return Ok(()) };
    let span = Span::new(header.offset + base as u64, byte_len as u64);
    let from = (span.first() - header.span().first()) as usize;
    let crcs = crcs.get(from..from + span.count() as usize).unwrap_or(&[]);
    let coverage = Coverage { chunk: header.chunk, span, chunk_bytes: None };
    let pieces = pieces.into_iter().map(|(at, bytes, pages)| (at - base, bytes, pages));
    verify_slices(coverage, pieces, crcs)
        .map_err(|slice| ErrorReply::WireCorrupt { chunk: header.chunk, slice })
}
