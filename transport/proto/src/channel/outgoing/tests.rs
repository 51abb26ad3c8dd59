//! Cutting a message, and what of it is acknowledged.

use super::*;
use crate::event::ChannelId;
use crate::slots::Slots;

fn cut_all(lens: &[u32], bytes_max: u32) -> (Outgoing, Vec<SendFrame>) {
    let send = SendKey(Slots::<u8>::new(1).take().unwrap().0);
    let mut message = Outgoing::default();
    message.start(&SendRequest {
        channel: ChannelId(0),
        token: 0,
        segments: lens,
        deadline: Time::NEVER,
        at_pages: false,
    });
    let mut frames = Vec::new();
    while message.may_cut(0, 0) {
        let length = message.rest_of_segment().min(bytes_max);
        frames.push(message.cut(send, length));
    }
    (message, frames)
}

#[test]
fn a_message_keeps_to_no_path_of_the_one_before_it_in_its_slot() {
    let (mut message, _) = cut_all(&[100], 4096);
    message.path = Some(3);
    let segments = &[100];
    let (channel, deadline) = (ChannelId(0), Time::NEVER);
    message.start(&SendRequest { channel, token: 1, segments, deadline, at_pages: false });
    assert_eq!(message.path, None);
}

#[test]
fn pieces_cover_the_message_once_and_never_span_segments() {
    let lens = [100, 4096, 130_000, 7];
    let (message, frames) = cut_all(&lens, 57_344);
    assert!(message.is_fully_cut());
    let mut end = 0;
    for (SendFrame { source, frame }, index) in frames.iter().zip(0..) {
        assert_eq!((frame.offset, frame.index), (end, index));
        let segment = usize::from(source.segment);
        assert!(source.offset + source.length <= lens[segment]);
        assert_eq!(frame.offset, lens[..segment].iter().sum::<u32>() + source.offset);
        assert_eq!((frame.length, frame.piece_len), (source.length, source.length));
        end += frame.length;
    }
    assert_eq!(end, lens.iter().sum());
}

#[test]
fn the_message_is_done_when_each_piece_is_acknowledged_in_any_order() {
    let (mut message, frames) = cut_all(&[10_000], 4096);
    let mut ack = |index: usize| message.on_acked(&frames[index].frame);
    assert!(!ack(2) && !ack(0) && !ack(2));
    assert!(ack(1));
}

#[test]
fn what_was_acknowledged_in_order_is_known_after_one_that_was_not() {
    let (mut message, frames) = cut_all(&[20_000], 4096);
    assert_eq!(frames.len(), 5);
    for index in [0, 1, 1, 0, 3, 3, 1] {
        assert!(!message.on_acked(&frames[index].frame));
    }
    assert_eq!(
        [0, 1, 2, 3, 4].map(|index: usize| message.is_acked(&frames[index].frame)),
        [true, true, false, true, false]
    );
    assert!(!message.on_acked(&frames[2].frame) && message.on_acked(&frames[4].frame));
}

#[test]
fn cutting_stops_at_the_window_and_goes_on_after_the_oldest_is_acknowledged() {
    let (mut message, frames) = cut_all(&[5_000_000], 64);
    assert_eq!(frames.len() as u64, CHUNK_WINDOW);
    message.on_acked(&frames[1].frame);
    assert!(!message.may_cut(0, 0));
    message.on_acked(&frames[0].frame);
    assert!(message.may_cut(0, 0));
}

#[test]
fn a_piece_is_acknowledged_by_its_parts_in_any_order_or_by_itself() {
    let (mut message, frames) = cut_all(&[10_000], 4096);
    let part = |index: usize, part_start: u32, length: u32| {
        let frame = frames[index].frame;
        Frame { offset: frame.offset + part_start, part_start, length, ..frame }
    };
    assert!(!message.on_acked(&part(0, 1024, 3072)));
    assert!(message.is_acked(&part(0, 2048, 1024)) && !message.is_acked(&part(0, 0, 1024)));
    assert!(!message.on_acked(&part(2, 1024, 784)));
    assert!(!message.on_acked(&part(0, 0, 1024)), "the first piece");
    assert!(message.is_acked(&frames[0].frame) && !message.is_acked(&frames[2].frame));
    assert!(!message.on_acked(&frames[2].frame), "late, but whole");
    assert!(!message.on_acked(&part(2, 0, 1024)), "known");
    assert!(message.on_acked(&frames[1].frame));
    assert!(message.parts.is_empty());
}
