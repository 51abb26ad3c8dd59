//! Messages that share chunks.

mod common;

use common::*;
use towpath_base::Prng;
use towpath_transport::{EndpointConfig, Outcome};

/// Bytes of which no two messages have the same.
fn content(size: usize, token: u64) -> Vec<u8> {
    let mut bytes = vec![0; size];
    Prng::new(token).fill(&mut bytes);
    bytes
}

#[test]
fn short_messages_that_are_ready_together_share_chunks() {
    let mut pair = Pair::new(EndpointConfig::new());
    let channel = pair.open(true);
    let sent_before = pair.client.endpoint.device().counters().messages_sent;
    for token in 0..100 {
        pair.send(channel, &content(64, token), token);
    }
    for token in 0..100 {
        let message = pair.until(|_, server| server.take_message());
        assert_eq!(message.to_vec(), content(64, token));
        pair.server.endpoint.release(message);
    }
    for token in 0..100 {
        let (outcome, payload) = pair.until(|client, _| client.take_sent(token));
        assert_eq!((outcome, payload.byte_len()), (Outcome::Delivered, 64));
    }
    let sends = pair.client.endpoint.device().counters().messages_sent - sent_before;
    assert!(sends < 50, "{sends} for 100 messages");
    let stats = pair.server.endpoint.stats(pair.server_link).expect("it is up");
    assert_eq!((stats.headers_bad, stats.payloads_bad, stats.violations), (0, 0, 0));
}

#[test]
fn messages_of_all_lengths_around_what_is_copied_arrive_whole_and_in_order() {
    for seed in 0..20 {
        let mut prng = Prng::new(seed);
        let mut pair = Pair::new(EndpointConfig::new());
        let channel = pair.open(true);
        let sent_before = pair.client.endpoint.device().counters().messages_sent;
        let sizes: Vec<usize> = (0..100)
            .map(|_| match prng.below(4) {
                0 => prng.between(1, 20),
                1 => prng.between(500, 530),
                2 => prng.between(1, 512),
                _ => prng.between(513, 20_000),
            })
            .map(|size| size as usize)
            .collect();
        for (&size, token) in sizes.iter().zip(0..) {
            pair.send(channel, &content(size, token), token);
        }
        // Some are kept until all others have gone home.
        let mut kept = Vec::new();
        for (&size, token) in sizes.iter().zip(0..) {
            let message = pair.until(|_, server| server.take_message());
            assert!(message.to_vec() == content(size, token), "seed {seed}, message {token}");
            if prng.below(3) == 0 && kept.len() < 30 {
                kept.push((message, token));
            } else {
                pair.server.endpoint.release(message);
            }
        }
        for (message, token) in kept {
            let size = sizes[token as usize];
            assert!(message.to_vec() == content(size, token), "seed {seed}, message {token}, kept");
        }
        for token in 0..100 {
            let (outcome, _) = pair.until(|client, _| client.take_sent(token));
            assert_eq!(outcome, Outcome::Delivered, "seed {seed}");
        }
        let stats = pair.client.endpoint.stats(pair.client_link).expect("it is up");
        assert!(stats.chunks_sent < 100, "seed {seed}: {stats:?}");
        let sends = pair.client.endpoint.device().counters().messages_sent - sent_before;
        assert!(sends >= stats.chunks_sent, "seed {seed}: one SEND each, and acks");
    }
}

#[test]
fn pages_that_are_ready_together_land_at_pages_and_their_buffer_goes_home_with_the_last() {
    let mut pair = Pair::new(EndpointConfig::new());
    let channel = pair.open(false);
    for token in 0..64 {
        pair.send(channel, &content(4_096, token), token);
    }
    let mut messages = Vec::new();
    for _ in 0..64 {
        messages.push(pair.until(|_, server| server.take_message()));
    }
    for message in &messages {
        let whole = message.as_slice().expect("a message of a page is one piece");
        assert_eq!(whole.as_ptr() as usize % 4_096, 0);
    }
    let stats = pair.client.endpoint.stats(pair.client_link).expect("it is up");
    assert!(stats.chunks_sent < 64, "{stats:?}");
    // In any order, and from another thread.
    let mut prng = Prng::new(1);
    while !messages.is_empty() {
        let message = messages.swap_remove(prng.below(messages.len() as u64) as usize);
        if prng.chance(0.5) {
            std::thread::spawn(move || drop(message)).join().expect("it does not panic");
        } else {
            pair.server.endpoint.release(message);
        }
    }
    let is_home = |census: towpath_transport::BufferCensus| {
        census.recv_posted + census.recv_free == census.recv_all
    };
    pair.until(|_, server| is_home(server.endpoint.buffers()).then_some(()));
    let census = pair.server.endpoint.link_census(pair.server_link).expect("it is up");
    assert_eq!(census.credit_held, 0, "each piece gave its credit back");
}
