//! Queues from the worker to whoever waits, threads and tasks alike.

use crate::doorbell::Doorbell;
use crossbeam_channel as channel;
pub(super) use crossbeam_channel::{RecvTimeoutError, TryRecvError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use towpath_wake::{Awaited, Take, Taking, Waiters};

/// What both ends share beside the queue itself.
#[derive(Default)]
struct Ear {
    waiters: Waiters,
    is_closed: AtomicBool,
}

/// The end that puts things in. With it ends the queue.
pub(crate) struct Sender<T> {
    queue: channel::Sender<T>,
    ear: Closing,
}

/// Dropped behind the end of the queue itself.
struct Closing(Arc<Ear>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        self.0.waiters.tell_all();
    }
}

/// The end that things come out of: each at one of its clones. With the last one all that is in the
/// queue is dropped.
pub(crate) struct Receiver<T> {
    queue: channel::Receiver<T>,
    ear: Arc<Ear>,
}

/// Nothing comes any more: the worker has let go of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed;

/// A queue that is bounded by who sends.
pub(super) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    around(channel::unbounded())
}

/// A queue of at most `depth` things.
pub(super) fn bounded<T>(depth: usize) -> (Sender<T>, Receiver<T>) {
    around(channel::bounded(depth))
}

fn around<T>(
    (sender, receiver): (channel::Sender<T>, channel::Receiver<T>),
) -> (Sender<T>, Receiver<T>) {
    let ear = Arc::<Ear>::default();
    let sender = Sender { queue: sender, ear: Closing(Arc::clone(&ear)) };
    (sender, Receiver { queue: receiver, ear })
}

impl<T> Sender<T> {
    /// Puts something in and tells who waits. Gives it back where nobody receives any more, or
    /// there is no room.
    pub(super) fn send(&self, item: T) -> Result<(), T> {
        self.queue.try_send(item).map_err(channel::TrySendError::into_inner)?;
        self.ear.0.waiters.tell_one();
        Ok(())
    }

    /// How many things are in it.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}

impl<T> Receiver<T> {
    /// The oldest, if there is one.
    pub(super) fn try_recv(&self) -> Result<T, TryRecvError> {
        self.queue.try_recv()
    }

    /// The oldest, as a future.
    pub(super) fn recv_async(&self) -> Taking<&Self> {
        Taking::new(self)
    }

    /// The oldest, as the future that is ready with it, of the receiver itself.
    pub(super) fn into_recv(self) -> Taking<Self> {
        Taking::new(self)
    }

    /// The oldest, waiting for it for at most `timeout`.
    pub(super) fn recv_timeout(
        &self,
        bell: &Doorbell,
        timeout: Duration,
    ) -> Result<T, RecvTimeoutError> {
        let found = match self.take() {
            None if !timeout.is_zero() => bell.wait(Some(timeout), self.recv_async()),
            found => found,
        };
        found.ok_or(RecvTimeoutError::Timeout)?.map_err(|Closed| RecvTimeoutError::Disconnected)
    }

    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Nothing in a queue is pinned.
impl<T> Unpin for Receiver<T> {}

impl<T> Awaited for Receiver<T> {
    fn waiters(&self) -> &Waiters {
        &self.ear.waiters
    }

    fn is_there(&self) -> bool {
        !self.queue.is_empty() || self.ear.is_closed.load(Ordering::SeqCst)
    }
}

impl<T> Take for Receiver<T> {
    type Item = Result<T, Closed>;

    fn take(&self) -> Option<Self::Item> {
        match self.queue.try_recv() {
            Ok(item) => Some(Ok(item)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Closed)),
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), ear: Arc::clone(&self.ear) }
    }
}

#[cfg(test)]
mod tests;
