//! Golden bytes of the table, and bodies that break a rule.

use super::*;
use crate::event::{PathId, PayloadRef, SendFrame, SendKey, Transmit};
use crate::limits::{FRAME_UNITS_MAX, NUMBER_MAX};
use crate::slots::Slots;
use alloc::vec;
use alloc::vec::Vec;
use towpath_base::Prng;

/// What makes a frame a bad one.
type Change<'a> = &'a dyn Fn(&mut Frame);

fn header_of(first: &Frame, units: usize) -> ChunkHeader {
    ChunkHeader {
        kind: Kind::Data,
        flags: ChunkFlags::default().with_units(units).with(ChunkFlags::PART, first.is_part()),
        generation: 1,
        number: NUMBER_MAX,
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
    }
}

fn whole(channel: u32, message: u64, length: u32) -> Frame {
    Frame {
        channel,
        message,
        message_len: length,
        index: 0,
        offset: 0,
        length,
        part_start: 0,
        piece_len: length,
        at_page: false,
    }
}

fn units_of(frames: &[Frame]) -> usize {
    let others: usize = frames[1..].iter().map(Frame::units).sum();
    frames[0].units_as_first() + others
}

/// The chunk of these frames, whose payloads are of one byte each.
fn chunk_of(frames: &[Frame]) -> (ChunkHeader, Vec<u8>) {
    let send = SendKey(Slots::<u8>::new(1).take().unwrap().0);
    let header = header_of(&frames[0], units_of(frames));
    let frames = frames.iter().zip(1..).map(|(frame, mark)| {
        let source = PayloadRef { send, segment: mark, offset: 0, length: frame.length };
        SendFrame { source, frame: *frame }
    });
    let frames = frames.collect();
    let transmit = Transmit { path: PathId(0), header, frames, filler_bytes: 0, cut_at: None };
    let mut body = Vec::new();
    transmit.emit_body(&mut body, |source, body| {
        body.resize(body.len() + source.length as usize, source.segment);
    });
    (header, body)
}

fn found(header: &ChunkHeader, body: &[u8]) -> Result<Vec<(Frame, Range<usize>)>, BodyError> {
    let table = FrameTable::parse(header, body)?;
    let first = (table.first, 0..table.first.length as usize);
    Ok([first].into_iter().chain(table.others()).collect())
}

