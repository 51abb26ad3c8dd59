//! What was received is sent on from the buffers in which it arrived.

mod common;

use common::{Node, Pair, any_port, drive, join, pattern, payload};
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::Side;
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, VirtualLink, World};
use towpath_transport::{
    BufferCensus, ChannelId, Device, Endpoint, EndpointConfig, Event, Message, Outcome, Payload,
    Region, SendOptions, SubmitError,
};

fn small() -> EndpointConfig {
    EndpointConfig::new().quota_chunks(32).credit_total(64).progress_budget(64).links_max(2)
}

fn is_home(census: BufferCensus) -> bool {
    census.recv_posted + census.recv_free == census.recv_all
}

fn all_home(pair: &mut Pair) {
    pair.until(|client, server| {
        let censuses = [client.endpoint.buffers(), server.endpoint.buffers()];
        censuses.into_iter().all(is_home).then_some(())
    });
}

/// Sends a message from the client, and gives it as the server got it.
fn receive(pair: &mut Pair, channel: ChannelId, bytes: &[u8]) -> Message {
    pair.send(channel, bytes, 1);
    drop(pair.until(|client, _| client.take_sent(1)));
    pair.until(|_, server| server.take_message())
}

#[test]
fn messages_go_back_from_where_they_arrived_and_all_credit_comes_home() {
    let seed = 27;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut pair = Pair::new(small());
    let channel = pair.open(true);
    let link = pair.server_link;
    // More messages than the channel has credit, some of which share a receive buffer.
    for round in 0..40 {
        let sizes: Vec<usize> =
            (0..8)
                .map(|_| {
                    if prng.below(4) == 0 {
                        prng.between(600, 60_000)
                    } else {
                        prng.between(1, 500)
                    }
                })
                .map(|size| size as usize)
                .collect();
        for (&size, token) in sizes.iter().zip(0..) {
            pair.send(channel, &pattern(size, round * 8 + token), token);
            let message = pair.until(|_, server| server.take_message());
            let places: Vec<_> = message.parts().map(<[u8]>::as_ptr).collect();
            let payload = message.into_payload().expect("few pieces");
            let sent: Vec<_> = payload.segments().iter().map(|part| part.as_ptr()).collect();
            assert_eq!(sent, places, "nothing was copied");
            let options = SendOptions::new().token(token);
            pair.server.endpoint.send(link, channel, payload, options).expect("room");
        }
        for (&size, token) in sizes.iter().zip(0..) {
            let message = pair.until(|client, _| client.take_message());
            assert!(message.to_vec() == pattern(size, round * 8 + token), "{round}, {token}");
            drop(message);
            let (outcome, _) = pair.until(|_, server| server.take_sent(token));
            assert_eq!(outcome, Outcome::Delivered);
            drop(pair.until(|client, _| client.take_sent(token)));
        }
    }
    all_home(&mut pair);
    let usage = pair.client.endpoint.link_usage(pair.client_link).expect("it is up");
    assert_eq!(usage.credit_left, u64::from(usage.credit_given), "each credit came home once");
}

#[test]
fn one_message_goes_on_to_several_and_its_buffer_comes_home_with_the_last() {
    let mut pair = Pair::new(small());
    let channels = [pair.open(true), pair.open(false)];
    let bytes = pattern(20_000, 3);
    let message = receive(&mut pair, channels[0], &bytes);
    let chunk = message.into_chunks().next().expect("one piece");
    let frozen = chunk.freeze();
    for (channel, token) in channels.into_iter().zip(10..) {
        let options = SendOptions::new().token(token);
        let sent = pair.server.endpoint.send(pair.server_link, channel, frozen.clone(), options);
        sent.expect("room");
    }
    for token in [10, 11] {
        let message = pair.until(|client, _| client.take_message());
        assert!(message.to_vec() == bytes);
        drop(message);
        drop(pair.until(|_, server| server.take_sent(token)));
    }
    pair.until(|client, _| is_home(client.endpoint.buffers()).then_some(()));
    assert!(!is_home(pair.server.endpoint.buffers()), "we have a clone");
    assert!(frozen.thaw().is_err(), "nobody may change a receive buffer");
    all_home(&mut pair);
}

