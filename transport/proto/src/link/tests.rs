//! Two links joined by a simulated wire: loss, duplication, reordering, credit, giving up.

use super::*;
use crate::event::{BufToken, ChannelId, Event, Outcome, Verdict};
use crate::limits::ACK_BYTES_MAX;
use crate::{Side, wire::ChunkHeader};
use alloc::collections::BTreeMap;
use alloc::vec;
use std::println;
use towpath_base::Prng;
use towpath_verbs::Mtu;

extern crate std;

/// What the wire carries.
#[derive(Clone)]
enum Frame {
    Chunk { header: [u8; HEADER_BYTES], payload: Vec<u8> },
    Ack(Vec<u8>),
}

/// What the wire does to frames.
#[derive(Clone, Copy, Default)]
struct Faults {
    drop: f64,
    duplicate: f64,
    late: f64,
    corrupt: f64,
}

/// One end: a link, its received buffers, and what its application saw.
struct End {
    link: Link,
    bufs: BTreeMap<u32, Vec<u8>>,
    next_buf: u32,
    /// Messages that are out, by token.
    sending: BTreeMap<u64, (SendKey, Vec<u8>)>,
    outcomes: BTreeMap<u64, Outcome>,
    received: Vec<Vec<u8>>,
    streams: BTreeMap<IncomingId, Vec<u8>>,
    aborted: usize,
    channels: Vec<ChannelId>,
    /// Received chunks are kept while this is set.
    hoards: bool,
    hoarded: u32,
    down: Option<DownReason>,
}

type IncomingId = (u32, u32);

const DELAY: u64 = 5_000;

struct Wire {
    now: Time,
    ends: [End; 2],
    /// Frames in flight by time and order: to which end.
    flight: BTreeMap<(u64, u64), (usize, Frame)>,
    sequence: u64,
    faults: Faults,
    prng: Prng,
}

fn link(side: Side, tune: impl Fn(LinkConfig) -> LinkConfig) -> Link {
    let (ours, theirs) = match side {
        Side::Client => (1, 2),
        Side::Server => (2, 1),
    };
    let peer = PeerParams {
        mtu: Mtu::Mtu4096,
        chunk_bytes_max: 56 << 10,
        charge_bytes: 0,
        window_bytes: 1 << 20,
        generations: vec![(ours, theirs)],
        control_generations: (10 + ours, 10 + theirs),
    };
    Link::new(tune(LinkConfig::new(side)), peer, Time::ZERO)
}

impl End {
    fn new(link: Link) -> Self {
        Self {
            link,
            bufs: BTreeMap::new(),
            next_buf: 0,
            sending: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            received: Vec::new(),
            streams: BTreeMap::new(),
            aborted: 0,
            channels: Vec::new(),
            hoards: false,
            hoarded: 0,
            down: None,
        }
    }

    fn send(&mut self, channel: ChannelId, token: u64, payload: Vec<u8>, deadline: Time) {
        let segments = [payload.len() as u32];
        let request = SendRequest { channel, token, segments: &segments, deadline };
        let key = self.link.send(&request).unwrap();
        self.sending.insert(token, (key, payload));
    }

    fn take_events(&mut self) {
        while let Some(event) = self.link.poll_event() {
            self.on_event(event);
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Opened { channel, .. } => self.channels.push(channel),
            Event::Closed { channel, .. } => self.channels.retain(|&other| other != channel),
            Event::Message { channel, incoming, length } => {
                let mut chunks = Vec::new();
                self.link.take_message(incoming, &mut chunks);
                let mut whole = Vec::new();
                for chunk in &chunks {
                    whole.extend(self.bufs.remove(&chunk.buf.0).expect("a buffer comes out once"));
                }
                assert_eq!(whole.len(), length as usize);
                self.received.push(whole);
                self.release(channel, chunks.len() as u32);
            }
            Event::StreamChunk { channel, incoming, chunk, message_len, end } => {
                let id = (channel.0, incoming.0.index);
                let stream = self.streams.entry(id).or_default();
                assert_eq!(stream.len(), chunk.offset as usize, "in order");
                stream.extend(self.bufs.remove(&chunk.buf.0).unwrap());
                assert_eq!(end, stream.len() == message_len as usize);
                if end {
                    self.received.push(self.streams.remove(&id).unwrap());
                }
                self.release(channel, 1);
            }
            Event::StreamAborted { channel, incoming } => {
                self.aborted += 1;
                assert!(self.streams.remove(&(channel.0, incoming.0.index)).is_some());
            }
            Event::Recycled { buf } => assert!(self.bufs.remove(&buf.0).is_some()),
            Event::Sent { token, outcome, send } => {
                let (key, _) = self.sending.remove(&token).expect("reported once");
                assert_eq!(key, send);
                self.outcomes.insert(token, outcome);
            }
            Event::Down { reason } => self.down = Some(reason),
        }
    }

