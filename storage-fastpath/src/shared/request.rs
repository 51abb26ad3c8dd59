//! What a client asks for, kept until it is answered.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use towpath_rpc::{Fate, NoBuffer};
use towpath_transport::{Buf, Device, Endpoint, Region, Time};

use super::pending::{Given, Place};
use crate::change::Terms;
use crate::client::{ChunkClient, OpId, copy};
use crate::config::Patience;
use crate::error::{ClientError, ErrorKind};
use crate::output::Output;
use crate::request::StorageRequest;
use crate::route::Route;
use crate::slice::ChunkId;
use crate::wire::{ClearHeader, Method};

/// How a read is done, and how its bytes are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadBy {
    /// By a request, in the buffers that the bytes landed in.
    Held,
    /// By a request, copied out of them.
    Copied,
    /// By READs where the chunk is resident, copied.
    Resident,
}

/// The bytes of a write.
#[derive(Debug)]
pub(super) enum Data {
    /// Copied into a send buffer by each attempt.
    Bytes(Vec<u8>),
    /// In the buffer that the first attempt sends; none after it.
    Buf(Option<Buf>),
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Buf(buf) => buf.as_ref().map_or(0, |buf| buf.len()),
        }
    }
}

/// What is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Read {
        chunk: ChunkId,
        offset: u64,
        length: usize,
        by: ReadBy,
    },
    Write {
        chunk: ChunkId,
        offset: u64,
        data: Data,
        terms: Terms,
        /// Of a write that servers pass on: they, of which this is the first.
        route: Option<Arc<Route>>,
    },
    /// Everything that moves no data, apart: it is long, and reads and writes are many.
    Other(Box<StorageRequest>),
}

impl From<StorageRequest> for Request {
    fn from(request: StorageRequest) -> Self {
        Self::Other(request.into())
    }
}

impl Request {
    pub(super) fn method(&self) -> Method {
        match self {
            Self::Read { .. } => Method::Read,
            Self::Write { route: None, .. } => Method::Write,
            Self::Write { route: Some(_), .. } => Method::Forward,
            Self::Other(request) => request.method(),
        }
    }

    /// Whether its buffer was sent: it cannot be made again without another one.
    pub(super) fn is_spent(&self) -> bool {
        matches!(self, Self::Write { data: Data::Buf(None), .. })
    }

    /// Gives a write its bytes once more.
    pub(super) fn refill(&mut self, fresh: Buf) {
        if let Self::Write { data, .. } = self {
            *data = Data::Buf(Some(fresh));
        }
    }

    /// Sends it.
    pub(super) fn start<D: Device<Memory = Region>>(
        &mut self,
        client: &mut ChunkClient,
        endpoint: &mut Endpoint<D>,
    ) -> Result<OpId, ClientError> {
        match *self {
            Self::Read { chunk, offset, length, by: ReadBy::Resident } => {
                client.start_resident_read(endpoint, chunk, offset, length)
            }
            Self::Read { chunk, offset, length, .. } => {
                client.start_read(endpoint, chunk, offset, length)
            }
            Self::Write { chunk, offset, ref mut data, terms, ref route } => {
                let (place, route, length) = ((chunk, offset), route.as_deref(), data.len());
                client.start_data(endpoint, route, place, (length, terms), |endpoint| match data {
                    Data::Bytes(bytes) => copy(endpoint, bytes),
                    Data::Buf(buf) => buf.take().ok_or(NoBuffer { wanted: length }),
                })
            }
            Self::Other(ref request) => client.start_request(endpoint, request),
        }
    }

    /// Whether the server makes it once at most, however often it is asked for: it is meant for a
    /// version, for a chunk that is not there, or for one with a lower chain version.
    pub(super) fn is_made_once(&self) -> bool {
        let is_once = |terms: &Terms| terms.version.is_some() && terms.stamp != 0;
        match self {
            Self::Read { .. } => false,
            Self::Write { terms, .. } => is_once(terms),
            Self::Other(request) => match &**request {
                StorageRequest::Chain { .. } => true,
                StorageRequest::Create { stamp, .. } => *stamp != 0,
                StorageRequest::Delete { version, .. } => version.is_some(),
                StorageRequest::Clear(ClearHeader { terms, .. })
                | StorageRequest::Finish { terms, .. } => is_once(terms),
                _ => false,
            },
        }
    }

    /// What is asked for, where it moves no data.
    pub(super) fn other(&self) -> Option<&StorageRequest> {
        if let Self::Other(request) = self { Some(request) } else { None }
    }

    /// Whether a server's replica can do it.
    pub(super) fn is_for_replica(&self) -> bool {
        matches!(self, Self::Read { by: ReadBy::Held | ReadBy::Copied, .. })
    }

    /// What a change gives of which it is known that it was done.
    pub(super) fn done(&self) -> Option<Output> {
        let method = self.method();
        method.is_change().then_some(Output::Changed(method, None))
    }

    fn place(&self) -> (Option<ChunkId>, Option<u64>) {
        match *self {
            Self::Read { chunk, offset, .. } | Self::Write { chunk, offset, .. } => {
                (Some(chunk), Some(offset))
            }
            Self::Other(ref request) => {
                (request.chunk(), request.range().map(|(offset, _)| offset))
            }
        }
    }
}

