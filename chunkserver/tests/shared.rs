//! The client that threads and tasks share, and servers that come and go.

mod common;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use common::{LONG, Process, Running, config, pattern};
use towpath_base::Prng;
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_fastpath::{
    ChunkId, Clear, Client, ClientConfig, ErrorKind, ErrorReply, NewChunk, OpenError, Pending,
    SLICE_BYTES,
};
use towpath_rpc::Fate;
use towpath_transport::{EndpointConfig, Nanos};

const CHUNK: ChunkId = ChunkId(29);

fn connect(addr: SocketAddr, config: ClientConfig) -> Client {
    Client::connect(addr, config.timeout(LONG)).expect("a server that listens")
}

#[test]
fn threads_share_a_client_of_several_links() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let client = connect(server.addr, ClientConfig::new().links(3).depth(4).op_bytes(16 << 10));
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let client = client.clone();
            scope.spawn(move || {
                for round in 0..6u64 {
                    let name = ChunkId(u128::from(thread * 100 + round));
                    let bytes = pattern((round * 9_000) as usize, thread);
                    client.put(name, &bytes).expect("a chunk of its own");
                    let info = client.stat(name).wait().expect("it is there");
                    assert_eq!(info.byte_len, bytes.len() as u64);
                    if round > 0 {
                        let read = client.read(name, 1, bytes.len() - 1).wait().expect("a read");
                        assert!(read == bytes[1..], "{name}");
                    }
                }
            });
        }
    });
    let stats = client.stats();
    assert_eq!((stats.links_made, stats.open, stats.repeated), (3, 0, 0), "{stats:?}");
    assert_eq!(client.list_page(None).wait().expect("a page").chunks.len(), 48);
    client.close();
    let refused = client.stat(CHUNK).wait().expect_err("it is closed");
    assert_eq!(refused.kind, ErrorKind::PeerGone { fate: Fate::DidNotHappen });
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs futures on this thread until all are ready.
fn join_all<T>(pending: impl IntoIterator<Item = Pending<T>>) -> Vec<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut pending: Vec<_> = pending.into_iter().map(|one| (Some(one), None)).collect();
    while pending.iter().any(|(one, _)| one.is_some()) {
        for (one, found) in &mut pending {
            let Some(future) = one else { continue };
            if let Poll::Ready(result) = Pin::new(future).poll(&mut cx) {
                *found = Some(result.expect("it ends well"));
                *one = None;
            }
        }
        std::thread::park_timeout(Duration::from_secs(1));
    }
    pending.into_iter().filter_map(|(_, found)| found).collect()
}

#[test]
fn operations_are_futures_and_more_may_be_asked_for_than_are_under_way() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let client = connect(server.addr, ClientConfig::new().depth(4));
    client.create(CHUNK, None, NewChunk::default()).wait().expect("a fresh name");
    let at = |index: u64| index * SLICE_BYTES as u64;
    let bytes = |index: u64| pattern(SLICE_BYTES, index);
    join_all((0..200).map(|index| client.write(CHUNK, at(index), bytes(index))));
    let read = join_all((0..200).map(|index| client.read(CHUNK, at(index), SLICE_BYTES)));
    for (index, data) in (0..).zip(read) {
        assert!(data == bytes(index), "slice {index}");
    }
    let twice = client.create(CHUNK, None, NewChunk::default()).wait().expect_err("it exists");
    assert_eq!(twice.kind, ErrorKind::Refused(ErrorReply::ChunkExists { chunk: CHUNK }));
    // Dropped futures are done all the same.
    drop(client.write(CHUNK, 0, bytes(9)));
    client.close();
    assert_eq!(client.stats().open, 0);
    let again = connect(server.addr, ClientConfig::new());
    assert!(again.read(CHUNK, 0, SLICE_BYTES).wait().expect("a read") == bytes(9));
}

#[test]
fn each_operation_waits_for_its_server_as_long_as_its_clone_says() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let quick = ClientConfig::new().timeout(Nanos::from_millis(300)).patience(Nanos::ZERO);
    let client = Client::connect(server.addr, quick).expect("a server that listens");
    client.create(CHUNK, None, NewChunk::default()).wait().expect("a fresh name");
    let addr = server.addr;
    server.stop();
    let waits = client.patient(LONG).write(CHUNK, 0, pattern(SLICE_BYTES, 3));
    let error = client.write(CHUNK, 0, vec![1]).wait().expect_err("nobody is there");
    assert_eq!(error.kind.fate(), Fate::DidNotHappen, "{error}");
    let _server = Running::start(&config(dir.path()).with(|config| config.network.listen = addr));
    waits.wait().expect("the server is back");
    let read = client.patient(LONG).read(CHUNK, 0, SLICE_BYTES).wait().expect("a read");
    assert!(read == pattern(SLICE_BYTES, 3));
}

#[test]
fn without_a_server_the_first_connection_says_why() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    drop(listener);
    let refused = Client::connect(addr, ClientConfig::new().links(3));
    assert!(matches!(refused, Err(OpenError::Connect(_))), "{refused:?}");
}

