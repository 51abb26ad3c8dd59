//! Mutated packets, set-ups and requests thrown at a serving server: it serves on, and its memory
//! stays flat.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::tap::Tap;
use common::{Client, LONG, Process, Running, config, loopback_udp, pattern};
use towpath_base::Prng;
use towpath_base::crc::crc32c;
use towpath_chunkserver::store::{ChunkId, writer_crcs};
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_fastpath::Method;
use towpath_fastpath::wire::{PROTOCOL, ReadHeader, WriteHeader};
use towpath_rpc::{Header, Kind, Status};
use towpath_transport::{Endpoint, EndpointConfig, RoceUdp, SendOptions};

/// How many packets to throw, for quick runs.
const PACKETS_VARIABLE: &str = "TOWPATH_HOSTILE_PACKETS";
const PACKETS: u64 = 1_000_000;

/// Packets that one attacker throws before another takes its place: new queue pairs, new
/// generations, and the old ones become stale.
const PACKETS_PER_ATTACKER: u64 = 50_000;

/// Links of the server, and what each may have under way.
const LINKS_MAX: u64 = 4;
const CREDIT_CHUNKS_MAX: u64 = 128;

/// Receive buffers, a little over 57 KiB each: for all links, and the reserve of the endpoint.
const RECEIVE_KIB_MAX: u64 = (LINKS_MAX * (CREDIT_CHUNKS_MAX + 9) + 272) * 58;

/// Send buffers: 4,096 of 256 bytes, 2,048 of 4 KiB, 32 of 64 KiB, 4 of 1 MiB.
const SEND_KIB_MAX: u64 = (1 << 10) + (8 << 10) + (2 << 10) + (4 << 10);

/// What the server may come to hold: all of these, and as much again as one link for the rest
/// (headers, control buffers, the allocator).
const GROWTH_KIB_MAX: u64 = RECEIVE_KIB_MAX + SEND_KIB_MAX + CREDIT_CHUNKS_MAX * 58;

/// Growth in the second half of the attack: a leak of ten bytes per packet would be more.
const SECOND_HALF_KIB_MAX: u64 = 4 << 10;

const CHUNK: ChunkId = ChunkId(0xbad);

type Attacker = Client<RoceDevice<Tap>>;

fn attacker(server: &Process, seed: u64) -> Attacker {
    let config = EndpointConfig::new()
        .app_protocol(PROTOCOL)
        .links_max(1)
        .send_pools(&[(4096, 64), (64 << 10, 8)]);
    let config = config.connect_timeout(LONG);
    let link = UdpLink::bind(loopback_udp()).expect("loopback UDP");
    let device = RoceDevice::new(Tap::new(link, seed), RoceConfig::default().seed(seed));
    let endpoint = Endpoint::new(device, config).expect("memory for buffers");
    let mut client = Client::on(endpoint, server.addr);
    // Something to make mutants of: single packets, chunks of several, acks.
    for round in 0..20 {
        client.write(CHUNK, round * 1000, &pattern(9_000, seed)).expect("the server serves");
        client.read(CHUNK, 0, 9_000).expect("the server serves");
    }
    client
}

/// Sets up links with mutated HELLOs.
fn knock(addr: SocketAddr, hello: &[u8], prng: &mut Prng, count: usize) {
    for _ in 0..count {
        let mut bytes = hello.to_vec();
        for _ in 0..prng.below(4) {
            let at = prng.below(bytes.len() as u64) as usize;
            bytes[at] = prng.next_u32() as u8;
        }
        if prng.chance(0.2) {
            bytes.truncate(prng.below(bytes.len() as u64) as usize);
        } else if prng.chance(0.8) {
            let at = bytes.len() - 4;
            let crc = crc32c(&bytes[..at]);
            bytes[at..].copy_from_slice(&crc.to_le_bytes());
        }
        let mut stream = TcpStream::connect(addr).expect("the server listens");
        // It may have been reset already: that is an answer too.
        let _ = stream.write_all(&bytes);
        if prng.chance(0.1) {
            let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
            let _ = stream.read(&mut [0; 256]);
        }
    }
}

fn hello(seed: u64) -> Vec<u8> {
    let config = EndpointConfig::new().app_protocol(PROTOCOL).seed(seed);
    let mut endpoint = Endpoint::udp(loopback_udp(), config).expect("loopback UDP");
    let (hello, pending) = endpoint.offer().expect("room for a link");
    endpoint.withdraw(pending);
    hello.emit()
}

/// Whether the server still does what it is there for.
fn serves(client: &mut Client<RoceUdp>, round: u64) {
    let data = pattern(70_000, round);
    client.write(ChunkId(1), round % 7 * 1000, &data).expect("the server serves");
    let read = client.read(ChunkId(1), round % 7 * 1000, data.len());
    assert!(read.expect("the server serves") == data, "round {round} came back changed");
}

