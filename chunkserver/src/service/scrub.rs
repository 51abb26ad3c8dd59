//! A scrub over several steps, and what it found.

use towpath_fastpath::control::{DamagedSlice, ScrubReply};
use towpath_fastpath::limits::SCRUB_NAMED_MAX;

use super::limits::{SCRUB_BUDGET_DEFAULT, SCRUB_BUDGET_MAX, SCRUB_STEP_SLICES};
use crate::store::ScrubReport;

/// A scrub under way.
#[derive(Debug)]
pub(super) struct Scrub {
    left: u64,
    step_max: u64,
    found: ScrubReply,
}

impl Scrub {
    /// A scrub of so many slices; 0: as the server likes.
    pub(super) fn new(budget_slices: u64) -> Self {
        let left = match budget_slices {
            0 => SCRUB_BUDGET_DEFAULT,
            slices => slices.min(SCRUB_BUDGET_MAX),
        };
        Self { left, step_max: SCRUB_STEP_SLICES, found: ScrubReply::default() }
    }

    /// Slices still to check.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Slices of the next step.
    pub(super) fn step(&self) -> u64 {
        self.left.min(self.step_max)
    }

    /// Steps have so many slices at most from now on; whether that makes the next one shorter.
    pub(super) fn shorten(&mut self, slices: u64) -> bool {
        let before = self.step();
        self.step_max = self.step_max.min(slices).max(1);
        self.step() < before
    }

    /// Takes in what a step found.
    pub(super) fn add(&mut self, report: &ScrubReport) {
        let found = &mut self.found;
        found.slices += report.slices;
        found.bytes += report.bytes;
        found.damaged_count += report.corrupt.len() as u64;
        found.unreadable_count += report.unreadable.len() as u64;
        let room = SCRUB_NAMED_MAX - found.damaged.len();
        found.damaged.extend(report.corrupt.iter().take(room).map(|damaged| DamagedSlice {
            chunk: damaged.chunk.into(),
            slice: damaged.slice,
            file: damaged.file.clone(),
            offset: damaged.offset,
        }));
        for damaged in &report.corrupt {
            tracing::error!(error = %damaged, "scrub met a damaged slice");
        }
        for error in &report.unreadable {
            tracing::error!(%error, "scrub met a slice that cannot be read");
        }
        found.pass_done = report.pass_done;
        // A step that did nothing has nothing left to do either: a store without slices.
        self.left = if report.pass_done { 0 } else { self.left.saturating_sub(report.slices) };
    }

    pub(super) fn into_reply(self) -> ScrubReply {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ChunkId, SliceCorrupt};

    fn report(slices: u64, corrupt: u64, pass_done: bool) -> ScrubReport {
        let damaged = |slice| SliceCorrupt {
            chunk: ChunkId(1),
            slice,
            file: String::from("data.0000"),
            offset: 4096 * slice,
        };
        let corrupt = (0..corrupt).map(damaged).collect();
        let (bytes, unreadable, next) = (slices * 4096, Vec::new(), Default::default());
        ScrubReport { slices, bytes, corrupt, unreadable, pass_done, next }
    }

    #[test]
    fn steps_add_up_and_the_end_of_a_pass_ends_the_scrub() {
        let mut scrub = Scrub::new(600);
        scrub.add(&report(256, 0, false));
        assert_eq!(scrub.left(), 344);
        scrub.add(&report(100, 2, true));
        assert_eq!(scrub.left(), 0);
        let found = scrub.into_reply();
        assert_eq!((found.slices, found.damaged_count, found.pass_done), (356, 2, true));
        assert_eq!(found.damaged[1].offset, 4096);
    }

    #[test]
    fn only_so_many_damaged_slices_are_named_and_all_are_counted() {
        let mut scrub = Scrub::new(u64::MAX);
        scrub.add(&report(256, 200, false));
        scrub.add(&report(256, 200, false));
        let found = scrub.into_reply();
        assert_eq!((found.damaged.len(), found.damaged_count), (SCRUB_NAMED_MAX, 400));
    }
}
