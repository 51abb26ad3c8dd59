//! One limit for whole messages, whatever the packets are, and no stream that is lost unseen.

mod common;

use common::{LOOPBACK, Pair, any_port, pattern, payload};
use std::time::Duration;
use towpath_handle::{ChannelHandle, EndpointHandle, Incoming};
use towpath_proto::Outcome;
use towpath_proto::limits::{PIECE_BYTES_MIN, SEGMENTS_MAX};
use towpath_transport::{
    EndpointConfig, Event, Message, Mtu, Payload, SendOptions, SubmitError, UdpConfig,
};

const LONG: Duration = Duration::from_secs(60);

/// The documented default.
const WHOLE: usize = 258_048;

const MTUS: [Mtu; 3] = [Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu4096];

fn config(mtu: Mtu) -> EndpointConfig {
    EndpointConfig::new().links_max(1).mtu_max(mtu)
}

fn deliver(pair: &mut Pair, message: Payload) -> Message {
    let channel = pair.open(true);
    let options = SendOptions::new().token(1);
    pair.client.endpoint.send(pair.client_link, channel, message, options).expect("room");
    let message = pair.until(|_, server| server.take_message());
    assert_eq!(pair.until(|client, _| client.take_sent(1)).0, Outcome::Delivered);
    pair.client.endpoint.close_channel(pair.client_link, channel).expect("it is open");
    message
}

#[test]
fn messages_up_to_one_length_come_whole_with_packets_of_any_size() {
    for mtu in MTUS {
        let mut pair = Pair::new(config(mtu));
        let link = pair.server_link;
        assert_eq!(pair.server.endpoint.whole_bytes_max(link), Some(WHOLE as u32), "{mtu:?}");
        for len in [1, 20_000, 61_440, 61_441, WHOLE - 1, WHOLE] {
            let bytes = pattern(len, len as u64);
            let sent = payload(&pair.client.endpoint, &bytes);
            let message = deliver(&mut pair, sent);
            assert_eq!(message.len(), len);
            assert!(message.to_vec() == bytes, "{len} bytes at {mtu:?}");
            // Five buffers that are full, were it not for a window that starts small, or a machine
            // that is busy: then pieces are shorter, but never below 16 KiB, which the rest of a
            // segment alone may be.
            let parts = message.parts().len();
            let most = len.div_ceil(PIECE_BYTES_MIN) + SEGMENTS_MAX - 1;
            assert!(parts <= most, "{parts} at {mtu:?}");
            pair.server.endpoint.release(message);
        }
    }
}

#[test]
fn one_byte_more_comes_in_pieces_to_a_loop_that_takes_streams() {
    for mtu in MTUS {
        let mut pair = Pair::new(config(mtu));
        let channel = pair.open(true);
        let bytes = pattern(WHOLE + 1, 3);
        pair.send(channel, &bytes, 1);
        let mut got = Vec::new();
        pair.until(|_, server| {
            for event in server.events.drain(..) {
                match event {
                    Event::StreamChunk { chunk, .. } => got.extend_from_slice(&chunk),
                    Event::Message(message) => panic!("whole: {message:?}"),
                    _ => {}
                }
            }
            (got.len() == bytes.len()).then_some(())
        });
        assert!(got == bytes);
    }
}

#[test]
fn the_second_segment_of_an_assembled_message_begins_a_page() {
    let mut pair = Pair::new(config(Mtu::Mtu1024));
    let (head, data) = (pattern(700, 1), pattern(200_000, 2));
    let endpoint = &pair.client.endpoint;
    let mut sent = Payload::new(endpoint.copy(&head).expect("a buffer"));
    sent.push(endpoint.copy(&data).expect("a buffer")).expect("two segments");
    let message = deliver(&mut pair, sent.page_aligned());
    let parts: Vec<_> = message.parts().collect();
    assert_eq!(parts[0], head);
    assert!(parts[1..].concat() == data);
    assert!(parts.iter().all(|part| part.as_ptr().addr() % 4096 == 0));
}

