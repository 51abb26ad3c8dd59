//! A file or block device as a disk: made, locked, measured, given room.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FallocateFlags, OFlags, StatxFlags, fallocate, fstatfs, fstatvfs, makedev, statx,
};
use rustix::io::Errno;
use towpath_memory::Pool;

use crate::cache::Cache;
use crate::disk::DurableWrites;
use crate::op::PageNumber;
use crate::open::{NewFile, OpenError, Options};
use crate::{PAGE_BYTES, ReadPages, transfer};

/// Permissions of a file that is made.
const FILE_MODE: u32 = 0o600;

/// What the kernel calls its file systems in memory (linux/magic.h).
const TMPFS: u32 = 0x0102_1994;

/// See [`TMPFS`].
const RAMFS: u32 = 0x8584_58f6;

/// How long a file is waited for that somebody has: the ring of a process that was killed is taken
/// down when the disk has done what it had under way, which takes a busy one a second and more.
const LOCK_WAIT: Duration = Duration::from_secs(3);

/// How often it is looked at meanwhile.
const LOCK_LOOK: Duration = Duration::from_millis(5);

/// How often the path of a file is looked at, with a flush.
const NAME_LOOK: Duration = Duration::from_secs(1);

/// Buffers by which a file gets its room where the file system gives none ahead of bytes.
const ZEROS_BYTES: usize = 1 << 20;

/// An open file that nobody else has. It is unlocked when it is dropped.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: File,
    pub(crate) page_count: u64,
    pub(crate) is_device: bool,
    pub(crate) is_direct: bool,
    pub(crate) was_made: bool,
    pub(crate) can_discard: bool,
    pub(crate) durable_writes: DurableWrites,
    pub(crate) cache: Cache,
    path: PathBuf,
    /// Disks that share the room of its file system.
    sharers: u32,
    /// When the path was looked at last.
    looked_at: Mutex<Option<Instant>>,
}

impl Drop for DiskFile {
    /// Closing alone would not do: a process that another thread starts just now has a copy of the
    /// descriptor until it runs its own program.
    fn drop(&mut self) {
        // Where that fails, closing is all that is left.
        let _ = self.file.unlock();
    }
}

impl std::ops::Deref for DiskFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

fn failed(path: &Path, step: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError { path, step, source }
}

