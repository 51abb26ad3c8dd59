//! An end of a link with a driver and an application that keep the contract, and books of both.

mod books;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use towpath_base::crc::crc32c;
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Time};
use towpath_proto::limits::{ACK_BYTES_MAX, HEADER_BYTES, NUMBER_WINDOW};
use towpath_proto::wire::{AckFrame, ChunkHeader};
use towpath_proto::{
    BufToken, ChannelId, Cut, DownReason, IncomingKey, Link, LinkConfig, Outcome, PathId,
    PeerParams, QpHalf, Renew, SendKey, SendRequest, Side, Transmit, Verdict,
};
use towpath_verbs::{Mtu, QpNum};

/// Small limits, so that short inputs reach them.
pub(crate) const SENDS_MAX: usize = 8;
pub(crate) const QUOTA_CHUNKS: u32 = 8;
pub(crate) const CREDIT_TOTAL: u32 = 32;
pub(crate) const CHUNK_BYTES_MAX: u32 = 512;

/// A frame on the wire, with what its payload truly is beside it.
#[derive(Clone)]
pub(crate) enum Frame {
    Chunk { path: PathId, header: [u8; HEADER_BYTES], payload: Vec<u8>, tag: u64 },
    Ack(Vec<u8>),
}

impl Frame {
    fn as_chunk(&self) -> Option<(&[u8; HEADER_BYTES], &[u8], u64)> {
        match self {
            Self::Chunk { header, payload, tag, .. } => Some((header, payload, *tag)),
            Self::Ack(_) => None,
        }
    }

    fn as_ack(&self) -> Option<&[u8]> {
        if let Self::Ack(bytes) = self { Some(bytes) } else { None }
    }

    /// Flips a bit.
    pub(crate) fn corrupt(&mut self, nth: usize) {
        let bytes = match self {
            Self::Ack(bytes) => bytes.as_mut_slice(),
            Self::Chunk { payload, .. } if nth % 2 == 1 && !payload.is_empty() => payload,
            Self::Chunk { header, .. } => header.as_mut_slice(),
        };
        let at = nth * 7 % bytes.len();
        bytes[at] ^= 1 << (nth % 8);
    }
}

/// A buffer that the link keeps: what arrived in it.
#[derive(Clone, Copy)]
struct Arrived {
    tag: u64,
    length: u32,
}

/// A message that was sent, by its token.
pub(crate) struct Send {
    key: SendKey,
    segments: Vec<u32>,
    posted: u32,
    pub(crate) outcome: Option<Outcome>,
}

/// What the application knows of a channel.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Channel {
    pub(crate) opening: bool,
    pub(crate) open: bool,
    pub(crate) ordered: bool,
    /// How many times it was open.
    pub(crate) life: u32,
    /// Received chunks that were not released.
    held: u32,
}

/// A report of a message: of which life of its channel, and the how-manieth report.
#[derive(Clone, Copy)]
struct Report {
    channel: ChannelId,
    life: u32,
    nth: u64,
}

/// A whole message that waits to be taken.
struct Ready {
    report: Report,
    incoming: IncomingKey,
    length: u32,
}

/// How far a stream was read.
struct Stream {
    report: Report,
    tag: u64,
    end: u32,
}

pub(crate) struct Host {
    pub(crate) link: Link,
    pub(crate) now: Time,
    next_buf: u32,
    kept: BTreeMap<u32, Arrived>,
    /// Whole messages that were reported and not taken.
    ready: VecDeque<Ready>,
    /// Messages of ordered channels in the order of their reports: channel, life, which report.
    order: BTreeMap<(ChannelId, u32, u64), u64>,
    reports: u64,
    streams: HashMap<IncomingKey, Stream>,
    pub(crate) channels: BTreeMap<ChannelId, Channel>,
    pub(crate) sends: Vec<Send>,
    live: HashMap<SendKey, u64>,
    posted: VecDeque<(PathId, u64, u64)>,
    /// What was handed over whole: channel, its life, tag.
    pub(crate) delivered: BTreeSet<(ChannelId, u32, u64)>,
    /// The next number that would go out on each path.
    pub(crate) next_number: [u64; 2],
    pub(crate) down: Option<DownReason>,
    side: Side,
    /// Queue pairs can be made anew.
    renews: bool,
    seen: u64,
}