    fn release(&mut self, channel: ChannelId, chunks: u32) {
        if self.hoards {
            self.hoarded += chunks;
        } else {
            self.link.release(channel, chunks);
        }
    }
}

impl Wire {
    fn new(seed: u64, faults: Faults, tune: impl Fn(LinkConfig) -> LinkConfig) -> Self {
        let ends = [Side::Client, Side::Server].map(|side| End::new(link(side, &tune)));
        Self {
            now: Time::ZERO,
            ends,
            flight: BTreeMap::new(),
            sequence: 0,
            faults,
            prng: Prng::new(seed),
        }
    }

    /// With one channel open.
    fn open(seed: u64, faults: Faults, ordered: bool) -> (Self, ChannelId) {
        Self::open_tuned(seed, faults, ordered, |config| config)
    }

    fn open_tuned(
        seed: u64,
        faults: Faults,
        ordered: bool,
        tune: impl Fn(LinkConfig) -> LinkConfig,
    ) -> (Self, ChannelId) {
        let mut wire = Self::new(seed, faults, tune);
        let channel = wire.ends[0].link.open_channel(ordered).unwrap();
        wire.run_until(|wire| wire.ends.iter().all(|end| end.channels == [channel]));
        (wire, channel)
    }

    fn post(&mut self, to: usize, frame: Frame) {
        if self.prng.chance(self.faults.drop) {
            return;
        }
        if self.prng.chance(self.faults.duplicate) {
            let delay = DELAY + self.prng.below(50_000);
            self.put(to, frame.clone(), delay);
        }
        let late = self.prng.chance(self.faults.late);
        let delay = if late { DELAY + self.prng.below(20_000_000) } else { DELAY };
        let frame =
            if self.prng.chance(self.faults.corrupt) { self.corrupted(frame) } else { frame };
        self.put(to, frame, delay);
    }

    fn corrupted(&mut self, mut frame: Frame) -> Frame {
        let bytes = match &mut frame {
            Frame::Ack(bytes) => bytes.as_mut_slice(),
            Frame::Chunk { payload, .. } if !payload.is_empty() && self.prng.chance(0.5) => payload,
            Frame::Chunk { header, .. } => header.as_mut_slice(),
        };
        let bit = self.prng.below(bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        frame
    }

    fn put(&mut self, to: usize, frame: Frame, delay: u64) {
        self.sequence += 1;
        self.flight.insert((self.now.0 + delay, self.sequence), (to, frame));
    }

    /// One turn of an end's driver.
    fn turn(&mut self, at: usize) {
        self.ends[at].take_events();
        let now = self.now;
        if self.ends[at].link.poll_timeout() <= now {
            self.ends[at].link.handle_timeout(now);
        }
        while let Some(transmit) = self.ends[at].link.poll_transmit(now) {
            let payload = match transmit.payload {
                None => Vec::new(),
                Some(part) => {
                    let mut sending = self.ends[at].sending.values();
                    let (_, bytes) = sending.find(|(key, _)| *key == part.send).unwrap();
                    bytes[part.offset as usize..][..part.length as usize].to_vec()
                }
            };
            let mut header = [0; HEADER_BYTES];
            let crc = towpath_base::crc::crc32c(&payload);
            ChunkHeader { payload_crc: crc, ..transmit.header }.emit(&mut header);
            self.post(1 - at, Frame::Chunk { header, payload });
            let link = &mut self.ends[at].link;
            link.handle_sent(transmit.path, transmit.header.number, None);
        }
        let mut out = [0; ACK_BYTES_MAX];
        while let Some(len) = self.ends[at].link.poll_ack(now, &mut out) {
            self.post(1 - at, Frame::Ack(out[..len].to_vec()));
        }
        self.ends[at].take_events();
    }

    fn deliver(&mut self, to: usize, frame: Frame) {
        let end = &mut self.ends[to];
        match frame {
            Frame::Ack(bytes) => end.link.handle_ack(self.now, &bytes),
            Frame::Chunk { header, payload } => {
                let buf = BufToken(end.next_buf);
                end.next_buf += 1;
                let path = PathId(0);
                let verdict =
                    end.link.handle_chunk(self.now, path, &header, &payload, buf, self.now);
                if verdict == Verdict::Kept {
                    end.bufs.insert(buf.0, payload);
                }
            }
        }
    }

    /// Runs until `done`; everything must be done within a simulated minute.
    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        loop {
            self.turn(0);
            self.turn(1);
            if done(self) {
                return;
            }
            let timers = self.ends.iter().map(|end| end.link.poll_timeout());
            let arrival = self.flight.keys().next().map_or(Time::NEVER, |&(at, _)| Time(at));
            let next = timers.min().unwrap().min(arrival);
            assert!(next < self.now + Nanos::from_secs(60), "nothing would ever happen");
            self.now = self.now.max(next);
            while let Some(entry) = self.flight.first_entry() {
                if entry.key().0 > self.now.0 {
                    break;
                }
                let (to, frame) = entry.remove();
                self.deliver(to, frame);
            }
        }
    }

