//! A client that repeats its work over a new link: nothing of the old link lands after it.

mod common;

use common::gate::{Gate, Gated, Position};
use common::{Client, pattern, refusal};
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::StorageRequest;
use towpath_fastpath::{
    Client as Shared, ClientConfig, ClientSession, ErrorKind, ErrorReply, NewChunk, OpId, Output,
};
use towpath_transport::{Nanos, RoceUdp};

const CHUNK: ChunkId = ChunkId(9);
const SLICE: usize = 4096;
/// Writes that wait behind each other while the gate is closed; the last is to the first slice.
const OLD_WRITES: u64 = 100;
/// Seed of what the last of them writes.
const OLD: u64 = OLD_WRITES - 1;
/// Seed of what is written over the new link after the old write was repeated.
const NEWER: u64 = 1000;

fn enter(client: &mut Client<RoceUdp>, session: &ClientSession) -> OpId {
    client.chunks.start_request(&mut client.endpoint, &session.enter()).expect("room")
}

/// Closes the gate, and has a server take in all old writes, with the store as stuck as it gets.
fn leave_work_behind(client: &mut Client<RoceUdp>, gate: &Gate) {
    client.create(CHUNK, None).expect("a fresh name");
    let link = client.endpoint.links().next().expect("it is up");
    let before = client.endpoint.stats(link).expect("it is up").messages_delivered;
    gate.set(Position::Closed);
    for index in 0..OLD_WRITES {
        let offset = if index == OLD { 0 } else { (index + 1) * SLICE as u64 };
        let data = pattern(SLICE, index);
        let op = client.chunks.start_write_copy(&mut client.endpoint, CHUNK, offset, &data);
        op.expect("room for a hundred");
    }
    let delivered = |client: &Client<RoceUdp>| {
        client.endpoint.stats(link).expect("it is up").messages_delivered
    };
    while delivered(client) < before + OLD_WRITES {
        assert!(client.turn().is_none(), "an answer to what is not durable");
    }
}

/// Ends everything that a client asked for; how many operations were refused as of an old link.
fn fenced(client: &mut Client<RoceUdp>) -> u64 {
    let mut fenced = 0;
    while client.chunks.under_way() > 0 {
        if let Some((_, Err(error))) = client.turn() {
            assert_eq!(refusal::<()>(Err(error.kind)), ErrorReply::Fenced);
            fenced += 1;
        }
    }
    fenced
}

#[test]
fn an_old_write_never_lands_after_it_was_repeated_over_a_new_link_of_the_session() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Gated::start(dir.path(), 256);
    let session = ClientSession::new();
    let mut old = Client::connect(server.addr);
    let op = enter(&mut old, &session);
    assert!(matches!(old.wait(Ok(op)), Ok(Output::Session)));
    leave_work_behind(&mut old, &server.gate);
    // For all that the server knows, the old client is well.
    let mut new = Client::connect(server.addr);
    let entry = enter(&mut new, &session);
    // The network thread answers this without the store: then it has the entry too.
    let health = new
        .chunks
        .start_request(&mut new.endpoint, &StorageRequest::Health { times: false })
        .expect("room");
    loop {
        match new.turn() {
            Some((op, Ok(Output::Health(_)))) if op == health => break,
            None => {}
            other => panic!("an entry while the store has old work: {other:?}"),
        }
    }
    server.gate.set(Position::Open);
    assert!(matches!(new.wait(Ok(entry)), Ok(Output::Session)));
    new.write(CHUNK, 0, &pattern(SLICE, OLD)).expect("the old write again");
    new.write(CHUNK, 0, &pattern(SLICE, NEWER)).expect("a newer one");
    let refused = fenced(&mut old);
    let read = new.read(CHUNK, 0, SLICE).expect("it was written");
    assert!(read == pattern(SLICE, NEWER), "an old write landed after a newer one");
    assert_eq!(refusal(old.write(CHUNK, 0, &[1])), ErrorReply::Fenced);
    assert!(old.read(CHUNK, 0, SLICE).is_ok(), "reads change nothing");
    drop((old, new));
    // One or two were in the store; what waited was refused.
    let stats = server.stop();
    assert!(refused >= OLD_WRITES - 3, "{refused} refused");
    assert_eq!(stats.fenced, refused + 1);
}

#[test]
fn links_of_other_sessions_and_of_none_are_not_touched() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Gated::start(dir.path(), 256);
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(server.addr)).collect();
    for client in &mut clients[1..] {
        let op = enter(client, &ClientSession::new());
        assert!(matches!(client.wait(Ok(op)), Ok(Output::Session)));
    }
    for (client, number) in clients.iter_mut().zip(0..) {
        client.create(ChunkId(number), None).expect("a fresh name");
        client.write(ChunkId(number), 0, &pattern(SLICE, 1)).expect("its link is the newest");
    }
    // A link enters one session, once.
    let op = enter(&mut clients[1], &ClientSession::new());
    assert_eq!(refusal(clients[1].wait(Ok(op))), ErrorReply::Fenced);
    clients[1].write(ChunkId(1), 0, &[2]).expect("it stays in its session");
    drop(clients);
    assert_eq!(server.stop().fenced, 0);
}

#[test]
fn a_client_that_connects_in_the_session_of_another_replaces_its_link() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Gated::start(dir.path(), 256);
    let config = ClientConfig::new().session(&ClientSession::new());
    let short = config.clone().timeout(Nanos::from_millis(300));
    let connect = |config| Shared::connect(server.addr, config).expect("it listens");
    let old = connect(short);
    old.create(CHUNK, None, NewChunk::default()).wait().expect("a fresh name");
    let new = connect(config);
    new.write(CHUNK, 0, [1]).wait().expect("its link is the newest");
    let error = old.write(CHUNK, 0, [2]).wait().expect_err("its link is not");
    assert_eq!(error.kind, ErrorKind::Refused(ErrorReply::Fenced));
    let repeated = old.stats().repeated;
    old.close();
    new.close();
    // It asked once and again each time, but perhaps for the last time, when its time was over.
    let fenced = server.stop().fenced;
    assert!((repeated..=repeated + 1).contains(&fenced), "{fenced} of {repeated} repeats");
    assert!(fenced >= 1);
}