#[test]
fn golden_bytes_of_a_table_both_ways() {
    let part = Frame {
        message_len: 20_000,
        index: 1,
        offset: 8_192 + 16,
        length: 8,
        part_start: 16,
        piece_len: 1_000,
        ..whole(0x0102_0304, 0x1_0000_0005, 8)
    };
    let last = Frame {
        message: 7,
        length: 5,
        piece_len: 5,
        message_len: 8_197,
        index: 3,
        offset: 8_192,
        part_start: 0,
        channel: 6,
        at_page: false,
    };
    let frames = [part, whole(0x0a0b_0c0d, 0xffff_fffe, 3), last];
    let (header, body) = chunk_of(&frames);
    assert_eq!(header.flags.units(), 4);
    let mut expected = vec![1; 8];
    expected.extend([2, 2, 2, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 0, 0, 0]);
    expected.extend([16, 0, 0, 0, 0xe8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([0x0d, 0x0c, 0x0b, 0x0a, 0xfe, 0xff, 0xff, 0xff, 3, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([6, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0x80, 3, 0, 0, 0]);
    expected.extend([0, 0x20, 0, 0, 5, 0x20, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!(body, expected);
    let places = [0..8, 8..11, 16..21];
    assert_eq!(found(&header, &body), Ok(frames.into_iter().zip(places).collect()));
}

#[test]
fn a_message_by_itself_has_no_table() {
    let frame = whole(1, 2, 3);
    let (header, body) = chunk_of(&[frame]);
    assert_eq!((header.flags.units(), &body[..]), (0, &[1, 1, 1][..]));
    assert_eq!(found(&header, &body), Ok(vec![(frame, 0..3)]));
    assert_eq!(found(&header, &body[..2]), Err(BodyError::Length));
    assert_eq!(found(&header, &[1; 4]), Err(BodyError::Length));
}

#[test]
fn payloads_begin_at_pages_or_back_to_back_as_their_frames_say() {
    let starts = |frames: [Frame; 5]| {
        let (header, body) = chunk_of(&frames);
        let places = found(&header, &body).unwrap().into_iter();
        places.map(|(_, place)| place.start).collect::<Vec<_>>()
    };
    let paged = |message, length| Frame { at_page: true, ..whole(1, message, length) };
    let pages = [paged(1, 4_096), paged(2, 5_001), paged(3, 4_096), whole(1, 4, 10)];
    let [first, second, third, short] = pages;
    assert_eq!(starts([first, second, third, short, short]), [0, 4_096, 12_288, 16_384, 16_400]);
    let packed = |frame| Frame { at_page: false, ..frame };
    let [first, second] = [first, second].map(packed);
    assert_eq!(starts([second, second, short, first, first]), [0, 5_001, 10_008, 10_018, 14_114]);
}

#[test]
fn golden_bytes_of_a_frame_at_a_page() {
    let paged = Frame { at_page: true, ..whole(2, 3, 4_100) };
    let (header, body) = chunk_of(&[whole(1, 1, 5), paged]);
    let table = [2, 0, 0, 0, 3, 0, 0, 0, 4, 0x10, 0, 0x40, 0, 0, 0, 0];
    assert_eq!((body.len(), &body[8_200..]), (8_216, &table[..]));
    let mut short = body.clone();
    short[8_209] = 0x0f;
    assert_eq!(found(&header, &short), Err(BodyError::Frame), "no page at a page");
}

fn any_frame(prng: &mut Prng) -> Frame {
    let length = match prng.below(4) {
        0 => prng.between(1, 600),
        1 => 4_096,
        _ => prng.between(1, 9_000),
    } as u32;
    let message = prng.below(1 << 32);
    let mut frame = whole(prng.next_u32(), message, length);
    frame.at_page = length >= 4_096 && prng.chance(0.5);
    if prng.chance(0.5) {
        return frame;
    }
    let before = if prng.chance(0.5) { 0 } else { prng.between(1, 50_000) as u32 };
    frame.part_start = 8 * prng.below(3) as u32 * prng.below(2) as u32;
    let behind = prng.below(2) as u32 * prng.below(500) as u32;
    if behind > 0 {
        frame.length = frame.length.next_multiple_of(8);
    }
    frame.piece_len = frame.part_start + frame.length + behind;
    frame.offset = before + frame.part_start;
    frame.index = before.min(prng.between(1, 9) as u32);
    frame.message_len = before + frame.piece_len + prng.below(2) as u32 * prng.below(900) as u32;
    frame
}

#[test]
fn any_frames_come_out_as_they_went_in_and_no_other_length_is_taken() {
    let mut prng = Prng::new(1);
    for _ in 0..3_000 {
        let count = prng.between(1, 30);
        let mut frames: Vec<Frame> = (0..count).map(|_| any_frame(&mut prng)).collect();
        assert!(frames.iter().all(Frame::is_sound), "{frames:?}");
        frames[0].at_page = false;
        let (header, mut body) = chunk_of(&frames);
        let places = found(&header, &body).unwrap();
        assert!(places.iter().map(|(frame, _)| frame).eq(&frames));
        for ((frame, place), mark) in places.iter().zip(1u8..) {
            let start = place.start;
            let align = match frame.length {
                _ if frame.at_page => 4_096,
                ..=512 => 8,
                _ => 1,
            };
            assert!(start.is_multiple_of(align) && place.len() == frame.length as usize);
            assert!(body[place.clone()].iter().all(|&byte| byte == mark));
        }
        let cut = body.len() - prng.between(1, body.len() as u64) as usize;
        assert!(found(&header, &body[..cut]).is_err());
        body.extend(vec![0; prng.between(1, 64) as usize]);
        assert!(found(&header, &body).is_err());
    }
}

#[test]
fn frames_whose_fields_do_not_fit_together_are_refused() {
    let piece = Frame {
        message_len: 20_000,
        index: 1,
        offset: 8_192,
        length: 1_000,
        part_start: 0,
        piece_len: 1_000,
        ..whole(1, 2, 8)
    };
    let part = Frame { offset: 8_208, length: 8, part_start: 16, ..piece };
    let changes: [(&str, Change<'_>); 13] = [
        ("no bytes", &|f| f.length = 0),
        ("behind the message", &|f| f.offset = 20_000),
        ("a long message", &|f| f.message_len = MESSAGE_BYTES_MAX + 1),
        ("the first piece elsewhere", &|f| f.index = 0),
        ("a later piece at the start", &|f| (f.offset, f.part_start) = (0, 0)),
        ("more pieces than bytes", &|f| (f.offset, f.part_start, f.index) = (8, 0, 9)),
        ("before the message", &|f| (f.offset, f.part_start, f.length) = (8, 16, 8)),
        ("a part at no eighth byte", &|f| (f.offset, f.part_start) = (8_205, 13)),
        ("a part that ends at no eighth byte", &|f| (f.length, f.piece_len) = (7, 1_000)),
        ("longer than its piece", &|f| f.piece_len = f.length - 1),
        ("a piece behind the message", &|f| f.piece_len = 12_000),
        ("at a page without one", &|f| f.at_page = true),
        ("all at once", &|f| (f.offset, f.length, f.piece_len) = (u32::MAX, u32::MAX, u32::MAX)),
    ];
    for (what, change) in changes {
        for good in [piece, part] {
            let mut bad = good;
            change(&mut bad);
            if bad == good {
                continue;
            }
            assert!(!bad.is_sound(), "{what}: {bad:?}");
            // Behind another, and as the first, where its header tells all of it.
            let short = bad.length as usize % 60_000;
            let first = whole(9, 9, 8);
            let mut table = vec![0; bad.units() * FRAME_UNIT_BYTES];
            emit_table([&first, &bad].into_iter(), &mut table);
            let mut body = vec![0; 8 + short.next_multiple_of(8)];
            body.extend(table);
            assert!(found(&header_of(&first, bad.units()), &body).is_err(), "{what}");
            let units = bad.units_as_first();
            // Of the first nobody asks whether it is at a page.
            if units == 0 && bad.part_start > 0 || bad.at_page {
                continue;
            }
            let mut table = vec![0; units * FRAME_UNIT_BYTES];
            emit_table([&bad].into_iter(), &mut table);
            let mut body = vec![0; body_bytes(short, units) - table.len()];
            body.extend(table);
            assert!(found(&header_of(&bad, units), &body).is_err(), "{what}");
        }
    }
}

#[test]
fn any_bytes_come_to_an_end_within_themselves() {
    let mut prng = Prng::new(7);
    for _ in 0..20_000 {
        let count = prng.between(1, 6);
        let frames: Vec<Frame> = (0..count).map(|_| any_frame(&mut prng)).collect();
        let (mut header, mut body) = chunk_of(&frames);
        for _ in 0..prng.below(6) {
            let at = body.len() as u64 - 1 - prng.below(body.len().min(64) as u64);
            body[at as usize] = prng.next_u32() as u8;
        }
        header.flags = header.flags.with_units(prng.below(FRAME_UNITS_MAX as u64) as usize);
        body.truncate(prng.below(body.len() as u64 + 1) as usize);
        for (frame, place) in found(&header, &body).unwrap_or_default() {
            assert!(frame.is_sound() && place.end <= body.len());
        }
    }
}
