//! Many reads or writes under way at a time.

use towpath_fastpath::{ChunkId, ClientError, ErrorKind, ErrorReply, OpId, Output, ReadData};
use towpath_transport::{Buf, Device, Endpoint, Nanos, Region, Time};

use super::again::is_gone;
use super::{Pace, Session, SessionError};

/// How often one request is made again when nothing is wrong with it: the server was busy, or a
/// slice was changed on its way.
pub(super) const TRIES_MAX: u32 = 100;

/// The wait before a request that found the server busy is made again.
pub(super) const BUSY_WAIT: Nanos = Nanos::from_millis(5);

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
    tries: u32,
}

/// The parts of a range that are not done yet.
struct Parts<Op> {
    next: u64,
    end: u64,
    op_bytes: u64,
    under_way: Vec<(Op, Part)>,
    again: Vec<Part>,
    not_before: Time,
}

impl<Op: PartialEq> Parts<Op> {
    fn new(range: std::ops::Range<u64>, pipeline: Pipeline) -> Self {
        Self {
            next: range.start,
            end: range.end,
            op_bytes: pipeline.op_bytes,
            under_way: Vec::with_capacity(pipeline.depth),
            again: Vec::new(),
            not_before: Time::ZERO,
        }
    }

    /// The next part to ask for.
    fn take(&mut self, now: Time) -> Option<Part> {
        if !self.again.is_empty() {
            return if now >= self.not_before { self.again.pop() } else { None };
        }
        let byte_len = self.op_bytes.min(self.end - self.next);
        let part = Part { offset: self.next, byte_len: byte_len as usize, tries: 0 };
        self.next += byte_len;
        (byte_len > 0).then_some(part)
    }

    /// The next part to ask for, unless it begins `ahead` bytes or more after the oldest part
    /// that is not done.
    fn take_near(&mut self, now: Time, ahead: u64) -> Option<Part> {
        let under_way = self.under_way.iter().map(|(_, part)| part.offset);
        let oldest = under_way.chain(self.again.iter().map(|part| part.offset)).min();
        let far = self.next - oldest.unwrap_or(self.next) >= ahead;
        if far && self.again.is_empty() { None } else { self.take(now) }
    }

    fn put_back(&mut self, part: Part) {
        self.again.push(part);
    }

    /// The part that an operation was about; none for one of an earlier transfer.
    fn end_of(&mut self, op: Op) -> Option<Part> {
        let place = self.under_way.iter().position(|(id, _)| *id == op)?;
        Some(self.under_way.swap_remove(place).1)
    }

    fn is_done(&self) -> bool {
        self.next == self.end && self.under_way.is_empty() && self.again.is_empty()
    }

    /// Whether to try once more; says so by keeping the part.
    fn retry(&mut self, part: Part, kind: &ErrorKind, now: Time) -> bool {
        if !is_passing(kind) || part.tries == TRIES_MAX {
            return false;
        }
        if is_busy(kind) {
            self.not_before = now + BUSY_WAIT;
        }
        self.again.push(Part { tries: part.tries + 1, ..part });
        true
    }
}

