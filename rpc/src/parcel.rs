//! Messages taken apart after receiving, and put together for sending.

use crate::limits::{BODY_BYTES_MAX, HEADER_BYTES, PAGE_BYTES};
use crate::wire::{Header, HeaderError, Kind};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;
use towpath_transport::{Buf, Chunk, Frozen, Message, PageCrcs, Payload, SendBuffers};

/// A received request or response: header, body, data.
#[derive(Debug)]
pub struct Parcel {
    header: Header,
    message: Message,
    /// The body, where it came in several chunks.
    gathered: Option<Vec<u8>>,
}

impl Parcel {
    /// Takes a message apart.
    ///
    /// # Errors
    /// The message, and which field of it is wrong.
    pub fn new(message: Message) -> Result<Self, (Message, HeaderError)> {
        let header = match read_header(&message) {
            Ok(header) => header,
            Err(error) => return Err((message, error)),
        };
        let head = HEADER_BYTES + header.body_len as usize;
        let whole = message.parts().next().is_some_and(|first| first.len() >= head);
        let gathered = (!whole).then(|| {
            let mut bytes = vec![0; head];
            message.copy_to(&mut bytes);
            bytes.drain(..HEADER_BYTES);
            bytes
        });
        Ok(Self { header, message, gathered })
    }

    /// Its header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The message it came in.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The message itself, to be released.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.message
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        if let Some(body) = &self.gathered {
            return body;
        }
        let first = self.message.parts().next().unwrap_or(&[]);
        first.get(HEADER_BYTES..self.data_start()).unwrap_or(&[])
    }

    /// Bytes of data.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.header.data_len as usize
    }

    /// The data, piece by piece, without copying: offset in the data, and bytes.
    ///
    /// An honest sender's pieces begin at multiples of a page if both ends take chunks of a page or
    /// more; otherwise, or from a hostile sender, they may begin anywhere.
    pub fn data_pieces(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.data_pieces_with_crcs().map(|(offset, bytes, _)| (offset, bytes))
    }

    /// As [`data_pieces`](Self::data_pieces), each with the CRC32C of its whole pages from its
    /// first byte on, as far as the link has taken them ([`Chunk::page_crcs`]): often of none.
    pub fn data_pieces_with_crcs(&self) -> impl Iterator<Item = (usize, &[u8], &[u32])> {
        let start = self.data_start();
        let mut at = 0;
        self.message.chunks().iter().filter_map(move |chunk| {
            let from = start.saturating_sub(at);
            let offset = (at + from).saturating_sub(start);
            at += chunk.len();
            // Pages are counted from where the piece begins, which is with the body here.
            let crcs = if from == 0 { chunk.page_crcs() } else { &[] };
            chunk.get(from..).filter(|rest| !rest.is_empty()).map(|rest| (offset, rest, crcs))
        })
    }

    /// The data in the buffers that it landed in, to be kept without copying and on any thread.
    #[must_use]
    pub fn into_data(self) -> Pieces {
        let start = self.data_start();
        let mut at = 0;
        let mut pieces = SmallVec::new();
        for chunk in self.message.into_chunks() {
            let from = start.saturating_sub(at);
            at += chunk.len();
            if from < chunk.len() {
                pieces.push(Piece::new(chunk, from));
            }
        }
        Pieces(pieces)
    }

    fn data_start(&self) -> usize {
        HEADER_BYTES + self.header.body_len as usize
    }
}

/// The header of a message that may be cut anywhere; the lengths in it fit the message.
fn read_header(message: &Message) -> Result<Header, HeaderError> {
    let mut bytes = [0; HEADER_BYTES];
    let header = match message.parts().next() {
        Some(first) if first.len() >= HEADER_BYTES => Header::parse(first)?,
        _ => {
            let copied = message.copy_to(&mut bytes);
            Header::parse(&bytes[..copied])?
        }
    };
    let (described, message) = (header.message_len(), message.len() as u64);
    if described != message {
        return Err(HeaderError::Length { described, message });
    }
    Ok(header)
}

/// Data of a message, piece after piece: up to two without an allocation.
#[derive(Debug)]
pub struct Pieces(pub SmallVec<[Piece; 2]>);

impl Pieces {
    /// The pieces in a vector.
    #[must_use]
    pub fn into_vec(self) -> Vec<Piece> {
        self.0.into_vec()
    }
}

/// Part of a message's data, in the receive buffer that it landed in.
///
/// It holds one credit of its channel until it is dropped, on any thread.
pub struct Piece {
    place: Place,
    from: usize,
}

/// Where a piece lies.
enum Place {
    Alone(Chunk),
    /// Others send it on.
    Shared(Frozen),
}

impl Piece {
    /// What a chunk of a message has from its byte `from` on.
    pub(crate) fn new(chunk: Chunk, from: usize) -> Self {
        Self { place: Place::Alone(chunk), from }
    }

    /// CRC32C of its whole pages from its first byte on, as far as the link has taken them
    /// ([`Chunk::page_crcs`]): often of none.
    #[must_use]
    pub fn page_crcs(&self) -> &[u32] {
        match &self.place {
            // Pages are counted from where the chunk begins.
            Place::Alone(chunk) if self.from == 0 => chunk.page_crcs(),
            _ => &[],
        }
    }

    /// The same bytes as a segment of a message, to be sent on without a copy while the piece is
    /// used here: see [`Chunk::freeze`] for who can send it. Credit and receive buffer come back
    /// when the piece and all that was shared of it are gone. Costs one small allocation the first
    /// time.
    ///
    /// None where the piece does not begin with its chunk, as small data behind a body does: copy
    /// that.
    #[must_use]
    pub fn share(self) -> (Self, Option<Frozen>) {
        let Self { place, from } = self;
        if from > 0 {
            return (Self { place, from }, None);
        }
        let frozen = match place {
            Place::Alone(chunk) => chunk.freeze(),
            Place::Shared(frozen) => frozen,
        };
        (Self { place: Place::Shared(frozen.clone()), from }, Some(frozen))
    }
}