#[test]
fn a_client_whose_server_stays_away_says_so_when_its_time_is_over() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let quick = ClientConfig::new().timeout(Nanos::from_millis(300)).patience(Nanos::ZERO);
    let client = Client::connect(server.addr, quick).expect("a server that listens");
    client.create(CHUNK, None, NewChunk::default()).wait().expect("a fresh name");
    server.stop();
    let error = client.write(CHUNK, 0, vec![1]).wait().expect_err("nobody is there");
    assert_eq!(error.kind.fate(), Fate::DidNotHappen, "{error}");
    let error = client.read(CHUNK, 0, 1).wait().expect_err("nobody is there");
    assert!(matches!(error.kind, ErrorKind::PeerGone { .. } | ErrorKind::TimedOut { .. }));
    // What is open ends before the client does.
    let late = client.read(CHUNK, 0, 1);
    client.close();
    assert!(late.wait().is_err());
}

/// A server that is killed and begins again on its address, with its store.
struct Mortal {
    config: DaemonConfig,
    process: Option<Process>,
    _dir: tempfile::TempDir,
}

impl Mortal {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("room for a directory");
        let mut config = config(&dir.path().join("store"));
        let process = Process::start(&config);
        config.network.listen = process.addr;
        Self { config, process: Some(process), _dir: dir }
    }

    fn addr(&self) -> SocketAddr {
        self.config.network.listen
    }

    fn kill(&mut self) {
        drop(self.process.take());
        self.process = Some(Process::start(&self.config));
    }
}

/// Waits until so much is done.
fn wait_for(done: &AtomicU64, count: u64) {
    while done.load(Relaxed) < count {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills the server `kills` times. Before each kill it waits for `each` more operations, and for
/// both links of the client: an earlier kill would break only one of them.
fn kill(server: &mut Mortal, client: &Client, done: &AtomicU64, (kills, each): (u64, u64)) {
    for kill in 1..=kills {
        wait_for(done, kill * each);
        while client.stats().links_made < 2 * kill {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.kill();
    }
}

/// Has six threads change a chunk each for so many rounds, while `trouble` does what it does.
fn chains(
    client: &Client,
    (first, rounds, seed): (u128, u64, u64),
    trouble: impl FnOnce(&AtomicU64),
) {
    println!("seed {seed}");
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for chunk in (first..first + 6).map(ChunkId) {
            let done = &done;
            scope.spawn(move || chain(client, chunk, rounds, seed, done));
        }
        trouble(&done);
    });
}

/// Makes chunks, and reads each of them back whole.
fn put_on(client: &Client, done: &AtomicU64, until: u64) -> u128 {
    let mut name = 1000;
    while done.load(Relaxed) < until {
        name += 1;
        let bytes = pattern(150_000, name as u64);
        client.put(ChunkId(name), &bytes).expect("what may have been done is repeated");
        let read = client.read(ChunkId(name), 100_000, 50_000).wait().expect("reads are repeated");
        assert!(read == bytes[100_000..], "{name}");
    }
    name - 1000
}

/// What a register may hold: the last value that was acknowledged, or one since then of which it
/// is not known.
#[derive(Default)]
struct Register {
    acknowledged: u64,
    unsure: Vec<u64>,
}

fn value(number: u64) -> Vec<u8> {
    let mut bytes = pattern(SLICE_BYTES, number);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Writes and reads the registers of one thread, one after the other, for so many rounds.
fn work(client: &Client, thread: u64, done: &AtomicU64, until: u64, seed: u64) {
    let mut prng = Prng::new(seed ^ thread);
    let mut registers: Vec<Register> = (0..8).map(|_| Register::default()).collect();
    let place = |register: usize| (thread * 8 + register as u64) * SLICE_BYTES as u64;
    let mut number = 0;
    while done.load(Relaxed) < until {
        let register = prng.below(8) as usize;
        number += 1;
        match client.write(CHUNK, place(register), value(number)).wait() {
            Ok(()) => registers[register] = Register { acknowledged: number, unsure: Vec::new() },
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::PeerGone { fate: Fate::Unknown }, "{error}");
                registers[register].unsure.push(number);
            }
        }
        let register = prng.below(8) as usize;
        if registers[register].acknowledged > 0 {
            let read = client.read(CHUNK, place(register), SLICE_BYTES).wait();
            let read = read.expect("reads are repeated");
            let found = u64::from_le_bytes(read[..8].try_into().expect("eight bytes"));
            let Register { acknowledged, unsure } = &mut registers[register];
            assert!(found == *acknowledged || unsure.contains(&found), "thread {thread}: {found}");
            assert!(read == value(found), "thread {thread}: torn");
            // What was not done cannot come late: its link is fenced.
            (*acknowledged, *unsure) = (found, Vec::new());
        }
        done.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_server_that_is_killed_again_and_again_costs_no_acknowledged_write_and_no_read() {
    let seed = 29;
    println!("seed {seed}");
    let mut server = Mortal::start();
    let client = connect(server.addr(), ClientConfig::new().links(2).depth(8));
    client.create(CHUNK, None, NewChunk::default()).wait().expect("a fresh name");
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (client, done) = (client.clone(), &done);
            scope.spawn(move || work(&client, thread, done, 1_200, seed));
        }
        let (putting, of_putting) = (client.clone(), &done);
        let put = scope.spawn(move || put_on(&putting, of_putting, 1_200));
        kill(&mut server, &client, &done, (5, 200));
        assert!(put.join().expect("it ends") > 5, "chunks were made meanwhile");
    });
    let stats = client.stats();
    assert!(stats.links_made >= 2 * 5 && stats.repeated > 0 && stats.open == 0, "{stats:?}");
    client.close();
}