/// Keeps others from opening a file. Where somebody has it, it waits a little: the kernel keeps the
/// file of a process that was killed until it has taken its ring down.
fn lock(file: &File) -> io::Result<()> {
    let end = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(LOCK_LOOK),
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

impl DiskFile {
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        if options.is_direct {
            match Self::open_as(path, options, true) {
                // No such way in this file system, or not for pages of this size.
                Err(error) if error.source.kind() == io::ErrorKind::InvalidInput => {}
                outcome => return outcome,
            }
        }
        Self::open_as(path, options, false)
    }

    fn open_as(path: &Path, options: &Options, is_direct: bool) -> Result<Self, OpenError> {
        let is_device = path.metadata().is_ok_and(|found| found.file_type().is_block_device());
        let mut flags = OFlags::empty();
        flags.set(OFlags::DIRECT, is_direct);
        // Nobody has mounted it, then.
        flags.set(OFlags::EXCL, is_device);
        let mut how = File::options();
        how.read(true).write(true).mode(FILE_MODE).custom_flags(flags.bits().cast_signed());
        how.create(options.create.is_some() && !is_device);
        let file = how.open(path).map_err(failed(path, "opening"))?;
        let found = file.metadata().map_err(failed(path, "opening"))?.file_type();
        if !found.is_file() && !found.is_block_device() {
            let neither = io::Error::other("it is neither a file nor a block device");
            return Err(failed(path, "opening")(neither));
        }
        lock(&file).map_err(failed(path, "locking"))?;
        let (page_count, was_made, can_discard) = (0, false, false);
        let (path_buf, looked_at) = (path.to_owned(), Mutex::new(None));
        let mut disk = Self {
            file,
            page_count,
            is_device,
            is_direct,
            was_made,
            can_discard,
            durable_writes: DurableWrites::None,
            cache: Cache::Unknown,
            path: path_buf,
            looked_at,
            sharers: options.sharers,
        };
        disk.measure(path, options.create)?;
        if is_direct {
            disk.try_a_page().map_err(failed(path, "reading past the page cache"))?;
        }
        disk.can_discard = disk.gives_back();
        disk.cache = Cache::of(&disk.file);
        disk.durable_writes = match disk.cache {
            // Of a page cache's errors, two writes at a time may be told once.
            _ if !is_direct => DurableWrites::None,
            Cache::Flushed => DurableWrites::AndAllBefore,
            Cache::Unknown | Cache::None | Cache::PassedBy => DurableWrites::Own,
        };
        Ok(disk)
    }

    fn byte_len(&self) -> io::Result<u64> {
        use std::io::{Seek, SeekFrom};
        // What metadata says of a device's length is zero.
        (&self.file).seek(SeekFrom::End(0))
    }

    /// Finds the length; an empty file is one that is still to be made.
    fn measure(&mut self, path: &Path, create: Option<NewFile>) -> Result<(), OpenError> {
        let mut byte_len = self.byte_len().map_err(failed(path, "measuring"))?;
        if let (0, false, Some(new)) = (byte_len, self.is_device, create) {
            let made = self.make(path, new);
            if made.is_err() {
                // Empty, it takes no room and is made anew the next time.
                let _ = self.file.set_len(0);
            }
            made.map_err(failed(path, "giving room to"))?;
            self.was_made = true;
            byte_len = self.byte_len().map_err(failed(path, "measuring"))?;
        }
        self.page_count = byte_len / PAGE_BYTES as u64;
        if self.page_count == 0 {
            let empty = io::Error::other("it has less than a page");
            return Err(failed(path, "measuring")(empty));
        }
        Ok(())
    }

    /// Makes an empty file as long as it shall be, for good. Its length is the last thing that
    /// changes, so that a crash leaves an empty file; where room takes bytes, a shorter one.
    fn make(&self, path: &Path, new: NewFile) -> io::Result<()> {
        let byte_len = PageNumber(new.page_count).byte_offset();
        if byte_len == 0 || i64::try_from(byte_len).is_err() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let room = PageNumber(new.room_pages).byte_offset().min(byte_len);
        if room > 0 {
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, room) {
                // This file system gives room to bytes alone.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(room)?,
                done => done?,
            }
        }
        self.file.set_len(byte_len)?;
        self.file.sync_all()?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn write_zeros(&self, byte_len: u64) -> io::Result<()> {
        let zeros = whole_pages(ZEROS_BYTES)?;
        for offset in (0..byte_len).step_by(ZEROS_BYTES) {
            let len = (byte_len - offset).min(ZEROS_BYTES as u64) as usize;
            transfer::write_all([&zeros[..len]], offset, |slices, offset| {
                Ok(rustix::io::pwritev(&self.file, slices, offset)?)
            })?;
        }
        Ok(())
    }

    /// Whether this file system lets pages be read past its cache: not all that say so do.
    fn try_a_page(&self) -> io::Result<()> {
        let mut page = whole_pages(PAGE_BYTES)?;
        match rustix::io::pread(&self.file, &mut *page, 0) {
            // A bad sector is no matter of the file system.
            Err(error) if error != Errno::INVAL => Ok(()),
            outcome => outcome.map(drop).map_err(Into::into),
        }
    }

    /// Whether it can give pages back. It is asked for those behind its end, which it has not.
    fn gives_back(&self) -> bool {
        let end = PageNumber(self.page_count + 1).byte_offset();
        match self.give_back(end, PAGE_BYTES as u64) {
            Ok(()) => true,
            // A device says so of what lies behind its end, once it has found that it can.
            Err(error) => self.is_device && error.kind() == io::ErrorKind::InvalidInput,
        }
    }

    /// Gives bytes back to the file system, or to the device: they are zeros then.
    pub(crate) fn give_back(&self, offset: u64, byte_len: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, how, offset, byte_len)?)
    }

    /// Whether the file still has its name: what is written to one that was removed is gone with
    /// the process, however it is flushed. The path is looked at once a second, since looking takes
    /// longer.
    pub(crate) fn check_name(&self) -> io::Result<()> {
        if self.is_device {
            return Ok(());
        }
        // Whoever asks for times as well makes the next write keep one of its own, which a file
        // system then writes with each flush.
        let wanted = StatxFlags::NLINK | StatxFlags::INO;
        let own = statx(&self.file, c"", AtFlags::EMPTY_PATH, wanted)?;
        let device = makedev(own.stx_dev_major, own.stx_dev_minor);
        let mut looked_at = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = looked_at.is_none_or(|at| at.elapsed() >= NAME_LOOK);
        let is_named = own.stx_nlink > 0
            && (!is_due || {
                *looked_at = Some(Instant::now());
                let found = self.path.metadata();
                found.is_ok_and(|found| (found.dev(), found.ino()) == (device, own.stx_ino))
            });
        match is_named {
            true => Ok(()),
            false => {
                // A name that is gone does not count again.
                *looked_at = None;
                Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed or moved away"))
            }
        }
    }

    /// Whether it lies on a file system that keeps its files in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        // The number's own type is not the same on all machines.
        let kind = fstatfs(&self.file).map(|found| found.f_type as u64 as u32);
        !self.is_device && kind.is_ok_and(|kind| [TMPFS, RAMFS].contains(&kind))
    }

    /// Bytes that the file system can still give to this file: its part of what is free.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        if self.is_device {
            return Ok(0);
        }
        let found = fstatvfs(&self.file)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize) / u64::from(self.sharers.max(1)))
    }
}

/// Memory of its own that begins at a page, all zero.
pub(crate) fn whole_pages(byte_len: usize) -> io::Result<ReadPages> {
    let no_memory = |_| io::Error::from(io::ErrorKind::OutOfMemory);
    let pool = Pool::with_count(byte_len, 1).map_err(no_memory)?;
    let buf = pool.take().ok_or(io::ErrorKind::OutOfMemory)?;
    let pages = ReadPages::part(buf, 0..(byte_len / PAGE_BYTES) as u32);
    pages.map_err(|_| io::ErrorKind::OutOfMemory.into())
}
