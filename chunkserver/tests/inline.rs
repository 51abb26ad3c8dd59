//! A server whose network thread drives the disk: no other thread does, and what the disk has done
//! ends its sleep.

mod common;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{Client, LONG, Running, config, inline, loopback_udp, pattern};
use towpath_chunkserver::daemon::{DriveDisk, StopFlag};
use towpath_chunkserver::service::{ChunkServer, ServiceConfig};
use towpath_chunkserver::store::core::{
    CoreConfig, DriverConfig, StoreCore, StoreDriver, StoreThread,
};
use towpath_chunkserver::store::{ChunkId, NewChunk, Reply, Request};
use towpath_disk::sim::Medium;
use towpath_disk::{Disk, Done, Limits, Op, Refused};
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{Client as SharedClient, ClientConfig};
use towpath_rpc::Piece;
use towpath_transport::{Endpoint, EndpointConfig, Nanos};
use towpath_wake::Bell;

const CHUNK: ChunkId = ChunkId(7);

/// Longer than the test waits for an answer: a sleep that nothing ends lasts as long.
const SLEEP: Nanos = Nanos::from_secs(3600);

const CORE: CoreConfig = CoreConfig {
    log_pages: 256,
    log_pages_max: 0,
    chunks_max: 10,
    store_id: 1,
    log_nonce: 2,
    version_seed: 0,
    is_sparse: false,
};

/// The names of the threads of this process.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has it");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

fn metrics(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").expect("it is taken");
    let mut found = String::new();
    stream.read_to_string(&mut found).expect("an answer of text");
    found
}

#[test]
fn requests_are_served_with_no_thread_for_the_store() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let mut config = inline(config(&dir.path().join("store")));
    config.telemetry.metrics = Some((Ipv4Addr::LOCALHOST, 0).into());
    let server = Running::start(&config);
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    let bytes = pattern(100_000, 1);
    client.write(CHUNK, 50, &bytes).expect("there is room");
    assert!(client.read(CHUNK, 50, bytes.len()).expect("it is there") == bytes);
    let names = threads();
    assert!(!names.iter().any(|name| name == "store"), "{names:?}");
    // Who asks the store from another thread is answered too.
    let told = metrics(server.ready.metrics.expect("it was asked for"));
    let is_counted = |line: &str| line.starts_with("towpath_store_chunks{") && line.ends_with(" 1");
    assert!(told.lines().any(is_counted), "{told}");
    drop(client);
    assert!(server.stop().drained);
    config.network.drive_disk = DriveDisk::Thread;
    let server = Running::start(&config);
    assert!(threads().iter().any(|name| name == "store"), "this is what was looked for");
    let mut client = Client::connect(server.addr);
    assert!(client.read(CHUNK, 50, bytes.len()).expect("it was kept") == bytes);
    server.stop();
}

/// A disk whose operations end when the test says so, after its owner has begun to wait for them.
struct Late {
    disk: Box<dyn Disk>,
    bell: Bell,
    /// How many times somebody was about to wait for something under way.
    waits: Arc<AtomicU64>,
    /// How many of these waits the test has ended.
    ended: Arc<AtomicU64>,
    is_opened: Arc<AtomicU64>,
}

impl Late {
    fn is_held(&self) -> bool {
        let is_opened = self.is_opened.load(Ordering::SeqCst) == 1;
        is_opened && self.ended.load(Ordering::SeqCst) == 0
    }
}

impl Disk for Late {
    fn limits(&self) -> Limits {
        self.disk.limits()
    }

