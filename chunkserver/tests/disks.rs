//! A server of several disks: chunks are spread, and a disk that is bad takes its own only.

mod common;

use std::fs;
use std::path::Path;

use common::{Client, Process, Running, config, pattern, refused, served_beside};
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::{Output, StorageRequest};

const CHUNKS: u128 = 24;

const BYTES: usize = 20_000;

fn two_disks(dir: &Path) -> DaemonConfig {
    config(&dir.join("first")).with(|config| config.store.more_data_dirs = vec![dir.join("second")])
}

#[test]
fn chunks_of_two_folders_are_one_server_and_a_folder_that_is_gone_takes_its_own() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let both = two_disks(dir.path());
    let server = Running::start(&both);
    let mut client = Client::connect(server.addr);
    for name in 0..CHUNKS {
        client.create(ChunkId(name), None).expect("a fresh name");
        client.write(ChunkId(name), 0, &pattern(BYTES, name as u64)).expect("there is room");
    }
    let info = client.info().expect("its state");
    let chunks: Vec<_> = info.disks.iter().map(|disk| disk.chunks).collect();
    assert_eq!((info.chunks, chunks.iter().sum::<u64>()), (CHUNKS as u64, CHUNKS as u64));
    assert!(chunks.iter().all(|chunks| *chunks > 4), "{chunks:?}");
    assert!(info.disks[1].name.ends_with("second") && info.disks.iter().all(|d| d.state == 0));
    drop(client);
    server.stop();

    let server = Running::start(&both);
    let mut client = Client::connect(server.addr);
    let op = client
        .chunks
        .start_request(&mut client.endpoint, &StorageRequest::List { after: None, count_max: 0 });
    let Ok(Output::List(list)) = client.wait(op) else { panic!("a listing was due") };
    assert_eq!(list.chunks.len(), CHUNKS as usize);
    for name in 0..CHUNKS {
        let found = client.read(ChunkId(name), 0, BYTES).expect("it is kept");
        assert!(found == pattern(BYTES, name as u64));
    }
    drop(client);
    server.stop();

    // As if the second disk were not there any more.
    let away = dir.path().join("away");
    fs::rename(dir.path().join("second"), &away).expect("it is a folder");
    fs::write(dir.path().join("second"), [1]).expect("room for a file");
    let strict = both.clone().with(|config| config.store.require_all_disks = true);
    let (code, said) = refused(&strict);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("disk 1") && said.contains("not a directory"), "{said}");

    let server = Process::start(&both);
    let mut client = Client::connect(server.addr);
    let counts = served_beside(&mut client, CHUNKS, BYTES, 1);
    assert_eq!(counts, (chunks[0], chunks[1]));
    client.create(ChunkId(100), None).expect("the first disk takes it");
    client.write(ChunkId(100), 0, &pattern(BYTES, 100)).expect("there is room");
    let info = client.info().expect("its state");
    assert_eq!((info.disks[1].state, info.read_only), (2, false));
    assert!(info.disks[1].reason.contains("not a directory"), "{}", info.disks[1].reason);
}

#[test]
fn a_server_without_any_disk_and_one_with_a_disk_twice_do_not_start() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let both = two_disks(dir.path());
    fs::write(dir.path().join("first"), [1]).expect("room for a file");
    fs::write(dir.path().join("second"), [1]).expect("room for a file");
    let (code, said) = refused(&both);
    assert_eq!(code, Some(4), "{said}");
    let one = dir.path().join("one");
    let twice = config(&one).with(|config| config.store.more_data_dirs = vec![one.clone()]);
    let (code, said) = refused(&twice);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("two disks"), "{said}");
}
