//! Messages that share chunks, and pieces that go in parts.

use super::bufs::Bufs;
use super::hostile::{alone, give, header};
use super::paths::send;
use super::wire::{Faults, Frame as Flying, Wire};
use super::*;
use crate::event::{Arrival, ChannelId, Event, Verdict};
use crate::limits::{FRAMES_MAX, HEADER_BYTES};
use crate::wire::{ChunkFlags, ChunkHeader, Frame, FrameTable, Kind, emit_table};
use towpath_cc::{ControllerConfig, FixedWindowConfig};

/// With a window of a megabyte from the start.
fn wide(config: LinkConfig) -> LinkConfig {
    config.controller(ControllerConfig::Fixed(FixedWindowConfig::new(1 << 20).unwrap()))
}

/// How many chunks of data are under way, and how many frames they carry.
fn under_way(wire: &Wire) -> (usize, usize) {
    let mut sum = (0, 0);
    for (_, frame) in wire.flight.values() {
        let Flying::Chunk { header, payload, .. } = frame else { continue };
        let Ok(header) = ChunkHeader::parse(header) else { continue };
        if header.kind == Kind::Data {
            let table = FrameTable::parse(&header, payload).unwrap();
            sum = (sum.0 + 1, sum.1 + 1 + table.others().count());
        }
    }
    sum
}

#[test]
fn messages_that_are_ready_together_share_a_chunk_whatever_their_channels() {
    let tune = |config: LinkConfig| wide(config.channels_max(8).credit_total(1024));
    let mut wire = Wire::new(1, Faults::default(), tune);
    let channels: Vec<ChannelId> =
        (0..4).map(|at| wire.ends[0].link.open_channel(at % 2 == 0).unwrap()).collect();
    wire.run_until(|wire| wire.ends.iter().all(|end| end.channels.len() == 4));
    let mut token = 0;
    for len in [10, 4_096, 700] {
        for channel in &channels {
            for _ in 0..3 {
                wire.ends[0].send(*channel, token, vec![token as u8; len], Time::NEVER);
                token += 1;
            }
        }
    }
    wire.turn(0);
    let (chunks, frames) = under_way(&wire);
    assert!(chunks == 2 && frames == 36, "{chunks} chunks of {frames} frames");
    wire.run_until(Wire::settled);
    let mut received = wire.ends[1].received.clone();
    received.sort_by_key(|message| message[0]);
    assert!(received.iter().map(|message| u64::from(message[0])).eq(0..token));
    wire.check_clean();
    let stats = wire.ends[1].link.stats();
    assert_eq!((stats.frames_received, stats.chunks_received), (36, 2));
    assert_eq!((stats.violations, stats.chunks_duplicate), (0, 0));
}

#[test]
fn a_message_that_is_alone_waits_for_no_other() {
    let (mut wire, channel) = Wire::open_tuned(1, Faults::default(), true, wide);
    for token in 0..4 {
        wire.ends[0].send(channel, token, vec![7; 100], Time::NEVER);
        wire.turn(0);
        assert_eq!(under_way(&wire), (token as usize + 1, token as usize + 1));
    }
}

#[test]
fn what_a_lost_chunk_carried_goes_again_in_other_company() {
    let (mut wire, channel) = Wire::open_tuned(1, Faults::default(), true, wide);
    send(&mut wire, channel, 0..20, 1_000);
    wire.turn(0);
    assert_eq!(under_way(&wire), (1, 20));
    wire.flight.clear();
    // Some of it is not wanted any more, and something else is ready.
    for token in 0..5 {
        let (key, _) = wire.ends[0].sending[&token].clone();
        wire.ends[0].link.cancel(key).unwrap();
    }
    send(&mut wire, channel, 20..30, 1_000);
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[1].received.len(), 25);
    let stats = wire.ends[0].link.stats();
    assert_eq!((stats.messages_abandoned, stats.messages_delivered), (5, 25));
    assert!(stats.bytes_retransmitted <= 2 * 15_000, "{stats:?}");
    wire.check_clean();
}

