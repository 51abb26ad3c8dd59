//! Reads of resident chunks: which of them wait for what.

use super::places::{Places, Run};
use super::slot::{Found, SLOT_BYTES, inspect};
use crate::client::{Done, OpId};
use crate::limits::{READ_SLOTS_MAX, READ_TRIES_MAX};
use crate::slice::{ChunkId, Span};
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use towpath_transport::{Buf, GrantId, OpId as LaneOpId, Time};

/// What became of reads of resident chunks; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResidentStats {
    /// Reads that were asked for.
    pub reads: u64,
    /// Of those, read by the client itself.
    pub by_read: u64,
    /// Of those, asked of the server after all.
    pub fallen_back: u64,
    /// READs that met a slot which was being rewritten.
    pub torn: u64,
    /// READs that met a slot which is another slice's, or nobody's.
    pub moved: u64,
    /// READs whose bytes were changed on their way.
    pub changed: u64,
    /// Questions to the server where a chunk is.
    pub locates: u64,
}

/// Why a READ is not made once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The slots are another's: ask where the chunk is now.
    Moved,
    /// Have the server read.
    Ask,
}

/// Slots that were fetched.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// In the buffer that they landed in.
    Buf(Buf),
    /// Copied, because the read waits for other buffers: who waits for some holds none.
    Copy(Box<[u8]>),
}

impl Fetched {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Buf(buf) => buf,
            Self::Copy(bytes) => bytes,
        }
    }
}

/// Slots that one READ fetches.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) first: u64,
    pub(super) run: Run,
    /// The READ, while it is under way.
    pub(super) op: Option<LaneOpId>,
    /// What it fetched, once that is whole.
    pub(super) fetched: Option<Fetched>,
    tries: u32,
    /// Slice and version whose bytes were not those of their trailer.
    differs: Option<(u64, u64)>,
}

impl Part {
    fn new(first: u64, run: Run) -> Self {
        Self { first, run, op: None, fetched: None, tries: 0, differs: None }
    }

    pub(super) fn byte_len(&self) -> usize {
        self.run.count as usize * SLOT_BYTES
    }

    /// Whether a READ is to be posted for it.
    pub(super) fn is_idle(&self) -> bool {
        self.op.is_none() && self.fetched.is_none()
    }

    /// Takes the second half off, where there is one: no buffer holds all.
    pub(super) fn split(&mut self) -> Option<Self> {
        let Run { slot, count } = self.run;
        let keep = count / 2;
        if keep == 0 {
            return None;
        }
        self.run.count = keep;
        let rest = Run { slot: slot + keep, count: count - keep };
        Some(Self::new(self.first + u64::from(keep), rest))
    }

    /// Looks at what a READ fetched: keeps it where it is whole. What is torn may be read again.
    fn take(&mut self, chunk: ChunkId, buf: Buf, stats: &mut ResidentStats) -> Taken {
        let (mut is_torn, mut version) = (false, 0);
        if buf.len() != self.byte_len() {
            return Taken::No(Verdict::Ask);
        }
        for (slice, slot) in (self.first..).zip(buf.chunks_exact(SLOT_BYTES)) {
            match inspect(chunk, slice, slot) {
                Found::Whole { version: found } => version = version.max(found),
                Found::Torn => is_torn = true,
                Found::Differs { version } => {
                    if self.differs == Some((slice, version)) {
                        stats.changed += 1;
                        return Taken::No(Verdict::Ask);
                    }
                    self.differs = Some((slice, version));
                    is_torn = true;
                }
                Found::Moved => {
                    stats.moved += 1;
                    return Taken::No(Verdict::Moved);
                }
                Found::Absent => return Taken::No(Verdict::Ask),
            }
        }
        if !is_torn {
            self.fetched = Some(Fetched::Buf(buf));
            return Taken::Whole { version };
        }
        stats.torn += 1;
        self.tries += 1;
        if self.tries < READ_TRIES_MAX { Taken::Again } else { Taken::No(Verdict::Ask) }
    }
}

/// What a READ was good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Whole { version: u64 },
    Again,
    No(Verdict),
}

/// What a read of a resident chunk waits for.
#[derive(Debug)]
pub(super) enum Stage {
    /// For the server to say where the chunk is.
    Locating,
    /// For its READs.
    Reading(Reading),
    /// For the server's answer to an ordinary read.
    Asked(OpId),
}

/// The READs of a read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) grant: GrantId,
    pub(super) byte_len: u64,
    pub(super) parts: Vec<Part>,
    /// The newest version that was read.
    pub(super) version: u64,
    /// What ends it when no READ is under way any more.
    pub(super) verdict: Option<Verdict>,
}

