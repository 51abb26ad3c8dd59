//! An answer that is waited for by a thread, or as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::{ClientError, ErrorKind};
use crate::output::Output;
use crate::wire::Method;

/// What an operation gave.
#[derive(Debug)]
pub(super) enum Given {
    Output(Output),
    /// The bytes of a read, which hold no credit of its channel.
    Bytes(Vec<u8>),
}

type Outcome = Result<Given, ClientError>;

/// Where an answer is put.
#[derive(Debug, Default)]
pub(super) struct Place {
    state: Mutex<State>,
    told: Condvar,
    /// It is not asked for any more.
    is_abandoned: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Place {
    /// Whether nobody wants it done any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Relaxed)
    }

    pub(super) fn put(&self, outcome: Outcome) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        self.told.notify_all();
        // Without the lock: a waker may be anybody's code.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// What an operation gives, of what came of it; none where that is something else.
pub(super) type Take<T> = fn(Given) -> Option<T>;

/// An operation of a [`Client`](super::Client) that was asked for.
///
/// [`wait`](Self::wait) blocks until it has ended; as a future it is ready then. One that is
/// dropped is done all the same, and nobody learns how it ended.
#[derive(Debug)]
#[must_use = "nobody learns otherwise how the operation ended"]
pub struct Pending<T> {
    place: Arc<Place>,
    take: Take<T>,
}

impl<T> Pending<T> {
    pub(super) fn new(place: Arc<Place>, take: Take<T>) -> Self {
        Self { place, take }
    }

    /// Blocks until the operation has ended. It ends by the client's
    /// [`timeout`](crate::ClientConfig::timeout), and the time that one attempt may take beyond it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn wait(self) -> Result<T, ClientError> {
        let mut state = self.place.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = state.outcome.take() {
                drop(state);
                return self.taken(outcome);
            }
            state = self.place.told.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How the operation has ended, if it has: told once.
    pub fn try_take(&mut self) -> Option<Result<T, ClientError>> {
        let mut state = self.place.state.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = state.outcome.take()?;
        drop(state);
        Some(self.taken(outcome))
    }

    /// Leaves it undone where it is not under way: it is not begun, nor asked for again over
    /// another link. What is under way may still be done.
    pub fn abandon(self) {
        self.place.is_abandoned.store(true, Relaxed);
    }

    fn taken(&self, outcome: Outcome) -> Result<T, ClientError> {
        let given = outcome?;
        let method = match &given {
            Given::Output(output) => output.method(),
            Given::Bytes(_) => Method::Read,
        };
        // A reply of the right method with other contents cannot be built.
        let wrong = ClientError { method, chunk: None, offset: None, kind: ErrorKind::WrongReply };
        (self.take)(given).ok_or(wrong)
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, ClientError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.place.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(outcome) = state.outcome.take() else {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        drop(state);
        Poll::Ready(self.taken(outcome))
    }
}
