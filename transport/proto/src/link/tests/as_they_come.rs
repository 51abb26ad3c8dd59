//! Readers that take the pieces of a message as they come.

use super::bufs::Bufs;
use super::hostile::header;
use super::wire::{Faults, Wire};
use super::*;
use crate::event::{Arrival, BufToken, ChannelId, Event, Verdict};
use crate::limits::HEADER_BYTES;
use crate::wire::{ChunkFlags, ChunkHeader, Kind};

fn opened(seed: u64, faults: Faults, ordered: bool) -> (Wire, ChannelId) {
    let tune = |config: LinkConfig| config.pieces_as_they_come(true);
    let (mut wire, channel) = Wire::open_tuned(seed, faults, ordered, tune);
    for end in &mut wire.ends {
        end.as_they_come = !ordered;
    }
    (wire, channel)
}

#[test]
fn pieces_in_any_order_make_the_message_and_what_was_given_up_is_told() {
    let (mut early, mut aborted) = (0, 0);
    for seed in 0..60 {
        println!("seed {seed}");
        let (mut wire, channel) = opened(seed, ALL_FAULTS, false);
        let mut prng = Prng::new(seed);
        let mut contents = Vec::new();
        for token in 0..40 {
            let len = any_len(&mut prng);
            contents.push(content(&mut prng, token, len));
            let deadline = wire.now + Nanos(prng.below(400_000));
            let deadline = if prng.chance(0.5) { deadline } else { Time::NEVER };
            wire.ends[0].send(channel, token, contents[token as usize].clone(), deadline);
            wire.turn(0);
        }
        wire.run_until(Wire::settled);
        check_outcomes(&wire, &contents, seed);
        early += wire.ends[1].out_of_order;
        aborted += wire.ends[1].aborted;
        wire.check_clean();
    }
    assert!(early > 100 && aborted > 10, "{early} pieces out of order, {aborted} given up");
}

#[test]
fn a_piece_is_handed_out_before_the_message_is_whole_and_an_ordered_channel_waits() {
    for ordered in [false, true] {
        let (mut wire, channel) = opened(1, Faults::default(), ordered);
        wire.ends[0].send(channel, 1, vec![7; 400_000], Time::NEVER);
        wire.run_until(|wire| !wire.ends[1].streams.is_empty() || wire.settled());
        assert_eq!(wire.settled(), ordered, "ordered: {ordered}");
        wire.run_until(Wire::settled);
        assert_eq!(wire.ends[1].received, vec![vec![7; 400_000]]);
        wire.check_clean();
    }
}

#[test]
fn pieces_that_overlap_end_their_message_and_the_reader_is_told() {
    let tune = |config: LinkConfig| config.pieces_as_they_come(true);
    let [end, _] = Wire::new(1, Faults::default(), tune).ends;
    let (mut link, mut bufs) = (end.link, Bufs::default());
    let mut give = |link: &mut Link, header: &ChunkHeader, body: &[u8]| {
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        let (header, buf, received_at) = (&bytes, BufToken(0), Time::ZERO);
        let arrival = Arrival { header, body, buf, may_keep: true, received_at };
        link.handle_chunk(Time::ZERO, PathId(0), &arrival, &mut bufs)
    };
    let open = ChunkHeader { channel: 1, ..header(Kind::Open, 0, 0) };
    let _ = give(&mut link, &open, &[]);
    while link.poll_event().is_some() {}
    let piece = |number, index, offset| ChunkHeader {
        channel: 1,
        flags: ChunkFlags::default(),
        message_len: 48,
        length: 16,
        index,
        offset,
        ..header(Kind::Data, number, 0)
    };
    let body = [1; 16];
    for (number, index, offset) in [(1, 2, 32), (2, 0, 0)] {
        assert_eq!(give(&mut link, &piece(number, index, offset), &body), Verdict::Kept(1));
        let told = link.poll_event();
        assert!(matches!(told, Some(Event::StreamChunk { end: false, .. })), "{told:?}");
    }
    // With it as many bytes are here as the message has, and some of them twice.
    let _ = give(&mut link, &piece(3, 1, 8), &body);
    assert!(matches!(link.poll_event(), Some(Event::Recycled { .. })));
    assert!(matches!(link.poll_event(), Some(Event::StreamAborted { .. })));
    assert_eq!((link.stats().violations, link.receives.len()), (1, 0));
}
