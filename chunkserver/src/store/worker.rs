//! The thread that owns a store: takes all requests that wait, commits them once, answers.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use thiserror::Error;

use super::asked::Asked;
use super::engine::{ChunkStat, Store, Ticket};
use super::error::{CreateError, DeleteError, FlushFailed, ReadError, Refused, WriteError};
use super::limits::WORKER_BATCH_MAX;
use super::media::Media;
use super::read::ReadDone;
use super::scrub::ScrubReport;
use super::slice::ChunkId;
use super::stage::Write;
use super::stats::StoreStats;

/// What a [`StoreWorker`] is asked; buffers come back with the answer, whatever it is.
#[derive(Debug)]
pub enum Request<W, R = W> {
    /// Make a chunk.
    Create {
        /// Its name.
        chunk: ChunkId,
        /// The length that it may reach; none for the most a chunk can have.
        limit_bytes: Option<u64>,
    },
    /// Take a chunk away.
    Delete {
        /// Its name.
        chunk: ChunkId,
    },
    /// List chunks as [`Store::list`] does.
    List {
        /// The last name that the caller has.
        after: Option<ChunkId>,
        /// Most chunks wanted.
        count_max: usize,
    },
    /// Read as [`Store::read`] does.
    Read {
        /// The chunk.
        chunk: ChunkId,
        /// First byte.
        offset: u64,
        /// How many bytes, into the front of `buf`.
        byte_len: usize,
        /// Where the data goes.
        buf: R,
        /// Where the checksums go; cleared first.
        crcs: Vec<u32>,
    },
    /// Check slices as [`Store::scrub_step`] does.
    Scrub {
        /// Most slices to check.
        budget_slices: u64,
    },
    /// The state of a chunk.
    Stat {
        /// The chunk.
        chunk: ChunkId,
    },
    /// The counters.
    Stats,
    /// Write as [`Write`] says.
    Write {
        /// The chunk.
        chunk: ChunkId,
        /// First byte.
        offset: u64,
        /// The data, piece after piece.
        data: Vec<W>,
        /// One checksum per touched slice.
        crcs: Vec<u32>,
        /// See [`Write::verified`].
        verified: bool,
    },
}

/// The answer to a [`Request`].
#[derive(Debug)]
pub enum Reply<W, R = W> {
    /// To a create; success means durable.
    Create(Result<Ticket, CreateError>),
    /// To a delete; success means durable.
    Delete(Result<Ticket, DeleteError>),
    /// To a listing.
    List(Vec<ChunkStat>),
    /// To a read.
    Read {
        /// How it went.
        result: Result<ReadDone, ReadError>,
        /// The caller's buffer.
        buf: R,
        /// The caller's list, filled.
        crcs: Vec<u32>,
    },
    /// To a scrub.
    Scrub(ScrubReport),
    /// To a stat.
    Stat(Option<ChunkStat>),
    /// To a question for the counters.
    Stats(StoreStats),
    /// To a write; success means durable.
    Write {
        /// How it went.
        result: Result<Ticket, WriteError>,
        /// The caller's buffers.
        data: Vec<W>,
        /// The caller's list.
        crcs: Vec<u32>,
    },
}

/// A reply and the token of its request.
#[derive(Debug)]
pub struct Completion<W, R = W> {
    /// The caller's own mark.
    pub token: u64,
    /// The answer.
    pub reply: Reply<W, R>,
}

/// How a [`StoreWorker`] queues and commits.
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    queue_max: usize,
    batch_max: usize,
    linger: Duration,
}

impl WorkerConfig {
    /// At most `queue_max` requests wait; up to [`WORKER_BATCH_MAX`] are taken before a commit,
    /// which waits for none.
    #[must_use]
    pub fn new(queue_max: usize) -> Self {
        Self { queue_max, batch_max: WORKER_BATCH_MAX, linger: Duration::ZERO }
    }

    /// The most requests taken before a commit, 1 to [`WORKER_BATCH_MAX`] (held to that range).
    #[must_use]
    pub fn batch_max(mut self, requests: usize) -> Self {
        self.batch_max = requests.clamp(1, WORKER_BATCH_MAX);
        self
    }

    /// How long a commit waits for more changes once it has one: it costs latency and saves
    /// flushes where they are slow. Default: not at all.
    #[must_use]
    pub fn linger(mut self, span: Duration) -> Self {
        self.linger = span;
        self
    }
}

/// The worker thread has ended; the request comes back.
#[derive(Debug, Error)]
#[error("the store's thread has ended")]
pub struct WorkerGone<T>(pub T);

