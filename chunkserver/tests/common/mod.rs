//! Servers, in this process and in their own, and a client to talk to them.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod gate;
pub mod register;
pub mod tap;

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use towpath_base::Prng;
use towpath_chunkserver::daemon::{
    self, DaemonConfig, DaemonError, DriveDisk, Ready, Served, StopFlag,
};
use towpath_chunkserver::service::{AllowedPeers, ChunkServer, ServerStats, ServiceConfig};
use towpath_chunkserver::store::core::StoreDriver;
use towpath_chunkserver::store::disks::Disks;
use towpath_chunkserver::store::{ChunkId, FlushFailed};
use towpath_fastpath::control::InfoReply;
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{
    ChunkClient, ClientError, ErrorKind, ErrorReply, NewChunk, OpId, Output, StorageRequest,
};
use towpath_rpc::Piece;
use towpath_transport::{
    Class, ConnectError, Device, Endpoint, EndpointConfig, Event, Nanos, Region, RoceUdp, UdpConfig,
};

/// Turns without success after which a test fails: no clock is asked.
const TURNS_MAX: usize = 20_000_000;

/// How long whatever shall end well may take, however busy the machine.
pub const LONG: Nanos = Nanos::from_secs(60);

/// How long the client waits to learn what became of a write that it gave up: the test waits for
/// as long where the store is stuck.
pub const OUTCOME_GRACE: Nanos = Nanos::from_secs(10);

pub fn loopback_udp() -> UdpConfig {
    UdpConfig::new(Ipv4Addr::LOCALHOST.into())
}

/// Settings of a small server on any free port.
pub fn config(dir: &Path) -> DaemonConfig {
    DaemonConfig::default().with(|config| {
        config.network.listen = (Ipv4Addr::LOCALHOST, 0).into();
        config.store.data_dir = dir.into();
        config.store.capacity_bytes = 128 << 20;
        config.store.log_bytes = 1 << 20;
        config.store.log_bytes_max = 1 << 20;
        config.network.links_max = 8;
        config.service.stop_wait_ms = 60_000;
        config.telemetry.log = "warn".into();
        config.service.peers = AllowedPeers::any();
    })
}

/// The same settings for a server whose only network thread drives the disk.
pub fn inline(config: DaemonConfig) -> DaemonConfig {
    config.with(|config| {
        config.network.workers = Some(1);
        config.network.drive_disk = DriveDisk::Inline;
    })
}

/// A server on a thread of this process.
pub struct Running {
    pub addr: SocketAddr,
    pub ready: Ready,
    stop: StopFlag,
    thread: Option<JoinHandle<Result<Served, DaemonError>>>,
}

impl Running {
    /// Starts it. The port of one that is started again may be that of a connection which another
    /// test has made meanwhile: then it is tried again for a while.
    pub fn start(config: &DaemonConfig) -> Self {
        let mut tries = 0;
        loop {
            match Self::try_start(config) {
                Ok(running) => return running,
                Err(error) if config.network.listen.port() != 0 && tries < 200 => {
                    println!("not yet: {error}");
                    std::thread::sleep(Duration::from_millis(100));
                    tries += 1;
                }
                Err(error) => panic!("no server: {error}"),
            }
        }
    }