/// The generations of `side`: what it accepts on each path, and on the control queue pair.
pub(crate) fn generation(side: Side, path: u8) -> u32 {
    u32::from(path) * 2 + if side == Side::Client { 101 } else { 102 }
}

/// The generation of the control queue pair that `side` accepts.
pub(crate) fn control_generation(side: Side) -> u32 {
    if side == Side::Client { 11 } else { 12 }
}

pub(crate) fn other(side: Side) -> Side {
    if side == Side::Client { Side::Server } else { Side::Client }
}

fn pattern(tag: u64, segment: u8, offset: u32, length: u32) -> Vec<u8> {
    let start = tag.wrapping_mul(31) as u8 ^ segment;
    (offset..offset + length).map(|at| start.wrapping_add((at % 251) as u8)).collect()
}

impl Host {
    pub(crate) fn new(side: Side, paths: u8) -> Self {
        let config = LinkConfig::new(side)
            .sends_max(SENDS_MAX)
            .channels_max(4)
            .quota_chunks(QUOTA_CHUNKS)
            .credit_total(CREDIT_TOTAL)
            .message_bytes_max(1 << 20)
            .chunk_bytes_max(CHUNK_BYTES_MAX)
            .peer_timeout(Nanos::from_secs(10));
        let pair = |path| (generation(side, path), generation(other(side), path));
        let peer = PeerParams {
            mtu: Mtu::Mtu256,
            chunk_bytes_max: CHUNK_BYTES_MAX,
            charge_bytes: 0,
            window_bytes: 1 << 20,
            path_chunks: 4096,
            generations: (0..paths).map(pair).collect(),
            carriers: (0..paths).map(|_| towpath_proto::Carrier::Uc).collect(),
            control_generations: (control_generation(side), control_generation(other(side))),
        };
        Self {
            link: Link::new(config, peer, Time::ZERO),
            now: Time::ZERO,
            next_buf: 0,
            kept: BTreeMap::new(),
            ready: VecDeque::new(),
            order: BTreeMap::new(),
            reports: 0,
            streams: HashMap::new(),
            channels: BTreeMap::new(),
            sends: Vec::new(),
            live: HashMap::new(),
            posted: VecDeque::new(),
            delivered: BTreeSet::new(),
            next_number: [0; 2],
            down: None,
            side,
            renews: true,
            seen: 0,
        }
    }

    /// The `nth` channel that was ever heard of, or one that nobody knows.
    pub(crate) fn nth_channel(&self, nth: u8) -> ChannelId {
        let at = usize::from(nth) % (self.channels.len() + 1);
        self.channels.keys().nth(at).copied().unwrap_or(ChannelId(u32::from(nth)))
    }

    pub(crate) fn open(&mut self, ordered: bool) {
        if let Ok(id) = self.link.open_channel(ordered) {
            let channel = self.channels.entry(id).or_default();
            assert!(!channel.opening && !channel.open, "{id:?} is in use");
            (channel.opening, channel.ordered) = (true, ordered);
        }
    }

    pub(crate) fn send(&mut self, channel: ChannelId, segments: &[u32], deadline: Time) {
        let token = self.sends.len() as u64;
        let cut = if token.is_multiple_of(2) { Cut::Slices } else { Cut::FullPackets };
        let request = SendRequest { channel, token, segments, deadline, cut };
        let Ok(key) = self.link.send(&request) else {
            return;
        };
        let known = self.channels.get(&channel).filter(|known| known.open);
        assert!(known.is_some(), "only an open channel takes messages");
        assert!(key.index() < SENDS_MAX && self.link.sends_live() <= SENDS_MAX);
        assert!(self.live.insert(key, token).is_none(), "a key names one message");
        let segments = segments.to_vec();
        self.sends.push(Send { key, segments, posted: 0, outcome: None });
    }

    pub(crate) fn cancel(&mut self, nth: usize) {
        let Some(send) = self.sends.get(nth) else { return };
        let cancelled = self.link.cancel(send.key);
        assert!(send.outcome.is_none() || cancelled.is_err(), "it had ended");
    }

