//! What a process uses: processor time, cache misses where the machine counts them, and passes.

use std::fs;
use std::io;
use std::path::Path;

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use serde::{Deserialize, Serialize};
use towpath_base::passes::{Counts, Pass};

/// Processor time of all threads that a process has now, in nanoseconds, user and system mode: the
/// kernel's own account in `/proc/PID/task/TID/schedstat`, which is exact where that of getrusage
/// may be of ticks.
///
/// # Errors
/// What the system says: the process is gone, or the kernel keeps no such account.
pub(super) fn cpu_ns(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))? {
        // A thread may end between the two looks.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        sum += parse(&text).ok_or(io::ErrorKind::InvalidData)?;
    }
    Ok(sum)
}

/// Time on a processor, time in its queue, turns (Documentation/scheduler/sched-stats.rst).
fn parse(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// Last-level cache misses of this process and of all threads that it starts from now on, if the
/// machine counts them: as a rule a virtual one does not.
pub(super) struct Misses(Option<Counter>);

impl Misses {
    /// Counts from now on; those of the kernel on our behalf too, where that is allowed.
    pub(super) fn count() -> Self {
        let build = |with_kernel: bool| {
            let mut builder = Builder::new(Hardware::CACHE_MISSES);
            builder.inherit(true).exclude_hv(true).exclude_kernel(!with_kernel);
            let mut counter = builder.build()?;
            counter.enable().map(|()| counter)
        };
        Self(build(true).or_else(|_| build(false)).ok())
    }

    /// How many so far.
    pub(super) fn read(&mut self) -> Option<u64> {
        self.0.as_mut().and_then(|counter| counter.read().ok())
    }
}

/// What a process did to memory in its life.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Bytes that passes went over, in the order of [`Pass::ALL`].
    pub(super) passes: [u64; Pass::ALL.len()],
    /// Misses of the last cache.
    pub(super) misses: Option<u64>,
}

impl Memory {
    /// Of this process until now.
    pub(super) fn until_now(misses: &mut Misses) -> Self {
        let counts = Counts::now();
        Self { passes: Pass::ALL.map(|pass| counts.of(pass)), misses: misses.read() }
    }

    /// Bytes of one kind.
    pub(super) fn of(&self, pass: Pass) -> u64 {
        self.passes[pass as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_grows_with_what_its_threads_do() {
        let pid = std::process::id();
        let before = cpu_ns(pid).expect("a Linux that keeps this account");
        let mut sum = 1_u64;
        while cpu_ns(pid).expect("it is still there") < before + 5_000_000 {
            sum = (0..100_000).fold(sum, |sum, n| sum.wrapping_mul(3) ^ n);
        }
        assert_ne!(sum, 0);
        assert!(cpu_ns(u32::MAX).is_err(), "no process has this number");
        assert_eq!(parse("580384 3936412 4\n"), Some(580_384));
        assert_eq!(parse("busy\n"), None);
    }
}
