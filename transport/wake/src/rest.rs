//! The mark of one who sleeps, so that it is woken only then.

use crate::sync::{AtomicBool, fence};
use std::sync::atomic::Ordering;

/// Says whether somebody sleeps. To wake him costs a system call, which those who have something
/// for him spare while he is awake.
///
/// The sleeper calls [`begin`](Self::begin), then looks once more, then sleeps: whoever puts
/// something there after that look sees the mark, and wakes him.
#[derive(Debug, Default)]
pub struct Rest {
    asleep: AtomicBool,
}

impl Rest {
    /// The sleeper is about to sleep, and looks once more after this call.
    pub fn begin(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The sleeper is awake.
    pub fn end(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Whether the caller is the one who has to wake the sleeper, for whom it has put something
    /// where he looks.
    #[must_use]
    #[inline]
    pub fn is_to_be_woken(&self) -> bool {
        // What was put there is visible before the mark is read.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst)
    }
}
