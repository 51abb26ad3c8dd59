//! An ack that rides on data waits until a reply has left, and no longer.

use super::hostile::{ack_of, alone, give, give_at, header};
use super::wire::{Faults, Wire};
use super::*;
use crate::Carrier;
use crate::event::{ChannelId, Event, Verdict};
use crate::limits::HEADER_BYTES;
use crate::wire::{ChunkHeader, Kind};

const CHANNEL: ChannelId = ChannelId(1);

/// What becomes of a link.
type End<'a> = &'a dyn Fn(&mut Link);

/// A link with a channel that its peer has opened.
fn with_channel() -> Link {
    let mut link = alone();
    let open = ChunkHeader { channel: CHANNEL.0, ..header(Kind::Open, 1, 0) };
    let _ = give(&mut link, &open, &[]);
    while link.poll_transmit(Time::ZERO).is_some() {}
    while link.poll_event().is_some() {}
    link
}

/// Sends a message of four bytes; the number that it went out under.
fn send(link: &mut Link, token: u64) -> u64 {
    let segments = &[4];
    let (channel, deadline) = (CHANNEL, Time::NEVER);
    let request = SendRequest { channel, token, segments, deadline, at_pages: false };
    link.send(&request).expect("there is room");
    let sent = link.poll_transmit(Time::ZERO).expect("the window is open").header;
    assert_eq!(sent.kind, Kind::Data);
    link.handle_sent(PathId(0), sent.number, None);
    sent.number
}

/// A whole message of the peer, with an ack of ours.
fn message(number: u64, acked: u64) -> ChunkHeader {
    let (length, message) = (4, number - 2);
    let data = header(Kind::Data, number, 0);
    let data = ChunkHeader { channel: CHANNEL.0, message, length, message_len: 4, ..data };
    ack_of(acked as u32, data)
}

fn tokens_delivered(link: &mut Link) -> Vec<u64> {
    let mut tokens = Vec::new();
    while let Some(event) = link.poll_event() {
        if let Event::Sent { token, outcome: Outcome::Delivered, .. } = event {
            tokens.push(token);
        }
    }
    tokens
}

#[test]
fn a_reply_leaves_before_the_ack_that_came_with_its_question_is_taken_in() {
    let mut link = with_channel();
    let number = send(&mut link, 7);
    assert_eq!(give(&mut link, &message(2, number), b"some"), Verdict::Kept(1));
    assert!(matches!(link.poll_event(), Some(Event::Message { .. })));
    assert_eq!(link.poll_event(), None, "the outcome can wait");
    send(&mut link, 8);
    assert!(link.settle_piggyback());
    assert_eq!(tokens_delivered(&mut link), [7]);
    assert!(!link.settle_piggyback(), "there is no other");
}

#[test]
fn of_many_acks_the_one_that_says_most_is_taken_in() {
    let mut link = with_channel();
    let numbers: Vec<u64> = (0..3).map(|token| send(&mut link, token)).collect();
    let before = link.stats().acks_received;
    for (at, acked) in [(2, numbers[0]), (3, numbers[2]), (4, numbers[1])] {
        assert_eq!(give(&mut link, &message(at, acked), b"some"), Verdict::Kept(1));
    }
    link.settle_piggyback();
    assert_eq!(tokens_delivered(&mut link), [0, 1, 2]);
    assert_eq!(link.stats().acks_received, before + 3);
}

#[test]
fn what_was_acknowledged_is_delivered_even_if_the_channel_or_the_link_ends_at_once() {
    let close = ChunkHeader { channel: CHANNEL.0, ..header(Kind::Close, 3, 1) };
    let ends: [(&str, End<'_>); 3] = [
        ("closed", &|link| assert_eq!(give(link, &close, &[]), Verdict::Recycle)),
        ("gone", &|link| link.peer_gone()),
        ("failed", &|link| link.device_failed()),
    ];
    for (what, end) in ends {
        let mut link = with_channel();
        let number = send(&mut link, 7);
        assert_eq!(give(&mut link, &message(2, number), b"some"), Verdict::Kept(1));
        end(&mut link);
        assert_eq!(tokens_delivered(&mut link), [7], "{what}");
    }
}

#[test]
fn an_ack_that_waits_counts_when_the_peer_is_heard_on_a_worse_carrier() {
    for is_acked in [false, true] {
        let carriers = [Carrier::Uc, Carrier::Tcp];
        let [end, _] = Wire::with_carriers(1, Faults::default(), &carriers, |config| config).ends;
        let mut link = end.link;
        let open = ChunkHeader { channel: CHANNEL.0, ..header(Kind::Open, 1, 0) };
        let _ = give(&mut link, &open, &[]);
        while link.poll_transmit(Time::ZERO).is_some() {}
        let number = send(&mut link, 7);
        // Half the time after which a silent carrier is left, and a little.
        let now = Time::ZERO + Nanos::from_millis(260);
        let mut give_there = |header: &ChunkHeader, path: u8, payload: &[u8]| {
            let mut bytes = [0; HEADER_BYTES];
            header.emit(&mut bytes);
            let _ = give_at(&mut link, now, path, &bytes, payload);
        };
        if is_acked {
            give_there(&message(2, number), 0, b"some");
        }
        // The second path's generation.
        give_there(&ChunkHeader { generation: 101, ..header(Kind::Ping, 1, 1) }, 1, &[]);
        let stays = link.carrier() == Carrier::Uc;
        assert_eq!(stays, is_acked, "it follows a peer that it has no answer from");
    }
}

#[test]
fn what_the_ack_that_waits_tells_of_is_not_sent_again() {
    for is_acked in [false, true] {
        let mut link = with_channel();
        let number = send(&mut link, 0);
        // A tail probe first.
        for _ in 0..2 {
            while link.poll_transmit(Time::ZERO).is_some() {}
            link.handle_timeout(link.poll_timeout());
        }
        assert_eq!(link.stats().rtos, 1);
        if is_acked {
            assert_eq!(give(&mut link, &message(2, number), b"some"), Verdict::Kept(1));
        }
        let again = link.poll_transmit(link.poll_timeout());
        assert_eq!(again.is_some(), !is_acked, "{again:?}");
    }
}
