//! The thread that owns a store and its disk, and the hold that those have on it who ask.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{
    Receiver, RecvTimeoutError, Sender, TryRecvError, TrySendError, bounded, unbounded,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_memory::Buf;
use towpath_transport::Class;
use towpath_wake::Bell;

use super::group::Client;
use super::room::Room;
use super::state::StoreCore;
use super::told::{Condition, DiskState, Told};
use crate::store::error::{CommitStep, FlushFailed};
use crate::store::fence::Fences;
use crate::store::limits::{FULL_SAID_EVERY, MARK_AFTER, SWEEP_EVERY};
use crate::store::request::{Completion, Request};
use crate::store::stats::StoreStats;
use crate::store::unfinished::Unfinished;

/// Requests that are taken from one who asks before the next one's turn, and the disk's.
const TURN_MAX: usize = 64;

/// Bytes of writes of each class that are taken before the next class's turn: copying them takes
/// time, some 100 us for a mebibyte. The last one taken may be longer.
const TURN_BYTES: [u64; Class::COUNT] = [16 << 20, 8 << 20, 1 << 20];

/// How long a disk without a file to wait for is waited for at a time: one in virtual time, which
/// knows by itself when it has something.
const VIRTUAL_WAIT: Duration = Duration::from_millis(10);

/// How a store's thread takes requests.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// Requests of one who asks that may wait.
    pub queue_max: usize,
    /// How long an unfinished chunk is kept that nobody writes to; none: for good.
    pub unfinished_keep: Option<Duration>,
}

/// Who is told that there are answers.
type Alarm = Arc<Mutex<Option<Waker>>>;

/// One asker's end.
pub(super) struct Desk<W> {
    /// By class; empty when the asker is gone.
    incoming: Vec<Receiver<(u64, Request<W, Buf>)>>,
    outgoing: Sender<Completion<W, Buf>>,
    alarm: Alarm,
    has_answers: bool,
}

/// A hold on a store that a thread of its own drives. Each of those who ask has one, with a queue
/// and answers of its own.
#[derive(Debug)]
pub struct StoreThread<W> {
    /// By class: none fills another's queue.
    requests: Vec<Sender<(u64, Request<W, Buf>)>>,
    completions: Receiver<Completion<W, Buf>>,
    bell: Waker,
    alarm: Alarm,
    /// Shared by all who ask.
    fences: Arc<Fences>,
    /// Shared by all who ask, and the thread.
    condition: Arc<Condition>,
    /// Shared by all who ask.
    thread: Arc<JoinHandle<Result<(), FlushFailed>>>,
}

impl<W: AsRef<[u8]> + Send + 'static> StoreThread<W> {
    /// Starts the thread, which opens the store by `open` and then drives its disk; gives a hold
    /// for each of `askers`, and what `open` gave beside the store.
    ///
    /// # Errors
    /// What `open` gives; or, made one, the system's refusal of a thread.
    pub fn spawn<T, E>(
        askers: usize,
        config: DriverConfig,
        open: impl FnOnce() -> Result<(StoreCore<W>, T), E> + Send + 'static,
    ) -> Result<(Vec<Self>, T), E>
    where
        T: Send + 'static,
        E: From<io::Error> + Send + 'static,
    {
        let queues = |_| Class::ALL.iter().map(|_| bounded(config.queue_max)).unzip();
        let queues = (0..askers).map(queues);
        let (requests, incoming): (Vec<Vec<_>>, Vec<Vec<_>>) = queues.unzip();
        let (outgoing, completions): (Vec<_>, Vec<_>) = (0..askers).map(|_| unbounded()).unzip();
        let alarms: Vec<Alarm> = (0..askers).map(|_| Alarm::default()).collect();
        let ends = incoming.into_iter().zip(outgoing).zip(&alarms);
        let desks = ends.map(|((incoming, outgoing), alarm)| Desk {
            incoming,
            outgoing,
            alarm: Arc::clone(alarm),
            has_answers: false,
        });
        let (desks, bell) = (desks.collect(), Bell::new()?);
        let waker = bell.waker();
        let (tell, told) = bounded(1);
        let condition = Arc::<Condition>::default();
        let of_thread = Arc::clone(&condition);
        let run = move || match open() {
            Ok((core, found)) => {
                let driver = Driver::new(core, desks, bell, config, of_thread);
                // Nobody hears it where the caller has panicked.
                let _ = tell.send(Ok(found));
                driver.run()
            }
            Err(error) => {
                let _ = tell.send(Err(error));
                Ok(())
            }
        };
        let thread = Arc::new(Builder::new().name("store".into()).spawn(run)?);
        let died = |_| io::Error::other("the store's thread has died");
        let found = told.recv().map_err(died)??;
        let fences = Arc::<Fences>::default();
        let ends = requests.into_iter().zip(completions).zip(alarms);
        let hold = |((requests, completions), alarm)| Self {
            requests,
            completions,
            bell: waker.clone(),
            alarm,
            fences: Arc::clone(&fences),
            condition: Arc::clone(&condition),
            thread: Arc::clone(&thread),
        };
        Ok((ends.map(hold).collect(), found))
    }
}

