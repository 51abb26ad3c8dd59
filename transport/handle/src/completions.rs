//! Outcomes of many messages, of one channel or many, in one queue.

use crate::doorbell::Doorbell;
use crate::park;
use crate::queue::{Closed, Receiver, RecvTimeoutError, Sender, unbounded};
use crate::ticket::SentMessage;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use towpath_transport::Rejected;

/// Where the outcomes of messages go that were [posted](crate::ChannelHandle::post) with it, in the
/// order in which they came about: one for a thread that has many messages under way on as many
/// channels as it likes. Clones are the same queue.
///
/// A message has its place from the post until its outcome is taken, so the queue never overflows:
/// a post that finds no place is refused with
/// [`SubmitError::CompletionsFull`](towpath_transport::SubmitError::CompletionsFull) before
/// anything is sent. Make it as deep as there may be messages under way and outcomes not yet taken.
#[derive(Clone)]
pub struct CompletionQueue {
    outcomes: Receiver<Result<SentMessage, Rejected>>,
    tell: Arc<Sender<Result<SentMessage, Rejected>>>,
    taken: Arc<AtomicUsize>,
    depth: usize,
    /// The endpoint that was first posted to: who waits for outcomes drives this one.
    home: Arc<OnceLock<Weak<Doorbell>>>,
}

impl CompletionQueue {
    /// A queue for at most `depth` messages under way.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        let (tell, outcomes) = unbounded();
        Self { outcomes, tell: Arc::new(tell), taken: Arc::default(), depth, home: Arc::default() }
    }

    /// The oldest outcome, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<Result<SentMessage, Rejected>> {
        let outcome = self.outcomes.try_recv().ok()?;
        self.free_place();
        Some(outcome)
    }

    /// The oldest outcome, waiting for at most `timeout`.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> Option<Result<SentMessage, Rejected>> {
        let outcome = match (self.poll(), self.home()) {
            (None, Some(bell)) => self.outcomes.recv_timeout(&bell, timeout),
            // Nothing was posted yet, or all that was has its outcome.
            (None, None) => {
                park::wait(Instant::now().checked_add(timeout), pin!(self.outcomes.recv_async()))
                    .ok_or(RecvTimeoutError::Timeout)
                    .and_then(|got| got.map_err(|Closed| RecvTimeoutError::Disconnected))
            }
            (found, _) => return found,
        };
        self.free_place();
        outcome.ok()
    }

    fn home(&self) -> Option<Arc<Doorbell>> {
        self.home.get()?.upgrade()
    }

    /// Something is posted to an endpoint. If that is another one than before, it has to look after
    /// itself.
    pub(super) fn note(&self, bell: &Arc<Doorbell>) {
        let home = self.home.get_or_init(|| Arc::downgrade(bell));
        if !std::ptr::eq(home.as_ptr(), Arc::as_ptr(bell)) {
            bell.attend();
        }
    }

    /// A future of an executor, which drives nothing itself.
    pub(super) async fn attended<F: Future>(&self, future: F) -> F::Output {
        match self.home() {
            Some(bell) => bell.attended(future).await,
            None => future.await,
        }
    }

    /// An outcome was taken.
    pub(super) fn free_place(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    /// Messages whose outcomes were not taken yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// How many messages may have a place at a time.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn outcomes(&self) -> &Receiver<Result<SentMessage, Rejected>> {
        &self.outcomes
    }

    pub(super) fn reserve(&self) -> Option<Place> {
        let reserve = |taken| (taken < self.depth).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).ok()?;
        Some(Place { tell: Some(Arc::clone(&self.tell)), taken: Arc::clone(&self.taken) })
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("depth", &self.depth).finish_non_exhaustive()
    }
}

/// The place of one message in a queue: given back when the message was not taken after all.
pub(super) struct Place {
    tell: Option<Arc<Sender<Result<SentMessage, Rejected>>>>,
    taken: Arc<AtomicUsize>,
}

impl Place {
    pub(super) fn tell(mut self, outcome: Result<SentMessage, Rejected>) {
        if let Some(tell) = self.tell.take() {
            // When the queue is gone nobody wants to know.
            drop(tell.send(outcome));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.tell.is_some() {
            self.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
