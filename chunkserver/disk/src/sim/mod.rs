//! A disk in memory and in virtual time, deterministic by its seed, with power cuts and faults.
//!
//! A [`Medium`] is the thing that keeps bytes, and what a test holds on to; a [`SimDisk`] is one
//! opening of it, and what a store drives. Time passes when a disk [waits](Disk::wait), or when
//! the test [says so](Medium::advance_to).
//!
//! ```
//! use std::time::Duration;
//! use towpath_disk::sim::{Loss, Medium};
//! use towpath_disk::{Disk, Op, PageNumber, WritePages};
//! # let pool = towpath_memory::Pool::with_count(4096, 1)?;
//! # let mut buf = pool.take().expect("a fresh pool");
//! # buf.set_len(4096)?;
//! let medium = Medium::new(7, 1024);
//! let mut disk = medium.open(32)?;
//! let mut done = Vec::new();
//! disk.submit(1, Op::write(PageNumber(5), WritePages::new(buf).expect("one page")))?;
//! disk.wait(Duration::from_secs(1), &mut done)?;
//! disk.submit(2, Op::Flush)?; // after the write was taken as done, so this makes it durable
//! disk.wait(Duration::from_secs(1), &mut done)?;
//! assert!(done.iter().all(|done| done.outcome.is_ok()));
//! medium.power_on(Loss::Everything); // of what was not durable
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod faults;
mod medium;
mod power;
mod state;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::disk::{Disk, Done, Limits, Refused};
use crate::gate::Gate;
use crate::op::Op;

pub use faults::Mischief;
pub use medium::{Medium, Spread, Timing};
pub use power::{Loss, SECTOR_BYTES};

/// One opening of a [`Medium`].
#[derive(Debug)]
pub struct SimDisk {
    medium: Medium,
    session: u64,
    gate: Gate,
}

impl Drop for SimDisk {
    /// What is under way is carried out first, as on a real disk.
    fn drop(&mut self) {
        self.medium.state().close(self.session);
    }
}

impl Disk for SimDisk {
    fn limits(&self) -> Limits {
        self.gate.limits()
    }

    fn submit(&mut self, tag: u64, op: Op) -> Result<(), Refused> {
        let op = self.gate.admit(op)?;
        self.medium.state().begin(self.session, tag, op);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<usize> {
        let before = done.len();
        let mut state = self.medium.state();
        while let Some((tag, op, outcome)) = state.end_next(self.session) {
            done.push(self.gate.finish(tag, op, outcome));
        }
        Ok(done.len() - before)
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<usize> {
        if self.gate.in_flight() > 0 {
            let mut state = self.medium.state();
            let latest = state.now + timeout.into();
            let next = state.next_at(self.session).unwrap_or(latest);
            state.now = state.now.max(next.min(latest));
        }
        self.poll(done)
    }

    fn arm(&mut self) -> io::Result<bool> {
        let state = self.medium.state();
        Ok(state.next_at(self.session).is_some_and(|at| at <= state.now))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.medium.state().free_bytes())
    }
}

#[cfg(test)]
mod tests;
