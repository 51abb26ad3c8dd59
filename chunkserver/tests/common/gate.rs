//! A medium whose flushes wait while a gate is closed, or fail.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use towpath_chunkserver::service::{ServerStats, ServiceConfig};
use towpath_chunkserver::store::{FileMedia, Media, Store, StoreConfig, WorkerConfig};

use super::OverStore;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Flushes pass.
    Open,
    /// Flushes wait.
    Closed,
    /// Flushes fail.
    Broken,
    /// Flushes end the thread.
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

    fn pass(&self) -> io::Result<()> {
        let position = self.0.0.lock().expect("nobody panics with it");
        let wait = |position: &mut Position| *position == Position::Closed;
        let position = *self.0.1.wait_while(position, wait).expect("nobody panics with it");
        assert!(position != Position::Deadly, "the end of this thread, as the test wants it");
        if position == Position::Broken {
            return Err(io::Error::other("the gate is broken"));
        }
        Ok(())
    }
}

/// Files behind a gate.
pub struct GatedMedia {
    pub files: FileMedia,
    pub gate: Gate,
}

impl Media for GatedMedia {
    type File = <FileMedia as Media>::File;

    fn lock(&mut self) -> io::Result<()> {
        self.files.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn open(&self, name: &str) -> io::Result<Self::File> {
        self.files.open(name)
    }

    fn create(&self, name: &str) -> io::Result<Self::File> {
        self.files.create(name)
    }

    fn len(&self, file: &Self::File) -> io::Result<u64> {
        self.files.len(file)
    }

    fn set_len(&self, file: &Self::File, byte_len: u64) -> io::Result<()> {
        self.files.set_len(file, byte_len)
    }

    fn allocate(&self, file: &Self::File, range: std::ops::Range<u64>) -> io::Result<()> {
        self.files.allocate(file, range)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.files.free_bytes()
    }

    fn read_at(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.files.read_at(file, offset, buf)
    }

    fn write_at(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.files.write_at(file, offset, bytes)
    }

    fn fdatasync(&self, file: &Self::File) -> io::Result<()> {
        self.gate.pass()?;
        self.files.fdatasync(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn random(&self) -> u64 {
        self.files.random()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.files.sync_dir()
    }
}

/// A server whose store is behind a gate, with room for one request in its queue and one in each
/// commit.
pub struct Gated {
    pub addr: SocketAddr,
    pub gate: Gate,
    server: OverStore,
}

impl Gated {
    pub fn start(dir: &Path, link_requests_max: usize) -> Self {
        let gate = Gate::new();
        let files = FileMedia::new(dir).expect("room for a directory");
        let media = GatedMedia { files, gate: gate.clone() };
        let settings = StoreConfig::default().segment_bytes(8 << 20).log_bytes(1 << 20);
        let store = Store::open(media, settings).expect("a new store");
        let config = ServiceConfig::new(WorkerConfig::new(1).batch_max(1));
        let server = OverStore::start(store, config.link_requests_max(link_requests_max));
        Self { addr: server.addr, gate, server }
    }

    pub fn stop(self) -> ServerStats {
        self.server.stop().0
    }
}