#[test]
fn assembled_messages_hold_credit_until_they_are_released_and_then_all_of_it_is_back() {
    let quota = 32;
    let mut pair = Pair::new(config(Mtu::Mtu1024).quota_chunks(quota));
    let (link, channel) = (pair.client_link, pair.open(false));
    let bytes = pattern(200_000, 5);
    let mut kept = Vec::new();
    for round in 0..3u64 {
        for number in 0..20 {
            pair.send(channel, &bytes, round << 32 | number);
            if number % 10 == 9 {
                // Send buffers are few: what is delivered gives them back.
                kept.push(pair.until(|_, server| server.take_message()));
            }
        }
        let mut stalled = 0;
        pair.until(|_, server| {
            let before = kept.len();
            kept.extend(std::iter::from_fn(|| server.take_message()));
            stalled = if kept.len() > before { 0 } else { stalled + 1 };
            // On a busy machine those that the credit is for take a while.
            (stalled > 3_000 && kept.len() >= 4).then_some(())
        });
        let held = kept.iter().map(|message| message.parts().len()).sum::<usize>();
        assert!(held <= quota as usize, "{held} buffers of {quota}");
        assert!((4..20).contains(&kept.len()), "{} came", kept.len());
        let mut seen = 0;
        pair.until(|client, server| {
            for message in kept.drain(..).chain(std::iter::from_fn(|| server.take_message())) {
                assert!(message.to_vec() == bytes);
                seen += 1;
            }
            client.events.clear();
            (seen == 20).then_some(())
        });
    }
    pair.until(|client, server| {
        let idle = client.endpoint.is_idle(link) && server.endpoint.is_idle(server_link(server));
        idle.then_some(())
    });
    let buffers = pair.server.endpoint.buffers();
    assert_eq!(buffers.recv_posted + buffers.recv_free, buffers.recv_all, "all are home");
}

fn server_link(server: &common::Node) -> towpath_transport::LinkId {
    server.endpoint.links().next().expect("it is up")
}

#[test]
fn what_was_assembled_of_a_message_that_is_given_up_goes_home() {
    let mut pair = Pair::new(config(Mtu::Mtu512));
    let channel = pair.open(true);
    let options = SendOptions::new().token(1);
    let message = payload(&pair.client.endpoint, &pattern(WHOLE, 1));
    let link = pair.client_link;
    let send = pair.client.endpoint.send(link, channel, message, options).expect("room");
    for _ in 0..3 {
        pair.client.turn();
        pair.server.turn();
    }
    // It may be too late to give it up: the outcome says so.
    let _ = pair.client.endpoint.cancel(send);
    let (outcome, _) = pair.until(|client, _| client.take_sent(1));
    pair.send(channel, b"next", 2);
    pair.until(|client, _| client.take_sent(2));
    let mut lens = Vec::new();
    pair.until(|_, server| {
        lens.extend(std::iter::from_fn(|| server.take_message()).map(|message| message.len()));
        (lens.last() == Some(&4)).then_some(())
    });
    assert_eq!(lens.len() == 2, outcome == Outcome::Delivered, "{outcome:?}, {lens:?}");
    pair.until(|client, server| {
        client.events.clear();
        let buffers = server.endpoint.buffers();
        (buffers.recv_posted + buffers.recv_free == buffers.recv_all).then_some(())
    });
}

fn handles(server: EndpointConfig) -> (Vec<EndpointHandle>, ChannelHandle, ChannelHandle) {
    let spawn = |config: EndpointConfig| {
        let config = config.connect_timeout(LONG);
        EndpointHandle::spawn_udp(UdpConfig::new(LOOPBACK.into()), config).expect("loopback")
    };
    let (client, server) = (spawn(config(Mtu::Mtu1024)), spawn(server));
    let addr = server.listen(any_port()).expect("a free port");
    let near = client.connect(addr).expect("it listens");
    let far = server.accept(LONG).expect("a link");
    let mine = near.open_channel(true).expect("room for a channel");
    let theirs = far.accept_channel(LONG).expect("a channel");
    (vec![client, server], mine, theirs)
}

#[test]
fn a_sender_learns_that_a_handle_takes_no_streams() {
    let (_ends, mine, theirs) = handles(config(Mtu::Mtu1024));
    let send = |len: usize| {
        let buf = mine.copy(&pattern(len, 4)).expect("a buffer");
        mine.send(buf, SendOptions::new())?.wait(LONG)
    };
    let rejected = send(WHOLE + 1).expect_err("nobody takes it");
    assert_eq!(rejected.error, SubmitError::TooLong { bytes: WHOLE + 1, max: WHOLE as u32 });
    assert_eq!(send(WHOLE).expect("taken").expect("an outcome").outcome, Outcome::Delivered);
    match theirs.recv(LONG) {
        Ok(Incoming::Message(message)) => assert!(message.to_vec() == pattern(WHOLE, 4)),
        other => panic!("no whole message but {other:?}"),
    }
}

#[test]
fn a_handle_that_asked_for_streams_gets_them() {
    let (_ends, mine, theirs) = handles(config(Mtu::Mtu1024).streams(true));
    let bytes = pattern(WHOLE + 1, 6);
    drop(mine.send(mine.copy(&bytes).expect("a buffer"), SendOptions::new()));
    let mut got = Vec::new();
    loop {
        match theirs.recv(LONG).expect("the next piece") {
            Incoming::StreamChunk { chunk, message_len, end, .. } => {
                assert_eq!((chunk.offset() as usize, message_len as usize), (got.len(), WHOLE + 1));
                got.extend_from_slice(&chunk);
                if end {
                    break;
                }
            }
            other => panic!("no piece but {other:?}"),
        }
    }
    assert!(got == bytes);
}
