//! Chunks that hold what they may, and lie as the receiver takes them to lie.

use super::*;
use crate::channel::SendRequest;
use crate::event::{PathId, PayloadRef, SendKey, Transmit};
use crate::slots::Slots;
use crate::wire::{ChunkFlags, ChunkHeader, Frame, FrameTable, Kind};
use alloc::{format, vec};
use towpath_base::{Prng, Time};

const BODY_MAX: usize = 15 * 4096 - 64;

fn bounds(body_max: usize) -> Bounds {
    Bounds { body_max, piece_max: BODY_MAX, gather_max: 31 }
}

fn key() -> SendKey {
    SendKey(Slots::<u8>::new(1).take().unwrap().0)
}

fn message(len: u32, at_pages: bool) -> Outgoing {
    let mut message = Outgoing::default();
    let segments = &[len];
    let (channel, deadline) = (crate::event::ChannelId(1), Time::NEVER);
    message.start(&SendRequest { channel, token: 0, segments, deadline, at_pages });
    message
}

/// Fills a chunk with messages of these lengths, as far as they fit: what was taken of each, and
/// the chunk.
fn fill(body_max: usize, lens: &[u32]) -> (Vec<Take>, Builder) {
    fill_with(body_max, lens.iter().map(|&len| (len, false)))
}

/// The same where all that is long enough begins at pages.
fn fill_paged(body_max: usize, lens: &[u32]) -> (Vec<Take>, Builder) {
    fill_with(body_max, lens.iter().map(|&len| (len, true)))
}

fn fill_with(body_max: usize, lens: impl Iterator<Item = (u32, bool)>) -> (Vec<Take>, Builder) {
    let mut builder = Builder::new(bounds(body_max), Vec::new());
    let mut taken = Vec::new();
    for (len, at_pages) in lens {
        let mut message = message(len, at_pages);
        let Some(take) = builder.take_of(&message) else { break };
        taken.push(take);
        let Take { piece, part } = take;
        builder.add_part(message.cut(key(), piece), part);
    }
    (taken, builder)
}

/// Emits a chunk and reads it: the frames and where they begin.
fn read(builder: Builder) -> Vec<(Frame, usize)> {
    let (body_bytes, units) = (builder.body() as usize, builder.table_units());
    let frames = builder.into_frames();
    let first = frames[0].frame;
    let header = ChunkHeader {
        kind: Kind::Data,
        flags: ChunkFlags::default().with_units(units).with(ChunkFlags::PART, first.is_part()),
        generation: 1,
        number: 1,
        message: first.message,
        channel: first.channel,
        index: first.index,
        offset: first.offset,
        message_len: first.message_len,
        length: first.length,
        floor_delta: 0,
        credit: 0,
        ack_largest: 0,
        ack_hold: 0,
        body_crc: 0,
    };
    let transmit = Transmit { path: PathId(0), header, frames, filler_bytes: 0, cut_at: None };
    let mut body = Vec::new();
    transmit.emit_body(&mut body, |source: &PayloadRef, body: &mut Vec<u8>| {
        body.resize(body.len() + source.length as usize, 7);
    });
    assert_eq!(body.len(), body_bytes, "as long as was said");
    let table = FrameTable::parse(&header, &body).expect("what is built keeps the rules");
    let others = table.others().map(|(frame, place)| (frame, place.start));
    let found: Vec<_> = [(table.first, 0)].into_iter().chain(others).collect();
    // Of the first nothing tells whether it is at a page: all are.
    let mut sent: Vec<Frame> = transmit.frames.iter().map(|sent| sent.frame).collect();
    sent[0].at_page = false;
    assert!(found.iter().map(|(frame, _)| frame).eq(&sent));
    found
}

/// From how many pieces of memory a driver gathers these frames and the table, and how many bytes
/// of that it copies: short payloads, what is between payloads, and the table.
fn gathered(found: &[(Frame, usize)], units: usize) -> (usize, usize) {
    let (mut pieces, mut copied, mut end, mut is_copying) = (0, 0, 0, false);
    for &(frame, start) in found {
        let length = frame.length as usize;
        let is_short = length <= COPIED_PAYLOAD_MAX;
        let copies = start - end + if is_short { length } else { 0 };
        pieces += usize::from(copies > 0 && !is_copying) + usize::from(!is_short);
        is_copying = is_short;
        copied += copies;
        end = start + length;
    }
    copied += end.next_multiple_of(FRAME_ALIGN_BYTES) - end + units * FRAME_UNIT_BYTES;
    (pieces + usize::from(!is_copying && units > 0), copied)
}

