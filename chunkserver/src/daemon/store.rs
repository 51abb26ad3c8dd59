//! The store of a server: its folder, and the disk file in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::statvfs;
use thiserror::Error;
use towpath_disk::{Disk, NewFile, Options, PAGE_BYTES, Report};
use towpath_transport::SharedMemory;

use super::config::{DaemonConfig, StoreConfig};
use super::error::DaemonError;
use super::scrub::STATE_NAME;
use super::shards::mark_outside;
use crate::resident::Arena;
use crate::store::core::{
    CoreConfig, DATA_BYTES_MAX, DISK_NAME, DriverConfig, LOG_BYTES_MAX, LOG_BYTES_MIN, NewStore,
    StoreCore, StoreThread,
};
use crate::store::folder::{flush_folder_of, make_folder};
use crate::store::{Damage, OpenError, StoreStats};

/// Name of the file beside a disk file that says that there was a store.
const MARK_NAME: &str = "disk.made";

/// What it holds, for people who find it.
const MARK_TEXT: &str = "towpath-chunkserver has a store in the file or device `disk` beside this \
file. While this file is here, a missing or empty `disk` is not taken for a new store.\n";

/// Sizes that a store cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SizesError {
    /// The capacity holds not even one slice, or more than can be numbered.
    #[error("capacity_bytes is {0}: from 4096 to {DATA_BYTES_MAX} is needed, or \"unlimited\"")]
    Capacity(u64),
    /// The log is too small or too large.
    #[error("log_bytes is {0}: from {LOG_BYTES_MIN} to {LOG_BYTES_MAX} is needed")]
    Log(u64),
    /// The log is to grow to more than it can be.
    #[error("log_bytes_max is {0}: at most {LOG_BYTES_MAX} is possible")]
    LogMax(u64),
    /// It is not said how much room is to be taken.
    #[error("preallocate needs capacity_bytes: how much room the disk file takes at once")]
    Preallocate,
}

/// Whether a store can have these sizes.
pub(super) fn check_sizes(config: &StoreConfig) -> Result<(), SizesError> {
    let capacity = config.capacity_bytes;
    if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&config.log_bytes) {
        return Err(SizesError::Log(config.log_bytes));
    }
    if config.log_bytes_max > LOG_BYTES_MAX {
        return Err(SizesError::LogMax(config.log_bytes_max));
    }
    match capacity {
        u64::MAX if config.preallocate => Err(SizesError::Preallocate),
        u64::MAX => Ok(()),
        _ if (PAGE_BYTES as u64..=DATA_BYTES_MAX).contains(&capacity) => Ok(()),
        _ => Err(SizesError::Capacity(capacity)),
    }
}

pub(super) fn core_config(config: &StoreConfig) -> CoreConfig {
    CoreConfig {
        log_pages: config.log_bytes / PAGE_BYTES as u64,
        log_pages_max: if config.preallocate {
            0
        } else {
            config.log_bytes_max / PAGE_BYTES as u64
        },
        chunks_max: config.chunks_max,
        store_id: random(),
        log_nonce: random(),
        version_seed: random(),
        is_sparse: !config.preallocate,
    }
}

/// For a repair: sizes are those of the store that is there.
pub(super) fn repair_config() -> CoreConfig {
    core_config(&StoreConfig { chunks_max: u64::MAX, ..DaemonConfig::default().store })
}

pub(super) fn driver_config(config: &StoreConfig) -> DriverConfig {
    DriverConfig {
        queue_max: config.store_queue_max as usize,
        unfinished_keep: match config.unfinished_keep_s {
            0 => None,
            seconds => Some(Duration::from_secs(seconds.into())),
        },
    }
}

/// A number that nobody can guess: std keys each `RandomState` from the system's randomness.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0u64)
}

/// What the opening found.
pub(super) struct Found {
    disk: String,
    stats: StoreStats,
    /// The capacity that the settings ask for, where the store has another one.
    other_capacity_bytes: Option<u64>,
    damage: Vec<Damage>,
    is_damaged: bool,
    /// Resident chunks in memory, and those that do not fit.
    pub(super) resident: Option<(SharedMemory, u64, u64)>,
}

