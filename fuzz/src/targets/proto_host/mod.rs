//! An end of a link with a driver and an application that keep the contract, and books of both.

mod books;
mod growing;
mod lane;

use growing::Grown;
use lane::Lane;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use towpath_base::crc::crc32c;
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Time};
use towpath_proto::limits::{ACK_BYTES_MAX, HEADER_BYTES, NUMBER_WINDOW};
use towpath_proto::wire::{AckFrame, ChunkHeader, FrameTable, Kind};
use towpath_proto::{
    Arrival, BufToken, ChannelId, DownReason, IncomingKey, Link, LinkConfig, Outcome, PathId,
    PayloadRef, PeerParams, PieceBuffers, QpHalf, Renew, SendKey, SendRequest, Side, Transmit,
    Verdict,
};
use towpath_verbs::{Mtu, QpNum};

/// Small limits, so that short inputs reach them.
pub(crate) const SENDS_MAX: usize = 8;
pub(crate) const QUOTA_CHUNKS: u32 = 8;
pub(crate) const CREDIT_TOTAL: u32 = 32;
pub(crate) const CHUNK_BYTES_MAX: u32 = 512;

/// Messages that a host sends at most, so that a byte tells which.
const SENDS_EVER_MAX: usize = 250;

/// What travels as one.
#[derive(Clone)]
pub(crate) enum Flying {
    Chunk { path: PathId, header: [u8; HEADER_BYTES], body: Vec<u8> },
    Ack(Vec<u8>),
}

impl Flying {
    /// Flips a bit.
    pub(crate) fn corrupt(&mut self, nth: usize) {
        let bytes = match self {
            Self::Ack(bytes) => bytes.as_mut_slice(),
            Self::Chunk { body, .. } if nth % 2 == 1 && !body.is_empty() => body,
            Self::Chunk { header, .. } => header.as_mut_slice(),
        };
        let at = nth * 7 % bytes.len();
        bytes[at] ^= 1 << (nth % 8);
    }
}

/// A buffer of which the link keeps pieces: what lies in it, and how many.
struct Kept {
    bytes: Vec<u8>,
    pieces: u16,
}

/// The buffers of a driver.
#[derive(Default)]
pub(crate) struct Bufs {
    kept: BTreeMap<u32, Kept>,
    next: u32,
    /// There is none for pieces in parts.
    pub(crate) is_short: bool,
}

impl Bufs {
    fn next(&mut self) -> BufToken {
        self.next += 1;
        BufToken(self.next)
    }

    fn keep(&mut self, buf: BufToken, bytes: Vec<u8>, pieces: u16) {
        assert!(pieces > 0, "who keeps nothing recycles");
        assert!(self.kept.insert(buf.0, Kept { bytes, pieces }).is_none(), "kept once");
    }

    fn let_go(&mut self, buf: BufToken) {
        let kept = self.kept.get_mut(&buf.0).expect("a piece comes back once");
        kept.pieces -= 1;
        if kept.pieces == 0 {
            self.kept.remove(&buf.0);
        }
    }

    fn pieces(&self) -> u32 {
        self.kept.values().map(|kept| u32::from(kept.pieces)).sum()
    }
}

impl PieceBuffers for Bufs {
    fn take(&mut self, length: u32) -> Option<BufToken> {
        assert!((1..=CHUNK_BYTES_MAX).contains(&length), "a piece of {length} bytes");
        if self.is_short {
            return None;
        }
        let buf = self.next();
        self.keep(buf, vec![0; length as usize], 1);
        Some(buf)
    }

