//! What a peer may say that no correct peer says, or says at an odd moment.

use super::bufs::Bufs;
use super::wire::{Faults, Wire};
use super::*;
use crate::Carrier;
use crate::event::{Arrival, BufToken, ChannelId, CloseReason, Event, Verdict};
use crate::limits::{ACK_BYTES_MAX, HEADER_BYTES, NUMBER_MAX, NUMBER_WINDOW};
use crate::wire::{ChunkFlags, ChunkHeader, Kind};

/// A sound header from the peer of `ends[0]`.
pub(super) fn header(kind: Kind, number: u64, sequence: u32) -> ChunkHeader {
    ChunkHeader {
        kind,
        flags: ChunkFlags::default(),
        generation: 1,
        number,
        message: 0,
        channel: 0,
        index: 0,
        offset: sequence,
        message_len: 1 << 20,
        length: 0,
        floor_delta: number.min(NUMBER_WINDOW - 1) as u16,
        credit: 8,
        ack_largest: 0,
        ack_hold: 0,
        body_crc: 0,
    }
}

pub(super) fn give(link: &mut Link, header: &ChunkHeader, payload: &[u8]) -> Verdict {
    let mut bytes = [0; HEADER_BYTES];
    header.emit(&mut bytes);
    give_at(link, Time::ZERO, 0, &bytes, payload)
}

/// Hands in a chunk on a path; what is kept of it is forgotten.
pub(super) fn give_at(
    link: &mut Link,
    now: Time,
    path: u8,
    header: &[u8; HEADER_BYTES],
    body: &[u8],
) -> Verdict {
    let arrival = Arrival { header, body, buf: BufToken(0), may_keep: true, received_at: now };
    link.handle_chunk(now, PathId(path), &arrival, &mut Bufs::default())
}

pub(super) fn alone() -> Link {
    let [end, _] = Wire::new(1, Faults::default(), |config| config).ends;
    end.link
}

#[test]
fn the_last_number_is_acknowledged_and_the_next_is_a_bad_header() {
    let mut link = alone();
    for (number, bad) in [(NUMBER_MAX, 0), (NUMBER_MAX + 1, 1), (u64::MAX, 2)] {
        let _ = give(&mut link, &header(Kind::Ping, number, 0), &[]);
        assert_eq!(link.stats().headers_bad, bad, "{number:#x}");
        let mut out = [0; ACK_BYTES_MAX];
        assert_eq!(link.poll_ack(Time::ZERO, &mut out).is_some(), bad == 0, "{number:#x}");
    }
}

#[test]
fn news_wait_where_nothing_that_came_on_a_worse_carrier_was_accepted() {
    let carriers = [Carrier::Uc, Carrier::Tcp];
    let [end, _] = Wire::with_carriers(1, Faults::default(), &carriers, |config| config).ends;
    let mut link = end.link;
    // Data of a channel that there is not: heard, and refused.
    let generation = link.paths[1].generation_in;
    let data = ChunkHeader { generation, length: 4, ..header(Kind::Data, 0, 0) };
    let give = |link: &mut Link, header: &ChunkHeader, payload: &[u8]| {
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        give_at(link, Time::ZERO, 1, &bytes, payload)
    };
    assert_eq!(give(&mut link, &data, &[0; 4]), Verdict::Recycle);
    assert_eq!(link.stats(), LinkStats::default(), "neither bad nor stale");
    link.set_receive_window(1 << 20);
    let mut out = [0; ACK_BYTES_MAX];
    assert_eq!(link.poll_ack(Time::ZERO, &mut out), None);
    // What is accepted there carries them.
    let _ = give(&mut link, &ChunkHeader { generation, ..header(Kind::Ping, 1, 0) }, &[]);
    assert!(link.poll_ack(Time::ZERO, &mut out).is_some());
}

#[test]
fn a_channel_that_closes_before_its_opening_was_answered_is_reported_closed() {
    let mut link = alone();
    let channel = link.open_channel(true).unwrap();
    assert_eq!(channel, ChannelId(0));
    // The OPENED with sequence 0 is late.
    let _ = give(&mut link, &header(Kind::Close, 1, 1), &[]);
    let closed = Event::Closed { channel, reason: CloseReason::Peer };
    assert_eq!((link.poll_event(), link.poll_event()), (Some(closed), None));
}