#[test]
fn what_does_not_arrive_waits_once_however_often_probes_send_it_while_a_peer_acks_all_else() {
    let (mut wire, channel) = Wire::open_tuned(1, Faults::default(), true, wide);
    // Headers get through, and no data.
    wire.bears = HEADER_BYTES;
    send(&mut wire, channel, 0..40, 50);
    for _ in 0..100 {
        let other = wire.ends[1].link.open_channel(true).unwrap();
        wire.run_for(Nanos::from_millis(1));
        wire.ends[1].link.close_channel(other).unwrap();
        wire.run_for(Nanos::from_millis(1));
    }
    let stats = wire.ends[0].link.stats();
    assert!(stats.tail_probes > 50, "{stats:?}");
    assert!(wire.ends[0].link.sends.lost.len() <= 40, "{}", wire.ends[0].link.sends.lost.len());
    wire.bears = usize::MAX;
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[1].received.len(), 40);
    wire.check_clean();
}

#[test]
fn under_any_faults_messages_in_company_arrive_once_or_are_abandoned() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let tune = |config: LinkConfig| wide(config.channels_max(4).credit_total(1024));
        let mut wire = Wire::with_paths(seed, ALL_FAULTS, 1 + seed as u32 % 3, tune);
        for at in 0..3 {
            wire.ends[0].link.open_channel(at == 0).unwrap();
        }
        wire.run_until(|wire| wire.ends.iter().all(|end| end.channels.len() == 3));
        let mut sent = Vec::new();
        for token in 0..200 {
            let channel = wire.ends[0].channels[prng.below(3) as usize];
            let len = if prng.chance(0.9) { prng.between(8, 5_000) } else { 100_000 };
            sent.push(content(&mut prng, token, len as usize));
            let deadline = wire.now + Nanos(prng.below(300_000));
            let deadline = if prng.chance(0.1) { deadline } else { Time::NEVER };
            wire.ends[0].send(channel, token, sent[token as usize].clone(), deadline);
            if prng.chance(0.1) {
                wire.turn(0);
            }
        }
        wire.run_until(Wire::settled);
        for (token, bytes) in sent.iter().enumerate() {
            let seen = wire.ends[1].received.iter().filter(|r| *r == bytes).count();
            let delivered = wire.ends[0].outcomes[&(token as u64)] == Outcome::Delivered;
            assert_eq!(seen, usize::from(delivered), "seed {seed} token {token}");
        }
        wire.check_clean();
        assert!(wire.ends.iter().all(|end| end.link.stats().violations == 0), "seed {seed}");
    }
}

/// On a wire that drops every chunk of more than one packet, and of the others some.
#[test]
fn a_path_that_bears_single_packets_only_brings_all_messages() {
    for seed in 0..30 {
        println!("seed {seed}");
        let (mut wire, channel) = Wire::open_tuned(seed, Faults::default(), false, wide);
        let mut prng = Prng::new(seed);
        let mut sent = Vec::new();
        for token in 0..40 {
            let len = prng.between(8, 150_000) as usize;
            sent.push(content(&mut prng, token, len));
            wire.ends[0].send(channel, token, sent[token as usize].clone(), Time::NEVER);
        }
        wire.bears = 4_096;
        wire.faults.drop = 0.02 * (seed % 3) as f64;
        wire.ends[1].bufs.is_short = false;
        wire.run_until(Wire::settled);
        sent.sort();
        let mut received = wire.ends[1].received.clone();
        received.sort();
        assert!(sent == received, "seed {seed}: they differ");
        wire.check_clean();
        // A piece in parts holds one buffer, and so does each that came whole.
        let quota = 128 + 2;
        assert!(wire.ends[1].bufs.most <= quota, "seed {seed}: {}", wire.ends[1].bufs.most);
    }
}

