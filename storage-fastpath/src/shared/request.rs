//! What a client asks for, kept until it is answered.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use towpath_rpc::Fate;
use towpath_transport::{Device, Endpoint, Nanos, Region, Time};

use super::pending::{Given, Place};
use crate::change::{Clear, NewChunk, Terms};
use crate::client::OpId;
use crate::error::{ClientError, ErrorKind};
use crate::hedge::HedgedClient;
use crate::output::Output;
use crate::rebuild::Rebuild;
use crate::route::Route;
use crate::slice::ChunkId;
use crate::wire::Method;

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

/// What is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Chain {
        chunk: ChunkId,
        chain: u32,
        stamp: u64,
    },
    Clear {
        chunk: ChunkId,
        clear: Clear,
        terms: Terms,
    },
    Create {
        chunk: ChunkId,
        limit_bytes: Option<u64>,
        kind: NewChunk,
        stamp: u64,
    },
    Delete {
        chunk: ChunkId,
        version: Option<u64>,
    },
    Digest {
        chunk: ChunkId,
        offset: u64,
        length: usize,
    },
    Finish {
        chunk: ChunkId,
        byte_len: u64,
        terms: Terms,
    },
    Health,
    Info,
    List {
        after: Option<ChunkId>,
        count: u32,
    },
    Qos,
    Read {
        chunk: ChunkId,
        offset: u64,
        length: usize,
        by: ReadBy,
    },
    Rebuild {
        plan: Arc<Rebuild>,
    },
    Scrub {
        budget_slices: u64,
    },
    Sketch {
        chunk: ChunkId,
        offset: u64,
        length: usize,
        seed: u64,
    },
    Stat {
        chunk: ChunkId,
    },
    Write {
        chunk: ChunkId,
        offset: u64,
        bytes: Vec<u8>,
        terms: Terms,
    },
    /// A write along the servers of a route, of which this is the first.
    Forward {
        route: Arc<Route>,
        chunk: ChunkId,
        offset: u64,
        bytes: Vec<u8>,
        terms: Terms,
    },
}

impl Request {
    pub(super) fn method(&self) -> Method {
        match self {
            Self::Chain { .. } => Method::Chain,
            Self::Clear { clear, .. } => clear.method(),
            Self::Create { .. } => Method::Create,
            Self::Delete { .. } => Method::Delete,
            Self::Digest { .. } => Method::Digest,
            Self::Finish { .. } => Method::Finish,
            Self::Health => Method::Health,
            Self::Info => Method::Info,
            Self::List { .. } => Method::List,
            Self::Qos => Method::Qos,
            Self::Read { .. } => Method::Read,
            Self::Rebuild { .. } => Method::Rebuild,
            Self::Scrub { .. } => Method::Scrub,
            Self::Sketch { .. } => Method::Sketch,
            Self::Stat { .. } => Method::Stat,
            Self::Write { .. } => Method::Write,
            Self::Forward { .. } => Method::Forward,
        }
    }

    /// Sends it.
    pub(super) fn start<D: Device<Memory = Region>>(
        &self,
        client: &mut HedgedClient,
        endpoint: &mut Endpoint<D>,
    ) -> Result<OpId, ClientError> {
        if let Self::Read { chunk, offset, length, by: ReadBy::Held | ReadBy::Copied } = *self {
            return client.start_read(endpoint, chunk, offset, length);
        }
        let client = client.primary_mut();
        match *self {
            Self::Chain { chunk, chain, stamp } => {
                client.start_raise_chain(endpoint, (chunk, chain), None, stamp)
            }
            Self::Clear { chunk, clear, terms } => {
                client.start_clear(endpoint, terms, chunk, clear)
            }
            Self::Create { chunk, limit_bytes, kind, stamp } => {
                client.start_create_stamped(endpoint, chunk, limit_bytes, kind, stamp)
            }
            Self::Delete { chunk, version } => client.start_delete_if(endpoint, chunk, version),
            Self::Digest { chunk, offset, length } => {
                client.start_digest(endpoint, chunk, offset, length)
            }
            Self::Finish { chunk, byte_len, terms } => {
                client.start_finish_on(endpoint, terms, chunk, byte_len)
            }
            Self::Health => client.start_health(endpoint),
            Self::Info => client.start_info(endpoint),
            Self::List { after, count } => client.start_list(endpoint, after, count),
            Self::Qos => client.start_qos(endpoint),
            Self::Read { chunk, offset, length, .. } => {
                client.start_resident_read(endpoint, chunk, offset, length)
            }
            Self::Rebuild { ref plan } => client.start_rebuild(endpoint, plan),
            Self::Scrub { budget_slices } => client.start_scrub(endpoint, budget_slices),
            Self::Sketch { chunk, offset, length, seed } => {
                client.start_sketch(endpoint, chunk, (offset, length), seed)
            }
            Self::Stat { chunk } => client.start_stat(endpoint, chunk),
            Self::Write { chunk, offset, ref bytes, terms } => {
                client.start_write_copy_on(endpoint, terms, (chunk, offset), bytes)
            }
            Self::Forward { ref route, chunk, offset, ref bytes, terms } => {
                client.start_forward_copy(endpoint, (route, terms), (chunk, offset), bytes)
            }
        }
    }

