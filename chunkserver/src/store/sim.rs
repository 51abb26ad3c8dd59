//! A medium in memory, deterministic by its seed, with power cuts and faults.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towpath_base::Prng;

use super::media::Media;

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

#[derive(Clone, Debug)]
struct Disk {
    prng: Prng,
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    unflushed_names: Vec<(u64, NameOp)>,
    locked: bool,
    ops: u64,
    cut_at: Option<u64>,
    off: bool,
    capacity_blocks: u64,
    used_blocks: u64,
    failing_flush: Option<u64>,
    failing_reads: Vec<FailingRead>,
    mischief: Option<(String, u64, Mischief)>,
}

#[derive(Clone, Debug, Default)]
struct FileState {
    name: String,
    seen: Vec<u8>,
    durable: Vec<u8>,
    unflushed: Vec<(u64, Change)>,
    blocks: Vec<bool>,
}

#[derive(Clone, Debug)]
enum Change {
    Bytes(u64, Vec<u8>),
    Len(u64),
}

#[derive(Clone, Debug)]
enum NameOp {
    Set(String, usize),
    Move(String, String, usize),
    Remove(String),
}

#[derive(Clone, Debug)]
struct FailingRead {
    file: usize,
    offset: u64,
    times: u32,
}

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
        let disk = Disk {
            prng: Prng::new(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unflushed_names: Vec::new(),
            locked: false,
            ops: 0,
            cut_at: None,
            off: false,
            capacity_blocks: u64::MAX,
            used_blocks: 0,
            failing_flush: None,
            failing_reads: Vec::new(),
            mischief: None,
        };
        Self { disk: Arc::new(Mutex::new(disk)), holds_lock: false }
    }

    /// Another disk with the same content and state, whose power cuts `seed` decides.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let disk = Disk { prng: Prng::new(seed), ..self.disk().clone() };
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

    /// Limits the space to `bytes`, what is in use included.
    pub fn limit_space(&self, bytes: u64) {
        self.disk().capacity_blocks = bytes / BLOCK_BYTES as u64;
    }

    /// Bytes of space in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.disk().used_blocks * BLOCK_BYTES as u64
    }

    /// Lets the flush after `passed` more ones fail. What it should have flushed then counts as
    /// clean, as in a page cache, and reaches the medium never.
    pub fn fail_flush(&self, passed: u64) {
        self.disk().failing_flush = Some(passed);
    }

    /// Lets the next `times` reads that touch `offset` of file `name` fail.
    pub fn fail_reads(&self, name: &str, offset: u64, times: u32) {
        let mut disk = self.disk();
        if let Some(&file) = disk.names.get(name) {
            disk.failing_reads.push(FailingRead { file, offset, times });
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

fn power_is_off() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the simulated power is off")
}

fn put(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let end = offset as usize + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset as usize..end].copy_from_slice(data);
}

impl FileState {
    fn persist(&mut self, change: &Change) {
        match change {
            Change::Bytes(offset, data) => put(&mut self.durable, *offset, data),
            Change::Len(len) => self.durable.resize(*len as usize, 0),
        }
    }

    /// Sectors of a write, each with its offset in the file.
    fn sectors(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
        let first = (SECTOR_BYTES - offset as usize % SECTOR_BYTES).min(data.len());
        let (head, rest) = data.split_at(first);
        let head = std::iter::once(head);
        let parts = head.chain(rest.chunks(SECTOR_BYTES));
        parts.scan(offset, |at, part| {
            let here = *at;
            *at += part.len() as u64;
            Some((here, part))
        })
    }
}

impl Disk {
    /// Counts an operation; true when the power is cut in the middle of it.
    fn step(&mut self) -> io::Result<bool> {
        if self.off {
            return Err(power_is_off());
        }
        self.ops += 1;
        self.off = self.cut_at == Some(self.ops);
        Ok(self.off)
    }

    fn name_op(&mut self, op: NameOp) -> io::Result<()> {
        let cut = self.step()?;
        apply_name(&mut self.names, &op);
        let number = self.ops;
        self.unflushed_names.push((number, op));
        if cut { Err(power_is_off()) } else { Ok(()) }
    }

