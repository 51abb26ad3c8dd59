//! Whether a store makes the thread that works it sleep.

use nix::sys::resource::{UsageWho, getrusage};

use super::limits::WAKEFUL_BATCHES;

/// How often the calling thread has slept; none where the system does not say. To be preempted is
/// not to sleep: so it is the medium that this tells of, and not how busy the machine is.
fn times_slept() -> Option<i64> {
    getrusage(UsageWho::RUSAGE_THREAD).ok().map(|usage| usage.voluntary_context_switches())
}

/// Does `work`; gives what it gives, and whether the thread slept meanwhile (or nobody knows).
pub(super) fn watched<T>(work: impl FnOnce() -> T) -> (T, bool) {
    let before = times_slept();
    let done = work();
    let slept = before.is_none() || times_slept() != before;
    (done, slept)
}

/// What the last batches say of the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wakeful {
    /// Batches with a commit since the last one that slept, up to [`WAKEFUL_BATCHES`].
    in_a_row: u32,
}

impl Wakeful {
    /// Takes in how a batch was done; whether the next one will hardly sleep. What was in memory
    /// anyway says nothing of the medium, so only commits earn trust, and any sleep ends it: a few
    /// changes that wait for a disk, among many questions, are what a network thread cannot afford.
    pub(super) fn after(&mut self, slept: bool, committed: bool) -> bool {
        if slept {
            self.in_a_row = 0;
        } else if committed {
            self.in_a_row = (self.in_a_row + 1).min(WAKEFUL_BATCHES);
        }
        self.in_a_row == WAKEFUL_BATCHES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_thread_that_sleeps_is_told_from_one_that_works() {
        let (done, slept) = watched(|| std::thread::sleep(Duration::from_millis(1)));
        assert!(slept, "{done:?}");
        // To be preempted is not to sleep, so this holds on any machine.
        let (sum, slept) =
            watched(|| (0..1_000_000u64).fold(0, |sum, n| sum ^ n.wrapping_mul(sum + n)));
        assert!(!slept, "{sum}");
    }

    #[test]
    fn trust_comes_slowly_and_goes_at_once() {
        let mut wakeful = Wakeful::default();
        for _ in 1..WAKEFUL_BATCHES {
            assert!(!wakeful.after(false, true));
            assert!(!wakeful.after(false, false), "that says nothing");
        }
        assert!(wakeful.after(false, true) && wakeful.after(false, false));
        assert!(!wakeful.after(true, false));
        for _ in 1..WAKEFUL_BATCHES {
            assert!(!wakeful.after(false, true));
        }
        assert!(wakeful.after(false, true));
    }
}
