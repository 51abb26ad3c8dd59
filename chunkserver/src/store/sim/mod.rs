//! A medium in memory, deterministic by its seed, with power cuts and faults.

mod disk;

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use towpath_base::Prng;

use super::media::Media;
use disk::{Change, Disk, FailingRead, FileState, NameOp, apply_name, power_is_off, put};

/// Bytes that reach a simulated medium together: the logical sector of common disks.
pub const SECTOR_BYTES: usize = 512;

/// Space is counted in blocks of this many bytes.
const BLOCK_BYTES: usize = 4096;

/// What a power cut leaves of the writes and names that were not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of it reached the medium in time.
    Nothing,
    /// None of it did.
    Everything,
    /// What was done first did, up to a sector chosen by the seed; all after it did not.
    Suffix,
    /// Each sector and each name by itself, as the seed has it.
    Scattered,
}

/// What happens to a write that the medium mistreats, and still reports as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// It goes nowhere.
    Lost,
    /// It goes this many bytes further on.
    Misdirected(u64),
}

/// A handle to a simulated disk; clones are other handles to the same one.
#[derive(Debug)]
pub struct SimMedia {
    disk: Arc<Mutex<Disk>>,
    holds_lock: bool,
}

/// An open file of a [`SimMedia`].
#[derive(Clone, Copy, Debug)]
pub struct SimFile(usize);

impl Clone for SimMedia {
    fn clone(&self) -> Self {
        Self { disk: Arc::clone(&self.disk), holds_lock: false }
    }
}

impl Drop for SimMedia {
    fn drop(&mut self) {
        if self.holds_lock {
            self.disk().locked = false;
        }
    }
}

impl SimMedia {
    /// An empty disk; `seed` decides what power cuts leave.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let disk = Disk::new(seed);
        Self { disk: Arc::new(Mutex::new(disk)), holds_lock: false }
    }

    /// Another disk with the same content and state, whose power cuts `seed` decides.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let (prng, nonces) = (Prng::new(seed), Disk::nonces(seed));
        let disk = Disk { prng, nonces, ..self.disk().clone() };
        Self { disk: Arc::new(Mutex::new(disk)), holds_lock: false }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes, flushes and name changes so far: the boundaries at which power can be cut.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.disk().ops
    }

    /// Cuts the power in the middle of operation number `op` (the first one is 1): it fails, and
    /// so does everything after it until [`power_on`](Self::power_on).
    pub fn cut_power_at(&self, op: u64) {
        self.disk().cut_at = Some(op);
    }

    /// Cuts the power now, decides what the medium kept, and turns it on again. Whoever held
    /// the lock is gone; faults are cleared.
    pub fn power_on(&self, loss: Loss) {
        self.disk().power_cycle(loss);
    }

    /// Ends the process that had the disk, and not the power: what was written stays to be seen,
    /// and what was not flushed can still be lost.
    pub fn end_process(&self) {
        let mut disk = self.disk();
        (disk.locked, disk.off, disk.cut_at) = (false, false, None);
    }

    /// Limits the space to `bytes`, what is in use included.
    pub fn limit_space(&self, bytes: u64) {
        self.disk().capacity_blocks = bytes / BLOCK_BYTES as u64;
    }

    /// Bytes of space in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.disk().used_blocks * BLOCK_BYTES as u64
    }

    /// From now on no file can be opened or made, as in a process without a descriptor left; or all
    /// can again.
    pub fn run_out_of_descriptors(&self, is_out: bool) {
        self.disk().has_no_descriptors = is_out;
    }

    /// Lets the flush after `passed` more ones fail. What it should have flushed then counts as
    /// clean, as in a page cache, and reaches the medium never.
    pub fn fail_flush(&self, passed: u64) {
        self.disk().failing_flush = Some(passed);
    }

    /// From now on each flush puts its thread to sleep for `span` at least; not at all for zero,
    /// as it is at first.
    pub fn flush_takes(&self, span: Duration) {
        self.disk().flush_takes = span;
    }

    /// Lets the next `times` reads that touch `offset` of file `name` fail.
    pub fn fail_reads(&self, name: &str, offset: u64, times: u32) {
        let mut disk = self.disk();
        if let Some(&file) = disk.names.get(name) {
            disk.failing_reads.push(FailingRead { file, offset, times });
        }
    }

    /// Makes the 4 KiB of file `name` at `offset` unreadable, until they are written as a whole.
    pub fn spoil(&self, name: &str, offset: u64) {
        let mut disk = self.disk();
        if let Some(&file) = disk.names.get(name) {
            disk.spoiled.push((file, offset / BLOCK_BYTES as u64));
        }
    }

    /// Mistreats one write to a file whose name begins with `prefix`, after `passed` good ones.
    pub fn mistreat_write(&self, prefix: &str, passed: u64, mischief: Mischief) {
        self.disk().mischief = Some((prefix.to_owned(), passed, mischief));
    }

    /// Flips the lowest bit of the byte at `offset` of file `name`, on the medium and in the
    /// cache.
    pub fn flip_bit(&self, name: &str, offset: u64) {
        let mut disk = self.disk();
        if let Some(&file) = disk.names.get(name) {
            let file = &mut disk.files[file];
            for bytes in [&mut file.seen, &mut file.durable] {
                if let Some(byte) = bytes.get_mut(offset as usize) {
                    *byte ^= 1;
                }
            }
        }
    }

    /// The content of file `name` as a reader sees it.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.disk();
        disk.names.get(name).map(|file| disk.files[*file].seen.clone())
    }
}