    fn submit(&mut self, tag: u64, op: Op) -> Result<(), Refused> {
        self.disk.submit(tag, op)
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<usize> {
        if self.is_held() { Ok(0) } else { self.disk.wait(Duration::from_secs(1), done) }
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<usize> {
        self.disk.wait(timeout, done)
    }

    fn arm(&mut self) -> io::Result<bool> {
        self.bell.clear();
        let waits = self.limits().in_flight > 0;
        self.waits.fetch_add(u64::from(waits), Ordering::SeqCst);
        Ok(waits && !self.is_held())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

#[test]
fn what_the_disk_has_done_wakes_the_network_thread_and_so_does_who_asks() {
    let bell = Bell::new().expect("a file");
    let (ring, waits, ended, is_opened) =
        (bell.waker(), Arc::default(), Arc::default(), Arc::default());
    let (waits_too, ended_too) = (Arc::clone(&waits), Arc::clone(&ended));
    let of_disk = Arc::clone(&is_opened);
    let open = move || {
        let medium = Medium::new(1, 1024);
        let disk = Box::new(medium.open(32).map_err(io::Error::other)?);
        let late = Late { disk, bell, waits: waits_too, ended: ended_too, is_opened: of_disk };
        let core = StoreCore::open(Box::new(late), &CORE).map_err(io::Error::other)?;
        Ok::<_, io::Error>((core, ()))
    };
    let (tell, told) = mpsc::channel();
    let stop = StopFlag::new();
    let flag = stop.clone();
    let server = std::thread::spawn(move || {
        let config = DriverConfig { queue_max: 4, unfinished_keep: None };
        let (driver, mut holds, ()) = StoreDriver::open_here(2, config, open).expect("it opens");
        tell.send(holds.pop().expect("two ask")).expect("the test waits");
        // No links, so nothing of the endpoint's is ever due.
        let endpoint = Endpoint::udp(loopback_udp(), EndpointConfig::new()).expect("loopback UDP");
        let config = ServiceConfig::new().busy_poll(Nanos::ZERO).idle_wait(SLEEP);
        let own: StoreThread<Piece> = holds.remove(0);
        let mut server = ChunkServer::new(endpoint, own, &config).driving(Some(driver));
        while !flag.is_stopped() {
            server.turn_or_wait();
        }
        server.close_within(Nanos::from_secs(60)).1.sealed
    });
    let asker = told.recv().expect("it starts");
    is_opened.store(1, Ordering::SeqCst);
    let request =
        Request::Create { chunk: CHUNK, limit_bytes: None, kind: NewChunk::default(), stamp: 0 };
    asker.try_send(1, request).expect("there is room");
    asker.ring();
    while waits.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    ended.store(1, Ordering::SeqCst);
    ring.wake();
    let answer = asker.completions().recv_timeout(Duration::from_secs(60));
    assert!(matches!(answer.expect("it is woken").reply, Reply::Change(Ok(_))));
    stop.stop();
    asker.begin_stop().wait(std::time::Instant::now()).expect("at once").expect("no failure");
    assert_eq!(server.join().expect("it ends"), Some(Ok(())));
}

/// A server over a store in memory, which sleeps for [`SLEEP`] when nothing is under way.
fn sleeper(
    is_inline: bool,
    (tell, stop): (&mpsc::Sender<SocketAddr>, &StopFlag),
    turns: &AtomicU64,
) {
    let open = || {
        let disk = Medium::new(1, 4096).open(32).map_err(io::Error::other)?;
        let core = StoreCore::open(Box::new(disk), &CORE).map_err(io::Error::other)?;
        Ok::<_, io::Error>((core, ()))
    };
    let config = DriverConfig { queue_max: 4, unfinished_keep: None };
    let (driver, mut holds) = if is_inline {
        let (driver, holds, ()) = StoreDriver::open_here(1, config, open).expect("it opens");
        (Some(driver), holds)
    } else {
        (None, StoreThread::spawn(1, config, open).expect("it opens").0)
    };
    let of_endpoint = EndpointConfig::new().app_protocol(PROTOCOL).pieces_as_they_come(true);
    let mut endpoint = Endpoint::udp(loopback_udp(), of_endpoint).expect("loopback UDP");
    let address = endpoint.listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    stop.wakes(endpoint.waker().expect("its device can be woken"));
    let own: StoreThread<Piece> = holds.remove(0);
    let mut server = ChunkServer::new(endpoint, own, &ServiceConfig::new()).driving(driver);
    tell.send(address).expect("the test waits");
    while !stop.is_stopped() {
        server.turn_or_sleep(SLEEP);
        // A machine that stands still for a moment may change what is known of a link; until that
        // is told the server looks.
        server.log_health();
        turns.fetch_add(1, Ordering::SeqCst);
    }
    server.close_within(Nanos::from_secs(60)).1.sealed.expect("in time").expect("no failure");
}

/// Stops a server that would sleep for good, also where the test fails.
struct StopAtEnd<'a>(&'a StopFlag);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Until a server takes no turn for a while.
fn await_sleep(turns: &AtomicU64) {
    for _ in 0..300 {
        let before = turns.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        if turns.load(Ordering::SeqCst) == before {
            return;
        }
    }
    panic!("it looks again and again although nothing is under way");
}

#[test]
fn a_server_with_nothing_under_way_sleeps_until_something_comes() {
    for is_inline in [true, false] {
        let (turns, stop) = (AtomicU64::new(0), StopFlag::new());
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let (turns, flag) = (&turns, &stop);
            let _stop_at_end = StopAtEnd(flag);
            scope.spawn(move || sleeper(is_inline, (&tell, flag), turns));
            let address = told.recv().expect("it starts");
            await_sleep(turns);
            // Its own thread serves its link.
            let client = SharedClient::connect(address, ClientConfig::new().timeout(LONG));
            let client = client.expect("it is woken");
            client.create(CHUNK, None, NewChunk::default()).wait().expect("a fresh name");
            for seed in 0..3 {
                let bytes = pattern(100_000, seed);
                client.write(CHUNK, 0, bytes.clone()).wait().expect("there is room");
                await_sleep(turns);
                let read = client.read(CHUNK, 0, bytes.len()).wait().expect("it is there");
                assert!(read.to_vec() == bytes);
                await_sleep(turns);
            }
            drop(client);
            await_sleep(turns);
        });
    }
}
