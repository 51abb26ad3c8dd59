//! Unfinished chunks: when each was written to last, so that those nobody goes on with can go.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::limits::{OPEN_KEEP, SWEEP_EVERY, SWEEP_MAX};
use super::slice::ChunkId;

/// When each unfinished chunk was made or written to last, or the store was opened.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    touched: HashMap<ChunkId, Touched>,
    /// When somebody looks for overdue ones again.
    look_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Touched {
    /// When it was made or written to.
    at: Instant,
    /// When its maker was there, or it was written to.
    kept_at: Instant,
}

impl Touched {
    fn at(now: Instant) -> Self {
        Self { at: now, kept_at: now }
    }
}

impl Unfinished {
    pub(super) fn new(chunks: impl Iterator<Item = ChunkId>, now: Instant) -> Self {
        Self { touched: chunks.map(|chunk| (chunk, Touched::at(now))).collect(), look_at: None }
    }

    /// An unfinished chunk was made.
    pub(super) fn touch(&mut self, chunk: ChunkId, now: Instant) {
        self.touched.insert(chunk, Touched::at(now));
    }

    /// A chunk is written to, which may be unfinished.
    pub(super) fn touch_known(&mut self, chunk: ChunkId) {
        if !self.touched.is_empty()
            && let Some(touched) = self.touched.get_mut(&chunk)
        {
            *touched = Touched::at(Instant::now());
        }
    }

    /// The link that has made a chunk is there; whether it keeps the chunk: not for good.
    pub(super) fn keep(&mut self, chunk: ChunkId, now: Instant) -> bool {
        let Some(touched) = self.touched.get_mut(&chunk) else { return false };
        touched.kept_at = now;
        now.saturating_duration_since(touched.at) < OPEN_KEEP
    }

    pub(super) fn forget(&mut self, chunk: ChunkId) {
        self.touched.remove(&chunk);
    }

    /// Some of the chunks that nobody has touched for `keep`. They stay known until they are
    /// [forgotten](Self::forget). None where the last look was a moment ago.
    pub(super) fn overdue(&mut self, now: Instant, keep: Duration) -> Vec<ChunkId> {
        if self.touched.is_empty() || self.look_at.is_some_and(|at| now < at) {
            return Vec::new();
        }
        self.look_at = Some(now + SWEEP_EVERY.min(keep));
        let is_overdue = |touched: &Touched| now.saturating_duration_since(touched.kept_at) >= keep;
        let overdue = self.touched.iter().filter(|(_, touched)| is_overdue(touched));
        overdue.map(|(chunk, _)| *chunk).take(SWEEP_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_overdue_when_nobody_has_touched_it_for_as_long_as_it_is_kept() {
        let (start, keep) = (Instant::now(), Duration::from_secs(10));
        let mut unfinished = Unfinished::new([ChunkId(1), ChunkId(2)].into_iter(), start);
        assert!(unfinished.overdue(start + keep / 2, keep).is_empty());
        unfinished.touch(ChunkId(2), start + keep / 2);
        assert_eq!(unfinished.overdue(start + keep, keep), [ChunkId(1)]);
        unfinished.forget(ChunkId(1));
        assert!(unfinished.overdue(start + keep, keep).is_empty());
        assert_eq!(unfinished.overdue(start + 2 * keep, keep), [ChunkId(2)]);
    }

    #[test]
    fn a_chunk_whose_maker_is_there_is_kept_for_long_and_not_for_good() {
        let (start, keep) = (Instant::now(), Duration::from_secs(10));
        let mut unfinished = Unfinished::new([ChunkId(1)].into_iter(), start);
        assert_eq!(unfinished.overdue(start + keep, keep), [ChunkId(1)]);
        assert!(unfinished.keep(ChunkId(1), start + keep));
        assert!(unfinished.overdue(start + keep * 2 - SWEEP_EVERY, keep).is_empty());
        assert_eq!(unfinished.overdue(start + keep * 2, keep), [ChunkId(1)]);
        assert!(!unfinished.keep(ChunkId(1), start + OPEN_KEEP));
        assert!(!unfinished.keep(ChunkId(2), start), "nobody knows it");
    }

    #[test]
    fn only_some_go_at_a_time() {
        let (start, keep) = (Instant::now(), Duration::ZERO);
        let many = (0..1000).map(ChunkId);
        assert_eq!(Unfinished::new(many, start).overdue(start, keep).len(), SWEEP_MAX);
    }
}
