//! Outcomes of many messages, of one channel or many, in one queue.

use crate::engine::{self, Engine};
use crate::reply::{Outcomes, Place, SentMessage};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use towpath_transport::Rejected;
use towpath_wake::{Take, Taking};

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
    outcomes: Arc<Outcomes>,
    /// The endpoint that was first posted to: who waits for outcomes drives this one.
    home: Arc<OnceLock<Weak<Engine>>>,
}

impl CompletionQueue {
    /// A queue for at most `depth` messages under way.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self { outcomes: Arc::new(Outcomes::new(depth)), home: Arc::default() }
    }

    /// The oldest outcome, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<Result<SentMessage, Rejected>> {
        // The queue has its sender, so it is never closed.
        let outcome = self.outcomes.told.take()?.ok()?;
        self.outcomes.free_place();
        Some(outcome)
    }

    /// The oldest outcome, waiting for at most `timeout`.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> Option<Result<SentMessage, Rejected>> {
        let told = Taking::new(&self.outcomes.told);
        let waited = || engine::wait(self.home().as_ref(), Some(timeout), told)?.ok();
        let outcome = self.outcomes.told.take().map_or_else(waited, Result::ok)?;
        self.outcomes.free_place();
        Some(outcome)
    }

    /// As [`wait`](Self::wait), for as long as it takes, as a future. One that is dropped has taken
    /// nothing.
    ///
    /// # Errors
    /// [`Rejected`] with the message: it was not taken.
    pub async fn wait_async(&self) -> Result<SentMessage, Rejected> {
        let told = Taking::new(&self.outcomes.told);
        let outcome = engine::attended(self.home().as_ref(), told).await;
        let Ok(outcome) = outcome else { return std::future::pending().await };
        self.outcomes.free_place();
        outcome
    }

    fn home(&self) -> Option<Arc<Engine>> {
        self.home.get()?.upgrade()
    }

    /// A place for a message that is posted to this endpoint, if there is one. If the first
    /// message was posted to another endpoint, this one has to look after itself.
    pub(crate) fn reserve(&self, engine: Option<&Arc<Engine>>) -> Option<Place> {
        let place = self.outcomes.reserve()?;
        if let Some(engine) = engine {
            let home = self.home.get_or_init(|| Arc::downgrade(engine));
            if !std::ptr::eq(home.as_ptr(), Arc::as_ptr(engine)) {
                engine.attend();
            }
        }
        Some(place)
    }

    /// Messages whose outcomes were not taken yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.outcomes.taken()
    }

    /// How many messages may have a place at a time.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.outcomes.depth
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("depth", &self.depth()).finish_non_exhaustive()
    }
}
