//! How much of the processors' time the host of a virtual machine took for others: where it is
//! much, figures are the host's.

use std::fs;

/// Where steal stands among the kinds of time of a line `cpu` in `/proc/stat` (proc(5)); guests'
/// time, behind it, is part of the first two.
const STEAL: usize = 7;

/// Ticks of all processors since they were started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    /// Until now; none where the system does not tell.
    pub(super) fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let kinds: Option<Vec<u64>> =
            line.split_whitespace().take(STEAL + 1).map(|ticks| ticks.parse().ok()).collect();
        let kinds = kinds?;
        Some(Self { all: kinds.iter().sum(), stolen: *kinds.get(STEAL)? })
    }

    /// What was taken since, in percent.
    pub(super) fn stolen_percent_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        100.0 * self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_a_share_of_all_time_without_that_of_guests_twice() {
        let before = Ticks::of("cpu  10 0 10 70 0 0 0 10 5 0\ncpu0 1 1 1\n").unwrap();
        assert_eq!(before, Ticks { all: 100, stolen: 10 });
        let now = Ticks::of("cpu  60 0 10 90 0 0 0 40 55 0\n").unwrap();
        assert_eq!(now.stolen_percent_since(before), 30.0);
        assert_eq!(before.stolen_percent_since(before), 0.0);
    }

    #[test]
    fn a_system_that_tells_less_tells_nothing() {
        for stat in ["", "cpu  1 2 3 4\n", "cpu  1 2 3 x 5 6 7 8\n", "intr 1 2 3\n"] {
            assert_eq!(Ticks::of(stat), None, "{stat}");
        }
    }
}