impl Reading {
    pub(super) fn new(grant: GrantId, byte_len: u64, runs: Vec<(u64, Run)>) -> Self {
        let mut parts = Vec::with_capacity(runs.len());
        for (mut first, Run { mut slot, mut count }) in runs {
            while count > 0 {
                let now = count.min(READ_SLOTS_MAX);
                parts.push(Part::new(first, Run { slot, count: now }));
                (first, slot, count) = (first + u64::from(now), slot + now, count - now);
            }
        }
        Self { grant, byte_len, parts, version: 0, verdict: None }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.parts.iter().any(|part| part.op.is_some())
    }

    /// Gives all buffers back.
    pub(super) fn let_buffers_go(&mut self) {
        for fetched in self.parts.iter_mut().filter_map(|part| part.fetched.as_mut()) {
            if let Fetched::Buf(buf) = fetched {
                *fetched = Fetched::Copy(buf[..].into());
            }
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.parts.iter().all(|part| part.fetched.is_some())
    }
}

/// A read of a resident chunk.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) id: OpId,
    pub(super) chunk: ChunkId,
    pub(super) span: Span,
    pub(super) deadline: Time,
    pub(super) stage: Stage,
    /// How often it was asked where the chunk is.
    pub(super) located: u32,
    /// Its slots were another's once.
    pub(super) has_moved: bool,
}

/// A question where a chunk is, under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    pub(super) op: OpId,
    pub(super) chunk: ChunkId,
    pub(super) first: u64,
}

/// All reads of resident chunks of a client.
#[derive(Debug, Default)]
pub(crate) struct ResidentReads {
    pub(super) reads: Slab<Read>,
    pub(super) places: Places,
    /// READs under way: for which read each is, if that is still there. Those of a read that was
    /// given up are left to their end.
    pub(super) by_lane: HashMap<LaneOpId, usize>,
    /// Questions under way: one for each chunk.
    pub(super) asking: Vec<Asking>,
    /// Ordinary reads under way, by which read each is.
    pub(super) asked: HashMap<OpId, usize>,
    /// Reads that wait for a buffer, for room on the lane, or for the grant; until when.
    pub(super) stalled: VecDeque<(usize, Time)>,
    pub(super) ended: VecDeque<Done>,
    pub(super) stats: ResidentStats,
}

impl ResidentReads {
    /// Reads that have not ended, less the requests that they have under way.
    pub(crate) fn beyond_requests(&self) -> usize {
        (self.reads.len() + self.ended.len()).saturating_sub(self.asked.len() + self.asking.len())
    }

    /// The next read that has ended.
    pub(crate) fn next_ended(&mut self) -> Option<Done> {
        self.ended.pop_front()
    }

    pub(crate) fn stats(&self) -> ResidentStats {
        self.stats
    }

    pub(crate) fn next_deadline(&self) -> Time {
        self.stalled.iter().map(|(_, until)| *until).min().unwrap_or(Time::NEVER)
    }

    /// The reads that wait to know where a chunk is.
    pub(super) fn locating(&self, chunk: ChunkId) -> Vec<usize> {
        let waits = |read: &Read| read.chunk == chunk && matches!(read.stage, Stage::Locating);
        self.reads.iter().filter(|(_, read)| waits(read)).map(|(key, _)| key).collect()
    }

    /// Takes in that a grant is gone: the server may have another. READs of it that are under way
    /// come back denied.
    pub(super) fn revoked(&mut self, gone: GrantId) {
        self.places.forget_grant(gone);
        for (_, read) in &mut self.reads {
            if let Stage::Reading(reading) = &mut read.stage
                && reading.grant == gone
            {
                reading.verdict = Some(Verdict::Moved);
            }
        }
    }

    /// Takes in what a READ fetched; gives the read that it was for.
    pub(super) fn take(&mut self, op: LaneOpId, fetched: Result<Buf, Verdict>) -> Option<usize> {
        let key = self.by_lane.remove(&op)?;
        let Self { reads, stats, .. } = self;
        let Read { chunk, stage, .. } = reads.get_mut(key)?;
        let Stage::Reading(reading) = stage else { return None };
        // The place of a read that was given up may be another's by now.
        let part = reading.parts.iter_mut().find(|part| part.op == Some(op))?;
        part.op = None;
        match fetched.map_or_else(Taken::No, |buf| part.take(*chunk, buf, stats)) {
            Taken::Whole { version } => reading.version = reading.version.max(version),
            Taken::Again => {}
            Taken::No(verdict) => {
                // That it has moved is worth more than that somebody else knows.
                if reading.verdict != Some(Verdict::Moved) {
                    reading.verdict = Some(verdict);
                }
            }
        }
        Some(key)
    }
}
