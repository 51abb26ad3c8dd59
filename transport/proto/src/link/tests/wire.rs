//! Two links joined by a simulated wire that drops, duplicates, delays and corrupts.

use super::end::End;
use super::*;
use crate::event::{ChannelId, Transmit};
use crate::limits::{ACK_BYTES_MAX, HEADER_BYTES, PATHS_MAX};
use crate::{Carrier, QpHalf, Renew, Side, wire::ChunkHeader};
use alloc::collections::BTreeMap;
use towpath_base::Prng;
use towpath_base::serial::Psn;
use towpath_verbs::{Mtu, QpNum};

extern crate std;

/// What the wire carries.
#[derive(Clone)]
pub(super) enum Frame {
    Chunk { path: PathId, header: [u8; HEADER_BYTES], payload: Vec<u8> },
    Ack(Vec<u8>),
}

/// What the wire does to frames.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) drop: f64,
    pub(super) duplicate: f64,
    pub(super) late: f64,
    pub(super) corrupt: f64,
}

/// Headers that were sent: when, by which end, on which path.
pub(super) type Trace = Vec<(Time, usize, PathId, [u8; HEADER_BYTES])>;

pub(super) const DELAY: u64 = 5_000;

/// What paths with queues are longer beside.
const QUEUED_DELAY: u64 = 45_000;

pub(super) struct Wire {
    pub(super) now: Time,
    pub(super) ends: [End; 2],
    /// Frames in flight by time and order: to which end.
    pub(super) flight: BTreeMap<(u64, u64), (usize, Frame)>,
    pub(super) sequence: u64,
    pub(super) faults: Faults,
    /// Chunks to each end that the wire has dropped.
    pub(super) dropped: [u64; 2],
    /// Source ports that swallow what is sent to an end. Acks that leave the control queue pair
    /// take the first path's way.
    pub(super) holes: [u64; 2],
    /// Paths that swallow everything both ways, as those of a NIC that is down do.
    pub(super) down: u64,
    /// Acks of each end that left by its control queue pair.
    pub(super) control_acks: [u64; 2],
    /// Where the paths of each end leave from, and the control queue pair last.
    pub(super) ports: [[u16; PATHS_MAX + 1]; 2],
    /// Bytes of the longest packet that gets to an end.
    pub(super) longest: [usize; 2],
    /// Paths on which that is so: all of them at first.
    pub(super) narrow: u64,
    /// Bytes of the longest SEND that gets through: longer ones come out of order, say.
    pub(super) bears: usize,
    /// What is sent is later by up to so many ns, each by itself. A SEND of several packets comes
    /// out of order then, and UC drops it, four times in five.
    pub(super) jitter: u64,
    /// What a byte to the second end takes on each path, in ns; zero where there is no queue.
    pub(super) byte_ns: [u64; PATHS_MAX],
    /// When each of these queues is empty, and for how long chunks have waited there: the sum, and
    /// how many.
    pub(super) queues: [(u64, u64, u64); PATHS_MAX],
    /// Queue pairs that have failed are made anew where a driver is asked to.
    pub(super) renews: bool,
    /// Until then an end has no processor: nobody takes in what has come.
    pub(super) away_until: [Time; 2],
    /// Changes of ports: when, at which end.
    pub(super) moves: Vec<(Time, usize)>,
    /// How many chunks a driver has room for at a time, at most.
    pub(super) room_max: u64,
    /// How many frames are handed in at a time, at most.
    pub(super) row_max: usize,
    /// What was sent, where someone wants to know.
    pub(super) trace: Option<Trace>,
    pub(super) prng: Prng,
    room_prng: Prng,
}

fn link(side: Side, carriers: &[Carrier], tune: impl Fn(LinkConfig) -> LinkConfig) -> Link {
    let (ours, theirs) = match side {
        Side::Client => (1, 2),
        Side::Server => (2, 1),
    };
    let pair = |path| (ours + 100 * path, theirs + 100 * path);
    let peer = PeerParams {
        mtu: Mtu::Mtu4096,
        chunk_bytes_max: 56 << 10,
        charge_bytes: 0,
        window_bytes: 1 << 20,
        path_chunks: 4096,
        generations: (0..carriers.len() as u32).map(pair).collect(),
        carriers: carriers.to_vec(),
        control_generations: (10 + ours, 10 + theirs),
    };
    Link::new(tune(LinkConfig::new(side)), peer, Time::ZERO)
}