/// An error of the store's thread, or of its start.
pub(super) struct Failed(pub(super) Box<DaemonError>);

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self(DaemonError::Thread(error).into())
    }
}

/// Opens the store in `data_dir` that the settings name, on a thread of its own, and makes it where
/// there is none. Gives a hold on it for each of `askers`, and the memory in which resident chunks
/// are, if any can be; says in the log what it found.
///
/// # Errors
/// [`DaemonError`]; nothing was changed in a store that was there.
pub fn open_store<W: AsRef<[u8]> + Send + 'static>(
    config: &StoreConfig,
    askers: usize,
) -> Result<(Vec<StoreThread<W>>, Option<SharedMemory>), DaemonError> {
    check_sizes(config)?;
    let of_thread = config.clone();
    let open = move || open_here(&of_thread).map_err(|error| Failed(error.into()));
    let spawned = StoreThread::spawn(askers, driver_config(config), open);
    let (threads, found) = spawned.map_err(|Failed(error)| *error)?;
    say(&found, &config.data_dir);
    Ok((threads, found.resident.map(|(memory, ..)| memory)))
}

/// What the store's thread does first: by io_uring a disk is driven by the thread that opened it.
pub(super) fn open_here<W: AsRef<[u8]>>(
    config: &StoreConfig,
) -> Result<(StoreCore<W>, Found), DaemonError> {
    let path = config.data_dir.as_path();
    let mut of_core = core_config(config);
    let (disk, report) = open_disk(path, Some((config, &of_core)))?;
    // A device has all the room that it ever will.
    of_core.is_sparse &= !report.is_device;
    let had_store = had_store(path);
    if config.format {
        let dir = path.display();
        tracing::warn!(%dir, "--format: unless this disk has a store, all on it is destroyed");
    }
    let new = match (config.format, had_store) {
        (true, _) => NewStore::OnAnything,
        (false, true) if !report.was_made => NewStore::Never,
        (false, _) => NewStore::OnEmpty,
    };
    let mut core = StoreCore::open_or_make(disk, &of_core, new).map_err(|source| match source {
        OpenError::NoStore => DaemonError::StoreGone { path: path.into(), found: "all zeros" },
        source => DaemonError::Store { path: path.into(), source },
    })?;
    if !path.join(MARK_NAME).exists()
        && let Err(error) = mark(path)
    {
        tracing::warn!(%error, "the folder cannot be marked as one that has a store");
    }
    let resident = keep_resident(&mut core, config.resident_bytes)?;
    let found = Found {
        disk: report.to_string(),
        stats: core.stats(),
        other_capacity_bytes: other_capacity(config.capacity_bytes, core.stats().capacity_bytes),
        damage: core.damage().to_vec(),
        is_damaged: core.is_damaged(),
        resident,
    };
    Ok((core, found))
}

/// The capacity that was asked for, if a store has one that is not made of it: as much, or up to a
/// hundredth and a few pages more, by which the areas of a disk are rounded.
fn other_capacity(asked: u64, found: u64) -> Option<u64> {
    let made = asked..=asked.saturating_add(asked / 100).saturating_add(64 << 10);
    (asked != u64::MAX && !made.contains(&found)).then_some(asked)
}

