//! A disk by io_uring: the kernel does the work, and no thread sleeps for it.

mod ring;

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::disk::{Disk, Done, Limits, Refused};
use crate::file::{DiskFile, whole_pages};
use crate::gate::Gate;
use crate::op::{Op, PageNumber};
use crate::threads::durable_outcome;
use crate::{Buffers, PAGE_BYTES};
use ring::Ring;

/// Operations that wait for the next call of the kernel. The device begins with these while others
/// are being made: with 4, 32 random reads at a time are a fifth more than all in one call, and
/// take no more of the processor.
const PENDING_MAX: usize = 4;

/// A disk by io_uring. The thread that opens it drives it: the kernel wants it so.
#[derive(Debug)]
pub(crate) struct Uring {
    // Dropped first: it waits for what is under way.
    ring: Ring,
    gate: Gate,
    eventfd: OwnedFd,
    /// The eventfd is told of what is done.
    is_armed: bool,
    file: DiskFile,
    stays_here: PhantomData<*const ()>,
}

impl Uring {
    /// # Errors
    /// The file, and why there is no ring for it: another way is left.
    pub(crate) fn new(file: DiskFile, depth: usize) -> Result<Self, (DiskFile, io::Error)> {
        match Self::ring_for(&file, depth) {
            Ok((ring, eventfd)) => {
                let gate = Gate::new(file.page_count, depth, file.can_discard);
                let gate = gate.with(file.durable_writes);
                let stays_here = PhantomData;
                Ok(Self { ring, gate, eventfd, is_armed: false, file, stays_here })
            }
            Err(error) => Err((file, error)),
        }
    }

    /// Whether the kernel ends operations only when it is entered, and interrupts nobody.
    pub(crate) fn is_deferred(&self) -> bool {
        self.ring.is_deferred
    }

    fn ring_for(file: &DiskFile, depth: usize) -> io::Result<(Ring, OwnedFd)> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut ring = Ring::new(file, depth, eventfd.as_fd())?;
        // Not all systems that give a ring let a file be read by it.
        let into = Buffers::from_iter([whole_pages(PAGE_BYTES)?]);
        ring.push(0, Op::Read { at: PageNumber(0), into });
        loop {
            ring.enter_and_wait(Duration::from_secs(60))?;
            let Some((_, _, outcome)) = ring.pop() else { continue };
            return match outcome {
                Err(error) if is_refusal(&error) => Err(error),
                // A bad sector is no matter of the ring.
                _ => Ok((ring, eventfd)),
            };
        }
    }

    fn take(&mut self, done: &mut Vec<Done>) -> usize {
        let before = done.len();
        while let Some((tag, op, mut outcome)) = self.ring.pop() {
            if op.is_durable_write() {
                outcome = durable_outcome(&self.file, &op, outcome);
            } else if matches!(op, Op::Flush) {
                outcome = outcome.and_then(|()| self.file.check_name());
            }
            done.push(self.gate.finish(tag, op, outcome));
        }
        done.len() - before
    }

    fn disarm(&mut self) {
        if self.is_armed {
            self.ring.tell(false);
            self.is_armed = false;
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported)
}

impl Disk for Uring {
    fn limits(&self) -> Limits {
        self.gate.limits()
    }

    fn submit(&mut self, tag: u64, op: Op) -> Result<(), Refused> {
        let op = self.gate.admit(op)?;
        self.ring.push(tag, op);
        if self.ring.pending() >= PENDING_MAX {
            // Where it fails for good, the next poll says so again.
            let _ = self.ring.enter();
        }
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<usize> {
        self.disarm();
        self.ring.enter()?;
        Ok(self.take(done))
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<usize> {
        if self.ring.has_done() || self.gate.in_flight() == 0 {
            return self.poll(done);
        }
        self.disarm();
        let began = Instant::now();
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            self.ring.enter_and_wait(left)?;
            let count = self.take(done);
            if count > 0 || left.is_zero() {
                return Ok(count);
            }
        }
    }

    fn arm(&mut self) -> io::Result<bool> {
        // The counter is nobody's concern, and reads as nothing when it is zero.
        let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        if !self.is_armed {
            self.ring.tell(true);
            self.is_armed = true;
        }
        self.ring.enter_always()?;
        Ok(self.ring.has_done())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.eventfd.as_fd())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.file.free_bytes()
    }
}
