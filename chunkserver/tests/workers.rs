//! A server of several workers: clients are spread over them, and the store is one.

mod common;

use common::{Client, Process, Running, config, pattern, refusal};
use towpath_chunkserver::daemon::{DaemonConfig, PlaceBy};
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::{ClientSession, ErrorReply, Output};
use towpath_transport::{Class, RoceUdp};

const WRITE_BYTES: usize = 20_000;

fn with_workers(dir: &std::path::Path, workers: u32) -> DaemonConfig {
    config(dir).with(|config| {
        config.network.workers = Some(workers);
        config.network.place_by = PlaceBy::Links;
    })
}

/// A directory in memory, where the system has one.
fn in_memory() -> tempfile::TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.expect("room for a directory")
}

/// Each client writes a chunk of its own, and reads those of all.
fn write_and_read(clients: &mut [Client<RoceUdp>], round: u64) {
    for (name, client) in clients.iter_mut().enumerate() {
        let chunk = ChunkId(name as u128 + 1);
        if round == 0 {
            client.create(chunk, None).expect("a fresh name");
        }
        let data = pattern(WRITE_BYTES, round * 100 + name as u64);
        client.write(chunk, 0, &data).expect("there is room");
    }
    for reader in 0..clients.len() {
        for name in 0..clients.len() {
            let read = clients[reader].read(ChunkId(name as u128 + 1), 0, WRITE_BYTES);
            let expected = pattern(WRITE_BYTES, round * 100 + name as u64);
            assert!(read.expect("acknowledged") == expected, "{reader} reads {name}");
        }
    }
}

#[test]
fn clients_of_all_workers_see_what_any_of_them_wrote() {
    const ROUNDS: u64 = 12;
    for workers in [1, 2, 3, 8] {
        let dir = in_memory();
        let server = Running::start(&with_workers(&dir.path().join("store"), workers));
        let mut clients: Vec<_> = (0..6).map(|_| Client::connect(server.addr)).collect();
        for round in 0..ROUNDS {
            write_and_read(&mut clients, round);
        }
        drop(clients);
        let served = server.stop();
        let clients: Vec<_> = served.workers.iter().map(|stats| stats.links_accepted).collect();
        let even =
            (0..u64::from(workers)).map(|n| (6 + u64::from(workers) - 1 - n) / u64::from(workers));
        assert_eq!(clients, even.collect::<Vec<_>>());
        // A create, a write each round, and six reads, of each client.
        assert_eq!((served.stats.done, served.stats.failed), (6 * (1 + ROUNDS * 7), 0));
        assert_eq!(served.stats.done, served.workers.iter().map(|stats| stats.done).sum::<u64>());
    }
}

#[test]
fn a_link_at_one_worker_fences_the_older_link_of_its_session_at_another() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_workers(&dir.path().join("store"), 2));
    let session = ClientSession::new();
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(server.addr)).collect();
    for (client, name) in clients.iter_mut().zip(0..) {
        let op = client.chunks.start_request(&mut client.endpoint, &session.enter());
        assert!(matches!(client.wait(op), Ok(Output::Session)));
        client.create(ChunkId(name), None).expect("its link is the newest");
    }
    let (newest, older) = clients.split_last_mut().expect("there are four");
    for client in older {
        assert_eq!(refusal(client.write(ChunkId(0), 0, &[1])), ErrorReply::Fenced);
    }
    newest.write(ChunkId(0), 0, &[2]).expect("its link is the newest");
    drop(clients);
    let served = server.stop();
    let fenced: Vec<_> = served.workers.iter().map(|stats| stats.fenced).collect();
    assert_eq!(fenced, [2, 1], "links alternate between the workers");
}

#[test]
fn each_class_is_served_by_a_worker_of_its_own_unless_told_otherwise() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let three = config(&dir.path().join("store")).with(|config| config.network.workers = Some(3));
    let server = Running::start(&three);
    let classes = [Class::Copper, Class::Silver, Class::Gold, Class::Silver];
    let mut clients: Vec<_> =
        classes.into_iter().map(|class| Client::connect_as(server.addr, class)).collect();
    write_and_read(&mut clients, 0);
    drop(clients);
    let served = server.stop();
    let clients: Vec<_> = served.workers.iter().map(|stats| stats.links_accepted).collect();
    assert_eq!(clients, [1, 2, 1], "gold, silver, copper");
    let done: Vec<_> = served.workers.iter().map(|stats| stats.done).collect();
    assert_eq!(done, [6, 12, 6]);
}

#[test]
fn sigterm_ends_all_workers_cleanly_and_a_restart_has_what_was_acknowledged() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = with_workers(&dir.path().join("store"), 3);
    for round in 0..2 {
        let mut server = Process::start(&config);
        let mut clients: Vec<_> = (0..4).map(|_| Client::connect(server.addr)).collect();
        if round == 0 {
            write_and_read(&mut clients, 0);
        } else {
            for name in 0..4 {
                let read = clients[0].read(ChunkId(name as u128 + 1), 0, WRITE_BYTES);
                assert!(read.expect("acknowledged") == pattern(WRITE_BYTES, name));
            }
        }
        let status =
            towpath_status::ask(&config.store.data_dir.join("status.sock")).expect("it answers");
        assert_eq!((status.workers, status.workers_silent, status.link_count), (3, 0, 4));
        let mut per_worker = [0; 3];
        for link in &status.links {
            per_worker[link.worker as usize] += 1;
            // The number of a queue pair says whose it is.
            assert!(link.paths.iter().all(|path| u64::from(path.qp_num & 3) == link.worker));
        }
        per_worker.sort_unstable();
        assert_eq!(per_worker, [1, 1, 2]);
        server.signal("TERM");
        for client in &mut clients {
            while client.endpoint.links().next().is_some() {
                client.turn();
            }
        }
        assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    }
}
