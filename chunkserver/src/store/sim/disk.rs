//! The state of a simulated disk: what readers see, what is on the medium, what lies between.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::time::Duration;

use towpath_base::Prng;

use super::{BLOCK_BYTES, Loss, Mischief, SECTOR_BYTES};

#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) prng: Prng,
    /// For what the store draws: apart, so that what a power cut leaves does not depend on it.
    pub(super) nonces: Prng,
    pub(super) files: Vec<FileState>,
    pub(super) names: BTreeMap<String, usize>,
    pub(super) durable_names: BTreeMap<String, usize>,
    pub(super) unflushed_names: Vec<(u64, NameOp)>,
    pub(super) locked: bool,
    pub(super) ops: u64,
    pub(super) cut_at: Option<u64>,
    pub(super) off: bool,
    pub(super) capacity_blocks: u64,
    pub(super) used_blocks: u64,
    pub(super) has_no_descriptors: bool,
    pub(super) failing_flush: Option<u64>,
    pub(super) flush_takes: Duration,
    pub(super) failing_reads: Vec<FailingRead>,
    /// File and block.
    pub(super) spoiled: Vec<(usize, u64)>,
    pub(super) mischief: Option<(String, u64, Mischief)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileState {
    pub(super) name: String,
    pub(super) seen: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) unflushed: Vec<(u64, Change)>,
    /// Blocks that have room, as far as the file system knows now and after a power cut.
    pub(super) blocks: Vec<bool>,
    pub(super) durable_blocks: Vec<bool>,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Bytes(u64, Vec<u8>),
    Len(u64),
    /// Room for a range, and a file that reaches to its end.
    Room(Range<u64>),
}

#[derive(Clone, Debug)]
pub(super) enum NameOp {
    Set(String, usize),
    Move(String, String, usize),
    Remove(String),
}

#[derive(Clone, Debug)]
pub(super) struct FailingRead {
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) times: u32,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            prng: Prng::new(seed),
            nonces: Self::nonces(seed),
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
            has_no_descriptors: false,
            failing_flush: None,
            flush_takes: Duration::ZERO,
            failing_reads: Vec::new(),
            spoiled: Vec::new(),
            mischief: None,
        }
    }
}

impl Disk {
    pub(super) fn nonces(seed: u64) -> Prng {
        Prng::new(seed ^ 0x6e6f_6e63_6573)
    }
}

pub(super) fn power_is_off() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the simulated power is off")
}

pub(super) fn put(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let end = offset as usize + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset as usize..end].copy_from_slice(data);
}

fn blocks_of(range: Range<u64>) -> Range<usize> {
    let block = BLOCK_BYTES as u64;
    (range.start / block) as usize..range.end.div_ceil(block) as usize
}

fn set_blocks(blocks: &mut Vec<bool>, range: Range<usize>) {
    if blocks.len() < range.end {
        blocks.resize(range.end, false);
    }
    blocks[range].fill(true);
}

fn cut_blocks(blocks: &mut Vec<bool>, byte_len: usize) {
    blocks.truncate(byte_len.div_ceil(BLOCK_BYTES));
}

fn count(blocks: &[bool]) -> u64 {
    blocks.iter().filter(|b| **b).count() as u64
}

impl FileState {
    pub(super) fn persist(&mut self, change: &Change) {
        match change {
            Change::Bytes(offset, data) => self.persist_bytes(*offset, data),
            Change::Len(len) => {
                self.durable.resize(*len as usize, 0);
                cut_blocks(&mut self.durable_blocks, *len as usize);
            }
            Change::Room(range) => {
                let len = self.durable.len().max(range.end as usize);
                self.durable.resize(len, 0);
                set_blocks(&mut self.durable_blocks, blocks_of(range.clone()));
            }
        }
    }

    fn persist_bytes(&mut self, offset: u64, data: &[u8]) {
        put(&mut self.durable, offset, data);
        set_blocks(&mut self.durable_blocks, blocks_of(offset..offset + data.len() as u64));
    }

