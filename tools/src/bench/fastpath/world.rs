//! The processes of one run, and what was measured.

use std::io;
use std::time::Duration;

use towpath_lab::studies::{Params, Study, StudyError};

use super::MEMORY;
use super::load::Did;
use super::server::Ready;
use super::usage::Memory;
use super::way::{StoreKind, Way};
use crate::child::{ChildError, Spawned};

/// How long a process may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of a small write.
const SMALL: usize = 4096;

/// A point that is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) way: Way,
    pub(super) store: StoreKind,
    pub(super) depth: usize,
    pub(super) bytes: usize,
    seconds: u64,
    batch: u64,
    spin_us: u64,
    seed: u64,
}

/// What was measured of one.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) client: Did,
    pub(super) server: Memory,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
enum WorldError {
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("cannot make a directory for the server")]
    Dir(#[from] io::Error),
}

/// The points of a study, in the order in which they take turns.
pub(super) fn plans(study: &Study, params: &Params) -> Vec<Plan> {
    let seconds = params.count("seconds");
    let base = Plan {
        way: Way::Ours,
        store: StoreKind::Null,
        depth: 1,
        bytes: SMALL,
        seconds,
        batch: params.count("batch"),
        spin_us: params.count("spin-us"),
        seed: params.seed,
    };
    let mut plans = Vec::new();
    if study.name == MEMORY.name {
        for &bytes in params.counts("sizes") {
            for way in [Way::Prost, Way::Apart, Way::Ours] {
                let depth = params.count("depth") as usize;
                plans.push(Plan { way, depth, bytes: bytes as usize, ..base });
            }
        }
        return plans;
    }
    for store in params.words("stores").iter().filter_map(|word| StoreKind::of_word(word)) {
        for &depth in params.counts("depths") {
            for way in params.words("ways").iter().filter_map(|word| Way::of_word(word)) {
                plans.push(Plan { way, store, depth: depth as usize, ..base });
            }
        }
    }
    plans
}

impl Plan {
    /// Its name, in errors.
    fn name(&self) -> String {
        let Self { way, store, depth, bytes, .. } = self;
        format!("{} to {}, {bytes} bytes, {depth} under way", way.word(), store.word())
    }

    /// Runs it, and ends both processes.
    pub(super) fn run(&self) -> Result<Seen, StudyError> {
        self.measure().map_err(|error| StudyError::run(self.name(), error))
    }

    fn measure(&self) -> Result<Seen, WorldError> {
        let dir = tempfile::Builder::new().prefix("towpath-bench-").tempdir()?;
        let of_both = [
            format!("--way={}", self.way.word()),
            format!("--store={}", self.store.word()),
            format!("--bytes={}", self.bytes),
            format!("--spin-us={}", self.spin_us),
        ];
        let mut words = vec![
            String::from("bench-fastpath-server"),
            format!("--dir={}", dir.path().join("store").display()),
        ];
        words.extend_from_slice(&of_both);
        let mut server = Spawned::start("server", &words)?;
        let Ready { listening } = server.next(PATIENCE)?;
        let mut words = vec![
            String::from("bench-fastpath-client"),
            format!("--server={listening}"),
            format!("--server-pid={}", server.pid()),
            format!("--depth={}", self.depth),
            format!("--seconds={}", self.seconds),
            format!("--batch={}", self.batch),
            format!("--seed={}", self.seed),
        ];
        words.extend_from_slice(&of_both);
        let mut client = Spawned::start("client", &words)?;
        let patience = PATIENCE + Duration::from_secs(self.seconds);
        let client: Did = client.next(patience)?;
        let server = server.stop::<Memory>(PATIENCE)?;
        Ok(Seen { client, server })
    }
}
