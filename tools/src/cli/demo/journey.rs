//! What the client does, over sockets and in virtual time alike.

use std::ops::Range;

use towpath_base::Prng;
use towpath_fastpath::{ChunkId, SLICE_BYTES};
use towpath_transport::{Device, Region};

use super::error::DemoError;
use super::report::Latency;
use super::steps::Steps;
use crate::cli::bytes::gbps;
use crate::cli::progress::Progress;
use crate::cli::session::{Pace, Pipeline, Session};
use crate::cli::source::Source;

/// Pieces of the input that are read again after the restart.
const SAMPLES: u64 = 64;

/// A part of the input, and the chunk that it is stored in from its byte 0 on.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(super) chunk: ChunkId,
    pub(super) range: Range<u64>,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(super) write_gbps: f64,
    pub(super) read_gbps: f64,
    /// Of durable 4 KiB writes.
    pub(super) writes: Latency,
    /// Of 4 KiB reads.
    pub(super) reads: Latency,
}

/// The input, where it is stored, and what came back.
pub(crate) struct Journey<'a> {
    pub(super) source: &'a Source,
    pub(super) pipeline: Pipeline,
    pub(super) stored: Vec<Stored>,
    /// The chunk of the latency measurement.
    pub(super) small: Option<ChunkId>,
    /// The first byte seen that is not as in the input.
    pub(super) changed_at: Option<u64>,
    names: Prng,
    scratch: Vec<u8>,
}

impl<'a> Journey<'a> {
    /// `names` is where the names of chunks come from.
    pub(super) fn new(source: &'a Source, pipeline: Pipeline, names: Prng) -> Self {
        Self {
            source,
            pipeline,
            stored: Vec::new(),
            small: None,
            changed_at: None,
            names,
            scratch: Vec::new(),
        }
    }

    /// Everything that is done before the server is started again.
    pub(super) fn first_life<D: Device<Memory = Region>, P: Pace<D>>(
        &mut self,
        session: &mut Session<D, P>,
        requests: u32,
        steps: &mut Steps,
    ) -> Result<Found, DemoError> {
        steps.begin("write, checked on receive, durable when answered");
        let write_gbps = self.put(session)?;
        steps.done(&format!("{write_gbps:.1} Gb/s"));
        steps.begin("read back, checked and compared");
        let read_gbps = self.get(session)?;
        steps.done(&format!("{read_gbps:.1} Gb/s"));
        steps.begin("4 KiB writes, then reads, one at a time");
        let (writes, reads) = self.latency(session, requests)?;
        steps.done(&format!("{:.0} / {:.0} us (p50)", writes.p50_us, reads.p50_us));
        Ok(Found { write_gbps, read_gbps, writes, reads })
    }

    fn name(&mut self) -> ChunkId {
        ChunkId(u128::from(self.names.next_u64()) << 64 | u128::from(self.names.next_u64()))
    }

    /// Stores the input in as many chunks as the server wants; returns gigabits a second.
    pub(super) fn put<D: Device<Memory = Region>, P: Pace<D>>(
        &mut self,
        session: &mut Session<D, P>,
    ) -> Result<f64, DemoError> {
        let whole = self.source.byte_len();
        let mut progress = Progress::bytes("write", whole);
        let began = session.now();
        let mut start = 0;
        // An empty input is a chunk, too.
        while start < whole || self.stored.is_empty() {
            let chunk = self.name();
            session.create(chunk, false)?;
            let limit = session.stat(chunk)?.limit_bytes.max(1);
            let range = start..whole.min(start.saturating_add(limit));
            self.stored.push(Stored { chunk, range: range.clone() });
            session.write_range(
                chunk,
                0..range.end - range.start,
                self.pipeline,
                |offset, out| fill(self.source, range.start + offset, out),
                |durable| progress.at(range.start + durable),
            )?;
            session.finish(chunk, range.end - range.start)?;
            start = range.end;
        }
        Ok(gbps(whole, session.now().since(began).as_secs_f64()))
    }

