//! The processes of one run, and what each class got.

use std::io;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;
use towpath_base::Prng;
use towpath_fastpath::{
    ChunkId, Client, ClientConfig, ClientError, NewChunk, OpenError, SLICE_BYTES,
};
use towpath_lab::studies::{Runner, StudyError};
use towpath_transport::Class;

use super::client::{Begins, Did};
use crate::child::{ChildError, Spawned};

/// How long a process may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is left out at the beginning of a run: interference control takes some windows to find its
/// rate, and gets a second for it in the run itself.
const WARM_UP: Duration = Duration::from_secs(2);

/// Slices of each chunk, 64 MiB: the disk is passed by no cache of the system.
const SLICES: u64 = 16_384;

const SOURCE: ChunkId = ChunkId(0xc1a5);

/// Reads that Gold and Silver have under way.
const READS: [usize; 2] = [1, 4];

/// A mean that no read reaches, for a server that only says what they take.
const NO_TARGET_US: u32 = 60_000_000;

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum System {
    /// Copper, as fast as it can.
    WritesAlone,
    /// Gold and Silver, at a server that says what reads take.
    Profiled,
    /// Gold and Silver.
    Quiet,
    /// All three.
    Beside {
        /// Percent of what the server can write.
        load: f64,
        /// The same in bytes a second.
        rate: f64,
        /// Mean and 99th percentile that interference control keeps to, in microseconds.
        targets: Option<[f64; 2]>,
    },
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) seconds: u64,
    pub(super) write_bytes: usize,
    pub(super) depth: usize,
    pub(super) seed: u64,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Of Gold and Silver.
    pub(super) classes: [Did; 2],
    /// Bytes that Copper wrote in a second.
    pub(super) copper_bytes: u64,
    /// Mean and 99th percentile of reads that the server saw, in microseconds.
    pub(super) server_us: [f64; 2],
    /// How often interference control took tokens away.
    pub(super) cuts: u64,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
enum WorldError {
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("cannot make a directory for the server")]
    Dir(#[from] io::Error),
    #[error("cannot connect to the server")]
    Open(#[from] OpenError),
    #[error("a request failed")]
    Client(#[from] ClientError),
}

#[derive(Debug, Deserialize)]
struct Ready {
    listening: SocketAddr,
}

impl System {
    pub(super) fn name(self) -> String {
        match self {
            Self::WritesAlone => "Copper alone".into(),
            Self::Profiled => "profiled".into(),
            Self::Quiet => "without Copper".into(),
            Self::Beside { load, targets: None, .. } => format!("{load} %"),
            Self::Beside { load, .. } => format!("{load} %, controlled"),
        }
    }

    fn targets_us(self) -> [u32; 2] {
        match self {
            Self::Profiled => [NO_TARGET_US; 2],
            // A hundredth of a window is one read: a percentile of at least a few is kept to.
            Self::Beside { targets: Some(targets), .. } => {
                targets.map(|us| (us as u32).clamp(1, NO_TARGET_US))
            }
            _ => [0; 2],
        }
    }
}

impl Plan {
    /// Runs it, and ends all processes.
    pub(super) fn run(&self, system: System, runner: &Runner<'_>) -> Result<Seen, StudyError> {
        match self.measure(system, runner) {
            Ok(Some(seen)) => Ok(seen),
            Ok(None) => Err(StudyError::Stopped),
            Err(error) => Err(StudyError::run(system.name(), error)),
        }
    }

    fn measure(&self, system: System, runner: &Runner<'_>) -> Result<Option<Seen>, WorldError> {
        let dir = tempfile::Builder::new().prefix("towpath-bench-").tempdir()?;
        let [mean, p99] = system.targets_us();
        let words = [
            String::from("bench-server"),
            format!("--dir={}", dir.path().join("store").display()),
            String::from("--workers=3"),
            format!("--interference-mean-us={mean}"),
            format!("--interference-p99-us={p99}"),
        ];
        let mut server = Spawned::start("server", &words)?;
        let Ready { listening } = server.next(PATIENCE)?;
        let looks = Client::connect(listening, ClientConfig::new())?;
        self.fill(&looks)?;
        let mut classes = Vec::new();
        for class in [Class::Gold, Class::Silver, Class::Copper] {
            if let Some(words) = self.words(class, system, listening) {
                classes.push((class, Spawned::start("class", &words)?));
            }
        }
        for (_, process) in &mut classes {
            let Begins { .. } = process.next(PATIENCE)?;
        }
        let end = Instant::now() + WARM_UP + Duration::from_secs(self.seconds);
        while Instant::now() < end && !runner.is_stopped() {
            sleep(Duration::from_millis(50));
        }
        if runner.is_stopped() {
            return Ok(None);
        }
        let mut seen = Seen::default();
        if let Some(found) = looks.info().wait()?.interference {
            seen.server_us = [found.seen_mean_ns, found.seen_p99_ns].map(|ns| ns as f64 / 1e3);
            seen.cuts = found.cuts;
        }
        for (class, process) in classes {
            let did: Did = process.stop(PATIENCE)?;
            match class {
                Class::Copper => seen.copper_bytes = did.written as u64,
                class => seen.classes[class.index()] = did,
            }
        }
        looks.close();
        Ok(Some(seen))
    }

    /// The flags of a class's process; none where the class has nothing to do.
    fn words(&self, class: Class, system: System, server: SocketAddr) -> Option<Vec<String>> {
        let mut words = vec![
            String::from("bench-class"),
            format!("--server={server}"),
            format!("--class={class}"),
            format!("--source={SOURCE}"),
            format!("--target={}", target(class)),
            format!("--slices={SLICES}"),
            format!("--warm-up-ms={}", WARM_UP.as_millis()),
            format!("--measure-ms={}", self.seconds * 1000),
            format!("--seed={}", self.seed.wrapping_add(class.index() as u64)),
        ];
        let rate = match (class, system) {
            (Class::Copper, System::WritesAlone) => 0,
            (Class::Copper, System::Beside { load, rate, .. }) if load > 0.0 => {
                // All is as much as it can: what was measured may be less than that by now.
                if load >= 100.0 { 0 } else { (rate as u64).max(1) }
            }
            (Class::Copper, _) => return None,
            (_, System::WritesAlone) => return None,
            (class, _) => {
                words.push(format!("--reads={}", READS[class.index()]));
                words.extend((class == Class::Gold).then(|| String::from("--writes=1")));
                return Some(words);
            }
        };
        words.push(format!("--writes={}", self.depth));
        words.push(format!("--write-bytes={}", self.write_bytes));
        words.push(format!("--rate={rate}"));
        Some(words)
    }

    fn fill(&self, client: &Client) -> Result<(), WorldError> {
        let mut prng = Prng::new(self.seed);
        let mut bytes = vec![0; 32 * SLICE_BYTES];
        for chunk in [SOURCE, target(Class::Gold), target(Class::Copper)] {
            client.create(chunk, None, NewChunk::default()).wait()?;
            for part in 0..SLICES / 32 {
                prng.fill(&mut bytes);
                client.write(chunk, part * bytes.len() as u64, &bytes[..]).wait()?;
            }
        }
        Ok(())
    }
}

/// The chunk that a class writes.
fn target(class: Class) -> ChunkId {
    ChunkId(SOURCE.0 + 1 + class.index() as u128)
}
