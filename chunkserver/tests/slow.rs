//! A store that is slow, or fails: requests wait, are refused or time out, and nothing is dropped.

mod common;

use std::io;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use common::gate::{Gated, Position};
use common::{Client, OUTCOME_GRACE, pattern, refusal};
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::{ErrorKind, ErrorReply, Output, StorageRequest};
use towpath_rpc::Fate;
use towpath_transport::{Nanos, RoceUdp};

const CHUNK: ChunkId = ChunkId(9);
const WRITE_BYTES: usize = 65_536;
/// Enough for a few writes to reach a server on a machine that is busy with other things.
const HASTE: Nanos = Nanos::from_secs(1);

/// Starts writes to places one after the other.
fn start_writes(client: &mut Client<RoceUdp>, count: u64) {
    for index in 0..count {
        let data = pattern(WRITE_BYTES, index);
        let offset = index * WRITE_BYTES as u64;
        let op = client.chunks.start_write_copy(&mut client.endpoint, CHUNK, offset, &data);
        op.expect("room for a few dozen");
    }
}

/// Ends all operations; how each ended, in the order in which they did.
fn finish(client: &mut Client<RoceUdp>) -> Vec<Result<Output, ErrorKind>> {
    let mut results = Vec::new();
    while client.chunks.under_way() > 0 {
        results.extend(client.turn().map(|(_, result)| result.map_err(|error| error.kind)));
    }
    results
}

/// Turns that end nothing, so that whatever can happen while the gate is closed does.
fn nothing_ends(client: &mut Client<RoceUdp>, turns: usize) {
    for _ in 0..turns {
        assert!(client.turn().is_none(), "an answer to what is not durable");
    }
}

#[test]
fn no_write_is_answered_before_it_is_durable_and_a_slow_store_drops_none() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Gated::start(dir.path(), 256);
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    server.gate.set(Position::Closed);
    // More than the credit of a channel: 128 pieces are 42 writes of three.
    start_writes(&mut client, 60);
    let link = client.endpoint.links().next().expect("it is up");
    while client.endpoint.stats(link).expect("it is up").messages_delivered < 30 {
        nothing_ends(&mut client, 10);
    }
    server.gate.set(Position::Open);
    let results = finish(&mut client);
    assert_eq!(results.len(), 60);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    for index in 0..60 {
        let read = client.read(CHUNK, index * WRITE_BYTES as u64, WRITE_BYTES);
        assert!(read.expect("acknowledged") == pattern(WRITE_BYTES, index));
    }
    assert_eq!(client.endpoint.stats(link).expect("it is up").messages_abandoned, 0);
    drop(client);
    let stats = server.stop();
    assert!(stats.waiting_max > 20, "{} requests waited at most", stats.waiting_max);
    assert_eq!((stats.failed, stats.expired, stats.rpc.busy), (0, 0, 0));
}

#[test]
fn a_link_with_too_many_requests_under_way_is_told_that_the_server_is_busy() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Gated::start(dir.path(), 8);
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    server.gate.set(Position::Closed);
    start_writes(&mut client, 20);
    let mut busy = 0;
    while busy < 12 {
        match client.turn() {
            None => {}
            Some((_, Err(error))) if error.kind == ErrorKind::Busy => busy += 1,
            Some((_, other)) => panic!("an answer to what is not durable: {other:?}"),
        }
    }
    // Another link is none the worse: its place in the queue comes in turn.
    let mut other = Client::connect(server.addr);
    let op =
        other.chunks.start_request(&mut other.endpoint, &StorageRequest::Stat { chunk: CHUNK });
    other.turn();
    server.gate.set(Position::Open);
    assert!(other.wait(op).is_ok());
    let results = finish(&mut client);
    assert!(results.len() == 8 && results.iter().all(Result::is_ok), "{results:?}");
    drop((client, other));
    assert_eq!(server.stop().rpc.busy, 12);
}

