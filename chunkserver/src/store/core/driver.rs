//! The driver of a store and its disk: a thread of its own runs it, or one that has more to do.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_memory::Buf;
use towpath_transport::Class;
use towpath_wake::Bell;

use super::changes::Client;
use super::hold::{QUEUES, StoreThread, queue_of};
use super::room::Room;
use super::state::StoreCore;
use super::told::Condition;
use crate::store::error::{CommitStep, FlushFailed};
use crate::store::fence::Fences;
use crate::store::limits::{FULL_SAID_EVERY, MARK_AFTER, SWEEP_EVERY};
use crate::store::puts::Puts;
use crate::store::request::{Completion, NewChunk, Request};
use crate::store::stats::StoreStats;
use crate::store::unfinished::Unfinished;

/// Requests that are taken from one who asks before the next one's turn, and the disk's.
const TURN_MAX: usize = 64;

/// Bytes of writes of each class that are taken before the next class's turn: copying them takes
/// time, some 100 us for a mebibyte. The last one taken may be longer.
const TURN_BYTES: [u64; Class::COUNT] = [16 << 20, 8 << 20, 1 << 20];

/// The same where the thread has other things to do, as packets to take.
const TURN_BYTES_BESIDE: [u64; Class::COUNT] = [1 << 20, 1 << 20, 256 << 10];

/// Times that a turn looks for what the disk has done. A disk that works at once, as a file in
/// memory, has then done the data of a group, its records and its flush: the answers leave with
/// this turn.
const ROUNDS_MAX: usize = 4;

/// How long a disk without a file to wait for is waited for at a time: one in virtual time, which
/// knows by itself when it has something.
const VIRTUAL_WAIT: Duration = Duration::from_millis(10);

/// How the driver of a store takes requests.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// Requests of one who asks that may wait.
    pub queue_max: usize,
    /// How long an unfinished chunk is kept that nobody writes to; none: for good.
    pub unfinished_keep: Option<Duration>,
}

/// Who is told that there are answers.
pub(super) type Alarm = Arc<Mutex<Option<Waker>>>;

/// One asker's end.
pub(super) struct Desk<W> {
    /// As [`queue_of`] numbers them; empty when the asker is gone.
    incoming: Vec<Receiver<(u64, Request<W, Buf>)>>,
    outgoing: Sender<Completion<W, Buf>>,
    alarm: Alarm,
    has_answers: bool,
}

/// A store, its disk, and the queues of those who ask: whoever has it drives them, from the thread
/// that opened it.
///
/// A thread that does nothing else runs it: [`StoreThread::spawn`]. One that does more calls
/// [`turn`](Self::turn) again and again, and before it sleeps [`begin_wait`](Self::begin_wait); it
/// sleeps until one of the [`files`](Self::files) is readable, or the time is over, and calls
/// [`end_wait`](Self::end_wait).
pub struct StoreDriver<W> {
    core: StoreCore<W>,
    desks: Vec<Desk<W>>,
    bell: Bell,
    config: DriverConfig,
    /// Bytes of writes of each class that are taken before the next class's turn.
    turn_bytes: [u64; Class::COUNT],
    unfinished: Unfinished,
    puts: Arc<Puts>,
    /// Whose turn it is.
    next: usize,
    /// Since when nothing is under way.
    idle_since: Option<Instant>,
    /// What the log said last of the room that is left, and when it said each.
    said: (Room, [Option<Instant>; 3]),
    /// When the room of the file system was looked at last though nothing was written.
    looked_at: Instant,
    condition: Arc<Condition>,
}

impl<W> Drop for StoreDriver<W> {
    fn drop(&mut self) {
        self.condition.say_ended();
        // Who waits for nothing but answers hears of it.
        for desk in &self.desks {
            let alarm = desk.alarm.lock().unwrap_or_else(PoisonError::into_inner);
            alarm.iter().for_each(Waker::wake_by_ref);
        }
    }
}

