//! The wish to stop, which signals and other threads may have.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Exit code after a second signal: the work under way was dropped.
const EXIT_AT_ONCE: i32 = 130;

/// A flag that asks a server to stop cleanly. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// A flag that is not raised.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for the stop.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the stop was asked for.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the flag on SIGTERM and SIGINT; a second signal ends the process at once.
    ///
    /// # Errors
    /// What the system says when a signal cannot be caught.
    pub fn on_signals(&self) -> io::Result<()> {
        for signal in [SIGTERM, SIGINT] {
            // Order matters: the first signal finds the flag down and only raises it.
            flag::register_conditional_shutdown(signal, EXIT_AT_ONCE, Arc::clone(&self.0))?;
            flag::register(signal, Arc::clone(&self.0))?;
        }
        Ok(())
    }
}