impl Parts<OpId> {
    /// A part is under way, or is to be asked for again over another link: then the link is lost.
    fn begun(
        &mut self,
        part: Part,
        op: Result<OpId, ClientError>,
        lost: &mut Option<SessionError>,
    ) -> Result<(), SessionError> {
        match op {
            Ok(op) => self.under_way.push((op, part)),
            Err(error) if is_gone(&error.kind) => {
                self.put_back(part);
                lost.get_or_insert(error.into());
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl<D: Device<Memory = Region>, P: Pace<D>> Session<D, P> {
    /// Makes the link again, where it is lost and all that was under way over it has ended.
    fn again_where_lost(
        &mut self,
        lost: &mut Option<SessionError>,
        parts: &Parts<OpId>,
    ) -> Result<(), SessionError> {
        match lost.take() {
            Some(error) if parts.under_way.is_empty() => self.again(error),
            still => {
                *lost = still;
                Ok(())
            }
        }
    }

    /// Writes `range` of a chunk. `fill` is asked for the bytes at an offset, once for each
    /// request; `progress` is told how many bytes are durable.
    ///
    /// # Errors
    /// [`SessionError`], or what `fill` says. What was acknowledged stays.
    pub(crate) fn write_range<E: From<SessionError>>(
        &mut self,
        chunk: ChunkId,
        range: std::ops::Range<u64>,
        pipeline: Pipeline,
        mut fill: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
        mut progress: impl FnMut(u64),
    ) -> Result<(), E> {
        let mut parts = Parts::new(range, pipeline);
        let (mut durable, mut lost) = (0, None);
        while !parts.is_done() {
            self.again_where_lost(&mut lost, &parts)?;
            while lost.is_none() && parts.under_way.len() < pipeline.depth {
                let Some(part) = parts.take(self.now()) else { break };
                let Some(mut data) = take_buf(&self.endpoint, part.byte_len) else {
                    parts.put_back(part);
                    break;
                };
                fill(part.offset, &mut data)?;
                let client = self.client.primary_mut();
                let op = client.start_write(&mut self.endpoint, chunk, part.offset, data);
                parts.begun(part, op, &mut lost)?;
            }
            self.step()?;
            while let Some(done) = self.client.poll(&mut self.endpoint) {
                let Some(part) = parts.end_of(done.op) else {
                    self.drop_late(done);
                    continue;
                };
                match done.result {
                    Ok(_) => {
                        durable += part.byte_len as u64;
                        progress(durable);
                    }
                    Err(error) if parts.retry(part, &error.kind, self.now()) => {}
                    Err(error) => parts.begun(part, Err(error), &mut lost)?,
                }
            }
        }
        Ok(())
    }

    /// Reads `range` of a chunk. `sink` is given the bytes of each request, verified, in whatever
    /// order they come, but within [`READ_AHEAD_DEPTHS`] of the first that is missing.
    ///
    /// # Errors
    /// [`SessionError`], or what `sink` says.
    pub(crate) fn read_range<E: From<SessionError>>(
        &mut self,
        Source { chunk, resident }: Source,
        range: std::ops::Range<u64>,
        pipeline: Pipeline,
        mut sink: impl FnMut(u64, &ReadData) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut parts = Parts::new(range, pipeline);
        let ahead = READ_AHEAD_DEPTHS * pipeline.depth as u64 * pipeline.op_bytes;
        let mut lost = None;
        while !parts.is_done() {
            self.again_where_lost(&mut lost, &parts)?;
            while lost.is_none() && parts.under_way.len() < pipeline.depth {
                let Some(part) = parts.take_near(self.now(), ahead) else { break };
                let Part { offset, byte_len, .. } = part;
                let Self { client, endpoint, .. } = self;
                let op = match resident {
                    true => {
                        let client = client.primary_mut();
                        client.start_resident_read(endpoint, chunk, offset, byte_len)
                    }
                    false => client.start_read(endpoint, chunk, offset, byte_len),
                };
                parts.begun(part, op, &mut lost)?;
            }
            self.step()?;
            while let Some(done) = self.client.poll(&mut self.endpoint) {
                let Some(part) = parts.end_of(done.op) else {
                    self.drop_late(done);
                    continue;
                };
                match done.result {
                    Ok(Output::Read(data)) => {
                        let taken = sink(part.offset, &data);
                        data.release(&mut self.endpoint);
                        taken?;
                    }
                    Ok(_) => return Err(SessionError::OtherOutput.into()),
                    Err(error) if parts.retry(part, &error.kind, self.now()) => {}
                    Err(error) => parts.begun(part, Err(error), &mut lost)?,
                }
            }
        }
        Ok(())
    }
}

/// Whether nothing is wrong with a request that failed so: it may be made again.
pub(super) fn is_passing(kind: &ErrorKind) -> bool {
    let is_changed = matches!(
        kind,
        ErrorKind::ReplyCorrupt { .. } | ErrorKind::Refused(ErrorReply::WireCorrupt { .. })
    );
    is_changed || is_busy(kind)
}

/// Whether the server had too much to do.
pub(super) fn is_busy(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Busy | ErrorKind::Refused(ErrorReply::Busy))
}

pub(super) fn take_buf<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    byte_len: usize,
) -> Option<Buf> {
    let mut buf = endpoint.alloc(byte_len).ok()?;
    buf.set_len(byte_len).ok()?;
    Some(buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stay_near_the_oldest_that_is_not_done() {
        let pipeline = Pipeline { depth: 4, op_bytes: 10 };
        let mut parts = Parts::new(0..1000, pipeline);
        let oldest = parts.take_near(Time::ZERO, 80).expect("the first part");
        parts.under_way.push(('a', oldest));
        let others = std::iter::from_fn(|| parts.take_near(Time::ZERO, 80));
        let offsets: Vec<u64> = others.map(|part| part.offset).collect();
        assert_eq!(offsets, [10, 20, 30, 40, 50, 60, 70], "all done but the oldest");
        // What is asked for again is never too far, and holds the others back as well.
        let oldest = parts.end_of('a').expect("it is under way");
        parts.put_back(oldest);
        assert_eq!(parts.take_near(Time::ZERO, 80).map(|part| part.offset), Some(0));
        assert_eq!(parts.take_near(Time::ZERO, 80).map(|part| part.offset), Some(80));
    }
}