impl<W> StoreDriver<W> {
    /// Whether it drives the store that this is a hold on.
    pub(crate) fn is_of(&self, hold: &StoreThread<W>) -> bool {
        Arc::ptr_eq(&self.condition, &hold.condition)
    }
}

impl<W: AsRef<[u8]>> StoreDriver<W> {
    /// Opens a store by `open`, to be driven by this very thread; gives a hold for each of
    /// `askers`, and what `open` gave beside the store.
    ///
    /// # Errors
    /// What `open` gives; or, made one, that the system has no files to give.
    pub fn open_here<T, E: From<io::Error>>(
        askers: usize,
        config: DriverConfig,
        open: impl FnOnce() -> Result<(StoreCore<W>, T), E>,
    ) -> Result<(Self, Vec<StoreThread<W>>, T), E> {
        let bell = Bell::new()?;
        let (core, found) = open()?;
        let (fences, condition) = (Arc::<Fences>::default(), Arc::<Condition>::default());
        let puts = Arc::<Puts>::default();
        let (mut desks, mut holds) = (Vec::new(), Vec::new());
        for _ in 0..askers {
            let queues = (0..QUEUES).map(|_| bounded(config.queue_max));
            let (requests, incoming) = queues.unzip();
            let (outgoing, completions) = unbounded();
            let alarm = Alarm::default();
            desks.push(Desk { incoming, outgoing, alarm: Arc::clone(&alarm), has_answers: false });
            holds.push(StoreThread {
                requests,
                completions,
                bell: bell.waker(),
                alarm,
                fences: Arc::clone(&fences),
                puts: Arc::clone(&puts),
                condition: Arc::clone(&condition),
                thread: None,
            });
        }
        Ok((Self::new(core, desks, bell, config, (puts, condition)), holds, found))
    }

    pub(super) fn new(
        core: StoreCore<W>,
        desks: Vec<Desk<W>>,
        bell: Bell,
        config: DriverConfig,
        (puts, condition): (Arc<Puts>, Arc<Condition>),
    ) -> Self {
        let unfinished = Unfinished::new(core.unfinished(), Instant::now());
        condition.tell(&core);
        let (next, said, looked_at) = (0, (Room::Enough, [None; 3]), Instant::now());
        Self {
            core,
            desks,
            bell,
            config,
            turn_bytes: TURN_BYTES_BESIDE,
            unfinished,
            puts,
            next,
            idle_since: None,
            said,
            looked_at,
            condition,
        }
    }

    /// Bytes of what was staged and is neither asked for nor forgotten, and whether nothing is
    /// under way.
    #[cfg(test)]
    pub(crate) fn left(&self) -> (u64, bool) {
        (self.core.early.bytes(), self.core.is_idle())
    }

    /// Drives the store until nobody can ask any more and all is answered, and seals it.
    pub(super) fn run(mut self) -> Result<(), FlushFailed> {
        self.turn_bytes = TURN_BYTES;
        self.finish(None).unwrap_or(Ok(()))
    }

    /// Drives the store until nobody can ask any more and all is answered, and seals it; until
    /// `end` at most: a disk may hang. None if the time was not enough. What is under way then is
    /// given up with its memory, and the disk stays locked while this process lives.
    pub fn stop_by(mut self, end: Instant) -> Option<Result<(), FlushFailed>> {
        let outcome = self.finish(Some(end));
        if outcome.is_none() {
            self.condition.say_ended();
            // Dropping it would wait for the disk.
            std::mem::forget(self);
        }
        outcome
    }

