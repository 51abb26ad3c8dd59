//! The device's clock, for threads that have no device.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use towpath_base::{Nanos, Time};

/// What the worker last read from the device's clock, and how to go on from there.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Host times are counted from here.
    start: Instant,
    /// The device's time at the start, by the last reading; or the last reading itself while the
    /// clock [stands still](Self::runs).
    base: AtomicU64,
    /// A thread drives the worker, so that the device's clock runs as the host's does.
    runs: AtomicBool,
}

impl Clock {
    pub(crate) fn new(now: Time) -> Self {
        let (base, runs) = (AtomicU64::new(now.0), AtomicBool::new(false));
        Self { start: Instant::now(), base, runs }
    }

    fn host(&self) -> Nanos {
        self.start.elapsed().into()
    }

    /// The worker has a thread.
    pub(crate) fn run(&self, now: Time) {
        self.base.store(now.0.wrapping_sub(self.host().0), Ordering::Relaxed);
        self.runs.store(true, Ordering::Release);
    }

    /// The device's clock reads `now`, to a worker without a thread.
    pub(crate) fn set(&self, now: Time) {
        self.base.store(now.0, Ordering::Relaxed);
    }

    /// The device's clock, about.
    pub(crate) fn now(&self) -> Time {
        let runs = self.runs.load(Ordering::Acquire);
        let base = self.base.load(Ordering::Relaxed);
        Time(if runs { base.wrapping_add(self.host().0) } else { base })
    }
}
