//! The folder of a store of the format before, which is only read.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::store::error::OpenError;
use crate::store::media::{MediaError, MediaOp};

/// Permissions of the lock file, if it is made.
const FILE_MODE: u32 = 0o600;

/// Name of the lock file; it stays when the store is closed and holds nothing.
const LOCK_NAME: &str = "LOCK";

/// A folder that no server of the format before has open while this is there.
#[derive(Debug)]
pub struct OldFolder {
    path: PathBuf,
    lock: File,
}

impl Drop for OldFolder {
    /// Closing alone would not do: a process that another thread starts just now has a copy of the
    /// descriptor until it runs its own program.
    fn drop(&mut self) {
        // Where that fails, closing is all that is left.
        let _ = self.lock.unlock();
    }
}

impl OldFolder {
    /// Keeps every server away from the folder at `path`.
    ///
    /// # Errors
    /// [`OpenError::Locked`] where one has it, or what the file system reports.
    pub fn lock(path: &Path) -> Result<Self, OpenError> {
        let failed = MediaError::at(MediaOp::Lock, LOCK_NAME, 0);
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(FILE_MODE);
        let lock = match options.open(path.join(LOCK_NAME)) {
            Ok(lock) => lock,
            Err(error) => return Err(failed(error).into()),
        };
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.into(), lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked),
            Err(TryLockError::Error(error)) => Err(failed(error).into()),
        }
    }

    /// The names in the folder, sorted.
    pub(super) fn list(&self) -> Result<Vec<String>, MediaError> {
        let list = || {
            let mut names = Vec::new();
            for entry in fs::read_dir(&self.path)? {
                // A name that is not UTF-8 is none of the store's.
                if let Ok(name) = entry?.file_name().into_string() {
                    names.push(name);
                }
            }
            names.sort();
            Ok(names)
        };
        list().map_err(MediaError::at(MediaOp::List, ".", 0))
    }

    pub(super) fn open(&self, name: &str) -> Result<File, MediaError> {
        File::open(self.path.join(name)).map_err(MediaError::at(MediaOp::Open, name, 0))
    }
}

/// Length of file `name` in bytes.
pub(super) fn byte_len(file: &File, name: &str) -> Result<u64, MediaError> {
    let found: io::Result<_> = file.metadata();
    found.map(|found| found.len()).map_err(MediaError::at(MediaOp::Read, name, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_given_back_though_a_process_that_is_being_started_has_a_copy_of_it() {
        let dir = tempfile::tempdir().expect("room for a directory");
        let first = OldFolder::lock(dir.path()).expect("nobody has it");
        let copy = first.lock.try_clone().expect("it is open");
        let refused = OldFolder::lock(dir.path()).expect_err("the first has it");
        assert!(matches!(refused, OpenError::Locked), "{refused}");
        drop(first);
        OldFolder::lock(dir.path()).expect("the first has given it back");
        drop(copy);
    }
}
