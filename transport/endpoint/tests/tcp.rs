//! Links over TCP by policy, and what becomes of a stream that breaks the rules.

mod common;

use common::{LOOPBACK, Node, Pair, any_port, drive, pattern};
use std::io::{Read, Write};
use std::net::TcpStream;
use towpath_base::Prng;
use towpath_proto::wire::{PREFIX_BYTES, Welcome};
use towpath_proto::{DownReason, Outcome};
use towpath_transport::{
    Carrier, CarrierChoice, Endpoint, EndpointConfig, Event, LinkError, SendOptions, UdpConfig,
};

fn over_tcp() -> EndpointConfig {
    EndpointConfig::new().carrier(CarrierChoice::Tcp)
}

#[test]
fn messages_of_all_sizes_arrive_whole_and_in_order_over_tcp() {
    for shared in [true, false] {
        let server = EndpointConfig::new().shared_receiving(shared);
        let mut pair = Pair::with(over_tcp(), server);
        assert_eq!(pair.client.endpoint.carrier(), Carrier::Tcp);
        let channel = pair.open(true);
        for (token, len) in [(1, 1), (2, 4_032), (3, 57_345), (4, 200_000), (5, 3_000_000)] {
            let bytes = pattern(len, token);
            pair.send(channel, &bytes, token);
            let mut got = Vec::new();
            pair.until(|_, server| {
                for event in server.events.drain(..) {
                    match event {
                        Event::Message(message) => got.extend(message.to_vec()),
                        Event::StreamChunk { chunk, .. } => got.extend_from_slice(&chunk),
                        _ => {}
                    }
                }
                (got.len() == len).then_some(())
            });
            assert!(got == bytes, "message {token}");
            let (outcome, _) = pair.until(|client, _| client.take_sent(token));
            assert_eq!(outcome, Outcome::Delivered);
        }
        let packets = pair.client.endpoint.device().counters().packets_sent;
        assert_eq!(packets, 0, "nothing went through the device");
    }
}

#[test]
fn both_ends_send_at_once_and_a_lagging_reader_bounds_what_is_held() {
    let seed = 9;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let config = over_tcp().quota_chunks(16).credit_total(32).links_max(1);
    let mut pair = Pair::new(config);
    let channel = pair.open(false);
    let (client_link, server_link) = (pair.client_link, pair.server_link);
    let all = 300u64;
    let (mut sent, mut delivered) = ([0u64; 2], [0u64; 2]);
    let mut seen = [vec![0u8; all as usize], vec![0u8; all as usize]];
    let mut kept = Vec::new();
    let bytes_of = |token: u64| {
        let mut bytes = pattern(8 + (token as usize * 977) % 30_000, token);
        bytes[..8].copy_from_slice(&token.to_le_bytes());
        bytes
    };
    pair.until(|client, server| {
        for (side, node) in [client, server].into_iter().enumerate() {
            let link = [client_link, server_link][side];
            while sent[side] < all && sent[side] - delivered[side] < 24 {
                let payload = common::payload(&node.endpoint, &bytes_of(sent[side]));
                node.endpoint.send(link, channel, payload, SendOptions::new()).expect("room");
                sent[side] += 1;
            }
            for event in node.events.drain(..) {
                match event {
                    Event::Sent { outcome, .. } => {
                        assert_eq!(outcome, Outcome::Delivered);
                        delivered[side] += 1;
                    }
                    Event::Message(message) => kept.push((side, message)),
                    Event::LinkDown { reason, .. } => panic!("{reason:?}"),
                    _ => {}
                }
            }
        }
        // Some are kept for a while.
        while kept.len() > 6 {
            let (side, message) = kept.swap_remove(prng.below(kept.len() as u64) as usize);
            let bytes = message.to_vec();
            let token = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            assert!(bytes == bytes_of(token), "message {token}");
            seen[side][token as usize] += 1;
        }
        let done = delivered.iter().all(|&count| count == all);
        if done {
            for (side, message) in kept.drain(..) {
                let bytes = message.to_vec();
                let token = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                seen[side][token as usize] += 1;
            }
        }
        let here = seen.iter().all(|side| side.iter().all(|&times| times == 1));
        (done && here).then_some(())
    });
    for node in [&mut pair.client, &mut pair.server] {
        node.turn();
        let census = node.endpoint.buffers();
        assert_eq!(census.recv_free + census.recv_posted, census.recv_all);
        assert_eq!(census.send_free, census.send_all);
        let stats = node.endpoint.endpoint_stats();
        assert_eq!((stats.tcp_breaches, stats.strays), (0, 0), "{stats:?}");
    }
}

