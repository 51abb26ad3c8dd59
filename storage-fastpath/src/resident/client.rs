//! Reads that a client does itself, by READs over the lane of its link.

use super::places::Range;
use super::reads::{Asking, Read, Reading, ResidentStats, Stage, Verdict};
use super::slot::SLOT_BYTES;
use crate::client::{ChunkClient, Done, OpId};
use crate::error::{ClientError, ErrorKind};
use crate::limits::{LOCATES_MAX, NOWHERE_SPAN, STALL_SHARE};
use crate::output::{Output, ReadData};
use crate::request::StorageRequest;
use crate::resident::Located;
use crate::slice::ChunkId;
use crate::wire::{Method, ReadReplyHeader};
use towpath_rpc::Fate;
use towpath_transport::{
    Buf, Device, Endpoint, Event, LaneError, Nanos, OpError, OpOptions, OpOutcome, Place, Region,
    Time,
};

/// Why a part is not posted now.
enum Unposted {
    /// A buffer, room on the lane, or the grant is missing.
    Later,
    /// READs cannot be made.
    Never,
}

impl ChunkClient {
    /// Reads `length` bytes from `offset` on, by READs of the server's memory where the chunk is
    /// resident, and as [`start_read`](Self::start_read) does where it is not. The server is asked
    /// once where the chunk is, and again when its slots turn out to be another's. Each slice is
    /// as some write left it that was committed; slices of one read may be of different versions.
    /// A read that is started after the answer to a write sees that write.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_resident_read<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<OpId, ClientError> {
        let (id, span) = self.read_op(endpoint, chunk, offset, length)?;
        let deadline = endpoint.now() + self.op_timeout();
        let read = Read {
            id,
            chunk,
            span,
            deadline,
            stage: Stage::Locating,
            located: 0,
            has_moved: false,
        };
        let key = self.resident.reads.insert(read);
        self.resident.stats.reads += 1;
        self.place_read(endpoint, key);
        Ok(id)
    }

    /// What became of reads of resident chunks.
    #[must_use]
    pub fn resident_stats(&self) -> ResidentStats {
        self.resident.stats()
    }

    /// Gives a read of a resident chunk up; false when `op` is none.
    pub(crate) fn cancel_resident<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        op: OpId,
    ) -> bool {
        let found = self.resident.reads.iter_mut().find(|(_, read)| read.id == op);
        let Some((key, read)) = found else { return false };
        match read.stage {
            Stage::Asked(inner) => self.cancel(endpoint, inner),
            // READs that are under way end by themselves, and are nobody's then.
            Stage::Locating | Stage::Reading(_) => self.end_cancelled(key),
        }
        true
    }

    /// Takes in the end of a READ, and grants; gives back what is not this client's.
    pub(crate) fn on_lane_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
    ) -> Option<Event> {
        match event {
            Event::OpDone { op, outcome, buf, .. } if self.resident.by_lane.contains_key(&op) => {
                let fetched = match (outcome, buf) {
                    (OpOutcome::Executed, Some(buf)) => Ok(buf),
                    // The grant is gone: the server may have another.
                    (OpOutcome::Denied(_), _) => Err(Verdict::Moved),
                    _ => Err(Verdict::Ask),
                };
                if let Some(key) = self.resident.take(op, fetched) {
                    self.post(endpoint, key, None);
                }
                self.post_stalled(endpoint);
                None
            }
            Event::Granted { link, .. } if link == self.rpc().link() => {
                self.post_stalled(endpoint);
                Some(event)
            }
            Event::Revoked { link, grant } if link == self.rpc().link() => {
                self.resident.revoked(grant);
                self.post_stalled(endpoint);
                Some(event)
            }
            _ => Some(event),
        }
    }

    /// Tries again what waits for something, and has the server read what has waited too long.
    pub(crate) fn post_stalled<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        let (now, is_down) = (endpoint.now(), self.rpc().is_down());
        for _ in 0..self.resident.stalled.len() {
            let Some((key, until)) = self.resident.stalled.pop_front() else { return };
            let Some(read) = self.resident.reads.get_mut(key) else { continue };
            let Stage::Reading(reading) = &mut read.stage else { continue };
            if now >= until || is_down {
                reading.verdict = Some(Verdict::Ask);
            }
            self.post(endpoint, key, Some(until));
        }
    }

    /// Takes an operation of this client's own in; gives back those that its user started.
    pub(crate) fn take_own<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        done: Done,
    ) -> Option<Done> {
        if let Some(at) = self.resident.asking.iter().position(|asking| asking.op == done.op) {
            let asking = self.resident.asking.swap_remove(at);
            self.on_located(endpoint, asking, done.result);
            return None;
        }
        let Some(key) = self.resident.asked.remove(&done.op) else { return Some(done) };
        let read = self.resident.reads.remove(key);
        if let Ok(Output::Read(data)) = &done.result {
            self.resident.places.forget_shorter(read.chunk, data.header().chunk_bytes);
        }
        Some(Done { op: read.id, result: done.result })
    }

    /// Makes READs of a read, or asks where its chunk is, or has the server read.
    fn place_read<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, key: usize) {
        let Read { chunk, span, located, .. } = self.resident.reads[key];
        let slices = (span.first(), span.first() + span.count() - 1);
        match self.resident.places.find(endpoint.now(), chunk, slices, span.end()) {
            Range::Unknown(from) if located < LOCATES_MAX => {
                self.resident.reads[key].located += 1;
                self.ask_where(endpoint, key, from);
            }
            Range::Unknown(_) | Range::Elsewhere => self.fall_back(endpoint, key),
            Range::Runs { grant, byte_len, runs } => {
                let reading = Reading::new(grant, byte_len, runs);
                self.resident.reads[key].stage = Stage::Reading(reading);
                self.post(endpoint, key, None);
            }
        }
    }

    /// Asks where a chunk is, once for all who want to know.
    fn ask_where<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        key: usize,
        first: u64,
    ) {
        let chunk = self.resident.reads[key].chunk;
        self.resident.reads[key].stage = Stage::Locating;
        if self.resident.asking.iter().any(|asking| asking.chunk == chunk) {
            return;
        }
        match self.start_request(endpoint, &StorageRequest::Locate { chunk, first_slice: first }) {
            Ok(op) => {
                self.resident.stats.locates += 1;
                self.resident.asking.push(Asking { op, chunk, first });
            }
            Err(_) => self.fall_back(endpoint, key),
        }
    }

    fn on_located<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        asking: Asking,
        result: Result<Output, ClientError>,
    ) {
        let Asking { chunk, first, .. } = asking;
        let located = match result {
            Ok(Output::Located(reply)) => Located::check(first, &reply).ok(),
            _ => None,
        };
        let is_told = located.is_some();
        let until = endpoint.now() + NOWHERE_SPAN;
        match located {
            Some(Some(located)) => self.resident.places.learn(chunk, first, located),
            Some(None) => self.resident.places.learn_nowhere(chunk, until),
            None => {}
        }
        for key in self.resident.locating(chunk) {
            match is_told {
                true => self.place_read(endpoint, key),
                // What is wrong the ordinary read says.
                false => self.fall_back(endpoint, key),
            }
        }
    }

    /// Posts READs for what is not read yet, as far as that goes now; gives a read up that is
    /// beyond saving.
    fn post<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        key: usize,
        until: Option<Time>,
    ) {
        match self.post_parts(endpoint, key) {
            Ok(()) => {}
            Err(Unposted::Never) => {
                if let Stage::Reading(reading) = &mut self.resident.reads[key].stage {
                    reading.verdict = reading.verdict.or(Some(Verdict::Ask));
                }
            }
            Err(Unposted::Later) => {
                let span = Nanos(self.op_timeout().0 / STALL_SHARE);
                if let Stage::Reading(reading) = &mut self.resident.reads[key].stage {
                    reading.let_buffers_go();
                }
                let until = until.unwrap_or_else(|| endpoint.now() + span);
                if !self.resident.stalled.iter().any(|(stalled, _)| *stalled == key) {
                    self.resident.stalled.push_back((key, until));
                }
            }
        }
        self.end_reading(endpoint, key);
    }

    fn post_parts<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        key: usize,
    ) -> Result<(), Unposted> {
        let link = self.rpc().link();
        let Read { deadline, ref mut stage, .. } = self.resident.reads[key];
        let Stage::Reading(reading) = stage else { return Ok(()) };
        if reading.verdict.is_some() {
            return Ok(());
        }
        let mut at = 0;
        while at < reading.parts.len() {
            let part = &mut reading.parts[at];
            if !part.is_idle() {
                at += 1;
                continue;
            }
            let Some(buf) = room_for(endpoint, part.byte_len()) else {
                let rest = part.split().ok_or(Unposted::Later)?;
                reading.parts.insert(at + 1, rest);
                continue;
            };
            let offset = part.run.slot * SLOT_BYTES as u32;
            let place = Place { link, grant: reading.grant, offset };
            let options = OpOptions::new().deadline(deadline);
            match endpoint.read(place, part.byte_len() as u32, buf, options) {
                Ok(op) => {
                    part.op = Some(op);
                    self.resident.by_lane.insert(op, key);
                    at += 1;
                }
                Err(rejected) => {
                    return Err(match rejected.error {
                        LaneError::Op(OpError::NoSuchGrant | OpError::Full { .. }) => {
                            Unposted::Later
                        }
                        _ => Unposted::Never,
                    });
                }
            }
        }
        Ok(())
    }

    /// Ends the READs of a read when none is under way any more and none is to be made.
    fn end_reading<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, key: usize) {
        let read = &mut self.resident.reads[key];
        let Stage::Reading(reading) = &mut read.stage else { return };
        let is_done = reading.verdict.is_some() || reading.is_whole();
        if reading.is_under_way() || !is_done {
            return;
        }
        self.resident.stalled.retain(|(stalled, _)| *stalled != key);
        let read = &mut self.resident.reads[key];
        let (chunk, has_moved) = (read.chunk, read.has_moved);
        match reading_of(&mut read.stage) {
            Some(Reading { verdict: None, parts, byte_len, version, .. }) => {
                let slots = parts.into_iter().filter_map(|part| Some((part.first, part.fetched?)));
                let header = ReadReplyHeader {
                    chunk,
                    offset: read.span.start(),
                    length: (read.span.end() - read.span.start()) as u32,
                    chunk_bytes: byte_len,
                    chunk_version: version,
                };
                let data = ReadData::of_slots(header, slots.collect());
                let Read { id: op, .. } = self.resident.reads.remove(key);
                self.resident.stats.by_read += 1;
                self.resident.ended.push_back(Done { op, result: Ok(Output::Read(data)) });
            }
            Some(Reading { verdict: Some(Verdict::Moved), .. }) => {
                self.resident.places.forget(chunk);
                self.resident.reads[key].has_moved = true;
                match has_moved {
                    true => self.fall_back(endpoint, key),
                    false => self.place_read(endpoint, key),
                }
            }
            _ => self.fall_back(endpoint, key),
        }
    }

    fn end_cancelled(&mut self, key: usize) {
        self.resident.stalled.retain(|(stalled, _)| *stalled != key);
        let Read { id: op, chunk, span, .. } = self.resident.reads.remove(key);
        let kind = ErrorKind::Cancelled { fate: Fate::DidNotHappen };
        let (chunk, offset) = (Some(chunk), Some(span.start()));
        let error = ClientError { method: Method::Read, chunk, offset, kind };
        self.resident.ended.push_back(Done { op, result: Err(error) });
    }

    /// Has the server read.
    fn fall_back<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, key: usize) {
        self.resident.stats.fallen_back += 1;
        let Read { id, chunk, span, deadline, .. } = self.resident.reads[key];
        let length = (span.end() - span.start()) as usize;
        match self.start_read_until(endpoint, chunk, span.start(), length, deadline) {
            Ok(inner) => {
                self.resident.reads[key].stage = Stage::Asked(inner);
                self.resident.asked.insert(inner, key);
            }
            Err(error) => {
                self.resident.reads.remove(key);
                self.resident.ended.push_back(Done { op: id, result: Err(error) });
            }
        }
    }
}

/// Takes the READs out of a read that goes on otherwise.
fn reading_of(stage: &mut Stage) -> Option<Reading> {
    match std::mem::replace(stage, Stage::Locating) {
        Stage::Reading(reading) => Some(reading),
        _ => None,
    }
}

/// A buffer for so many bytes, that long.
fn room_for<D: Device<Memory = Region>>(endpoint: &Endpoint<D>, byte_len: usize) -> Option<Buf> {
    let mut buf = endpoint.alloc(byte_len).ok()?;
    buf.set_len(byte_len).ok()?;
    Some(buf)
}
