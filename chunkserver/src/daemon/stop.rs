//! The wish to stop, which signals and other threads may have.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

/// Exit code after a second signal: the work under way was dropped.
const EXIT_AT_ONCE: i32 = 130;

/// A flag that asks a server to stop cleanly. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<Wish>);

#[derive(Debug, Default)]
struct Wish {
    /// Signal handlers raise it too.
    is_raised: Arc<AtomicBool>,
    /// What to wake when it is raised.
    wakers: Mutex<Vec<Waker>>,
    /// For threads that wait for nothing but time; with `wakers`.
    raised: Condvar,
}

impl StopFlag {
    /// A flag that is not raised.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for the stop, and wakes whoever is [to be woken](Self::wakes).
    pub fn stop(&self) {
        let wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.is_raised.store(true, Ordering::SeqCst);
        wakers.iter().for_each(Waker::wake_by_ref);
        self.0.raised.notify_all();
    }

    /// Has `waker` woken when the flag is raised, at once if it is: for a thread that looks at the
    /// flag only when it is woken.
    pub fn wakes(&self, waker: Waker) {
        let mut wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped() {
            waker.wake_by_ref();
        }
        wakers.push(waker);
    }

    /// Sleeps until `end`, or until the flag is raised.
    pub(crate) fn sleep_until(&self, end: Instant) {
        let mut wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_stopped() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.0.raised.wait_timeout(wakers, left);
            wakers = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the stop was asked for.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.is_raised.load(Ordering::Relaxed)
    }

    /// Raises the flag on each of [`stop_signals`]; a second signal ends the process at once.
    ///
    /// # Errors
    /// What the system says when a signal cannot be caught, or a thread cannot be had.
    pub fn on_signals(&self) -> io::Result<()> {
        let (mut told, tell) = UnixStream::pair()?;
        for signal in stop_signals() {
            let is_raised = &self.0.is_raised;
            // Order matters: the first signal finds the flag down and only raises it.
            flag::register_conditional_shutdown(signal, EXIT_AT_ONCE, Arc::clone(is_raised))?;
            flag::register(signal, Arc::clone(is_raised))?;
            pipe::register(signal, tell.try_clone()?)?;
        }
        // A signal handler may wake nobody, so a thread does.
        let flag = self.clone();
        let wait = move || {
            if told.read_exact(&mut [0]).is_ok() {
                flag.stop();
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
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
    fn whoever_waits_is_woken_when_the_flag_is_raised_and_at_once_behind_that() {
        let far = Instant::now() + std::time::Duration::from_secs(3600);
        let (flag, mut bell) = (StopFlag::new(), towpath_wake::Bell::new().expect("two sockets"));
        flag.wakes(bell.waker());
        assert!(!bell.clear(), "nobody wants to stop yet");
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| flag.sleep_until(far));
            flag.stop();
            sleeper.join().expect("no panic");
        });
        assert!(bell.clear());
        flag.wakes(bell.waker());
        assert!(bell.clear(), "it is late");
        flag.sleep_until(far);
    }

    #[test]
    fn a_signal_that_was_ignored_at_the_start_is_known_by_its_bit() {
        let status = |mask: &str| format!("Name:\tp\nSigBlk:\tffff\nSigIgn:\t{mask}\n");
        assert!(is_ignored(&status("0000000000000001"), SIGHUP));
        assert!(!is_ignored(&status("0000000000001006"), SIGHUP));
        assert!(is_ignored(&status("0000000000004000"), SIGTERM));
        assert!(!is_ignored("", SIGHUP) && !is_ignored(&status("no mask"), SIGHUP));
    }
}
