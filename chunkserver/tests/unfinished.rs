//! Chunks whose put was interrupted: they are flagged, are not read, and go by themselves.

mod common;

use std::path::Path;

use common::{Client, Process, Running, config, pattern, refusal};
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::{ErrorKind, ErrorReply, Method, NewChunk, Output, StorageRequest, Terms};
use towpath_transport::RoceUdp;

const CHUNK: ChunkId = ChunkId(13);
const WRITTEN: usize = 10_000;

fn kept_for(dir: &Path, seconds: u32) -> DaemonConfig {
    config(&dir.join("store")).with(|config| config.store.unfinished_keep_s = seconds)
}

fn create_unfinished(client: &mut Client<RoceUdp>) {
    let kind = NewChunk { unfinished: true, ..NewChunk::default() };
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Create { chunk: CHUNK, limit_bytes: None, kind, stamp: 0 },
    );
    assert!(matches!(client.wait(op), Ok(Output::Changed(Method::Create, _))));
    client.write(CHUNK, 0, &pattern(WRITTEN, 1)).expect("there is room");
}

fn finish(client: &mut Client<RoceUdp>, byte_len: usize) -> Result<Output, ErrorKind> {
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Finish {
            chunk: CHUNK,
            byte_len: byte_len as u64,
            terms: Terms::default(),
        },
    );
    client.wait(op)
}

fn is_listed_unfinished(client: &mut Client<RoceUdp>) -> Option<bool> {
    let op = client
        .chunks
        .start_request(&mut client.endpoint, &StorageRequest::List { after: None, count_max: 0 });
    let Ok(Output::List(list)) = client.wait(op) else { panic!("a listing was due") };
    let found = list.chunks.iter().find(|info| ChunkId::from(info.chunk) == CHUNK);
    found.map(|info| info.unfinished)
}

#[test]
fn a_chunk_is_flagged_and_not_read_until_it_is_finished_with_its_length() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&kept_for(dir.path(), 0));
    let mut client = Client::connect(server.addr);
    create_unfinished(&mut client);
    assert_eq!(is_listed_unfinished(&mut client), Some(true));
    let unfinished = ErrorReply::Unfinished { chunk: CHUNK };
    assert_eq!(refusal(client.read(CHUNK, 0, 100)), unfinished);
    let length = WRITTEN as u64;
    let wrong = ErrorReply::WrongLength { chunk: CHUNK, length };
    assert_eq!(refusal(finish(&mut client, WRITTEN + 1)), wrong);
    assert_eq!(refusal(client.read(CHUNK, 0, 100)), unfinished);
    for _ in 0..2 {
        assert!(
            matches!(finish(&mut client, WRITTEN), Ok(Output::Changed(Method::Finish, _))),
            "also once more"
        );
        assert_eq!(is_listed_unfinished(&mut client), Some(false));
        assert!(client.read(CHUNK, 0, WRITTEN).expect("it is whole") == pattern(WRITTEN, 1));
    }
    client.delete(CHUNK).expect("it is there");
    assert_eq!(refusal(finish(&mut client, 0)), ErrorReply::NoSuchChunk { chunk: CHUNK });
}

#[test]
fn a_restart_keeps_what_is_unfinished_so_and_what_is_finished_whole() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = kept_for(dir.path(), 0);
    let server = Process::start(&config);
    create_unfinished(&mut Client::connect(server.addr));
    // Killed.
    drop(server);
    let server = Process::start(&config);
    let mut client = Client::connect(server.addr);
    assert_eq!(is_listed_unfinished(&mut client), Some(true));
    assert!(matches!(finish(&mut client, WRITTEN), Ok(Output::Changed(Method::Finish, _))));
    drop((client, server));
    // Once from the log, once from the map.
    for _ in 0..2 {
        let server = Running::start(&config);
        let mut client = Client::connect(server.addr);
        assert_eq!(is_listed_unfinished(&mut client), Some(false));
        assert!(client.read(CHUNK, 0, WRITTEN).expect("it is whole") == pattern(WRITTEN, 1));
        drop(client);
        server.stop();
    }
}

#[test]
fn an_unfinished_chunk_that_nobody_goes_on_with_goes_by_itself_and_a_finished_one_stays() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&kept_for(dir.path(), 1));
    let mut client = Client::connect(server.addr);
    client.create(ChunkId(1), None).expect("a fresh name");
    let mut maker = Client::connect(server.addr);
    create_unfinished(&mut maker);
    // Whoever has made it is there, however slowly it goes on.
    for _ in 0..8 {
        std::thread::sleep(std::time::Duration::from_secs(1));
        assert_eq!(is_listed_unfinished(&mut client), Some(true));
        assert!(maker.stat(CHUNK).is_ok());
    }
    drop(maker);
    // It takes as long as it takes: the chunk is kept for a second, and the store looks now and
    // then.
    while is_listed_unfinished(&mut client).is_some() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(client.stat(ChunkId(1)).is_ok(), "it was whole from the start");
    drop(client);
    server.stop();
}
