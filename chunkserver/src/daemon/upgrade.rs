//! The command that copies a store of the format before into a new folder.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command};

use super::config::DaemonConfig;
use super::disks::check_dirs;
use super::error::DaemonError;
use super::key::key;
use super::stopped::{cannot, each};
use super::store::{DISK_PART, check_sizes, core_config, open_disk};
use crate::store::core::DISK_NAME;
use crate::store::folder::flush_folder_of;
use crate::store::old::{OldFolder, UpgradeError, Upgraded, upgrade};

const AFTER_HELP: &str = "\
The server must not run. Nothing is changed in OLD, so NEW needs room for all of its data. A copy
that was interrupted is made anew. Of several pairs each is copied by itself, whatever becomes of
the others; each NEW is a disk of its own, and one server can have them all (`more_data_dirs`).

Exit codes, of several pairs the highest one:
  0    all chunks are in NEW
  1    chunks that are not whole were left out: what is printed names them
  2    wrong flag
  4    OLD cannot be read (no store, locked, damaged), or NEW not made (it has a store, no room)";

/// Settings of a server that a new store is made with.
const SETTINGS: [&str; 3] = ["capacity_bytes", "log_bytes", "preallocate"];

/// What `upgrade` is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUpgrade {
    /// The directory of each old store.
    pub old: Vec<PathBuf>,
    /// Settings of the new stores, with the directory of each.
    pub new: DaemonConfig,
}

/// Name of the command.
pub(super) const NAME: &str = "upgrade";

pub(super) fn command() -> Command {
    let settings = SETTINGS
        .iter()
        .filter_map(|name| key(name))
        .map(|key| Arg::new(key.name).long(key.flag()).value_name(key.kind).help(key.doc));
    Command::new(NAME)
        .about("Copies a store of the format before into a new directory")
        .arg(
            Arg::new("dirs")
                .value_names(["OLD", "NEW"])
                .required(true)
                .num_args(2..)
                .value_parser(clap::value_parser!(PathBuf))
                .help("data directory of a store, and the one that is made; several such pairs"),
        )
        .args(settings)
        .after_help(AFTER_HELP)
}

impl StoreUpgrade {
    pub(super) fn of(matches: &ArgMatches) -> Result<Self, DaemonError> {
        let dirs: Vec<_> = matches.get_many::<PathBuf>("dirs").into_iter().flatten().collect();
        let (mut old, mut made) = (Vec::new(), Vec::new());
        for pair in dirs.chunks(2) {
            let [from, to] = pair else {
                let text = "each OLD needs a NEW\n";
                return Err(command().error(ErrorKind::WrongNumberOfValues, text).into());
            };
            old.push((*from).clone());
            made.push((*to).clone());
        }
        let data_dir = if made.is_empty() { PathBuf::new() } else { made.remove(0) };
        let mut new = DaemonConfig { data_dir, more_data_dirs: made, ..DaemonConfig::default() };
        for key in SETTINGS.iter().filter_map(|name| key(name)) {
            if let Some(text) = matches.get_one::<String>(key.name) {
                (key.set)(&mut new, text)
                    .map_err(|error| DaemonError::Flag { flag: key.flag(), error })?;
            }
        }
        Ok(Self { old, new })
    }

    /// Copies; prints what was copied, and what was not.
    ///
    /// # Errors
    /// [`DaemonError::LeftOut`] when not all was copied, and whatever keeps the one store from
    /// being read, or the other from being made; of several [`DaemonError::Stores`].
    pub fn run(&self) -> Result<(), DaemonError> {
        check_sizes(&self.new)?;
        check_dirs(self.new.data_dirs())?;
        let made: Vec<_> = self.new.data_dirs().collect();
        let one = |number: usize, old: &Path| {
            let new = DaemonConfig { data_dir: made[number].clone(), ..self.new.clone() };
            copy(old, &new)
        };
        each(&self.old, one, |old, why| writeln!(io::stdout(), "{}", cannot(old, why, false)))
    }
}

