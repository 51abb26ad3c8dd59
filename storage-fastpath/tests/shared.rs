//! The client that threads share, against servers that misbehave.

mod common;

use common::{Server, pattern};
use std::sync::atomic::Ordering;
use towpath_fastpath::{
    ChunkId, Client, ClientConfig, ErrorKind, HedgeAfter, HedgeConfig, NewChunk, SLICE_BYTES,
};
use towpath_rpc::Fate;
use towpath_transport::Nanos;

const CHUNK: ChunkId = ChunkId(7);

fn with_chunk(server: &Server) -> Client {
    let client = Client::connect(server.addr, ClientConfig::new()).expect("it listens");
    client.put(CHUNK, &pattern(8 * SLICE_BYTES, 1)).expect("a new chunk");
    client
}

#[test]
fn reads_go_on_at_the_replica_while_the_server_is_gone() {
    let (first, second) = (Server::start(), Server::start());
    for server in [&first, &second] {
        with_chunk(server).close();
    }
    let hedge = HedgeConfig::new().after(HedgeAfter::Fixed(Nanos::from_millis(2)));
    let config = ClientConfig::new().hedge(second.addr, hedge);
    let client = Client::connect(first.addr, config).expect("both listen");
    let read = |slice: u64| {
        let at = slice * SLICE_BYTES as u64;
        client.read(CHUNK, at, SLICE_BYTES).wait().expect("one of them is there")
    };
    let whole = pattern(8 * SLICE_BYTES, 1);
    let is_right = |slice: u64, bytes: Vec<u8>| {
        let at = slice as usize * SLICE_BYTES;
        assert!(bytes == whole[at..at + SLICE_BYTES], "slice {slice}");
    };
    is_right(0, read(0));
    first.mischief.vanish.store(true, Ordering::Relaxed);
    for slice in 0..8 {
        is_right(slice, read(slice));
    }
    assert_eq!(client.stats().open, 0);
}

#[test]
fn damaged_answers_are_asked_for_again() {
    let server = Server::start();
    let client = with_chunk(&server);
    server.mischief.corrupt_reads.store(3, Ordering::Relaxed);
    let bytes = client.read(CHUNK, 0, 2 * SLICE_BYTES).wait().expect("it is whole at last");
    assert!(bytes == pattern(8 * SLICE_BYTES, 1)[..2 * SLICE_BYTES]);
    assert_eq!(client.stats().repeated, 3);
}

#[test]
fn a_change_without_an_answer_ends_in_time_and_says_that_it_is_not_known() {
    let server = Server::start();
    with_chunk(&server).close();
    let quick = ClientConfig::new().timeout(Nanos::from_millis(200));
    let client = Client::connect(server.addr, quick).expect("it listens");
    server.mischief.mute_writes.store(true, Ordering::Relaxed);
    server.stall(true);
    let error = client.write(CHUNK, 0, vec![1]).wait().expect_err("nobody answers");
    assert_eq!(error.kind, ErrorKind::TimedOut { fate: Fate::Unknown });
    server.stall(false);
}

#[test]
fn more_than_may_be_open_is_refused_at_once() {
    let server = Server::start();
    let client = with_chunk(&server);
    server.stall(true);
    let most = towpath_fastpath::limits::SHARED_OPEN_MAX;
    let open: Vec<_> = (0..most).map(|_| client.stat(CHUNK)).collect();
    let refused = client.stat(CHUNK).wait().expect_err("one more");
    assert!(matches!(refused.kind, ErrorKind::Call(_)), "{refused}");
    assert_eq!(client.stats().open, most as u64);
    server.stall(false);
    for stat in open {
        assert_eq!(stat.wait().expect("it goes on").byte_len, 8 * SLICE_BYTES as u64);
    }
    client.create(ChunkId(8), None, NewChunk::default()).wait().expect("there is room again");
}
