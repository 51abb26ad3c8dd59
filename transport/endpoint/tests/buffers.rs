//! Buffers: all come back, from any thread, and a reader that keeps them stalls only itself.

mod common;

use common::{Pair, pattern, payload};
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_memory::{Buf, Region};
use towpath_proto::Outcome;
use towpath_transport::{BufferCensus, EndpointConfig, Event, Fallback, SendOptions, SubmitError};

fn small() -> EndpointConfig {
    EndpointConfig::new().quota_chunks(16).credit_total(64).progress_budget(64).links_max(2)
}

#[test]
fn all_buffers_are_home_after_traffic_and_a_clean_close() {
    let mut pair = Pair::new(small());
    let before = pair.client.endpoint.buffers();
    let channel = pair.open(false);
    for round in 0..100 {
        pair.send(channel, &pattern(10_000, round), round);
        let message = pair.until(|_, server| server.take_message());
        if round % 2 == 0 {
            pair.server.endpoint.release(message);
        } else {
            std::thread::spawn(move || drop(message)).join().expect("a drop");
        }
        drop(pair.until(|client, _| client.take_sent(round)));
    }
    assert_eq!(pair.client.endpoint.buffers().send_free, before.send_all);
    let server = pair.server.endpoint.buffers();
    pair.until(|_, server| {
        let now = server.endpoint.buffers();
        (now.recv_posted + now.recv_free == now.recv_all).then_some(())
    });
    assert_eq!(pair.server.endpoint.buffers().recv_all, server.recv_all, "none were added");
    pair.client.endpoint.close(pair.client_link);
    let down = |event: &Event| matches!(event, Event::LinkDown { .. }).then_some(());
    pair.until(|client, _| client.take(down));
    pair.until(|_, server| server.take(down));
    pair.until(|client, server| {
        let (client, server) = (client.endpoint.buffers(), server.endpoint.buffers());
        let home = |census: BufferCensus| census.recv_posted + census.recv_free == census.recv_all;
        (client.send_free == client.send_all && home(client) && home(server)).then_some(())
    });
}

#[test]
fn what_is_in_use_is_told_with_its_limits_and_ends_with_the_link() {
    // A queue pair of the only path, and one for acks.
    let mut pair = Pair::new(small().paths(1).fallback(Fallback::None));
    let channels = [pair.open(false), pair.open(true)];
    let of = |node: &common::Node, link| node.endpoint.link_usage(link).expect("it is up");
    let fresh = of(&pair.client, pair.client_link);
    assert_eq!((fresh.channels, fresh.channels_max), (2, 1024));
    assert_eq!((fresh.credit_given, fresh.credit_given_max, fresh.credit_left), (32, 64, 32));
    assert_eq!((fresh.sends, fresh.messages_queued, fresh.queued_bytes), (0, 0, 0));
    for (channel, token) in [channels[0], channels[1], channels[1]].into_iter().zip(0..) {
        pair.send(channel, &[7; 1000], token);
    }
    let queued = of(&pair.client, pair.client_link);
    assert_eq!((queued.sends, queued.messages_queued, queued.queued_bytes), (3, 3, 3000));
    let mut kept = Vec::new();
    for token in 0..3 {
        kept.push(pair.until(|_, server| server.take_message()));
        drop(pair.until(|client, _| client.take_sent(token)));
    }
    let held = of(&pair.client, pair.client_link);
    assert_eq!((held.sends, held.messages_queued, held.queued_bytes), (0, 0, 0));
    assert_eq!(held.credit_left, 29, "three chunks are kept");
    for message in kept {
        pair.server.endpoint.release(message);
    }

    for (node, link) in [(&pair.client, pair.client_link), (&pair.server, pair.server_link)] {
        let usage = node.endpoint.usage();
        assert_eq!((usage.links, usage.links_max), (1, 2));
        assert_eq!((usage.qps, usage.qps_max, node.endpoint.qps_of(link)), (2, 4, 2));
        // Those that were just released wait for the next turn.
        let lent = node.endpoint.buffers().recv_posted;
        assert!((lent - 3..=lent).contains(&usage.receives_posted), "{usage:?}, {lent} lent");
        assert!(usage.receives_posted <= usage.receives_wanted, "{usage:?}");
        assert!(usage.receive_buffers <= usage.receive_buffers_max);
        assert_eq!(usage.send_buffers_out, 0);
    }
    let buf = pair.client.endpoint.alloc(1).expect("a free buffer");
    assert_eq!(pair.client.endpoint.usage().send_buffers_out, 1);
    drop(buf);
    pair.client.endpoint.close(pair.client_link);
    let down = |event: &Event| matches!(event, Event::LinkDown { .. }).then_some(());
    pair.until(|client, _| client.take(down));
    assert_eq!(pair.client.endpoint.link_usage(pair.client_link), None);
    let usage = pair.client.endpoint.usage();
    assert_eq!((usage.links, usage.qps, usage.receives_wanted), (0, 0, 0));
}

