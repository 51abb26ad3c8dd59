//! The client against a chunk server in memory: every range, and every failure.

mod common;

use common::{Direct, Server, pattern};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;
use towpath_base::Prng;
use towpath_fastpath::StorageRequest;
use towpath_fastpath::control::ChunkInfo;
use towpath_fastpath::{
    ChunkId, Client, ClientConfig, ClientError, ErrorKind, ErrorReply, Method, NewChunk,
};
use towpath_rpc::Fate;
use towpath_transport::Nanos;

const CHUNK: ChunkId = ChunkId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

fn connect(server: &Server, config: ClientConfig) -> Client {
    Client::connect(server.addr, config).expect("a server that listens")
}

/// Reads a range in as many operations as it takes.
fn read_all(client: &Client, chunk: ChunkId, from: usize, length: usize) -> Vec<u8> {
    let most = client.op_bytes_max().expect("it answers");
    let ops: Vec<_> = (from..from + length)
        .step_by(most)
        .map(|at| client.read(chunk, at as u64, most.min(from + length - at)))
        .collect();
    ops.into_iter().flat_map(|read| read.wait().expect("a read")).collect()
}

fn refused(error: ClientError) -> ErrorReply {
    match error.kind {
        ErrorKind::Refused(reply) => reply,
        other => panic!("the server should have said no: {other:?}"),
    }
}

#[test]
fn reads_of_any_range_give_what_was_written_at_any_range() {
    let seed = 21;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let server = Server::start();
    let client = connect(&server, ClientConfig::new());
    client.create(CHUNK, None, NewChunk::default()).wait().expect("a new chunk");
    let mut model: Vec<u8> = Vec::new();
    for round in 0..400 {
        let around = |prng: &mut Prng, top: u64| match prng.below(3) {
            0 => prng.below(top),
            1 => (prng.below(top) / 4096 * 4096).max(1),
            _ => (prng.below(top) / 4096 * 4096 + prng.below(3)).saturating_sub(1).max(1),
        };
        let offset = around(&mut prng, 300_000);
        let top = if prng.chance(0.2) { 100_000 } else { 9_000 };
        let bytes = pattern(around(&mut prng, top).max(1) as usize, round);
        let end = offset as usize + bytes.len();
        client.write(CHUNK, offset, &bytes[..]).wait().expect("a write");
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].copy_from_slice(&bytes);
        let from = prng.below(model.len() as u64) as usize;
        let most = (model.len() - from) as u64;
        let to_end = prng.chance(0.3);
        let len = if to_end { most } else { prng.between(1, most.min(60_000)) } as usize;
        let got = if len <= 60_000 && prng.chance(0.5) {
            let held = client.read_held(CHUNK, from as u64, len).wait().expect("a read");
            held.to_vec()
        } else {
            read_all(&client, CHUNK, from, len)
        };
        assert!(got == model[from..from + len], "round {round}: {len} bytes at {from}");
    }
    assert_eq!(client.stat(CHUNK).wait().expect("the chunk").byte_len, model.len() as u64);
    client.close();
}

#[test]
fn a_file_that_is_put_comes_back_whole() {
    let server = Server::start();
    for (index, len) in [0, 1, 4095, 131_072, 131_073, 3_000_001].into_iter().enumerate() {
        let chunk = ChunkId(index as u128);
        // Small operations, so that a long file takes several.
        let client = connect(&server, ClientConfig::new().op_bytes(16 << 10).depth(4));
        let file = pattern(len, 3);
        client.put(chunk, &file).expect("a put");
        assert_eq!(client.stat(chunk).wait().expect("the chunk").byte_len, len as u64);
        assert!(read_all(&client, chunk, 0, len) == file, "{len} bytes came back changed");
    }
}

