//! Completion queues, with what was taken from the driver and not yet by the application.

use crate::sys;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Waker;
use towpath_verbs::{CqNum, Verb, VerbError, Wc};
use towpath_wake::Bell;

/// One completion queue.
pub(crate) struct Cq {
    pub(crate) raw: Arc<sys::Cq>,
    /// Completions that go out before those that the driver still has.
    pub(crate) pending: VecDeque<Wc>,
    /// The driver was asked to tell of the next one.
    pub(crate) armed: bool,
    /// It has lost completions.
    pub(crate) failed: bool,
}

/// All of a device.
pub(crate) struct Cqs {
    entries: Vec<Cq>,
    channel: Arc<sys::Channel>,
    timestamps: bool,
    bell: Bell,
    /// What else ends a wait; below zero when there is nothing.
    watched: c_int,
}

impl Cqs {
    pub(crate) fn new(channel: Arc<sys::Channel>, timestamps: bool) -> Result<Self, VerbError> {
        let bell = Bell::new().map_err(|_| VerbError::OutOfResources(Verb::OpenDevice))?;
        Ok(Self { entries: Vec::new(), channel, timestamps, bell, watched: -1 })
    }

    /// What ends a [`wait`](Self::wait).
    pub(crate) fn waker(&self) -> Waker {
        self.bell.waker()
    }

    /// Lets a file end a [`wait`](Self::wait), too.
    pub(crate) fn watch_file(&mut self, file: c_int) {
        self.watched = file;
    }

    /// Adds what ends a [`wait`](Self::wait) to an epoll instance.
    pub(crate) fn add_to_epoll(&self, epoll: c_int) -> bool {
        self.channel.add_to_epoll(self.bell.as_fd(), epoll)
    }

    pub(crate) fn create(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        if depth == 0 {
            return Err(VerbError::BadArgument(Verb::CreateCq));
        }
        let number = self.entries.len();
        let raw = Arc::new(sys::Cq::new(&self.channel, depth, number, self.timestamps)?);
        let pending = VecDeque::with_capacity(depth as usize);
        self.entries.push(Cq { raw, pending, armed: false, failed: false });
        Ok(CqNum(number as u32))
    }

    pub(crate) fn find(&self, cq: CqNum) -> Option<&Cq> {
        self.entries.get(cq.0 as usize)
    }

    pub(crate) fn find_mut(&mut self, cq: CqNum) -> Option<&mut Cq> {
        self.entries.get_mut(cq.0 as usize)
    }

    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn any_pending(&self) -> bool {
        self.entries.iter().any(|cq| !cq.pending.is_empty())
    }

    /// Asks to be told of what completes from here on.
    pub(crate) fn arm(&mut self) {
        for cq in self.entries.iter_mut().filter(|cq| !cq.armed) {
            cq.raw.request_notify();
            cq.armed = true;
        }
    }

    /// Blocks, and takes the notifications in; says whether the bell was rung, or the watched file
    /// has something.
    pub(crate) fn wait(&mut self, timeout_ns: u64) -> bool {
        let readable = self.channel.wait(self.bell.as_fd(), self.watched, timeout_ns);
        while let Some(number) = self.channel.notified() {
            if let Some(cq) = self.entries.get_mut(number) {
                cq.armed = false;
            }
        }
        self.bell.clear() | readable
    }
}
