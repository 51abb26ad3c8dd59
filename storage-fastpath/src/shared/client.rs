//! The client: what can be asked for.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use towpath_rpc::CallError;
use towpath_rpc::limits::HEADER_BYTES;
use towpath_transport::{Device, Endpoint, Nanos, Region, RoceUdp};

use super::driver::Driver;
use super::pending::{Given, Pending, Place, Take};
use super::request::{Counters, Data, ReadBy, Request, Task};
use crate::change::{Clear, NewChunk, Terms};
use crate::client::io_bytes_max;
use crate::config::{ClientConfig, Patience};
use crate::control::{ChunkInfo, InfoReply, ListReply, ScrubReply};
use crate::digest::{Digest, Sketches, SliceRange};
use crate::error::{ClientError, ErrorKind, OpenError};
use crate::health::HealthReply;
use crate::limits::{LIST_MAX, SHARED_OPEN_MAX};
use crate::output::{Output, ReadData};
use crate::qos::wire::QosReply;
use crate::rebuild::Rebuild;
use crate::request::StorageRequest;
use crate::route::Route;
use crate::slice::{ChunkId, SLICE_BYTES};
use crate::wire::{ClearHeader, Sender as LinkSender};

/// A client of one chunk server that threads and tasks share. Clones are the same client.
///
/// Each operation is begun by its call, and ends by itself: [`Pending::wait`] blocks for it, and
/// as a future it is awaited. As many are under way as
/// [`depth`](ClientConfig::depth) on each of the [`links`](ClientConfig::links); the others wait.
/// Operations that are under way together are done in any order; what is asked for after an answer
/// comes after what was answered.
///
/// **What breaks.** A link that breaks is made again, with growing waits in between. What was not
/// done is asked for again, and so is every read, until the client's
/// [`timeout`](ClientConfig::timeout) is over. A change of which it cannot be known whether it was
/// done is *not* asked for again: somebody else may have changed the same bytes meanwhile. It ends
/// with [`PeerGone`](crate::ErrorKind::PeerGone) and [`Fate::Unknown`](towpath_rpc::Fate) as soon
/// as a new link has entered the session of the old one, so that the change cannot come late
/// either; or, when that takes too long, with [`TimedOut`](crate::ErrorKind::TimedOut), and then it
/// can.
/// [`put`](Self::put) makes a chunk that nobody else changes, and repeats all. So does what is
/// meant for a version of the chunk ([`write_if`](Self::write_if) and its like), and
/// [`create`](Self::create): the server knows a change that it has made already, so it is made once
/// (docs/storage-protocol.md section 7). Where somebody else has changed the chunk since, nobody
/// knows any more, and it ends with [`PeerGone`](crate::ErrorKind::PeerGone) as well.
/// What finds the server busy is asked for again after a
/// wait.
///
/// ```no_run
/// use towpath_fastpath::{ChunkId, Client, ClientConfig};
///
/// let client = Client::connect("127.0.0.1:7400".parse()?, ClientConfig::new())?;
/// std::thread::scope(|scope| {
///     for name in 0..16 {
///         let client = client.clone();
///         scope.spawn(move || client.put(ChunkId(name), &[7; 4096]));
///     }
/// });
/// // Two reads at the same time.
/// let reads = [0, 1].map(|name| client.read(ChunkId(name), 0, 4096));
/// for read in reads {
///     println!("{} bytes", read.wait()?.len());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// Nobody else changes the chunks that it changes.
    alone: bool,
    /// The chain version that its changes name.
    chain: u32,
    /// How long its operations wait for a server that is away.
    patience: Patience,
}

/// What a [`Client`] counts; each only grows, but for `open`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedStats {
    /// Operations that were asked for.
    pub operations: u64,
    /// Of those, have not ended.
    pub open: u64,
    /// How often an operation was asked for again.
    pub repeated: u64,
    /// How often the server was too busy for an operation, which was asked for again.
    pub busy: u64,
    /// How often bytes were changed on their way, and asked for or sent again.
    pub corrupt: u64,
    /// Links that were made: those beyond [`links`](ClientConfig::links) replaced broken ones.
    pub links_made: u64,
}