    fn write(&mut self, buf: BufToken, at: u32, bytes: &[u8]) {
        let kept = self.kept.get_mut(&buf.0).expect("it was taken");
        kept.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn give_back(&mut self, buf: BufToken) {
        self.let_go(buf);
    }
}

/// A message that was sent, by its token.
pub(crate) struct Send {
    key: SendKey,
    segments: Vec<u32>,
    posted: u32,
    /// What was supplied of its last segment, if that comes later.
    grown: Option<Grown>,
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
    /// Received pieces that were not released.
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

/// Part of a message, by its token, that a chunk carries.
type Carried = (u64, PayloadRef);

/// How far a stream was read.
struct Stream {
    report: Report,
    tag: u64,
    end: u32,
}

pub(crate) struct Host {
    pub(crate) link: Link,
    pub(crate) now: Time,
    pub(crate) bufs: Bufs,
    /// Whole messages that were reported and not taken.
    ready: VecDeque<Ready>,
    /// Messages of ordered channels in the order of their reports: channel, life, which report.
    order: BTreeMap<(ChannelId, u32, u64), u64>,
    reports: u64,
    streams: HashMap<IncomingKey, Stream>,
    pub(crate) channels: BTreeMap<ChannelId, Channel>,
    pub(crate) sends: Vec<Send>,
    live: HashMap<SendKey, u64>,
    posted: VecDeque<(PathId, u64, Vec<Carried>)>,
    /// What was handed over whole: channel, its life, tag.
    pub(crate) delivered: BTreeSet<(ChannelId, u32, u64)>,
    /// The next number that would go out on each path.
    pub(crate) next_number: [u64; 2],
    pub(crate) down: Option<DownReason>,
    pub(crate) lane: Lane,
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

/// The byte of a message at `offset`.
pub(crate) fn byte_of(tag: u8, offset: u32) -> u8 {
    tag ^ (offset % 251) as u8
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
            bufs: Bufs::default(),
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
            lane: Lane::default(),
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
        self.send_or_grow(channel, segments, deadline, false);
    }

