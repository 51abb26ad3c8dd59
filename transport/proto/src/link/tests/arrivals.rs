//! What a peer sends, true or not, has the same effect in a row as chunk by chunk.

use super::hostile::header;
use super::wire::{Faults, Wire};
use super::*;
use crate::Carrier;
use crate::event::{BufToken, ChannelId, ChunkRef, Event, Verdict};
use crate::limits::ACK_BYTES_MAX;
use crate::wire::{ChunkFlags, ChunkHeader, Kind};
use towpath_base::crc::crc32c;

/// A chunk as it comes, on a path.
type Frame = (PathId, ChunkHeader, Vec<u8>);

/// A peer that sends messages in runs, and now and then what no correct peer sends.
struct Peer {
    prng: Prng,
    numbers: [u64; 2],
    messages: [u64; 2],
    controls: u32,
    /// What it sent, to be sent again.
    sent: Vec<Frame>,
    spoils: f64,
}

impl Peer {
    /// Some chunks of a channel on a path, all with the same ack and credit.
    fn run(&mut self) -> Vec<Frame> {
        let prng = &mut self.prng;
        let path = prng.below(2) as usize;
        let channel = prng.below(2) as usize;
        let credit = [8, 8, 9, 200][prng.below(4) as usize];
        let floor = self.numbers[path] - prng.below(self.numbers[path].min(300) + 1);
        let mut flags = ChunkFlags::default()
            .with(ChunkFlags::CREDIT, prng.chance(0.8))
            .with(ChunkFlags::PAYLOAD_CRC, prng.chance(0.5));
        if prng.chance(0.7) {
            flags = flags.with_ack_of(prng.below(3) as usize);
        }
        let ack_largest = prng.below(4) as u32;
        let mut frames = Vec::new();
        for _ in 0..prng.between(1, 4) {
            // Some are longer than what is handed over whole.
            let most = [10, 5_000, 12_000][prng.below(3) as usize];
            let message_len = prng.between(1, most) as u32;
            let (mut index, mut offset) = (0, 0);
            while offset < message_len {
                let left = message_len - offset;
                let length = prng.between(1, u64::from(left.min(4_000))) as u32;
                let mut payload = vec![0; length as usize];
                prng.fill(&mut payload);
                let number = self.numbers[path];
                self.numbers[path] += 1;
                let data = ChunkHeader {
                    generation: 1 + 100 * path as u32,
                    flags: flags.with(ChunkFlags::LAST, left == length),
                    message: self.messages[channel],
                    channel: 1 + 2 * channel as u32,
                    index,
                    offset,
                    message_len,
                    length,
                    floor_delta: (number - floor).min(4_095) as u16,
                    credit,
                    ack_largest,
                    payload_crc: crc32c(&payload),
                    ..header(Kind::Data, number, 0)
                };
                frames.push((PathId(path as u8), data, payload));
                (index, offset) = (index + 1, offset + length);
            }
            self.messages[channel] += 1;
        }
        frames
    }

    /// Runs as they come, some of it changed on the way, lost, doubled or late.
    fn row(&mut self) -> Vec<Frame> {
        let mut frames = self.run();
        if self.prng.chance(0.5) {
            frames.extend(self.run());
        }
        self.sent.extend_from_slice(&frames);
        let mut at = 0;
        while at < frames.len() {
            if self.prng.chance(self.spoils) {
                self.spoil(&mut frames, at);
            }
            at += 1;
        }
        frames
    }

