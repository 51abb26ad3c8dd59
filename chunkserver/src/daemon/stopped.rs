//! What the commands for stopped stores share: flags, directories, and one result of several.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::json;

use super::error::DaemonError;
use super::shards::{check_dirs, folders};

/// A flag.
pub(super) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// The directories of stopped stores.
pub(super) fn dirs_arg() -> Arg {
    Arg::new("dir")
        .value_name("DIR")
        .required(true)
        .num_args(1..)
        .value_parser(clap::value_parser!(PathBuf))
        .help("data directory of a disk, whose shards all count, or those of several disks")
}

/// The directories that were named.
pub(super) fn dirs_of(matches: &ArgMatches) -> Vec<PathBuf> {
    matches.get_many::<PathBuf>("dir").into_iter().flatten().cloned().collect()
}

/// Does with each of several stores what `one` does, whatever becomes of those before; what keeps
/// it from one of them is told by `say`, unless that was printed already.
///
/// # Errors
/// What `one` said of a single store; of several, how many are not as they should be.
pub(super) fn each(
    dirs: &[PathBuf],
    mut one: impl FnMut(&Path) -> Result<(), DaemonError>,
    mut say: impl FnMut(&Path, &str) -> io::Result<()>,
) -> Result<(), DaemonError> {
    check_dirs(dirs.iter())?;
    let dirs: Vec<_> = dirs.iter().flat_map(|dir| folders(dir, 1)).collect();
    if let [dir] = &dirs[..] {
        return one(dir);
    }
    let (mut bad, mut code) = (0, 0);
    for dir in &dirs {
        match one(dir) {
            Ok(()) => continue,
            // What is printed is nowhere to be seen.
            Err(error @ DaemonError::Ready(_)) => return Err(error),
            Err(error) => {
                if !error.is_in_report() {
                    say(dir, &error.chain()).map_err(DaemonError::Ready)?;
                }
                (bad, code) = (bad + 1, code.max(error.exit_code()));
            }
        }
    }
    match bad {
        0 => Ok(()),
        _ => Err(DaemonError::Stores { bad, count: dirs.len(), code }),
    }
}

/// What keeps a command from a store, as text or as an object.
pub(super) fn cannot(dir: &Path, why: &str, json: bool) -> String {
    let dir = dir.display();
    match json {
        true => json!({ "dir": dir.to_string(), "error": why }).to_string(),
        false => format!("{dir}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of stores each of which ends with one of the codes.
    fn of(codes: &[u8]) -> (Result<(), DaemonError>, Vec<String>) {
        let dirs: Vec<_> = (0..codes.len()).map(|at| PathBuf::from(format!("/d{at}"))).collect();
        let mut said = Vec::new();
        let mut left = codes.iter();
        let one = |dir: &Path| match left.next().expect("one code a store") {
            0 => Ok(()),
            1 => Err(DaemonError::StoreDamaged(dir.into())),
            4 => Err(DaemonError::NotADirectory(dir.into())),
            _ => Err(DaemonError::Ready(io::ErrorKind::BrokenPipe.into())),
        };
        let say = |dir: &Path, _: &str| {
            said.push(dir.display().to_string());
            Ok(())
        };
        let result = each(&dirs, one, say);
        (result, said)
    }

    #[test]
    fn one_bad_store_keeps_no_other_from_its_turn_and_the_worst_code_is_given() {
        for (codes, code, text, named) in [
            (&[0, 0][..], 0, "", &[][..]),
            (&[0, 1, 0], 1, "1 of 3 stores", &[]),
            (&[4, 1, 0], 4, "2 of 3 stores", &["/d0"]),
            (&[1, 4, 4], 4, "3 of 3 stores", &["/d1", "/d2"]),
            (&[4, 6, 4], 6, "", &["/d0"]),
            // That of a single one is told by the error itself.
            (&[4], 4, "/d0 is not a directory", &[]),
        ] {
            let (result, said) = of(codes);
            assert_eq!(said, named, "{codes:?}");
            let error = result.err();
            assert_eq!(error.as_ref().map_or(0, DaemonError::exit_code), code, "{codes:?}");
            assert!(error.map_or(String::new(), |error| error.to_string()).starts_with(text));
        }
    }

    #[test]
    fn a_directory_that_is_named_twice_is_refused() {
        let dirs = ["/a", "/b", "/a"].map(PathBuf::from);
        let same = each(&dirs, |_| Ok(()), |_, _| Ok(())).expect_err("it is there twice");
        assert!(matches!(same, DaemonError::SameDisk(_)), "{same}");
    }
}