/// What a client and its thread count.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Operations that have not ended.
    pub(super) open: AtomicUsize,
    pub(super) operations: AtomicU64,
    pub(super) repeated: AtomicU64,
    /// Of those repeated: the server was busy, or bytes were changed on their way.
    pub(super) busy: AtomicU64,
    pub(super) corrupt: AtomicU64,
    pub(super) links_made: AtomicU64,
    /// The most bytes of one operation that all links so far carry; 0 before the first.
    pub(super) io_bytes_max: AtomicUsize,
    /// Since when no link takes requests; none while one does.
    pub(super) away_since: Mutex<Option<Instant>>,
}

/// A request on its way to its answer.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) request: Request,
    /// Nobody else changes the chunk: a change of which it is not known whether it was done may be
    /// done again.
    pub(super) alone: bool,
    /// No attempt begins later, unless the server is away.
    pub(super) deadline: Time,
    /// How long it waits for a server that is away.
    pub(super) patience: Patience,
    /// How often it was sent.
    pub(super) tries: u32,
    /// How the last attempt failed.
    pub(super) failed: Option<ErrorKind>,
    /// How an attempt failed of which it is not known whether it was done.
    pub(super) unsure: Option<ErrorKind>,
    answer: Option<Answer>,
}

/// The number of an operation that was started at a [`Driver`](super::Driver).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(super) u64);

/// Where the outcome goes.
#[derive(Debug)]
enum Answer {
    /// To whoever waits there.
    Place(Arc<Place>, Arc<Counters>),
    /// To the driver's caller.
    Ticket(Ticket),
}

/// What was started at a [`Driver`](super::Driver) and has come so far.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum Ended {
    /// It has ended.
    Done(Ticket, Result<Output, ClientError>),
    /// A write is to be made again, and its buffer was sent: it waits for
    /// [`Driver::refill`](super::Driver::refill).
    Refill(Ticket),
}

impl Task {
    /// One that somebody waits for at a place.
    pub(super) fn at_place(
        request: Request,
        (alone, patience): (bool, Patience),
        place: Arc<Place>,
        counters: Arc<Counters>,
    ) -> Self {
        counters.open.fetch_add(1, Relaxed);
        Self::new(request, (alone, patience), Answer::Place(place, counters))
    }

    /// One of which the driver's caller is told.
    pub(super) fn with_ticket(request: Request, patience: Patience, ticket: Ticket) -> Self {
        // What the tools of a caller write nobody else does.
        Self::new(request, (true, patience), Answer::Ticket(ticket))
    }

    fn new(request: Request, (alone, patience): (bool, Patience), answer: Answer) -> Self {
        let (deadline, failed, unsure) = (Time::NEVER, None, None);
        Self { request, alone, deadline, patience, tries: 0, failed, unsure, answer: Some(answer) }
    }

    /// Its number, where the driver's caller is told of it.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self.answer {
            Some(Answer::Ticket(ticket)) => Some(ticket),
            _ => None,
        }
    }

    /// When it is given up, where no link to the server has taken requests since `out_since`.
    pub(super) fn late_at(&self, out_since: Option<Time>, has_replica: bool) -> Time {
        let Patience { span, is_limit } = self.patience;
        match out_since {
            None => self.deadline,
            Some(_) if is_limit && has_replica && self.request.is_for_replica() => self.deadline,
            Some(since) if is_limit => since + span,
            Some(since) => self.deadline.max(since + span),
        }
    }

    /// Whether nobody wants it done any more.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(&self.answer, Some(Answer::Place(place, _)) if place.is_abandoned())
    }

    /// It has come to its end.
    pub(super) fn end(mut self, outcome: Result<Output, ErrorKind>, ended: &mut VecDeque<Ended>) {
        // What an attempt before may have done, no later failure undoes.
        let unsure = self.unsure;
        let outcome = outcome.map_err(|kind| self.error(unsure.unwrap_or(kind)));
        match self.answer.take() {
            Some(Answer::Place(place, counters)) => self.put(&place, &counters, outcome),
            Some(Answer::Ticket(ticket)) => ended.push_back(Ended::Done(ticket, outcome)),
            None => {}
        }
    }

    /// It ends as its last attempt did, or as `otherwise` where there was none.
    pub(super) fn give_up(self, otherwise: ErrorKind, ended: &mut VecDeque<Ended>) {
        let kind = self.failed.unwrap_or(otherwise);
        self.end(Err(kind), ended);
    }

    fn error(&self, kind: ErrorKind) -> ClientError {
        let ((chunk, offset), method) = (self.request.place(), self.request.method());
        ClientError { method, chunk, offset, kind }
    }

    fn put(&self, place: &Place, counters: &Counters, outcome: Result<Output, ClientError>) {
        let is_held = matches!(self.request, Request::Read { by: ReadBy::Held, .. });
        let outcome = outcome.map(|output| match output {
            Output::Read(data) if !is_held => Given::Bytes(data.to_vec()),
            output => Given::Output(output),
        });
        counters.open.fetch_sub(1, Relaxed);
        place.put(outcome);
    }
}

/// The client's driver is gone: nobody is left waiting.
impl Drop for Task {
    fn drop(&mut self) {
        if let Some(Answer::Place(place, counters)) = self.answer.take() {
            let fate = if self.tries == 0 { Fate::DidNotHappen } else { Fate::Unknown };
            let gone = self.error(ErrorKind::PeerGone { fate });
            self.put(&place, &counters, Err(gone));
        }
    }
}
