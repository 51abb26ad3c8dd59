//! What an operation gave: replies taken apart, and held against what was asked.

use crate::control::{ChunkInfo, InfoReply, ListReply, LocateReply, ScrubReply};
use crate::digest::{Digest, DigestReply, SketchReply, Sketches, SliceRange};
use crate::error::ErrorKind;
use crate::health::HealthReply;
use crate::qos::wire::{JoinReply, QosReply};
use crate::resident::{Fetched, SLOT_BYTES};
use crate::slice::{ChunkId, Span};
use crate::verify::{Coverage, verify_slices};
use crate::wire::{ChangeReply, ErrorReply, Method, ReadReplyHeader, WireError};
use prost::Message as _;
use towpath_rpc::{Parcel, Status};
use towpath_transport::{Device, Endpoint, Region};

/// What an operation gave.
#[derive(Debug)]
pub enum Output {
    /// A change was made, durably, and gave the chunk this version; none where no more is known
    /// than that it was made.
    Changed(Method, Option<u64>),
    /// The checksums of slices.
    Digest(Digest),
    /// How the server's links are.
    Health(HealthReply),
    /// What the server is and how it is.
    Info(InfoReply),
    /// What the tenant of this link has.
    Joined(JoinReply),
    /// One page of the listing.
    List(ListReply),
    /// Where the slices of a chunk lie in memory.
    Located(LocateReply),
    /// How reservations are kept.
    Qos(QosReply),
    /// Bytes, verified.
    Read(ReadData),
    /// Capabilities hold no more.
    Revoked,
    /// What one step of the scrub found.
    Scrub(ScrubReply),
    /// The link has replaced the older links of its session.
    Session,
    /// Sketches of slices.
    Sketches(Sketches),
    /// The state of a chunk.
    Stat(ChunkInfo),
}

impl Output {
    /// Of which operation it is.
    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Changed(method, _) => *method,
            Self::Digest(_) => Method::Digest,
            Self::Health(_) => Method::Health,
            Self::Info(_) => Method::Info,
            Self::Joined(_) => Method::Join,
            Self::List(_) => Method::List,
            Self::Located(_) => Method::Locate,
            Self::Qos(_) => Method::Qos,
            Self::Read(_) => Method::Read,
            Self::Revoked => Method::Revoke,
            Self::Scrub(_) => Method::Scrub,
            Self::Session => Method::Session,
            Self::Sketches(_) => Method::Sketch,
            Self::Stat(_) => Method::Stat,
        }
    }
}

/// Bytes read, verified against their checksums, in the buffers that they landed in.
///
/// They hold credit of the channel, or send buffers of the endpoint, until this is dropped, or
/// [released](Self::release), which is faster.
#[derive(Debug)]
pub struct ReadData {
    held: Held,
    header: ReadReplyHeader,
}

/// What holds the bytes.
#[derive(Debug)]
enum Held {
    /// The server's answer.
    Reply(Parcel),
    /// Runs of slots that were read, in order, each with its first slice.
    Slots(Vec<(u64, Fetched)>),
}

impl ReadData {
    /// Bytes that were read from slots: `slots` hold all slices that `header` touches.
    pub(crate) fn of_slots(header: ReadReplyHeader, slots: Vec<(u64, Fetched)>) -> Self {
        Self { held: Held::Slots(slots), header }
    }

    /// Which bytes these are, and the state of their chunk. Where the client has read them from
    /// the server's memory, the length of the chunk is what the client last knew of it, and the
    /// version the newest of the slices.
    #[must_use]
    pub fn header(&self) -> &ReadReplyHeader {
        &self.header
    }

    /// Whether the client has read them from the server's memory.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        matches!(self.held, Held::Slots(_))
    }

    /// How many bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a read has at least one byte")]
    pub fn len(&self) -> usize {
        self.header.length as usize
    }

    /// The bytes, piece by piece, without copying.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (reply, slots) = match &self.held {
            Held::Reply(parcel) => (Some(parcel), &[][..]),
            Held::Slots(slots) => (None, &slots[..]),
        };
        let span = Span::new(self.header.offset, self.header.length.into());
        let slots = slots.iter().flat_map(move |(first, fetched)| {
            (*first..).zip(fetched.bytes().chunks_exact(SLOT_BYTES)).map(move |(slice, slot)| {
                let (from, len) = span.part(slice);
                &slot[from..from + len]
            })
        });
        let reply = reply.into_iter().flat_map(|parcel| parcel.data_pieces());
        reply.map(|(_, bytes)| bytes).chain(slots)
    }

    /// Copies the bytes to the front of `out`, as many as fit.
    pub fn copy_to(&self, out: &mut [u8]) {
        let mut room = out;
        for bytes in self.parts() {
            let (here, rest) = room.split_at_mut(bytes.len().min(room.len()));
            here.copy_from_slice(&bytes[..here.len()]);
            room = rest;
        }
    }

    /// A copy of the bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.parts().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }

    /// Gives back what holds the bytes.
    pub fn release<D: Device<Memory = Region>>(self, endpoint: &mut Endpoint<D>) {
        match self.held {
            Held::Reply(parcel) => endpoint.release(parcel.into_message()),
            Held::Slots(slots) => drop(slots),
        }
    }
}

/// What was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) chunk: Option<ChunkId>,
    /// Of reads, writes, digests and sketches.
    pub(crate) span: Option<Span>,
}

