//! Files that only their owner may change, written at once or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Read and write for the owner, nothing for others.
const PRIVATE: u32 = 0o600;
/// What others may not do with a file with secrets.
const OTHERS: u32 = 0o077;
/// What others may not do with a file that says who is trusted.
const OTHERS_WRITE: u32 = 0o022;

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others may read the secret.
    #[error(
        "{} may be read by others (mode {mode:04o}): run `chmod 600` on it, and make a new key if \
         others had access",
        path.display()
    )]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Others may change who is trusted.
    #[error(
        "{} may be changed by others (mode {mode:04o}): run `chmod go-w` on it",
        path.display()
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is longer than a file of this kind may be.
    #[error("{} has more than {max} bytes: it is no file of this kind", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// What it may have.
        max: usize,
    },
    /// A new file was asked for.
    #[error("{} exists: move it away first, because peers know this host by it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> FileError + '_ {
    |source| FileError::Io { path: path.to_owned(), source }
}

/// What tells two versions of a file apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    byte_len: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            byte_len: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// The stamp of the file now.
    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        fs::metadata(path).map(|metadata| Self::of(&metadata)).map_err(io_error(path))
    }

    /// When the file was last written, milliseconds since the Unix epoch.
    pub(crate) fn modified_ms(&self) -> u64 {
        let (seconds, nanos) = self.modified;
        let seconds = u64::try_from(seconds).unwrap_or(0);
        seconds.saturating_mul(1_000) + u64::try_from(nanos).unwrap_or(0) / 1_000_000
    }
}

/// A file with a secret, which others may not read.
pub(crate) fn read_private(
    path: &Path,
    max: usize,
) -> Result<(Zeroizing<Vec<u8>>, Stamp), FileError> {
    read(path, max, OTHERS, |path, mode| FileError::Readable { path, mode })
}

/// A file that others may read but not change.
pub(crate) fn read_trusted(
    path: &Path,
    max: usize,
) -> Result<(Zeroizing<Vec<u8>>, Stamp), FileError> {
    read(path, max, OTHERS_WRITE, |path, mode| FileError::Writable { path, mode })
}

fn read(
    path: &Path,
    max: usize,
    denied: u32,
    refusal: impl Fn(PathBuf, u32) -> FileError,
) -> Result<(Zeroizing<Vec<u8>>, Stamp), FileError> {
    let error = io_error(path);
    let file = File::open(path).map_err(&error)?;
    // The open file is asked, so that another file under the same name is not the one that counts.
    let metadata = file.metadata().map_err(&error)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & denied != 0 {
        return Err(refusal(path.to_owned(), mode));
    }
    // Reserved at once: a vector that grows leaves copies of secrets behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(max + 1));
    file.take(max as u64 + 1).read_to_end(&mut bytes).map_err(&error)?;
    if bytes.len() > max {
        return Err(FileError::TooLong { path: path.to_owned(), max });
    }
    Ok((bytes, Stamp::of(&metadata)))
}

/// Makes a file with a secret. A file that exists stays as it is.
pub(crate) fn create_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let temporary = write_beside(path, bytes, PRIVATE)?;
    // A link fails where a file exists; a rename would replace it.
    let linked = fs::hard_link(&temporary, path);
    let removed = fs::remove_file(&temporary).map_err(io_error(&temporary));
    match linked {
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            return Err(FileError::Exists { path: path.to_owned() });
        }
        linked => linked.map_err(io_error(path))?,
    }
    removed?;
    flush_folder(path)
}

/// Replaces a file, or makes it: readers see the old bytes or the new ones.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let temporary = write_beside(path, bytes, PRIVATE)?;
    if let Err(source) = fs::rename(&temporary, path) {
        // The new bytes are of no use to anybody; the error of the rename is the one that counts.
        let _ = fs::remove_file(&temporary);
        return Err(io_error(path)(source));
    }
    flush_folder(path)
}

fn write_beside(path: &Path, bytes: &[u8], mode: u32) -> Result<PathBuf, FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    let error = |source| io_error(&temporary)(source);
    let open = || OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary);
    let opened = match open() {
        // An earlier process with this number left it.
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&temporary).map_err(&error)?;
            open()
        }
        opened => opened,
    };
    let mut file = opened.map_err(&error)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(&error)?;
    Ok(temporary)
}

fn flush_folder(path: &Path) -> Result<(), FileError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_secret_is_made_once_and_for_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        create_private(&path, b"one").expect("a new file");
        let again = create_private(&path, b"two");
        assert!(matches!(again, Err(FileError::Exists { .. })), "{again:?}");
        let (bytes, _) = read_private(&path, 3).expect("the file");
        assert_eq!(&bytes[..], b"one");
        let mode = fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE);
        let long = read_private(&path, 2);
        assert!(matches!(long, Err(FileError::TooLong { max: 2, .. })), "{long:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }

    #[test]
    fn what_others_may_read_or_change_is_refused_with_the_command_that_helps() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        replace(&path, b"one").expect("a new file");
        for mode in [0o640, 0o604, 0o660, 0o610] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
            let read = read_private(&path, 9);
            assert!(matches!(read, Err(FileError::Readable { mode: of, .. }) if of == mode));
            assert!(read.expect_err("refused").to_string().contains("chmod 600"));
            let is_trusted = read_trusted(&path, 9).is_ok();
            assert_eq!(is_trusted, mode & OTHERS_WRITE == 0, "{mode:o}");
        }
    }

    #[test]
    fn a_replaced_file_has_another_stamp() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("peers");
        replace(&path, b"one").expect("a new file");
        let before = Stamp::read(&path).expect("a stamp");
        assert_eq!(Stamp::read(&path).expect("a stamp"), before);
        replace(&path, b"two").expect("the file");
        assert_ne!(Stamp::read(&path).expect("a stamp"), before);
        let missing = Stamp::read(&folder.path().join("none"));
        assert!(matches!(missing, Err(FileError::Io { .. })), "{missing:?}");
    }
}
