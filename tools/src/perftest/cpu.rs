//! The CPU use of the whole machine and of this thread, from the kernel's own account.

use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread so far, in user and system mode, in nanoseconds.
pub(crate) fn ns_of_thread() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is negative on this clock.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Time that all CPUs together have spent, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuTime {
    busy: u64,
    all: u64,
}

impl CpuTime {
    /// Until now; `None` where the system does not tell.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of `/proc/stat`: `cpu user nice system idle iowait ...` (proc(5)).
    fn parse(stat: &str) -> Option<Self> {
        let ticks = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = ticks.split_whitespace().map_while(|n| n.parse().ok()).collect();
        let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
        // The two guest times at the end are part of user and nice already.
        let all: u64 = ticks.iter().take(8).sum();
        Some(Self { busy: all - idle, all })
    }

    /// Percent of all CPUs together since `earlier`; `None` when less than a tick has passed.
    pub(crate) fn percent_since(self, earlier: Self) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|&ticks| ticks > 0)?;
        Some(self.busy.saturating_sub(earlier.busy) as f64 * 100.0 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_idle_is_busy() {
        let before = CpuTime::parse("cpu  100 0 50 800 50 0 0 0 9 9\ncpu0 1 2\n").unwrap();
        let after = CpuTime::parse("cpu  130 0 70 840 60 0 0 0 9 9\n").unwrap();
        assert_eq!(after.percent_since(before), Some(50.0));
        assert_eq!(before.percent_since(before), None);
        assert_eq!(CpuTime::parse("intr 1 2 3\n"), None);
    }
}
