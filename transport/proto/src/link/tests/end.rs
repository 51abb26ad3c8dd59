//! One end of the simulated wire: a link, its driver's buffers, and what its application saw.

use super::bufs::Bufs;
use super::wire::Frame;
use super::*;
use crate::Carrier;
use crate::channel::SupplyError;
use crate::event::{Arrival, ChannelId, Event, Outcome, PayloadRef, Verdict};
use crate::path::{MtuReason, PathState};
use alloc::collections::BTreeMap;
use towpath_verbs::Mtu;

extern crate std;

/// What of a message that grows is with the link.
pub(super) struct Grown {
    /// Bytes of its first segment.
    pub(super) head: usize,
    /// What was supplied: where it begins and ends, and how much of it has not come home.
    pub(super) supplied: Vec<(u32, u32, u32)>,
    pub(super) home_bytes: u32,
}

/// One end: a link, its received buffers, and what its application saw.
pub(super) struct End {
    pub(super) link: Link,
    pub(super) bufs: Bufs,
    /// Messages that are out, by token.
    pub(super) sending: BTreeMap<u64, (SendKey, Vec<u8>)>,
    pub(super) outcomes: BTreeMap<u64, Outcome>,
    pub(super) grown: BTreeMap<u64, Grown>,
    pub(super) received: Vec<Vec<u8>>,
    /// Messages that come piece by piece: their pieces, by where they begin.
    pub(super) streams: BTreeMap<IncomingId, BTreeMap<u32, Vec<u8>>>,
    /// Pieces come in any order.
    pub(super) as_they_come: bool,
    /// How many came before one that lies in front of them.
    pub(super) out_of_order: usize,
    pub(super) aborted: usize,
    pub(super) channels: Vec<ChannelId>,
    /// Received chunks are kept while this is set.
    pub(super) hoards: bool,
    pub(super) hoarded: u32,
    pub(super) down: Option<DownReason>,
    pub(super) moves: Vec<(u8, PathState, PathState)>,
    /// What the link rode on, one after the other.
    pub(super) rides: Vec<Carrier>,
    /// Packet sizes that were told: from, to, why.
    pub(super) mtus: Vec<(Mtu, Mtu, MtuReason)>,
}

pub(super) type IncomingId = (u32, u32);