fn copy(old: &Path, new: &DaemonConfig) -> Result<(), DaemonError> {
    if !old.is_dir() {
        return Err(DaemonError::NotADirectory(old.into()));
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
    let in_old = |source| DaemonError::Store { path: old.into(), source };
    let folder = OldFolder::lock(old).map_err(in_old)?;
    let done = upgrade(&folder, disk, &of_core).map_err(|source| match source {
        UpgradeError::Open(source) => in_old(source),
        source => DaemonError::NotUpgraded { path: old.into(), source: source.into() },
    })?;
    let disk = dir.join(DISK_NAME);
    fs::rename(&part, &disk).and_then(|()| flush_folder_of(&disk)).map_err(failed)?;
    say(&done, (old, dir))
}

fn say(done: &Upgraded, (old, new): (&Path, &Path)) -> Result<(), DaemonError> {
    let Upgraded { chunks, bytes, left_out } = done;
    let mut text = String::new();
    for (chunk, why) in left_out {
        text += &format!("left out: chunk {chunk}: {why}\n");
    }
    let (old, new) = (old.display(), new.display());
    text += &format!("{chunks} chunks with {bytes} bytes of {old} are in {new}\n");
    super::print(&text)?;
    match left_out.is_empty() {
        true => Ok(()),
        false => Err(DaemonError::LeftOut(left_out.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ChunkId;
    use crate::store::old::made::OldStore;

    fn make_old(path: &Path) {
        fs::create_dir(path).expect("room for a folder");
        let mut store = OldStore::new();
        store.create(ChunkId(5), None, false);
        store.write(ChunkId(5), 0, &[7; 10_000]);
        store.save(path);
    }

    fn asked(args: &[&str]) -> Result<StoreUpgrade, DaemonError> {
        let args = ["upgrade"].iter().chain(args);
        StoreUpgrade::of(&command().try_get_matches_from(args).expect("sound flags"))
    }

    #[test]
    fn of_several_pairs_each_is_copied_that_can_be() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let path = |name: &str| dir.path().join(name).to_str().expect("a plain path").to_owned();
        for name in ["a", "c"] {
            make_old(Path::new(&path(name)));
        }
        fs::create_dir(path("b")).expect("room for a folder");
        let [a, b, c] = ["a", "b", "c"].map(path);
        let [to_a, to_b, to_c] = ["to-a", "to-b", "to-c"].map(path);
        let size = ["--capacity-bytes", "1MiB"];
        let args: Vec<&str> =
            [&a, &to_a, &b, &to_b, &c, &to_c].map(String::as_str).into_iter().chain(size).collect();
        let ended = asked(&args).expect("pairs").run().expect_err("one of them has no store");
        assert!(ended.to_string().starts_with("1 of 3 stores"), "{ended}");
        assert_eq!(ended.exit_code(), 4);
        let is_there = |new: &str| Path::new(new).join(DISK_NAME).exists();
        assert_eq!([&to_a, &to_b, &to_c].map(|new| is_there(new)), [true, false, true]);
        let odd = asked(&[&a, &to_a, &b]).expect_err("one has no new one");
        assert_eq!(odd.exit_code(), 2, "{odd}");
        let twice = asked(&[&a, &to_b, &b, &to_b]).expect("pairs").run().expect_err("one disk");
        assert!(matches!(twice, DaemonError::SameDisk(_)), "{twice}");
    }

    #[test]
    fn an_old_folder_is_copied_once_and_then_opens() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        make_old(&old);
        let args = ["upgrade", "OLD", "NEW", "--capacity-bytes", "1MiB"];
        let matches = command().try_get_matches_from(args).expect("sound flags");
        let asked = StoreUpgrade::of(&matches).expect("sound values");
        assert_eq!(asked.new.capacity_bytes, 1 << 20);
        let new_config = DaemonConfig { data_dir: new.clone(), ..asked.new };
        let asked = StoreUpgrade { old: vec![old], new: new_config };
        // As if an earlier copy had been interrupted.
        fs::create_dir(&new).expect("room for a folder");
        fs::write(new.join(DISK_PART), [1; 9000]).expect("room for a file");
        asked.run().expect("all is whole");
        assert!(!new.join(DISK_PART).exists());
        let again = asked.run().expect_err("there is a store");
        assert_eq!(again.exit_code(), 4);
        let none = StoreUpgrade { old: vec![dir.path().into()], ..asked };
        assert_eq!(none.run().expect_err("it has none").exit_code(), 4);
        let check = super::super::check::StoreCheck {
            dirs: vec![new],
            data: true,
            repair: false,
            accept_loss: false,
            json: false,
        };
        check.run().expect("it is whole");
    }
}