impl Media for SimMedia {
    type File = SimFile;

    fn lock(&mut self) -> io::Result<()> {
        let mut disk = self.disk();
        if disk.locked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        disk.locked = true;
        drop(disk);
        self.holds_lock = true;
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.disk().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let disk = self.disk();
        disk.takes_a_descriptor()?;
        disk.names.get(name).map(|file| SimFile(*file)).ok_or(io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut disk = self.disk();
        disk.takes_a_descriptor()?;
        disk.forget_name(name);
        let file = disk.files.len();
        disk.files.push(FileState { name: name.to_owned(), ..FileState::default() });
        disk.name_op(NameOp::Set(name.to_owned(), file))?;
        Ok(SimFile(file))
    }

    fn len(&self, file: &SimFile) -> io::Result<u64> {
        Ok(self.disk().files[file.0].seen.len() as u64)
    }

    fn set_len(&self, file: &SimFile, byte_len: u64) -> io::Result<()> {
        let mut disk = self.disk();
        let cut = disk.step()?;
        let op = disk.ops;
        let state = &mut disk.files[file.0];
        state.seen.resize(byte_len as usize, 0);
        state.unflushed.push((op, Change::Len(byte_len)));
        disk.cut_blocks(file.0);
        if cut { Err(power_is_off()) } else { Ok(()) }
    }

    fn allocate(&self, file: &SimFile, range: Range<u64>) -> io::Result<()> {
        let mut disk = self.disk();
        let cut = disk.step()?;
        let op = disk.ops;
        disk.reserve(file.0, range.clone())?;
        let state = &mut disk.files[file.0];
        let end = state.seen.len().max(range.end as usize);
        state.seen.resize(end, 0);
        state.unflushed.push((op, Change::Room(range)));
        if cut { Err(power_is_off()) } else { Ok(()) }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = self.disk();
        let blocks = disk.capacity_blocks.saturating_sub(disk.used_blocks);
        Ok(blocks.saturating_mul(BLOCK_BYTES as u64))
    }

    fn read_at(&self, file: &SimFile, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut disk = self.disk();
        if disk.off {
            return Err(power_is_off());
        }
        let range = offset..offset + buf.len() as u64;
        let failing = disk
            .failing_reads
            .iter_mut()
            .find(|f| f.file == file.0 && f.times > 0 && range.contains(&f.offset));
        if let Some(failing) = failing {
            failing.times -= 1;
            return Err(io::Error::other("simulated read error"));
        }
        if disk.is_spoiled(file.0, &range) {
            return Err(io::Error::other("simulated bad sector"));
        }
        let seen = &disk.files[file.0].seen;
        match seen.get(range.start as usize..range.end as usize) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }

    fn write_at(&self, file: &SimFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.disk();
        let cut = disk.step()?;
        let op = disk.ops;
        disk.reserve(file.0, offset..offset + bytes.len() as u64)?;
        disk.write_over_spoiled(file.0, &(offset..offset + bytes.len() as u64))?;
        if let Some(offset) = disk.destination(file.0, offset) {
            let state = &mut disk.files[file.0];
            put(&mut state.seen, offset, bytes);
            state.unflushed.push((op, Change::Bytes(offset, bytes.to_vec())));
        }
        if cut { Err(power_is_off()) } else { Ok(()) }
    }

    fn fdatasync(&self, file: &SimFile) -> io::Result<()> {
        let takes = self.disk().flush_takes;
        if !takes.is_zero() {
            sleep(takes);
        }
        let mut disk = self.disk();
        if disk.step()? {
            return Err(power_is_off());
        }
        let fails = match &mut disk.failing_flush {
            Some(0) => true,
            Some(passed) => {
                *passed -= 1;
                false
            }
            None => false,
        };
        let state = &mut disk.files[file.0];
        let changes = std::mem::take(&mut state.unflushed);
        if fails {
            disk.failing_flush = None;
            return Err(io::Error::other("simulated flush error"));
        }
        changes.iter().for_each(|(_, change)| state.persist(change));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk();
        let Some(&file) = disk.names.get(from) else { return Err(io::ErrorKind::NotFound.into()) };
        disk.forget_name(to);
        disk.name_op(NameOp::Move(from.to_owned(), to.to_owned(), file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.disk();
        if !disk.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.forget_name(name);
        disk.name_op(NameOp::Remove(name.to_owned()))
    }

    /// One after the other from the seed, as `fork` and `new` gave it.
    fn random(&self) -> u64 {
        self.disk().nonces.next_u64()
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut disk = self.disk();
        if disk.step()? {
            return Err(power_is_off());
        }
        for (_, op) in std::mem::take(&mut disk.unflushed_names) {
            apply_name(&mut disk.durable_names, &op);
        }
        Ok(())
    }
}
