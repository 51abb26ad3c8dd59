//! Ctrl-C, SIGTERM and SIGHUP, seen by whatever loops.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use towpath_chunkserver::daemon::stop_signals;

/// Exit code after an interruption: 128 and the number of SIGINT, as shells have it.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Somebody asked this program to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Whether somebody asked this program to stop. Clones are the same wish.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Sees SIGINT, SIGTERM and SIGHUP (unless that is ignored, as under `nohup`) from now on; the
    /// second signal ends the program at once.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in stop_signals() {
            // Order matters: the first signal finds the flag down and only raises it.
            let code = EXIT_INTERRUPTED.into();
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&flag))?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// Goes on unless somebody asked to stop.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }
}
