//! The disks of a server: each is opened by the thread that drives it, and a server needs one of
//! them.

use std::thread::scope;

use towpath_transport::SharedMemory;

use super::config::DaemonConfig;
use super::error::DaemonError;
use super::shards::{StoreDir, of_store};
use super::store::{Failed, Found, driver_config, open_here, say};
use crate::store::ChunkId;
use crate::store::core::{StoreCore, StoreDriver, StoreThread};
use crate::store::disks::{Disks, Opening, Twice};

/// What a store had, and what was found of it.
type Had = (Vec<(ChunkId, u64)>, Found);

/// The store of one disk: a hold for each who asks, and what it had.
pub(super) type Opened<W> = (Vec<StoreThread<W>>, Had);

/// How the opening of the disk with a number ended.
pub(super) type Outcome<W> = (usize, Result<Opened<W>, DaemonError>);

/// The disks of a server, opened.
pub(super) struct OpenDisks<W> {
    /// A hold on all disks for each who asks.
    pub(super) holds: Vec<Disks<W>>,
    /// Of the disks that this very thread is to drive.
    pub(super) drivers: Vec<StoreDriver<W>>,
    /// Each disk's memory of resident chunks.
    pub(super) resident: Vec<Option<SharedMemory>>,
}

/// What is known of all disks before they are opened.
#[derive(Clone)]
pub(super) struct ToOpen<'a> {
    config: &'a DaemonConfig,
    dirs: &'a [StoreDir],
    opening: Opening,
    askers: usize,
}

impl<'a> ToOpen<'a> {
    /// The stores of a server, for so many who ask.
    pub(super) fn new(config: &'a DaemonConfig, dirs: &'a [StoreDir], askers: usize) -> Self {
        let names = dirs.iter().map(|dir| dir.path.display().to_string());
        Self { config, dirs, opening: Opening::new(names.collect()), askers }
    }

    /// Opens the disks that one of `workers` is to drive, on its own thread, one after the other:
    /// what each gave goes to `tell`. None of them where a thread of its own drives each disk.
    pub(super) fn open_of<W: AsRef<[u8]>>(
        &self,
        (worker, workers): (usize, usize),
        mut tell: impl FnMut(Outcome<W>),
    ) -> Vec<StoreDriver<W>> {
        let mut drivers = Vec::new();
        if self.config.drives_inline() {
            for disk in (worker..self.dirs.len()).step_by(workers) {
                let opened = StoreDriver::open_here(
                    self.askers,
                    driver_config(&self.config.store),
                    self.opener(disk),
                );
                let opened = opened.map(|(driver, holds, found)| {
                    drivers.push(driver);
                    (holds, found)
                });
                tell((disk, opened.map_err(|Failed(error)| *error)));
            }
        }
        drivers
    }

    /// What the thread that is to drive a disk does first.
    fn opener<W: AsRef<[u8]>>(
        &self,
        disk: usize,
    ) -> impl FnOnce() -> Result<(StoreCore<W>, Had), Failed> + use<W> {
        let of_disk = of_store(&self.config.store, &self.dirs[disk], self.dirs.len());
        let opening = self.opening.clone();
        move || {
            let (mut core, found) = open_here(&of_disk).map_err(|error| Failed(error.into()))?;
            let had = opening.adopt(disk, &mut core);
            Ok((core, (had, found)))
        }
    }

    /// Opens each disk on a thread of its own, all at a time.
    fn open_all<W: AsRef<[u8]> + Send + 'static>(&self) -> Vec<Outcome<W>> {
        let open = |disk: usize| {
            let config = driver_config(&self.config.store);
            let spawned = StoreThread::spawn(self.askers, config, self.opener(disk));
            (disk, spawned.map_err(|Failed(error)| *error))
        };
        scope(|scope| {
            let disks = 0..self.dirs.len();
            let opened: Vec<_> = disks.map(|disk| scope.spawn(move || open(disk))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            opened.into_iter().map(join).collect()
        })
    }
}

/// Most chunks that two disks have which the log names; the others are counted.
const TWICE_NAMED_MAX: usize = 100;

/// Opens the disks, all at a time, and makes stores where there are none. Of those that the other
/// workers drive `others` brings what each gave; this thread drives those of the first worker.
/// Gives a hold on all of them for each who asks; says in the log what it found.
///
/// # Errors
/// [`DaemonError`] where no disk can be opened, or all are needed and one cannot.
pub(super) fn open_disks<W: AsRef<[u8]> + Send + 'static>(
    to_open: &ToOpen<'_>,
    workers: usize,
    others: impl Iterator<Item = Outcome<W>>,
) -> Result<OpenDisks<W>, DaemonError> {
    let mut opened = match to_open.config.drives_inline() {
        true => Vec::new(),
        false => to_open.open_all::<W>(),
    };
    let drivers = to_open.open_of((0, workers), |outcome| opened.push(outcome));
    opened.extend(others);
    let ToOpen { config, dirs, opening, askers } = to_open;
    opened.sort_by_key(|(disk, _)| *disk);
    let opened: Vec<_> = opened.into_iter().map(|(_, one)| one).collect();
    if opened.len() < dirs.len() {
        // A worker has panicked, which the end tells.
        return Err(DaemonError::NoDevice);
    }
    let mut failed = opened.iter().zip(0..).filter_map(|(one, at)| Some((at, one.as_ref().err()?)));
    let is_enough = match config.store.require_all_disks {
        true => opened.iter().all(Result::is_ok),
        false => opened.iter().any(Result::is_ok),
    };
    if !is_enough && let Some((number, _)) = failed.next() {
        let error = opened.into_iter().nth(number).and_then(Result::err);
        let error = error.unwrap_or(DaemonError::NoDevice);
        if dirs.len() == 1 {
            return Err(error);
        }
        let (why, code, path) = (error.chain(), error.exit_code(), dirs[number].path.clone());
        return Err(DaemonError::DiskDown { number, path, why, code });
    }
    let (mut threads, mut had, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for (one, StoreDir { path: dir, .. }) in opened.into_iter().zip(*dirs) {
        match one {
            Ok((holds, (chunks, found))) => {
                say(&found, dir);
                threads.push(Ok(holds));
                had.push(chunks);
                resident.push(found.resident.map(|(memory, ..)| memory));
            }
            Err(error) => {
                let (disk, error) = (dir.display(), error.chain());
                tracing::error!(%disk, error, "a disk cannot be opened: its chunks are refused");
                threads.push(Err(error));
                had.push(Vec::new());
                resident.push(None);
            }
        }
    }
    say_twice(&opening.fill(had), dirs);
    Ok(OpenDisks { holds: opening.clone().finish(*askers, threads), drivers, resident })
}

/// Names chunks that two disks have.
fn say_twice(twice: &[Twice], dirs: &[StoreDir]) {
    for Twice { chunk, first: (first, version), second: (second, other) } in
        twice.iter().take(TWICE_NAMED_MAX)
    {
        let (first, second) = (dirs[*first].path.display(), dirs[*second].path.display());
        tracing::error!(
            %chunk, %first, version, %second, second_version = other,
            "two disks have this chunk, and nothing tells which copy is newer: it is not served; \
             start the server without one of the disks, and delete the chunk on the other one"
        );
    }
    if twice.len() > TWICE_NAMED_MAX {
        let chunks = twice.len() - TWICE_NAMED_MAX;
        tracing::error!(chunks, "more chunks are on two disks");
    }
}