/// Opens the disk file in a folder, which has no other user then. With settings, the folder and the
/// file are made where they are not there.
pub(super) fn open_disk(
    path: &Path,
    make: Option<(&StoreConfig, &CoreConfig)>,
) -> Result<(Box<dyn Disk>, Report), DaemonError> {
    let not_a_directory = || DaemonError::NotADirectory(path.into());
    let no_folder = |source: io::Error| match source.kind() {
        io::ErrorKind::NotADirectory => not_a_directory(),
        _ => DaemonError::DataDir { path: path.into(), source },
    };
    if !path.is_dir() && (make.is_none() || path.exists()) {
        return Err(not_a_directory());
    }
    if make.is_some() {
        make_folder(path).map_err(no_folder)?;
    }
    let file = path.join(DISK_NAME);
    if !file.exists() && has_old_store(path).map_err(no_folder)? {
        return Err(DaemonError::OldStore(path.into()));
    }
    if file.symlink_metadata().is_ok() && !file.exists() {
        return Err(DaemonError::DiskLink(path.into()));
    }
    // An empty file is one whose making was interrupted, unless there was a store.
    let found = match file.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some("missing"),
        Ok(found) if found.is_file() && found.len() == 0 => Some("empty"),
        _ => None,
    };
    let formats = make.is_some_and(|(config, _)| config.format);
    if let Some(found) = found.filter(|_| !formats && had_store(path)) {
        return Err(DaemonError::StoreGone { path: path.into(), found });
    }
    let create = match (make, found) {
        (Some((config, core)), Some(_)) => Some(new_file(path, config, core)?),
        _ => None,
    };
    let sharers = make.map_or(1, |(config, _)| config.shards);
    let options = Options { create, sharers, ..Options::default() };
    towpath_disk::open(&file, &options).map_err(|source| {
        let failed = |source| DaemonError::Store { path: path.into(), source };
        match source.source.kind() {
            io::ErrorKind::WouldBlock => failed(OpenError::Locked),
            io::ErrorKind::NotFound => failed(OpenError::NoStore),
            _ => DaemonError::Disk(source),
        }
    })
}

/// The disk file to be made: as long as the capacity asks for; without one, as long as its file
/// system. It is sparse then, and takes only the room of its log and of what is written, so that it
/// can go on growing when other files go.
fn new_file(path: &Path, config: &StoreConfig, core: &CoreConfig) -> Result<NewFile, DaemonError> {
    let of_data = |bytes| core.page_count(bytes).unwrap_or(0);
    let page_count = match config.capacity_bytes {
        u64::MAX => {
            let found = statvfs(path).map_err(|error| {
                let (path, source) = (PathBuf::from(path), error.into());
                DaemonError::DataDir { path, source }
            })?;
            let byte_len = found.f_blocks.saturating_mul(found.f_frsize) / u64::from(config.shards);
            (byte_len / PAGE_BYTES as u64).min(of_data(DATA_BYTES_MAX))
        }
        bytes => of_data(bytes),
    };
    let room_pages = core.room_pages(page_count).ok_or_else(|| DaemonError::Store {
        path: path.into(),
        source: OpenError::TooSmall { pages: page_count },
    })?;
    Ok(NewFile { page_count, room_pages })
}

/// Whether a folder has had a store: it has other files that a server leaves beside one.
fn had_store(path: &Path) -> bool {
    let inside = [MARK_NAME, STATE_NAME].map(|name| path.join(name));
    inside.into_iter().chain(mark_outside(path)).any(|mark| mark.exists())
}

/// Notes in a folder that it has a store, so that none is made in its place when its disk is gone.
fn mark(path: &Path) -> io::Result<()> {
    for file in [Some(path.join(MARK_NAME)), mark_outside(path)].into_iter().flatten() {
        fs::write(&file, MARK_TEXT)?;
        fs::File::open(&file)?.sync_all()?;
        flush_folder_of(&file)?;
    }
    Ok(())
}