    fn try_start(config: &DaemonConfig) -> Result<Self, DaemonError> {
        let stop = StopFlag::new();
        let (tell, told) = mpsc::channel();
        let (config, flag) = (config.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            daemon::run(&config, &flag, daemon::udp_devices, |ready| {
                tell.send(ready.clone()).map_err(std::io::Error::other)
            })
        });
        match told.recv() {
            Ok(ready) => Ok(Self { addr: ready.listening, ready, stop, thread: Some(thread) }),
            Err(_) => Err(thread.join().expect("no panic").expect_err("it was never ready")),
        }
    }

    pub fn stop(mut self) -> Served {
        self.stop.stop();
        let thread = self.thread.take().expect("it is stopped once");
        thread.join().expect("the server thread ends").expect("a clean stop")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// A server on a thread of this process, over a store of whatever disk.
pub struct OverStore {
    pub addr: SocketAddr,
    stop: StopFlag,
    thread: JoinHandle<(ServerStats, Result<(), FlushFailed>)>,
}

impl OverStore {
    pub fn start(store: impl Into<Disks<Piece>>, config: ServiceConfig) -> Self {
        let store = store.into();
        Self::start_with(move || (store, None), config)
    }

    /// A server whose thread opens the store, and drives it too where it is given a driver.
    pub fn start_with(
        open: impl FnOnce() -> (Disks<Piece>, Option<StoreDriver<Piece>>) + Send + 'static,
        config: ServiceConfig,
    ) -> Self {
        let (tell, told) = mpsc::channel();
        let stop = StopFlag::new();
        let flag = stop.clone();
        let thread = std::thread::spawn(move || {
            let (store, driver) = open();
            let of_endpoint =
                EndpointConfig::new().app_protocol(PROTOCOL).pieces_as_they_come(true);
            let mut endpoint = Endpoint::udp(loopback_udp(), of_endpoint).expect("loopback UDP");
            let addr = endpoint.listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
            let mut server = ChunkServer::new(endpoint, store, &config).driving(driver);
            tell.send(addr).expect("the test waits");
            while !flag.is_stopped() {
                server.turn_or_wait();
            }
            assert!(server.drain(LONG), "all is answered");
            let (stats, closed) = server.close_within(LONG);
            (stats, closed.sealed.expect("it closes in time"))
        });
        Self { addr: told.recv().expect("it starts"), stop, thread }
    }

    /// What it counted, and how the store closed.
    pub fn stop(self) -> (ServerStats, Result<(), FlushFailed>) {
        self.stop.stop();
        self.thread.join().expect("it ends")
    }
}

/// A server in a process of its own, killed when dropped.
pub struct Process {
    pub child: Child,
    pub addr: SocketAddr,
    pub device: SocketAddr,
}

/// Starts a server that is not to start; its code, and what it said.
pub fn refused(config: &DaemonConfig) -> (Option<i32>, String) {
    let output = command(config).stderr(Stdio::piped()).output().expect("it is there");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Reads chunks of patterns by their numbers, of which one disk, that does not serve, may have
/// some: how many are read, and how many are refused with its name.
pub fn served_beside(
    client: &mut Client<RoceUdp>,
    chunks: u128,
    len: usize,
    disk: u64,
) -> (u64, u64) {
    let (mut served, mut refusals) = (0, 0);
    for name in 0..chunks {
        match client.read(ChunkId(name), 0, len) {
            Ok(found) => {
                assert!(found == pattern(len, name as u64));
                served += 1;
            }
            refused => {
                assert_eq!(refusal(refused), ErrorReply::DiskFailed { chunk: ChunkId(name), disk });
                refusals += 1;
            }
        }
    }
    (served, refusals)
}

pub fn command(config: &DaemonConfig) -> Command {
    let file = config.store.data_dir.with_extension("toml");
    let text = config.to_file_text().expect("each path is text");
    std::fs::write(&file, text).expect("the settings are written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath-chunkserver"));
    command.arg("--config").arg(file).arg("--json").stdout(Stdio::piped());
    command
}

impl Process {
    pub fn start(config: &DaemonConfig) -> Self {
        Self::of(&mut command(config))
    }

    /// A server that `command` starts, with its stdout piped.
    pub fn of(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the server starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("the server speaks");
        let ready: serde_json::Value = serde_json::from_str(&line).expect("one JSON object");
        let addr = |name: &str| {
            let text = ready[name].as_str().expect("a text");
            text.parse().expect("an address")
        };
        Self { addr: addr("listening"), device: addr("device"), child }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(done.expect("there is a kill command").success());
        // On a busy machine its threads run on for a while.
        while name == "STOP" && !self.is_stopped() {}
    }

    /// Whether none of its threads runs.
    fn is_stopped(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.child.id());
        let tasks = std::fs::read_dir(tasks).expect("the server is there").flatten();
        let mut stats =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
        stats.all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
    }

    /// Kilobytes of memory in use.
    pub fn rss_kib(&self) -> u64 {
        let path = format!("/proc/{}/statm", self.child.id());
        let text = std::fs::read_to_string(path).expect("the server runs");
        let pages: u64 = text.split(' ').nth(1).expect("a second field").parse().expect("a number");
        pages * 4
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client with one channel to a server.
pub struct Client<D: Device<Memory = Region>> {
    pub endpoint: Endpoint<D>,
    pub chunks: ChunkClient,
}

impl Client<RoceUdp> {
    pub fn connect(addr: SocketAddr) -> Self {
        Self::connect_as(addr, Class::default())
    }

    pub fn connect_as(addr: SocketAddr, class: Class) -> Self {
        // Tests say how much is under way at once: delays of a busy machine shall not.
        let fixed = "fixed".parse().expect("a word of congestion control");
        let config = EndpointConfig::new()
            .app_protocol(PROTOCOL)
            .links_max(2)
            .controller(fixed)
            .class(class);
        let config = config.connect_timeout(LONG);
        let endpoint = Endpoint::udp(loopback_udp(), config).expect("loopback UDP");
        Self::on(endpoint, addr)
    }
}

impl<D: Device<Memory = Region>> Client<D> {
    pub fn on(mut endpoint: Endpoint<D>, addr: SocketAddr) -> Self {
        endpoint.connect(addr).expect("room for a connection");
        let mut found = None;
        for _ in 0..TURNS_MAX {
            let busy = endpoint.turn(|endpoint, event| match event {
                Event::Connected { link, .. } => {
                    endpoint.open_channel(link, false).expect("a fresh link has room");
                }
                Event::ChannelOpened { link, channel, .. } => found = Some((link, channel)),
                // It has until it notices that links have ended which took its room.
                Event::ConnectFailed { error: ConnectError::Full { .. }, .. } => {
                    endpoint.connect(addr).expect("room for a connection");
                }
                Event::ConnectFailed { error, .. } => panic!("{error}"),
                _ => {}
            });
            if let Some((link, channel)) = found {
                let chunks = ChunkClient::new(link, channel).timeout(LONG);
                return Self { endpoint, chunks: chunks.outcome_grace(OUTCOME_GRACE) };
            }
            if !busy {
                endpoint.wait(Nanos::from_millis(1));
            }
        }
        panic!("no connection to {addr}");
    }

    /// One turn; gives the next operation that has ended.
    pub fn turn(&mut self) -> Option<(OpId, Result<Output, ClientError>)> {
        let Self { endpoint, chunks } = self;
        let busy = endpoint.turn(|endpoint, event| {
            chunks.on_event(endpoint, event);
        });
        chunks.expire(endpoint);
        let done = chunks.poll(endpoint);
        if !busy && done.is_none() {
            endpoint.wait(Nanos::from_millis(1));
        }
        done.map(|done| (done.op, done.result))
    }

    /// Waits for one operation; no other is under way.
    pub fn wait(&mut self, op: Result<OpId, ClientError>) -> Result<Output, ErrorKind> {
        let op = op.map_err(|error| error.kind)?;
        for _ in 0..TURNS_MAX {
            if let Some((done, result)) = self.turn() {
                assert_eq!(done, op, "one at a time");
                return result.map_err(|error| error.kind);
            }
        }
        panic!("no answer");
    }

    pub fn create(&mut self, chunk: ChunkId, limit: Option<u64>) -> Result<(), ErrorKind> {
        let op = self.chunks.start_request(
            &mut self.endpoint,
            &StorageRequest::Create {
                chunk,
                limit_bytes: limit,
                kind: NewChunk::default(),
                stamp: 0,
            },
        );
        self.wait(op).map(drop)
    }

    pub fn delete(&mut self, chunk: ChunkId) -> Result<(), ErrorKind> {
        let op = self
            .chunks
            .start_request(&mut self.endpoint, &StorageRequest::Delete { chunk, version: None });
        self.wait(op).map(drop)
    }

    pub fn write(&mut self, chunk: ChunkId, offset: u64, bytes: &[u8]) -> Result<(), ErrorKind> {
        let op = self.chunks.start_write_copy(&mut self.endpoint, chunk, offset, bytes);
        self.wait(op).map(drop)
    }

    pub fn read(&mut self, chunk: ChunkId, offset: u64, len: usize) -> Result<Vec<u8>, ErrorKind> {
        let op = self.chunks.start_read(&mut self.endpoint, chunk, offset, len);
        match self.wait(op)? {
            Output::Read(data) => Ok(data.to_vec()),
            other => panic!("a read gave {other:?}"),
        }
    }

    pub fn info(&mut self) -> Result<InfoReply, ErrorKind> {
        let op = self.chunks.start_request(&mut self.endpoint, &StorageRequest::Info);
        match self.wait(op)? {
            Output::Info(info) => Ok(info),
            other => panic!("an info gave {other:?}"),
        }
    }

    /// The length of a chunk, and its version.
    pub fn stat(&mut self, chunk: ChunkId) -> Result<(u64, u64), ErrorKind> {
        let op = self.chunks.start_request(&mut self.endpoint, &StorageRequest::Stat { chunk });
        match self.wait(op)? {
            Output::Stat(info) => Ok((info.byte_len, info.version)),
            other => panic!("a stat gave {other:?}"),
        }
    }
}

/// The refusal that an error is.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, ErrorKind>) -> ErrorReply {
    match result {
        Err(ErrorKind::Refused(reply)) => reply,
        other => panic!("no refusal but {other:?}"),
    }
}

/// Flips a bit wherever these bytes are the beginning of a page of a disk file. Others may have it
/// open.
pub fn flip_where(disk: &Path, bytes: &[u8]) {
    let file = File::options().read(true).write(true).open(disk).expect("it is there");
    let byte_len = file.metadata().expect("it is there").len();
    let mut page = [0; 4096];
    let mut places = || {
        let is_place = |offset: &u64| {
            file.read_exact_at(&mut page, *offset).expect("it is so long");
            page.starts_with(bytes)
        };
        (0..byte_len).step_by(4096).filter(is_place).collect::<Vec<_>>()
    };
    // Those of a small write are in both copies of the log first, and at their place a little
    // later.
    let mut found = places();
    while found.len() == 2 {
        std::thread::sleep(Duration::from_millis(50));
        found = places();
    }
    assert!(!found.is_empty(), "they are not there");
    for offset in found {
        file.write_all_at(&[bytes[10] ^ 0x20], offset + 10).expect("it is written");
    }
}

/// Bytes that tell where they belong.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Prng::new(seed).fill(&mut bytes);
    bytes
}