    fn spoil(&mut self, frames: &mut Vec<Frame>, at: usize) {
        let other = self.prng.below(self.sent.len() as u64) as usize;
        let with = other % frames.len();
        let (_, header, payload) = &mut frames[at];
        match self.prng.below(16) {
            0 => _ = frames.remove(at),
            1 => frames.insert(at, self.sent[other].clone()),
            2 => frames.swap(at, with),
            3 => payload[0] ^= 1,
            4 => _ = payload.pop(),
            5 => header.number += self.prng.below(3),
            6 => header.message = header.message.wrapping_add(self.prng.below(3)).wrapping_sub(1),
            7 => header.channel ^= 1 << self.prng.below(3),
            8 => header.generation ^= 1,
            9 => header.credit ^= 1 << self.prng.below(16),
            10 => header.ack_largest = self.prng.below(5) as u32,
            11 => header.floor_delta ^= 1 << self.prng.below(12),
            12 => header.message_len += 1,
            13 => header.flags = header.flags.with(ChunkFlags::LAST, self.prng.chance(0.5)),
            14 => header.index += 1,
            _ => {
                let kinds = [Kind::Ping, Kind::Probe, Kind::CreditProbe, Kind::Abandon];
                let kind = kinds[self.prng.below(4) as usize];
                let sequence = self.controls;
                self.controls += u32::from(kind != Kind::Probe);
                let control =
                    ChunkHeader { kind, offset: sequence, length: 0, index: 0, ..*header };
                let flags = control.flags.with(ChunkFlags::LAST, false);
                frames.insert(at, (frames[at].0, ChunkHeader { flags, ..control }, Vec::new()));
            }
        }
    }
}

/// A link with two channels of the peer's, one of them ordered, that has sent something.
fn receiver(seed: u64) -> Link {
    let mut prng = Prng::new(seed);
    let quota = [4, 64][prng.below(2) as usize];
    let tune = |config: LinkConfig| config.quota_chunks(quota).message_bytes_max(10_000);
    let carriers = [Carrier::Uc, [Carrier::Uc, Carrier::Tcp][prng.below(2) as usize]];
    let [end, _] = Wire::with_carriers(1, Faults::default(), &carriers, tune).ends;
    let mut link = end.link;
    for (channel, sequence) in [(1, 0), (3, 1)] {
        let open = ChunkHeader { channel, ..header(Kind::Open, u64::from(sequence), sequence) };
        let index = sequence;
        let mut bytes = [0; HEADER_BYTES];
        ChunkHeader { index, ..open }.emit(&mut bytes);
        let _ = link.handle_chunk(Time::ZERO, PathId(0), &bytes, &[], BufToken(0), Time::ZERO);
    }
    for (channel, length) in [(ChannelId(3), 100), (ChannelId(1), 20_000)] {
        let request = SendRequest {
            channel,
            token: 1,
            segments: &[length],
            deadline: Time::NEVER,
            cut: Cut::default(),
        };
        link.send(&request).unwrap();
    }
    while link.poll_transmit(Time::ZERO).is_some() {}
    link
}

/// What the application of a link saw.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Verdict(u32, Verdict),
    Event(Event),
    Taken(Vec<ChunkRef>),
    Ack(Vec<u8>),
    Stats(Box<LinkStats>),
}

/// What a link does with frames that are handed in at once, its application behind them. The clock
/// goes on for each row.
fn take(link: &mut Link, round: u64, first_buf: u32, row: &[Frame], seen: &mut Vec<Seen>) {
    let now = Time(round * 1_000);
    let mut bufs = first_buf..;
    let mut left = row;
    while let Some(&(path, ..)) = left.first() {
        let count = left.iter().take_while(|&&(other, ..)| other == path).count();
        let mut arrivals = link.arrivals(now, path);
        for ((_, header, payload), buf) in left[..count].iter().zip(&mut bufs) {
            let mut bytes = [0; HEADER_BYTES];
            header.emit(&mut bytes);
            let at = now + Nanos(u64::from(buf % 7));
            let verdict = arrivals.take(&bytes, payload, BufToken(buf), at);
            seen.push(Seen::Verdict(buf, verdict));
        }
        left = &left[count..];
    }
}

