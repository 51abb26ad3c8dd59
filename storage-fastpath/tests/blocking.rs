//! The blocking client against a chunk server in memory: every range, and every failure.

mod common;

use common::{Server, pattern};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;
use towpath_base::Prng;
use towpath_base::crc::crc32c;
use towpath_fastpath::{
    BlockingClient, ChunkId, ClientConfig, ClientError, ErrorKind, ErrorReply, Method,
    TransferError,
};
use towpath_rpc::Fate;
use towpath_transport::Nanos;

const CHUNK: ChunkId = ChunkId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

fn connect(server: &Server, config: ClientConfig) -> BlockingClient {
    BlockingClient::connect(server.addr, config).expect("a server that listens")
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
    // Small operations, so that long ranges take several.
    let mut client = connect(&server, ClientConfig::new().op_bytes(16 << 10).depth(4));
    client.create(CHUNK, None).expect("a new chunk");
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
        if prng.chance(0.5) || bytes.len() > 100_000 {
            client.write(CHUNK, offset, &bytes).expect("a write");
        } else {
            client.write_once(CHUNK, offset, &bytes).expect("a write");
        }
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].copy_from_slice(&bytes);
        let from = prng.below(model.len() as u64) as usize;
        let most = (model.len() - from) as u64;
        let to_end = prng.chance(0.3);
        let len = if to_end { most } else { prng.between(1, most.min(60_000)) } as usize;
        let got = if len <= 60_000 && prng.chance(0.5) {
            client.read_once(CHUNK, from as u64, len).expect("a read").to_vec()
        } else {
            client.read(CHUNK, from as u64, len).expect("a read")
        };
        assert!(got == model[from..from + len], "round {round}: {len} bytes at {from}");
    }
    assert_eq!(client.stat(CHUNK).expect("the chunk").byte_len, model.len() as u64);
    client.close();
}

#[test]
fn a_file_put_and_got_comes_back_whole_with_its_checksum() {
    let server = Server::start();
    for (index, len) in [0, 1, 4095, 131_072, 131_073, 3_000_001].into_iter().enumerate() {
        let chunk = ChunkId(index as u128);
        let mut client = connect(&server, ClientConfig::new().whole_crc(true));
        let file = pattern(len, 3);
        let mut told = 0;
        let put = client.put(chunk, &mut &file[..], |bytes| told = bytes).expect("a put");
        assert_eq!((put.bytes, put.crc, told), (len as u64, Some(crc32c(&file)), len as u64));
        let mut back = Vec::new();
        let got = client.get(chunk, &mut back, |bytes| told = bytes).expect("a get");
        assert_eq!((got, told), (put, len as u64));
        assert!(back == file, "{len} bytes came back changed");
    }
}

#[test]
fn control_operations_do_what_they_say_and_list_takes_all_pages() {
    let server = Server::start();
    let mut client = connect(&server, ClientConfig::new());
    for id in [7, 3, 1, 4, 9, 2, 5] {
        client.create(ChunkId(id), Some(1000 + id as u64)).expect("a new chunk");
    }
    client.delete(ChunkId(4)).expect("the chunk");
    let names: Vec<u64> =
        client.list().expect("a listing").iter().map(|info| info.chunk.low).collect();
    assert_eq!(names, [1, 2, 3, 5, 7, 9]);
    assert_eq!(client.stat(ChunkId(9)).expect("the chunk").limit_bytes, 1009);
    assert_eq!(client.scrub_step(11).expect("a step").slices, 11);
    assert_eq!(client.info().expect("info").request_bytes_max, 200_000);
}

#[test]
fn refusals_are_typed_and_name_chunk_and_offset() {
    let server = Server::start();
    let mut client = connect(&server, ClientConfig::new());
    let chunk = CHUNK;
    let error = client.read_once(chunk, 5, 1).expect_err("no chunk");
    assert_eq!(
        (error.method, error.chunk, error.offset),
        (Method::Read, Some(chunk), Some(5)),
        "{error}"
    );
    assert_eq!(refused(error), ErrorReply::NoSuchChunk { chunk });
    client.create(chunk, Some(100)).expect("a new chunk");
    let error = client.create(chunk, None).expect_err("it exists");
    assert_eq!(refused(error), ErrorReply::ChunkExists { chunk });
    client.write_once(chunk, 0, b"0123456789").expect("a write");
    let error = client.read_once(chunk, 3, 8).expect_err("one byte too far");
    assert_eq!(refused(error), ErrorReply::PastEnd { chunk, length: 10 });
    assert!(client.read_once(chunk, 3, 7).is_ok());
    let error = client.write_once(chunk, 91, b"0123456789").expect_err("one byte too far");
    assert_eq!(refused(error), ErrorReply::PastLimit { chunk, limit: 100 });
    server.mischief.damaged.store(true, Ordering::Relaxed);
    let error = client.read_once(chunk, 0, 1).expect_err("a damaged slice");
    assert_eq!(refused(error), ErrorReply::SliceCorrupt { chunk, slice: 0 });
    let error = client.read_once(chunk, 0, 0).expect_err("no bytes");
    assert!(matches!(error.kind, ErrorKind::Length { length: 0, .. }));
    let error = client.read_once(chunk, u64::MAX, 2).expect_err("past all offsets");
    assert_eq!(error.kind, ErrorKind::Range);
}