#[test]
fn what_is_gathered_and_copied_keeps_the_bounds_in_whatever_order_messages_come() {
    for seed in 0..3_000 {
        let mut prng = Prng::new(seed);
        let lens: Vec<(u32, bool)> = (0..200)
            .map(|_| match prng.below(8) {
                0 => (4_096, prng.chance(0.7)),
                1..4 => (prng.between(520, 640) as u32, prng.chance(0.5)),
                _ => (prng.between(1, 64) as u32, prng.chance(0.5)),
            })
            .collect();
        let (_, builder) = fill_with(BODY_MAX, lens.into_iter());
        let units = builder.table_units();
        let (pieces, copied) = gathered(&read(builder), units);
        assert!(pieces <= 31 && copied <= COPIED_BYTES_MAX, "seed {seed}: {pieces}, {copied}");
    }
}

#[test]
fn fourteen_pages_make_a_chunk_of_fifteen_packets() {
    let (taken, builder) = fill_paged(BODY_MAX, &[4_096; 20]);
    assert_eq!(taken, vec![Take::whole(4_096); 14]);
    assert_eq!(builder.body() as usize, 14 * 4_096 + 13 * 16);
    let starts: Vec<usize> = read(builder).into_iter().map(|(_, start)| start).collect();
    assert!(starts.into_iter().eq((0..14).map(|page| page * 4_096)));
}

#[test]
fn headers_of_messages_go_behind_their_pages_wherever_they_came() {
    let lens = [88, 4_096, 88, 4_096, 88, 8_192];
    let (taken, builder) = fill_paged(BODY_MAX, &lens);
    assert_eq!(taken.len(), lens.len());
    let found = read(builder);
    let lengths: Vec<u32> = found.iter().map(|(frame, _)| frame.length).collect();
    assert_eq!(lengths[..3], [4_096, 4_096, 8_192]);
    assert!(found[..3].iter().all(|(_, start)| start.is_multiple_of(4_096)));
    assert_eq!(found[3].1, 16_384);
}

#[test]
fn the_rest_of_a_long_message_is_joined_by_the_next_which_is_cut_at_a_page() {
    let (taken, builder) = fill_paged(BODY_MAX, &[8_192, 65_536]);
    assert_eq!(taken, [Take::whole(8_192), Take::whole(12 * 4_096)]);
    read(builder);
    let (taken, _) = fill_paged(BODY_MAX, &[11 * 4_096, 65_536]);
    assert_eq!(taken.len(), 1, "a piece is never as short as what is left");
    let (taken, _) = fill_paged(BODY_MAX, &[65_536]);
    assert_eq!(taken, [Take::whole(14 * 4_096)]);
}

#[test]
fn a_path_that_bears_a_packet_gets_long_pieces_in_parts_that_fill_it() {
    let (taken, builder) = fill_paged(4_032, &[65_536]);
    assert_eq!(taken, [Take { piece: 14 * 4_096, part: 4_016 }]);
    assert_eq!(builder.body(), 4_032);
    read(builder);
    let (taken, builder) = fill_paged(4_032, &[2_000, 4_096]);
    let Take { piece: 4_096, part } = taken[1] else { panic!("{taken:?}") };
    assert!(part < 4_096);
    assert_eq!(builder.body() as usize, 2_000 + part as usize + 32);
    assert!(builder.body() >= 4_032 - 24, "but for what the first would take behind another");
    read(builder);
}

#[test]
fn messages_that_would_need_much_padding_go_by_themselves() {
    let (taken, _) = fill_paged(BODY_MAX, &[5_000, 5_000]);
    assert_eq!(taken.len(), 1);
    let (taken, builder) = fill_paged(BODY_MAX, &[8_000, 8_000, 100]);
    assert_eq!(taken.len(), 3);
    read(builder);
}

