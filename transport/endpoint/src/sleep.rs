//! How the driver of an endpoint sleeps, and what wakes it.

use crate::away::Away;
use crate::bell::Bell;
use std::sync::Arc;
use std::task::Waker;
use towpath_base::{Nanos, Time};
use towpath_wake::AnyOf;

/// The sleep of an endpoint's driver.
pub(crate) struct Sleep {
    /// Rung by threads that give buffers back, and by handles.
    bell: Arc<Bell>,
    /// The files that end a sleep, where somebody asked for a descriptor.
    files: Option<AnyOf>,
    /// The driver waits for the files.
    is_waited_for: bool,
    /// Measures for how long nobody polled, where such an absence is noise in delays.
    away: Option<Away>,
}

impl Sleep {
    /// `waker` wakes the device's wait.
    pub(crate) fn new(waker: Option<Waker>, away: Option<Away>) -> Self {
        let bell = Arc::new(Bell::new(waker));
        Self { bell, files: None, is_waited_for: false, away }
    }

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// The driver is about to sleep; it looks once more for what is there already.
    pub(crate) fn begin(&mut self) {
        if let Some(away) = &mut self.away {
            away.rest();
        }
        self.bell.sleeps();
    }

    /// The same, where the driver waits for the files until the next [`end`](Self::end).
    pub(crate) fn begin_for_files(&mut self) {
        self.begin();
        self.is_waited_for = true;
    }

    /// Whether the driver waits for the files, or has just done so.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// The driver is awake.
    pub(crate) fn end(&mut self) {
        self.is_waited_for = false;
        self.bell.wakes();
    }

    /// The driver polls, which ends a wait for the files. Gives how long absences of the host are
    /// when that has changed.
    #[inline]
    pub(crate) fn on_poll(&mut self, now: Time) -> Option<Nanos> {
        if self.is_waited_for {
            self.end();
        }
        self.away.as_mut().and_then(|away| away.look(now))
    }

    /// How long an absence of the host is.
    pub(crate) fn absence(&self) -> Nanos {
        self.away.as_ref().map_or(Nanos::ZERO, Away::told)
    }

    /// The files that end a sleep.
    pub(crate) fn files(&self) -> Option<&AnyOf> {
        self.files.as_ref()
    }

    /// These files end a sleep from now on.
    pub(crate) fn wait_for(&mut self, files: AnyOf) {
        self.files = Some(files);
    }
}
