//! What ends the sleep of the thread that drives an endpoint.

use std::task::Waker;
use towpath_wake::Rest;

/// Threads ring it when they have put something where the driver of an endpoint looks. A ring
/// costs a system call only while the driver sleeps.
///
/// The driver calls [`sleeps`](Self::sleeps), then looks once more, then sleeps: whoever puts
/// something there after that look sees the mark and wakes the driver.
#[derive(Debug, Default)]
pub struct Bell {
    rest: Rest,
    /// None where the device cannot be woken.
    waker: Option<Waker>,
}

impl Bell {
    /// A bell that the waker rings.
    #[must_use]
    pub fn new(waker: Option<Waker>) -> Self {
        Self { rest: Rest::default(), waker }
    }

    /// Wakes the driver if it sleeps. Call it after putting something where the driver looks.
    pub fn ring(&self) {
        if self.rest.is_to_be_woken()
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }

    /// Wakes whoever sleeps where the driver does, or the next one that would.
    pub fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// The driver is about to sleep, and looks once more after this call.
    pub fn sleeps(&self) {
        self.rest.begin();
    }

    /// The driver is awake.
    pub fn wakes(&self) {
        self.rest.end();
    }

    /// Whether a ring ends the driver's sleep.
    pub fn is_heard(&self) -> bool {
        self.waker.is_some()
    }
}