#[test]
fn data_that_brings_the_ack_of_our_goodbye_is_not_kept_by_the_link_that_went_down() {
    let mut link = alone();
    let _ = give(&mut link, &header(Kind::Open, 0, 0), &[]);
    let open = header(Kind::Open, 1, 1);
    let _ = give(&mut link, &ChunkHeader { channel: 1, ..open }, &[]);
    while link.poll_transmit(Time::ZERO).is_some() {}
    let _ = give(&mut link, &ack_of(1, header(Kind::Ping, 2, 2)), &[]);
    link.goodbye();
    let goodbye = link.poll_transmit(Time::ZERO).unwrap().header;
    assert_eq!(goodbye.kind, Kind::Goodbye);
    let data = ChunkHeader {
        channel: 1,
        length: 4,
        offset: 0,
        flags: ChunkFlags::default(),
        ..header(Kind::Data, 3, 0)
    };
    let data = ack_of(goodbye.number as u32, data);
    assert_eq!(give(&mut link, &data, b"some"), Verdict::Recycle);
    assert!(link.is_down());
}

#[test]
fn a_chunk_that_comes_after_its_message_was_given_up_is_acknowledged_and_does_not_deliver_it() {
    let (mut wire, channel) = Wire::open(1, Faults::default(), true);
    let [sender, receiver] = &mut wire.ends;
    let segments = [4];
    let deadline = Time::NEVER;
    let request = SendRequest { channel, token: 0, segments: &segments, deadline, at_pages: false };
    let key = sender.link.send(&request).unwrap();
    let now = Time(1 << 30);
    let data = sender.link.poll_transmit(now).unwrap().header;
    sender.link.cancel(key).unwrap();
    let abandon = sender.link.poll_transmit(now).unwrap().header;
    assert_eq!((data.kind, abandon.kind), (Kind::Data, Kind::Abandon));
    let body_crc = towpath_base::crc::crc32c(b"late");
    let _ = give(&mut receiver.link, &abandon, &[]);
    let late = give(&mut receiver.link, &ChunkHeader { body_crc, ..data }, b"late");
    assert_eq!(late, Verdict::Recycle);
    assert_eq!(receiver.link.poll_event(), None);
    let path = &receiver.link.paths[0].rx;
    assert_eq!((path.base(), path.is_complete()), (abandon.number + 1, true));
    // The sender goes by the answer to ABANDON.
    let [sender, receiver] = &mut wire.ends;
    let mut out = [0; ACK_BYTES_MAX];
    let ack = receiver.link.poll_ack(now, &mut out).expect("all of it came");
    sender.link.handle_ack(now, &out[..ack.len], now);
    assert_eq!(sender.link.poll_event(), None);
    let answer = receiver.link.poll_transmit(now).expect("the answer to ABANDON");
    assert_eq!(answer.header.kind, Kind::Abandoned);
    sender.link.handle_sent(PathId(0), data.number, None);
    let mut bytes = [0; HEADER_BYTES];
    answer.header.emit(&mut bytes);
    let _ = give_at(&mut sender.link, now, 0, &bytes, &[]);
    let outcome = Outcome::Abandoned;
    assert_eq!(sender.link.poll_event(), Some(Event::Sent { send: key, token: 0, outcome }));
}

#[test]
fn the_end_of_a_link_looks_once_at_each_message_of_which_a_part_is_there() {
    let (channels, each) = (64, 8);
    let tune = |config: LinkConfig| {
        config.channels_max(channels).quota_chunks(each).credit_total(channels * each)
    };
    let mut wire = Wire::new(1, Faults::default(), tune);
    for _ in 0..channels {
        wire.ends[0].link.open_channel(false).unwrap();
    }
    wire.run_until(|wire| wire.ends.iter().all(|end| end.channels.len() == channels as usize));
    let end = &mut wire.ends[0];
    let first = end.link.paths[0].rx.base();
    let pieces = end.channels.iter().flat_map(|id| (0..u64::from(each)).map(|at| (id.0, at)));
    for ((channel, message), number) in pieces.zip(first..) {
        let data = ChunkHeader {
            channel,
            message,
            message_len: 8,
            length: 4,
            floor_delta: 0,
            ..header(Kind::Data, number, 0)
        };
        let verdict = give(&mut end.link, &data, b"half");
        assert!(matches!(verdict, Verdict::Kept(_)), "{verdict:?}");
    }
    let count = u64::from(channels * each);
    assert_eq!(end.link.receives.len() as u64, count);
    let before = end.link.receives.steps();
    end.link.peer_gone();
    assert_eq!(end.link.receives.len(), 0);
    let steps = end.link.receives.steps() - before;
    assert!(steps <= 2 * count, "{steps} steps for {count} messages");
}

pub(super) fn ack_of(largest: u32, header: ChunkHeader) -> ChunkHeader {
    let flags = header.flags.with(ChunkFlags::ACK, true);
    ChunkHeader { flags, ack_largest: largest, ..header }
}