    /// Reads all of it back and compares; returns gigabits a second.
    pub(super) fn get<D: Device<Memory = Region>, P: Pace<D>>(
        &mut self,
        session: &mut Session<D, P>,
    ) -> Result<f64, DemoError> {
        let whole = self.source.byte_len();
        let mut progress = Progress::bytes("read", whole);
        let began = session.now();
        let mut done = 0;
        for Stored { chunk, range } in self.stored.clone() {
            let pipeline = self.pipeline;
            session.read_range(
                chunk.into(),
                0..range.end - range.start,
                pipeline,
                |offset, data| {
                    done += data.len() as u64;
                    progress.at(done);
                    self.compare(range.start + offset, data.parts())
                },
            )?;
        }
        Ok(gbps(whole, session.now().since(began).as_secs_f64()))
    }

    /// Reads pieces from all over the input back and compares them; all of it when it is small.
    pub(super) fn sample<D: Device<Memory = Region>, P: Pace<D>>(
        &mut self,
        session: &mut Session<D, P>,
    ) -> Result<u64, DemoError> {
        let mut sampled = 0;
        for Stored { chunk, range } in self.stored.clone() {
            let byte_len = range.end - range.start;
            let stride = (byte_len / SAMPLES).max(self.pipeline.op_bytes);
            let mut at = 0;
            while at < byte_len {
                let piece = at..byte_len.min(at + self.pipeline.op_bytes);
                sampled += piece.end - piece.start;
                session.read_range(chunk.into(), piece, self.pipeline, |offset, data| {
                    self.compare(range.start + offset, data.parts())
                })?;
                at += stride;
            }
        }
        Ok(sampled)
    }

    fn compare<'b>(
        &mut self,
        mut offset: u64,
        parts: impl Iterator<Item = &'b [u8]>,
    ) -> Result<(), DemoError> {
        for part in parts {
            let same = self.source.matches(offset, part, &mut self.scratch);
            if !same.map_err(|error| of_input(self.source, error))? {
                let earlier = self.changed_at.unwrap_or(u64::MAX);
                self.changed_at = Some(earlier.min(offset));
            }
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Writes, then reads one slice at a time; returns the latencies of both.
    fn latency<D: Device<Memory = Region>, P: Pace<D>>(
        &mut self,
        session: &mut Session<D, P>,
        requests: u32,
    ) -> Result<(Latency, Latency), DemoError> {
        let chunk = self.name();
        session.create(chunk, false)?;
        self.small = Some(chunk);
        let one = Pipeline { depth: 1, op_bytes: SLICE_BYTES as u64 };
        let input = Source::generated(1, u64::from(requests) * one.op_bytes);
        let mut writes_ns = Vec::with_capacity(requests as usize);
        let mut reads_ns = Vec::with_capacity(requests as usize);
        for number in 0..u64::from(requests) {
            let at = number * one.op_bytes;
            let began = session.now();
            let write = |offset, out: &mut [u8]| fill(&input, offset, out);
            session.write_range(chunk, at..at + one.op_bytes, one, write, |_| {})?;
            writes_ns.push(session.now().since(began).0);
        }
        session.finish(chunk, input.byte_len())?;
        for number in 0..u64::from(requests) {
            let at = number * one.op_bytes;
            let began = session.now();
            session
                .read_range::<DemoError>(chunk.into(), at..at + one.op_bytes, one, |_, _| Ok(()))?;
            reads_ns.push(session.now().since(began).0);
        }
        Ok((Latency::of(writes_ns), Latency::of(reads_ns)))
    }

    /// Removes what was stored.
    pub(super) fn clean_up<D: Device<Memory = Region>, P: Pace<D>>(
        &mut self,
        session: &mut Session<D, P>,
    ) -> Result<(), DemoError> {
        let chunks = self.stored.iter().map(|stored| stored.chunk).chain(self.small);
        Ok(chunks.into_iter().try_for_each(|chunk| session.delete(chunk))?)
    }
}

fn fill(source: &Source, offset: u64, out: &mut [u8]) -> Result<(), DemoError> {
    source.fill(offset, out).map_err(|error| of_input(source, error))
}

fn of_input(source: &Source, error: std::io::Error) -> DemoError {
    DemoError::Input { path: source.path().cloned(), source: error }
}