#[test]
fn control_operations_do_what_they_say_and_pages_of_a_listing_follow_each_other() {
    let server = Server::start();
    let client = connect(&server, ClientConfig::new());
    for id in [7, 3, 1, 4, 9, 2, 5] {
        let made = client.create(ChunkId(id), Some(1000 + id as u64), NewChunk::default());
        made.wait().expect("a new chunk");
    }
    client.delete(ChunkId(4)).wait().expect("the chunk");
    let mut all: Vec<ChunkInfo> = Vec::new();
    loop {
        let after = all.last().map(|info| info.chunk.into());
        let page = client.list_page(after).wait().expect("a page");
        all.extend(page.chunks);
        if !page.more {
            break;
        }
    }
    let names: Vec<u64> = all.iter().map(|info| info.chunk.low).collect();
    assert_eq!(names, [1, 2, 3, 5, 7, 9]);
    assert_eq!(client.stat(ChunkId(9)).wait().expect("the chunk").limit_bytes, 1009);
    assert_eq!(client.scrub_step(11).wait().expect("a step").slices, 11);
    assert_eq!(client.info().wait().expect("info").request_bytes_max, 200_000);
}

#[test]
fn refusals_are_typed_and_name_chunk_and_offset() {
    let server = Server::start();
    let client = connect(&server, ClientConfig::new());
    let chunk = CHUNK;
    let error = client.read(chunk, 5, 1).wait().expect_err("no chunk");
    assert_eq!(
        (error.method, error.chunk, error.offset),
        (Method::Read, Some(chunk), Some(5)),
        "{error}"
    );
    assert_eq!(refused(error), ErrorReply::NoSuchChunk { chunk });
    client.create(chunk, Some(100), NewChunk::default()).wait().expect("a new chunk");
    let error = client.create(chunk, None, NewChunk::default()).wait().expect_err("it exists");
    assert_eq!(refused(error), ErrorReply::ChunkExists { chunk });
    client.write(chunk, 0, *b"0123456789").wait().expect("a write");
    let error = client.read(chunk, 3, 8).wait().expect_err("one byte too far");
    assert_eq!(refused(error), ErrorReply::PastEnd { chunk, length: 10 });
    assert!(client.read(chunk, 3, 7).wait().is_ok());
    let error = client.write(chunk, 91, *b"0123456789").wait().expect_err("one byte too far");
    assert_eq!(refused(error), ErrorReply::PastLimit { chunk, limit: 100 });
    server.mischief.damaged.store(true, Ordering::Relaxed);
    let error = client.read(chunk, 0, 1).wait().expect_err("a damaged slice");
    assert_eq!(refused(error), ErrorReply::SliceCorrupt { chunk, slice: 0 });
    let error = client.read(chunk, 0, 0).wait().expect_err("no bytes");
    assert!(matches!(error.kind, ErrorKind::Length { length: 0, .. }));
    let error = client.read(chunk, u64::MAX, 2).wait().expect_err("past all offsets");
    assert_eq!(error.kind, ErrorKind::Range);
}

#[test]
fn a_reply_that_was_changed_on_its_way_is_never_given_out() {
    let server = Server::start();
    let mut client = Direct::connect(server.addr);
    let file = pattern(500_000, 8);
    client.create(CHUNK).expect("a new chunk");
    client.write(CHUNK, 0, &file).expect("a write");
    for (offset, length) in [(0, 1), (4096, 4096), (100, 20_000), (490_000, 10_000)] {
        server.mischief.corrupt_reads.store(1, Ordering::Relaxed);
        let error = client.read(CHUNK, offset, length).expect_err("a flipped bit");
        let slice = (offset + length as u64 - 1) / 4096;
        assert_eq!(error.kind, ErrorKind::ReplyCorrupt { slice });
    }
    // The client that repeats by itself gives up when that does not help.
    let short = ClientConfig::new().timeout(Nanos::from_millis(200));
    let shared = connect(&server, short);
    server.mischief.corrupt_reads.store(u32::MAX, Ordering::Relaxed);
    let error = shared.read(CHUNK, 0, 4096).wait().expect_err("every reply is changed");
    assert!(matches!(error.kind, ErrorKind::ReplyCorrupt { .. }), "{error}");
    server.mischief.corrupt_reads.store(0, Ordering::Relaxed);
    drop(shared);
    let shared = connect(&server, ClientConfig::new());
    assert!(read_all(&shared, CHUNK, 0, file.len()) == file);
    let again = client.read(CHUNK, 0, 4096).expect("the client goes on");
    assert!(again.to_vec() == file[..4096]);
}