/// Changes a chunk of its own for so many rounds, each time where it has the version that the
/// change before has made: one that was made twice, or not at all, breaks the chain.
fn chain(client: &Client, chunk: ChunkId, rounds: u64, seed: u64, done: &AtomicU64) {
    let mut prng = Prng::new(seed ^ chunk.0 as u64);
    client.create(chunk, None, NewChunk::default()).wait().expect("a fresh name");
    let mut version = client.stat(chunk).wait().expect("it is there").version;
    let mut content = Vec::new();
    for round in 0..rounds {
        let (offset, len) = (prng.below(20_000) as usize, 1 + prng.below(9_000) as usize);
        let (end, at) = (offset + len, offset as u64);
        let made = match prng.below(4) {
            0 => {
                content.resize(offset, 0);
                client.clear_if(chunk, Clear::Truncate { byte_len: at }, version)
            }
            1 => {
                content.resize(content.len().max(end), 0);
                content[offset..end].fill(0);
                client.clear_if(chunk, Clear::Zero { offset: at, byte_len: len as u64 }, version)
            }
            _ => {
                content.resize(content.len().max(end), 0);
                let bytes = pattern(len, round);
                content[offset..end].copy_from_slice(&bytes);
                client.write_if(chunk, at, bytes, version)
            }
        };
        let next = made.wait().unwrap_or_else(|error| panic!("{chunk}, round {round}: {error}"));
        assert!(next > version, "{chunk}, round {round}");
        version = next;
        done.fetch_add(1, Relaxed);
    }
    let info = client.stat(chunk).wait().expect("it is there");
    assert_eq!((info.version, info.byte_len), (version, content.len() as u64), "{chunk}");
    if !content.is_empty() {
        let read = client.read(chunk, 0, content.len()).wait().expect("a read");
        assert!(read == content, "{chunk}");
    }
    client.delete_if(chunk, version).wait().expect("it is the newest");
}

#[test]
fn a_change_for_a_version_is_made_once_however_often_its_server_is_killed() {
    let mut server = Mortal::start();
    let client = connect(server.addr(), ClientConfig::new().links(2).depth(8));
    chains(&client, (100, 150, 31), |done| kill(&mut server, &client, done, (6, 120)));
    let stats = client.stats();
    assert!(stats.links_made >= 2 * 6 && stats.repeated > 0 && stats.open == 0, "{stats:?}");
    client.close();
}

#[test]
fn a_change_for_a_version_is_made_once_however_often_the_link_to_a_living_server_breaks() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Process::start(&config(dir.path()));
    // A server that sleeps is gone for its client, and does what was left when it wakes up.
    let quick = EndpointConfig::new()
        .links_max(2)
        .tune_links(|links| links.peer_timeout(Nanos::from_millis(150)));
    let client = connect(server.addr, ClientConfig::new().links(2).depth(8).endpoint(quick));
    chains(&client, (200, 100, 32), |done| {
        for stop in 1..=5 {
            wait_for(done, stop * 90);
            let made = client.stats().links_made;
            server.signal("STOP");
            std::thread::sleep(Duration::from_millis(600));
            server.signal("CONT");
            while client.stats().links_made == made && client.stats().open > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let stats = client.stats();
    assert!(stats.links_made > 2 && stats.repeated > 0 && stats.open == 0, "{stats:?}");
    client.close();
}

#[test]
fn of_many_who_change_a_chunk_at_one_version_one_does_and_the_others_are_told() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let clients = [0, 1].map(|_| connect(server.addr, ClientConfig::new().links(2)));
    clients[0].create(CHUNK, None, NewChunk::default()).wait().expect("a fresh name");
    let mut version = clients[0].stat(CHUNK).wait().expect("it is there").version;
    for round in 0..30u64 {
        let pending: Vec<_> = (0..8u64)
            .map(|at| clients[at as usize % 2].write_if(CHUNK, 0, pattern(500, at), version))
            .collect();
        let results: Vec<_> = pending.into_iter().map(Pending::wait).collect();
        let made: Vec<_> = results.iter().filter_map(|result| result.ok()).collect();
        assert_eq!(made.len(), 1, "round {round}");
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            let other = ErrorReply::OtherVersion { version: made[0] };
            assert_eq!(error.kind, ErrorKind::Refused(other), "round {round}");
        }
        let winner = results.iter().position(Result::is_ok).expect("one") as u64;
        let read = clients[0].read(CHUNK, 0, 500).wait().expect("a read");
        assert!(read == pattern(500, winner), "round {round}");
        version = made[0];
    }
    clients.iter().for_each(Client::close);
}
