//! The disks of a server: each is opened by the thread that drives it, and a server needs one of
//! them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::scope;

use towpath_transport::SharedMemory;

use super::config::{DaemonConfig, StoreConfig};
use super::error::DaemonError;
use super::store::{Failed, Found, check_sizes, driver_config, open_here, say};
use crate::store::core::{StoreDriver, StoreThread};
use crate::store::disks::{Disks, Opening, Twice};

/// The store of one disk: a hold for each who asks, what it had, and what was found.
type Opened<W> = (Vec<StoreThread<W>>, (Vec<(crate::store::ChunkId, u64)>, Found));

/// The disks of a server, opened.
pub(super) struct OpenDisks<W> {
    /// A hold on all disks for each who asks.
    pub(super) holds: Vec<Disks<W>>,
    /// Of the only disk, where the thread that opened it is to drive it.
    pub(super) driver: Option<StoreDriver<W>>,
    /// Each disk's memory of resident chunks.
    pub(super) resident: Vec<Option<SharedMemory>>,
}

/// Most chunks that two disks have which the log names; the others are counted.
const TWICE_NAMED_MAX: usize = 100;

/// Whether each disk is named once. Links to one directory are found too, where it is there.
pub(super) fn check_dirs<'a>(dirs: impl Iterator<Item = &'a PathBuf>) -> Result<(), DaemonError> {
    let mut seen = BTreeSet::new();
    for dir in dirs {
        if !seen.insert(fs::canonicalize(dir).unwrap_or_else(|_| dir.clone())) {
            return Err(DaemonError::SameDisk(dir.clone()));
        }
    }
    Ok(())
}

/// Opens the disks that the settings name, all at a time, and makes stores where there are none.
/// Gives a hold on all of them for each of `askers`; says in the log what it found.
///
/// # Errors
/// [`DaemonError`] where no disk can be opened, or all are needed and one cannot.
pub(super) fn open_disks<W: AsRef<[u8]> + Send + 'static>(
    config: &DaemonConfig,
    askers: usize,
) -> Result<OpenDisks<W>, DaemonError> {
    check_sizes(&config.store)?;
    check_dirs(config.store.data_dirs())?;
    let dirs: Vec<_> = config.store.data_dirs().cloned().collect();
    let opening = Opening::new(dirs.iter().map(|dir| dir.display().to_string()).collect());
    let (opened, driver) = match config.drives_inline() {
        false => (open_all::<W>(config, &dirs, &opening, askers), None),
        true => match open_inline(config, askers) {
            Ok((opened, driver)) => (vec![Ok(opened)], Some(driver)),
            Err(error) => (vec![Err(error)], None),
        },
    };
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
        let (why, code, path) = (error.chain(), error.exit_code(), dirs[number].clone());
        return Err(DaemonError::DiskDown { number, path, why, code });
    }
    let (mut threads, mut had, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for (one, dir) in opened.into_iter().zip(&dirs) {
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
    say_twice(&opening.fill(had), &dirs);
    Ok(OpenDisks { holds: opening.finish(askers, threads), driver, resident })
}

/// Opens the only disk, for this very thread to drive.
fn open_inline<W: AsRef<[u8]>>(
    config: &DaemonConfig,
    askers: usize,
) -> Result<(Opened<W>, StoreDriver<W>), DaemonError> {
    let open = || open_here(&config.store).map_err(|error| Failed(error.into()));
    let opened = StoreDriver::open_here(askers, driver_config(&config.store), open);
    let (driver, holds, found) = opened.map_err(|Failed(error)| *error)?;
    Ok(((holds, (Vec::new(), found)), driver))
}

fn open_all<W: AsRef<[u8]> + Send + 'static>(
    config: &DaemonConfig,
    dirs: &[PathBuf],
    opening: &Opening,
    askers: usize,
) -> Vec<Result<Opened<W>, DaemonError>> {
    let resident_bytes = config.store.resident_bytes / dirs.len() as u64;
    let open = |(disk, dir): (usize, &PathBuf)| {
        let of_disk = StoreConfig { data_dir: dir.clone(), resident_bytes, ..config.store.clone() };
        let opening = opening.clone();
        let open = move || {
            let (mut core, found) = open_here(&of_disk).map_err(|error| Failed(error.into()))?;
            let had = opening.adopt(disk, &mut core);
            Ok((core, (had, found)))
        };
        let spawned = StoreThread::spawn(askers, driver_config(&config.store), open);
        spawned.map_err(|Failed(error)| *error)
    };
    scope(|scope| {
        let opened: Vec<_> =
            dirs.iter().enumerate().map(|disk| scope.spawn(move || open(disk))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        opened.into_iter().map(join).collect()
    })
}

/// Names chunks that two disks have.
fn say_twice(twice: &[Twice], dirs: &[PathBuf]) {
    for Twice { chunk, first: (first, version), second: (second, other) } in
        twice.iter().take(TWICE_NAMED_MAX)
    {
        let (first, second) = (dirs[*first].display(), dirs[*second].display());
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