#[test]
fn pieces_of_a_stream_go_on_as_messages() {
    let config = small().streams(true).whole_bytes_max(16 << 10);
    let mut pair = Pair::new(config);
    let channel = pair.open(true);
    let bytes = pattern(300_000, 5);
    pair.send(channel, &bytes, 1);
    let mut got = Vec::new();
    pair.until(|client, server| {
        for event in server.events.drain(..) {
            if let Event::StreamChunk { link, channel, chunk, .. } = event {
                let payload = chunk.into_payload();
                server.endpoint.send(link, channel, payload, SendOptions::new()).expect("room");
            }
        }
        for event in client.events.drain(..) {
            match event {
                Event::Message(message) => got.extend(message.to_vec()),
                // A piece that is longer than a whole message.
                Event::StreamChunk { chunk, .. } => got.extend_from_slice(&chunk),
                _ => {}
            }
        }
        (got.len() == bytes.len()).then_some(())
    });
    assert!(got == bytes);
    pair.until(|client, server| {
        server.events.clear();
        let censuses = [client.endpoint.buffers(), server.endpoint.buffers()];
        censuses.into_iter().all(is_home).then_some(())
    });
}

#[test]
fn a_message_of_more_pieces_than_segments_is_given_back_as_it_was() {
    let mut pair = Pair::new(small().chunk_bytes_max(4_096));
    let channel = pair.open(true);
    let bytes = pattern(20_000, 7);
    let message = receive(&mut pair, channel, &bytes);
    assert!(message.parts().len() > 4);
    let message = message.into_payload().expect_err("it has too many pieces");
    assert!(message.to_vec() == bytes);
    drop(message);
    all_home(&mut pair);
}

#[test]
fn what_is_sent_on_comes_home_also_when_its_link_goes_down_meanwhile() {
    let down = |event: &Event| matches!(event, Event::LinkDown { .. }).then_some(());
    for is_sent in [false, true] {
        let mut pair = Pair::new(small());
        let channel = pair.open(true);
        let bytes = pattern(30_000, 9);
        let message = receive(&mut pair, channel, &bytes);
        let payload = message.into_payload().expect("one piece");
        let Pair { client, mut server, server_link, .. } = pair;
        let mut kept = Some(payload);
        if is_sent && let Some(payload) = kept.take() {
            server.endpoint.send(server_link, channel, payload, SendOptions::new()).expect("room");
        }
        drop(client);
        while server.take(down).is_none() {
            server.turn();
            server.endpoint.wait(Nanos::from_micros(100));
        }
        if let Some(payload) = &kept {
            assert!(payload.segments()[0][..] == bytes[..], "its bytes stay");
        }
        let is_back = |event: &Event| matches!(event, Event::Sent { .. }).then_some(());
        assert_eq!(server.take(is_back).is_some(), is_sent);
        drop(kept);
        server.turn();
        assert!(is_home(server.endpoint.buffers()));
    }
}

#[test]
fn what_another_endpoint_received_is_refused_until_its_region_is_known() {
    let mut pair = Pair::new(small());
    let channel = pair.open(true);
    let bytes = pattern(10_000, 11);
    let message = receive(&mut pair, channel, &bytes);
    let (mut near, mut far) = (Node::new(small()), Node::new(small()));
    let addr = far.endpoint.listen(any_port()).expect("a free port");
    let joined = join(&mut near, &mut far, addr);
    let payload = message.into_payload().expect("one piece");
    let send = |near: &mut Node, payload| {
        near.endpoint.send(joined.link, joined.channel, payload, SendOptions::new().token(5))
    };
    let rejected = send(&mut near, payload).expect_err("it lies elsewhere");
    assert_eq!(rejected.error, SubmitError::NotRegistered { segment: 0 });
    let payload = rejected.payload;
    near.endpoint.register(&payload.segments()[0].region()).expect("room for a region");
    send(&mut near, payload).expect("it is known now");
    // The endpoint that received it may go: the memory stays until it is sent.
    drop(pair);
    let got = drive(&mut near, &mut far, |_, far| far.take_message());
    assert!(got.to_vec() == bytes);
    drop(got);
    let (outcome, payload) = drive(&mut near, &mut far, |near, _| near.take_sent(5));
    assert_eq!(outcome, Outcome::Delivered);
    drop(payload);
}

