//! The hold on a store that those have who ask it, whichever thread drives it.

use std::io;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use towpath_memory::Buf;
use towpath_transport::Class;

use super::driver::{Alarm, DriverConfig, StoreDriver};
use super::state::StoreCore;
use super::told::{Condition, DiskState, Told};
use crate::store::error::FlushFailed;
use crate::store::fence::Fences;
use crate::store::puts::Puts;
use crate::store::request::{Completion, Request};

/// A hold on a store that one thread drives: one of its own, or one that does other things beside
/// it by a [`StoreDriver`]. Each of those who ask has one, with a queue and answers of its own.
#[derive(Debug)]
pub struct StoreThread<W> {
    /// By class, and of a class changes apart from what is only looked at: none fills another's
    /// queue.
    pub(super) requests: Vec<Sender<(u64, Request<W, Buf>)>>,
    pub(super) completions: Receiver<Completion<W, Buf>>,
    pub(super) bell: Waker,
    pub(super) alarm: Alarm,
    /// Shared by all who ask.
    pub(super) fences: Arc<Fences>,
    /// Shared by all who ask, and the driver.
    pub(super) puts: Arc<Puts>,
    /// Shared by all who ask, and the driver.
    pub(super) condition: Arc<Condition>,
    /// Shared by all who ask; none where no thread is the store's own.
    pub(super) thread: Option<Arc<JoinHandle<Result<(), FlushFailed>>>>,
}

/// Queues of one who asks.
pub(super) const QUEUES: usize = 2 * Class::COUNT;

/// The queue of requests of a class: those that may be held, or the others.
pub(super) fn queue_of(class: Class, may_be_held: bool) -> usize {
    2 * class.index() + usize::from(may_be_held)
}

impl<W: AsRef<[u8]> + Send + 'static> StoreThread<W> {
    /// Starts a thread, which opens the store by `open` and then drives its disk; gives a hold
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
        let (tell, told) = bounded(1);
        let run = move || match StoreDriver::open_here(askers, config, open) {
            Ok((driver, holds, found)) => {
                // Nobody hears it where the caller has panicked.
                let _ = tell.send(Ok((holds, found)));
                driver.run()
            }
            Err(error) => {
                let _ = tell.send(Err(error));
                Ok(())
            }
        };
        let thread = Arc::new(Builder::new().name("store".into()).spawn(run)?);
        let died = |_| io::Error::other("the store's thread has died");
        let (mut holds, found) = told.recv().map_err(died)??;
        for hold in &mut holds {
            hold.thread = Some(Arc::clone(&thread));
        }
        Ok((holds, found))
    }
}

impl<W> StoreThread<W> {
    /// Queues a request if there is room, and gives it back otherwise. Another thread that drives
    /// the store hears of it when [`ring`](Self::ring) is called.
    ///
    /// # Errors
    /// The request, when the queue is full or nobody drives the store any more.
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
        self.requests[queue_of(class, request.may_be_held())].try_send((token, request)).map_err(
            |refused| match refused {
                TrySendError::Full((_, request)) | TrySendError::Disconnected((_, request)) => {
                    request
                }
            },
        )
    }

    /// Has the thread that drives the store take what is queued.
    pub fn ring(&self) {
        if self.has_queued() {
            self.bell.wake_by_ref();
        }
    }

    /// Whether something is queued that the driver has not taken yet.
    #[must_use]
    pub fn has_queued(&self) -> bool {
        self.requests.iter().any(|queue| !queue.is_empty())
    }

    /// Has `waker` woken when there are answers.
    pub fn wake(&self, waker: Option<Waker>) {
        *self.alarm.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }

    /// Whether a request of a class would find room in its queue, be it a change or not. With one
    /// thread that sends it does.
    #[must_use]
    pub fn has_room(&self, class: Class) -> bool {
        [false, true].into_iter().all(|may_be_held| self.has_room_for(class, may_be_held))
    }

    /// The same of a request that [may be held](Request::may_be_held), or of one that may not.
    #[must_use]
    pub fn has_room_for(&self, class: Class, may_be_held: bool) -> bool {
        !self.requests[queue_of(class, may_be_held)].is_full()
    }

    /// Where the answers arrive. It disconnects when nobody drives the store any more.
    #[must_use]
    pub fn completions(&self) -> &Receiver<Completion<W, Buf>> {
        &self.completions
    }

    /// The sessions of clients, the same for all who ask this store.
    #[must_use]
    pub fn fences(&self) -> &Fences {
        &self.fences
    }

    /// Unfinished chunks whose makers are there.
    #[must_use]
    pub fn puts(&self) -> &Puts {
        &self.puts
    }

    /// Answers that nobody has taken yet.
    #[must_use]
    pub fn answers_waiting(&self) -> usize {
        self.completions.len()
    }

    /// Whether somebody drives the store and answers.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.condition.has_ended()
    }

    /// How the disk is.
    #[must_use]
    pub fn state(&self) -> DiskState {
        if self.is_running() { self.condition.state() } else { DiskState::Failed }
    }

    /// What the driver told last of its store.
    #[must_use]
    pub fn told(&self) -> Told {
        let mut told = self.condition.told();
        if told.reason.is_empty() && !self.is_running() {
            told.reason = String::from("nobody drives its store any more: the log says why");
        }
        told
    }

    /// Asks nothing more. The last of all who ask waits until what is queued is answered, the store
    /// sealed, and its own thread ended, for `timeout` at most: a disk may hang. For the others it
    /// is good at once, and for all where the store has no thread of its own:
    /// [`StoreDriver::stop_by`] is the end of it. None if the time was not enough; the thread then
    /// goes on by itself, and nothing tells how it ends. Completions that were not taken are lost
    /// with their buffers.
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
        Stopping { thread: thread.and_then(Arc::into_inner), completions }
    }
}

/// A store that is asked nothing more.
#[derive(Debug)]
pub struct Stopping<W> {
    /// None for all but the last who asked, and where the store has no thread of its own.
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