    fn finish(&mut self, end: Option<Instant>) -> Option<Result<(), FlushFailed>> {
        let is_over = || end.is_some_and(|end| Instant::now() >= end);
        let mut drive = || -> Result<bool, FlushFailed> {
            while self.has_work() {
                if !self.can_be_asked() {
                    self.core.keep_room();
                }
                // What the turn has ended may have been the last.
                if !self.turn()? && self.has_work() {
                    if is_over() {
                        return Ok(false);
                    }
                    self.wait(end)?;
                }
            }
            self.core.seal();
            while !self.core.is_idle() {
                if is_over() {
                    return Ok(false);
                }
                self.turn_core(Some(MARK_AFTER))?;
            }
            Ok(true)
        };
        match drive() {
            Ok(true) => Some(self.core.failure().map_or(Ok(()), Err)),
            Ok(false) => None,
            Err(failed) => Some(Err(failed)),
        }
    }

    /// One turn: takes what is queued, and what the disk has done; gives the disk more, and those
    /// who ask their answers. True where anything was taken or answered.
    ///
    /// # Errors
    /// The system does not speak of the disk any more: nothing further is answered, and this is to
    /// be dropped.
    pub fn turn(&mut self) -> Result<bool, FlushFailed> {
        self.bell.clear();
        let took = self.take();
        for _ in 0..ROUNDS_MAX {
            if !self.turn_core(None)? {
                break;
            }
        }
        // Before the answers: who has one finds what it changed.
        let room = self.condition.tell(&self.core);
        let answered = self.answer();
        self.say_room(room);
        if took || answered {
            self.idle_since = None;
        }
        Ok(took || answered)
    }

    pub(super) fn turn_core(&mut self, timeout: Option<Duration>) -> Result<bool, FlushFailed> {
        let outcome = self.core.turn(timeout);
        outcome.map_err(|error| self.gone(&error))
    }

    fn gone(&self, error: &io::Error) -> FlushFailed {
        self.condition.end(format!("the system does not speak of the disk any more: {error}"));
        FlushFailed { step: CommitStep::LogFlush, kind: error.kind() }
    }

    /// Whether anybody still asks, or something is under way.
    fn has_work(&self) -> bool {
        self.can_be_asked() || !self.core.is_idle()
    }

    /// Whether anybody still asks, or something is queued.
    pub(crate) fn can_be_asked(&self) -> bool {
        self.desks.iter().any(|desk| !desk.incoming.is_empty())
    }

    /// Takes what is queued, some of each class and of each who asks, who go first in turn. True
    /// where there was something.
    fn take(&mut self) -> bool {
        let (count, mut any) = (self.desks.len(), false);
        self.next = (self.next + 1) % count.max(1);
        let next = self.next;
        for class in Class::ALL {
            let mut bytes_left = self.turn_bytes[class.index()];
            for asker in (0..count).map(|at| (next + at) % count) {
                // Changes that wait for others keep no reads waiting.
                any |= self.take_from(asker, (class, false), &mut bytes_left);
                any |= self.take_from(asker, (class, true), &mut bytes_left);
            }
        }
        any
    }