#[test]
fn a_million_mutated_packets_leave_it_serving_and_its_memory_flat() {
    let packets = match std::env::var(PACKETS_VARIABLE) {
        Ok(text) => text.parse().expect("a number of packets"),
        Err(_) => PACKETS,
    };
    let seed = 1_000_003;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let dir = tempfile::tempdir().expect("room for a directory");
    let mut config = config(&dir.path().join("store"));
    config.network.links_max = LINKS_MAX as u32;
    (config.network.read_buffers_large, config.network.read_buffers_small) = (4, 32);
    config.network.credit_chunks_max = CREDIT_CHUNKS_MAX as u32;
    config.telemetry.log = "off".into();
    let server = Process::start(&config);
    let mut client = Client::connect(server.addr);
    client.create(ChunkId(1), None).expect("a fresh name");
    client.create(CHUNK, None).expect("a fresh name");
    serves(&mut client, 0);
    let before = server.rss_kib();
    let (mut thrown, mut half) = (0, None);
    let mut round = 1;
    while thrown < packets {
        let mut attacker = attacker(&server, prng.next_u64());
        let until = packets.min(thrown + PACKETS_PER_ATTACKER);
        while thrown < until {
            let wanted = (until - thrown).min(64) as usize;
            thrown += attacker.endpoint.device_mut().link_mut().throw(wanted) as u64;
            // Its own link goes on as long as it survives what is thrown in its name.
            attacker.turn();
            if thrown % 10_000 < 64 {
                serves(&mut client, round);
                round += 1;
            }
        }
        drop(attacker);
        knock(server.addr, &hello(prng.next_u64()), &mut prng, 100);
        // Links that were set up by accident end with their connections.
        serves(&mut client, round);
        round += 1;
        if thrown >= packets / 2 {
            half.get_or_insert_with(|| server.rss_kib());
        }
    }
    serves(&mut client, round);
    let after = server.rss_kib();
    let half = half.expect("it passed the half");
    println!("{thrown} packets; memory {before} KiB before, {half} at half, {after} after");
    assert!(after - before < GROWTH_KIB_MAX, "{before} KiB before, {after} after");
    assert!(after.saturating_sub(half) < SECOND_HALF_KIB_MAX, "{half} KiB at half, {after} after");
    drop(client);
    Client::connect(server.addr).stat(ChunkId(1)).expect("new clients are taken");
}

/// One honest request of each kind as bytes, to be mutated.
fn requests() -> Vec<Vec<u8>> {
    let data = pattern(6000, 1);
    let write = WriteHeader {
        chunk: CHUNK,
        offset: 100,
        length: data.len() as u32,
        ..WriteHeader::default()
    };
    let crcs = writer_crcs(CHUNK, 100, &data);
    let mut body = write.emit().to_vec();
    crcs.iter().for_each(|crc| body.extend(crc.to_le_bytes()));
    let read = ReadHeader { chunk: CHUNK, offset: 0, length: 5000, ..ReadHeader::default() };
    let name = [0x0a, 18, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0xad, 0x0b, 0, 0, 0, 0, 0, 0];
    let mut all = vec![request(Method::Write, &body, &data)];
    all.push(request(Method::Read, &read.emit(), &[]));
    for method in Method::ALL {
        all.push(request(method, &name, &[]));
        all.push(request(method, &[], &[]));
    }
    all
}

fn request(method: Method, body: &[u8], data: &[u8]) -> Vec<u8> {
    let header = Header {
        kind: Kind::Request,
        method: method as u16,
        status: Status::OK,
        inline: !data.is_empty(),
        request: 1 << 40,
        body_len: body.len() as u32,
        data_len: data.len() as u32,
        timeout_us: 0,
    };
    [&header.emit()[..], body, data].concat()
}

#[test]
fn mutated_requests_are_refused_one_by_one_and_hold_nothing() {
    let seed = 31;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(&dir.path().join("store")));
    let mut client = Client::connect(server.addr);
    client.create(ChunkId(1), None).expect("a fresh name");
    let mut hostile = Client::connect(server.addr);
    hostile.create(CHUNK, None).expect("a fresh name");
    let link = hostile.endpoint.links().next().expect("it is up");
    let (channel, templates) = (hostile.chunks.rpc().channel(), requests());
    let mut sent = 0;
    while sent < 20_000 {
        let mut bytes = templates[prng.below(templates.len() as u64) as usize].clone();
        for _ in 0..prng.below(4) {
            let at = prng.below(bytes.len().min(140) as u64) as usize;
            bytes[at] = prng.next_u32() as u8;
        }
        if prng.chance(0.1) {
            bytes.truncate(1 + prng.below(bytes.len() as u64) as usize);
        }
        if prng.chance(0.5) && bytes.len() >= 96 {
            let crc = crc32c(&bytes[32..92]);
            bytes[92..96].copy_from_slice(&crc.to_le_bytes());
        }
        let sound = hostile
            .endpoint
            .copy(&bytes)
            .map(|buf| hostile.endpoint.send(link, channel, buf, SendOptions::new()).is_ok());
        sent += u64::from(sound == Ok(true));
        hostile.turn();
        if sent % 1000 == 0 {
            serves(&mut client, sent);
        }
    }
    // Its honest requests are still answered, on the same link.
    hostile.delete(CHUNK).or_else(|_| hostile.create(CHUNK, None)).expect("an answer");
    drop((client, hostile));
    let served = server.stop();
    println!("{:?}", served.stats);
    assert!(served.drained, "no request of the hostile client is left behind");
    assert!(served.stats.malformed > 1000 && served.stats.rpc.malformed > 1000);
}
