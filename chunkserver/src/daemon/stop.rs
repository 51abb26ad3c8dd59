//! The wish to stop, which signals and other threads may have.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
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

    /// Raises the flag on each of [`stop_signals`]; a second signal ends the process at once.
    ///
    /// # Errors
    /// What the system says when a signal cannot be caught.
    pub fn on_signals(&self) -> io::Result<()> {
        for signal in stop_signals() {
            // Order matters: the first signal finds the flag down and only raises it.
            flag::register_conditional_shutdown(signal, EXIT_AT_ONCE, Arc::clone(&self.0))?;
            flag::register(signal, Arc::clone(&self.0))?;
        }
        Ok(())
    }
}

/// The signals that ask a program to stop cleanly: SIGTERM and SIGINT, and SIGHUP, which comes when
/// a terminal closes, unless whoever started the program has it ignored, as `nohup` does.
#[must_use]
pub fn stop_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hang_up = (!is_ignored(&status, SIGHUP)).then_some(SIGHUP);
    [SIGTERM, SIGINT].into_iter().chain(hang_up).collect()
}

/// Whether the line `SigIgn` of a status file of proc(5) has the bit of a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_was_ignored_at_the_start_is_known_by_its_bit() {
        let status = |mask: &str| format!("Name:\tp\nSigBlk:\tffff\nSigIgn:\t{mask}\n");
        assert!(is_ignored(&status("0000000000000001"), SIGHUP));
        assert!(!is_ignored(&status("0000000000001006"), SIGHUP));
        assert!(is_ignored(&status("0000000000004000"), SIGTERM));
        assert!(!is_ignored("", SIGHUP) && !is_ignored(&status("no mask"), SIGHUP));
    }
}
