//! Requests that a load draws, a fixed number of them under way.

use std::time::Duration;

use towpath_fastpath::{ChunkId, ClientError, Done, ErrorKind, OpId, Output, ReadData};
use towpath_transport::{Device, Region, Time};

use super::again::is_gone;
use super::pace::WallClock;
use super::transfer::{BUSY_WAIT, TRIES_MAX, is_busy, is_passing, take_buf};
use super::{Session, SessionError};

/// How long requests under way may take to end after an interruption.
const DRAIN_WAIT: Duration = Duration::from_secs(10);

/// One read or one write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Io {
    pub is_write: bool,
    pub chunk: ChunkId,
    pub offset: u64,
    pub byte_len: usize,
    /// The load's own number of it.
    pub token: usize,
}

/// What draws requests, and is told of their ends.
pub(crate) trait Load {
    /// What ends it early.
    type Error: From<SessionError>;

    /// The next request; none once there are no more.
    fn next(&mut self, now: Time) -> Option<Io>;

    /// The bytes of a write. It is asked again where the request is made again.
    fn fill(&mut self, io: &Io, out: &mut [u8]);

    /// A request has ended well: `span` is from its first submission until now; `data` is what was
    /// read.
    ///
    /// # Errors
    /// What is wrong with the data.
    fn ended(
        &mut self,
        io: &Io,
        span: (Time, Time),
        data: Option<&ReadData>,
    ) -> Result<(), Self::Error>;

    /// Draws no more: somebody asked to stop.
    fn stop(&mut self);
}

/// What a load met besides requests that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Troubles {
    /// Requests that the server refused as busy, which were made again.
    pub busy: u64,
    /// Requests whose bytes were changed on the way, which were made again.
    pub corrupt: u64,
}

/// A request, and when it was submitted first.
#[derive(Clone, Copy, Debug)]
struct Submitted {
    io: Io,
    at: Time,
    tries: u32,
}

/// The requests that have not ended.
struct Line {
    under_way: Vec<(OpId, Submitted)>,
    /// To be made again, not before this time.
    again: Vec<Submitted>,
    not_before: Time,
    /// The load has no more.
    is_over: bool,
    /// The link is lost.
    lost: Option<SessionError>,
    troubles: Troubles,
}

impl Line {
    fn new(depth: usize) -> Self {
        Self {
            under_way: Vec::with_capacity(depth),
            again: Vec::new(),
            not_before: Time::ZERO,
            is_over: false,
            lost: None,
            troubles: Troubles::default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.is_over && self.under_way.is_empty() && self.again.is_empty()
    }

    fn take(&mut self, op: OpId) -> Option<Submitted> {
        let place = self.under_way.iter().position(|(id, _)| *id == op)?;
        Some(self.under_way.swap_remove(place).1)
    }

    /// The next request to make.
    fn next(&mut self, load: &mut impl Load, now: Time) -> Option<Submitted> {
        if now >= self.not_before
            && let Some(submitted) = self.again.pop()
        {
            return Some(submitted);
        }
        let io = if self.is_over { None } else { load.next(now) };
        self.is_over |= io.is_none();
        io.map(|io| Submitted { io, at: now, tries: 0 })
    }

    /// A request has failed: it is made again, over another link where this one is lost.
    fn failed(
        &mut self,
        submitted: Submitted,
        error: ClientError,
        now: Time,
    ) -> Result<(), SessionError> {
        if is_gone(&error.kind) {
            self.lost.get_or_insert(error.into());
            self.again.push(submitted);
            return Ok(());
        }
        let tries = submitted.tries + 1;
        if !is_passing(&error.kind) || tries > TRIES_MAX {
            return Err(error.into());
        }
        self.count(&error.kind, now);
        self.again.push(Submitted { tries, ..submitted });
        Ok(())
    }

    fn count(&mut self, kind: &ErrorKind, now: Time) {
        if is_busy(kind) {
            self.troubles.busy += 1;
            self.not_before = now + BUSY_WAIT;
        } else {
            self.troubles.corrupt += 1;
        }
    }
}

impl<D: Device<Memory = Region>> Session<D, WallClock> {
    /// Makes the requests of a load, `depth` at a time, until it has no more and all have ended.
    /// An interruption stops the load; what is under way then still ends.
    ///
    /// # Errors
    /// [`SessionError`], or what the load says.
    pub(crate) fn drive<L: Load>(
        &mut self,
        load: &mut L,
        depth: usize,
    ) -> Result<Troubles, L::Error> {
        let mut line = Line::new(depth);
        let mut is_stopped = false;
        while !line.is_empty() {
            let went_on = self.drive_on(load, depth, &mut line);
            match went_on {
                Ok(()) => {}
                Err(Stopped::Session(SessionError::Interrupted(_))) if !is_stopped => {
                    is_stopped = true;
                    load.stop();
                    line.is_over = true;
                    line.again.clear();
                    self.pace.last_wait(DRAIN_WAIT);
                }
                Err(Stopped::Session(error)) => return Err(error.into()),
                Err(Stopped::Load(error)) => return Err(error),
            }
        }
        Ok(line.troubles)
    }

