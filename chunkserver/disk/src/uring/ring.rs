//! An io_uring that owns the operations under way on one file.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::fs::FallocateFlags;

use crate::op::{Op, PageNumber};

/// How often in a row a part of an operation is asked for again that the system was too busy for:
/// then it is an error.
const TRIES_MAX: u32 = 16;

/// The file, which is the only one that is registered.
const FILE: Fixed = Fixed(0);

/// An operation under way.
///
/// The kernel reaches the bytes of `op` and `parts` until the completion is there. Neither is
/// touched before, wherever this value lies: both point to memory that does not move with it.
struct Slot {
    tag: u64,
    op: Op,
    /// What is left of the buffers, where there are several.
    parts: Vec<libc::iovec>,
    byte_len: u64,
    done_bytes: u64,
    tries: u32,
}

/// The ring and what is under way in it.
pub(super) struct Ring {
    ring: IoUring,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// The system has refused to speak of it, once and for all.
    is_gone: bool,
    /// Entering is what runs the kernel's end of each operation.
    pub(super) is_deferred: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} of {} under way)", self.in_flight(), self.slots.len())
    }
}

/// How a ring is set up: the first that the kernel knows is taken.
fn ways() -> [(bool, Builder); 3] {
    let all = IoUring::builder();
    let (mut best, mut good, plain) = (all.clone(), all.clone(), all);
    // One thread submits and takes, and the kernel interrupts it for nothing.
    best.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    good.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
    [(true, best), (false, good), (false, plain)]
}

fn unsupported(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what)
}

impl Ring {
    /// A ring for `depth` operations at a time on `file`, which tells `eventfd`.
    pub(super) fn new(file: &File, depth: usize, eventfd: BorrowedFd<'_>) -> io::Result<Self> {
        let entries = u32::try_from(depth).unwrap_or(u32::MAX);
        let mut made = Err(unsupported("no way to set it up"));
        for (is_deferred, way) in ways() {
            made = way.build(entries).map(|ring| (is_deferred, ring));
            match &made {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                _ => break,
            }
        }
        let (is_deferred, ring) = made?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(unsupported("the kernel is older than 5.11"));
        }
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        ring.submitter().register_eventfd(eventfd.as_raw_fd())?;
        let slots = (0..depth).map(|_| None).collect();
        let free = (0..entries).rev().collect();
        let mut ring = Self { ring, slots, free, is_gone: false, is_deferred };
        ring.tell(false);
        Ok(ring)
    }

    /// How many were pushed, and are to begin with the next entry.
    pub(super) fn pending(&mut self) -> usize {
        self.ring.submission().len()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// From now on the eventfd is told of what is done, or is not.
    pub(super) fn tell(&mut self, is_told: bool) {
        let queue = self.ring.completion();
        match is_told {
            true => queue.enable_eventfd(),
            false => queue.disable_eventfd(),
        }
    }

    /// Takes an operation, to begin at the next entry.
    ///
    /// # Panics
    /// When as many as there are slots are under way.
    pub(super) fn push(&mut self, tag: u64, op: Op) {
        let index = self.free.pop().expect("who pushes has asked for room");
        let byte_len = match op {
            Op::Read { .. } | Op::Write { .. } => PageNumber(op.page_count()).byte_offset(),
            Op::Flush | Op::Discard { .. } => 0,
        };
        let slot = Slot { tag, op, parts: Vec::new(), byte_len, done_bytes: 0, tries: 0 };
        let slot = self.slots[index as usize].insert(slot);
        let entry = entry_of(slot).user_data(u64::from(index));
        push_entry(&mut self.ring, &entry);
    }

    /// Begins what was pushed, and takes note of what is done.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        let queue = self.ring.submission();
        let has_something = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if !has_something {
            return self.still_there();
        }
        let outcome = self.ring.submitter().submit();
        self.entered(outcome)
    }

    /// The same, without asking first whether there is something to take note of.
    pub(super) fn enter_always(&mut self) -> io::Result<()> {
        let count = self.ring.submission().len() as u32;
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is passed, and `count` entries are in the queue, whose memory the
        // slots keep.
        let outcome = unsafe { self.ring.submitter().enter::<()>(count, 0, flags, None) };
        self.entered(outcome)
    }

    /// The same, and waits until something is done or the time is over.
    pub(super) fn enter_and_wait(&mut self, timeout: Duration) -> io::Result<()> {
        let (sec, nsec) = (timeout.as_secs().min(i64::MAX as u64), timeout.subsec_nanos());
        let timespec = Timespec::new().sec(sec).nsec(nsec);
        let args = SubmitArgs::new().timespec(&timespec);
        let outcome = self.ring.submitter().submit_with_args(1, &args);
        self.entered(outcome)
    }

    fn still_there(&self) -> io::Result<()> {
        match self.is_gone {
            true => Err(io::Error::other("the ring has failed before")),
            false => Ok(()),
        }
    }

    fn entered(&mut self, outcome: io::Result<usize>) -> io::Result<()> {
        self.still_there()?;
        let Err(error) = outcome else { return Ok(()) };
        match error.raw_os_error() {
            // The time is over; a signal; no memory or no room just now: the next entry goes on.
            Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
            _ => {
                self.is_gone = true;
                Err(error)
            }
        }
    }

    /// Whether [`pop`](Self::pop) has something to look at.
    pub(super) fn has_done(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// The next operation that is done. One that was done in part is pushed again for its rest,
    /// which the next entry begins.
    pub(super) fn pop(&mut self) -> Option<(u64, Op, io::Result<()>)> {
        loop {
            let done: cqueue::Entry = self.ring.completion().next()?;
            let index = done.user_data() as u32;
            let place = self.slots.get_mut(index as usize)?;
            let slot = place.as_mut()?;
            match slot.take_in(done.result()) {
                Some(outcome) => {
                    let Slot { tag, op, .. } = place.take()?;
                    self.free.push(index);
                    return Some((tag, op, outcome));
                }
                None => {
                    let entry = entry_of(slot).user_data(u64::from(index));
                    push_entry(&mut self.ring, &entry);
                }
            }
        }
    }
}

