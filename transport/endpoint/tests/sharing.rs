//! How the channels of a link share it, on the device in memory: exact, for nothing is ever late.

use std::collections::BTreeMap;
use towpath_transport::{
    ChannelError, ChannelId, CloseReason, Device, Endpoint, EndpointConfig, Event, LinkId, MemEnd,
    OpenError, Outcome, Region, SendOptions, mem_pair,
};

const CHUNK_BYTES: u32 = 16 << 10;

/// Two ends; the client keeps each of its channels busy with messages of a length of its own.
struct Wire {
    client: MemEnd,
    server: MemEnd,
    /// The length of messages, and how many are kept under way, by channel.
    offered: BTreeMap<ChannelId, (usize, usize)>,
    /// Payload bytes that came, by channel.
    received: BTreeMap<ChannelId, u64>,
}

fn send(
    at: &mut Endpoint<impl Device<Memory = Region>>,
    link: LinkId,
    channel: ChannelId,
    len: usize,
) {
    let buf = at.copy(&vec![7; len]).expect("a free buffer");
    at.send(link, channel, buf, SendOptions::new().token(channel.0.into()))
        .expect("an open channel");
}

impl Wire {
    fn new(config: &EndpointConfig, channels: usize) -> (Self, Vec<ChannelId>) {
        let config = config.clone().links_max(1).chunk_bytes_max(CHUNK_BYTES).quota_chunks(64);
        let (client, server) = mem_pair(config.clone(), config).expect("two small endpoints");
        let (offered, received) = (BTreeMap::new(), BTreeMap::new());
        let mut wire = Self { client, server, offered, received };
        let mut ids = Vec::new();
        for _ in 0..channels {
            let MemEnd { endpoint, link } = &mut wire.client;
            ids.push(endpoint.open_channel(*link, true).expect("a fresh link has room"));
            wire.turn();
        }
        (0..4).for_each(|_| wire.turn());
        (wire, ids)
    }

    /// Keeps `count` messages of `len` bytes under way on a channel.
    fn offer(&mut self, channel: ChannelId, len: usize, count: usize) {
        self.offered.insert(channel, (len, count));
        let MemEnd { endpoint, link } = &mut self.client;
        (0..count).for_each(|_| send(endpoint, *link, channel, len));
    }

    fn turn(&mut self) {
        let Self { client, server, offered, received } = self;
        let link = client.link;
        client.endpoint.turn(|at, event| {
            if let Event::Sent { payload, token, .. } = event {
                let channel = ChannelId(token as u32);
                drop(payload);
                send(at, link, channel, offered[&channel].0);
            }
        });
        server.endpoint.turn(|at, event| match event {
            Event::Message(message) => {
                *received.entry(message.channel()).or_default() += message.len() as u64;
                at.release(message);
            }
            Event::StreamChunk { channel, chunk, .. } => {
                *received.entry(channel).or_default() += chunk.len() as u64;
            }
            _ => {}
        });
    }

    fn received(&self, channel: ChannelId) -> u64 {
        self.received.get(&channel).copied().unwrap_or(0)
    }
}

/// Opens as many channels as there is credit for, and sends a message on each while the reader
/// keeps whatever comes. How many chunks were sent again, and how often credit was asked for.
fn fill(channels: usize) -> (u64, u64) {
    let quota = 8;
    let config = EndpointConfig::new()
        .links_max(1)
        .chunk_bytes_max(4096)
        .quota_chunks(quota)
        .credit_total(quota * channels as u32)
        .receives_ready(64)
        .tune_links(move |link| link.channels_max(2 * channels as u32).sends_max(2 * channels))
        .send_pools(&[(16 << 10, channels)]);
    let (mut client, mut server) = mem_pair(config.clone(), config).expect("two small endpoints");
    let (mut opened, mut kept, mut sent) = (Vec::new(), Vec::new(), 0);
    let mut turn = |opened: &mut Vec<ChannelId>, kept: &mut Vec<_>, client: &mut MemEnd| {
        client.endpoint.turn(|_, event| match event {
            Event::ChannelOpened { channel, .. } => opened.push(channel),
            Event::Sent { outcome, .. } => {
                assert_eq!(outcome, Outcome::Delivered);
                sent += 1;
            }
            Event::ChannelClosed { reason, .. } => panic!("{reason:?}"),
            _ => {}
        });
        server.endpoint.turn(|_, event| {
            if let Event::Message(message) = event {
                kept.push(message);
            }
        });
        sent
    };
    for _ in 0..channels {
        client.endpoint.open_channel(client.link, true).expect("credit for so many");
        turn(&mut opened, &mut kept, &mut client);
    }
    let refused = client.endpoint.open_channel(client.link, true);
    assert_eq!(refused, Err(ChannelError::Link(OpenError::NoCredit)));
    while opened.len() < channels {
        turn(&mut opened, &mut kept, &mut client);
    }
    // The longest that is held whole: four chunks.
    let len = client.endpoint.whole_bytes_max(client.link).expect("the link") as usize;
    assert!(len > 12 << 10);
    for &channel in &opened {
        send(&mut client.endpoint, client.link, channel, len);
    }
    while turn(&mut opened, &mut kept, &mut client) < channels {}
    assert_eq!(kept.len(), channels, "all came, although nothing was given back");
    let stats = client.endpoint.stats_of_all_links();
    let census = server.endpoint.buffers();
    assert!(census.recv_all >= 4 * channels, "{census:?}");
    drop(kept);
    server.endpoint.turn(|_, _| {});
    let census = server.endpoint.buffers();
    assert_eq!(census.recv_all, census.recv_free + census.recv_posted, "{census:?}");
    (stats.chunks_retransmitted, stats.credit_probes)
}