/// Whether a folder has files of the unreleased older format: logs, maps, segments with a number.
fn has_old_store(path: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let parts = name.to_str().and_then(|name| name.split_once('.'));
        if let Some(("data" | "log" | "map", number)) = parts
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Has the store keep resident chunks in memory, where any is configured; gives the memory, for
/// clients to read, how many chunks are in it, and how many do not fit.
fn keep_resident<W: AsRef<[u8]>>(
    core: &mut StoreCore<W>,
    bytes: u64,
) -> Result<Option<(SharedMemory, u64, u64)>, DaemonError> {
    if bytes == 0 {
        return Ok(None);
    }
    let arena = Arena::new(bytes).map_err(DaemonError::Resident)?;
    let memory = arena.memory();
    let (chunks, left_out) = core.keep_in(Box::new(arena)).map_err(DaemonError::StoreDisk)?;
    Ok(Some((memory, chunks, left_out)))
}

/// Lines for what was opened and what is damaged of it, and one that says what to do.
pub(super) fn say(found: &Found, dir: &Path) {
    let Found { disk, stats, other_capacity_bytes, damage, is_damaged, resident } = found;
    let dir = dir.display();
    for damage in damage {
        match damage.kind.loses_changes() {
            true => tracing::error!(%damage, "the store is damaged"),
            false => tracing::warn!(%damage, "the store is damaged"),
        }
    }
    if *is_damaged {
        tracing::error!(
            "changes are lost to damage, so the store takes no others: stop the server and run \
             `towpath-chunkserver check {dir}`"
        );
    } else if !damage.is_empty() {
        tracing::warn!(
            "nothing that was acknowledged is lost but what is named above; \
             `towpath-chunkserver check {dir}` looks at all of it while no server runs"
        );
    }
    if let Some((_, chunks, left_out)) = resident {
        tracing::info!(chunks, "resident chunks are in memory");
        if *left_out > 0 {
            tracing::warn!(
                left_out,
                "resident chunks do not fit into `resident_bytes`; they are read from the disk"
            );
        }
    }
    if let Some(asked) = other_capacity_bytes {
        tracing::warn!(
            asked,
            capacity_bytes = stats.capacity_bytes,
            "`capacity_bytes` is not that of the store that is there: the length of a disk is fixed"
        );
    }
    tracing::info!(
        %dir,
        disk,
        chunks = stats.chunks,
        live_bytes = stats.live_bytes,
        capacity_bytes = stats.capacity_bytes,
        records_replayed = stats.records_replayed,
        "the store is open"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path) -> StoreConfig {
        StoreConfig {
            data_dir: dir.into(),
            capacity_bytes: 1 << 20,
            log_bytes: 1 << 20,
            ..DaemonConfig::default().store
        }
    }

    fn capacity(config: &StoreConfig) -> Result<u64, DaemonError> {
        open_here::<Vec<u8>>(config).map(|(core, _)| core.stats().capacity_bytes)
    }

    fn other(config: &StoreConfig) -> Option<u64> {
        let (_, found) = open_here::<Vec<u8>>(config).expect("it is there");
        found.other_capacity_bytes
    }

    #[test]
    fn a_store_has_the_capacity_that_was_asked_for_when_it_was_made() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let config = config(dir.path());
        let found = capacity(&config).expect("it is made");
        assert!((1 << 20..(1 << 20) + (1 << 15)).contains(&found), "{found}");
        assert_eq!(other(&config), None);
        for capacity_bytes in [1 << 30, 1 << 19] {
            let another = StoreConfig { capacity_bytes, ..config.clone() };
            assert_eq!(capacity(&another).expect("it is there"), found);
            assert_eq!(other(&another), Some(capacity_bytes), "which the log says");
        }
        let unlimited = StoreConfig { capacity_bytes: u64::MAX, ..config };
        assert_eq!(other(&unlimited), None);
    }

    #[test]
    fn an_empty_store_of_default_size_takes_less_than_64_mib() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().expect("room for a folder");
        let config = StoreConfig { data_dir: dir.path().into(), ..DaemonConfig::default().store };
        let (mut core, _) = open_here::<Vec<u8>>(&config).expect("it is made");
        while !core.is_idle() {
            core.turn(Some(Duration::from_millis(1))).expect("it speaks");
        }
        let disk = dir.path().join(DISK_NAME).metadata().expect("it is there");
        let room = disk.blocks() * 512;
        assert!(room <= 64 << 20, "{room} bytes of {}", disk.len());
    }

    #[test]
    fn a_file_whose_making_was_interrupted_is_made_anew() {
        let dir = tempfile::tempdir().expect("room for a folder");
        fs::write(dir.path().join(DISK_NAME), []).expect("room for a file");
        assert!(capacity(&config(dir.path())).expect("it is made") >= 1 << 20);
    }

    #[test]
    fn a_store_that_is_gone_is_not_made_anew_unasked() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let config = config(dir.path());
        let disk = dir.path().join(DISK_NAME);
        capacity(&config).expect("it is made");
        let byte_len = disk.metadata().expect("it is there").len();
        let file = || fs::File::options().write(true).open(&disk).expect("it is there");
        for way in ["empty", "all zeros", "missing"] {
            match way {
                "empty" => file().set_len(0).expect("it is cut"),
                "all zeros" => file().set_len(byte_len).expect("it is long again"),
                _ => fs::remove_file(&disk).expect("it is there"),
            }
            let refused = capacity(&config).expect_err(way);
            assert_eq!(refused.exit_code(), 4);
            let said = refused.chain();
            assert!(said.contains(way) && said.contains("--format"), "{said}");
            let checked = open_disk(dir.path(), None).map(drop);
            assert_eq!(checked.is_err(), way != "all zeros", "{way}");
        }
        let formats = StoreConfig { format: true, ..config.clone() };
        capacity(&formats).expect("it is asked for");
        capacity(&config).expect("it is there");
        // Of a store that was made before there was such a mark, the scrub tells.
        fs::remove_file(&disk).expect("it is there");
        fs::rename(dir.path().join(MARK_NAME), dir.path().join(STATE_NAME)).expect("both");
        assert!(matches!(capacity(&config), Err(DaemonError::StoreGone { .. })));
    }

    #[test]
    fn a_link_to_a_device_that_is_not_there_is_no_new_store() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let target = dir.path().join("device");
        std::os::unix::fs::symlink(&target, dir.path().join(DISK_NAME)).expect("a link");
        assert!(matches!(capacity(&config(dir.path())), Err(DaemonError::DiskLink(_))));
        assert!(!target.exists(), "nothing was made");
    }

    #[test]
    fn a_file_of_somebody_else_is_no_new_store() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let disk = dir.path().join(DISK_NAME);
        let mut bytes = vec![0; 4 << 20];
        bytes[..16].copy_from_slice(b"SQLite format 3\0");
        fs::write(&disk, &bytes).expect("room for a file");
        let config = config(dir.path());
        let said = capacity(&config).expect_err("it holds something").chain();
        assert!(said.contains("SQLite") && said.contains("--format"), "{said}");
        assert_eq!(fs::read(&disk).expect("it is there"), bytes, "nothing was changed");
        capacity(&StoreConfig { format: true, ..config.clone() }).expect("it is asked for");
        capacity(&config).expect("it is a store");
    }

    #[test]
    fn a_folder_with_files_of_the_unreleased_format_is_refused_and_not_touched() {
        for name in ["map.00000001", "log.0000000a", "data.0000"] {
            let dir = tempfile::tempdir().expect("room for a folder");
            fs::write(dir.path().join(name), [1]).expect("room for a file");
            let refused = capacity(&config(dir.path())).expect_err("it is an old one");
            assert!(refused.to_string().contains("was in no release"), "{refused}");
            assert!(!dir.path().join(DISK_NAME).exists());
            let opened = open_disk(dir.path(), None);
            assert!(matches!(opened, Err(DaemonError::OldStore(_))));
        }
        let dir = tempfile::tempdir().expect("room for a folder");
        for name in ["map.txt", "data", "log.", "status.sock"] {
            fs::write(dir.path().join(name), [1]).expect("room for a file");
        }
        assert!(capacity(&config(dir.path())).is_ok(), "those are others' files");
    }

    #[test]
    fn sizes_that_cannot_be_are_told_with_what_can() {
        let fine = config(Path::new("x"));
        assert_eq!(check_sizes(&fine), Ok(()));
        let with = |capacity_bytes, log_bytes, preallocate| {
            let fine = fine.clone();
            check_sizes(&StoreConfig { capacity_bytes, log_bytes, preallocate, ..fine })
        };
        assert_eq!(with(u64::MAX, 1 << 20, false), Ok(()));
        assert_eq!(with(u64::MAX, 1 << 20, true), Err(SizesError::Preallocate));
        assert_eq!(with(1 << 20, 1 << 20, true), Ok(()));
        assert_eq!(with(4095, 1 << 20, true), Err(SizesError::Capacity(4095)));
        assert_eq!(with(1 << 44, 1 << 20, false), Err(SizesError::Capacity(1 << 44)));
        assert_eq!(with(1 << 20, 1 << 18, false), Err(SizesError::Log(1 << 18)));
    }
}