#[test]
fn messages_that_need_no_page_fill_chunks_of_any_length_back_to_back() {
    let (taken, builder) = fill(BODY_MAX, &[4_160; 20]);
    assert_eq!(taken, vec![Take::whole(4_160); 14]);
    let starts: Vec<usize> = read(builder).into_iter().map(|(_, start)| start).collect();
    assert!(starts.into_iter().eq((0..14).map(|nth| nth * 4_160)));
    let (taken, builder) = fill(BODY_MAX, &[5_001, 100, 5_001, 5_001]);
    assert_eq!(taken.len(), 4);
    let starts: Vec<usize> = read(builder).into_iter().map(|(_, start)| start).collect();
    assert_eq!(starts, [0, 5_008, 5_108, 10_109]);
    // The rest of the chunk is filled with a part of the next message, wherever that is to be cut.
    let (taken, builder) = fill(BODY_MAX, &[30_001, 100_000]);
    let Take { piece: length, part } = taken[1];
    assert_eq!(length, part);
    assert!(length < 100_000 && builder.body() as usize > BODY_MAX - 32, "{length}");
    read(builder);
    let (taken, _) = fill(BODY_MAX, &[65_536]);
    assert_eq!(taken, [Take::whole(BODY_MAX)]);
}

#[test]
fn a_chunk_holds_no_more_frames_than_its_table_and_the_device_can_do() {
    let (taken, builder) = fill(BODY_MAX, &[8; 400]);
    assert_eq!(taken.len(), FRAMES_FULL);
    read(builder);
    let (taken, _) = fill(BODY_MAX, &[600; 400]);
    assert_eq!(taken.len(), 30, "and one piece for the table");
    let (taken, _) = fill(BODY_MAX, &[601; 400]);
    assert_eq!(taken.len(), 30, "nothing lies between them");
    let (taken, builder) = fill(BODY_MAX, &[512; 400]);
    let (copied, table) = (512 * taken.len(), 16 * (taken.len() - 1));
    assert!(copied + table <= COPIED_BYTES_MAX && builder.copied == copied);
}

#[test]
fn any_messages_fill_chunks_that_keep_all_bounds() {
    for seed in 0..3_000 {
        let mut prng = Prng::new(seed);
        let body_max = 192 + prng.below((BODY_MAX - 191) as u64) as usize;
        let lens: Vec<u32> = (0..prng.between(1, 60))
            .map(|_| match prng.below(4) {
                0 => prng.between(1, 600),
                1 => 4_096 * prng.between(1, 4),
                _ => prng.between(1, 70_000),
            } as u32)
            .collect();
        let asks = prng.below(3) as f64 / 2.0;
        let asked: Vec<(u32, bool)> = lens.iter().map(|&len| (len, prng.chance(asks))).collect();
        let (taken, builder) = fill_with(body_max, asked.into_iter());
        assert!(!taken.is_empty() && builder.body() as usize <= body_max, "seed {seed}");
        let padding: usize = builder.padding;
        let found = read(builder);
        let end = found.iter().map(|(frame, start)| start + frame.length as usize).max();
        assert!(padding * PADDING_SHARE <= end.unwrap(), "seed {seed}");
        for (take, len) in taken.iter().zip(&lens) {
            let Take { piece, part } = *take;
            assert!(part > 0 && part <= piece && piece <= *len, "seed {seed}: {take:?}");
            let is_end = piece == *len;
            assert!(is_end || piece as usize >= PIECE_BYTES_MIN, "seed {seed}: {take:?}");
        }
    }
}

#[test]
fn an_empty_chunk_takes_some_of_any_message_whatever_path_and_peer_bear() {
    for seed in 0..20_000 {
        let mut prng = Prng::new(seed);
        let piece_max = prng.between(64, 20_000) as usize;
        let body_max = prng.between(64, piece_max as u64) as usize;
        let len = prng.between(1, 60_000) as u32;
        let at_pages = prng.chance(0.5);
        let mut message = message(len, at_pages);
        let mut builder = Builder::new(Bounds { body_max, piece_max, gather_max: 31 }, Vec::new());
        let say = format!("{len} bytes in chunks of {body_max}, pieces of {piece_max}");
        let take = builder.take_of(&message).expect(&say);
        let Take { piece, part } = take;
        let has_pages = at_pages && piece_max >= PAGE_BYTES;
        let align = if has_pages { PAGE_BYTES } else { FRAME_ALIGN_BYTES };
        let shortest = piece_max.min(PIECE_BYTES_MIN) & !(align - 1);
        assert!(piece == len || piece as usize >= shortest, "{say}: a piece of {piece}");
        builder.add_part(message.cut(key(), piece), part);
        assert!(part > 0 && builder.body() as usize <= body_max, "{say}: {part}");
    }
}
