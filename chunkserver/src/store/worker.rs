//! The thread that owns a store, and the hold that those have on it who ask.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{
    Receiver, RecvTimeoutError, SendError, Sender, TrySendError, bounded, unbounded,
};
use thiserror::Error;

use super::asked::Asked;
use super::engine::Store;
use super::error::FlushFailed;
use super::fence::Fences;
use super::limits::{MARK_AFTER, SWEEP_EVERY, UNFINISHED_KEEP_DEFAULT, WORKER_BATCH_MAX};
use super::media::Media;
use super::request::{Completion, Request};
use super::unfinished::Unfinished;
use super::wakeful::{Wakeful, watched};
use super::work::{Queued, Work};

/// How a [`StoreWorker`] queues and commits.
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    queue_max: usize,
    pub(super) batch_max: usize,
    pub(super) linger: Duration,
    by_askers: bool,
    pub(super) unfinished_keep: Option<Duration>,
}

impl WorkerConfig {
    /// At most `queue_max` requests wait; up to [`WORKER_BATCH_MAX`] are taken before a commit,
    /// which waits for none.
    #[must_use]
    pub fn new(queue_max: usize) -> Self {
        Self {
            queue_max,
            batch_max: WORKER_BATCH_MAX,
            linger: Duration::ZERO,
            by_askers: false,
            unfinished_keep: Some(UNFINISHED_KEEP_DEFAULT),
        }
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

    /// How long an unfinished chunk is kept that nobody writes to; none: for good. Default 10 min.
    /// The time begins anew when the store is opened.
    #[must_use]
    pub fn unfinished_keep(mut self, span: Option<Duration>) -> Self {
        self.unfinished_keep = span;
        self
    }

    /// Whether those who ask do the work themselves, in [`StoreWorker::work`], as long as the
    /// medium has not made a thread sleep of late: it saves handing over, which costs more than a
    /// commit to memory where cores are few, and forgoes doing two things at once where they are
    /// not. Without effect on a commit that [lingers](Self::linger). Default: no.
    #[must_use]
    pub fn by_askers(mut self, by_askers: bool) -> Self {
        self.by_askers = by_askers;
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
/// Where [those who ask may do the work](WorkerConfig::by_askers), whoever has the store at the
/// time is the worker, and all this holds as well.
///
/// Completions queue without a bound of their own: there is one for each request, so the
/// caller's buffers are the bound.
#[derive(Debug)]
pub struct StoreWorker<W, R = W> {
    requests: Sender<Queued<W, R>>,
    completions: Receiver<Completion<W, R>>,
    /// Tells the thread that there are requests. It ends when nobody can ring any more.
    bell: Sender<()>,
    number: usize,
    desk: Arc<dyn Desk>,
    /// Requests in the queue that are too long to be done here: the thread does them, and what
    /// comes before and behind.
    long: Arc<AtomicUsize>,
    /// Shared by all who ask.
    fences: Arc<Fences>,
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
        // One ring stands for all that is queued when it is heard.
        let (bell, rung) = bounded(1);
        let long: Vec<_> = (0..askers).map(|_| Arc::default()).collect();
        let (asked, of_work) = (Asked::new(incoming), long.clone());
        let unfinished = Unfinished::new(store.map.unfinished(), Instant::now());
        let work = Work {
            store,
            config,
            asked,
            long: of_work,
            outgoing,
            unanswered: Vec::new(),
            wakeful: Wakeful::default(),
            unfinished,
        };
        let desk = Arc::new(Counter {
            work: Mutex::new(Some(work)),
            may_work_here: config.by_askers && config.linger.is_zero(),
            is_wakeful: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&desk);
        let run = move || of_thread.run(&rung);
        let thread = Arc::new(Builder::new().name("store".into()).spawn(run)?);
        let fences = Arc::<Fences>::default();
        let ends = requests.into_iter().zip(completions).zip(long).enumerate();
        let asker = |(number, ((requests, completions), long))| Self {
            requests,
            completions,
            bell: bell.clone(),
            number,
            desk: Arc::clone(&desk) as Arc<dyn Desk>,
            long,
            fences: Arc::clone(&fences),
            thread: Arc::clone(&thread),
        };
        Ok(ends.map(asker).collect())
    }

    /// Has the thread do a request; waits while the queue is full.
    ///
    /// # Errors
    /// [`WorkerGone`] with the request.
    pub fn send(
        &self,
        token: u64,
        request: Request<W, R>,
    ) -> Result<(), WorkerGone<Request<W, R>>> {
        let is_long = request.is_long();
        self.long.fetch_add(usize::from(is_long), Ordering::Relaxed);
        let queued = match self.requests.try_send((token, request)) {
            Err(TrySendError::Full(item)) => {
                // Of what nobody has rung for, it may be.
                self.ring();
                self.requests.send(item).map_err(SendError::into_inner)
            }
            done => done.map_err(TrySendError::into_inner),
        };
        self.ring();
        queued.map_err(|(_, request)| WorkerGone(request))
    }

    /// Queues a request if there is room, and gives it back otherwise. It is done when
    /// [`work`](Self::work) is called.
    ///
    /// # Errors
    /// The request, when the queue is full or the thread has ended.
    pub fn try_send(&self, token: u64, request: Request<W, R>) -> Result<(), Request<W, R>> {
        let is_long = request.is_long();
        // Before it can be taken out: the count never falls below zero.
        self.long.fetch_add(usize::from(is_long), Ordering::Relaxed);
        self.requests.try_send((token, request)).map_err(|refused| {
            self.long.fetch_sub(usize::from(is_long), Ordering::Relaxed);
            refused.into_inner().1
        })
    }

    /// Has done what is queued: a part of it here and now, where that
    /// [is allowed](WorkerConfig::by_askers) and the store at hand, or else all of it by the
    /// thread. True when it was here: then more may be queued, and whoever waits for answers calls
    /// this again before.
    pub fn work(&self) -> bool {
        if self.requests.is_empty() {
            return false;
        }
        let is_for_thread = self.long.load(Ordering::Relaxed) > 0;
        let here = if is_for_thread { Here::Nothing } else { self.desk.work_for(self.number) };
        if here != Here::All {
            self.ring();
        }
        here != Here::Nothing
    }

    fn ring(&self) {
        // One that was not heard yet will do.
        let _ = self.bell.try_send(());
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

    /// The sessions of clients, the same for all who ask this store.
    #[must_use]
    pub fn fences(&self) -> &Fences {
        &self.fences
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
        // Others may go on who know nothing of what this one has queued.
        self.ring();
        let Self { requests, bell, thread, .. } = self;
        drop((requests, bell));
        let Some(thread) = Arc::into_inner(thread) else { return Ok(()) };
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// As [`stop`](Self::stop), but waits for `timeout` at most: a flush of a medium may hang. None
    /// if it was not enough; the thread then goes on by itself, and nothing tells how it ends.
    ///
    /// # Panics
    /// If the thread did.
    pub fn stop_within(self, timeout: Duration) -> Option<Result<(), FlushFailed>> {
        self.ring();
        let Self { requests, bell, thread, completions, .. } = self;
        drop((requests, bell));
        let Some(thread) = Arc::into_inner(thread) else { return Some(Ok(())) };
        let end = Instant::now() + timeout;
        // Their other end goes when the store is closed.
        while !matches!(completions.recv_deadline(end), Err(RecvTimeoutError::Disconnected)) {
            if Instant::now() >= end {
                return None;
            }
        }
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

/// What was done by one who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    /// A batch.
    All,
    /// A batch, and the thread has something to do.
    Part,
    /// The thread has to do it.
    Nothing,
}

/// Where those who ask find the store, of whatever medium it is.
trait Desk: fmt::Debug + Send + Sync {
    /// Does a batch of what `asker` has queued, if it can be done here.
    fn work_for(&self, asker: usize) -> Here;
}

/// The store: one at a time works on it, the thread or one of those who ask.
struct Counter<M: Media, W, R> {
    /// None when it is closed.
    work: Mutex<Option<Work<M, W, R>>>,
    may_work_here: bool,
    /// The next batch will hardly sleep.
    is_wakeful: AtomicBool,
}

impl<M: Media, W, R> fmt::Debug for Counter<M, W, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("is_wakeful", &self.is_wakeful).finish_non_exhaustive()
    }
}

impl<M: Media, W: AsRef<[u8]>, R: AsMut<[u8]>> Counter<M, W, R> {
    /// The thread: does what waits whenever the bell is rung, until nobody can ring it any more.
    fn run(&self, bell: &Receiver<()>) -> Result<(), FlushFailed> {
        let closing = Closing(self);
        let mut goes_on = true;
        while goes_on {
            // What is queued while a batch is done, somebody rings for.
            goes_on = self.is_rung(bell);
            while self.batch(bell) {}
        }
        closing.take().map_or(Ok(()), |work| work.store.close())
    }

    /// Waits for the bell; false when nobody can ring it any more. Where nothing was committed for
    /// a while the mark is written meanwhile, and unfinished chunks that nobody goes on with are
    /// removed.
    fn is_rung(&self, bell: &Receiver<()>) -> bool {
        let mut commits_before = None;
        loop {
            // Those who ask may commit without a ring.
            let marks = self.may_work_here || self.wants_mark();
            match bell.recv_timeout(if marks { MARK_AFTER } else { SWEEP_EVERY }) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let mut work = self.work.lock().expect(WORK_PANICKED);
            let Some(work) = work.as_mut() else { return false };
            let commits = work.store.commits();
            if marks && (!self.may_work_here || commits_before == Some(commits)) {
                work.store.mark();
            }
            work.sweep(Instant::now());
            commits_before = Some(commits);
        }
    }

    fn wants_mark(&self) -> bool {
        let work = self.work.lock().expect(WORK_PANICKED);
        work.as_ref().is_some_and(|work| work.store.wants_mark())
    }

    /// Whether more may wait.
    fn batch(&self, bell: &Receiver<()>) -> bool {
        let mut work = self.work.lock().expect(WORK_PANICKED);
        let Some(work) = work.as_mut() else { return false };
        let more = self.watch(work, |work| work.batch(bell));
        work.sweep(Instant::now());
        work.store.checkpoint_if_due();
        more
    }

    /// Does `work`, and takes in whether the thread slept meanwhile.
    fn watch<T>(&self, work: &mut Work<M, W, R>, batch: impl FnOnce(&mut Work<M, W, R>) -> T) -> T {
        if !self.may_work_here {
            return batch(work);
        }
        let commits_before = work.store.commits();
        let (done, slept) = watched(|| batch(work));
        let is_wakeful = work.wakeful.after(slept, work.store.commits() > commits_before);
        if self.is_wakeful.swap(is_wakeful, Ordering::Relaxed) != is_wakeful {
            tracing::debug!(is_wakeful, "whoever asks the store does its work, or no longer does");
        }
        done
    }
}

/// Takes the store from its place when the thread ends, however it does: those who ask then find
/// that nobody answers.
struct Closing<'a, M: Media, W, R>(&'a Counter<M, W, R>);

impl<M: Media, W, R> Closing<'_, M, W, R> {
    fn take(&self) -> Option<Work<M, W, R>> {
        let mut work = self.0.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.take()
    }
}

impl<M: Media, W, R> Drop for Closing<'_, M, W, R> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Why the thread of a store ends when the thread of one who asked has panicked within it.
const WORK_PANICKED: &str = "nobody has panicked at work on the store";

impl<M, W, R> Desk for Counter<M, W, R>
where
    M: Media + Send,
    M::File: Send,
    W: AsRef<[u8]> + Send,
    R: AsMut<[u8]> + Send,
{
    fn work_for(&self, asker: usize) -> Here {
        if !self.may_work_here || !self.is_wakeful.load(Ordering::Relaxed) {
            return Here::Nothing;
        }
        // Where another asker has panicked the thread finds that out, and this one by its end.
        let Ok(mut work) = self.work.try_lock() else { return Here::Nothing };
        let Some(work) = work.as_mut() else { return Here::Nothing };
        // A checkpoint writes all of the map and a new log: milliseconds and more.
        if work.store.checkpoint_is_due() {
            return Here::Nothing;
        }
        self.watch(work, |work| work.batch_of(asker));
        if work.store.checkpoint_is_due() { Here::Part } else { Here::All }
    }
}