#[test]
fn parts_for_which_there_is_no_buffer_come_again() {
    let (mut wire, channel) = Wire::open(2, Faults::default(), true);
    // The first window holds a packet.
    send(&mut wire, channel, 0..3, 100_000);
    wire.ends[1].bufs.is_short = true;
    wire.run_for(Nanos::from_millis(50));
    assert!(wire.ends[1].received.is_empty());
    wire.ends[1].bufs.is_short = false;
    wire.run_until(Wire::settled);
    assert!(wire.ends[1].received.iter().map(Vec::len).eq([100_000; 3]));
    wire.check_clean();
}

#[test]
fn a_message_that_is_given_up_in_parts_gives_buffers_and_credit_back() {
    let (mut wire, channel) = Wire::open(2, Faults::default(), true);
    wire.bears = 4_096;
    for round in 0..300 {
        let deadline = wire.now + Nanos(20_000 + round % 7 * 5_000);
        wire.ends[0].send(channel, round, vec![7; 200_000], deadline);
        wire.run_until(Wire::settled);
    }
    wire.bears = usize::MAX;
    send(&mut wire, channel, 1_000..1_200, 10_000);
    wire.run_until(Wire::settled);
    wire.check_clean();
    let census = wire.ends.each_ref().map(|end| end.link.census());
    assert_eq!(census[0].credit_used_total, census[1].credit_taken_total);
    assert_eq!(wire.ends[1].link.stats().violations, 0);
}

/// A link with an open channel of its peer's, and the number of the next chunk.
fn open() -> (Link, u64) {
    let mut link = alone();
    let open = ChunkHeader { channel: 1, credit: 8, ..header(Kind::Open, 0, 0) };
    let _ = give(&mut link, &open, &[]);
    while link.poll_transmit(Time::ZERO).is_some() {}
    while link.poll_event().is_some() {}
    (link, 1)
}

/// A chunk of frames, each of bytes that say where in the message they lie.
fn chunk(number: u64, frames: &[Frame]) -> (ChunkHeader, Vec<u8>) {
    let first = frames[0];
    let others: usize = frames[1..].iter().map(Frame::units).sum();
    let units = first.units_as_first() + others;
    let flags = ChunkFlags::default().with_units(units).with(ChunkFlags::PART, first.is_part());
    let mut body = Vec::new();
    for frame in frames {
        body.resize(body.len().next_multiple_of(8), 0);
        body.extend((frame.offset..frame.offset + frame.length).map(|at| at as u8));
    }
    if units > 0 {
        body.resize(body.len().next_multiple_of(8) + 16 * units, 0);
        let table = body.len() - 16 * units;
        emit_table(frames.iter(), &mut body[table..]);
    }
    let header = ChunkHeader {
        channel: first.channel,
        message: first.message,
        message_len: first.message_len,
        index: first.index,
        offset: first.offset,
        length: first.length,
        flags,
        ..header(Kind::Data, number, 0)
    };
    (header, body)
}

const PIECE: Frame = Frame {
    channel: 1,
    message: 0,
    message_len: 200,
    index: 0,
    offset: 0,
    length: 128,
    part_start: 0,
    piece_len: 128,
    at_page: false,
};

fn part(part_start: u32, length: u32) -> Frame {
    let offset = PIECE.offset + part_start;
    Frame { offset, part_start, length, ..PIECE }
}

const REST: Frame = Frame { index: 1, offset: 128, length: 72, piece_len: 72, ..PIECE };

/// Hands a chunk of frames in, and takes out what is whole with it.
fn hand_in(link: &mut Link, bufs: &mut Bufs, number: u64, frames: &[Frame]) -> Vec<Vec<u8>> {
    let (header, body) = chunk(number, frames);
    let mut bytes = [0; HEADER_BYTES];
    header.emit(&mut bytes);
    let (buf, may_keep, now) = (bufs.next(), !bufs.is_short, Time::ZERO);
    let arrival = Arrival { header: &bytes, body: &body, buf, may_keep, received_at: now };
    if let Verdict::Kept(pieces) = link.handle_chunk(now, PathId(0), &arrival, bufs) {
        bufs.keep(buf, body, pieces);
    }
    take_out(link, bufs)
}

