//! What the client of any way does: sequential writes, as many under way as it is told, and what
//! they took.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use crate::baseline::{Bytes, ProstError, Verdict};
use serde::{Deserialize, Serialize};
use towpath_base::Prng;
use towpath_fastpath::{ChunkId, ClientError};
use towpath_rpc::{CallError, RpcError, Status};
use towpath_transport::{ChannelError, ConnectError, EndpointError, ListenError};

use super::usage::{Memory, Misses};
use crate::bench::process::cpu_ns;

/// The chunk that is written.
pub(super) const CHUNK: ChunkId = ChunkId(0xfa57);

/// Bytes of it: they are written again and again, so that the store does not grow.
pub(super) const CHUNK_BYTES: u64 = 32 << 20;

/// How long goes before what is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// Latencies that are kept: those of the first writes, some ten seconds of them.
const SAMPLES_MAX: usize = 1 << 20;

/// Why the process of a client ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("no endpoint")]
    Endpoint(#[from] EndpointError),
    #[error("cannot listen")]
    Listen(#[from] ListenError),
    #[error("cannot connect to the server")]
    Connect(#[from] ConnectError),
    #[error("cannot open a channel")]
    Channel(#[from] ChannelError),
    #[error("an operation failed")]
    Client(#[from] ClientError),
    #[error("a request was not sent")]
    Call(#[from] CallError),
    #[error("a request failed")]
    Rpc(#[from] RpcError),
    #[error("a request over protobuf failed")]
    Prost(#[from] ProstError),
    #[error("a request over gRPC failed")]
    Grpc(#[from] crate::baseline::grpc::GrpcError),
    #[error("the server answered {0:?}")]
    Verdict(Verdict),
    #[error("the server answered with status {}", .0.0)]
    Status(Status),
    #[error("the server has gone")]
    Gone,
    #[error("the system refused something")]
    Io(#[from] io::Error),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    #[error("the store is not there")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) depth: usize,
    pub(super) bytes: usize,
    pub(super) seconds: u64,
    /// Writes that are begun before they are sent.
    pub(super) batch: usize,
    pub(super) spin: Duration,
    pub(super) server_pid: u32,
}

/// What a client measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Did {
    /// Writes that ended while it measured, and for how long that was.
    pub(super) writes: u64,
    pub(super) seconds: f64,
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    /// Processor time of both processes meanwhile.
    pub(super) client_ns: u64,
    pub(super) server_ns: u64,
    /// All writes, those before as well.
    pub(super) all: u64,
    pub(super) memory: Memory,
}

/// When measuring began, and what both processes had used by then.
struct Begin {
    at: Instant,
    client_ns: u64,
    server_ns: u64,
    ended: u64,
}

/// Writes of a load: what is next, and what those that have ended took.
pub(super) struct Meter {
    load: Load,
    data: Bytes,
    warm_at: Instant,
    begin: Option<Begin>,
    next: u64,
    ended: u64,
    latencies_us: Vec<f64>,
    misses: Misses,
}

impl Meter {
    /// Begins to warm up.
    pub(super) fn new(load: Load, seed: u64) -> Self {
        let mut data = vec![0; load.bytes];
        Prng::new(seed).fill(&mut data);
        Self {
            load,
            data: data.into(),
            warm_at: Instant::now() + WARM_UP,
            begin: None,
            next: 0,
            ended: 0,
            latencies_us: Vec::new(),
            misses: Misses::count(),
        }
    }

    pub(super) fn load(&self) -> &Load {
        &self.load
    }

    /// Where the next write goes.
    pub(super) fn next_offset(&mut self) -> u64 {
        let places = CHUNK_BYTES / self.load.bytes as u64;
        let offset = self.next % places * self.load.bytes as u64;
        self.next += 1;
        offset
    }

    /// What is written, in memory of the application.
    pub(super) fn data(&self) -> Bytes {
        self.data.clone()
    }

    /// A write that began at `began` has ended; what was measured, once it is enough.
    pub(super) fn ended(&mut self, began: Instant) -> Result<Option<Did>, LoadError> {
        let now = Instant::now();
        self.ended += 1;
        let Some(begin) = &self.begin else {
            if now >= self.warm_at {
                self.begin = Some(Begin {
                    at: now,
                    client_ns: cpu_ns(std::process::id())?,
                    server_ns: cpu_ns(self.load.server_pid)?,
                    ended: self.ended,
                });
            }
            return Ok(None);
        };
        if self.latencies_us.len() < SAMPLES_MAX {
            self.latencies_us.push((now - began).as_secs_f64() * 1e6);
        }
        let span = now - begin.at;
        if span < Duration::from_secs(self.load.seconds) {
            return Ok(None);
        }
        let client_ns = cpu_ns(std::process::id())?.saturating_sub(begin.client_ns);
        let server_ns = cpu_ns(self.load.server_pid)?.saturating_sub(begin.server_ns);
        let writes = self.ended - begin.ended;
        self.latencies_us.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (self.latencies_us.len() as f64 * share) as usize;
            self.latencies_us.get(place).copied().unwrap_or(f64::NAN)
        };
        Ok(Some(Did {
            writes,
            seconds: span.as_secs_f64(),
            median_us: at(0.5),
            p99_us: at(0.99),
            client_ns,
            server_ns,
            all: self.ended,
            memory: Memory::until_now(&mut self.misses),
        }))
    }
}

/// Says something to the parent.
pub(super) fn say(words: &impl Serialize) -> Result<(), LoadError> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, words)?;
    writeln!(out)?;
    Ok(out.flush()?)
}