impl From<Frozen> for Piece {
    /// Bytes that did not come with a message, where pieces are wanted.
    fn from(bytes: Frozen) -> Self {
        Self { place: Place::Shared(bytes), from: 0 }
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            Place::Alone(chunk) => &chunk[self.from..],
            Place::Shared(frozen) => &frozen[self.from..],
        }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.len())
    }
}

/// All send buffers that are large enough are out, or those that the link may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no send buffer of {wanted} bytes is free; wait for one to come back, or raise send_pools")]
pub struct NoBuffer {
    /// Bytes wanted.
    pub wanted: usize,
}

/// A request or response that is being put together.
#[derive(Debug)]
pub struct Outgoing {
    head: Buf,
    data: Option<Buf>,
    /// Of the data's pages; perhaps of none.
    page_crcs: PageCrcs,
}

impl Outgoing {
    /// With room for `body_bytes` of body and for `data_bytes` of data: less than a page of data
    /// is copied behind the body when it is sent, so the first segment has room for it.
    ///
    /// A server that answers many clients takes its buffers from
    /// [`Endpoint::buffers_of`](towpath_transport::Endpoint::buffers_of): then a client that takes
    /// no answers in keeps no more than a share of them.
    ///
    /// # Errors
    /// [`NoBuffer`].
    pub fn new(
        buffers: &impl SendBuffers,
        body_bytes: usize,
        data_bytes: usize,
    ) -> Result<Self, NoBuffer> {
        let inline = if data_bytes < PAGE_BYTES { data_bytes } else { 0 };
        let wanted = HEADER_BYTES + body_bytes + inline;
        let mut head = buffers.alloc(wanted).map_err(|_| NoBuffer { wanted })?;
        head.set_len(0)
            .and_then(|()| head.extend(&[0; HEADER_BYTES]))
            .map_err(|_| NoBuffer { wanted })?;
        Ok(Self { head, data: None, page_crcs: PageCrcs::default() })
    }

    /// With `body` and no data.
    ///
    /// # Errors
    /// [`NoBuffer`].
    pub fn with_body(buffers: &impl SendBuffers, body: &[u8]) -> Result<Self, NoBuffer> {
        let mut outgoing = Self::new(buffers, body.len(), 0)?;
        outgoing.extend(body)?;
        Ok(outgoing)
    }

    /// Appends to the body.
    ///
    /// # Errors
    /// [`NoBuffer`] when the first segment is full, or the body as long as a body may be; nothing
    /// was appended.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), NoBuffer> {
        let wanted = self.head.len() + bytes.len();
        if wanted > HEADER_BYTES + BODY_BYTES_MAX {
            return Err(NoBuffer { wanted });
        }
        self.head.extend(bytes).map_err(|_| NoBuffer { wanted })
    }

    /// The data: a buffer that the endpoint knows. An empty one counts as none.
    pub fn set_data(&mut self, data: Buf) {
        self.set_data_with_crcs(data, PageCrcs::default());
    }

    /// As [`set_data`](Self::set_data), with the CRC32C of pages of the data
    /// ([`Payload::push_with_crcs`]).
    pub fn set_data_with_crcs(&mut self, data: Buf, page_crcs: PageCrcs) {
        self.data = Some(data).filter(|data| !data.is_empty());
        self.page_crcs = page_crcs;
    }

    /// The body as it is.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.head[HEADER_BYTES..]
    }

    /// Bytes of the whole message.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.head.len() + self.data.as_ref().map_or(0, |data| data.len())
    }

    /// Whether there is data.
    pub(crate) fn has_data(&self) -> bool {
        self.data.is_some()
    }

    /// Fills the header in. Data below a page goes behind the body where there is room.
    pub(crate) fn finish(self, fields: Fields) -> Payload {
        self.finish_before(fields, 0)
    }

    /// The same where so many bytes of data come later.
    pub(crate) fn finish_before(mut self, fields: Fields, later_bytes: u32) -> Payload {
        let body_len = (self.head.len() - HEADER_BYTES) as u32;
        let data_len = self.data.as_ref().map_or(0, |data| data.len()) as u32 + later_bytes;
        let small = |data: &Buf| data.len() < PAGE_BYTES;
        let fits = |head: &mut Buf, data: &Buf| head.extend(data).is_ok();
        let inline =
            self.data.as_ref().is_some_and(|data| small(data) && fits(&mut self.head, data));
        let Fields { kind, method, status, request, timeout_us } = fields;
        let header =
            Header { kind, method, status, inline, request, body_len, data_len, timeout_us };
        self.head[..HEADER_BYTES].copy_from_slice(&header.emit());
        let mut payload = Payload::new(self.head);
        if let Some(data) = self.data.filter(|_| !inline) {
            let left = payload.push_with_crcs(data, self.page_crcs);
            debug_assert!(left.is_ok(), "a message has room for two segments");
        }
        // Who stores slices writes them from where they land.
        let has_slices = payload.segments().len() > 1 || later_bytes > 0;
        if has_slices { payload.page_aligned() } else { payload }
    }
}

/// What the two ends put in a header.
pub(crate) struct Fields {
    pub(crate) kind: Kind,
    pub(crate) method: u16,
    pub(crate) status: crate::wire::Status,
    pub(crate) request: u64,
    pub(crate) timeout_us: u32,
}
