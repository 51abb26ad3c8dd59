//! What the clients of a history asked for, and what became of it.

use std::collections::BTreeMap;
use std::ops::Range;

use towpath_base::Prng;
use towpath_fastpath::SLICE_BYTES;

use super::register::{self, Deed, Op};
use crate::service::StopReason;

/// Which copy of which bytes: all copies of the chunk of copies, or a data part of the stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Register {
    Copies { slice: u64 },
    Part { rank: usize, slice: u64 },
}

/// A write of a history.
#[derive(Clone, Debug)]
struct Write {
    registers: Vec<Register>,
    begin: u64,
    end: Option<u64>,
    /// It is known that it was not done.
    is_gone: bool,
}

/// A read, of one slice.
#[derive(Clone, Copy, Debug)]
struct Read {
    register: Register,
    value: u64,
    begin: u64,
    end: u64,
}

/// The value of a write is its number and one more; that of what was there before is 0.
#[derive(Debug, Default)]
pub(super) struct Log {
    writes: Vec<Write>,
    reads: Vec<Read>,
    pub(super) tally: Tally,
}

/// How much was done, so that a test knows that it saw something.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) writes_done: u64,
    pub(super) writes_refused: u64,
    pub(super) writes_unknown: u64,
    pub(super) stripes_done: u64,
    pub(super) stripes_left: u64,
    pub(super) units_again: u64,
    pub(super) cancelled: u64,
    pub(super) slices_read: u64,
    /// Slices that were written to copies that nobody waited for.
    pub(super) slices_behind: u64,
    pub(super) killed: u64,
    pub(super) stalled: u64,
    pub(super) clients_killed: u64,
    pub(super) bytes_staged: u64,
    pub(super) packets: u64,
    /// Requests that stopped half-way, by reason.
    pub(super) stopped: [u64; StopReason::ALL.len()],
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.writes_done += other.writes_done;
        self.writes_refused += other.writes_refused;
        self.writes_unknown += other.writes_unknown;
        self.stripes_done += other.stripes_done;
        self.stripes_left += other.stripes_left;
        self.units_again += other.units_again;
        self.cancelled += other.cancelled;
        self.slices_read += other.slices_read;
        self.slices_behind += other.slices_behind;
        self.killed += other.killed;
        self.stalled += other.stalled;
        self.clients_killed += other.clients_killed;
        self.bytes_staged += other.bytes_staged;
        self.packets += other.packets;
        self.stopped.iter_mut().zip(other.stopped).for_each(|(sum, more)| *sum += more);
    }
}

/// A slice that tells by each of its bytes which value it has.
fn slice_of(value: u64, slice: u64) -> Vec<u8> {
    let mut bytes = vec![0; SLICE_BYTES];
    Prng::new(value << 8 | slice).fill(&mut bytes);
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

/// The slices of a value.
pub(super) fn bytes_of(value: u64, slices: Range<u64>) -> Vec<u8> {
    slices.flat_map(|slice| slice_of(value, slice)).collect()
}

/// The value that a slice has.
pub(super) fn value_of(bytes: &[u8], slice: u64) -> Result<u64, String> {
    let value = bytes.first_chunk().map(|first| u64::from_le_bytes(*first)).unwrap_or(u64::MAX);
    match value < 1 << 32 && bytes == slice_of(value, slice) {
        true => Ok(value),
        false => Err(format!("slice {slice} is torn")),
    }
}

/// An operation, for who looks for what was wrong.
fn told(op: &Op) -> String {
    let Op { deed, value, begin, end } = op;
    let end = end.map_or(String::from("?"), |end| end.to_string());
    format!("{deed:?} {value:x} {begin} {end}")
}

impl Log {
    /// A write begins; gives its value.
    pub(super) fn begin(&mut self, registers: Vec<Register>, now: u64) -> u64 {
        self.writes.push(Write { registers, begin: now, end: None, is_gone: false });
        self.writes.len() as u64
    }

    /// It was done.
    pub(super) fn done(&mut self, value: u64, now: u64) {
        self.writes[value as usize - 1].end = Some(now);
    }

    /// It was not done.
    pub(super) fn gone(&mut self, value: u64) {
        self.writes[value as usize - 1].is_gone = true;
    }

    /// Whether a value is one of a write that was not done.
    pub(super) fn is_gone(&self, value: u64) -> bool {
        let write = value.checked_sub(1).and_then(|at| self.writes.get(at as usize));
        write.is_some_and(|write| write.is_gone)
    }

    /// Slices were read.
    pub(super) fn read(
        &mut self,
        of: impl Fn(u64) -> Register,
        first: u64,
        bytes: &[u8],
        (begin, end): (u64, u64),
    ) -> Result<(), String> {
        for (slice, bytes) in (first..).zip(bytes.chunks(SLICE_BYTES)) {
            let (value, register) = (value_of(bytes, slice)?, of(slice));
            self.tally.slices_read += 1;
            self.reads.push(Read { register, value, begin, end });
        }
        Ok(())
    }

    /// Whether the registers did what registers do, if `last` was read of them as well: values, and
    /// from when on somebody could have seen them. What was read after `until` does not count.
    pub(super) fn check(
        &self,
        last: &[(Register, u64, (u64, u64))],
        until: u64,
    ) -> Result<(), String> {
        let mut histories: BTreeMap<Register, Vec<Op>> = BTreeMap::new();
        for (write, value) in self.writes.iter().zip(1..).filter(|(write, _)| !write.is_gone) {
            let Write { begin, end, .. } = *write;
            for register in &write.registers {
                let op = Op { deed: Deed::Write, value, begin, end };
                histories.entry(*register).or_default().push(op);
            }
        }
        let reads = self.reads.iter().filter(|read| read.end <= until);
        let last = last.iter().map(|&(register, value, (begin, end))| Read {
            register,
            value,
            begin,
            end,
        });
        for Read { register, value, begin, end } in reads.copied().chain(last) {
            let op = Op { deed: Deed::Read, value, begin, end: Some(end) };
            histories.entry(register).or_default().push(op);
        }
        for (register, ops) in histories {
            register::check(0, &ops).map_err(|wrong| {
                let ops: Vec<String> = ops.iter().map(told).collect();
                format!("{register:?}: {wrong}\n{}", ops.join("\n"))
            })?;
        }
        Ok(())
    }
}
