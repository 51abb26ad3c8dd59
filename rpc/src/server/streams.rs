//! Requests that are handed to the service before all of their data is here.

use std::collections::HashMap;

use super::{RpcServer, deadline};
use crate::limits::HEADER_BYTES;
use crate::parcel::Piece;
use crate::request::{Head, Incoming, RequestKey, Streamed};
use crate::wire::{Header, HeaderError, Kind, Status};
use towpath_base::passes::{Pass, note};
use towpath_transport::{ChannelId, Chunk, Device, Endpoint, LinkId, Region, StreamId};

/// A message that comes piece by piece.
#[derive(Debug)]
enum Stream {
    /// Of its header and body not all is here. What is holds credit of its channel, which bounds
    /// it.
    Headless(Vec<Chunk>),
    /// The service has its head.
    Begun { request: RequestKey, data_start: usize },
    /// It is no request, or has its answer: the rest of it is dropped.
    Unwanted,
}

/// The messages that come piece by piece, over all links: each link has a bounded number.
#[derive(Debug, Default)]
pub(super) struct Streams {
    by_id: HashMap<(LinkId, StreamId), (ChannelId, Stream)>,
}

impl Streams {
    /// A link is gone, or one channel of it.
    pub(super) fn forget(&mut self, link: LinkId, channel: Option<ChannelId>) {
        self.by_id.retain(|(of, _), (through, _)| {
            *of != link || channel.is_some_and(|channel| channel != *through)
        });
    }
}

/// What a chunk of a stream belongs to.
pub(super) struct Of {
    pub(super) way: (LinkId, ChannelId),
    pub(super) stream: StreamId,
    pub(super) message_len: u32,
    pub(super) end: bool,
}

/// What the pieces of a message tell of its head.
enum Found {
    /// Not all of it is here.
    NotYet,
    /// The first bytes are no sound header.
    Bad([u8; HEADER_BYTES], HeaderError),
    Head(Header, Vec<u8>),
}

