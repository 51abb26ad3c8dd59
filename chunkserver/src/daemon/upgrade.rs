//! The command that copies a store of the format before into a new folder.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};

use super::config::DaemonConfig;
use super::error::DaemonError;
use super::key::key;
use super::store::{DISK_PART, check_sizes, core_config, open_disk};
use crate::store::core::DISK_NAME;
use crate::store::old::{OldFolder, UpgradeError, Upgraded, upgrade};

const AFTER_HELP: &str = "\
The server must not run. Nothing is changed in OLD, so NEW needs room for all of its data. A copy
that was interrupted is made anew.

Exit codes:
  0    all chunks are in NEW
  1    chunks that are not whole were left out: what is printed names them
  2    wrong flag
  4    OLD cannot be read (no store, locked, damaged), or NEW not made (it has a store, no room)";

/// Settings of a server that a new store is made with.
const SETTINGS: [&str; 3] = ["capacity_bytes", "log_bytes", "preallocate"];

/// What `upgrade` is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUpgrade {
    /// The directory of the old store.
    pub old: PathBuf,
    /// Settings of the new store, with its directory.
    pub new: DaemonConfig,
}

/// Name of the command.
pub(super) const NAME: &str = "upgrade";

pub(super) fn command() -> Command {
    let dir = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .value_name(value)
            .required(true)
            .value_parser(clap::value_parser!(PathBuf))
            .help(help)
    };
    let settings = SETTINGS
        .iter()
        .filter_map(|name| key(name))
        .map(|key| Arg::new(key.name).long(key.flag()).value_name(key.kind).help(key.doc));
    Command::new(NAME)
        .about("Copies a store of the format before into a new directory")
        .arg(dir("old", "OLD", "data directory of the store"))
        .arg(dir("new", "NEW", "data directory that is made"))
        .args(settings)
        .after_help(AFTER_HELP)
}

impl StoreUpgrade {
    pub(super) fn of(matches: &ArgMatches) -> Result<Self, DaemonError> {
        let path = |name| matches.get_one::<PathBuf>(name).cloned().unwrap_or_default();
        let mut new = DaemonConfig { data_dir: path("new"), ..DaemonConfig::default() };
        for key in SETTINGS.iter().filter_map(|name| key(name)) {
            if let Some(text) = matches.get_one::<String>(key.name) {
                (key.set)(&mut new, text)
                    .map_err(|error| DaemonError::Flag { flag: key.flag(), error })?;
            }
        }
        Ok(Self { old: path("old"), new })
    }

    /// Copies; prints what was copied, and what was not.
    ///
    /// # Errors
    /// [`DaemonError::LeftOut`] when not all was copied, and whatever keeps the one store from
    /// being read, or the other from being made.
    pub fn run(&self) -> Result<(), DaemonError> {
        let Self { old, new } = self;
        check_sizes(new)?;
        if !old.is_dir() {
            return Err(DaemonError::NotADirectory(old.clone()));
        }
        let dir = new.data_dir.as_path();
        let failed = |source| DaemonError::DataDir { path: dir.into(), source };
        if dir.join(DISK_NAME).exists() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        // Only a whole copy gets the name by which a server finds it.
        let part = dir.join(DISK_PART);
        match fs::remove_file(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let of_core = core_config(&DaemonConfig { chunks_max: u64::MAX, ..new.clone() });
        let (disk, _) = open_disk(dir, DISK_PART, Some((new, &of_core)))?;
        let in_old = |source| DaemonError::Store { path: old.clone(), source };
        let folder = OldFolder::lock(old).map_err(in_old)?;
        let done = upgrade(&folder, disk, &of_core).map_err(|source| match source {
            UpgradeError::Open(source) => in_old(source),
            source => DaemonError::NotUpgraded { path: old.clone(), source: source.into() },
        })?;
        fs::rename(&part, dir.join(DISK_NAME)).map_err(failed)?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        self.say(&done)
    }

    fn say(&self, done: &Upgraded) -> Result<(), DaemonError> {
        let Upgraded { chunks, bytes, left_out } = done;
        for (chunk, why) in left_out {
            println!("left out: chunk {chunk}: {why}");
        }
        let (old, new) = (self.old.display(), self.new.data_dir.display());
        println!("{chunks} chunks with {bytes} bytes of {old} are in {new}");
        match left_out.is_empty() {
            true => Ok(()),
            false => Err(DaemonError::LeftOut(left_out.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ChunkId;
    use crate::store::old::made::OldStore;

    #[test]
    fn an_old_folder_is_copied_once_and_then_opens() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::create_dir(&old).expect("room for a folder");
        let mut store = OldStore::new();
        store.create(ChunkId(5), None, false);
        store.write(ChunkId(5), 0, &[7; 10_000]);
        store.save(&old);
        let args = ["upgrade", "OLD", "NEW", "--capacity-bytes", "1MiB"];
        let matches = command().try_get_matches_from(args).expect("sound flags");
        let asked = StoreUpgrade::of(&matches).expect("sound values");
        assert_eq!(asked.new.capacity_bytes, 1 << 20);
        let new_config = DaemonConfig { data_dir: new.clone(), ..asked.new };
        let asked = StoreUpgrade { old, new: new_config };
        // As if an earlier copy had been interrupted.
        fs::create_dir(&new).expect("room for a folder");
        fs::write(new.join(DISK_PART), [1; 9000]).expect("room for a file");
        asked.run().expect("all is whole");
        assert!(!new.join(DISK_PART).exists());
        let again = asked.run().expect_err("there is a store");
        assert_eq!(again.exit_code(), 4);
        let none = StoreUpgrade { old: dir.path().into(), ..asked };
        assert_eq!(none.run().expect_err("it has none").exit_code(), 4);
        let check = super::super::check::StoreCheck {
            dir: new,
            data: true,
            repair: false,
            accept_loss: false,
            json: false,
        };
        check.run().expect("it is whole");
    }
}