struct Shared {
    /// None when the client is closing.
    asks: Mutex<Option<Sender<Task>>>,
    is_asleep: Arc<AtomicBool>,
    waker: Option<Waker>,
    counters: Arc<Counters>,
    thread: Mutex<Option<JoinHandle<()>>>,
    depth: usize,
    op_bytes: usize,
    /// The most bytes that the server takes in one operation.
    server_bytes: OnceLock<usize>,
    /// Of the next change that has one.
    stamp: AtomicU64,
}

impl Client {
    /// Connects to the chunk server that listens on `addr`, over the default device.
    ///
    /// # Errors
    /// [`OpenError`]: the first link could not be made. Later ones are tried again.
    pub fn connect(addr: SocketAddr, config: ClientConfig) -> Result<Self, OpenError> {
        let endpoint: Endpoint<RoceUdp> =
            Endpoint::udp(config.udp_config(addr)?, config.endpoint_config())?;
        Self::over(endpoint, addr, &config)
    }

    /// Connects over an endpoint of the caller's own, which has room for the links, and for those
    /// to a replica where reads are hedged.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn over<D: Device<Memory = Region> + Send + 'static>(
        endpoint: Endpoint<D>,
        addr: SocketAddr,
        config: &ClientConfig,
    ) -> Result<Self, OpenError> {
        let (opened, outcome) = sync_channel(1);
        let (client, driver) = Self::driven(endpoint, addr, config);
        let thread = std::thread::Builder::new()
            .name("towpath-client".into())
            .spawn(move || driver.run(&opened))
            .map_err(OpenError::Thread)?;
        // A thread that ends without a word has panicked.
        let panicked = || Err(OpenError::Thread(std::io::ErrorKind::BrokenPipe.into()));
        outcome.recv().unwrap_or_else(|_| panicked())?;
        *client.shared.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(client)
    }

    /// A client that works while its caller turns the [`Driver`]: no other thread takes part, and
    /// nothing waits for another one. Of its calls, none that blocks may be made on that thread:
    /// [`Pending::try_take`] between turns takes the place of [`Pending::wait`].
    pub fn driven<D: Device<Memory = Region>>(
        endpoint: Endpoint<D>,
        addr: SocketAddr,
        config: &ClientConfig,
    ) -> (Self, Driver<D>) {
        let (asks, asked) = channel();
        let (is_asleep, counters) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let waker = endpoint.waker();
        let parts = (Arc::clone(&is_asleep), Arc::clone(&counters));
        let driver = Driver::new(endpoint, addr, config, asked, parts);
        let shared = Shared {
            asks: Mutex::new(Some(asks)),
            is_asleep,
            waker,
            counters,
            thread: Mutex::new(None),
            depth: config.depth * config.links,
            op_bytes: config.op_bytes,
            server_bytes: OnceLock::new(),
            stamp: AtomicU64::new(config.first_stamp()),
        };
        let (shared, patience) = (Arc::new(shared), config.patience);
        (Self { shared, alone: false, chain: 0, patience }, driver)
    }

    /// The same client, for chunks that nobody else changes: every change is asked for again until
    /// it is known to be done, as [`put`](Self::put) does.
    #[must_use]
    pub fn sole_writer(&self) -> Self {
        Self { alone: true, ..self.clone() }
    }

    /// The same client, whose operations wait so long for a server that is away, in place of
    /// [`ClientConfig::patience`].
    #[must_use]
    pub fn patient(&self, span: impl Into<Nanos>) -> Self {
        Self { patience: Patience { span: span.into(), ..self.patience }, ..self.clone() }
    }

    /// The same client, for chunks that have that chain version: every write, also along a route,
    /// clear and finish names it, and a [`put`](Self::put) makes its chunk with it. It is 0 at
    /// first.
    #[must_use]
    pub fn on_chain(&self, chain: u32) -> Self {
        Self { chain, ..self.clone() }
    }

    /// Creates a chunk that may grow to `limit_bytes`, or to the largest size of a chunk.
    pub fn create(&self, chunk: ChunkId, limit_bytes: Option<u64>, kind: NewChunk) -> Pending<()> {
        let stamp = self.stamp();
        self.ask(StorageRequest::Create { chunk, limit_bytes, kind, stamp }, false, done)
    }

    /// Finishes an unfinished chunk, which must have `byte_len` bytes: it can be read from now on.
    pub fn finish(&self, chunk: ChunkId, byte_len: u64) -> Pending<()> {
        let terms = self.any_terms();
        self.ask(StorageRequest::Finish { chunk, byte_len, terms }, false, done)
    }

    /// As [`finish`](Self::finish), where the chunk has that version; gives the one that it has
    /// then.
    pub fn finish_if(&self, chunk: ChunkId, byte_len: u64, version: u64) -> Pending<u64> {
        let terms = self.terms(version);
        self.ask(StorageRequest::Finish { chunk, byte_len, terms }, false, changed)
    }

    /// Deletes a chunk.
    pub fn delete(&self, chunk: ChunkId) -> Pending<()> {
        self.ask(StorageRequest::Delete { chunk, version: None }, false, done)
    }

    /// As [`delete`](Self::delete), where the chunk has that version.
    pub fn delete_if(&self, chunk: ChunkId, version: u64) -> Pending<()> {
        self.ask(StorageRequest::Delete { chunk, version: Some(version) }, false, done)
    }

    /// Takes bytes of a chunk away, of a range at most 2^32 - 1.
    pub fn clear(&self, chunk: ChunkId, clear: Clear) -> Pending<()> {
        self.clear_on(chunk, clear, self.any_terms(), done)
    }

    /// As [`clear`](Self::clear), where the chunk has that version; gives the one that it has then.
    pub fn clear_if(&self, chunk: ChunkId, clear: Clear, version: u64) -> Pending<u64> {
        self.clear_on(chunk, clear, self.terms(version), changed)
    }

    fn clear_on<T>(&self, chunk: ChunkId, clear: Clear, terms: Terms, take: Take<T>) -> Pending<T> {
        // Each link says for itself who asks.
        let header = ClearHeader { chunk, clear, sender: LinkSender::default(), terms };
        self.ask(StorageRequest::Clear(header), false, take)
    }

    /// Raises the chain version of a chunk, so that changes that name a lower one are refused from
    /// then on; gives the version that the chunk has then. A chunk that has this one already stays
    /// as it is. It is repeated whatever breaks.
    pub fn raise_chain(&self, chunk: ChunkId, chain: u32) -> Pending<u64> {
        let stamp = self.stamp();
        self.ask(StorageRequest::Chain { chunk, chain, version: None, stamp }, false, changed)
    }

    /// The state of a chunk.
    pub fn stat(&self, chunk: ChunkId) -> Pending<ChunkInfo> {
        self.ask(StorageRequest::Stat { chunk }, false, |given| match given {
            Given::Output(Output::Stat(info)) => Some(info),
            _ => None,
        })
    }

    /// The checksums of the slices of a range that begins with one, of at most
    /// [`IO_BYTES_MAX`](crate::limits::IO_BYTES_MAX) bytes, as far as the chunk has them, of one
    /// version of it. The server has them in memory, and reads nothing for it.
    pub fn digest(&self, chunk: ChunkId, offset: u64, length: usize) -> Pending<Digest> {
        self.ask(StorageRequest::Digest { chunk, range: range(offset, length) }, false, |given| {
            match given {
                Given::Output(Output::Digest(digest)) => Some(digest),
                _ => None,
            }
        })
    }

    /// The sketch of each slice of a range that begins with one, of at most
    /// [`SKETCHED_BYTES_MAX`](crate::limits::SKETCHED_BYTES_MAX) bytes, of one version of the
    /// chunk, drawn by a seed. The server reads the slices and checks them.
    pub fn sketch(
        &self,
        chunk: ChunkId,
        offset: u64,
        length: usize,
        seed: u64,
    ) -> Pending<Sketches> {
        let range = range(offset, length);
        self.ask(StorageRequest::Sketch { chunk, range, seed }, false, |given| match given {
            Given::Output(Output::Sketches(sketches)) => Some(sketches),
            _ => None,
        })
    }

    /// One page of the listing, after the chunk `after`, in the order of names.
    pub fn list_page(&self, after: Option<ChunkId>) -> Pending<ListReply> {
        let count_max = LIST_MAX as u32;
        self.ask(StorageRequest::List { after, count_max }, false, |given| match given {
            Given::Output(Output::List(page)) => Some(page),
            _ => None,
        })
    }

    /// What the server is and how it is.
    pub fn info(&self) -> Pending<InfoReply> {
        self.ask(StorageRequest::Info, false, |given| match given {
            Given::Output(Output::Info(info)) => Some(info),
            _ => None,
        })
    }

    /// How the server's links are, as it sees them.
    pub fn health(&self) -> Pending<HealthReply> {
        self.ask_health(false)
    }

    /// The same, and what the phases of requests took at the server since it started.
    pub fn health_with_times(&self) -> Pending<HealthReply> {
        self.ask_health(true)
    }

    fn ask_health(&self, times: bool) -> Pending<HealthReply> {
        self.ask(StorageRequest::Health { times }, false, |given| match given {
            Given::Output(Output::Health(health)) => Some(health),
            _ => None,
        })
    }

    /// How the server keeps reservations.
    pub fn qos(&self) -> Pending<QosReply> {
        self.ask(StorageRequest::Qos, false, |given| match given {
            Given::Output(Output::Qos(reply)) => Some(reply),
            _ => None,
        })
    }

    /// Has the server refuse the capabilities of a serial number, all of which have expired by
    /// `until_ms`, milliseconds since the Unix epoch; it remembers that durably.
    pub fn revoke(&self, serial: u64, until_ms: u64) -> Pending<()> {
        self.ask(StorageRequest::Revoke { serial, until_ms }, false, done)
    }

    /// Has up to `budget_slices` more slices checked, or as many as the server likes when that is
    /// 0.
    pub fn scrub_step(&self, budget_slices: u64) -> Pending<ScrubReply> {
        self.ask(StorageRequest::Scrub { budget_slices }, false, |given| match given {
            Given::Output(Output::Scrub(report)) => Some(report),
            _ => None,
        })
    }

    /// Writes `bytes` from `offset` on, all or nothing: at most
    /// [`op_bytes_max`](Self::op_bytes_max). They are copied once, into a send buffer; a
    /// [`Driver`] writes without a copy.
    pub fn write(&self, chunk: ChunkId, offset: u64, bytes: impl Into<Vec<u8>>) -> Pending<()> {
        self.write_on(None, (chunk, offset), bytes, self.any_terms(), done)
    }

    /// As [`write`](Self::write), where the chunk has that version; gives the one that it has then,
    /// for the next one. It is repeated whatever breaks, and made once.
    pub fn write_if(
        &self,
        chunk: ChunkId,
        offset: u64,
        bytes: impl Into<Vec<u8>>,
        version: u64,
    ) -> Pending<u64> {
        self.write_on(None, (chunk, offset), bytes, self.terms(version), changed)
    }

    fn write_on<T>(
        &self,
        route: Option<Arc<Route>>,
        (chunk, offset): (ChunkId, u64),
        bytes: impl Into<Vec<u8>>,
        terms: Terms,
        take: Take<T>,
    ) -> Pending<T> {
        let data = Data::Bytes(bytes.into());
        self.ask(Request::Write { chunk, offset, data, terms, route }, false, take)
    }

    /// As [`create`](Self::create), of a chunk of any length; gives the version that the new chunk
    /// has: whoever changes what has that version finds nothing in it.
    pub fn create_new(&self, chunk: ChunkId) -> Pending<u64> {
        let (stamp, kind) = (self.stamp(), NewChunk::default());
        self.ask(StorageRequest::Create { chunk, limit_bytes: None, kind, stamp }, false, changed)
    }

    /// As [`write_if`](Self::write_if), with a stamp, not 0, that the caller has for the change and
    /// for no other one. Whoever asks for the same change, of the same version with the same
    /// stamp, gets the version that it made, as long as it is the chunk's last one
    /// (docs/storage-protocol.md section 7): so one client finishes what another has begun.
    pub fn write_as(
        &self,
        chunk: ChunkId,
        offset: u64,
        bytes: impl Into<Vec<u8>>,
        (version, stamp): (u64, u64),
    ) -> Pending<u64> {
        let terms = Terms { version: Some(version), stamp, ..self.any_terms() };
        self.write_on(None, (chunk, offset), bytes, terms, changed)
    }

    /// As [`write`](Self::write), along the servers of a route, of which this client's is the
    /// first: it has ended well when all of them have made it durable.
    pub fn write_along(
        &self,
        route: Arc<Route>,
        chunk: ChunkId,
        offset: u64,
        bytes: impl Into<Vec<u8>>,
    ) -> Pending<()> {
        self.write_on(Some(route), (chunk, offset), bytes, self.any_terms(), done)
    }

    /// Writes a data unit of a stripe, of whole slices: it has ended well when it is durable, and
    /// with it all parity units of the stripe, which servers make of all its data units
    /// ([`Route::stripe`]). `stamp` tells this writing of the stripe from all others, and is the
    /// same for its units. Nobody else may write the stripe meanwhile.
    pub fn write_unit(
        &self,
        route: Arc<Route>,
        place: (ChunkId, u64),
        bytes: impl Into<Vec<u8>>,
        stamp: u64,
    ) -> Pending<()> {
        let terms = Terms { stamp, ..self.any_terms() };
        self.write_on(Some(route), place, bytes, terms, done)
    }

    /// Has the servers of a plan, of which this client's is the first, make a range of a part anew:
    /// gives the version that its chunk has then. Where it fails with an unknown fate it may still
    /// be written later, unless the plan names the version that the chunk must have.
    pub fn rebuild(&self, plan: Rebuild) -> Pending<u64> {
        self.ask(StorageRequest::Rebuild { plan, crcs: Vec::new() }, false, changed)
    }

    /// The terms of a change that is meant for a version.
    fn terms(&self, version: u64) -> Terms {
        Terms { version: Some(version), stamp: self.stamp(), ..self.any_terms() }
    }

    /// The terms of a change that is meant for no version.
    fn any_terms(&self) -> Terms {
        Terms { chain: self.chain, ..Terms::default() }
    }

    /// A number that no other change has: the first is drawn at random.
    fn stamp(&self) -> u64 {
        self.shared.stamp.fetch_add(1, Relaxed).max(1)
    }

    /// Reads at most [`op_bytes_max`](Self::op_bytes_max) bytes from `offset` on, of one version of
    /// the chunk, and copies them once.
    pub fn read(&self, chunk: ChunkId, offset: u64, length: usize) -> Pending<Vec<u8>> {
        self.ask(Request::Read { chunk, offset, length, by: ReadBy::Copied }, false, bytes)
    }

    /// As [`read`](Self::read), without the copy: the bytes stay in the buffers that they landed
    /// in. These are credit of the link until the data is dropped. Whoever keeps many, answers that
    /// nobody has taken yet included, holds up all other operations.
    pub fn read_held(&self, chunk: ChunkId, offset: u64, length: usize) -> Pending<ReadData> {
        let request = Request::Read { chunk, offset, length, by: ReadBy::Held };
        self.ask(request, false, |given| match given {
            Given::Output(Output::Read(data)) => Some(data),
            _ => None,
        })
    }

    /// As [`read`](Self::read), by READs of the server's memory where the chunk is resident; see
    /// [`ChunkClient::start_resident_read`](crate::ChunkClient::start_resident_read). Such a read
    /// is not hedged.
    pub fn read_resident(&self, chunk: ChunkId, offset: u64, length: usize) -> Pending<Vec<u8>> {
        self.ask(Request::Read { chunk, offset, length, by: ReadBy::Resident }, false, bytes)
    }

    /// Makes the chunk with `bytes`, several operations at a time, and blocks until it is whole.
    /// Nobody else may make a chunk of that name meanwhile: what may have been done is repeated.
    ///
    /// # Errors
    /// [`ClientError`]. The chunk may be there, unfinished: then it is not read, and the server
    /// removes it after a while.
    pub fn put(&self, chunk: ChunkId, bytes: &[u8]) -> Result<(), ClientError> {
        let kind = NewChunk { unfinished: true, resident: false, chain: self.chain };
        let op_bytes = self.op_bytes_max()?.min(self.shared.op_bytes);
        let (limit_bytes, stamp) = (None, self.stamp());
        self.ask(StorageRequest::Create { chunk, limit_bytes, kind, stamp }, true, done).wait()?;
        let mut under_way: VecDeque<Pending<()>> = VecDeque::new();
        let mut written = Ok(());
        for (index, part) in bytes.chunks(op_bytes).enumerate() {
            if under_way.len() == self.shared.depth
                && let Some(first) = under_way.pop_front()
            {
                written = first.wait();
            }
            if written.is_err() {
                break;
            }
            let offset = (index * op_bytes) as u64;
            let (data, terms) = (Data::Bytes(part.to_vec()), self.any_terms());
            let write = Request::Write { chunk, offset, data, terms, route: None };
            under_way.push_back(self.ask(write, true, done));
        }
        // All of them, whatever came of one: none comes after the caller has gone on.
        let written = under_way.into_iter().map(Pending::wait).fold(written, Result::and);
        written?;
        let (byte_len, terms) = (bytes.len() as u64, self.any_terms());
        self.ask(StorageRequest::Finish { chunk, byte_len, terms }, true, done).wait()
    }

    /// The most bytes of one read or write that links and server take, a multiple of the slice.
    /// The server is asked the first time.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn op_bytes_max(&self) -> Result<usize, ClientError> {
        match self.shared.server_bytes.get() {
            Some(known) => Ok(self.op_bytes_of(*known)),
            None => Ok(self.op_bytes_by(&self.info().wait()?)),
        }
    }

    /// The same where the server [has said](Self::info) what it is.
    #[must_use]
    pub fn op_bytes_by(&self, info: &InfoReply) -> usize {
        let whole = usize::try_from(info.request_bytes_max).unwrap_or(usize::MAX);
        let most = io_bytes_max(whole.saturating_sub(HEADER_BYTES));
        self.op_bytes_of(*self.shared.server_bytes.get_or_init(|| most))
    }

    fn op_bytes_of(&self, server: usize) -> usize {
        server.min(self.link_bytes_max()).max(SLICE_BYTES)
    }

    /// The most bytes of one read or write that all links so far carry.
    #[must_use]
    pub fn link_bytes_max(&self) -> usize {
        self.shared.counters.io_bytes_max.load(Relaxed)
    }

    /// How long the server has been away: no link to it takes requests. None while one does.
    #[must_use]
    pub fn away_for(&self) -> Option<Duration> {
        let since = self.shared.counters.away_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map(|since| since.elapsed())
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> SharedStats {
        let counters = &self.shared.counters;
        SharedStats {
            operations: counters.operations.load(Relaxed),
            open: counters.open.load(Relaxed) as u64,
            repeated: counters.repeated.load(Relaxed),
            busy: counters.busy.load(Relaxed),
            corrupt: counters.corrupt.load(Relaxed),
            links_made: counters.links_made.load(Relaxed),
        }
    }

    /// Ends the client for all its clones: takes no operation any more, waits until those that
    /// were asked for have ended, and leaves in order. Without it the client's thread does so
    /// when the last clone is gone, and nobody waits for it.
    pub fn close(&self) {
        self.shared.end();
        let thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic was told where it was.
            let _ = thread.join();
        }
    }

    fn ask<T>(&self, request: impl Into<Request>, alone: bool, take: Take<T>) -> Pending<T> {
        let alone = alone || self.alone;
        let place = Arc::new(Place::default());
        let counters = Arc::clone(&self.shared.counters);
        let is_full = counters.open.load(Relaxed) >= SHARED_OPEN_MAX;
        let task =
            Task::at_place(request.into(), (alone, self.patience), Arc::clone(&place), counters);
        if is_full {
            let full = ErrorKind::Call(CallError::Full { max: SHARED_OPEN_MAX });
            task.end(Err(full), &mut VecDeque::new());
        } else {
            self.shared.send(task);
        }
        Pending::new(place, take)
    }
}

impl Shared {
    fn send(&self, task: Task) {
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        // A task that nobody takes says so to who waits for it when it is dropped.
        if let Some(asks) = &*asks {
            let _ = asks.send(task);
        }
        drop(asks);
        self.wake();
    }

    fn end(&self) {
        drop(self.asks.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.wake();
    }

    fn wake(&self) {
        if self.is_asleep.swap(false, SeqCst)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

fn done(_: Given) -> Option<()> {
    Some(())
}

/// The version that a change has made.
fn changed(given: Given) -> Option<u64> {
    match given {
        Given::Output(Output::Changed(_, version)) => version,
        _ => None,
    }
}

fn bytes(given: Given) -> Option<Vec<u8>> {
    match given {
        Given::Bytes(bytes) => Some(bytes),
        Given::Output(_) => None,
    }
}

/// A range as the wire has it: one that is longer is refused for its length.
fn range(offset: u64, length: usize) -> SliceRange {
    SliceRange { offset, length: u32::try_from(length).unwrap_or(u32::MAX) }
}