/// Path i leaves from port i, and the control queue pair from the first path's.
fn first_ports() -> [u16; PATHS_MAX + 1] {
    core::array::from_fn(|path| (path % PATHS_MAX) as u16)
}

impl Wire {
    pub(super) fn new(seed: u64, faults: Faults, tune: impl Fn(LinkConfig) -> LinkConfig) -> Self {
        Self::with_paths(seed, faults, 1, tune)
    }

    pub(super) fn with_paths(
        seed: u64,
        faults: Faults,
        paths: u32,
        tune: impl Fn(LinkConfig) -> LinkConfig,
    ) -> Self {
        let carriers = alloc::vec![Carrier::Uc; paths as usize];
        Self::with_carriers(seed, faults, &carriers, tune)
    }

    pub(super) fn with_carriers(
        seed: u64,
        faults: Faults,
        carriers: &[Carrier],
        tune: impl Fn(LinkConfig) -> LinkConfig,
    ) -> Self {
        let end = |side| End::new(link(side, carriers, &tune));
        let ends = [Side::Client, Side::Server].map(end);
        Self {
            now: Time::ZERO,
            ends,
            flight: BTreeMap::new(),
            sequence: 0,
            faults,
            dropped: [0; 2],
            holes: [0; 2],
            down: 0,
            control_acks: [0; 2],
            longest: [usize::MAX; 2],
            narrow: u64::MAX,
            ports: [first_ports(); 2],
            bears: usize::MAX,
            jitter: 0,
            byte_ns: [0; PATHS_MAX],
            queues: [(0, 0, 0); PATHS_MAX],
            renews: false,
            away_until: [Time::ZERO; 2],
            moves: Vec::new(),
            room_max: 16,
            row_max: 64,
            trace: None,
            prng: Prng::new(seed),
            room_prng: Prng::new(seed),
        }
    }

    /// With one channel open.
    pub(super) fn open(seed: u64, faults: Faults, ordered: bool) -> (Self, ChannelId) {
        Self::open_tuned(seed, faults, ordered, |config| config)
    }

    pub(super) fn open_tuned(
        seed: u64,
        faults: Faults,
        ordered: bool,
        tune: impl Fn(LinkConfig) -> LinkConfig,
    ) -> (Self, ChannelId) {
        let mut wire = Self::new(seed, faults, tune);
        let channel = wire.open_channel(0, ordered);
        (wire, channel)
    }

    /// Opens the only channel from the end `at`, and waits until both ends have it.
    pub(super) fn open_channel(&mut self, at: usize, ordered: bool) -> ChannelId {
        let channel = self.ends[at].link.open_channel(ordered).unwrap();
        self.run_until(|wire| wire.ends.iter().all(|end| end.channels == [channel]));
        channel
    }

    pub(super) fn post(&mut self, to: usize, frame: Frame) {
        let way = match &frame {
            Frame::Chunk { path, .. } => usize::from(path.0),
            Frame::Ack(_) => PATHS_MAX,
        };
        let is_down = self.down & 1 << (way % PATHS_MAX) != 0;
        if is_down || self.holes[to] & 1 << self.ports[1 - to][way] != 0 {
            return;
        }
        let carrier = self.ends[to].link.paths().nth(way).map(|path| path.carrier);
        if carrier.is_some_and(Carrier::is_reliable) {
            return self.put(to, frame, DELAY);
        }
        if self.prng.chance(self.faults.drop) {
            let is_ack = |header: &[u8; HEADER_BYTES]| header[1] == crate::wire::KIND_ACK;
            let is_chunk = matches!(&frame, Frame::Chunk { header, .. } if !is_ack(header));
            self.dropped[to] += u64::from(is_chunk);
            return;
        }
        if self.prng.chance(self.faults.duplicate) {
            let delay = DELAY + self.prng.below(50_000);
            self.put(to, frame.clone(), delay);
        }
        let late = self.prng.chance(self.faults.late);
        let delay = if late { DELAY + self.prng.below(20_000_000) } else { DELAY };
        let delay = if self.jitter > 0 { delay + self.prng.below(self.jitter) } else { delay };
        let delay = delay + self.queue(to, &frame);
        let frame =
            if self.prng.chance(self.faults.corrupt) { self.corrupted(frame) } else { frame };
        self.put(to, frame, delay);
    }

