//! The servers, and one write by each policy.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tempfile::TempDir;
use towpath_base::Prng;
use towpath_ec::BufferError;
use towpath_fastpath::{
    ChunkId, Client, ClientConfig, ClientError, NewChunk, OpenError, Pending, Route, RouteError,
    RouteKind, SLICE_BYTES,
};
use towpath_spread::Policy;

use crate::child::{ChildError, Spawned};

/// How long a server may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of one operation at most: a longer write is several of them, all under way at once.
const OP_BYTES: usize = 128 << 10;

/// Writes before those that are measured.
const WARM_UP: usize = 5;

/// Writes go to so many places of a chunk in turn.
const PLACES: usize = 8;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorldError {
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("cannot make a directory for the servers")]
    Dir(#[from] io::Error),
    #[error("cannot connect to a server")]
    Open(#[from] OpenError),
    #[error("a request failed")]
    Client(#[from] ClientError),
    #[error("the servers are no route")]
    Route(#[from] RouteError),
    #[error("the units are not as the code wants them")]
    Code(#[from] BufferError),
}

/// What one run of a point gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Median of a write, in microseconds.
    pub(super) median_us: f64,
    /// What handlers took at the first and at the last of the servers.
    pub(super) handlers: [Means; 2],
}

/// What one call of header, payload, completion and cleanup took, in nanoseconds; none where there
/// was no call.
pub(super) type Means = [Option<f64>; 4];

#[derive(Debug, Deserialize)]
struct Ready {
    listening: SocketAddr,
}

/// Servers, each a process, and a client of each.
pub(super) struct World {
    _dir: TempDir,
    _servers: std::sync::Mutex<Vec<Spawned>>,
    places: Vec<SocketAddr>,
    clients: Vec<Client>,
    seed: u64,
}

impl World {
    pub(super) fn start(count: usize, seed: u64) -> Result<Self, WorldError> {
        let dir = tempfile::Builder::new().prefix("towpath-bench-").tempdir()?;
        let (mut servers, mut places, mut clients) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            let folder = dir.path().join(number.to_string());
            let dir = format!("--dir={}", folder.display());
            let words = [String::from("bench-server"), dir, String::from("--time-handlers")];
            let mut server = Spawned::start("server", &words)?;
            let Ready { listening } = server.next(PATIENCE)?;
            servers.push(server);
            places.push(listening);
            clients.push(Client::connect(listening, ClientConfig::new().depth(64))?);
        }
        let servers = std::sync::Mutex::new(servers);
        Ok(Self { _dir: dir, _servers: servers, places, clients, seed })
    }

    /// Writes one after the other.
    pub(super) fn measure(
        &self,
        policy: Policy,
        bytes: usize,
        writes: usize,
    ) -> Result<Seen, WorldError> {
        let chunk = ChunkId::random();
        let parts = &self.clients[..policy.parts()];
        let made: Vec<Pending<()>> =
            parts.iter().map(|client| client.create(chunk, None, NewChunk::default())).collect();
        made.into_iter().try_for_each(Pending::wait)?;
        let ends = [&parts[0], &parts[parts.len() - 1]];
        let before = [handlers(ends[0])?, handlers(ends[1])?];
        let mut data = vec![0; bytes];
        Prng::new(self.seed).fill(&mut data);
        let mut took = Vec::with_capacity(writes);
        for number in 0..WARM_UP + writes {
            let place = (number % PLACES * bytes.next_multiple_of(SLICE_BYTES)) as u64;
            let began = Instant::now();
            self.write(policy, (chunk, place), &data, number as u64 + 1)?;
            if number >= WARM_UP {
                took.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
        let after = [handlers(ends[0])?, handlers(ends[1])?];
        parts.iter().try_for_each(|client| client.delete(chunk).wait())?;
        let handlers = [means(before[0], after[0]), means(before[1], after[1])];
        took.sort_by(f64::total_cmp);
        Ok(Seen { median_us: took[took.len() / 2], handlers })
    }

    fn write(
        &self,
        policy: Policy,
        (chunk, start): (ChunkId, u64),
        data: &[u8],
        stamp: u64,
    ) -> Result<(), WorldError> {
        let parts = policy.parts();
        let (places, clients) = (&self.places[..parts], &self.clients[..parts]);
        let ops = || (start..).step_by(OP_BYTES).zip(data.chunks(OP_BYTES));
        let mut asked = Vec::new();
        match policy {
            Policy::Flat(_) => {
                for (at, op) in ops() {
                    asked.extend(clients.iter().map(|client| client.write(chunk, at, op)));
                }
            }
            Policy::Ring(_) | Policy::Tree(_) | Policy::Acked(_) => {
                let kind = policy.route().unwrap_or(RouteKind::Ring);
                let route = Route::new(kind, places)?.acked_by(policy.acked() as u8)?;
                let route = Arc::new(route);
                for (at, op) in ops() {
                    let route = Arc::clone(&route);
                    asked.push(clients[0].write_along(route, chunk, at, op));
                }
            }
            Policy::Coded(shape) | Policy::Triec(shape) => {
                let is_ours = matches!(policy, Policy::Triec(_));
                let unit = data.len().div_ceil(shape.k()).next_multiple_of(SLICE_BYTES);
                let mut whole = data.to_vec();
                whole.resize(unit * shape.k(), 0);
                let units: Vec<&[u8]> = whole.chunks_exact(unit).collect();
                let mut parity = vec![vec![0; unit]; if is_ours { 0 } else { shape.m() }];
                if !is_ours {
                    let mut into: Vec<&mut [u8]> =
                        parity.iter_mut().map(Vec::as_mut_slice).collect();
                    towpath_ec::Code::new(shape).encode(&units, &mut into)?;
                }
                // The code works byte by byte, so a part of each unit makes a stripe of its own.
                let units = units.into_iter().chain(parity.iter().map(Vec::as_slice));
                for (rank, (unit, client)) in units.zip(clients).enumerate() {
                    for (at, op) in (start..).step_by(OP_BYTES).zip(unit.chunks(OP_BYTES)) {
                        asked.push(match is_ours {
                            false => client.write(chunk, at, op),
                            true => {
                                let (rank, data) = (rank as u8, shape.k() as u8);
                                let route = Arc::new(Route::stripe(rank, data, places)?);
                                client.write_unit(route, (chunk, at), op, stamp)
                            }
                        });
                    }
                }
            }
        }
        Ok(asked.into_iter().try_for_each(Pending::wait)?)
    }
}

/// Calls of each handler of a server so far, and nanoseconds.
type Counts = [(u64, u64); 4];

fn handlers(client: &Client) -> Result<Counts, ClientError> {
    let told = client.info().wait()?.handlers;
    // Of a server of one worker: it is that of all its requests.
    Ok(std::array::from_fn(|at| told.get(at).map_or((0, 0), |of| (of.calls, of.ns))))
}

fn means(before: Counts, after: Counts) -> Means {
    std::array::from_fn(|at| {
        let calls = after[at].0.saturating_sub(before[at].0);
        let ns = after[at].1.saturating_sub(before[at].1);
        (calls > 0).then(|| ns as f64 / calls as f64)
    })
}