impl Drop for Ring {
    /// Waits for what is under way: until then its memory is the kernel's.
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            while self.pop().is_some() {}
            if self.in_flight() > 0 && self.enter_and_wait(Duration::from_secs(1)).is_err() {
                // Nobody will say when the kernel is done with the memory: it is given up.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
        }
        // Where that fails, the file is closed some time later.
        let _ = self.ring.submitter().unregister_files();
    }
}

impl Slot {
    /// What came of it; none where a rest is left to ask for.
    fn take_in(&mut self, result: i32) -> Option<io::Result<()>> {
        let len = match u64::try_from(result) {
            Ok(len) => len,
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) && self.tries < TRIES_MAX => {
                self.tries += 1;
                return None;
            }
            Err(_) => return Some(Err(io::Error::from_raw_os_error(-result))),
        };
        self.tries = 0;
        self.done_bytes += len;
        if self.done_bytes >= self.byte_len {
            return Some(Ok(()));
        }
        (len == 0).then(|| {
            Err(match self.op {
                Op::Read { .. } => io::ErrorKind::UnexpectedEof.into(),
                _ => io::ErrorKind::WriteZero.into(),
            })
        })
    }
}

/// What is left of a buffer after the first `skip` bytes of all of them; `skip` becomes what of it
/// concerns the next ones.
fn rest(start: *mut u8, byte_len: usize, skip: &mut usize) -> Option<libc::iovec> {
    let skipped = (*skip).min(byte_len);
    *skip -= skipped;
    let iov_base = start.wrapping_add(skipped).cast();
    (skipped < byte_len).then_some(libc::iovec { iov_base, iov_len: byte_len - skipped })
}