    /// Sectors of a write, each with its offset in the file.
    pub(super) fn sectors(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
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
    pub(super) fn step(&mut self) -> io::Result<bool> {
        if self.off {
            return Err(power_is_off());
        }
        self.ops += 1;
        self.off = self.cut_at == Some(self.ops);
        Ok(self.off)
    }

    pub(super) fn takes_a_descriptor(&self) -> io::Result<()> {
        match self.has_no_descriptors {
            true => Err(io::Error::from_raw_os_error(nix::errno::Errno::EMFILE as i32)),
            false => Ok(()),
        }
    }

    pub(super) fn name_op(&mut self, op: NameOp) -> io::Result<()> {
        let cut = self.step()?;
        apply_name(&mut self.names, &op);
        let number = self.ops;
        self.unflushed_names.push((number, op));
        if cut { Err(power_is_off()) } else { Ok(()) }
    }

    pub(super) fn power_cycle(&mut self, loss: Loss) {
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
            file.blocks.clone_from(&file.durable_blocks);
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
        self.used_blocks = self.names.values().map(|file| count(&self.files[*file].blocks)).sum();
        self.locked = false;
        self.off = false;
        self.cut_at = None;
        self.failing_flush = None;
        self.failing_reads.clear();
        self.mischief = None;
    }

    pub(super) fn keep_some(&mut self, at: usize, op: u64, change: Change, loss: Loss, cut: u64) {
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
                        self.files[at].persist_bytes(offset, part);
                    }
                }
            }
            change if kept => self.files[at].persist(&change),
            _ => {}
        }
    }

    /// Takes the blocks of `range` that the file has not: all of them, or none.
    pub(super) fn reserve(&mut self, file: usize, range: Range<u64>) -> io::Result<()> {
        let range = blocks_of(range);
        let blocks = &mut self.files[file].blocks;
        let here = blocks.get(range.start..range.end.min(blocks.len())).unwrap_or_default();
        let missing = range.len() as u64 - count(here);
        if missing > self.capacity_blocks.saturating_sub(self.used_blocks) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.used_blocks += missing;
        set_blocks(blocks, range);
        Ok(())
    }

    /// Gives back the blocks past the end of a file.
    pub(super) fn cut_blocks(&mut self, file: usize) {
        let state = &mut self.files[file];
        let before = count(&state.blocks);
        cut_blocks(&mut state.blocks, state.seen.len());
        self.used_blocks -= before - count(&state.blocks);
    }

    /// Gives back the blocks of the file that has a name which is about to go.
    pub(super) fn forget_name(&mut self, name: &str) {
        if let Some(&file) = self.names.get(name) {
            self.used_blocks -= count(&self.files[file].blocks);
        }
    }

    pub(super) fn is_spoiled(&self, file: usize, range: &Range<u64>) -> bool {
        let touches = |block: u64| blocks_of(range.clone()).contains(&(block as usize));
        self.spoiled.iter().any(|(of, block)| *of == file && touches(*block))
    }

    /// A block that is written as a whole is good again; one that is written in part would have to
    /// be read first.
    pub(super) fn write_over_spoiled(&mut self, file: usize, range: &Range<u64>) -> io::Result<()> {
        let block = BLOCK_BYTES as u64;
        let whole = range.start.div_ceil(block)..range.end / block;
        self.spoiled.retain(|(of, block)| *of != file || !whole.contains(block));
        match self.is_spoiled(file, range) {
            true => Err(io::Error::other("simulated bad sector")),
            false => Ok(()),
        }
    }

    /// Where a write really goes; none when it is lost.
    pub(super) fn destination(&mut self, file: usize, offset: u64) -> Option<u64> {
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

pub(super) fn apply_name(names: &mut BTreeMap<String, usize>, op: &NameOp) {
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
