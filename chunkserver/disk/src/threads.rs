//! A disk that threads read and write, each one operation at a time.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::io::{ReadWriteFlags, preadv, pwritev2};
use towpath_wake::Bell;

use crate::disk::{Disk, Done, Limits, Refused, flush_lost};
use crate::file::DiskFile;
use crate::gate::Gate;
use crate::op::Op;
use crate::pages::WritePages;
use crate::transfer::{read_all, write_all};

/// Stack of each thread: calls of the system and little else.
const STACK_BYTES: usize = 128 << 10;

/// An operation on its way to a thread.
type Asked = (u64, Op);

/// An operation on its way back.
type Ended = (u64, Op, io::Result<()>);

/// A disk on threads of its own.
#[derive(Debug)]
pub(crate) struct Threads {
    file: Arc<DiskFile>,
    gate: Gate,
    /// None when it is being dropped.
    asked: Option<Sender<Asked>>,
    ended: Receiver<Ended>,
    bell: Bell,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(crate) fn new(file: DiskFile, depth: usize, thread_count: usize) -> io::Result<Self> {
        let file = Arc::new(file);
        // Each may hold all that is under way, so that no end ever blocks.
        let (asked, to_do) = bounded::<Asked>(depth);
        let (done, ended) = bounded::<Ended>(depth);
        let bell = Bell::new()?;
        let gate = Gate::new(file.page_count, depth, file.can_discard);
        let gate = gate.with(file.durable_writes);
        let threads = Vec::with_capacity(thread_count);
        let mut disk =
            Self { file: Arc::clone(&file), gate, asked: Some(asked), ended, bell, threads };
        for index in 0..thread_count {
            let (file, to_do, done) = (Arc::clone(&file), to_do.clone(), done.clone());
            let waker = disk.bell.waker();
            let work = move || {
                for (tag, mut op) in to_do {
                    let outcome = carry_out(&file, &mut op);
                    // Nobody takes it when the disk is being dropped.
                    let _ = done.send((tag, op, outcome));
                    waker.wake_by_ref();
                }
            };
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            disk.threads.push(builder.name(format!("disk-{index}")).spawn(work)?);
        }
        Ok(disk)
    }

    fn take(&mut self, (tag, op, outcome): Ended, done: &mut Vec<Done>) {
        done.push(self.gate.finish(tag, op, outcome));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.asked = None;
        for thread in self.threads.drain(..) {
            // One that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

fn write(file: &File, from: &[WritePages], offset: u64, how: ReadWriteFlags) -> io::Result<()> {
    let from = from.iter().map(|pages| &pages[..]);
    write_all(from, offset, |slices, offset| Ok(pwritev2(file, slices, offset, how)?))
}

/// What came of a durable write, of which the system has said this: where it failed and a plain
/// write of the same bytes goes, what failed was what makes it last.
pub(crate) fn durable_outcome(disk: &DiskFile, op: &Op, outcome: io::Result<()>) -> io::Result<()> {
    let Err(error) = outcome else { return disk.check_name().map_err(flush_lost) };
    let Op::Write { at, from, .. } = op else { return Err(error) };
    match write(disk, from, at.byte_offset(), ReadWriteFlags::empty()) {
        Ok(()) => Err(flush_lost(error)),
        Err(_) => Err(error),
    }
}

pub(crate) fn carry_out(disk: &DiskFile, op: &mut Op) -> io::Result<()> {
    let file: &File = disk;
    let offset = op.at().byte_offset();
    match op {
        Op::Read { into, .. } => {
            let into = into.iter_mut().map(|pages| &mut pages[..]);
            read_all(into, offset, |slices, offset| Ok(preadv(file, slices, offset)?))
        }
        Op::Write { from, is_durable: true, .. } => {
            let outcome = write(file, from, offset, ReadWriteFlags::DSYNC);
            durable_outcome(disk, op, outcome)
        }
        Op::Write { from, .. } => write(file, from, offset, ReadWriteFlags::empty()),
        Op::Flush => file.sync_data().and_then(|()| disk.check_name()),
        Op::Discard { count, .. } => {
            disk.give_back(offset, crate::PageNumber(*count).byte_offset())
        }
    }
}

impl Disk for Threads {
    fn limits(&self) -> Limits {
        self.gate.limits()
    }

    fn submit(&mut self, tag: u64, op: Op) -> Result<(), Refused> {
        let op = self.gate.admit(op)?;
        let asked = self.asked.as_ref().expect("it is there until the disk is dropped");
        // Threads hold the other end until this one is gone, and it has room for the whole depth.
        asked.try_send((tag, op)).expect("there is room for all that is under way");
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<usize> {
        let before = done.len();
        while let Ok(ended) = self.ended.try_recv() {
            self.take(ended, done);
        }
        Ok(done.len() - before)
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<usize> {
        if self.gate.in_flight() == 0 {
            return Ok(0);
        }
        match self.ended.recv_timeout(timeout) {
            Ok(ended) => {
                self.take(ended, done);
                Ok(1 + self.poll(done)?)
            }
            Err(_) => Ok(0),
        }
    }

    fn arm(&mut self) -> io::Result<bool> {
        self.bell.clear();
        Ok(!self.ended.is_empty())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.file.free_bytes()
    }
}
