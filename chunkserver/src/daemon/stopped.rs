//! What the commands for stopped stores share: their directories, and one result of several.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::error::DaemonError;
use super::shards::{check_dirs, folders};

/// The stores that a command is for.
#[derive(Clone, Debug, Args)]
pub(super) struct Stores {
    /// Data directory of a disk, whose shards all count, or those of several disks.
    #[arg(value_name = "DIR", required = true)]
    pub(super) dirs: Vec<PathBuf>,
    /// Print JSON objects, one on each line.
    #[arg(long)]
    pub(super) json: bool,
}

impl Stores {
    /// Does with each of several stores what `one` does, whatever becomes of those before; what
    /// keeps it from one of them is told by `say`, unless that was printed already.
    ///
    /// # Errors
    /// What `one` said of a single store; of several, how many are not as they should be.
    pub(super) fn each(
        &self,
        mut one: impl FnMut(&Path) -> Result<(), DaemonError>,
        mut say: impl FnMut(&str) -> io::Result<()>,
    ) -> Result<(), DaemonError> {
        let Self { dirs, json } = self;
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
                        let (dir, why) = (dir.display().to_string(), error.chain());
                        say(&match json {
                            true => json!({ "dir": dir, "error": why }).to_string(),
                            false => format!("{dir}: {why}"),
                        })
                        .map_err(DaemonError::Ready)?;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of stores each of which ends with one of the codes.
    fn of(codes: &[u8]) -> (Result<(), DaemonError>, Vec<String>) {
        let dirs = (0..codes.len()).map(|at| PathBuf::from(format!("/d{at}")));
        let stores = Stores { dirs: dirs.collect(), json: false };
        let mut said = Vec::new();
        let mut left = codes.iter();
        let one = |dir: &Path| match left.next().expect("one code a store") {
            0 => Ok(()),
            1 => Err(DaemonError::StoreDamaged(dir.into())),
            4 => Err(DaemonError::NotADirectory(dir.into())),
            _ => Err(DaemonError::Ready(io::ErrorKind::BrokenPipe.into())),
        };
        let say = |words: &str| {
            let (dir, _) = words.split_once(": ").expect("a directory, and what is wrong");
            said.push(dir.into());
            Ok(())
        };
        let result = stores.each(one, say);
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
        let stores = Stores { dirs: ["/a", "/b", "/a"].map(Into::into).into(), json: false };
        let same = stores.each(|_| Ok(()), |_| Ok(())).expect_err("it is there twice");
        assert!(matches!(same, DaemonError::SameDisk(_)), "{same}");
    }
}
