//! The serving side: requests parsed and checked, replies built.
//!
//! **Who owns the data.** A write's data arrives in the receive buffers of the endpoint. After
//! [`parse_request`] and [`verify_write`], [`Request::into_data`] gives it as pieces that go to the
//! store's thread as they are; dropping them, there or later, gives the credit back to the client.
//! A read's data is read by the store straight into a send buffer of the endpoint
//! ([`Endpoint::alloc`](towpath_transport::Endpoint::alloc)), which then goes to [`read_reply`] and
//! belongs to the endpoint.

use crate::proof::Shown;
use crate::request::parse;
use crate::slice::{SLICE_BYTES, Span};
use crate::verify::{Coverage, verify_slices};
use crate::wire::{ErrorReply, Why, WireError, WriteHeader};
use smallvec::SmallVec;
use towpath_rpc::{Head, Request};

mod replies;

pub use crate::request::StorageRequest;
pub use replies::{
    changed_reply, digest_reply, done_reply, health_reply, info_reply, join_reply, list_reply,
    locate_reply, qos_reply, read_reply, respond_built, respond_error, respond_rejected,
    scrub_reply, sketch_reply, stat_reply,
};

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