#[test]
fn a_request_whose_time_is_over_before_the_store_has_it_never_happens() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Gated::start(dir.path(), 256);
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    server.gate.set(Position::Closed);
    let link = client.endpoint.links().next().expect("it is up");
    let mut hasty = Client {
        chunks: towpath_fastpath::ChunkClient::new(link, client.chunks.rpc().channel())
            .timeout(HASTE)
            .outcome_grace(OUTCOME_GRACE),
        endpoint: client.endpoint,
    };
    start_writes(&mut hasty, 20);
    let results = finish(&mut hasty);
    let timed_out = |r: &Result<Output, ErrorKind>| matches!(r, Err(ErrorKind::TimedOut { .. }));
    assert!(results.len() == 20 && results.iter().all(timed_out), "{results:?}");
    // Of what the store never had, the server said so, though the store is stuck.
    assert!(not_happened(&results) >= 17, "{results:?}");
    // The server gives each the time that was left when it came in: later than the client does.
    let mut other = Client::connect(server.addr);
    std::thread::sleep(2 * Duration::from_nanos(HASTE.0));
    server.gate.set(Position::Open);
    // One was in the store and one in its queue; the others came too late.
    let (len, _) = other.stat(CHUNK).expect("it is there");
    assert!(len <= 3 * WRITE_BYTES as u64, "{len} bytes were written");
    drop((hasty, other));
    let stats = server.stop();
    // Whichever came first, the end of its time at the server or the client's word.
    assert!(stats.expired + stats.cancelled >= 17, "{stats:?}");
}

/// Operations of which it is known that they did not happen.
fn not_happened(results: &[Result<Output, ErrorKind>]) -> usize {
    let fate = |result: &Result<Output, ErrorKind>| result.as_ref().err().map(|kind| kind.fate());
    results.iter().filter(|result| fate(result) == Some(Fate::DidNotHappen)).count()
}

#[test]
fn writes_given_up_while_the_store_is_stuck_free_their_credit_at_once_and_never_happen() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Gated::start(dir.path(), 256);
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    server.gate.set(Position::Closed);
    let link = client.endpoint.links().next().expect("it is up");
    // Each round takes most of the channel's credit: the second is only delivered because the
    // first has given its credit back, with the store as stuck as before.
    let mut in_store = 0;
    for round in 1..=3 {
        while !client.endpoint.is_idle(link) {
            nothing_ends(&mut client, 1);
        }
        let before = client.endpoint.stats(link).expect("it is up").messages_delivered;
        let ops: Vec<_> = (0..35)
            .map(|index| {
                let data = pattern(WRITE_BYTES, index);
                let offset = index * WRITE_BYTES as u64;
                let endpoint = &mut client.endpoint;
                client.chunks.start_write_copy(endpoint, CHUNK, offset, &data).expect("room")
            })
            .collect();
        while client.endpoint.stats(link).expect("it is up").messages_delivered < before + 35 {
            nothing_ends(&mut client, 10);
        }
        for op in ops {
            client.chunks.cancel(&mut client.endpoint, op);
        }
        let results = finish(&mut client);
        assert!(results.iter().all(Result::is_err), "{results:?}");
        in_store += results.len() - not_happened(&results);
        // Three at most, and in whichever round the store's thread got to run.
        assert!(results.len() == 35 && in_store <= 3, "round {round}: {results:?}");
    }
    server.gate.set(Position::Open);
    client.write(CHUNK, 0, b"the link is as good as new").expect("a write");
    let (len, _) = client.stat(CHUNK).expect("it is there");
    assert!(len <= 3 * WRITE_BYTES as u64, "{len} bytes were written");
    drop(client);
    let stats = server.stop();
    assert!(stats.cancelled >= 3 * 35 - 3 && stats.rpc.cancelled == 3 * 35, "{stats:?}");
}

#[test]
fn after_a_failed_flush_changes_are_refused_and_reads_go_on() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Gated::start(dir.path(), 256);
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    client.write(CHUNK, 0, &[1; 9000]).expect("there is room");
    server.gate.set(Position::Broken);
    assert_eq!(refusal(client.write(CHUNK, 0, &[2; 9000])), ErrorReply::CommitFailed);
    server.gate.set(Position::Open);
    assert_eq!(refusal(client.write(CHUNK, 0, &[3; 9000])), ErrorReply::StoreFailed);
    assert_eq!(refusal(client.create(ChunkId(1), None)), ErrorReply::StoreFailed);
    assert_eq!(refusal(client.delete(CHUNK)), ErrorReply::StoreFailed);
    assert!(client.read(CHUNK, 0, 9000).expect("reads go on") == [1; 9000]);
    let op = client.chunks.start_request(&mut client.endpoint, &StorageRequest::Info);
    let Ok(Output::Info(info)) = client.wait(op) else { panic!("the state was due") };
    assert!(info.read_only);
    assert!(info.disks[0].reason.starts_with("the flush of the log failed"), "{info:?}");
    drop(client);
    server.stop();
}