#[test]
fn a_reply_that_was_changed_on_its_way_is_never_given_out() {
    let server = Server::start();
    let mut client = connect(&server, ClientConfig::new());
    let file = pattern(500_000, 8);
    client.put(CHUNK, &mut &file[..], |_| {}).expect("a put");
    for (offset, length) in [(0, 1), (4096, 4096), (100, 20_000), (490_000, 10_000)] {
        server.mischief.corrupt_reads.store(1, Ordering::Relaxed);
        let error = client.read_once(CHUNK, offset, length).expect_err("a flipped bit");
        let slice = (offset + length as u64 - 1) / 4096;
        assert_eq!(error.kind, ErrorKind::ReplyCorrupt { slice });
    }
    // A transfer asks again, and gives up when that does not help.
    server.mischief.corrupt_reads.store(2, Ordering::Relaxed);
    let mut back = Vec::new();
    client.get(CHUNK, &mut back, |_| {}).expect("a get");
    assert!(back == file);
    server.mischief.corrupt_reads.store(u32::MAX, Ordering::Relaxed);
    let mut back = Vec::new();
    let error = client.get(CHUNK, &mut back, |_| {}).expect_err("every reply is changed");
    let TransferError::Client(error) = error else { panic!("{error}") };
    assert!(matches!(error.kind, ErrorKind::ReplyCorrupt { .. }), "{error}");
    assert!(file.starts_with(&back), "what was given out before is right");
    server.mischief.corrupt_reads.store(0, Ordering::Relaxed);
    assert!(client.read(CHUNK, 0, file.len()).expect("a read") == file, "and the client goes on");
}

#[test]
fn a_write_whose_answer_is_lost_is_known_to_have_happened() {
    let server = Server::start();
    // Time enough for a request to come and for the answer to be asked for, on any machine.
    let config = ClientConfig::new().timeout(Nanos::from_secs(3));
    let mut client = connect(&server, config.outcome_grace(Nanos::from_secs(60)));
    client.create(CHUNK, None).expect("a new chunk");
    server.mischief.mute_writes.store(true, Ordering::Relaxed);
    let error = client.write_once(CHUNK, 0, b"done all the same").expect_err("no answer");
    assert_eq!(error.kind, ErrorKind::TimedOut { fate: Fate::Happened });
    server.mischief.mute_writes.store(false, Ordering::Relaxed);
    let bytes = client.read(CHUNK, 0, 17).expect("a read");
    assert_eq!(bytes, b"done all the same", "as the server said when it was asked");
}

#[test]
fn an_answer_that_came_while_its_client_was_away_is_not_too_late() {
    let server = Server::start();
    let timeout = Nanos::from_millis(200);
    // A server without a processor for seconds is late indeed, but not each time.
    let in_time = (0..5).any(|_| {
        let mut client = connect(&server, ClientConfig::new().timeout(timeout));
        let (endpoint, chunks) = client.parts();
        chunks.start_stat(endpoint, CHUNK).expect("room");
        endpoint.flush();
        std::thread::sleep(10 * Duration::from(timeout));
        // Whatever becomes of this one.
        let _ = client.stat(CHUNK);
        let stats = client.parts().1.rpc().stats();
        stats.responses > 0 && stats.timeouts == 0
    });
    assert!(in_time, "it was there when the client came back");
}

#[test]
fn a_server_that_dies_in_the_middle_of_writes_ends_them_as_gone() {
    let server = Server::start();
    let mut client = connect(&server, ClientConfig::new());
    let vanish = || server.mischief.vanish.store(true, Ordering::Relaxed);
    let file = vec![7; 64 << 20];
    let result = client.put(CHUNK, &mut &file[..], |stored| {
        if stored > 1 << 20 {
            vanish();
        }
    });
    let Err(TransferError::Client(error)) = result else { panic!("{result:?}") };
    assert!(matches!(error.kind, ErrorKind::PeerGone { .. }), "{error}");
    let error = client.stat(CHUNK).expect_err("nobody there");
    assert_eq!(error.kind, ErrorKind::PeerGone { fate: Fate::DidNotHappen });
}

#[test]
fn nobody_listening_is_a_clear_error() {
    // An address of 127/8 that no other test uses, so that the port stays free.
    let gone = TcpListener::bind("127.47.92.1:0").and_then(|socket| socket.local_addr());
    let addr = gone.expect("a free port");
    let error = BlockingClient::connect(addr, ClientConfig::new()).expect_err("nobody listens");
    assert!(error.to_string().contains(&addr.to_string()), "{error}");
}
