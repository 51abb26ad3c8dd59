//! Queues from the worker to whoever waits, threads and tasks alike.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towpath_wake::{Awaited, Take, Waiters};

/// What both ends share.
struct Queue<T> {
    state: Mutex<State<T>>,
    waiters: Waiters,
}

struct State<T> {
    items: VecDeque<T>,
    /// The sender is gone.
    is_closed: bool,
    /// The receiver is gone.
    is_left: bool,
}

impl<T> Queue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that puts items in. Dropping it closes the queue. Who sends bounds the queue.
pub(crate) struct Sender<T>(Arc<Queue<T>>);

/// The end that items come out of. Dropping it drops all items that are left.
pub(crate) struct Receiver<T>(Arc<Queue<T>>);

/// No item comes any more: the sender is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// An empty queue.
pub(crate) fn queue<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { items: VecDeque::new(), is_closed: false, is_left: false };
    let queue = Arc::new(Queue { state: Mutex::new(state), waiters: Waiters::default() });
    (Sender(Arc::clone(&queue)), Receiver(queue))
}

impl<T> Sender<T> {
    /// Puts an item in and tells one waiter. Gives the item back when the receiver is gone.
    pub(crate) fn send(&self, item: T) -> Result<(), T> {
        let mut state = self.0.state();
        if state.is_left {
            return Err(item);
        }
        state.items.push_back(item);
        drop(state);
        self.0.waiters.tell_one();
        Ok(())
    }

    /// Removes the items that `is_over` finds. True if there were any.
    pub(crate) fn withdraw(&self, is_over: impl Fn(&T) -> bool) -> bool {
        let mut state = self.0.state();
        let before = state.items.len();
        state.items.retain(|item| !is_over(item));
        state.items.len() < before
    }

    pub(crate) fn len(&self) -> usize {
        self.0.state().items.len()
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.waiters.tell_all();
    }
}

impl<T> Receiver<T> {
    /// Takes the oldest item if `is_wanted` says so.
    pub(crate) fn take_if(&self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut state = self.0.state();
        state.items.pop_front_if(|item| is_wanted(item))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.state().items.is_empty()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_left = true;
        let left = std::mem::take(&mut state.items);
        // Dropping an item may run anybody's code.
        drop(state);
        drop(left);
    }
}

impl<T> Awaited for Receiver<T> {
    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }

    fn is_there(&self) -> bool {
        let state = self.0.state();
        !state.items.is_empty() || state.is_closed
    }
}

impl<T> Take for Receiver<T> {
    type Item = Result<T, Closed>;

    fn take(&self) -> Option<Self::Item> {
        let mut state = self.0.state();
        match state.items.pop_front() {
            Some(item) => Some(Ok(item)),
            None => state.is_closed.then_some(Err(Closed)),
        }
    }
}

#[cfg(test)]
mod tests;