impl End {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            bufs: Bufs::default(),
            sending: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            grown: BTreeMap::new(),
            received: Vec::new(),
            streams: BTreeMap::new(),
            as_they_come: false,
            out_of_order: 0,
            aborted: 0,
            channels: Vec::new(),
            hoards: false,
            hoarded: 0,
            down: None,
            moves: Vec::new(),
            rides: Vec::new(),
            mtus: Vec::new(),
        }
    }

    pub(super) fn send(
        &mut self,
        channel: ChannelId,
        token: u64,
        payload: Vec<u8>,
        deadline: Time,
    ) {
        let segments = [payload.len() as u32];
        let segments = &segments;
        let request = SendRequest { channel, token, segments, deadline, at_pages: false };
        let key = self.link.send(&request).unwrap();
        self.sending.insert(token, (key, payload));
    }

    /// Sends a message of which only the first `head` bytes are there.
    pub(super) fn grow(
        &mut self,
        channel: ChannelId,
        (token, head): (u64, usize),
        payload: Vec<u8>,
        deadline: Time,
    ) {
        let segments = [head as u32, (payload.len() - head) as u32];
        let segments = &segments;
        let request = SendRequest { channel, token, segments, deadline, at_pages: false };
        let key = self.link.send_growing(&request).unwrap();
        self.sending.insert(token, (key, payload));
        let (supplied, home_bytes) = (Vec::new(), 0);
        self.grown.insert(token, Grown { head, supplied, home_bytes });
    }

    /// Supplies bytes of it, if it has not ended.
    pub(super) fn supply(&mut self, token: u64, (from, until): (u32, u32)) {
        let Some(&(key, _)) = self.sending.get(&token) else { return };
        match self.link.supply(key, from, until - from) {
            Ok(()) => {
                let grown = self.grown.get_mut(&token).unwrap();
                grown.supplied.push((from, until, until - from));
            }
            Err(error) => assert_eq!(error, SupplyError::Ended),
        }
    }

    /// The bytes that a frame names, which lie in memory that was supplied at once and has not come
    /// home.
    pub(super) fn bytes_of(&self, part: &PayloadRef) -> &[u8] {
        let mut sending = self.sending.iter();
        let (token, (_, bytes)) = sending.find(|(_, (key, _))| *key == part.send).unwrap();
        let (from, until) = (part.offset, part.offset + part.length);
        let base = match self.grown.get(token).filter(|_| part.segment == 1) {
            None => 0,
            Some(grown) => {
                let mut there = grown.supplied.iter();
                let is_there =
                    there.any(|&(start, end, left)| start <= from && until <= end && left > 0);
                assert!(is_there, "{part:?} of {:?}", grown.supplied);
                grown.head
            }
        };
        &bytes[base + from as usize..base + until as usize]
    }

    fn on_piece_sent(&mut self, send: SendKey, offset: u32, length: u32) {
        let mut sending = self.sending.iter();
        let (token, _) = sending.find(|(_, (key, _))| *key == send).unwrap();
        let grown = self.grown.get_mut(token).unwrap();
        grown.home_bytes += length;
        let mut left = length;
        for (start, end, out) in &mut grown.supplied {
            let (from, until) = (offset.max(*start), (offset + length).min(*end));
            if from < until {
                *out -= until - from;
                left -= until - from;
            }
        }
        assert_eq!(left, 0, "it was supplied");
    }

    pub(super) fn take_events(&mut self) {
        while let Some(event) = self.link.poll_event() {
            self.on_event(event);
        }
    }

    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Opened { channel, .. } => self.channels.push(channel),
            Event::Closed { channel, .. } => self.channels.retain(|&other| other != channel),
            Event::Message { channel, incoming, length } => {
                let mut chunks = Vec::new();
                self.link.take_message(incoming, |taken| chunks.extend_from_slice(taken));
                let mut whole = Vec::new();
                for chunk in &chunks {
                    whole.extend(self.bufs.take_out(chunk));
                }
                assert_eq!(whole.len(), length as usize);
                self.received.push(whole);
                self.release(channel, chunks.len() as u32);
            }
            Event::StreamChunk { channel, incoming, chunk, message_len, end } => {
                let id = (channel.0, incoming.0.index);
                let stream = self.streams.entry(id).or_default();
                let is_in_order = stream.keys().all(|&before| before < chunk.offset);
                assert!(is_in_order || self.as_they_come);
                self.out_of_order += usize::from(!is_in_order);
                stream.insert(chunk.offset, self.bufs.take_out(&chunk));
                let held: usize = stream.values().map(Vec::len).sum();
                assert_eq!(end, held == message_len as usize);
                if end {
                    let mut whole = Vec::new();
                    for (at, piece) in self.streams.remove(&id).unwrap() {
                        assert_eq!(whole.len(), at as usize, "without a gap");
                        whole.extend(piece);
                    }
                    self.received.push(whole);
                }
                self.release(channel, 1);
            }
            Event::StreamAborted { channel, incoming } => {
                self.aborted += 1;
                assert!(self.streams.remove(&(channel.0, incoming.0.index)).is_some());
            }
            Event::Recycled { buf } => self.bufs.let_go(buf),
            Event::Sent { token, outcome, send } => {
                self.grown.remove(&token);
                let (key, _) = self.sending.remove(&token).expect("reported once");
                assert_eq!(key, send);
                self.outcomes.insert(token, outcome);
            }
            Event::PieceSent { send, offset, length } => self.on_piece_sent(send, offset, length),
            Event::Down { reason } => self.down = Some(reason),
            Event::PathChanged { path, from, to, signal } => {
                assert_eq!(from.after(signal), Some(to), "a legal move");
                self.moves.push((path.0, from, to));
            }
            Event::Granted { .. } | Event::Revoked { .. } | Event::OpDone { .. } => {
                panic!("no lane is wanted here");
            }
            Event::PathMtuChanged { from, to, why, .. } => self.mtus.push((from, to, why)),
            Event::CarrierChanged { from, to, .. } => {
                assert_eq!(from, self.rides.last().copied().unwrap_or_default());
                self.rides.push(to);
            }
        }
    }

    pub(super) fn release(&mut self, channel: ChannelId, chunks: u32) {
        if self.hoards {
            self.hoarded += chunks;
        } else {
            self.link.release(channel, chunks);
        }
    }

    /// Takes in what came.
    pub(super) fn take_row(&mut self, now: Time, frames: impl IntoIterator<Item = Frame>) {
        for frame in frames {
            self.take_one(now, frame);
        }
    }

    fn take_one(&mut self, now: Time, frame: Frame) {
        let Self { link, bufs, .. } = self;
        let (path, header, body) = match frame {
            Frame::Ack(bytes) => return link.handle_ack(now, &bytes, now),
            Frame::Chunk { path, header, payload } => (path, header, payload),
        };
        let buf = bufs.next();
        let (header, bytes) = (&header, &body[..]);
        let arrival = Arrival { header, body: bytes, buf, may_keep: true, received_at: now };
        if let Verdict::Kept(pieces) = link.handle_chunk(now, path, &arrival, bufs) {
            bufs.keep(buf, body, pieces);
        }
    }
}
