//! Messages that share chunks.

mod common;

use common::*;
use std::thread;
use towpath_base::Prng;
use towpath_transport::{BufferCensus, CarrierChoice, ChannelId, EndpointConfig, Message, Outcome};
use towpath_verbs::SEND_SGE_MAX;

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
        // On a busy machine some are late, and sent again.
        let first = stats.chunks_sent - stats.chunks_retransmitted;
        assert!(first < 100, "seed {seed}: {stats:?}");
        let sends = pair.client.endpoint.device().counters().messages_sent - sent_before;
        assert!(sends >= stats.chunks_sent, "seed {seed}: one SEND each, and acks");
    }
}

#[test]
fn pages_that_are_ready_together_land_at_pages_and_their_buffer_goes_home_with_the_last() {
    let mut pair = Pair::new(EndpointConfig::new());
    let channel = pair.open(false);
    for token in 0..64 {
        let page = payload(&pair.client.endpoint, &content(4_096, token)).page_aligned();
        pair.send_payload(channel, page, token);
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
            thread::spawn(move || drop(message)).join().expect("it does not panic");
        } else {
            pair.server.endpoint.release(message);
        }
    }
    let is_home = |census: BufferCensus| census.recv_posted + census.recv_free == census.recv_all;
    pair.until(|_, server| is_home(server.endpoint.buffers()).then_some(()));
    let census = pair.server.endpoint.link_census(pair.server_link).expect("it is up");
    assert_eq!(census.credit_held, 0, "each piece gave its credit back");
}

/// Takes so many messages at the server.
fn take(pair: &mut Pair, count: usize) -> Vec<Message> {
    let mut messages = Vec::new();
    pair.until(|_, server| {
        messages.extend(std::iter::from_fn(|| server.take_message()));
        (messages.len() >= count).then_some(())
    });
    assert_eq!(messages.len(), count);
    messages
}

fn chunks_sent(pair: &Pair) -> u64 {
    pair.client.endpoint.stats(pair.client_link).expect("it is up").chunks_sent
}

fn held(pair: &Pair) -> usize {
    let BufferCensus { recv_all, recv_posted, recv_free, .. } = pair.server.endpoint.buffers();
    recv_all - recv_posted - recv_free
}

/// Waits until so many pieces are held at the server.
fn until_credit_held(pair: &mut Pair, count: u64) {
    let link = pair.server_link;
    pair.until(|_, server| {
        let census = server.endpoint.link_census(link).expect("it is up");
        (census.credit_held == count).then_some(())
    });
}

/// Where in memory a message of one piece begins, and in which page that is.
fn place(message: &Message) -> (usize, usize) {
    let at = message.as_slice().expect("it is one piece").as_ptr() as usize;
    (at, at / 4_096)
}

#[test]
fn fourteen_messages_of_a_page_are_one_send_where_the_device_gathers_them() {
    // A window that starts small starts with short chunks.
    let window = "fixed:1MiB".parse().expect("a controller");
    let mut pair = Pair::new(EndpointConfig::new().controller(window));
    let channel = pair.open(true);
    // The header and the table are gathered as well.
    let together = (SEND_SGE_MAX - 2).min(14);
    let before = chunks_sent(&pair);
    for token in 0..together as u64 {
        pair.send(channel, &content(4_096, token), token);
    }
    let messages = take(&mut pair, together);
    assert_eq!(chunks_sent(&pair) - before, 1);
    let (first, _) = place(&messages[0]);
    for (message, token) in messages.iter().zip(0..) {
        assert_eq!(place(message).0, first + 4_096 * token, "one behind the other");
        assert!(message.to_vec() == content(4_096, token as u64), "message {token}");
    }
    assert_eq!((first % 4_096, held(&pair)), (0, 1));
}

/// Sends so many short messages on each of these channels, all of which are ready together.
fn send_short(pair: &mut Pair, channels: &[ChannelId], count: u64, tokens: &mut u64) {
    for _ in 0..count {
        for &channel in channels {
            pair.send(channel, &content(64, *tokens), *tokens);
            *tokens += 1;
        }
    }
}

#[test]
fn channels_share_a_chunk_and_each_gets_its_own_credit_back() {
    let mut pair = Pair::new(EndpointConfig::new().quota_chunks(8));
    let channels = [pair.open(true), pair.open(true)];
    let (mut tokens, before) = (0, chunks_sent(&pair));
    send_short(&mut pair, &channels, 4, &mut tokens);
    let messages = take(&mut pair, 8);
    assert!(chunks_sent(&pair) - before < 8);
    let (kept, released): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| message.channel() == channels[0]);
    let shares = |other: &Message| kept.iter().any(|one| place(one).1 == place(other).1);
    assert!(released.iter().any(shares), "what came in one chunk lies in one buffer");
    released.into_iter().for_each(|message| pair.server.endpoint.release(message));

    // The one has four credits left, and the other has all eight back, again and again.
    send_short(&mut pair, &channels[..1], 8, &mut tokens);
    let more = take(&mut pair, 4);
    assert!(more.iter().all(|message| message.channel() == channels[0]));
    for _ in 0..4 {
        send_short(&mut pair, &channels[1..], 8, &mut tokens);
        for message in take(&mut pair, 8) {
            assert_eq!(message.channel(), channels[1], "the first one has no credit");
            pair.server.endpoint.release(message);
        }
    }
    drop((kept, more));
    for message in take(&mut pair, 4) {
        assert_eq!(message.channel(), channels[0]);
        pair.server.endpoint.release(message);
    }
    pair.until(|_, server| {
        let census = server.endpoint.buffers();
        (census.recv_posted + census.recv_free == census.recv_all).then_some(())
    });
}