#[test]
fn memory_is_unmapped_when_an_endpoint_is_dropped_in_the_middle_of_traffic() {
    let mut pair = Pair::new(small());
    let channel = pair.open(false);
    let region = Region::new(1 << 20).expect("memory");
    let pool = towpath_memory::Pool::new(region, 1 << 20);
    let region = pool.region().clone();
    pair.client.endpoint.register(pool.region()).expect("room for a region");
    let mut buf = pool.take().expect("a fresh pool");
    buf.set_len(1 << 20).expect("it fits");
    let options = SendOptions::new();
    pair.client.endpoint.send(pair.client_link, channel, buf, options).expect("room");
    pair.client.turn();
    assert_eq!(pool.free(), 0, "the message is under way");
    drop(pair.client);
    assert_eq!(pool.free(), 1, "the buffer came back");
    drop(pool);
    assert!(!region.is_shared(), "nobody holds the memory");
}

#[test]
fn a_reader_that_keeps_its_messages_stalls_only_its_own_channel() {
    let mut pair = Pair::new(small());
    let (stalled, free) = (pair.open(false), pair.open(false));
    let mut kept = Vec::new();
    for token in 0..40 {
        pair.send(stalled, &[1; 100], token);
    }
    pair.until(|_, server| {
        while let Some(message) = server.take_message() {
            kept.push(message);
        }
        (kept.len() == 16).then_some(())
    });
    for token in 100..400 {
        pair.send(free, &pattern(500, token), token);
        let message = pair.until(|_, server| server.take_message());
        assert_eq!(message.channel(), free, "the quota of the stalled channel is used up");
        pair.server.endpoint.release(message);
        drop(pair.until(|client, _| client.take_sent(token)));
    }
    assert_eq!(kept.len(), 16, "no more than the quota came");
    kept.clear();
    for token in 0..40 {
        let (outcome, _) = pair.until(|client, server| {
            while server.take_message().is_some() {}
            client.take_sent(token)
        });
        assert_eq!(outcome, Outcome::Delivered);
    }
    let counters = pair.server.endpoint.device().counters();
    assert_eq!(counters.no_recv_wqe, 0, "no chunk found no receive buffer");
}

#[test]
fn a_buffer_of_an_unregistered_region_is_refused_with_the_message_given_back() {
    let mut pair = Pair::new(small());
    let channel = pair.open(true);
    let buf = Buf::from_region(Region::new(4096).expect("memory")).expect("a fresh region");
    let region = buf.region();
    let (link, options) = (pair.client_link, SendOptions::new().token(5));
    let rejected = pair.client.endpoint.send(link, channel, buf, options).expect_err("unknown");
    assert_eq!(rejected.error, SubmitError::NotRegistered { segment: 0 });
    pair.client.endpoint.register(&region).expect("room for a region");
    pair.client.endpoint.send(link, channel, rejected.payload, options).expect("known now");
    assert_eq!(pair.until(|client, _| client.take_sent(5)).0, Outcome::Delivered);
}