/// Takes out what is whole, and lets go of what is not wanted.
fn take_out(link: &mut Link, bufs: &mut Bufs) -> Vec<Vec<u8>> {
    let mut whole = Vec::new();
    while let Some(event) = link.poll_event() {
        match event {
            Event::Message { incoming, .. } => {
                let mut bytes = Vec::new();
                link.take_message(incoming, |chunks| {
                    chunks.iter().for_each(|chunk| bytes.extend(bufs.take_out(chunk)));
                });
                whole.push(bytes);
            }
            Event::Recycled { buf } => bufs.let_go(buf),
            _ => {}
        }
    }
    whole
}

/// Hands frames in, each chunk by itself, and takes out what came whole.
fn take_in(chunks: &[&[Frame]]) -> (Vec<Vec<u8>>, LinkStats, bool) {
    let (mut link, first) = open();
    let mut bufs = Bufs::default();
    let mut whole = Vec::new();
    for (frames, number) in chunks.iter().zip(first..) {
        whole.extend(hand_in(&mut link, &mut bufs, number, frames));
    }
    (whole, link.stats(), bufs.is_empty())
}

#[test]
fn parts_that_overlap_repeat_or_come_behind_their_piece_make_one_message() {
    let message: Vec<u8> = (0..200).collect();
    let orders: [&[&[Frame]]; 6] = [
        &[&[part(0, 64)], &[part(64, 64)], &[REST]],
        &[&[REST, part(64, 64)], &[part(0, 64)]],
        &[&[part(8, 80)], &[part(64, 64)], &[part(0, 32), REST]],
        &[&[part(64, 64)], &[PIECE], &[part(0, 64)], &[REST]],
        &[&[part(0, 64)], &[part(0, 64)], &[PIECE, part(64, 64)], &[REST], &[REST]],
        &[&[part(0, 8)], &[REST], &[part(0, 120)], &[part(120, 8)], &[part(0, 64)]],
    ];
    for (order, at) in orders.iter().zip(0..) {
        let (whole, stats, is_clean) = take_in(order);
        assert_eq!((whole, is_clean), (vec![message.clone()], true), "order {at}");
        assert_eq!(stats.violations, 0, "order {at}");
    }
}

#[test]
fn parts_that_contradict_what_came_are_violations_and_change_nothing() {
    let other_piece = Frame { piece_len: 136, ..part(0, 64) };
    let elsewhere = Frame { index: 1, offset: 64, length: 64, piece_len: 128, ..PIECE };
    let other_message = Frame { message_len: 300, ..part(64, 64) };
    let message: Vec<u8> = (0..200).collect();
    for (bad, at) in [other_piece, other_message].into_iter().zip(0..) {
        let (whole, stats, _) =
            take_in(&[&[part(0, 64)], &[bad], &[part(64, 64)], &[REST], &[bad]]);
        assert_eq!(whole, vec![message.clone()], "{at}");
        assert_eq!(stats.violations, 1, "{at}: and behind its end it is a known one");
    }
    // Of a piece for which the message has no room beside what came no part is taken.
    let (whole, stats, _) = take_in(&[
        &[PIECE],
        &[elsewhere],
        &[Frame { part_start: 64, offset: 128, ..elsewhere }],
        &[REST],
    ]);
    assert_eq!((whole, stats.violations), (vec![message], 2));
}

