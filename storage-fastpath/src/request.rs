//! What a client asks a server for, as a value and as the body of a request.

use crate::change::{NewChunk, Terms};
use crate::control::{
    ChainRequest, ChunkRequest, CreateRequest, DeleteRequest, FinishRequest, InfoRequest,
    ListRequest, LocateRequest, RevokeRequest, ScrubRequest, SessionRequest,
};
use crate::digest::{DigestRequest, SketchRequest, SliceRange};
use crate::health::HealthRequest;
use crate::qos::wire::{JoinRequest, QosRequest};
use crate::rebuild::Rebuild;
use crate::route::{Route, RouteKind};
use crate::slice::{ChunkId, SLICE_BYTES};
use crate::wire::{
    ClearHeader, Method, ReadHeader, Sender, WireError, WriteHeader, check_chain, emit_crcs,
};
use prost::Message;

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
    Health {
        /// And what the phases of requests took.
        times: bool,
    },
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

    /// The method that asks for it.
    #[must_use]
    pub fn method(&self) -> Method {
        match self {
            Self::Join(_) => Method::Join,
            Self::Qos => Method::Qos,
            Self::Create { .. } => Method::Create,
            Self::Chain { .. } => Method::Chain,
            Self::Finish { .. } => Method::Finish,
            Self::Clear(header) => header.clear.method(),
            Self::Delete { .. } => Method::Delete,
            Self::Digest { .. } => Method::Digest,
            Self::Health { .. } => Method::Health,
            Self::Info => Method::Info,
            Self::Forward { .. } => Method::Forward,
            Self::Locate { .. } => Method::Locate,
            Self::List { .. } => Method::List,
            Self::Read(_) => Method::Read,
            Self::Rebuild { .. } => Method::Rebuild,
            Self::Revoke { .. } => Method::Revoke,
            Self::Scrub { .. } => Method::Scrub,
            Self::Session { .. } => Method::Session,
            Self::Sketch { .. } => Method::Sketch,
            Self::Stat { .. } => Method::Stat,
            Self::Write { .. } => Method::Write,
        }
    }

    /// The chunk that it is about, where it is about one.
    #[must_use]
    pub fn chunk(&self) -> Option<ChunkId> {
        match *self {
            Self::Create { chunk, .. }
            | Self::Chain { chunk, .. }
            | Self::Finish { chunk, .. }
            | Self::Delete { chunk, .. }
            | Self::Digest { chunk, .. }
            | Self::Locate { chunk, .. }
            | Self::Sketch { chunk, .. }
            | Self::Stat { chunk }
            | Self::Clear(ClearHeader { chunk, .. })
            | Self::Read(ReadHeader { chunk, .. })
            | Self::Forward { header: WriteHeader { chunk, .. }, .. }
            | Self::Write { header: WriteHeader { chunk, .. }, .. } => Some(chunk),
            Self::Rebuild { ref plan, .. } => Some(plan.target().chunk),
            Self::Join(_)
            | Self::Qos
            | Self::Health { .. }
            | Self::Info
            | Self::List { .. }
            | Self::Revoke { .. }
            | Self::Scrub { .. }
            | Self::Session { .. } => None,
        }
    }

    /// The first byte and the length of the range that its reply is held against, where that has
    /// one.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u32)> {
        match *self {
            Self::Digest { range: SliceRange { offset, length }, .. }
            | Self::Sketch { range: SliceRange { offset, length }, .. }
            | Self::Read(ReadHeader { offset, length, .. })
            | Self::Forward { header: WriteHeader { offset, length, .. }, .. }
            | Self::Write { header: WriteHeader { offset, length, .. }, .. } => {
                Some((offset, length))
            }
            Self::Rebuild { ref plan, .. } => Some((plan.target().offset, plan.target().length)),
            _ => None,
        }
    }

    /// The body of the request, which [`parse_request`](crate::server::parse_request) takes in.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        match *self {
            Self::Join(ref join) => join.encode_to_vec(),
            // Their messages have no fields.
            Self::Qos | Self::Info => Vec::new(),
            Self::Health { times } => HealthRequest { times }.encode_to_vec(),
            Self::Create { chunk, limit_bytes, kind, stamp } => {
                let (chunk, NewChunk { unfinished, resident, chain }) = (chunk.into(), kind);
                CreateRequest { chunk, limit_bytes, unfinished, resident, stamp, chain }
                    .encode_to_vec()
            }
            Self::Chain { chunk, chain, version, stamp } => {
                ChainRequest { chunk: chunk.into(), chain, version, stamp }.encode_to_vec()
            }
            Self::Finish { chunk, byte_len, terms: Terms { version, stamp, chain } } => {
                FinishRequest { chunk: chunk.into(), byte_len, version, stamp, chain }
                    .encode_to_vec()
            }
            Self::Clear(header) => header.emit().to_vec(),
            Self::Delete { chunk, version } => {
                DeleteRequest { chunk: chunk.into(), version }.encode_to_vec()
            }
            Self::Digest { chunk, range: SliceRange { offset, length } } => {
                DigestRequest { chunk: chunk.into(), offset, length }.encode_to_vec()
            }
            Self::Forward { ref route, ref header, ref crcs } => {
                [&route.emit()[..], &header.emit(), &emit_crcs(crcs)].concat()
            }
            Self::Locate { chunk, first_slice } => {
                LocateRequest { chunk: chunk.into(), first_slice }.encode_to_vec()
            }
            Self::List { after, count_max } => {
                ListRequest { after: after.map(Into::into), count_max }.encode_to_vec()
            }
            Self::Read(header) => header.emit().to_vec(),
            Self::Rebuild { ref plan, ref crcs } => [&plan.emit()[..], &emit_crcs(crcs)].concat(),
            Self::Revoke { serial, until_ms } => RevokeRequest { serial, until_ms }.encode_to_vec(),
            Self::Scrub { budget_slices } => ScrubRequest { budget_slices }.encode_to_vec(),
            Self::Session { id, epoch } => {
                let (high, low) = ((id >> 64) as u64, id as u64);
                SessionRequest { high, low, epoch }.encode_to_vec()
            }
            Self::Sketch { chunk, range: SliceRange { offset, length }, seed } => {
                SketchRequest { chunk: chunk.into(), offset, length, seed }.encode_to_vec()
            }
            Self::Stat { chunk } => ChunkRequest { chunk: chunk.into() }.encode_to_vec(),
            Self::Write { ref header, ref crcs } => [&header.emit()[..], &emit_crcs(crcs)].concat(),
        }
    }
}

pub(crate) fn parse(
    method: Method,
    body: &[u8],
    data_len: usize,
) -> Result<StorageRequest, WireError> {
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
        Method::Health => {
            let HealthRequest { times } = decode(body)?;
            StorageRequest::Health { times }
        }
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