impl<W> StoreThread<W> {
    /// Queues a request if there is room, and gives it back otherwise. The thread hears of it when
    /// [`ring`](Self::ring) is called.
    ///
    /// # Errors
    /// The request, when the queue is full or the thread has ended.
    pub fn try_send(&self, token: u64, request: Request<W, Buf>) -> Result<(), Request<W, Buf>> {
        self.try_send_as(Class::default(), token, request)
    }

    /// The same for a request of a class, each of which has a queue.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub fn try_send_as(
        &self,
        class: Class,
        token: u64,
        request: Request<W, Buf>,
    ) -> Result<(), Request<W, Buf>> {
        self.requests[class.index()].try_send((token, request)).map_err(|refused| match refused {
            TrySendError::Full((_, request)) | TrySendError::Disconnected((_, request)) => request,
        })
    }

    /// Has the thread take what is queued.
    pub fn ring(&self) {
        if self.requests.iter().any(|queue| !queue.is_empty()) {
            self.bell.wake_by_ref();
        }
    }

    /// Has `waker` woken when there are answers.
    pub fn wake(&self, waker: Option<Waker>) {
        *self.alarm.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }

    /// Whether a request of a class would find room in its queue. With one thread that sends it
    /// does.
    #[must_use]
    pub fn has_room(&self, class: Class) -> bool {
        !self.requests[class.index()].is_full()
    }

    /// Where the answers arrive. It disconnects when the thread has ended.
    #[must_use]
    pub fn completions(&self) -> &Receiver<Completion<W, Buf>> {
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

    /// How the disk is.
    #[must_use]
    pub fn state(&self) -> DiskState {
        if self.is_running() { self.condition.state() } else { DiskState::Failed }
    }

    /// What the thread told last of its store.
    #[must_use]
    pub fn told(&self) -> Told {
        let mut told = self.condition.told();
        if told.reason.is_empty() && !self.is_running() {
            told.reason = String::from("its thread has ended: the log says why");
        }
        told
    }

    /// Asks nothing more. The last of all who ask waits until what is queued is answered, the store
    /// sealed, and the thread ended, for `timeout` at most: a disk may hang. For the others it is
    /// good at once. None if the time was not enough; the thread then goes on by itself, and
    /// nothing tells how it ends. Completions that were not taken are lost with their buffers.
    ///
    /// # Panics
    /// If the thread did.
    pub fn stop_within(self, timeout: Duration) -> Option<Result<(), FlushFailed>> {
        self.begin_stop().wait(Instant::now() + timeout)
    }

    /// Asks nothing more, so that the thread can end; the first half of
    /// [`stop_within`](Self::stop_within).
    #[must_use]
    pub fn begin_stop(self) -> Stopping<W> {
        let Self { requests, bell, thread, completions, .. } = self;
        drop(requests);
        bell.wake_by_ref();
        Stopping { thread: Arc::into_inner(thread), completions }
    }
}

/// A store whose thread is asked nothing more.
#[derive(Debug)]
pub struct Stopping<W> {
    /// None for all but the last who asked.
    thread: Option<JoinHandle<Result<(), FlushFailed>>>,
    completions: Receiver<Completion<W, Buf>>,
}