#[test]
fn a_link_that_may_keep_no_buffer_takes_the_rest_of_pieces_that_have_one() {
    let other = Frame { message: 1, message_len: 72, index: 0, offset: 0, ..REST };
    let begun = Frame { message: 2, ..part(0, 64) };
    let message: Vec<u8> = (0..200).collect();
    let (mut link, first) = open();
    let mut bufs = Bufs::default();
    assert!(hand_in(&mut link, &mut bufs, first, &[part(0, 64), REST]).is_empty());
    bufs.is_short = true;
    let came = hand_in(&mut link, &mut bufs, first + 1, &[part(64, 64), begun, other]);
    assert_eq!(came, [message]);
    assert_eq!(link.paths[0].rx.base(), first + 1, "two of its frames come again");
    assert!(bufs.is_empty());
    bufs.is_short = false;
    let came = hand_in(&mut link, &mut bufs, first + 2, &[begun, other]);
    assert_eq!(came, [(0..72).collect::<Vec<u8>>()]);
    assert_eq!(link.stats().violations, 0);
}

#[test]
fn pieces_of_more_bytes_than_their_message_has_leave_no_buffer_and_no_credit_behind() {
    let whole = Frame { length: 200, piece_len: 200, ..PIECE };
    let inside = Frame { index: 1, offset: 64, length: 64, piece_len: 136, ..PIECE };
    let behind = Frame { index: 2, offset: 136, length: 8, piece_len: 64, ..PIECE };
    for (frames, pieces) in [([inside, whole, whole], 1), ([PIECE, behind, REST], 2)] {
        let (mut link, first) = open();
        let mut bufs = Bufs::default();
        for (frame, number) in frames.iter().zip(first..) {
            let came = hand_in(&mut link, &mut bufs, number, &[*frame]);
            link.release(ChannelId(1), pieces * came.len() as u32);
        }
        let close = ChunkHeader { channel: 1, ..header(Kind::Close, first + 3, 1) };
        let _ = give(&mut link, &close, &[]);
        take_out(&mut link, &mut bufs);
        assert!(bufs.is_empty(), "{pieces}: a buffer that nobody gives back");
        assert_eq!(
            (link.channels.open, link.channels.quota_sum),
            (0, 0),
            "{pieces}: credit that is held"
        );
    }
}

#[test]
fn a_chunk_with_one_frame_that_is_refused_is_not_acknowledged_and_what_it_brought_is_held() {
    let other = Frame { channel: 7, message: 3, ..REST };
    let other = Frame { index: 0, offset: 0, message_len: 72, ..other };
    let single = Frame { message: 5, ..other };
    let single = Frame { channel: 1, ..single };
    let (mut link, number) = open();
    let (data, body) = chunk(number, &[single, other]);
    assert_eq!(give(&mut link, &data, &body), Verdict::Kept(1));
    assert!(matches!(link.poll_event(), Some(Event::Message { length: 72, .. })));
    assert_eq!(link.paths[0].rx.base(), number, "it comes again");
    let stats = link.stats();
    assert_eq!((stats.frames_received, stats.violations), (1, 0));
}

#[test]
fn no_chunk_brings_more_than_was_granted_and_a_bad_table_brings_nothing() {
    let tiny = |message: u64| Frame { message, message_len: 8, length: 8, piece_len: 8, ..PIECE };
    let frames: Vec<Frame> = (0..FRAMES_MAX as u64).map(tiny).collect();
    let (mut link, number) = open();
    let (data, body) = chunk(number, &frames);
    let quota = u64::from(link.config.limits.quota_chunks);
    assert_eq!(give(&mut link, &data, &body), Verdict::Kept(quota as u16));
    let stats = link.stats();
    assert_eq!((stats.frames_received, stats.violations), (quota, 256 - quota));
    // The last entry names no length.
    let (mut link, number) = open();
    let (data, mut body) = chunk(number, &frames);
    let end = body.len();
    body[end - 8..end - 4].fill(0);
    assert_eq!(give(&mut link, &data, &body), Verdict::Recycle);
    let stats = link.stats();
    assert_eq!((stats.frames_received, stats.violations), (0, 1));
}