    fn send_or_grow(&mut self, channel: ChannelId, segments: &[u32], deadline: Time, grows: bool) {
        if self.sends.len() == SENDS_EVER_MAX {
            return;
        }
        let token = self.sends.len() as u64;
        let at_pages = token % 2 == 1;
        let request = SendRequest { channel, token, segments, deadline, at_pages };
        let link = &mut self.link;
        let sent = if grows { link.send_growing(&request) } else { link.send(&request) };
        let Ok(key) = sent else {
            return;
        };
        let known = self.channels.get(&channel).filter(|known| known.open);
        assert!(known.is_some(), "only an open channel takes messages");
        assert!(key.index() < SENDS_MAX && self.link.sends_live() <= SENDS_MAX);
        assert!(self.live.insert(key, token).is_none(), "a key names one message");
        let segments = segments.to_vec();
        let grown = grows.then(Grown::default);
        self.sends.push(Send { key, segments, posted: 0, grown, outcome: None });
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
    pub(crate) fn give_chunk(&mut self, path: PathId, header: &[u8; HEADER_BYTES], body: &[u8]) {
        let was_down = self.link.is_down();
        let buf = self.bufs.next();
        let arrival = Arrival { header, body, buf, may_keep: true, received_at: self.now };
        let verdict = self.link.handle_chunk(self.now, path, &arrival, &mut self.bufs);
        if let Verdict::Kept(pieces) = verdict {
            assert!(!was_down, "a link that is down keeps nothing");
            self.bufs.keep(buf, body.to_vec(), pieces);
        }
    }

    /// Hands in frames that the other end sent.
    pub(crate) fn give(&mut self, frames: &[Flying]) {
        for frame in frames {
            match frame {
                Flying::Chunk { path, header, body } => self.give_chunk(*path, header, body),
                Flying::Ack(bytes) => self.give_ack(bytes),
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
    pub(crate) fn transmit(&mut self, most: usize, out: &mut Vec<Flying>) {
        if self.link.poll_timeout() <= self.now {
            self.link.handle_timeout(self.now);
        }
        self.renew();
        self.drive_lane();
        self.link.settle_piggyback();
        let (mut count, mut may_be_more) = (0, most > 0);
        while may_be_more && count < most {
            let mut run = Vec::new();
            may_be_more = self.link.poll_transmits(self.now, |transmit| {
                run.push(transmit.clone());
                count += 1;
                // Now and then there is room for one, now and then for some more.
                count < most && !count.is_multiple_of(5)
            });
            assert!((count as u64) <= NUMBER_WINDOW, "more than the window goes out at once");
            out.extend(run.iter().map(|transmit| self.post(transmit)));
        }
    }

    fn post(&mut self, transmit: &Transmit) -> Flying {
        assert!(self.down.is_none(), "nothing goes out after Down");
        let path = transmit.path;
        let mut header = transmit.header;
        let next = &mut self.next_number[usize::from(path.0)];
        assert_eq!(header.number, *next, "every transmission has a new number");
        *next += 1;
        let (mut body, mut tags) = (Vec::new(), Vec::new());
        let Self { live, sends, .. } = self;
        transmit.emit_body(&mut body, |part, body| {
            let tag = *live.get(&part.send).expect("its bytes are still the device's");
            let send = &mut sends[tag as usize];
            let at = usize::from(part.segment);
            let whole = send.segments[at];
            assert!(part.length > 0 && part.offset + part.length <= whole, "{part:?} of {whole}");
            if let Some(grown) = send.grown.as_ref().filter(|_| at == 1) {
                assert!(grown.has(part), "{part:?} of {grown:?}");
            }
            let from = send.segments[..at].iter().sum::<u32>() + part.offset;
            body.extend((from..from + part.length).map(|at| byte_of(tag as u8, at)));
            send.posted += 1;
            tags.push((tag, *part));
        });
        assert!(body.len() <= CHUNK_BYTES_MAX as usize, "no longer than the peer's buffers");
        header.body_crc = crc32c(&body);
        self.posted.push_back((path, header.number, tags));
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        assert_eq!(ChunkHeader::parse(&bytes), Ok(header), "what goes out keeps the rules");
        if header.kind == Kind::Data {
            let table = FrameTable::parse(&header, &body).expect("what goes out keeps the rules");
            assert_eq!(1 + table.others().count(), transmit.frames.len());
        }
        Flying::Chunk { path, header: bytes, body }
    }

    /// The acks that are due.
    pub(crate) fn acks(&mut self, out: &mut Vec<Flying>) {
        let mut bytes = [0; ACK_BYTES_MAX];
        for count in 0.. {
            let Some(ack) = self.link.poll_ack(self.now, &mut bytes) else { break };
            assert!(count < 64, "acks end");
            let bytes = &bytes[..ack.len];
            AckFrame::parse(bytes).expect("what goes out keeps the rules");
            out.push(match ack.path {
                None => Flying::Ack(bytes.to_vec()),
                Some(path) => {
                    let (header, body) = bytes.split_first_chunk().expect("it has a header");
                    Flying::Chunk { path, header: *header, body: body.to_vec() }
                }
            });
        }
    }

    /// The device returns its oldest work requests.
    pub(crate) fn return_sent(&mut self, most: usize, stamped: bool) {
        for _ in 0..most.min(self.posted.len()) {
            let Some((path, number, tags)) = self.posted.pop_front() else { break };
            for (tag, _) in tags {
                self.sends[tag as usize].posted -= 1;
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
                assert_eq!(*tag.get_or_insert(arrived), arrived, "of one message");
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
        self.end_ops(usize::MAX, towpath_proto::OpEnd::Lost);
        self.take_events();
        assert!(self.lane.live.is_empty(), "each operation has had its outcome");
        assert!(self.down.is_some(), "Down comes when everything is back");
        assert!(self.sends.iter().all(|send| send.outcome.is_some()));
        let mut frames = Vec::new();
        self.transmit(usize::MAX, &mut frames);
        self.acks(&mut frames);
        assert!(frames.is_empty() && self.link.poll_timeout() == Time::NEVER);
        self.take_messages(usize::MAX);
        self.release_all();
        self.take_events();
        assert!(self.bufs.kept.is_empty(), "{} buffers are lost", self.bufs.kept.len());
    }

    /// Nothing is left with an idle link.
    pub(crate) fn check_idle(&self) {
        assert!(self.link.is_idle() && self.bufs.kept.is_empty() && self.streams.is_empty());
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let over = self.down.is_some() || self.link.is_idle();
        self.posted.is_empty() && self.ready.is_empty() && over && self.has_no_ops()
    }
}