impl<W> Stopping<W> {
    /// Waits for the end of the thread, until `end` at most; as
    /// [`stop_within`](StoreThread::stop_within) does.
    ///
    /// # Panics
    /// If the thread did.
    pub fn wait(self, end: Instant) -> Option<Result<(), FlushFailed>> {
        let Self { thread, completions } = self;
        let Some(thread) = thread else { return Some(Ok(())) };
        // Their other end goes when the store is closed.
        while !matches!(completions.recv_deadline(end), Err(RecvTimeoutError::Disconnected)) {
            if Instant::now() >= end {
                return None;
            }
        }
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

/// What the thread has.
pub(super) struct Driver<W> {
    core: StoreCore<W>,
    desks: Vec<Desk<W>>,
    bell: Bell,
    config: DriverConfig,
    unfinished: Unfinished,
    /// Whose turn it is.
    next: usize,
    /// What the log says of the room that is left, and since when.
    said: (Room, Option<Instant>),
    condition: Arc<Condition>,
}

impl<W: AsRef<[u8]>> Driver<W> {
    pub(super) fn new(
        core: StoreCore<W>,
        desks: Vec<Desk<W>>,
        bell: Bell,
        config: DriverConfig,
        condition: Arc<Condition>,
    ) -> Self {
        let unfinished = Unfinished::new(core.unfinished(), Instant::now());
        condition.tell(&core);
        let (next, said) = (0, (Room::Enough, None));
        Self { core, desks, bell, config, unfinished, next, said, condition }
    }

    /// Drives the store until nobody can ask any more and all is answered.
    pub(super) fn run(mut self) -> Result<(), FlushFailed> {
        let condition = Arc::clone(&self.condition);
        let gone = |error: io::Error| {
            condition.end(format!("the system does not speak of the disk any more: {error}"));
            FlushFailed { step: CommitStep::LogFlush, kind: error.kind() }
        };
        while self.has_work() {
            self.bell.clear();
            let took = self.take();
            self.core.turn(None).map_err(&gone)?;
            // Before the answers: who has one finds what it changed.
            self.condition.tell(&self.core);
            let answered = self.answer();
            self.say_room();
            // What the turn has ended may have been the last.
            if !took && !answered && self.has_work() {
                self.wait().map_err(&gone)?;
            }
        }
        self.core.seal();
        while !self.core.is_idle() {
            self.core.turn(Some(MARK_AFTER)).map_err(&gone)?;
        }
        self.core.failure().map_or(Ok(()), Err)
    }

    /// Whether anybody can still ask, or something is under way.
    fn has_work(&self) -> bool {
        self.desks.iter().any(|desk| !desk.incoming.is_empty()) || !self.core.is_idle()
    }

    /// Takes what is queued, some of each class and of each who asks, who go first in turn. True
    /// where there was something.
    fn take(&mut self) -> bool {
        let (count, mut any) = (self.desks.len(), false);
        self.next = (self.next + 1) % count.max(1);
        let next = self.next;
        for class in Class::ALL {
            let mut bytes_left = TURN_BYTES[class.index()];
            for asker in (0..count).map(|at| (next + at) % count) {
                any |= self.take_from(asker, class, &mut bytes_left);
            }
        }
        any
    }

    fn take_from(&mut self, asker: usize, class: Class, bytes_left: &mut u64) -> bool {
        for taken in 0..TURN_MAX {
            if !self.core.has_room(class) || *bytes_left == 0 {
                return taken > 0;
            }
            let desk = &mut self.desks[asker];
            let Some(incoming) = desk.incoming.get(class.index()) else { return taken > 0 };
            match incoming.try_recv() {
                Ok((token, request)) => {
                    *bytes_left = bytes_left.saturating_sub(request.byte_len());
                    self.note(&request);
                    self.core.submit_as(class, Client { asker, token }, request);
                }
                Err(TryRecvError::Empty) => return taken > 0,
                // All of its queues end together; what is in the others is taken first.
                Err(TryRecvError::Disconnected) => {
                    if desk.incoming.iter().all(Receiver::is_empty) {
                        desk.incoming.clear();
                        self.core.drop_all_early_of(asker);
                    }
                    return true;
                }
            }
        }
        true
    }

    /// Follows what becomes of unfinished chunks.
    fn note(&mut self, request: &Request<W, Buf>) {
        match request {
            Request::Create { chunk, unfinished: true, .. } => {
                self.unfinished.touch(*chunk, Instant::now());
            }
            Request::Write { chunk, .. }
            | Request::Clear { chunk, .. }
            | Request::Stage { chunk, .. } => {
                self.unfinished.touch_known(*chunk);
            }
            _ => {}
        }
    }

    /// Gives out answers. True where there were any.
    fn answer(&mut self) -> bool {
        let Self { core, desks, .. } = self;
        for (asker, completion) in core.take_answers() {
            if let Some(desk) = desks.get_mut(asker) {
                // Who is gone wants none; changes are made all the same.
                let _ = desk.outgoing.send(completion);
                desk.has_answers = true;
            }
        }
        let mut any = false;
        for desk in desks.iter_mut().filter(|desk| desk.has_answers) {
            (any, desk.has_answers) = (true, false);
            let alarm = desk.alarm.lock().unwrap_or_else(PoisonError::into_inner);
            alarm.iter().for_each(Waker::wake_by_ref);
        }
        any
    }

    /// Says in the log how much room is left, when that has changed; not more often than a log can
    /// bear.
    fn say_room(&mut self) {
        let (room, (said, at)) = (self.core.room(), self.said);
        if room == said || at.is_some_and(|at| at.elapsed() < FULL_SAID_EVERY) {
            return;
        }
        self.said = (room, Some(Instant::now()));
        let StoreStats { chunks, live_bytes, free_bytes, capacity_bytes, .. } = self.core.stats();
        match room {
            Room::None => tracing::warn!(
                chunks,
                live_bytes,
                capacity_bytes,
                "the store is full: creates and writes are refused, reads and deletes go on; \
                 delete chunks, or make room on the file system"
            ),
            Room::NearlyNone => {
                tracing::warn!(chunks, free_bytes, capacity_bytes, "the store is nearly full");
            }
            Room::Enough => {
                tracing::info!(chunks, live_bytes, free_bytes, "the store has room again");
            }
        }
    }

    /// Waits for the disk or for somebody who asks. When nothing has happened for a while the log
    /// is sealed, and unfinished chunks are removed that nobody goes on with.
    fn wait(&mut self) -> io::Result<()> {
        if self.core.disk_mut().descriptor().is_none() && self.core.disk_mut().in_flight() > 0 {
            return self.core.turn(Some(VIRTUAL_WAIT));
        }
        let is_idle = self.core.is_idle();
        if self.core.disk_mut().arm()? {
            return Ok(());
        }
        let span = if is_idle && self.core.wants_seal() { MARK_AFTER } else { SWEEP_EVERY };
        let timeout = Timespec::try_from(span).map_err(io::Error::other)?;
        let mut files = Vec::with_capacity(2);
        files.push(PollFd::new(&self.bell, PollFlags::IN));
        let disk = self.core.disk_mut().descriptor();
        files.extend(disk.as_ref().map(|disk| PollFd::new(disk, PollFlags::IN)));
        let ready = match poll(&mut files, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            ready => ready?,
        };
        drop(files);
        if ready == 0 && is_idle {
            self.core.seal();
        }
        self.sweep(Instant::now());
        Ok(())
    }

    /// Deletes the unfinished chunks that nobody has written to for a while.
    fn sweep(&mut self, now: Instant) {
        let Some(keep) = self.config.unfinished_keep else { return };
        for chunk in self.unfinished.overdue(now, keep) {
            match self.core.stat(chunk) {
                Some(stat) if stat.unfinished && !stat.suspect => {
                    tracing::info!(%chunk, "removing an unfinished chunk: nobody went on with it");
                    self.core.delete_unasked(chunk);
                }
                // It was finished, or is gone.
                _ => self.unfinished.forget(chunk),
            }
        }
    }
}
