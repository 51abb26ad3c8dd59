//! The processes of one run, and what each tenant got in each period.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tempfile::TempDir;
use towpath_base::Prng;
use towpath_fastpath::{
    ChunkId, Client, ClientConfig, ClientError, NewChunk, OpenError, SLICE_BYTES,
};
use towpath_lab::cluster::Samples;
use towpath_lab::studies::{Runner, StudyError};

use super::TENANTS;
use super::tenant::{Did, Reading};
use crate::child::{ChildError, Spawned};

/// How long a process may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the server is asked: several times in a period, so that none is overlooked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Periods, or seconds, that are left out at the beginning: engines learn then who is behind.
const SKIPPED: usize = 2;

/// Reads that a client has under way on its one link, at most: more are of no use to a lane.
const DEPTH_MAX: usize = 128;

/// Slices of the chunk that is read: 16 MiB, which stays in memory.
const SLICES: u64 = 4096;

const CHUNK: ChunkId = ChunkId(0x4ae0);

/// What keeps reservations, if anything does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum System {
    /// Nothing.
    Bare,
    /// The server, which is said to do so many reads a second.
    Reserved {
        /// How many.
        iops: f64,
    },
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) periods: usize,
    pub(super) links: [usize; 3],
    pub(super) depth: [usize; 3],
    pub(super) is_one_sided: bool,
    pub(super) shares: [f64; 3],
    pub(super) seed: u64,
}