/// An endpoint in virtual time whose network loses, repeats and reorders.
fn lossy(link: VirtualLink, seed: u64) -> Endpoint<RoceDevice<FaultLink<VirtualLink>>> {
    let us = Nanos::from_micros;
    let plan = FaultPlan::none().drop(0.03).duplicate(0.01, us(500)).reorder(0.02, 8, us(200));
    let link = FaultLink::new(link, seed, FaultControl::new(plan));
    let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
    Endpoint::new(device, small().links_max(1).seed(seed)).expect("a small endpoint")
}

#[test]
fn what_goes_back_over_a_bad_network_is_intact_and_all_credit_comes_home() {
    const MESSAGES: u64 = 300;
    let seed = 31;
    println!("seed {seed}");
    let world = World::new(seed);
    let (near, far) = world.link(&LinkConfig::default());
    let (mut near, mut far) = (lossy(near, seed), lossy(far, seed + 1));
    let (near_hello, near_half) = near.offer().expect("room");
    let (far_hello, far_half) = far.offer().expect("room");
    let link = near.establish(near_half, &far_hello, Side::Client).expect("they fit");
    let far_link = far.establish(far_half, &near_hello, Side::Server).expect("they fit");
    near.open_channel(link, true).expect("room");
    let bytes_of = |number| pattern(1 + (number as usize * 7_919) % 40_000, number);
    let (mut sent, mut back, mut settled) = (0, 0, 0);
    while back < MESSAGES || settled < MESSAGES {
        let mut busy = near.turn(|at, event| {
            let channel = match event {
                Event::ChannelOpened { channel, .. } => channel,
                Event::Message(message) => {
                    assert!(message.to_vec() == bytes_of(back), "message {back}");
                    back += 1;
                    message.channel()
                }
                _ => return,
            };
            while sent < MESSAGES && sent - back < 8 {
                let payload = payload(at, &bytes_of(sent));
                at.send(link, channel, payload, SendOptions::new()).expect("room");
                sent += 1;
            }
        });
        busy |= far.turn(|at, event| match event {
            Event::Message(message) => {
                // Where much is lost, pieces are short: then there are too many of them.
                let channel = message.channel();
                let payload = message.into_payload();
                let payload = payload.unwrap_or_else(|whole| payload_of(at, &whole));
                at.send(far_link, channel, payload, SendOptions::new()).expect("room");
            }
            Event::Sent { outcome, .. } => {
                assert_eq!(outcome, Outcome::Delivered);
                settled += 1;
            }
            _ => {}
        });
        if !busy {
            let timers = near.next_timeout().min(far.next_timeout());
            let held = [near.device().link(), far.device().link()].map(FaultLink::next_release);
            let next = held.into_iter().flatten().chain(world.next_event_time());
            let next = next.fold(timers, Time::min);
            assert!(next < Time(60_000_000_000), "{back} came back");
            world.advance_to(next.max(world.now() + Nanos(1)));
        }
    }
    far.turn(|_, _| {});
    assert!(is_home(far.buffers()), "{:?}", far.buffers());
}

fn payload_of<D: Device<Memory = Region>>(at: &Endpoint<D>, message: &Message) -> Payload {
    payload(at, &message.to_vec())
}
