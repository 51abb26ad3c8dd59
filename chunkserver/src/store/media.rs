//! What the store asks of a medium, and the medium made of real files.

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::fstatvfs;
use thiserror::Error;

use super::folder::make_folder;

/// One flat directory of files with positioned I/O and explicit flushes.
///
/// Nothing is on stable media before a flush says so: bytes and sizes need
/// [`fdatasync`](Self::fdatasync), names need [`sync_dir`](Self::sync_dir).
pub trait Media {
    /// An open file.
    type File;

    /// Keeps every other server away from the directory until this value is dropped.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when another holder has it.
    fn lock(&mut self) -> io::Result<()>;

    /// The names in the directory, sorted.
    ///
    /// # Errors
    /// What the medium reports.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], or what the medium reports.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Makes an empty file, in place of any of the same name.
    ///
    /// # Errors
    /// What the medium reports.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Length in bytes.
    ///
    /// # Errors
    /// What the medium reports.
    fn len(&self, file: &Self::File) -> io::Result<u64>;

    /// Cuts or extends (with zeros that may take no space yet).
    ///
    /// # Errors
    /// What the medium reports.
    fn set_len(&self, file: &Self::File, byte_len: u64) -> io::Result<()>;

    /// Gives the bytes of `range` room on the medium, so that a later write to them needs none.
    /// Changes no byte; a file that ends before the range does is extended with zeros. The room
    /// lasts from the next flush of the file on.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when there is no room, or what the medium reports; the file
    /// may have become longer then, and has room for what it is longer by.
    fn allocate(&self, file: &Self::File, range: Range<u64>) -> io::Result<()>;

    /// Bytes that the medium can still give to files.
    ///
    /// # Errors
    /// What the medium reports.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] past the end, or what the medium reports.
    fn read_at(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when there is no room, or what the medium reports; part of
    /// the bytes may have been written then.
    fn write_at(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Brings the file's bytes and size to stable media.
    ///
    /// # Errors
    /// What the medium reports. After an error nothing is known about any unflushed byte, and a
    /// second flush that succeeds proves nothing.
    fn fdatasync(&self, file: &Self::File) -> io::Result<()>;

    /// Gives a file another name, in place of any that had it.
    ///
    /// # Errors
    /// What the medium reports.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes a name away.
    ///
    /// # Errors
    /// What the medium reports.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// A number that nobody outside can know or guess.
    fn random(&self) -> u64;

    /// Brings the names to stable media.
    ///
    /// # Errors
    /// As [`fdatasync`](Self::fdatasync).
    fn sync_dir(&self) -> io::Result<()>;
}

/// What was being done when a medium failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaOp {
    /// Making a file.
    Create,
    /// Flushing a file or the directory.
    Flush,
    /// Listing the directory.
    List,
    /// Taking the lock.
    Lock,
    /// Opening a file.
    Open,
    /// Reading.
    Read,
    /// Renaming.
    Rename,
    /// Writing or extending.
    Write,
}

/// A failed operation on a medium: which, on what file, where.
#[derive(Debug, Error)]
#[error("{op:?} of {file} at offset {offset} failed: {source}")]
pub struct MediaError {
    /// What was being done.
    pub op: MediaOp,
    /// Name of the file inside the store's directory; the directory itself is `.`.
    pub file: String,
    /// Byte offset in the file, zero where that means nothing.
    pub offset: u64,
    /// What the medium said.
    #[source]
    pub source: io::Error,
}

impl MediaError {
    /// Whether the medium is full, rather than broken.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether the system has no more of something just now, be it room or descriptors, and
    /// nothing is broken.
    pub(crate) fn is_shortage(&self) -> bool {
        let descriptors = [Errno::EMFILE as i32, Errno::ENFILE as i32];
        self.is_full() || self.source.raw_os_error().is_some_and(|e| descriptors.contains(&e))
    }

    pub(crate) fn at(op: MediaOp, file: &str, offset: u64) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self { op, file, offset, source }
    }
}

