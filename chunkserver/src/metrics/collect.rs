//! One collection of all that a server tells of itself.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use towpath_rpc::Piece;

use super::board::Board;
use super::export::export;
use super::meter::Meter;
use crate::service::{ScrubBoard, ScrubProgress, WorkerFigures};
use crate::store::core::{DiskState, StoreThread};
use crate::store::{Reply, Request, StoreStats};

/// How long a part of the server may take for its figures: a worker is woken for them, and what
/// takes longer is stuck.
const PART_WAIT: Duration = Duration::from_millis(500);

/// A disk by its name; none where it could not be opened.
pub(crate) type NamedDisk = (String, Option<StoreThread<Piece>>);

/// A worker, as the collector sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Worker {
    pub(crate) board: Board<WorkerFigures>,
    pub(crate) meter: Arc<Meter>,
}

/// All that is told at one time. What a part did not tell is none, which is not the same as
/// nothing.
#[derive(Debug)]
pub(crate) struct Collected<'a> {
    pub(crate) started_s: f64,
    pub(crate) workers: Vec<(&'a Meter, Option<WorkerFigures>)>,
    pub(crate) disks: Vec<Disk<'a>>,
}

/// A disk, as far as it told.
#[derive(Debug)]
pub(crate) struct Disk<'a> {
    pub(crate) name: &'a str,
    pub(crate) state: DiskState,
    /// None where it did not tell in time.
    pub(crate) stats: Option<StoreStats>,
    pub(crate) scrub: ScrubProgress,
}

/// Collects what workers and store tell.
pub(crate) struct Collector {
    workers: Vec<Worker>,
    disks: Vec<NamedDisk>,
    /// Of each disk.
    scrubbing: Arc<[ScrubBoard]>,
    started_s: f64,
    /// Number of the last question to the disks.
    asked: u64,
}

impl Collector {
    pub(crate) fn new(
        workers: Vec<Worker>,
        disks: Vec<NamedDisk>,
        scrubbing: Arc<[ScrubBoard]>,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { workers, disks, scrubbing, started_s: now.as_secs_f64(), asked: 0 }
    }

    /// All metrics, as text.
    pub(crate) fn page(&mut self) -> String {
        export(&self.collect())
    }

    fn collect(&mut self) -> Collected<'_> {
        let until = Instant::now() + PART_WAIT;
        let wishes: Vec<_> = self.workers.iter().map(|worker| worker.board.want()).collect();
        self.asked += 1;
        let asked = self.asked;
        // All at a time: one that is stuck takes none of the others' time.
        let ask = |store: &&StoreThread<Piece>| {
            let is_sent = store.try_send(asked, Request::Stats).is_ok();
            store.ring();
            is_sent
        };
        let told: Vec<_> = self.disks.iter().map(|(_, store)| store.as_ref().filter(ask)).collect();
        let disks = self.disks.iter().zip(told).zip(self.scrubbing.iter());
        let disks = disks.map(|(((name, store), told), scrub)| Disk {
            name,
            state: store.as_ref().map_or(DiskState::Failed, StoreThread::state),
            stats: told.and_then(|store| stats(store, asked, until)),
            scrub: scrub.read(),
        });
        let disks = disks.collect();
        let workers = self.workers.iter().zip(wishes);
        let workers =
            workers.map(|(worker, wish)| (&*worker.meter, worker.board.take(wish, until)));
        Collected { started_s: self.started_s, workers: workers.collect(), disks }
    }
}

/// The answer to question number `asked`. Answers to earlier ones may have come too late for these.
fn stats(store: &StoreThread<Piece>, asked: u64, until: Instant) -> Option<StoreStats> {
    loop {
        let answer = store.completions().recv_deadline(until).ok()?;
        if let Reply::Stats(stats) = answer.reply
            && answer.token == asked
        {
            return Some(*stats);
        }
    }
}
