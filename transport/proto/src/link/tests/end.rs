//! One end of the simulated wire: a link, its driver's buffers, and what its application saw.

use super::bufs::Bufs;
use super::wire::Frame;
use super::*;
use crate::Carrier;
use crate::event::{Arrival, ChannelId, Event, Outcome, Verdict};
use crate::path::{MtuReason, PathState};
use alloc::collections::BTreeMap;
use towpath_verbs::Mtu;

extern crate std;

/// One end: a link, its received buffers, and what its application saw.
pub(super) struct End {
    pub(super) link: Link,
    pub(super) bufs: Bufs,
    /// Messages that are out, by token.
    pub(super) sending: BTreeMap<u64, (SendKey, Vec<u8>)>,
    pub(super) outcomes: BTreeMap<u64, Outcome>,
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
        let request = SendRequest { channel, token, segments: &segments, deadline };
        let key = self.link.send(&request).unwrap();
        self.sending.insert(token, (key, payload));
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
                let (key, _) = self.sending.remove(&token).expect("reported once");
                assert_eq!(key, send);
                self.outcomes.insert(token, outcome);
            }
            Event::Down { reason } => self.down = Some(reason),
            Event::PathChanged { path, from, to, signal } => {
                assert_eq!(from.after(signal), Some(to), "a legal move");
                self.moves.push((path.0, from, to));
            }
            Event::Granted { .. } | Event::Revoked { .. } | Event::OpDone { .. } => {
                panic!("no lane is wanted here");
            }
            Event::PathMtuChanged { from, to, why, .. } => self.mtus.push((from, to, why)),
            Event::CarrierChanged { from, to } => {
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