    /// Whether the server makes it once at most, however often it is asked for: it is meant for a
    /// version, for a chunk that is not there, or for one with a lower chain version.
    pub(super) fn is_made_once(&self) -> bool {
        match self {
            Self::Chain { .. } => true,
            Self::Create { stamp, .. } => *stamp != 0,
            Self::Delete { version, .. } => version.is_some(),
            Self::Clear { terms, .. } | Self::Finish { terms, .. } | Self::Write { terms, .. } => {
                terms.version.is_some() && terms.stamp != 0
            }
            _ => false,
        }
    }

    /// Whether a server's replica can do it.
    pub(super) fn is_for_replica(&self) -> bool {
        matches!(self, Self::Read { by: ReadBy::Held | ReadBy::Copied, .. })
    }

    /// What a change gives of which it is known that it was done.
    pub(super) fn done(&self) -> Option<Output> {
        match self {
            _ if self.method().is_change() => Some(Output::Changed(self.method(), None)),
            _ => None,
        }
    }

    fn place(&self) -> (Option<ChunkId>, Option<u64>) {
        match *self {
            Self::Chain { chunk, .. }
            | Self::Clear { chunk, .. }
            | Self::Create { chunk, .. }
            | Self::Delete { chunk, .. }
            | Self::Finish { chunk, .. }
            | Self::Stat { chunk } => (Some(chunk), None),
            Self::Read { chunk, offset, .. }
            | Self::Write { chunk, offset, .. }
            | Self::Digest { chunk, offset, .. }
            | Self::Sketch { chunk, offset, .. }
            | Self::Forward { chunk, offset, .. } => (Some(chunk), Some(offset)),
            Self::Rebuild { ref plan } => {
                let target = plan.target();
                (Some(target.chunk), Some(target.offset))
            }
            Self::Health | Self::Info | Self::List { .. } | Self::Qos | Self::Scrub { .. } => {
                (None, None)
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
    pub(super) patience: Nanos,
    /// How often it was sent.
    pub(super) tries: u32,
    /// How the last attempt failed.
    pub(super) failed: Option<ErrorKind>,
    /// How an attempt failed of which it is not known whether it was done.
    pub(super) unsure: Option<ErrorKind>,
    answer: Option<Answer>,
}

/// Who waits for the answer.
#[derive(Debug)]
struct Answer {
    place: Arc<Place>,
    counters: Arc<Counters>,
}

impl Task {
    pub(super) fn new(
        request: Request,
        (alone, patience): (bool, Nanos),
        place: Arc<Place>,
        counters: Arc<Counters>,
    ) -> Self {
        counters.open.fetch_add(1, Relaxed);
        let answer = Some(Answer { place, counters });
        let (deadline, failed, unsure) = (Time::NEVER, None, None);
        Self { request, alone, deadline, patience, tries: 0, failed, unsure, answer }
    }

    /// When it is given up, where no link has taken requests since `out_since`.
    pub(super) fn late_at(&self, out_since: Option<Time>) -> Time {
        self.deadline.max(out_since.map_or(Time::ZERO, |since| since + self.patience))
    }

    /// Whether nobody wants it done any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.place.is_abandoned())
    }

    /// It has come to its end.
    pub(super) fn end(mut self, outcome: Result<Output, ErrorKind>) {
        // What an attempt before may have done, no later failure undoes.
        let unsure = self.unsure;
        self.tell(outcome.map_err(|kind| unsure.unwrap_or(kind)));
    }

    /// It ends as its last attempt did, or as `otherwise` where there was none.
    pub(super) fn give_up(self, otherwise: ErrorKind) {
        let kind = self.failed.unwrap_or(otherwise);
        self.end(Err(kind));
    }

    fn tell(&mut self, outcome: Result<Output, ErrorKind>) {
        let Some(Answer { place, counters }) = self.answer.take() else { return };
        let ((chunk, offset), method) = (self.request.place(), self.request.method());
        let error = |kind| ClientError { method, chunk, offset, kind };
        let is_held = matches!(self.request, Request::Read { by: ReadBy::Held, .. });
        let outcome = outcome.map_err(error).map(|output| match output {
            Output::Read(data) if !is_held => Given::Bytes(data.to_vec()),
            output => Given::Output(output),
        });
        counters.open.fetch_sub(1, Relaxed);
        place.put(outcome);
    }
}

/// The client's thread is gone: nobody is left waiting.
impl Drop for Task {
    fn drop(&mut self) {
        let fate = if self.tries == 0 { Fate::DidNotHappen } else { Fate::Unknown };
        self.tell(Err(ErrorKind::PeerGone { fate }));
    }
}
