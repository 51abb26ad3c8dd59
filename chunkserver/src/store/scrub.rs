//! Scrub: checks every committed slice, some at a time.

use super::engine::Store;
use super::error::SliceCorrupt;
use super::map::SliceRef;
use super::media::{Media, MediaError};
use super::pages::{SliceFault, SliceName};
use super::slice::{ChunkId, SLICE_BYTES};

/// Where the next step goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScrubCursor {
    chunk: ChunkId,
    slice: u64,
}

/// What one step found.
#[derive(Debug, Default)]
pub struct ScrubReport {
    /// Slices checked.
    pub slices: u64,
    /// Bytes read for it.
    pub bytes: u64,
    /// Damaged slices, and where they lie.
    pub corrupt: Vec<SliceCorrupt>,
    /// Slices that the medium would not read.
    pub unreadable: Vec<MediaError>,
    /// The step reached the last slice of the last chunk: the next one begins a new pass.
    pub pass_done: bool,
}

impl<M: Media> Store<M> {
    /// Checks up to `budget_slices` more slices. Chunks that are made or deleted between two
    /// steps are met or missed according to their name; nothing else is passed over.
    pub fn scrub_step(&mut self, budget_slices: u64) -> ScrubReport {
        let mut report = ScrubReport::default();
        while report.slices < budget_slices {
            let ScrubCursor { chunk, slice } = self.scrub;
            let Some((name, at)) = self.next_slice(chunk, slice) else {
                report.pass_done = true;
                self.scrub = ScrubCursor::default();
                break;
            };
            self.scrub = ScrubCursor { chunk: name.chunk, slice: name.slice + 1 };
            report.slices += 1;
            report.bytes += SLICE_BYTES as u64;
            match self.pages.load(&self.media, name, at, &mut self.scratch[..]) {
                Ok(()) => {}
                Err(SliceFault::Corrupt(corrupt)) => report.corrupt.push(corrupt),
                Err(SliceFault::Media(error)) => report.unreadable.push(error),
            }
        }
        self.counts.slices_scrubbed += report.slices;
        report
    }

    /// The first written slice at or after `slice` of `chunk`.
    fn next_slice(&self, chunk: ChunkId, slice: u64) -> Option<(SliceName, SliceRef)> {
        self.map.chunks.range(chunk..).find_map(|(id, found)| {
            let from = if *id == chunk { slice } else { 0 };
            let (slice, at) = found.slices_from(from).next()?;
            Some((SliceName { chunk: *id, slice }, at))
        })
    }
}
