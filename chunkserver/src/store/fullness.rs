//! When the log says that the store is full, and when that it has room again.

use std::time::{Duration, Instant};

/// What is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fullness {
    /// A change found no room.
    Full,
    /// There is room again.
    Room,
}

/// What was said last, so that each is said once, and not more often than the log can bear.
#[derive(Debug, Default)]
pub(crate) struct Said {
    is_full: bool,
    at: Option<Instant>,
}

impl Said {
    /// Whether the log calls the store full.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether to say `fullness` now: if it was not said last, and nothing was within `every`.
    pub(crate) fn says(&mut self, fullness: Fullness, now: Instant, every: Duration) -> bool {
        let is_full = fullness == Fullness::Full;
        let is_soon = self.at.is_some_and(|at| now.duration_since(at) < every);
        if self.is_full == is_full || is_soon {
            return false;
        }
        (self.is_full, self.at) = (is_full, Some(now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_and_a_store_that_goes_to_and_fro_does_not_fill_the_log() {
        let mut said = Said::default();
        let start = Instant::now();
        let every = Duration::from_secs(60);
        let mut says =
            |fullness, seconds| said.says(fullness, start + Duration::from_secs(seconds), every);
        assert!(!says(Fullness::Room, 0), "nobody thought otherwise");
        assert!(says(Fullness::Full, 1));
        assert!(!says(Fullness::Full, 2));
        assert!(!says(Fullness::Room, 3), "too soon");
        assert!(!says(Fullness::Full, 4));
        assert!(says(Fullness::Room, 61), "it is said later");
        assert!(!says(Fullness::Full, 62));
        assert!(says(Fullness::Full, 121));
    }
}