/// A store on a thread of its own, behind a bounded queue; or one asker's hold on it, where
/// [several](Self::spawn_for) ask the same, each with a queue and answers of its own.
///
/// The worker takes all requests that wait, up to [`WORKER_BATCH_MAX`], stages the changes,
/// commits once, and answers. Changes take effect in the order in which they were sent. Reads
/// are answered before the commit of their batch: one that is sent before the write it should
/// see was answered may see what was there before.
///
/// Completions queue without a bound of their own: there is one for each request, so the
/// caller's buffers are the bound.
#[derive(Debug)]
pub struct StoreWorker<W, R = W> {
    requests: Sender<(u64, Request<W, R>)>,
    completions: Receiver<Completion<W, R>>,
    /// Shared by all who ask.
    thread: Arc<JoinHandle<Result<(), FlushFailed>>>,
}

impl<W, R> StoreWorker<W, R>
where
    W: AsRef<[u8]> + Send + 'static,
    R: AsMut<[u8]> + Send + 'static,
{
    /// Starts the thread; at most `queue_max` requests wait.
    ///
    /// # Errors
    /// What the system says when it has no thread to give.
    pub fn spawn<M>(store: Store<M>, queue_max: usize) -> io::Result<Self>
    where
        M: Media + Send + 'static,
        M::File: Send,
    {
        Self::spawn_with(store, WorkerConfig::new(queue_max))
    }

    /// Starts the thread with settings of one's own.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub fn spawn_with<M>(store: Store<M>, config: WorkerConfig) -> io::Result<Self>
    where
        M: Media + Send + 'static,
        M::File: Send,
    {
        let mut askers = Self::spawn_for(1, store, config)?;
        askers.pop().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Starts the thread for `askers` who ask, each with a queue of its own: the thread takes one
    /// request of each in turn, so that who asks much does not keep the others waiting. Changes
    /// take effect in the order in which one asker sent them; between askers there is none until
    /// an answer is there.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub fn spawn_for<M>(
        askers: usize,
        store: Store<M>,
        config: WorkerConfig,
    ) -> io::Result<Vec<Self>>
    where
        M: Media + Send + 'static,
        M::File: Send,
    {
        let queues = (0..askers).map(|_| bounded(config.queue_max));
        let (requests, incoming): (Vec<_>, Vec<_>) = queues.unzip();
        let (outgoing, completions): (Vec<_>, Vec<_>) = (0..askers).map(|_| unbounded()).unzip();
        let worker = Worker { store, config, outgoing, unanswered: Vec::new() };
        let run = move || worker.run(&mut Asked::new(&incoming));
        let thread = Arc::new(Builder::new().name("store".into()).spawn(run)?);
        let ends = requests.into_iter().zip(completions);
        let asker = |(requests, completions)| {
            let thread = Arc::clone(&thread);
            Self { requests, completions, thread }
        };
        Ok(ends.map(asker).collect())
    }

    /// Queues a request; waits while the queue is full.
    ///
    /// # Errors
    /// [`WorkerGone`] with the request.
    pub fn send(
        &self,
        token: u64,
        request: Request<W, R>,
    ) -> Result<(), WorkerGone<Request<W, R>>> {
        self.requests.send((token, request)).map_err(|e| WorkerGone(e.into_inner().1))
    }

    /// Queues a request if there is room; gives it back otherwise.
    ///
    /// # Errors
    /// The request, when the queue is full or the thread has ended.
    pub fn try_send(&self, token: u64, request: Request<W, R>) -> Result<(), Request<W, R>> {
        self.requests.try_send((token, request)).map_err(|e| e.into_inner().1)
    }

    /// Whether a request would find room in the queue. With one thread that sends it does.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.requests.is_full()
    }

    /// Where the answers arrive. It disconnects when the thread has ended.
    #[must_use]
    pub fn completions(&self) -> &Receiver<Completion<W, R>> {
        &self.completions
    }

    /// Answers that nobody has taken yet.
    #[must_use]
    pub fn answers_waiting(&self) -> usize {
        self.completions.len()
    }

    /// Whether the thread still answers.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Asks nothing more. The last of all who ask waits until what is queued is answered, the store
    /// closed, and the thread ended; for the others it is good. Completions that were not taken
    /// are lost with their buffers.
    ///
    /// # Errors
    /// As [`Store::close`].
    ///
    /// # Panics
    /// If the thread did.
    pub fn stop(self) -> Result<(), FlushFailed> {
        drop(self.requests);
        let Some(thread) = Arc::into_inner(self.thread) else { return Ok(()) };
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct Worker<M: Media, W, R> {
    store: Store<M>,
    config: WorkerConfig,
    /// By the number of who asks.
    outgoing: Vec<Sender<Completion<W, R>>>,
    /// Replies of staged changes, good ones if the commit is, and who asked.
    unanswered: Vec<(usize, Completion<W, R>)>,
}

impl<M: Media, W: AsRef<[u8]>, R: AsMut<[u8]>> Worker<M, W, R> {
    fn run(mut self, asked: &mut Asked<'_, (u64, Request<W, R>)>) -> Result<(), FlushFailed> {
        while let Some((asker, (token, request))) = asked.wait() {
            self.serve(asker, token, request);
            let mut room = self.config.batch_max - 1;
            self.take(&mut room, || asked.poll());
            if !self.unanswered.is_empty() && !self.config.linger.is_zero() {
                let end = Instant::now() + self.config.linger;
                self.take(&mut room, || asked.wait_until(end));
            }
            self.commit();
        }
        self.store.close()
    }

    /// Serves up to `room` more requests: reads count too, so that an endless flow of them does
    /// not keep a change from its commit.
    fn take(
        &mut self,
        room: &mut usize,
        mut next: impl FnMut() -> Option<(usize, (u64, Request<W, R>))>,
    ) {
        while *room > 0
            && let Some((asker, (token, request))) = next()
        {
            *room -= 1;
            self.serve(asker, token, request);
        }
    }

    fn serve(&mut self, asker: usize, token: u64, request: Request<W, R>) {
        let reply = match request {
            Request::Create { chunk, limit_bytes } => {
                let full = |e: &CreateError| matches!(e, CreateError::Refused(Refused::BatchFull));
                Reply::Create(self.stage(full, |s| s.stage_create(chunk, limit_bytes)))
            }
            Request::Delete { chunk } => {
                let full = |e: &DeleteError| matches!(e, DeleteError::Refused(Refused::BatchFull));
                Reply::Delete(self.stage(full, |s| s.stage_delete(chunk)))
            }
            Request::List { after, count_max } => Reply::List(self.store.list(after, count_max)),
            Request::Read { chunk, offset, byte_len, mut buf, mut crcs } => {
                let result = match buf.as_mut().get_mut(..byte_len) {
                    Some(part) => self.store.read(chunk, offset, part, &mut crcs),
                    None => Err(ReadError::Length { byte_len: byte_len as u64 }),
                };
                Reply::Read { result, buf, crcs }
            }
            Request::Scrub { budget_slices } => Reply::Scrub(self.store.scrub_step(budget_slices)),
            Request::Stat { chunk } => Reply::Stat(self.store.stat(chunk)),
            Request::Stats => Reply::Stats(self.store.stats()),
            Request::Write { chunk, offset, data, crcs, verified } => {
                let full = |e: &WriteError| matches!(e, WriteError::Refused(Refused::BatchFull));
                let result = self.stage(full, |store| {
                    let write = Write { chunk, offset, data: &data, crcs: &crcs, verified };
                    store.stage_write(&write)
                });
                Reply::Write { result, data, crcs }
            }
        };
        let completion = Completion { token, reply };
        if completion.reply.waits_for_commit() {
            self.unanswered.push((asker, completion));
        } else {
            self.answer(asker, completion);
        }
    }

    /// Stages a change; when the batch is full, commits it and tries once more.
    fn stage<E>(
        &mut self,
        is_full: impl Fn(&E) -> bool,
        mut change: impl FnMut(&mut Store<M>) -> Result<Ticket, E>,
    ) -> Result<Ticket, E> {
        match change(&mut self.store) {
            Err(error) if is_full(&error) => {
                self.commit();
                change(&mut self.store)
            }
            done => done,
        }
    }

    fn commit(&mut self) {
        let result = self.store.commit();
        let mut unanswered = std::mem::take(&mut self.unanswered);
        for (asker, mut completion) in unanswered.drain(..) {
            if let Err(failed) = result {
                completion.reply.spoil(failed);
            }
            self.answer(asker, completion);
        }
        self.unanswered = unanswered;
    }

    fn answer(&self, asker: usize, completion: Completion<W, R>) {
        // A caller that is gone wants no answer; its changes are committed all the same.
        let _ = self.outgoing[asker].send(completion);
    }
}

impl<W, R> Reply<W, R> {
    fn waits_for_commit(&self) -> bool {
        matches!(
            self,
            Self::Create(Ok(_)) | Self::Delete(Ok(_)) | Self::Write { result: Ok(_), .. }
        )
    }

    fn spoil(&mut self, failed: FlushFailed) {
        let refused = Refused::Undecided(failed);
        match self {
            Self::Create(result) => *result = Err(refused.into()),
            Self::Delete(result) => *result = Err(refused.into()),
            Self::Write { result, .. } => *result = Err(refused.into()),
            _ => {}
        }
    }
}
