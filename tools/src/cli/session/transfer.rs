//! Many reads or writes under way at a time.

use std::ops::Range;

use towpath_fastpath::{ChunkId, Output, ReadData};
use towpath_transport::{Device, Region};

use super::window::{Window, take_buf};
use super::{Pace, Session, SessionError};

/// How far reads run ahead of the oldest that is not done, in what is under way at a time: who
/// puts them in order keeps no more than this, and one slow read does not hold up all others.
const READ_AHEAD_DEPTHS: u64 = 2;

/// How much is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pipeline {
    /// Requests at a time.
    pub depth: usize,
    /// Bytes of one request.
    pub op_bytes: u64,
}

impl Pipeline {
    /// Requests of `op_bytes`, or of as much as both ends of a session take at a time.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn fitting<D: Device<Memory = Region>, P: Pace<D>>(
        session: &mut Session<D, P>,
        depth: u32,
        op_bytes: u64,
    ) -> Result<Self, SessionError> {
        let op_bytes = op_bytes.min(session.io_bytes_max()?);
        Ok(Self { depth: depth as usize, op_bytes })
    }
}

/// A chunk that is read, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub chunk: ChunkId,
    /// By READs, as far as the server has it in memory.
    pub resident: bool,
}

impl From<ChunkId> for Source {
    /// By requests.
    fn from(chunk: ChunkId) -> Self {
        Self { chunk, resident: false }
    }
}

/// Bytes of a chunk that belong to one request.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u64,
    byte_len: usize,
}

/// The parts of a range that were not begun yet.
struct Parts {
    next: u64,
    end: u64,
    op_bytes: u64,
}

impl Parts {
    fn new(range: Range<u64>, pipeline: Pipeline) -> Self {
        Self { next: range.start, end: range.end, op_bytes: pipeline.op_bytes }
    }

    /// The next part, which is begun unless there is no room for it.
    fn next(&self) -> Option<Part> {
        let byte_len = self.op_bytes.min(self.end - self.next) as usize;
        (byte_len > 0).then_some(Part { offset: self.next, byte_len })
    }

    fn begin(&mut self, part: Part) {
        self.next += part.byte_len as u64;
    }

    /// The next part, unless it begins `ahead` bytes or more after the oldest that is under way.
    fn next_near<'a>(&self, under_way: impl Iterator<Item = &'a Part>, ahead: u64) -> Option<Part> {
        let oldest = under_way.map(|part| part.offset).min().unwrap_or(self.next);
        self.next().filter(|part| part.offset - oldest < ahead)
    }
}

impl<D: Device<Memory = Region>, P: Pace<D>> Session<D, P> {
    /// Writes `range` of a chunk. `fill` is asked for the bytes at an offset, once for each
    /// request, and again where one is made again; `progress` is told how many bytes are durable.
    ///
    /// # Errors
    /// [`SessionError`], or what `fill` says. What was acknowledged stays.
    pub(crate) fn write_range<E: From<SessionError>>(
        &mut self,
        chunk: ChunkId,
        range: Range<u64>,
        pipeline: Pipeline,
        mut fill: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
        mut progress: impl FnMut(u64),
    ) -> Result<(), E> {
        let mut parts = Parts::new(range, pipeline);
        let mut window = Window::new(pipeline.depth);
        let mut durable = 0;
        loop {
            let refill = |part: &Part, out: &mut [u8]| fill(part.offset, out);
            window.refill(&mut self.driver, |part| part.byte_len, refill)?;
            while window.len() < pipeline.depth
                && let Some(part) = parts.next()
                && let Some(mut data) = take_buf(self.driver.endpoint(), part.byte_len)
            {
                fill(part.offset, &mut data)?;
                window.push(self.driver.write(chunk, part.offset, data), part);
                parts.begin(part);
            }
            if window.is_empty() && parts.next().is_none() {
                return Ok(());
            }
            self.step()?;
            while let Some((part, result)) = window.next_ended(&mut self.driver) {
                result.map_err(SessionError::from)?;
                durable += part.byte_len as u64;
                progress(durable);
            }
        }
    }

    /// Reads `range` of a chunk. `sink` is given the bytes of each request, verified, in whatever
    /// order they come, but within [`READ_AHEAD_DEPTHS`] of the first that is missing.
    ///
    /// # Errors
    /// [`SessionError`], or what `sink` says.
    pub(crate) fn read_range<E: From<SessionError>>(
        &mut self,
        Source { chunk, resident }: Source,
        range: Range<u64>,
        pipeline: Pipeline,
        mut sink: impl FnMut(u64, &ReadData) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut parts = Parts::new(range, pipeline);
        let mut window = Window::new(pipeline.depth);
        let ahead = READ_AHEAD_DEPTHS * pipeline.depth as u64 * pipeline.op_bytes;
        loop {
            while window.len() < pipeline.depth
                && let Some(part) = parts.next_near(window.iter(), ahead)
            {
                let ticket = self.driver.read(chunk, part.offset, part.byte_len, resident);
                window.push(ticket, part);
                parts.begin(part);
            }
            if window.is_empty() {
                return Ok(());
            }
            self.step()?;
            while let Some((part, result)) = window.next_ended(&mut self.driver) {
                let Output::Read(data) = result.map_err(SessionError::from)? else {
                    return Err(SessionError::OtherOutput.into());
                };
                let taken = sink(part.offset, &data);
                data.release(self.driver.endpoint_mut());
                taken?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stay_near_the_oldest_that_is_not_done() {
        let pipeline = Pipeline { depth: 4, op_bytes: 10 };
        let mut parts = Parts::new(0..1000, pipeline);
        let oldest = parts.next().expect("the first part");
        parts.begin(oldest);
        let mut offsets = Vec::new();
        while let Some(part) = parts.next_near([oldest].iter(), 80) {
            parts.begin(part);
            offsets.push(part.offset);
        }
        assert_eq!(offsets, [10, 20, 30, 40, 50, 60, 70], "all done but the oldest");
        assert_eq!(parts.next_near([].iter(), 80).map(|part| part.offset), Some(80));
    }
}