#[test]
fn a_deadline_in_the_past_and_a_cancel_before_the_flush_end_as_abandoned() {
    let mut pair = Pair::new(small());
    let channel = pair.open(true);
    let link = pair.client_link;
    let client = &mut pair.client.endpoint;
    let late = SendOptions::new().token(1).deadline(client.now());
    let message = payload(client, &[7; 2_000_000]);
    client.send(link, channel, message, late).expect("room");
    let message = payload(client, b"cancelled");
    let send = client.send(link, channel, message, SendOptions::new().token(2)).expect("room");
    client.cancel(send).expect("it has not ended");
    assert!(client.cancel(send).is_err(), "once is enough");
    assert_eq!(pair.until(|client, _| client.take_sent(2)).0, Outcome::Abandoned);
    let (outcome, payload) = pair.until(|client, server| {
        server.events.clear();
        client.take_sent(1)
    });
    assert_eq!(outcome, Outcome::Abandoned);
    assert_eq!(payload.byte_len(), 2_000_000);
    let on_time = pair.client.endpoint.now() + Nanos::from_secs(3_600);
    let message = common::payload(&pair.client.endpoint, b"in time");
    let options = SendOptions::new().token(3).deadline(on_time);
    pair.client.endpoint.send(link, channel, message, options).expect("room");
    assert_eq!(pair.until(|client, _| client.take_sent(3)).0, Outcome::Delivered);
}

#[test]
fn a_thousand_channels_open_and_close_one_after_the_other() {
    let mut pair = Pair::new(small());
    let link = pair.client_link;
    for round in 0..1000 {
        let channel = pair.open(round % 2 == 0);
        pair.client.endpoint.close_channel(link, channel).expect("it is open");
        let closed = |event: &Event| matches!(event, Event::ChannelClosed { .. }).then_some(());
        pair.until(|client, _| client.take(closed));
        pair.until(|_, server| server.take(closed));
    }
}

#[test]
fn one_frozen_buffer_is_in_many_messages_at_once() {
    let mut pair = Pair::new(small());
    let channel = pair.open(false);
    let bytes = pattern(10_000, 7);
    let before = pair.client.endpoint.buffers();
    let mut frozen = pair.client.endpoint.copy(&bytes).expect("a free buffer").freeze();
    for token in 0..8 {
        let (link, options) = (pair.client_link, SendOptions::new().token(token));
        pair.client.endpoint.send(link, channel, frozen.clone(), options).expect("room for it");
    }
    assert_eq!(pair.client.endpoint.buffers().send_free, before.send_free - 1);
    for token in 0..8 {
        let message = pair.until(|_, server| server.take_message());
        assert_eq!(message.to_vec(), bytes);
        pair.server.endpoint.release(message);
        frozen = frozen.thaw().expect_err("messages hold it");
        let (outcome, payload) = pair.until(|client, _| client.take_sent(token));
        assert_eq!((outcome, payload.into_bufs().count()), (Outcome::Delivered, 0));
    }
    let buf = frozen.thaw().expect("no message holds it");
    assert_eq!(&buf[..], bytes);
    drop(buf);
    assert_eq!(pair.client.endpoint.buffers().send_free, before.send_free);
}

#[test]
fn a_timeout_counts_from_the_send_and_the_earlier_of_timeout_and_deadline_counts() {
    let mut pair = Pair::new(small());
    let channel = pair.open(true);
    let (link, hour) = (pair.client_link, Duration::from_secs(3_600));
    let long_ago = Time(pair.client.endpoint.now().0 / 2);
    let options = [
        SendOptions::new().timeout(Duration::ZERO),
        SendOptions::new().timeout(hour).deadline(long_ago),
        SendOptions::new().timeout(hour),
    ];
    for (token, options) in (0..).zip(options) {
        // Too long to be sent in the turn that finds its time over.
        let message = payload(&pair.client.endpoint, &[7; 1_000_000]);
        pair.client.endpoint.send(link, channel, message, options.token(token)).expect("room");
    }
    for (token, wanted) in
        [Outcome::Abandoned, Outcome::Abandoned, Outcome::Delivered].into_iter().enumerate()
    {
        let (outcome, _) = pair.until(|client, server| {
            server.events.clear();
            client.take_sent(token as u64)
        });
        assert_eq!(outcome, wanted, "message {token}");
    }
}
