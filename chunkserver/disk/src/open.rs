//! Opens a file or a block device as a disk, and says how.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::at_once::AtOnce;
use crate::cache::Cache;
use crate::disk::Disk;
use crate::file::DiskFile;
use crate::threads::Threads;
use crate::uring::Uring;

/// Most operations under way: what the queues of fast devices hold. Each may keep 16 MiB.
pub const DEPTH_MAX: usize = 1024;

/// Most threads of one disk: twice the depth at which a device gives all that it can.
pub const THREADS_MAX: usize = 64;

/// How a disk is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many operations may be under way, 1 to [`DEPTH_MAX`].
    pub depth: usize,
    /// Makes the file where there is none, or an empty one. What is there stays as it is.
    pub create: Option<NewFile>,
    /// Past the page cache, where the file system lets us.
    pub is_direct: bool,
    /// By io_uring, where the page cache is passed by and the system lets us, and at once by the
    /// thread that asks where the file system is in memory; otherwise by threads.
    pub is_uring: bool,
    /// Threads, where they do the work, 1 to [`THREADS_MAX`]: as many operations go on at once.
    pub thread_count: usize,
    /// Disks that take their room from one file system in equal parts, this one among them.
    pub sharers: u32,
}

impl Default for Options {
    /// A file that is there.
    fn default() -> Self {
        Self {
            depth: 128,
            create: None,
            is_direct: true,
            is_uring: true,
            thread_count: 32,
            sharers: 1,
        }
    }
}

/// A file that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Its length, pages.
    pub page_count: u64,
    /// The first of them get their room now, so that no write to them meets a full file system:
    /// all, or those that must always be there. The others are sparse. Either way the flush after
    /// the first write of a page costs a file system's journal a write more: who needs fast flushes
    /// writes the pages once.
    pub room_pages: u64,
}

/// What was opened, and how.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// Who does the work.
    pub backend: Backend,
    /// Why it is not io_uring; none where it is.
    pub why_threads: Option<NoUring>,
    /// Whether the page cache is passed by. Otherwise the file system would not have it, or nobody
    /// asked for it.
    pub is_direct: bool,
    /// Whether the file was made just now.
    pub was_made: bool,
    /// Whether it is a block device.
    pub is_device: bool,
    /// What the device keeps in a cache.
    pub cache: Cache,
}

/// Who does a disk's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// The kernel, asked by io_uring.
    Uring {
        /// It interrupts nobody for what is done (from Linux 6.1 on).
        is_deferred: bool,
    },
    /// Threads of this process.
    Threads,
    /// The thread that asks: the file system is in memory.
    Caller,
}

/// Why a disk is not driven by io_uring.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoUring {
    /// Nobody asked for it.
    NotWanted,
    /// The file system does not pass its cache by, or is not asked to: what then waits for the
    /// disk waits in threads, be they ours or the kernel's.
    NotDirect,
    /// The file system is in memory: nothing ever waits.
    InMemory,
    /// The system refused it.
    Refused(io::Error),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_device { "a block device" } else { "a file" };
        let way = if self.is_direct { "past" } else { "through" };
        write!(f, "{what}, {way} the page cache, by {}", self.backend)?;
        match &self.why_threads {
            None => {}
            Some(why) => write!(f, " ({why})")?,
        }
        match self.why_threads {
            Some(NoUring::InMemory) => Ok(()),
            _ => write!(f, ", on {}", self.cache),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uring { is_deferred: true } => write!(f, "io_uring"),
            Self::Uring { is_deferred: false } => write!(f, "io_uring that interrupts"),
            Self::Threads => write!(f, "threads"),
            Self::Caller => write!(f, "the thread that asks"),
        }
    }
}

impl fmt::Display for NoUring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWanted => write!(f, "io_uring is not wanted"),
            Self::NotDirect => write!(f, "io_uring has no use with the page cache"),
            Self::InMemory => write!(f, "it is in memory"),
            Self::Refused(error) => write!(f, "io_uring was refused: {error}"),
        }
    }
}

/// A disk that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{step} {} failed: {source}", path.display())]
pub struct OpenError {
    /// Which one.
    pub path: PathBuf,
    /// What was being done.
    pub step: &'static str,
    /// What the system said: [`WouldBlock`](io::ErrorKind::WouldBlock) when someone else has it,
    /// [`StorageFull`](io::ErrorKind::StorageFull) when there is no room to make it.
    #[source]
    pub source: io::Error,
}

/// Opens a file or a block device, and keeps others from doing so until the disk is dropped. To be
/// called by the thread that will drive the disk.
///
/// # Errors
/// [`OpenError`] says what the system refused.
pub fn open(path: &Path, options: &Options) -> Result<(Box<dyn Disk>, Report), OpenError> {
    let depth = options.depth.clamp(1, DEPTH_MAX);
    let file = DiskFile::open(path, options)?;
    let (is_direct, was_made) = (file.is_direct, file.was_made);
    let (is_device, cache) = (file.is_device, file.cache);
    let report = |backend, why_threads| Report {
        backend,
        why_threads,
        is_direct,
        was_made,
        is_device,
        cache,
    };
    if options.is_uring && file.is_in_memory() {
        let failed = |source| OpenError { path: path.to_owned(), step: "waiting for", source };
        let disk = AtOnce::new(file, depth).map_err(failed)?;
        return Ok((Box::new(disk), report(Backend::Caller, Some(NoUring::InMemory))));
    }
    let ring = match (options.is_uring, is_direct) {
        (false, _) => Err((file, NoUring::NotWanted)),
        (true, false) => Err((file, NoUring::NotDirect)),
        (true, true) => {
            Uring::new(file, depth).map_err(|(file, error)| (file, NoUring::Refused(error)))
        }
    };
    match ring {
        Ok(disk) => {
            let backend = Backend::Uring { is_deferred: disk.is_deferred() };
            Ok((Box::new(disk), report(backend, None)))
        }
        Err((file, why)) => {
            let thread_count = options.thread_count.clamp(1, THREADS_MAX).min(depth);
            let step = "starting threads for";
            let failed = |source| OpenError { path: path.to_owned(), step, source };
            let disk = Threads::new(file, depth, thread_count).map_err(failed)?;
            Ok((Box::new(disk), report(Backend::Threads, Some(why))))
        }
    }
}