#[test]
fn a_peer_that_closes_in_order_or_dies_is_noticed_over_tcp_too() {
    let mut pair = Pair::new(over_tcp());
    pair.client.endpoint.close(pair.client_link);
    let reason = |event: &Event| match event {
        Event::LinkDown { reason, .. } => Some(*reason),
        _ => None,
    };
    let reasons = pair.until(|client, server| {
        let both = client.events.iter().chain(&server.events).filter_map(reason).count() == 2;
        both.then(|| (client.take(reason), server.take(reason)))
    });
    assert_eq!(reasons, (Some(DownReason::Local), Some(DownReason::Goodbye)));

    let Pair { client, mut server, .. } = Pair::new(over_tcp());
    drop(client);
    let mut bystander = Node::new(over_tcp());
    let seen = drive(&mut bystander, &mut server, |_, server| server.take(reason));
    assert_eq!(seen, DownReason::PeerGone);
}

#[test]
fn without_a_set_up_connection_there_is_no_link_over_tcp() {
    let make = || Endpoint::udp(UdpConfig::new(LOOPBACK.into()), over_tcp()).expect("loopback");
    let (mut near, mut far) = (make(), make());
    let (near_hello, near_half) = near.offer().expect("room");
    let (far_hello, _far_half) = far.offer().expect("room");
    let refused = near.establish(near_half, &far_hello, towpath_proto::Side::Client);
    assert_eq!(refused.err(), Some(LinkError::NoStream));
    drop(near_hello);
}

/// A client of a server over TCP that has exchanged HELLOs by hand.
fn hostile_client(server: &mut Node) -> TcpStream {
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let mut donor = Endpoint::udp(UdpConfig::new(LOOPBACK.into()), over_tcp()).expect("loopback");
    let (hello, _half) = donor.offer().expect("room");
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.write_all(&hello.emit()).expect("it reads");
    stream.set_nonblocking(true).expect("a socket");
    let (mut answer, mut bystander) = (Vec::new(), Node::new(over_tcp()));
    drive(&mut bystander, server, |_, _| {
        let mut bytes = [0; 256];
        if let Ok(read) = stream.read(&mut bytes) {
            answer.extend_from_slice(&bytes[..read]);
        }
        let whole = Welcome::byte_len(answer.first_chunk::<PREFIX_BYTES>()?).expect("a HELLO");
        (answer.len() == whole).then_some(())
    });
    stream
}

#[test]
fn a_peer_that_sends_no_frames_loses_its_link_and_nothing_else_happens() {
    let seed = 4;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for round in 0..12 {
        let mut server = Node::new(over_tcp().links_max(2));
        let mut stream = hostile_client(&mut server);
        let mut garbage = vec![0; 4096];
        prng.fill(&mut garbage);
        match round % 3 {
            // Sound lengths around what is no header: dropped and counted, the link stays up.
            0 => {
                for frame in garbage.chunks_mut(128) {
                    frame[..4].copy_from_slice(&124u32.to_le_bytes());
                }
            }
            1 => garbage[..4].copy_from_slice(&[255; 4]),
            _ => garbage[..4].copy_from_slice(&(prng.below(64) as u32).to_le_bytes()),
        }
        stream.write_all(&garbage).expect("the socket holds it");
        let mut bystander = Node::new(over_tcp());
        let link = server.endpoint.links().next().expect("the link is up");
        drive(&mut bystander, &mut server, |_, server| {
            let bad = server.endpoint.stats(link).map_or(0, |s| s.headers_bad + s.acks_bad);
            let breaches = server.endpoint.endpoint_stats().tcp_breaches;
            if round % 3 == 0 { bad == 32 } else { breaches == 1 }.then_some(())
        });
        assert_eq!(server.endpoint.endpoint_stats().tcp_breaches, u64::from(round % 3 != 0));
        let census = server.endpoint.buffers();
        assert_eq!(census.recv_free + census.recv_posted, census.recv_all);
    }
}
