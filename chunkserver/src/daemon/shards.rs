//! Where the stores of a server are: one for each shard of each disk.
//!
//! The first shard of a disk has the folder of the disk, and each further one a folder in it. All
//! take their room from the file system of the disk, and each has its part of what the settings
//! allow the disk.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::config::StoreConfig;
use super::error::DaemonError;
use crate::store::core::{DISK_NAME, LOG_BYTES_MIN};
use crate::store::disks::DISKS_MAX;

/// What the name of a folder of a further shard begins with; its number follows.
const PREFIX: &str = "shard-";

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreDir {
    /// Its folder.
    pub(super) path: PathBuf,
    /// How many shards its disk has.
    pub(super) shards: u32,
}

/// The stores of all disks that the settings name: as many shards of each as they ask for, and
/// those that were made before.
///
/// # Errors
/// [`DaemonError::SameDisk`], [`DaemonError::TooManyShards`], [`DaemonError::ShardsOfDevice`].
pub(super) fn store_dirs(config: &StoreConfig) -> Result<Vec<StoreDir>, DaemonError> {
    check_dirs(config.data_dirs())?;
    let mut all = Vec::new();
    for disk in config.data_dirs() {
        let paths = folders(disk, config.shards);
        let file = disk.join(DISK_NAME).metadata();
        if paths.len() > 1 && file.is_ok_and(|file| file.file_type().is_block_device()) {
            return Err(DaemonError::ShardsOfDevice(disk.clone()));
        }
        let shards = paths.len() as u32;
        all.extend(paths.into_iter().map(|path| StoreDir { path, shards }));
    }
    if all.len() > DISKS_MAX {
        return Err(DaemonError::TooManyShards(all.len()));
    }
    Ok(all)
}

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

/// The folders of a disk's shards: as many as are wanted, and those that were made before.
pub(super) fn folders(disk: &Path, wanted: u32) -> Vec<PathBuf> {
    let folder = |shard: u32| match shard {
        0 => disk.to_owned(),
        _ => disk.join(format!("{PREFIX}{shard}")),
    };
    let was_made = |shard: &u32| {
        let path = folder(*shard);
        path.exists() || mark_outside(&path).is_some_and(|mark| mark.exists())
    };
    let last = (1..DISKS_MAX as u32).rev().find(was_made).unwrap_or(0);
    (0..wanted.max(last + 1)).map(folder).collect()
}

/// The file beside the folder of a further shard that says that there was a store in the folder:
/// the whole folder may be lost, and the disk is there.
pub(super) fn mark_outside(path: &Path) -> Option<PathBuf> {
    let number = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    number.parse::<u32>().ok()?;
    Some(path.with_extension("made"))
}

/// The settings of one store of a server that has so many.
pub(super) fn of_store(config: &StoreConfig, dir: &StoreDir, stores: usize) -> StoreConfig {
    let part = |of_disk: u64| of_disk / u64::from(dir.shards);
    StoreConfig {
        data_dir: dir.path.clone(),
        shards: dir.shards,
        resident_bytes: config.resident_bytes / stores as u64,
        capacity_bytes: match config.capacity_bytes {
            u64::MAX => u64::MAX,
            bytes => part(bytes),
        },
        log_bytes: part(config.log_bytes).max(LOG_BYTES_MIN),
        log_bytes_max: part(config.log_bytes_max),
        chunks_max: config.chunks_max.div_ceil(dir.shards.into()),
        ..config.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::DaemonConfig;

    #[test]
    fn shards_that_were_made_are_found_whatever_is_asked_for_and_whatever_is_lost_of_them() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let config = |shards| StoreConfig {
            data_dir: dir.path().into(),
            shards,
            ..DaemonConfig::default().store
        };
        let found = |shards| store_dirs(&config(shards)).expect("few").len();
        assert_eq!((found(1), found(3)), (1, 3));
        fs::create_dir(dir.path().join("shard-2")).expect("room");
        assert_eq!((found(1), found(3), found(4)), (3, 3, 4));
        fs::write(dir.path().join("shard-4.made"), []).expect("room");
        assert_eq!(found(1), 5);
        assert!(matches!(store_dirs(&config(65)), Err(DaemonError::TooManyShards(65))));
    }

    #[test]
    fn each_shard_has_its_part_of_what_a_disk_may_take() {
        let config = StoreConfig { capacity_bytes: 1 << 30, ..DaemonConfig::default().store };
        let dir = StoreDir { path: PathBuf::from("x/shard-1"), shards: 4 };
        let of = of_store(&config, &dir, 8);
        assert_eq!(of.capacity_bytes, 1 << 28);
        assert_eq!(of.log_bytes_max * 4, config.log_bytes_max);
        assert_eq!(of.data_dir, dir.path);
        let unlimited = of_store(&DaemonConfig::default().store, &dir, 4);
        assert_eq!(unlimited.capacity_bytes, u64::MAX, "that is a part of the file system");
    }
}