/// The application's turn.
fn turn(link: &mut Link, round: u64, seen: &mut Vec<Seen>) {
    let now = Time(round * 1_000);
    while let Some(event) = link.poll_event() {
        match event {
            Event::Message { channel, incoming, .. } => {
                let mut chunks = Vec::new();
                link.take_message(incoming, |taken| chunks.extend_from_slice(taken));
                link.release(channel, chunks.len() as u32);
                seen.push(Seen::Taken(chunks));
            }
            Event::StreamChunk { channel, .. } => link.release(channel, 1),
            _ => {}
        }
        seen.push(Seen::Event(event));
    }
    while link.poll_transmit(now).is_some() {}
    let mut out = [0; ACK_BYTES_MAX];
    while let Some(ack) = link.poll_ack(now, &mut out) {
        seen.push(Seen::Ack(out[..ack.len].to_vec()));
    }
    seen.push(Seen::Stats(Box::new(link.stats())));
}

#[test]
fn whatever_comes_in_a_row_has_the_effect_that_it_has_alone() {
    let mut kept = 0;
    for seed in 0..300 {
        let spoils = [0.0, 0.05, 0.3][(seed % 3) as usize];
        let prng = Prng::new(seed);
        let (numbers, sent) = ([2, 0], Vec::new());
        let mut peer = Peer { prng, numbers, messages: [0; 2], controls: 2, sent, spoils };
        let mut links = [receiver(seed), receiver(seed)];
        let mut first_buf = 0;
        for round in 1..30 {
            let row = peer.row();
            let mut seen = [Vec::new(), Vec::new()];
            take(&mut links[0], round, first_buf, &row, &mut seen[0]);
            for (frame, buf) in row.chunks(1).zip(first_buf..) {
                take(&mut links[1], round, buf, frame, &mut seen[1]);
            }
            first_buf += row.len() as u32;
            if peer.prng.chance(0.02) {
                links.iter_mut().for_each(Link::goodbye);
            }
            // Now and then rows follow each other without a turn in between.
            if peer.prng.chance(0.8) {
                for (link, seen) in links.iter_mut().zip(&mut seen) {
                    turn(link, round, seen);
                }
            }
            let [in_a_row, alone] = &seen;
            let first = in_a_row.iter().zip(alone).find(|(one, other)| one != other);
            assert_eq!((first, in_a_row.len()), (None, alone.len()), "seed {seed} round {round}");
            kept += alone.iter().filter(|s| matches!(s, Seen::Verdict(_, Verdict::Kept))).count();
        }
    }
    assert!(kept > 10_000, "{kept}");
}

#[test]
fn credit_that_a_late_chunk_does_not_tell_is_taken_from_the_first_that_is_newest() {
    let mut link = receiver(2);
    let frame = |number, message, channel, credit| {
        let data = ChunkHeader {
            flags: ChunkFlags::LAST.with(ChunkFlags::CREDIT, true),
            message,
            channel,
            length: 1,
            message_len: 1,
            floor_delta: (number - 2) as u16,
            credit,
            ..header(Kind::Data, number, 0)
        };
        (PathId(0), data, vec![7])
    };
    let (before, mut seen) = (link.channel(3).unwrap().tx.granted(), Vec::new());
    take(&mut link, 1, 0, &[frame(5, 0, 1, 8)], &mut seen);
    let news = before as u16 + 1;
    let row = [frame(4, 0, 3, news), frame(5, 1, 3, news), frame(6, 2, 3, news)];
    take(&mut link, 1, 1, &row[..2], &mut seen);
    assert_eq!(
        link.channel(3).unwrap().tx.granted(),
        before,
        "they may be older than what is known"
    );
    let mut link = receiver(2);
    take(&mut link, 1, 0, &[frame(5, 0, 1, 8)], &mut seen);
    take(&mut link, 1, 1, &row, &mut seen);
    assert_eq!(link.channel(3).unwrap().tx.granted(), before + 1);
    assert_eq!(link.stats().chunks_received, 4);
}