// A host that lets this thread wait makes acks late, but not in each of so many runs.

#[test]
fn a_thousand_channels_hold_what_came_although_few_receives_are_posted() {
    assert!((0..10).any(|_| fill(1000) == (0, 0)), "nothing is lost, and all credit is known");
}

#[test]
fn ten_thousand_channels_share_a_link() {
    assert!((0..10).any(|_| fill(10_000) == (0, 0)), "nothing is lost, and all credit is known");
}

/// Opens as many channels as `limit` allows at the opener, or at its peer.
fn exceed(limit: u32, at_the_peer: bool) {
    let config = |channels: u32| {
        EndpointConfig::new()
            .links_max(1)
            .chunk_bytes_max(4096)
            .quota_chunks(8)
            .credit_total(8 * (limit + 8))
            .receives_ready(64)
            .tune_links(move |link| link.channels_max(channels))
            .send_pools(&[(256, 8)])
    };
    let near = if at_the_peer { limit + 8 } else { limit };
    let (mut client, mut server) =
        mem_pair(config(near), config(limit)).expect("two small endpoints");
    let (mut opened, mut refused) = (0, Vec::new());
    let mut turn = |client: &mut MemEnd| {
        client.endpoint.turn(|_, event| match event {
            Event::ChannelOpened { .. } => opened += 1,
            Event::ChannelClosed { reason, .. } => refused.push(reason),
            _ => {}
        });
        server.endpoint.turn(|_, _| {});
        (opened, refused.clone())
    };
    for _ in 0..limit {
        client.endpoint.open_channel(client.link, true).expect("room for so many");
        turn(&mut client);
    }
    while turn(&mut client).0 < limit {}
    let one_more = client.endpoint.open_channel(client.link, true);
    if !at_the_peer {
        assert_eq!(one_more, Err(ChannelError::Link(OpenError::TooMany)));
        return;
    }
    one_more.expect("room at this end");
    while turn(&mut client).1.is_empty() {}
    let (opened, refused) = turn(&mut client);
    assert!(matches!(refused[..], [CloseReason::Refused(_)]), "{refused:?}");
    assert_eq!(opened, limit);
}

#[test]
fn the_channel_beyond_a_thousand_or_ten_thousand_is_refused_by_name() {
    exceed(1000, false);
    exceed(10_000, false);
}

#[test]
fn the_channel_beyond_what_the_peer_allows_is_refused_by_it() {
    exceed(1000, true);
    exceed(10_000, true);
}

fn config() -> EndpointConfig {
    EndpointConfig::new().send_pools(&[(256, 64), (CHUNK_BYTES as usize, 64), (1 << 20, 16)])
}

#[test]
fn bytes_are_shared_by_weight_whatever_the_lengths_of_messages() {
    // What is ahead binds, never credit: who waits for credit is in no line.
    let config = config().ahead_bytes(128 << 10);
    let (mut wire, ids) = Wire::new(&config, 3);
    let MemEnd { endpoint, link } = &mut wire.client;
    endpoint.set_weight(*link, ids[2], 48).expect("an open channel");
    wire.offer(ids[0], CHUNK_BYTES as usize, 32);
    wire.offer(ids[1], 1 << 20, 4);
    wire.offer(ids[2], 1 << 20, 4);
    while wire.received(ids[2]) < 64 << 20 {
        wire.turn();
    }
    let total: u64 = wire.received.values().sum();
    for (id, fifths) in ids.iter().zip([1.0, 1.0, 3.0]) {
        let share = wire.received(*id) as f64 / total as f64;
        assert!((share / (fifths / 5.0) - 1.0).abs() < 0.02, "{share} where {fifths} / 5 is due");
    }
}

#[test]
fn equal_channels_get_equal_shares_in_turn() {
    let (mut wire, ids) = Wire::new(&config(), 4);
    ids.iter().for_each(|&id| wire.offer(id, 1 << 20, 3));
    while wire.received(ids[0]) < 32 << 20 {
        wire.turn();
    }
    let total: u64 = wire.received.values().sum();
    for id in ids {
        let share = wire.received(id) as f64 / total as f64;
        assert!((share * 4.0 - 1.0).abs() < 0.02, "{share} where a quarter is due");
    }
}

/// Bytes of others' that come before a newcomer's first message.
fn bytes_before_a_newcomer(ahead_bytes: u64) -> u64 {
    let (mut wire, ids) = Wire::new(&config().ahead_bytes(ahead_bytes), 2);
    wire.offer(ids[0], 1 << 20, 8);
    while wire.received(ids[0]) < 32 << 20 {
        wire.turn();
    }
    let before = wire.received(ids[0]);
    wire.offer(ids[1], 100, 1);
    while wire.received(ids[1]) == 0 {
        wire.turn();
    }
    wire.received(ids[0]) - before
}

#[test]
fn a_newcomer_waits_for_what_is_posted_ahead_and_no_more() {
    let few = bytes_before_a_newcomer(64 << 10);
    assert!(few <= (64 << 10) + 2 * u64::from(CHUNK_BYTES), "{few} bytes came before");
    let many = bytes_before_a_newcomer(4 << 20);
    assert!(many > few, "{many} bytes with 4 MiB ahead, {few} with 64 KiB");
}