/// Takes a reply apart and holds it against what was asked; here the bytes of reads are verified.
pub(crate) fn read_reply<D: Device<Memory = Region>>(
    endpoint: &mut Endpoint<D>,
    asked: &Asked,
    parcel: Parcel,
) -> Result<Output, ErrorKind> {
    let output = match parcel.header().status {
        Status::OK if asked.method == Method::Read => return read_data(endpoint, asked, parcel),
        Status::OK => control_output(asked, parcel.body()),
        Status::UNSUPPORTED => Err(ErrorKind::Unsupported),
        Status::MALFORMED => Err(ErrorKind::Malformed),
        Status::BUSY => Err(ErrorKind::Busy),
        Status::TOO_LONG => Err(ErrorKind::TooLongForServer),
        Status::VERSION => Err(ErrorKind::Version),
        Status::APPLICATION => Err(match ErrorReply::parse(parcel.body()) {
            Ok(reply) => ErrorKind::Refused(reply),
            Err(error) => ErrorKind::BadReply(error),
        }),
        Status(other) => Err(ErrorKind::UnknownStatus(other)),
    };
    endpoint.release(parcel.into_message());
    output
}

fn read_data<D: Device<Memory = Region>>(
    endpoint: &mut Endpoint<D>,
    asked: &Asked,
    parcel: Parcel,
) -> Result<Output, ErrorKind> {
    match check_read(asked, &parcel) {
        Ok(header) => Ok(Output::Read(ReadData { held: Held::Reply(parcel), header })),
        Err(kind) => {
            endpoint.release(parcel.into_message());
            Err(kind)
        }
    }
}

fn check_read(asked: &Asked, parcel: &Parcel) -> Result<ReadReplyHeader, ErrorKind> {
    let (header, crcs) = ReadReplyHeader::parse(parcel.body()).map_err(ErrorKind::BadReply)?;
    let ReadReplyHeader { chunk, offset, length, chunk_bytes, .. } = header;
    let span = Span::new(offset, length.into());
    if (Some(chunk), Some(span)) != (asked.chunk, asked.span) || span.end() > chunk_bytes {
        return Err(ErrorKind::WrongReply);
    }
    if parcel.data_len() != length as usize {
        let (expected, found) = (length, parcel.data_len());
        return Err(ErrorKind::BadReply(WireError::DataLength { expected, found }));
    }
    let coverage = Coverage { chunk, span, chunk_bytes: Some(chunk_bytes) };
    verify_slices(coverage, parcel.data_pieces_with_crcs(), &crcs)
        .map_err(|slice| ErrorKind::ReplyCorrupt { slice })?;
    Ok(header)
}

fn control_output(asked: &Asked, body: &[u8]) -> Result<Output, ErrorKind> {
    let method = asked.method;
    let none = |output| match body.len() {
        0 => Ok(output),
        found => Err(WireError::BodyLength { expected: 0, found }),
    };
    let bad = |_| WireError::Protobuf;
    match method {
        // A read's reply is taken apart elsewhere.
        Method::Chain
        | Method::Create
        | Method::Delete
        | Method::Finish
        | Method::Read
        | Method::Trim
        | Method::Truncate
        | Method::Write
        | Method::Forward
        | Method::Rebuild
        | Method::Zero => {
            ChangeReply::parse(body).map(|reply| Output::Changed(method, Some(reply.chunk_version)))
        }
        Method::Revoke => none(Output::Revoked),
        Method::Session => none(Output::Session),
        Method::Digest => digest(asked, body).map(Output::Digest),
        Method::Health => HealthReply::decode(body).map(Output::Health).map_err(bad),
        Method::Join => JoinReply::decode(body).map(Output::Joined).map_err(bad),
        Method::Qos => QosReply::decode(body).map(Output::Qos).map_err(bad),
        Method::Info => InfoReply::decode(body).map(Output::Info).map_err(bad),
        Method::List => ListReply::decode(body).map(Output::List).map_err(bad),
        Method::Locate => LocateReply::decode(body).map(Output::Located).map_err(bad),
        Method::Scrub => ScrubReply::decode(body).map(Output::Scrub).map_err(bad),
        Method::Sketch => sketches(asked, body).map(Output::Sketches),
        Method::Stat => ChunkInfo::decode(body).map(Output::Stat).map_err(bad),
    }
    .map_err(ErrorKind::BadReply)
}

fn digest(asked: &Asked, body: &[u8]) -> Result<Digest, WireError> {
    let reply = DigestReply::decode(body).map_err(|_| WireError::Protobuf)?;
    let (chunk, range) = range(asked)?;
    Digest::check(chunk, range, reply)
}

fn sketches(asked: &Asked, body: &[u8]) -> Result<Sketches, WireError> {
    let reply = SketchReply::decode(body).map_err(|_| WireError::Protobuf)?;
    let (_, range) = range(asked)?;
    Sketches::check(range, reply)
}

/// What was asked of slices has both.
fn range(asked: &Asked) -> Result<(ChunkId, SliceRange), WireError> {
    let Asked { chunk: Some(chunk), span: Some(span), .. } = *asked else {
        return Err(WireError::Slices);
    };
    Ok((chunk, SliceRange::new(span.start(), (span.end() - span.start()) as u32)?))
}