    pub(crate) fn release(&mut self, id: ChannelId, most: u32) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let chunks = channel.held.min(most);
        channel.held -= chunks;
        self.link.release(id, chunks);
    }

    pub(crate) fn release_all(&mut self) {
        let ids: Vec<ChannelId> = self.channels.keys().copied().collect();
        ids.into_iter().for_each(|id| self.release(id, u32::MAX));
    }

    /// Hands in a chunk as the device would; the link's word about the buffer is kept.
    pub(crate) fn give_chunk(
        &mut self,
        path: PathId,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
        tag: u64,
    ) {
        self.give_row(path, [(header, payload, tag)]);
    }

    /// Hands in chunks that came one behind the other on a path.
    fn give_row<'f>(
        &mut self,
        path: PathId,
        row: impl IntoIterator<Item = (&'f [u8; HEADER_BYTES], &'f [u8], u64)>,
    ) {
        let was_down = self.link.is_down();
        let mut arrivals = self.link.arrivals(self.now, path);
        for (header, payload, tag) in row {
            let buf = self.next_buf;
            self.next_buf += 1;
            let verdict = arrivals.take(header, payload, BufToken(buf), self.now);
            if verdict == Verdict::Kept {
                assert!(!was_down, "a link that is down keeps nothing");
                let length = payload.len() as u32;
                self.kept.insert(buf, Arrived { tag, length });
            }
        }
    }

    /// Hands in frames that the other end sent, chunks of one path in a row.
    pub(crate) fn give(&mut self, frames: &[Frame]) {
        let path_of = |frame: &Frame| match frame {
            Frame::Chunk { path, .. } => Some(*path),
            Frame::Ack(_) => None,
        };
        for row in frames.chunk_by(|one, next| path_of(one) == path_of(next)) {
            if let Some(path) = path_of(&row[0]) {
                self.give_row(path, row.iter().filter_map(Frame::as_chunk));
            } else {
                row.iter().filter_map(Frame::as_ack).for_each(|bytes| self.give_ack(bytes));
            }
        }
    }

    /// The queue pair of a path fails. The driver makes another when it is asked to, or cannot.
    pub(crate) fn fail_path(&mut self, path: u8, makes: bool) {
        self.link.path_failed(self.now, PathId(path));
        self.renews = makes;
    }

    /// What a driver does for queue pairs that have failed.
    fn renew(&mut self) {
        while let Some(renew) = self.link.poll_renew(self.now) {
            let Renew::Make { path } = renew else { continue };
            if self.renews {
                self.return_sent(usize::MAX, false);
                let (qp_num, psn) = (QpNum(7), Psn::new(9));
                let generation = generation(self.side, path.0);
                self.link.renewed(path, QpHalf { qp_num, psn, generation });
            } else {
                self.link.renewal_failed(self.now, path);
            }
        }
    }

    pub(crate) fn give_ack(&mut self, bytes: &[u8]) {
        self.link.handle_ack(self.now, bytes, self.now);
    }

    /// What the link wants to send now, at most `most` chunks; every one is sound.
    pub(crate) fn transmit(&mut self, most: usize, out: &mut Vec<Frame>) {
        if self.link.poll_timeout() <= self.now {
            self.link.handle_timeout(self.now);
        }
        self.renew();
        self.link.settle_piggyback();
        let (mut count, mut may_be_more) = (0, most > 0);
        while may_be_more && count < most {
            let mut run = Vec::new();
            may_be_more = self.link.poll_transmits(self.now, |transmit| {
                run.push(*transmit);
                count += 1;
                // Now and then there is room for one, now and then for some more.
                count < most && !count.is_multiple_of(5)
            });
            assert!((count as u64) <= NUMBER_WINDOW, "more than the window goes out at once");
            out.extend(run.iter().map(|transmit| self.post(transmit)));
        }
    }

    fn post(&mut self, transmit: &Transmit) -> Frame {
        assert!(self.down.is_none(), "nothing goes out after Down");
        let path = transmit.path;
        let mut header = transmit.header;
        let next = &mut self.next_number[usize::from(path.0)];
        assert_eq!(header.number, *next, "every transmission has a new number");
        *next += 1;
        let (mut payload, mut tag) = (Vec::new(), u64::MAX);
        if let Some(part) = transmit.payload {
            tag = *self.live.get(&part.send).expect("its bytes are still the device's");
            let send = &mut self.sends[tag as usize];
            let whole = send.segments[usize::from(part.segment)];
            assert!(part.length > 0 && part.offset + part.length <= whole, "{part:?} of {whole}");
            assert!(part.length <= CHUNK_BYTES_MAX, "no longer than the peer's buffers");
            assert_eq!(header.length, part.length);
            send.posted += 1;
            payload = pattern(tag, part.segment, part.offset, part.length);
            header.payload_crc = crc32c(&payload);
        }
        self.posted.push_back((path, header.number, tag));
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        assert_eq!(ChunkHeader::parse(&bytes), Ok(header), "what goes out keeps the rules");
        Frame::Chunk { path, header: bytes, payload, tag }
    }

    /// The acks that are due.
    pub(crate) fn acks(&mut self, out: &mut Vec<Frame>) {
        let mut bytes = [0; ACK_BYTES_MAX];
        for count in 0.. {
            let Some(ack) = self.link.poll_ack(self.now, &mut bytes) else { break };
            assert!(count < 64, "acks end");
            let bytes = &bytes[..ack.len];
            AckFrame::parse(bytes).expect("what goes out keeps the rules");
            out.push(match ack.path {
                None => Frame::Ack(bytes.to_vec()),
                Some(path) => {
                    let (header, body) = bytes.split_first_chunk().expect("it has a header");
                    let payload = body.to_vec();
                    Frame::Chunk { path, header: *header, payload, tag: u64::MAX }
                }
            });
        }
    }

    /// The device returns its oldest work requests.
    pub(crate) fn return_sent(&mut self, most: usize, stamped: bool) {
        for _ in 0..most.min(self.posted.len()) {
            let Some((path, number, tag)) = self.posted.pop_front() else { break };
            if let Some(send) = self.sends.get_mut(tag as usize) {
                send.posted -= 1;
            }
            self.link.handle_sent(path, number, stamped.then_some(self.now));
        }
    }

    /// The application takes at most `most` whole messages.
    pub(crate) fn take_messages(&mut self, most: usize) {
        for _ in 0..most.min(self.ready.len()) {
            let Some(Ready { report, incoming, length }) = self.ready.pop_front() else { break };
            let mut chunks = Vec::new();
            self.link.take_message(incoming, |taken| chunks.extend_from_slice(taken));
            let mut again = Vec::new();
            self.link.take_message(incoming, |taken| again.extend_from_slice(taken));
            assert!(again.is_empty() && !chunks.is_empty(), "a message is taken once");
            let mut end = 0;
            let mut tag = None;
            for (chunk, index) in chunks.iter().zip(0..) {
                assert_eq!((chunk.index, chunk.offset), (index, end), "whole and in order");
                end += chunk.length;
                let arrived = self.take_buf(report.channel, *chunk);
                assert_eq!(*tag.get_or_insert(arrived.tag), arrived.tag, "of one message");
            }
            assert_eq!(end, length);
            let tag = tag.expect("not empty");
            self.check_order(report, tag);
            assert!(self.delivered.insert((report.channel, report.life, tag)), "delivered once");
        }
    }

    /// The end of a link that is down: the device returns everything, the application lets go.
    pub(crate) fn finish(&mut self) {
        self.take_events();
        self.return_sent(usize::MAX, false);
        self.take_events();
        assert!(self.down.is_some(), "Down comes when everything is back");
        assert!(self.sends.iter().all(|send| send.outcome.is_some()));
        let mut frames = Vec::new();
        self.transmit(usize::MAX, &mut frames);
        self.acks(&mut frames);
        assert!(frames.is_empty() && self.link.poll_timeout() == Time::NEVER);
        self.take_messages(usize::MAX);
        self.release_all();
        self.take_events();
        assert!(self.kept.is_empty(), "{} buffers are lost", self.kept.len());
    }

    /// Nothing is left with an idle link.
    pub(crate) fn check_idle(&self) {
        assert!(self.link.is_idle() && self.kept.is_empty() && self.streams.is_empty());
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let over = self.down.is_some() || self.link.is_idle();
        self.posted.is_empty() && self.ready.is_empty() && over
    }
}