    fn take_from(
        &mut self,
        asker: usize,
        (class, may_be_held): (Class, bool),
        bytes_left: &mut u64,
    ) -> bool {
        let queue = queue_of(class, may_be_held);
        for taken in 0..TURN_MAX {
            if (may_be_held && !self.core.has_room(class, self.desks.len())) || *bytes_left == 0 {
                return taken > 0;
            }
            let desk = &mut self.desks[asker];
            let Some(incoming) = desk.incoming.get(queue) else {
                return taken > 0;
            };
            // Cheaper than to try. That the asker is gone is found at the first of its queues.
            if queue > 0 && incoming.is_empty() {
                return taken > 0;
            }
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
            Request::Create { chunk, kind: NewChunk { unfinished: true, .. }, .. } => {
                self.unfinished.touch(*chunk, Instant::now());
            }
            Request::Write { chunk, .. }
            | Request::Clear { chunk, .. }
            | Request::Chain { chunk, .. }
            | Request::Finish { chunk, .. }
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

    /// Says in the log how much room is left, when that has changed; each of the lines not more
    /// often than a log can bear.
    fn say_room(&mut self, room: Room) {
        let (said, at) = &mut self.said;
        let at = &mut at[room as usize];
        if room == *said || at.is_some_and(|at| at.elapsed() < FULL_SAID_EVERY) {
            return;
        }
        (*said, *at) = (room, Some(Instant::now()));
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

    /// Waits for the disk or for somebody who asks, until `end` at most.
    fn wait(&mut self, end: Option<Instant>) -> Result<(), FlushFailed> {
        let Some(most) = self.begin_wait()? else { return Ok(()) };
        let left = end.map_or(most, |end| end.saturating_duration_since(Instant::now()));
        let waited = wait_for(&self.files(), most.min(left));
        waited.map_err(|error| self.gone(&error))?;
        self.end_wait();
        Ok(())
    }

    /// Somebody is about to wait for the [files](Self::files), behind a turn that did nothing: how
    /// long at most. None where there is something for a turn now.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn begin_wait(&mut self) -> Result<Option<Duration>, FlushFailed> {
        if self.core.disk_mut().descriptor().is_none() && self.core.disk_mut().in_flight() > 0 {
            self.turn_core(Some(VIRTUAL_WAIT))?;
            return Ok(None);
        }
        if self.core.can_step() {
            return Ok(None);
        }
        if self.core.disk_mut().arm().map_err(|error| self.gone(&error))? {
            return Ok(None);
        }
        let idle_since = self.idle_since.filter(|_| self.core.is_idle());
        self.idle_since = self.core.is_idle().then(|| idle_since.unwrap_or_else(Instant::now));
        let mark_in = self.idle_since.map(|since| MARK_AFTER.saturating_sub(since.elapsed()));
        let mark_in = mark_in.filter(|_| self.core.wants_seal());
        Ok(Some(mark_in.unwrap_or(SWEEP_EVERY)))
    }

    /// The files that become readable when somebody asks, or the disk has done something.
    pub fn files(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.bell.as_fd()), self.core.disk().descriptor()]
    }

    /// The wait is over. When nothing has happened for a while the log is sealed, and unfinished
    /// chunks are removed that nobody goes on with.
    pub fn end_wait(&mut self) {
        let is_time = self.idle_since.is_some_and(|since| since.elapsed() >= MARK_AFTER);
        if is_time {
            self.core.rest();
        }
        if is_time && self.core.wants_seal() {
            self.core.seal();
        }
        let now = Instant::now();
        self.sweep(now);
        // Others may have filled the file system meanwhile.
        if now.duration_since(self.looked_at) >= SWEEP_EVERY {
            self.looked_at = now;
            self.core.notice_room();
            let room = self.condition.tell(&self.core);
            self.say_room(room);
        }
    }

    /// Deletes the unfinished chunks that nobody has written to for a while.
    fn sweep(&mut self, now: Instant) {
        let Some(keep) = self.config.unfinished_keep else { return };
        for chunk in self.unfinished.overdue(now, keep) {
            match self.core.stat(chunk) {
                // Somebody goes on with it, or its delete is on its way.
                Some(_) if self.core.is_changing(chunk) => {}
                // Its maker is there, and may only be slow.
                Some(_) if self.puts.is_open(chunk) && self.unfinished.keep(chunk, now) => {}
                Some(stat) if stat.unfinished && !stat.suspect => {
                    tracing::info!(%chunk, "removing an unfinished chunk: nobody went on with it");
                    self.core.delete_unasked(chunk, stat.version);
                }
                // It was finished, or is gone.
                _ => self.unfinished.forget(chunk),
            }
        }
    }
}

/// Waits until one of the files is readable, for so long at most.
fn wait_for(files: &[Option<BorrowedFd<'_>>], most: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(most).map_err(io::Error::other)?;
    let files = files.iter().flatten().map(|file| PollFd::new(file, PollFlags::IN));
    match poll(&mut files.collect::<Vec<_>>(), Some(&timeout)) {
        Err(rustix::io::Errno::INTR) => Ok(()),
        ready => Ok(ready.map(drop)?),
    }
}
