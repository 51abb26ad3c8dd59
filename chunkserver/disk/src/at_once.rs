//! A disk that is memory: whoever asks for an operation does it, since none ever waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use towpath_wake::Bell;

use crate::disk::{Disk, Done, Limits, Refused};
use crate::file::DiskFile;
use crate::gate::Gate;
use crate::op::Op;
use crate::threads::carry_out;

/// A disk on a file system in memory.
#[derive(Debug)]
pub(crate) struct AtOnce {
    file: DiskFile,
    gate: Gate,
    ended: Vec<(u64, Op, io::Result<()>)>,
    /// Nobody rings it: what is done is there when somebody is about to wait.
    bell: Bell,
}

impl AtOnce {
    pub(crate) fn new(file: DiskFile, depth: usize) -> io::Result<Self> {
        let gate = Gate::new(file.page_count, depth, file.can_discard);
        Ok(Self { file, gate, ended: Vec::new(), bell: Bell::new()? })
    }
}

impl Disk for AtOnce {
    fn limits(&self) -> Limits {
        self.gate.limits()
    }

    fn submit(&mut self, tag: u64, op: Op) -> Result<(), Refused> {
        let mut op = self.gate.admit(op)?;
        let outcome = carry_out(&self.file, &mut op);
        self.ended.push((tag, op, outcome));
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<usize> {
        let count = self.ended.len();
        for (tag, op, outcome) in self.ended.drain(..) {
            done.push(self.gate.finish(tag, op, outcome));
        }
        Ok(count)
    }

    fn wait(&mut self, _: Duration, done: &mut Vec<Done>) -> io::Result<usize> {
        self.poll(done)
    }

    fn arm(&mut self) -> io::Result<bool> {
        Ok(!self.ended.is_empty())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.file.free_bytes()
    }
}