    fn power_cycle(&mut self, loss: Loss) {
        let writes = self.files.iter().flat_map(|f| f.unflushed.iter().map(|(op, _)| *op));
        let oldest = writes.chain(self.unflushed_names.iter().map(|(op, _)| *op)).min();
        let cut = self.prng.between(oldest.unwrap_or(self.ops), self.ops + 1);
        for at in 0..self.files.len() {
            let changes = std::mem::take(&mut self.files[at].unflushed);
            for (op, change) in changes {
                self.keep_some(at, op, change, loss, cut);
            }
            let file = &mut self.files[at];
            file.seen.clone_from(&file.durable);
        }
        for (number, op) in std::mem::take(&mut self.unflushed_names) {
            let kept = match loss {
                Loss::Nothing => true,
                Loss::Everything => false,
                Loss::Suffix => number < cut,
                Loss::Scattered => self.prng.chance(0.5),
            };
            if kept {
                apply_name(&mut self.durable_names, &op);
            }
        }
        self.names.clone_from(&self.durable_names);
        self.locked = false;
        self.off = false;
        self.cut_at = None;
        self.failing_flush = None;
        self.failing_reads.clear();
        self.mischief = None;
    }

    fn keep_some(&mut self, at: usize, op: u64, change: Change, loss: Loss, cut: u64) {
        let torn = matches!(loss, Loss::Scattered) || (loss == Loss::Suffix && op == cut);
        let kept = match loss {
            Loss::Nothing => true,
            Loss::Everything => false,
            Loss::Suffix => op < cut,
            Loss::Scattered => self.prng.chance(0.3),
        };
        match change {
            Change::Bytes(offset, data) if torn && !kept => {
                let count = data.len().div_ceil(SECTOR_BYTES) + 1;
                let prefix = self.prng.below(count as u64 + 1) as usize;
                for (index, (offset, part)) in FileState::sectors(offset, &data).enumerate() {
                    let take = match loss {
                        Loss::Suffix => index < prefix,
                        _ => self.prng.chance(0.5),
                    };
                    if take {
                        put(&mut self.files[at].durable, offset, part);
                    }
                }
            }
            change if kept => self.files[at].persist(&change),
            _ => {}
        }
    }

    fn reserve(&mut self, file: usize, offset: u64, len: usize) -> io::Result<()> {
        let first = offset as usize / BLOCK_BYTES;
        let end = (offset as usize + len).div_ceil(BLOCK_BYTES);
        let blocks = &mut self.files[file].blocks;
        if blocks.len() < end {
            blocks.resize(end, false);
        }
        for block in &mut blocks[first..end] {
            if !*block {
                if self.used_blocks >= self.capacity_blocks {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.used_blocks += 1;
                *block = true;
            }
        }
        Ok(())
    }

    fn forget_blocks(&mut self, file: usize) {
        let blocks = std::mem::take(&mut self.files[file].blocks);
        self.used_blocks -= blocks.iter().filter(|b| **b).count() as u64;
    }

    /// Where a write really goes; none when it is lost.
    fn destination(&mut self, file: usize, offset: u64) -> Option<u64> {
        let name = &self.files[file].name;
        match &mut self.mischief {
            Some((prefix, passed, mischief)) if name.starts_with(prefix.as_str()) => {
                if *passed > 0 {
                    *passed -= 1;
                    return Some(offset);
                }
                let mischief = *mischief;
                self.mischief = None;
                match mischief {
                    Mischief::Lost => None,
                    Mischief::Misdirected(by) => Some(offset + by),
                }
            }
            _ => Some(offset),
        }
    }
}

fn apply_name(names: &mut BTreeMap<String, usize>, op: &NameOp) {
    match op {
        NameOp::Set(name, file) => {
            names.insert(name.clone(), *file);
        }
        NameOp::Move(from, to, file) => {
            names.remove(from);
            names.insert(to.clone(), *file);
        }
        NameOp::Remove(name) => {
            names.remove(name);
        }
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
        disk.names.get(name).map(|file| SimFile(*file)).ok_or(io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut disk = self.disk();
        if let Some(&old) = disk.names.get(name) {
            disk.forget_blocks(old);
        }
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
        if cut { Err(power_is_off()) } else { Ok(()) }
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
        disk.reserve(file.0, offset, bytes.len())?;
        if let Some(offset) = disk.destination(file.0, offset) {
            let state = &mut disk.files[file.0];
            put(&mut state.seen, offset, bytes);
            state.unflushed.push((op, Change::Bytes(offset, bytes.to_vec())));
        }
        if cut { Err(power_is_off()) } else { Ok(()) }
    }

    fn fdatasync(&self, file: &SimFile) -> io::Result<()> {
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
        disk.name_op(NameOp::Move(from.to_owned(), to.to_owned(), file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.disk();
        let Some(&file) = disk.names.get(name) else { return Err(io::ErrorKind::NotFound.into()) };
        disk.forget_blocks(file);
        disk.name_op(NameOp::Remove(name.to_owned()))
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