#[test]
fn requests_that_a_stuck_store_does_not_answer_are_told_as_slow_and_their_link_as_degraded() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Gated::start(dir.path(), 256);
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    let health = |client: &mut Client<RoceUdp>| {
        let op = client
            .chunks
            .start_request(&mut client.endpoint, &StorageRequest::Health { times: false })
            .expect("room");
        loop {
            match client.turn() {
                Some((done, Ok(Output::Health(health)))) if done == op => return health,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    };
    let before = health(&mut client);
    // What was made before the gate was closed may have been slow on a machine that is busy.
    assert!(before.slow <= 1, "{before:?}");
    assert_eq!((before.slow_after_ms, before.link_count), (1000, 1));
    server.gate.set(Position::Closed);
    start_writes(&mut client, 5);
    let stuck = loop {
        let now = health(&mut client);
        if now.slow == before.slow + 5 {
            break now;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!((stuck.links[0].state_name(), stuck.links[0].slow), ("slow I/O", stuck.slow));
    assert!(stuck.oldest_us >= 1_000_000, "{stuck:?}");
    server.gate.set(Position::Open);
    assert!(finish(&mut client).iter().all(Result::is_ok), "slow, and done");
    let after = loop {
        let now = health(&mut client);
        if now.links[0].state == 0 {
            break now;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(after.slow, before.slow + 5, "each was told once");
    // Once by the store; a host that lets this process wait makes round trips late besides.
    assert!(after.links[0].degradations >= 1, "{after:?}");
    drop(client);
    server.stop();
}

/// What is logged at WARN, by all tests of this file.
static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let log = tracing_subscriber::fmt().with_writer(|| Log).with_ansi(false);
        log.with_max_level(tracing::Level::WARN).init();
    });
}

#[test]
fn a_slow_request_is_logged_with_what_it_was_and_the_time_of_each_phase() {
    log();
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Gated::start(dir.path(), 256);
    let mut client = Client::connect(server.addr);
    let chunk = ChunkId(0x510);
    client.create(chunk, None).expect("a fresh name");
    server.gate.set(Position::Closed);
    let data = pattern(10_000, 1);
    let op = client.chunks.start_write_copy(&mut client.endpoint, chunk, 20_000, &data);
    op.expect("room for one");
    let link = client.endpoint.links().next().expect("it is up");
    while client.endpoint.stats(link).expect("it is up").messages_delivered < 2 {
        nothing_ends(&mut client, 1);
    }
    // Longer than a request may take that is not slow.
    std::thread::sleep(Duration::from_millis(1100));
    server.gate.set(Position::Open);
    assert!(finish(&mut client).iter().all(Result::is_ok), "slow, and done");
    drop(client);
    server.stop();
    let logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    let logged = String::from_utf8_lossy(&logged);
    let name = format!("chunk={chunk}");
    let line = logged.lines().find(|line| line.contains(&name));
    let line = line.unwrap_or_else(|| panic!("nothing of it in {logged}"));
    for words in [
        "a request was slow",
        "method=\"write\"",
        "class=silver",
        "tenant=\"all\"",
        "offset=20000",
        "byte_len=10000",
        "peer=\"127.0.0.1",
        "left_out=0",
        "receive_us=",
        "check_us=",
        "queue_us=",
        "flush_us=",
        "answer_us=",
    ] {
        assert!(line.contains(words), "no {words} in {line}");
    }
    let of = |name: &str| -> u64 {
        let at = line.find(name).expect("it is there") + name.len();
        let digits = line[at..].split(' ').next().expect("a number");
        digits.parse().expect("a number")
    };
    assert!(of("total_us=") >= 1_000_000 && of("disk_us=") >= 1_000_000, "{line}");
}