/// Fills `range` of a file with zeros that take their space.
pub(crate) fn write_zeros<M: Media>(
    media: &M,
    file: &M::File,
    range: Range<u64>,
) -> io::Result<()> {
    const ZEROS: &[u8] = &[0; 256 << 10];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(ZEROS.len() as u64);
        media.write_at(file, at, &ZEROS[..len as usize])?;
        at += len;
    }
    Ok(())
}

/// Real files in one directory, through the page cache.
///
/// O_DIRECT is not used: a buffered and a direct descriptor on one file see each other's bytes
/// only as a best effort of the kernel, and unaligned edges and foreign buffers need the
/// buffered one anyway. What the store relies on is `fdatasync` and that its errors are final.
#[derive(Debug)]
pub struct FileMedia {
    dir_path: PathBuf,
    dir: File,
    lock: Option<Lock>,
}

/// Nobody else opens the store while this is there.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    /// Closing alone would not do: a process that another thread starts just now has a copy of the
    /// descriptor until it runs its own program.
    fn drop(&mut self) {
        // Where that fails, closing is all that is left.
        let _ = self.0.unlock();
    }
}

/// Permissions of the files that are made.
const FILE_MODE: u32 = 0o600;

/// Name of the lock file; it stays when the store is closed and holds nothing.
const LOCK_NAME: &str = "LOCK";

impl FileMedia {
    /// The directory `dir_path`, made (with its parents) if it is not there. What is made here,
    /// directories and files, nobody but their owner may read or write.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn new(dir_path: &Path) -> io::Result<Self> {
        make_folder(dir_path)?;
        let dir = File::open(dir_path)?;
        Ok(Self { dir_path: dir_path.to_owned(), dir, lock: None })
    }
}

impl Media for FileMedia {
    type File = File;

    fn lock(&mut self) -> io::Result<()> {
        let path = self.dir_path.join(LOCK_NAME);
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).mode(FILE_MODE).open(path)?;
        match file.try_lock() {
            Ok(()) => self.lock = Some(Lock(file)),
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir_path)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        File::options().read(true).write(true).open(self.dir_path.join(name))
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let path = self.dir_path.join(name);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE).open(path)
    }

    fn len(&self, file: &File) -> io::Result<u64> {
        Ok(file.metadata()?.len())
    }

    fn set_len(&self, file: &File, byte_len: u64) -> io::Result<()> {
        file.set_len(byte_len)
    }

    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        let byte_len = range.end.saturating_sub(range.start);
        let too_far = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let offset = i64::try_from(range.start).map_err(too_far)?;
        let len = i64::try_from(byte_len).map_err(too_far)?;
        match fallocate(file, FallocateFlags::empty(), offset, len) {
            // This file system knows only written bytes, and those that are there keep their value.
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                write_zeros(self, file, self.len(file)?.max(range.start)..range.end)
            }
            done => Ok(done?),
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let found = fstatvfs(&self.dir)?;
        Ok(found.blocks_available().saturating_mul(found.fragment_size()))
    }

    fn read_at(&self, file: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        file.read_exact_at(buf, offset)
    }

    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn fdatasync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir_path.join(from), self.dir_path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir_path.join(name))
    }

    /// std keys each `RandomState` from the system's randomness.
    fn random(&self) -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(0u64)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.dir.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_given_back_though_a_process_that_is_being_started_has_a_copy_of_it() {
        let dir = tempfile::tempdir().expect("room for a directory");
        let media = || FileMedia::new(dir.path()).expect("it is there");
        let mut first = media();
        first.lock().expect("nobody has it");
        let copy = first.lock.as_ref().map(|lock| lock.0.try_clone()).expect("it is locked");
        let refused = media().lock().expect_err("the first has it");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(first);
        media().lock().expect("the first has given it back");
        drop(copy);
    }

    #[test]
    fn what_is_made_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("room for a directory");
        let path = dir.path().join("parent/store");
        let mut media = FileMedia::new(&path).expect("it is made");
        media.lock().expect("nobody has it");
        media.create("data.0000").expect("it is made");
        for name in [".", "LOCK", "data.0000", ".."] {
            let found = fs::metadata(path.join(name)).expect("it is there").permissions().mode();
            assert_eq!(found & 0o077, 0, "{name} is {found:o}");
        }
    }
}