    /// One turn: makes requests, takes answers in.
    fn drive_on<L: Load>(
        &mut self,
        load: &mut L,
        depth: usize,
        line: &mut Line,
    ) -> Result<(), Stopped<L::Error>> {
        if line.under_way.is_empty()
            && let Some(lost) = line.lost.take()
        {
            self.again(lost)?;
        }
        while line.lost.is_none() && line.under_way.len() < depth {
            let Some(submitted) = line.next(load, self.now()) else { break };
            if !self.submit(load, submitted, line)? {
                break;
            }
        }
        self.step()?;
        while let Some(done) = self.client.poll(&mut self.endpoint) {
            match line.take(done.op) {
                Some(submitted) => self.end(load, submitted, done, line)?,
                None => self.drop_late(done),
            }
        }
        Ok(())
    }

    /// Makes a request; false where there is no buffer for it.
    fn submit<L: Load>(
        &mut self,
        load: &mut L,
        submitted: Submitted,
        line: &mut Line,
    ) -> Result<bool, SessionError> {
        let Io { is_write, chunk, offset, byte_len, .. } = submitted.io;
        let client = self.client.primary_mut();
        let op = if is_write {
            let Some(mut data) = take_buf(&self.endpoint, byte_len) else {
                // Those that are under way give buffers back.
                line.again.push(submitted);
                return Ok(false);
            };
            load.fill(&submitted.io, &mut data);
            client.start_write(&mut self.endpoint, chunk, offset, data)
        } else {
            client.start_read(&mut self.endpoint, chunk, offset, byte_len)
        };
        match op {
            Ok(op) => line.under_way.push((op, submitted)),
            Err(error) => line.failed(submitted, error, self.now())?,
        }
        Ok(true)
    }

    fn end<L: Load>(
        &mut self,
        load: &mut L,
        submitted: Submitted,
        done: Done,
        line: &mut Line,
    ) -> Result<(), Stopped<L::Error>> {
        let now = self.now();
        let span = (submitted.at, now);
        match done.result {
            Ok(Output::Read(data)) if !submitted.io.is_write => {
                let ended = load.ended(&submitted.io, span, Some(&data));
                data.release(&mut self.endpoint);
                ended.map_err(Stopped::Load)
            }
            Ok(Output::Changed(..)) if submitted.io.is_write => {
                load.ended(&submitted.io, span, None).map_err(Stopped::Load)
            }
            Ok(_) => Err(SessionError::OtherOutput.into()),
            Err(error) => Ok(line.failed(submitted, error, now)?),
        }
    }
}

/// Why a load ended early.
enum Stopped<E> {
    Session(SessionError),
    Load(E),
}

impl<E> From<SessionError> for Stopped<E> {
    fn from(error: SessionError) -> Self {
        Self::Session(error)
    }
}