    fn settled(&self) -> bool {
        self.ends.iter().all(|end| end.sending.is_empty() && end.link.is_idle())
    }

    /// Nothing is left behind at either end.
    fn check_clean(&self) {
        for end in &self.ends {
            assert!(end.bufs.is_empty() && end.streams.is_empty());
            assert_eq!((end.link.sends.len(), end.link.incoming.len()), (0, 0));
        }
    }
}

fn content(prng: &mut Prng, token: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    prng.fill(&mut bytes);
    let mark = token.to_le_bytes();
    let marked = len.min(8);
    bytes[..marked].copy_from_slice(&mark[..marked]);
    bytes
}

fn any_len(prng: &mut Prng) -> usize {
    match prng.below(10) {
        0..5 => prng.between(8, 300) as usize,
        5..9 => prng.between(8, 200_000) as usize,
        _ => prng.between(8, 2_000_000) as usize,
    }
}

const ALL_FAULTS: Faults = Faults { drop: 0.03, duplicate: 0.03, late: 0.02, corrupt: 0.02 };

fn exchange(seed: u64, ordered: bool, faults: Faults) -> Wire {
    println!("seed {seed} ordered {ordered}");
    let (mut wire, channel) = Wire::open(seed, faults, ordered);
    let mut prng = Prng::new(seed ^ 0x5eed);
    let mut sent = [Vec::new(), Vec::new()];
    for token in 0..60 {
        for (at, sent) in sent.iter_mut().enumerate() {
            let len = any_len(&mut prng);
            let bytes = content(&mut prng, token, len);
            sent.push(bytes.clone());
            wire.ends[at].send(channel, token, bytes, Time::NEVER);
        }
        wire.turn((token % 2) as usize);
    }
    wire.run_until(Wire::settled);
    for (at, mut sent) in sent.into_iter().enumerate() {
        let mut received = wire.ends[1 - at].received.clone();
        if !ordered {
            sent.sort();
            received.sort();
        }
        assert!(received == sent, "seed {seed}: messages of end {at} differ");
        assert!(wire.ends[at].outcomes.values().all(|&o| o == Outcome::Delivered));
    }
    wire.check_clean();
    wire
}

#[test]
fn messages_arrive_once_and_intact_under_all_faults_ordered_and_not() {
    for seed in 0..60 {
        exchange(seed, seed % 2 == 0, ALL_FAULTS);
    }
}

#[test]
fn without_faults_nothing_is_sent_twice_and_no_timer_fires() {
    let wire = exchange(1, true, Faults::default());
    for end in &wire.ends {
        let stats = end.link.stats();
        assert_eq!((stats.chunks_retransmitted, stats.rtos, stats.tail_probes), (0, 0, 0));
        assert_eq!((stats.violations, stats.chunks_duplicate), (0, 0));
    }
}

#[test]
fn loss_alone_is_repaired_by_gaps_and_almost_never_by_timeouts() {
    let wire = exchange(7, false, Faults { drop: 0.02, ..Faults::default() });
    let stats = wire.ends[0].link.stats();
    assert!(stats.losses_by_gap > 0);
    assert!(stats.rtos <= 2, "{stats:?}");
}

#[test]
fn a_reader_that_keeps_its_buffers_stops_its_channel_and_probes_find_the_new_grant() {
    let (mut wire, channel) = Wire::open(3, Faults { drop: 0.2, ..Faults::default() }, true);
    wire.ends[1].hoards = true;
    for token in 0..400 {
        wire.ends[0].send(channel, token, vec![1; 100], Time::NEVER);
    }
    let quota = 128;
    wire.run_until(|wire| wire.ends[0].link.stats().credit_probes > 3);
    assert_eq!((wire.ends[1].received.len(), wire.ends[1].hoarded), (quota, quota as u32));
    wire.ends[1].hoards = false;
    let hoarded = core::mem::take(&mut wire.ends[1].hoarded);
    wire.ends[1].link.release(channel, hoarded);
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[1].received.len(), 400);
    assert_eq!(wire.ends[1].link.stats().violations, 0);
}