impl RpcServer {
    /// A piece of a message. What it makes goes to `ready`.
    pub(super) fn on_stream_chunk<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        of: &Of,
        chunk: Chunk,
    ) {
        let id = (of.way.0, of.stream);
        let (_, stream) = self
            .streams
            .by_id
            .remove(&id)
            .unwrap_or_else(|| (of.way.1, Stream::Headless(Vec::new())));
        let stream = match stream {
            Stream::Headless(mut chunks) => {
                chunks.push(chunk);
                self.begin(endpoint, of, chunks)
            }
            Stream::Begun { request, data_start } if self.is_begun(request) => {
                self.hand_over(endpoint, request, data_start, chunk);
                Stream::Begun { request, data_start }
            }
            Stream::Begun { .. } | Stream::Unwanted => {
                endpoint.release_chunk(chunk);
                Stream::Unwanted
            }
        };
        match stream {
            Stream::Begun { request, .. } if of.end => {
                self.ready.push_back(Incoming::Streamed(Streamed::Whole { request }));
            }
            // A sound message that is whole has a head.
            _ if of.end => {}
            stream => {
                self.streams.by_id.insert(id, (of.way.1, stream));
            }
        }
    }

    /// The rest of a message will not come.
    pub(super) fn on_stream_aborted(&mut self, link: LinkId, stream: StreamId) {
        let Some((_, stream)) = self.streams.by_id.remove(&(link, stream)) else { return };
        let Stream::Begun { request, .. } = stream else { return };
        if self.is_begun(request) {
            self.stats.broken += 1;
            self.free(request.key);
            self.ready.push_back(Incoming::Streamed(Streamed::Broken { request }));
        }
    }

    /// Takes the head out of what is there of a message, as soon as it is whole.
    fn begin<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        of: &Of,
        mut chunks: Vec<Chunk>,
    ) -> Stream {
        chunks.sort_unstable_by_key(Chunk::offset);
        let (header, body) = match find_head(&chunks, of.message_len) {
            Found::NotYet => return Stream::Headless(chunks),
            Found::Bad(bytes, error) => {
                self.on_malformed(endpoint, of.way, &bytes, error);
                chunks.into_iter().for_each(|chunk| endpoint.release_chunk(chunk));
                return Stream::Unwanted;
            }
            Found::Head(header, body) => (header, body),
        };
        let refusal = match header.kind {
            Kind::Request if of.message_len as usize > self.config.message_bytes_max => {
                self.stats.too_long += 1;
                Some(Status::TOO_LONG)
            }
            Kind::Request => self.check_room(of.way.0).err(),
            // All others are short, and come whole.
            _ => {
                self.stats.malformed += 1;
                chunks.into_iter().for_each(|chunk| endpoint.release_chunk(chunk));
                return Stream::Unwanted;
            }
        };
        if let Some(status) = refusal {
            self.refuse(endpoint, of.way, &header, status);
            chunks.into_iter().for_each(|chunk| endpoint.release_chunk(chunk));
            return Stream::Unwanted;
        }
        let now = endpoint.now();
        let deadline = deadline(now, header.timeout_us);
        let responder = self.take_slot(of.way, &header, now, deadline);
        let (request, data_start) = (responder.request_key(), HEADER_BYTES + body.len());
        let head = Head { header, body, responder, deadline };
        self.ready.push_back(Incoming::Streamed(Streamed::Begun(head)));
        for chunk in chunks {
            self.hand_over(endpoint, request, data_start, chunk);
        }
        Stream::Begun { request, data_start }
    }

    fn hand_over<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        request: RequestKey,
        data_start: usize,
        chunk: Chunk,
    ) {
        let at = chunk.offset() as usize;
        let from = data_start.saturating_sub(at);
        if from < chunk.len() {
            let (offset, piece) = (at + from - data_start, Piece::new(chunk, from));
            let data = Streamed::Data { request, offset, piece };
            self.ready.push_back(Incoming::Streamed(data));
        } else {
            endpoint.release_chunk(chunk);
        }
    }

    /// Whether the service is still to be told of a request: it has no answer yet.
    fn is_begun(&self, request: RequestKey) -> bool {
        let slot = self.slots.get(request.key).filter(|slot| slot.serial == request.serial);
        slot.is_some_and(|slot| slot.send.is_none())
    }
}

/// Header and body, out of the pieces of a message in order.
fn find_head(chunks: &[Chunk], message_len: u32) -> Found {
    let Some(bytes) = first_bytes(chunks, HEADER_BYTES) else {
        // A message that is too short for a header is whole with its first piece, mostly.
        let held: usize = chunks.iter().map(|chunk| chunk.len()).sum();
        if held < message_len as usize {
            return Found::NotYet;
        }
        let error = HeaderError::Short(held);
        return Found::Bad([0; HEADER_BYTES], error);
    };
    let mut header_bytes = [0; HEADER_BYTES];
    header_bytes.copy_from_slice(&bytes);
    let header = match Header::parse(&bytes) {
        Ok(header) => header,
        Err(error) => return Found::Bad(header_bytes, error),
    };
    let (described, message) = (header.message_len(), u64::from(message_len));
    if described != message {
        return Found::Bad(header_bytes, HeaderError::Length { described, message });
    }
    let body_len = header.body_len as usize;
    match first_bytes(chunks, HEADER_BYTES + body_len) {
        Some(mut bytes) => Found::Head(header, bytes.split_off(HEADER_BYTES)),
        None => Found::NotYet,
    }
}

/// A copy of the first `count` bytes of a message, where they are there.
fn first_bytes(chunks: &[Chunk], count: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    for chunk in chunks {
        if chunk.offset() as usize != bytes.len() {
            return None;
        }
        let wanted = count - bytes.len();
        bytes.extend_from_slice(&chunk[..wanted.min(chunk.len())]);
        if bytes.len() == count {
            note(Pass::Copy, count);
            return Some(bytes);
        }
    }
    None
}
