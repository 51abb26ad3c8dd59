//! What a process uses, by the kernel's own account under `/proc`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Processor time of all threads that a process has now, in nanoseconds, user and system mode: the
/// kernel's own account in `/proc/PID/task/TID/schedstat`, which is exact where that of getrusage
/// may be of ticks.
///
/// # Errors
/// What the system says: the process is gone, or the kernel keeps no such account.
pub(super) fn cpu_ns(pid: u32) -> io::Result<u64> {
    of_threads(pid, "schedstat", time_of)
}

/// How often the threads that a process has now left a processor, by choice or not.
///
/// # Errors
/// As of [`cpu_ns`].
pub(super) fn switches(pid: u32) -> io::Result<u64> {
    of_threads(pid, "status", switches_of)
}

/// The sum over all threads of a process.
fn of_threads(pid: u32, file: &str, of: fn(&str) -> Option<u64>) -> io::Result<u64> {
    let tasks: PathBuf = Path::new("/proc").join(pid.to_string()).join("task");
    let mut sum = 0;
    for task in fs::read_dir(tasks)? {
        // A thread may end between the two looks.
        let Ok(text) = fs::read_to_string(task?.path().join(file)) else { continue };
        sum += of(&text).ok_or(io::ErrorKind::InvalidData)?;
    }
    Ok(sum)
}

/// Time on a processor, time in its queue, turns (Documentation/scheduler/sched-stats.rst).
fn time_of(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// `voluntary_ctxt_switches` and `nonvoluntary_ctxt_switches` (proc_pid_status(5)).
fn switches_of(status: &str) -> Option<u64> {
    let lines = status.lines().filter_map(|line| line.split_once(":"));
    let counts = lines.filter(|(name, _)| name.ends_with("voluntary_ctxt_switches"));
    let counts: Vec<u64> =
        counts.map(|(_, count)| count.trim().parse().ok()).collect::<Option<_>>()?;
    (counts.len() == 2).then(|| counts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_switches_are_counted() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t35\n";
        assert_eq!(switches_of(status), Some(42));
        assert_eq!(switches_of("Name:\tx\nvoluntary_ctxt_switches:\t7\n"), None);
        assert_eq!(time_of("580384 3936412 4\n"), Some(580_384));
        assert_eq!(time_of("busy\n"), None);
        assert!(cpu_ns(u32::MAX).is_err(), "no process has this number");
    }

    #[test]
    fn this_process_has_used_something() {
        let pid = std::process::id();
        assert!(cpu_ns(pid).expect("it is there") > 0);
        let before = switches(pid).expect("it is there");
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(switches(pid).expect("it is there") > before, "sleeping leaves the processor");
    }
}