/// What the kernel is asked for: all that is left of the operation.
fn entry_of(slot: &mut Slot) -> squeue::Entry {
    let Slot { op, parts, done_bytes, .. } = slot;
    let offset = op.at().byte_offset() + *done_bytes;
    let mut skip = *done_bytes as usize;
    parts.clear();
    match op {
        Op::Read { into, .. } => {
            let left = into.iter_mut().filter_map(|p| rest(p.as_mut_ptr(), p.len(), &mut skip));
            parts.extend(left);
            match parts[..] {
                [libc::iovec { iov_base, iov_len }] => {
                    opcode::Read::new(FILE, iov_base.cast(), iov_len as u32).offset(offset).build()
                }
                _ => {
                    let (first, count) = (parts.as_ptr(), parts.len() as u32);
                    opcode::Readv::new(FILE, first, count).offset(offset).build()
                }
            }
        }
        Op::Write { from, is_durable, .. } => {
            let how = if *is_durable { libc::RWF_DSYNC } else { 0 };
            let left = |p: &crate::WritePages| rest(p.as_ptr().cast_mut(), p.len(), &mut skip);
            parts.extend(from.iter().filter_map(left));
            match parts[..] {
                [libc::iovec { iov_base, iov_len }] => {
                    let entry = opcode::Write::new(FILE, iov_base.cast(), iov_len as u32);
                    entry.offset(offset).rw_flags(how).build()
                }
                _ => {
                    let (first, count) = (parts.as_ptr(), parts.len() as u32);
                    opcode::Writev::new(FILE, first, count).offset(offset).rw_flags(how).build()
                }
            }
        }
        Op::Flush => opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(),
        Op::Discard { count, .. } => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let byte_len = PageNumber(*count).byte_offset();
            let entry = opcode::Fallocate::new(FILE, byte_len).offset(offset);
            entry.mode(mode.bits().cast_signed()).build()
        }
    }
}

/// Queues an entry that [`entry_of`] made of a slot.
fn push_entry(ring: &mut IoUring, entry: &squeue::Entry) {
    // SAFETY: the entry names the registered file, which the ring keeps open, and memory of a slot:
    // the buffers of its operation and `parts`. The slot stays as it is until the completion is
    // taken, and a ring that is dropped waits for that or leaks it. Buffers that are read into are
    // owned by the operation alone, those that are written from nobody changes.
    let pushed = unsafe { ring.submission().push(entry) };
    pushed.expect("the queue has room for all that is under way");
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_memory::Pool;

    fn slot(pages: &[u32]) -> Slot {
        let pool = Pool::with_count(4 * 4096, pages.len()).expect("memory for a test");
        let part = |count| {
            let buf = pool.take().expect("enough for the test");
            crate::ReadPages::part(buf, 0..count).expect("it fits")
        };
        let op = Op::Read { at: PageNumber(10), into: pages.iter().map(|c| part(*c)).collect() };
        let byte_len = PageNumber(op.page_count()).byte_offset();
        Slot { tag: 1, op, parts: Vec::new(), byte_len, done_bytes: 0, tries: 0 }
    }

    fn lengths(slot: &mut Slot) -> Vec<usize> {
        entry_of(slot);
        slot.parts.iter().map(|part| part.iov_len).collect()
    }

    #[test]
    fn what_was_done_in_part_is_asked_for_from_there() {
        let mut slot = slot(&[1, 2, 4]);
        assert_eq!(lengths(&mut slot), [4096, 8192, 16384]);
        let start = |slot: &Slot, at: usize| {
            let Op::Read { into, .. } = &slot.op else { panic!("it is a read") };
            into[at].as_ptr().addr()
        };
        for (result, left) in [(512, vec![3584, 8192, 16384]), (3584, vec![8192, 16384])] {
            assert!(slot.take_in(result).is_none(), "something is left");
            assert_eq!(lengths(&mut slot), left);
        }
        assert!(slot.take_in(8192 + 4096).is_none(), "something is left");
        assert_eq!(lengths(&mut slot), [12288]);
        assert_eq!(slot.parts[0].iov_base.addr(), start(&slot, 2) + 4096);
        assert!(slot.take_in(12288).is_some_and(|outcome| outcome.is_ok()));
    }

    #[test]
    fn an_end_and_an_error_end_it_and_a_busy_system_does_not_for_a_while() {
        let kind = |outcome: Option<io::Result<()>>| outcome.map(|o| o.map_err(|e| e.kind()));
        let mut early = slot(&[2]);
        assert_eq!(kind(early.take_in(4096)), None);
        assert_eq!(kind(early.take_in(0)), Some(Err(io::ErrorKind::UnexpectedEof)));
        assert_eq!(kind(slot(&[1]).take_in(-libc::ENOSPC)), Some(Err(io::ErrorKind::StorageFull)));
        let mut busy = slot(&[1]);
        for _ in 0..TRIES_MAX {
            assert_eq!(kind(busy.take_in(-libc::EAGAIN)), None);
        }
        assert_eq!(kind(busy.take_in(-libc::EAGAIN)), Some(Err(io::ErrorKind::WouldBlock)));
    }
}
