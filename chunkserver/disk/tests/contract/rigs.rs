//! The kinds of disks that the contract is tested on.

use std::io;
use std::path::Path;

use tempfile::TempDir;
use towpath_disk::sim::Medium;
use towpath_disk::{Backend, Disk, NewFile, NoUring, Options, open};

/// Pages of each disk.
pub(crate) const PAGE_COUNT: u64 = 4500;

/// Operations that may be under way.
pub(crate) const DEPTH: usize = 24;

/// Makes disks of one kind, all of the same bytes: zeros at first.
pub(crate) trait Rig {
    fn open(&self) -> io::Result<Box<dyn Disk>>;
}

/// A simulated one.
pub(crate) struct SimRig(Medium);

impl SimRig {
    pub(crate) fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self(Medium::new(seed, PAGE_COUNT))
    }
}

impl Rig for SimRig {
    fn open(&self) -> io::Result<Box<dyn Disk>> {
        Ok(Box::new(self.0.open(DEPTH)?))
    }
}

/// A file in a folder of its own.
pub(crate) struct FileRig {
    folder: TempDir,
    options: Options,
    is_uring: bool,
}

impl FileRig {
    fn new(folder: TempDir, is_uring: bool, is_direct: bool) -> Self {
        let create = Some(NewFile { page_count: PAGE_COUNT, room_pages: u64::MAX });
        let options = Options { depth: DEPTH, create, is_direct, is_uring, ..Options::default() };
        Self { folder, options, is_uring }
    }

    /// Where temporary files are: on a disk, as a rule.
    pub(crate) fn on_disk(is_uring: bool, is_direct: bool) -> Self {
        let folder = tempfile::tempdir().expect("room for a folder");
        Self::new(folder, is_uring, is_direct)
    }

    /// In memory, where the system has such a place.
    pub(crate) fn in_memory(is_uring: bool) -> Self {
        let place = Path::new("/dev/shm");
        let folder = match place.is_dir() {
            true => tempfile::tempdir_in(place),
            false => tempfile::tempdir(),
        };
        Self::new(folder.expect("room for a folder"), is_uring, true)
    }
}

impl Rig for FileRig {
    fn open(&self) -> io::Result<Box<dyn Disk>> {
        let path = self.folder.path().join("disk");
        let (disk, report) = open(&path, &self.options).map_err(|error| error.source)?;
        println!("{report}");
        match &report.why_threads {
            None => assert!(self.is_uring),
            Some(NoUring::NotWanted) => assert!(!self.is_uring),
            Some(NoUring::InMemory) => assert_eq!(report.backend, Backend::Caller),
            // Then threads are tested twice.
            Some(why) => println!("threads, since {why}"),
        }
        Ok(disk)
    }
}