#[test]
fn a_message_that_is_kept_of_each_chunk_takes_one_credit_and_one_buffer() {
    let (quota, rounds) = (32, 31);
    let mut pair = Pair::new(EndpointConfig::new().quota_chunks(quota));
    let channel = pair.open(true);
    let (mut kept, mut tokens) = (Vec::new(), 0);
    for round in 0..rounds {
        send_short(&mut pair, &[channel], 16, &mut tokens);
        // With few credits left they come in several chunks.
        for _ in 0..16 {
            let message = pair.until(|_, server| server.take_message());
            if kept.len() == round {
                kept.push(message);
            } else {
                pair.server.endpoint.release(message);
            }
        }
        until_credit_held(&mut pair, round as u64 + 1);
        assert!(held(&pair) <= kept.len(), "round {round}");
    }
    let of = |message: &Message, token: u64| message.to_vec() == content(64, token);
    assert!(kept.iter().zip(0..).all(|(message, round)| of(message, 16 * round)));
    kept.clear();
    until_credit_held(&mut pair, 0);
    assert_eq!(held(&pair), 0);
}

#[test]
fn messages_of_one_buffer_that_end_on_several_threads_at_once_all_come_home() {
    for seed in 0..10 {
        let mut prng = Prng::new(seed);
        let mut pair = Pair::new(EndpointConfig::new());
        let channel = pair.open(false);
        for token in 0..96 {
            pair.send(channel, &content(prng.between(1, 3_000) as usize, token), token);
        }
        let mut shares: [Vec<Message>; 4] = Default::default();
        for message in take(&mut pair, 96) {
            shares[prng.below(4) as usize].push(message);
        }
        let [ours, theirs @ ..] = shares;
        let threads =
            theirs.map(|messages| thread::spawn(move || messages.into_iter().for_each(drop)));
        for message in ours {
            pair.server.endpoint.release(message);
            pair.server.turn();
        }
        for thread in threads {
            thread.join().expect("it does not panic");
        }
        pair.until(|_, server| {
            let census = server.endpoint.buffers();
            (census.recv_posted + census.recv_free == census.recv_all).then_some(())
        });
        let census = pair.server.endpoint.link_census(pair.server_link).expect("it is up");
        assert_eq!(census.credit_held, 0, "seed {seed}");
    }
}

#[test]
fn messages_of_one_buffer_outlive_the_endpoint() {
    let mut pair = Pair::new(EndpointConfig::new());
    let channel = pair.open(true);
    let sizes = [64, 4_096, 700, 20_000, 8, 4_096];
    for (&size, token) in sizes.iter().zip(0..) {
        pair.send(channel, &content(size, token), token);
    }
    let messages = take(&mut pair, sizes.len());
    drop(pair);
    let mut rest: Vec<_> = messages.into_iter().zip(0..).collect();
    while let Some((message, token)) = rest.pop() {
        assert!(message.to_vec() == content(sizes[token as usize], token), "message {token}");
        thread::spawn(move || drop(message)).join().expect("it does not panic");
    }
}

#[test]
fn messages_share_chunks_over_tcp_too() {
    for seed in 0..5 {
        let mut prng = Prng::new(seed);
        let over_tcp = EndpointConfig::new().carrier(CarrierChoice::Tcp);
        let mut pair = Pair::with(over_tcp, EndpointConfig::new());
        let channel = pair.open(true);
        let before = chunks_sent(&pair);
        let size = |prng: &mut Prng| {
            let most = [600, 5_000, 20_000][prng.below(3) as usize];
            prng.between(1, most)
        };
        let sizes: Vec<usize> = (0..100).map(|_| size(&mut prng) as usize).collect();
        for (&size, token) in sizes.iter().zip(0..) {
            pair.send(channel, &content(size, token), token);
        }
        for (&size, token) in sizes.iter().zip(0..) {
            let message = pair.until(|_, server| server.take_message());
            assert!(message.to_vec() == content(size, token), "seed {seed}, message {token}");
            pair.server.endpoint.release(message);
        }
        assert!(chunks_sent(&pair) - before < 100, "seed {seed}");
        let stats = pair.server.endpoint.stats(pair.server_link).expect("it is up");
        assert_eq!((stats.headers_bad, stats.payloads_bad, stats.violations), (0, 0, 0));
    }
}