/// What was seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Reads of each tenant in each period: by the server's periods where it keeps reservations,
    /// else by seconds of the system's clock.
    pub(super) done: Vec<[u64; 3]>,
    /// Latency of each tenant's reads in microseconds: mean, p99, p99.9.
    pub(super) latency_us: [[f64; 3]; 3],
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
enum WorldError {
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("cannot make a directory or a file for the server")]
    Dir(#[from] io::Error),
    #[error("cannot connect to the server")]
    Open(#[from] OpenError),
    #[error("the server did not answer for a whole period, of which nothing is known then")]
    Overlooked,
    #[error("a request failed")]
    Client(#[from] ClientError),
}

#[derive(Debug, Deserialize)]
struct Ready {
    listening: SocketAddr,
}

impl Seen {
    /// The median of what all did in a period.
    pub(super) fn total_median(&self) -> f64 {
        let totals: Samples =
            self.done.iter().map(|done| done.iter().sum::<u64>() as f64).collect();
        totals.median()
    }
}

impl Plan {
    /// Runs it, and ends all processes.
    pub(super) fn run(&self, system: System, runner: &Runner<'_>) -> Result<Seen, StudyError> {
        let name = match system {
            System::Bare => "bare",
            System::Reserved { .. } => "reserved",
        };
        match self.measure(system, runner) {
            Ok(Some(seen)) => Ok(seen),
            Ok(None) => Err(StudyError::Stopped),
            Err(error) => Err(StudyError::run(name, error)),
        }
    }

    fn measure(&self, system: System, runner: &Runner<'_>) -> Result<Option<Seen>, WorldError> {
        let dir = tempfile::Builder::new().prefix("towpath-bench-").tempdir()?;
        let mut server = self.start_server(&dir, system)?;
        let Ready { listening } = server.next(PATIENCE)?;
        let looks = Client::connect(listening, ClientConfig::new())?;
        self.fill(&looks)?;
        // The engine of a tenant runs at one client.
        let is_one_each = self.is_one_sided && system != System::Bare;
        let mut tenants = Vec::new();
        for (index, name) in TENANTS.into_iter().enumerate() {
            let (links, depth) = match is_one_each {
                true => (1, (self.links[index] * self.depth[index]).min(DEPTH_MAX)),
                false => (self.links[index], self.depth[index]),
            };
            let mut words = vec![
                String::from("bench-tenant"),
                format!("--server={listening}"),
                format!("--links={links}"),
                format!("--depth={depth}"),
                format!("--chunk={CHUNK}"),
                format!("--slices={SLICES}"),
                format!("--seed={}", self.seed.wrapping_add(index as u64)),
            ];
            if system != System::Bare {
                words.push(format!("--tenant={name}"));
            }
            words.extend(self.is_one_sided.then(|| String::from("--one-sided")));
            tenants.push(Spawned::start("tenant", &words)?);
        }
        for tenant in &mut tenants {
            let Reading { .. } = tenant.next(PATIENCE)?;
        }
        let periods = match system {
            System::Bare => self.sleep_through(runner).then(Vec::new),
            System::Reserved { .. } => self.watch(&looks, runner)?,
        };
        let Some(periods) = periods else { return Ok(None) };
        let mut did = Vec::new();
        for tenant in tenants {
            did.push(tenant.stop::<Did>(PATIENCE)?);
        }
        looks.close();
        let latency_us = [0, 1, 2].map(|index: usize| {
            let Did { mean_us, p99_us, p999_us, .. } = did[index];
            [mean_us, p99_us, p999_us]
        });
        let done = if periods.is_empty() { self.by_seconds(&did) } else { periods };
        Ok(Some(Seen { done, latency_us }))
    }

    /// False when somebody asked to stop.
    fn sleep_through(&self, runner: &Runner<'_>) -> bool {
        // One more at each end, of which only a part is in the run.
        let end = Instant::now() + Duration::from_secs((self.periods + SKIPPED + 2) as u64);
        while Instant::now() < end && !runner.is_stopped() {
            sleep(LOOK_EVERY);
        }
        !runner.is_stopped()
    }

    /// What the server tells of each period; none when somebody asked to stop.
    fn watch(
        &self,
        looks: &Client,
        runner: &Runner<'_>,
    ) -> Result<Option<Vec<[u64; 3]>>, WorldError> {
        let mut periods: Vec<[u64; 3]> = Vec::new();
        let mut last = None;
        while periods.len() < self.periods + SKIPPED {
            if runner.is_stopped() {
                return Ok(None);
            }
            let reply = looks.qos().wait()?;
            if last.is_some_and(|last| reply.periods > last + 1) {
                return Err(WorldError::Overlooked);
            }
            if last.is_some_and(|last| last != reply.periods) {
                periods.push(TENANTS.map(|name| {
                    let found = reply.tenants.iter().find(|tenant| tenant.name == name);
                    found.map_or(0, |tenant| tenant.done_before.into())
                }));
            }
            last = Some(reply.periods);
            sleep(LOOK_EVERY);
        }
        Ok(Some(periods.split_off(SKIPPED)))
    }

    /// By the seconds that all processes saw whole.
    fn by_seconds(&self, did: &[Did]) -> Vec<[u64; 3]> {
        let mut seconds: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
        for (index, did) in did.iter().enumerate() {
            for &(second, count) in &did.seconds {
                if let Some(found) = seconds.entry(second).or_default().get_mut(index) {
                    *found = count;
                }
            }
        }
        let rows = seconds.into_values().skip(SKIPPED + 1);
        rows.take(self.periods).collect()
    }

    fn start_server(&self, dir: &TempDir, system: System) -> Result<Spawned, WorldError> {
        let mut words = vec![
            String::from("bench-server"),
            format!("--dir={}", dir.path().join("store").display()),
        ];
        if self.is_one_sided {
            words.push(format!("--resident-bytes={}", SLICES * SLICE_BYTES as u64));
        }
        if let System::Reserved { iops } = system {
            let file = dir.path().join("tenants.toml");
            let mut text = String::new();
            for (name, share) in TENANTS.into_iter().zip(self.shares) {
                // Writing to a string does not fail.
                let _ = writeln!(text, "[tenant.{name}]\nreserve = {}", (iops * share) as u32);
            }
            std::fs::write(&file, text)?;
            words.push(format!("--qos-iops={}", iops as u32));
            words.push(format!("--tenants-file={}", file.display()));
        }
        Ok(Spawned::start("server", &words)?)
    }

    fn fill(&self, client: &Client) -> Result<(), WorldError> {
        let kind = NewChunk { resident: self.is_one_sided, ..NewChunk::default() };
        client.create(CHUNK, None, kind).wait()?;
        let mut prng = Prng::new(self.seed);
        // As much as one request takes.
        let mut bytes = vec![0; 32 * SLICE_BYTES];
        for part in 0..SLICES / 32 {
            prng.fill(&mut bytes);
            client.write(CHUNK, part * bytes.len() as u64, &bytes[..]).wait()?;
        }
        Ok(())
    }
}
