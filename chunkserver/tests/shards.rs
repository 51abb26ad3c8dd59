//! A server of several stores that its network threads drive: shards of a disk, and disks.

mod common;

use std::fs;
use std::path::Path;

use common::{Client, Process, Running, config, pattern, refused, served_beside};
use towpath_chunkserver::daemon::{DaemonConfig, DriveDisk};
use towpath_chunkserver::store::ChunkId;
use towpath_transport::RoceUdp;

const CHUNKS: u128 = 24;

const BYTES: usize = 20_000;

fn sharded(dir: &Path, shards: u32) -> DaemonConfig {
    config(dir).with(|config| config.store.shards = shards)
}

/// Writes chunks by several clients in turn: each thread of the server has some of their links.
fn fill(clients: &mut [Client<RoceUdp>]) {
    for name in 0..CHUNKS {
        let client = &mut clients[name as usize % 4];
        client.create(ChunkId(name), None).expect("a fresh name");
        client.write(ChunkId(name), 0, &pattern(BYTES, name as u64)).expect("there is room");
    }
}

fn read_all(client: &mut Client<RoceUdp>) {
    for name in 0..CHUNKS {
        let found = client.read(ChunkId(name), 0, BYTES).expect("it is kept");
        assert!(found == pattern(BYTES, name as u64), "chunk {name}");
    }
}

fn four_clients(server: &Running) -> Vec<Client<RoceUdp>> {
    (0..4).map(|_| Client::connect(server.addr)).collect()
}

#[test]
fn chunks_of_all_shards_are_served_by_each_network_thread_and_stay_when_fewer_are_asked_for() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&sharded(dir.path(), 3));
    let mut clients = four_clients(&server);
    fill(&mut clients);
    clients.iter_mut().for_each(read_all);
    let told = clients[0].info().expect("its state");
    let chunks: Vec<_> = told.disks.iter().map(|disk| disk.chunks).collect();
    assert_eq!((chunks.len(), chunks.iter().sum::<u64>()), (3, CHUNKS as u64));
    assert!(chunks.iter().all(|chunks| *chunks > 3), "{chunks:?}");
    assert!(told.disks[2].name.ends_with("shard-2"), "{}", told.disks[2].name);
    // As much as one store would have, up to what is rounded.
    let capacity = told.capacity_bytes;
    assert!((127 << 20..130 << 20).contains(&capacity), "{capacity}");
    drop(clients);
    let served = server.stop();
    assert!(served.drained && served.workers.len() == 3);
    assert!(served.workers.iter().all(|worker| worker.done > 0), "{:?}", served.workers);

    let server = Running::start(&sharded(dir.path(), 1));
    let mut client = Client::connect(server.addr);
    read_all(&mut client);
    assert_eq!(client.info().expect("its state").disks.len(), 3);
    drop(client);
    server.stop();

    let server = Running::start(&sharded(dir.path(), 4));
    let mut client = Client::connect(server.addr);
    read_all(&mut client);
    assert_eq!(client.info().expect("its state").disks.len(), 4);
}

#[test]
fn a_server_that_is_killed_has_what_each_shard_acknowledged() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = sharded(dir.path(), 2);
    let server = Process::start(&config);
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(server.addr)).collect();
    fill(&mut clients);
    drop(clients);
    // By SIGKILL.
    drop(server);
    let server = Running::start(&config);
    read_all(&mut Client::connect(server.addr));
}

#[test]
fn a_shard_that_is_lost_is_not_made_anew_and_takes_its_own_chunks_only() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&sharded(dir.path(), 2));
    let mut clients = four_clients(&server);
    fill(&mut clients);
    drop(clients);
    server.stop();
    fs::remove_dir_all(dir.path().join("shard-1")).expect("it is a folder");
    let strict = sharded(dir.path(), 1).with(|config| config.store.require_all_disks = true);
    let (code, said) = refused(&strict);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("shard-1") && said.contains("missing"), "{said}");

    let server = Running::start(&sharded(dir.path(), 2));
    let mut client = Client::connect(server.addr);
    let (served, _) = served_beside(&mut client, CHUNKS, BYTES, 1);
    assert!((4..CHUNKS as u64).contains(&served), "{served}");
}

#[test]
fn commands_for_stopped_stores_look_at_all_shards_of_a_disk() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&sharded(dir.path(), 2));
    fill(&mut four_clients(&server));
    server.stop();
    let run = |args: &[&str]| {
        let program = env!("CARGO_BIN_EXE_towpath-chunkserver");
        let output = std::process::Command::new(program).args(args).arg(dir.path()).output();
        output.expect("it is there")
    };
    let checked = run(&["check", "--data", "--json"]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && said.lines().count() == 2, "{said}");
    fs::remove_file(dir.path().join("shard-1").join("disk")).expect("it is a file");
    let checked = run(&["check"]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(checked.status.code(), Some(4), "{said}");
    assert!(said.contains("shard-1"), "{said}");
}

#[test]
fn fewer_network_threads_than_disks_drive_them_all() {
    let dir = tempfile::tempdir().expect("room for a directory");
    for workers in [1, 2] {
        let more = ["b", "c"].map(|name| dir.path().join(format!("{name}{workers}")));
        let config = config(&dir.path().join(format!("a{workers}"))).with(|config| {
            config.network.workers = Some(workers);
            config.network.drive_disk = DriveDisk::Inline;
            config.store.more_data_dirs = more.into();
            config.service.scrub_bytes_per_s = 1 << 20;
        });
        let server = Running::start(&config);
        let mut clients = four_clients(&server);
        fill(&mut clients);
        read_all(&mut clients[3]);
        drop(clients);
        assert!(server.stop().drained);
        let server = Running::start(&config);
        read_all(&mut Client::connect(server.addr));
    }
}

#[test]
fn a_network_thread_that_cannot_open_its_disk_keeps_no_other_from_serving() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let bad = dir.path().join("bad");
    fs::write(&bad, [1]).expect("room for a file");
    let config = config(&dir.path().join("good")).with(|config| {
        config.network.workers = Some(2);
        config.network.drive_disk = DriveDisk::Inline;
        config.store.more_data_dirs = vec![bad];
    });
    let server = Running::start(&config);
    let mut clients = four_clients(&server);
    fill(&mut clients);
    read_all(&mut clients[3]);
    let told = clients[0].info().expect("its state");
    assert_eq!((told.disks[0].state, told.disks[1].state), (0, 2));
    drop(clients);
    assert!(server.stop().drained);
    // And none starts where all are needed: the thread that has opened its own ends.
    let strict = config.with(|config| config.store.require_all_disks = true);
    let (code, said) = refused(&strict);
    assert_eq!(code, Some(4), "{said}");
}