#[test]
fn a_cancelled_message_has_the_outcome_that_its_receiver_saw() {
    for seed in 0..60 {
        println!("seed {seed}");
        let (mut wire, channel) = Wire::open(seed, ALL_FAULTS, seed % 2 == 0);
        let mut prng = Prng::new(seed);
        let mut contents = Vec::new();
        for token in 0..40 {
            let len = any_len(&mut prng);
            contents.push(content(&mut prng, token, len));
            let deadline = wire.now + Nanos(prng.below(400_000));
            let deadline = if prng.chance(0.5) { deadline } else { Time::NEVER };
            wire.ends[0].send(channel, token, contents[token as usize].clone(), deadline);
            wire.turn(0);
            if prng.chance(0.2) {
                let (key, _) = wire.ends[0].sending[&token].clone();
                wire.ends[0].link.cancel(key).unwrap();
            }
        }
        wire.run_until(Wire::settled);
        for (token, bytes) in contents.iter().enumerate() {
            let seen = wire.ends[1].received.iter().filter(|r| *r == bytes).count();
            let want = match wire.ends[0].outcomes[&(token as u64)] {
                Outcome::Delivered => 1,
                Outcome::Abandoned => 0,
                Outcome::Unknown => panic!("the peer was never gone"),
            };
            assert_eq!(seen, want, "seed {seed} token {token}");
        }
        wire.check_clean();
    }
}

#[test]
fn a_deadline_frees_a_stream_at_both_ends_and_the_reader_is_told() {
    let (mut wire, channel) = Wire::open(5, Faults::default(), true);
    let deadline = wire.now + Nanos::from_micros(100);
    wire.ends[0].send(channel, 1, vec![7; 16 << 20], deadline);
    wire.ends[0].send(channel, 2, vec![8; 10], Time::NEVER);
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[0].outcomes[&1], Outcome::Abandoned);
    assert_eq!((wire.ends[1].aborted, &wire.ends[1].received), (1, &vec![vec![8; 10]]));
    wire.check_clean();
}

#[test]
fn a_silent_peer_ends_the_link_and_every_message_has_an_outcome() {
    let (mut wire, channel) = Wire::open(5, Faults::default(), true);
    wire.faults.drop = 1.0;
    wire.ends[0].send(channel, 1, vec![7; 1000], Time::NEVER);
    for token in 2..20 {
        wire.ends[0].send(channel, token, vec![7; 1 << 20], Time::NEVER);
    }
    wire.run_until(|wire| wire.ends[0].down.is_some());
    assert!(matches!(wire.ends[0].down, Some(DownReason::Silent(_))));
    assert_eq!(wire.ends[0].outcomes[&1], Outcome::Unknown);
    assert_eq!(wire.ends[0].outcomes[&19], Outcome::Abandoned, "nothing of it was sent");
    assert_eq!(wire.ends[0].outcomes.len(), 19);
}

#[test]
fn goodbye_delivers_what_is_queued_and_then_ends_both_ends() {
    for seed in 0..20 {
        let (mut wire, channel) = Wire::open(seed, ALL_FAULTS, true);
        for token in 0..20 {
            wire.ends[0].send(channel, token, vec![7; 10_000], Time::NEVER);
        }
        wire.ends[0].link.goodbye();
        wire.run_until(|wire| wire.ends.iter().all(|end| end.down.is_some()));
        assert_eq!(wire.ends[0].down, Some(DownReason::Local));
        assert_eq!(wire.ends[1].down, Some(DownReason::Goodbye));
        assert_eq!(wire.ends[1].received.len(), 20);
    }
}

#[test]
fn channels_open_and_close_many_times_and_leave_nothing() {
    let mut wire = Wire::new(9, ALL_FAULTS, |config| config);
    for round in 0..100u64 {
        let at = (round % 2) as usize;
        let channel = wire.ends[at].link.open_channel(true).unwrap();
        wire.run_until(|wire| wire.ends.iter().all(|end| end.channels == [channel]));
        wire.ends[at].send(channel, round, vec![round as u8; 100], Time::NEVER);
        wire.ends[at].link.close_channel(channel).unwrap();
        wire.run_until(|wire| wire.ends.iter().all(|end| end.channels.is_empty()));
        assert_eq!(wire.ends[at].outcomes[&round], Outcome::Delivered);
    }
    wire.run_until(Wire::settled);
    for end in &wire.ends {
        assert_eq!((end.link.channels_open, end.link.quota_sum), (0, 0));
    }
}

#[test]
fn a_channel_beyond_the_total_credit_is_refused_at_both_ends() {
    let mut wire = Wire::new(1, Faults::default(), |config| config);
    for _ in 0..2 {
        wire.ends[0].link.open_channel(false).unwrap();
    }
    assert_eq!(wire.ends[0].link.open_channel(false), Err(OpenError::NoCredit));
    wire.run_until(|wire| wire.ends[1].channels.len() == 2);
    assert_eq!(wire.ends[1].link.open_channel(false), Err(OpenError::NoCredit));
}