    /// How long a frame waits in the queue of its path, and takes to leave it.
    fn queue(&mut self, to: usize, frame: &Frame) -> u64 {
        let Frame::Chunk { path, payload, .. } = frame else { return 0 };
        let index = usize::from(path.0);
        if to == 0 || self.byte_ns[index] == 0 {
            return 0;
        }
        let (free_at, waited, count) = &mut self.queues[index];
        let begins_at = self.now.0.max(*free_at);
        *free_at = begins_at + (payload.len() + HEADER_BYTES) as u64 * self.byte_ns[index];
        (*waited, *count) = (*waited + begins_at - self.now.0, *count + 1);
        *free_at - self.now.0 + QUEUED_DELAY
    }

    pub(super) fn corrupted(&mut self, mut frame: Frame) -> Frame {
        let bytes = match &mut frame {
            Frame::Ack(bytes) => bytes.as_mut_slice(),
            Frame::Chunk { payload, .. } if !payload.is_empty() && self.prng.chance(0.5) => payload,
            Frame::Chunk { header, .. } => header.as_mut_slice(),
        };
        let bit = self.prng.below(bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        frame
    }

    pub(super) fn put(&mut self, to: usize, frame: Frame, delay: u64) {
        self.sequence += 1;
        self.flight.insert((self.now.0 + delay, self.sequence), (to, frame));
    }

    /// One turn of an end's driver.
    pub(super) fn turn(&mut self, at: usize) {
        let now = self.now;
        if now < self.away_until[at] {
            return;
        }
        self.ends[at].take_events();
        if self.ends[at].link.poll_timeout() <= now {
            self.ends[at].link.handle_timeout(now);
        }
        while let Some(reroute) = self.ends[at].link.poll_reroute() {
            self.ports[at][usize::from(reroute.path.0)] = reroute.source_port;
            if reroute.moves_control {
                self.ports[at][PATHS_MAX] = reroute.source_port;
            }
            self.moves.push((now, at));
        }
        self.renew(at);
        self.ends[at].link.settle_piggyback();
        self.transmit(at);
        let mut out = [0; ACK_BYTES_MAX];
        while let Some(ack) = self.ends[at].link.poll_ack(now, &mut out) {
            let bytes = &out[..ack.len];
            let frame = match ack.path {
                None => {
                    self.control_acks[at] += 1;
                    Frame::Ack(bytes.to_vec())
                }
                Some(path) => {
                    let (header, body) = bytes.split_first_chunk().unwrap();
                    Frame::Chunk { path, header: *header, payload: body.to_vec() }
                }
            };
            self.post(1 - at, frame);
        }
        self.ends[at].take_events();
    }

    /// Sends the chunks that an end wants sent, as many at a time as there is room for just then.
    /// The device returns them at some time during that, or behind it where a trace is kept, which
    /// is to be the same in any case.
    fn transmit(&mut self, at: usize) {
        let (mut may_be_more, mut posted) = (true, Vec::new());
        while may_be_more {
            let mut run = Vec::new();
            let room = self.room_prng.between(1, self.room_max) as usize;
            may_be_more = self.ends[at].link.poll_transmits(self.now, |transmit| {
                run.push(transmit.clone());
                run.len() < room
            });
            for transmit in run {
                self.transmit_one(at, &transmit);
                posted.push((transmit.path, transmit.header.number));
            }
            if self.trace.is_none() && self.room_prng.chance(0.5) {
                self.return_to(at, &mut posted);
            }
        }
        self.return_to(at, &mut posted);
    }

    fn return_to(&mut self, at: usize, posted: &mut Vec<(PathId, u64)>) {
        for (path, number) in posted.drain(..) {
            self.ends[at].link.handle_sent(path, number, None);
        }
    }

    fn transmit_one(&mut self, at: usize, transmit: &Transmit) {
        let mut payload = Vec::new();
        let end = &self.ends[at];
        transmit.emit_body(&mut payload, |part, body| body.extend_from_slice(end.bytes_of(part)));
        assert!(payload.len() <= 56 << 10, "no longer than the peer's buffers");
        let mut header = [0; HEADER_BYTES];
        let crc = towpath_base::crc::crc32c(&payload);
        ChunkHeader { body_crc: crc, ..transmit.header }.emit(&mut header);
        if let Some(trace) = &mut self.trace {
            trace.push((self.now, at, transmit.path, header));
        }
        let carrier = self.ends[at].link.paths().nth(usize::from(transmit.path.0));
        let is_cut = carrier.is_some_and(|path| path.carrier != Carrier::Tcp);
        let bytes = HEADER_BYTES + payload.len() + transmit.filler_bytes as usize;
        let is_disordered = self.jitter > 0 && bytes > 4_096 && self.prng.chance(0.8);
        let is_borne = bytes <= self.bears && !is_disordered;
        let cut_at = transmit.cut_at.unwrap_or(Mtu::Mtu4096).bytes() as usize;
        let is_narrow = self.narrow & 1 << transmit.path.0 != 0;
        let fits = !is_narrow || bytes.min(cut_at) <= self.longest[1 - at];
        if !is_cut || is_borne && fits {
            self.post(1 - at, Frame::Chunk { path: transmit.path, header, payload });
        }
    }

    /// What a driver does for queue pairs that have failed, in no time.
    fn renew(&mut self, at: usize) {
        let now = self.now;
        while let Some(renew) = self.ends[at].link.poll_renew(now) {
            match renew {
                Renew::Make { path } if self.renews => {
                    let (qp_num, psn) = (self.prng.next_u32() >> 8, self.prng.next_u32() >> 8);
                    let generation = self.prng.next_u32();
                    let (qp_num, psn) = (QpNum(qp_num), Psn::new(psn));
                    self.ends[at].link.renewed(path, QpHalf { qp_num, psn, generation });
                }
                Renew::Make { .. } => {}
                Renew::Join { path, source_port, .. } => {
                    let port = &mut self.ports[at][usize::from(path.0)];
                    *port = source_port.unwrap_or(*port);
                }
            }
        }
    }

    pub(super) fn deliver(&mut self, to: usize, frame: Frame) {
        self.ends[to].take_row(self.now, [frame]);
    }

    /// Runs until `done`; everything must be done within a simulated minute.
    pub(super) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let end = self.now + Nanos::from_secs(60);
        loop {
            self.turn(0);
            self.turn(1);
            if done(self) {
                return;
            }
            let back = self.away_until;
            let timers =
                self.ends.iter().zip(back).map(|(e, back)| e.link.poll_timeout().max(back));
            let arrival = self.flight.keys().next().map_or(Time::NEVER, |&(at, _)| Time(at));
            let next = timers.min().unwrap().min(arrival);
            assert!(next < end, "it would never happen");
            self.now = self.now.max(next);
            let (mut row, mut row_to) = (Vec::new(), 0);
            while let Some(entry) = self.flight.first_entry() {
                if entry.key().0 > self.now.0 {
                    break;
                }
                let ((_, order), (to, frame)) = entry.remove_entry();
                if self.now < back[to] {
                    self.flight.insert((back[to].0, order), (to, frame));
                    continue;
                }
                if row.len() == self.row_max || row_to != to {
                    self.ends[row_to].take_row(self.now, row.drain(..));
                }
                row_to = to;
                row.push(frame);
            }
            self.ends[row_to].take_row(self.now, row.drain(..));
        }
    }

    /// Runs for `span`, whatever happens.
    pub(super) fn run_for(&mut self, span: Nanos) {
        let end = self.now + span;
        self.sequence += 1;
        // Something to wake up for: a frame that is none.
        self.flight.insert((end.0, self.sequence), (0, Frame::Ack(Vec::new())));
        self.run_until(|wire| wire.now >= end);
    }

    pub(super) fn settled(&self) -> bool {
        self.ends.iter().all(|end| end.sending.is_empty() && end.link.is_idle())
    }

    /// Nothing is left behind at either end.
    pub(super) fn check_clean(&self) {
        for end in &self.ends {
            assert!(end.bufs.is_empty() && end.streams.is_empty());
            assert_eq!((end.link.sends.messages.len(), end.link.receives.len()), (0, 0));
        }
    }
}
