//! A disk whose changes wait while a gate is closed, or fail.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use towpath_chunkserver::service::{ServerStats, ServiceConfig};
use towpath_chunkserver::store::core::{CoreConfig, DriverConfig, StoreCore, StoreThread};
use towpath_disk::{
    Disk, Done, DurableWrites, Limits, NewFile, Op, Options, Refusal, Refused, What,
};
use towpath_rpc::Piece;

use super::OverStore;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Writes and flushes pass.
    Open,
    /// They wait.
    Closed,
    /// Flushes fail.
    Broken,
    /// They end the thread.
    Deadly,
}

#[derive(Clone)]
pub struct Gate(Arc<(Mutex<Position>, Condvar)>);

impl Gate {
    pub fn new() -> Self {
        Self(Arc::new((Mutex::new(Position::Open), Condvar::new())))
    }

    pub fn set(&self, position: Position) {
        *self.0.0.lock().expect("nobody panics with it") = position;
        self.0.1.notify_all();
    }

    /// Waits while it is closed; where it stands then.
    fn pass(&self) -> Position {
        let position = self.0.0.lock().expect("nobody panics with it");
        let wait = |position: &mut Position| *position == Position::Closed;
        let position = *self.0.1.wait_while(position, wait).expect("nobody panics with it");
        assert!(position != Position::Deadly, "the end of this thread, as the test wants it");
        position
    }
}

/// A disk behind a gate: whoever changes it waits there, and with it the store's thread.
struct GatedDisk {
    disk: Box<dyn Disk>,
    gate: Gate,
}

impl Disk for GatedDisk {
    fn limits(&self) -> Limits {
        // Flushes are what it holds back.
        Limits { durable_writes: DurableWrites::None, ..self.disk.limits() }
    }

    fn submit(&mut self, tag: u64, op: Op) -> Result<(), Refused> {
        if op.what() != What::Read {
            let position = self.gate.pass();
            if position == Position::Broken && op.what() == What::Flush {
                return Err(Refused { op, why: Refusal::FlushFailed });
            }
        }
        self.disk.submit(tag, op)
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<usize> {
        self.disk.poll(done)
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<usize> {
        self.disk.wait(timeout, done)
    }

    fn arm(&mut self) -> io::Result<bool> {
        self.disk.arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.disk.descriptor()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

/// A new store of 64 MiB behind a gate, in whose queue there is room for so many requests.
pub fn gated_store(dir: &Path, gate: &Gate, queue_max: usize) -> StoreThread<Piece> {
    let (path, gate) = (dir.join("disk"), gate.clone());
    let open = move || {
        let page_count = 16_384;
        let create = Some(NewFile { page_count, room_pages: page_count });
        let options = Options { create, ..Options::default() };
        let (disk, _) = towpath_disk::open(&path, &options).map_err(io::Error::other)?;
        let config = CoreConfig {
            log_pages: 256,
            log_pages_max: 0,
            chunks_max: 100,
            store_id: 1,
            log_nonce: 2,
            version_seed: 0,
            is_sparse: false,
        };
        let core = StoreCore::open(Box::new(GatedDisk { disk, gate }), &config);
        Ok::<_, io::Error>((core.map_err(io::Error::other)?, ()))
    };
    let config = DriverConfig { queue_max, unfinished_keep: None };
    let (mut threads, ()) = StoreThread::spawn(1, config, open).expect("a new store");
    threads.pop().expect("one asks")
}

/// A server whose store is behind a gate, with room for one request in its queue.
pub struct Gated {
    pub addr: SocketAddr,
    pub gate: Gate,
    server: OverStore,
}

impl Gated {
    pub fn start(dir: &Path, link_requests_max: usize) -> Self {
        let gate = Gate::new();
        let store = gated_store(dir, &gate, 1);
        let config = ServiceConfig::new().link_requests_max(link_requests_max);
        let server = OverStore::start(store, config);
        Self { addr: server.addr, gate, server }
    }

    pub fn stop(self) -> ServerStats {
        self.server.stop().0
    }
}
