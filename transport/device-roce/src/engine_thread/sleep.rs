//! What the thread of a device sleeps on, and what ends the sleep of others.

use super::Signals;
use crate::udp::sys::wait_readable;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;
use towpath_verbs::Device;
use towpath_wake::{AnyOf, Bell};

/// How the thread sleeps: on the files of its device where it has some, and on a bell, which those
/// ring who post.
pub(super) struct Nap {
    bell: Bell,
    /// None where the system does not tell of packets.
    files: Option<AnyOf>,
}

impl Nap {
    pub(super) fn for_device(device: &mut impl Device) -> io::Result<Self> {
        let (bell, files) = (Bell::new()?, AnyOf::new()?);
        files.add(&bell)?;
        let has_files = device.add_to_epoll(files.as_fd().as_raw_fd());
        Ok(Self { bell, files: has_files.then_some(files) })
    }

    /// What ends a sleep.
    pub(super) fn waker(&self) -> Waker {
        self.bell.waker()
    }

    pub(super) fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// Sleeps until there is something, or for `due`; where nobody tells of packets for `longest`
    /// at most.
    pub(super) fn sleep(&mut self, due: Duration, longest: Duration) {
        let (file, span) = match &self.files {
            Some(files) => (files.as_fd(), due),
            None => (self.bell.as_fd(), due.min(longest)),
        };
        if !span.is_zero() {
            wait_readable([file.as_raw_fd()], span);
        }
        self.bell.clear();
    }
}

/// One who may sleep until there are new completions.
#[derive(Debug)]
pub(super) struct Sleeper {
    signals: Arc<Signals>,
    rests: AtomicBool,
    waker: Waker,
}

impl Sleeper {
    /// It is about to sleep: looks once more after this.
    pub(super) fn rest(&self) {
        if !self.rests.swap(true, Ordering::SeqCst) {
            self.signals.resting.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// It is awake; false when it was.
    #[inline]
    pub(super) fn wake(&self) -> bool {
        let did_rest =
            self.rests.load(Ordering::SeqCst) && self.rests.swap(false, Ordering::SeqCst);
        if did_rest {
            self.signals.resting.fetch_sub(1, Ordering::SeqCst);
        }
        did_rest
    }

    /// Wakes it.
    pub(super) fn rouse(&self) {
        if self.wake() {
            self.waker.wake_by_ref();
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.wake();
    }
}

/// What ends the wait of a handle.
#[derive(Debug)]
pub(super) struct Ears {
    pub(super) bell: Bell,
    pub(super) sleeper: Arc<Sleeper>,
}

impl Ears {
    /// None where the system has no files to give.
    pub(super) fn new(signals: &Arc<Signals>) -> Option<Self> {
        let bell = Bell::new().ok()?;
        let (signals, waker) = (Arc::clone(signals), bell.waker());
        let sleeper = Sleeper { signals, rests: AtomicBool::new(false), waker };
        Some(Self { bell, sleeper: Arc::new(sleeper) })
    }
}