#[test]
fn a_write_whose_answer_is_lost_is_known_to_have_happened() {
    let server = Server::start();
    // Time enough for a request to come and for the answer to be asked for, on any machine.
    let (timeout, grace) = (Nanos::from_secs(3), Nanos::from_secs(60));
    let mut client =
        Direct::with(server.addr, |client| client.timeout(timeout).outcome_grace(grace));
    client.create(CHUNK).expect("a new chunk");
    server.mischief.mute_writes.store(true, Ordering::Relaxed);
    let error = client.write(CHUNK, 0, b"done all the same").expect_err("no answer");
    assert_eq!(error.kind, ErrorKind::TimedOut { fate: Fate::Happened });
    server.mischief.mute_writes.store(false, Ordering::Relaxed);
    let bytes = client.read(CHUNK, 0, 17).expect("a read");
    assert_eq!(bytes.to_vec(), b"done all the same", "as the server said when it was asked");
}

#[test]
fn an_answer_that_came_while_its_client_was_away_is_not_too_late() {
    let server = Server::start();
    let timeout = Nanos::from_millis(200);
    // A server without a processor for seconds is late indeed, but not each time.
    let in_time = (0..5).any(|_| {
        let mut client = Direct::with(server.addr, |client| client.timeout(timeout));
        let Direct { endpoint, client: chunks, .. } = &mut client;
        chunks.start_request(endpoint, &StorageRequest::Stat { chunk: CHUNK }).expect("room");
        endpoint.flush();
        std::thread::sleep(10 * Duration::from(timeout));
        // Whatever becomes of this one.
        let _ = client.ask(|client, endpoint| {
            client.start_request(endpoint, &StorageRequest::Stat { chunk: CHUNK })
        });
        let stats = client.client.rpc().stats();
        stats.responses > 0 && stats.timeouts == 0
    });
    assert!(in_time, "it was there when the client came back");
}

#[test]
fn a_server_that_dies_in_the_middle_of_writes_ends_them_as_gone() {
    let server = Server::start();
    let mut client = Direct::connect(server.addr);
    client.create(CHUNK).expect("a new chunk");
    let bytes = vec![7; 64 << 10];
    let start = |client: &mut Direct, number: u64| {
        let Direct { endpoint, client, .. } = client;
        let offset = number * bytes.len() as u64;
        client.start_write_copy(endpoint, CHUNK, offset, &bytes).expect("room")
    };
    let mut under_way: Vec<_> = (0..8).map(|number| start(&mut client, number)).collect();
    for number in 8..40 {
        client.end_of(under_way.remove(0)).expect("the server is well");
        under_way.push(start(&mut client, number));
    }
    server.mischief.vanish.store(true, Ordering::Relaxed);
    let ended: Vec<_> = under_way.into_iter().map(|op| client.end_of(op)).collect();
    let is_gone = |error: &ClientError| matches!(error.kind, ErrorKind::PeerGone { .. });
    assert!(ended.iter().filter_map(|end| end.as_ref().err()).all(is_gone), "{ended:?}");
    // What it answered before is no sign of its end: the next one finds nobody.
    let gone = loop {
        match client.ask(|client, endpoint| {
            client.start_request(endpoint, &StorageRequest::Stat { chunk: CHUNK })
        }) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(is_gone(&gone), "{gone}");
    let error = client.ask(|client, endpoint| {
        client.start_request(endpoint, &StorageRequest::Stat { chunk: CHUNK })
    });
    let error = error.expect_err("nobody there");
    assert_eq!(error.kind, ErrorKind::PeerGone { fate: Fate::DidNotHappen });
}

#[test]
fn nobody_listening_is_a_clear_error() {
    // An address of 127/8 that no other test uses, so that the port stays free.
    let gone = TcpListener::bind("127.47.92.1:0").and_then(|socket| socket.local_addr());
    let addr = gone.expect("a free port");
    let error = Client::connect(addr, ClientConfig::new()).expect_err("nobody listens");
    assert!(error.to_string().contains(&addr.to_string()), "{error}");
}
