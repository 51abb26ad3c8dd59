//! Tickets of sends: the outcome of one message.

use crate::doorbell::Doorbell;
use crate::egress::Egress;
use crate::endpoint::Shared;
use crate::queue::{Closed, Receiver, RecvTimeoutError, bounded};
use crate::unseen;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use towpath_proto::Outcome;
use towpath_transport::{Payload, Rejected, SubmitError};
use towpath_wake::Taking;

/// The outcome of a message, with the buffers of that message.
#[derive(Debug)]
pub struct SentMessage {
    /// The caller's token ([`SendOptions::token`](towpath_transport::SendOptions::token)).
    pub token: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The buffers of the message; empty if the worker panicked while it had them.
    pub payload: Payload,
}

/// An answer that is given out once.
pub(super) struct Answer<T> {
    answer: Taking<Receiver<T>>,
    is_given: AtomicBool,
}

impl<T> Answer<T> {
    pub(super) fn new(answer: Receiver<T>) -> Self {
        Self { answer: answer.into_recv(), is_given: AtomicBool::new(false) }
    }

    /// Waits for it for at most `timeout`. `lost` is what it is if the worker dropped the question.
    pub(super) fn wait(
        &self,
        bell: &Doorbell,
        timeout: Duration,
        lost: impl FnOnce() -> T,
    ) -> Option<T> {
        match self.answer.source.recv_timeout(bell, timeout) {
            Ok(answer) => self.give(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => self.give(lost()),
        }
    }

    /// The same as a future.
    pub(super) fn poll(
        &mut self,
        bell: &Doorbell,
        cx: &mut Context<'_>,
        lost: impl FnOnce() -> T,
    ) -> Poll<T> {
        let answer = match Pin::new(&mut self.answer).poll(cx) {
            Poll::Ready(answer) => answer.unwrap_or_else(|Closed| lost()),
            Poll::Pending => {
                bell.attend();
                return Poll::Pending;
            }
        };
        self.give(answer).map_or(Poll::Pending, Poll::Ready)
    }

    fn give(&self, answer: T) -> Option<T> {
        let was_given = self.is_given.swap(true, Ordering::Relaxed);
        (!was_given).then_some(answer)
    }

    /// What is there and was not given out.
    pub(super) fn take(&self) -> Option<T> {
        self.answer.source.try_recv().ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.answer.source.is_empty()
    }
}

/// A handle for one sent message: waits for its outcome, or gives the message up.
///
/// Dropping a ticket does neither: the message is still sent, unless it was refused, as one is that
/// is longer than the peer accepts. The call that sends says so, or the ticket where other messages
/// were before this one; of a ticket that was dropped, a refusal is logged (`tracing`, level
/// `WARN`), but one because the channel, its link or the endpoint has ended: that is told by what
/// receives.
///
/// As a future it is the outcome, once there is one; never, if [`wait`](Self::wait) returned it.
/// Await `&mut ticket` to keep the ticket meanwhile, for [`cancel`](Self::cancel).
#[must_use = "a message may be refused, which only its ticket tells: wait for the outcome"]
pub struct Ticket {
    answer: Answer<Result<SentMessage, Rejected>>,
    token: u64,
    shared: Arc<Shared>,
    egress: Arc<Egress>,
    /// Of the message, on its channel.
    number: u64,
    is_cancelled: AtomicBool,
}

impl Ticket {
    pub(super) fn new(
        answer: Receiver<Result<SentMessage, Rejected>>,
        shared: &Arc<Shared>,
        egress: &Arc<Egress>,
        (number, token): (u64, u64),
    ) -> Self {
        let (shared, egress) = (Arc::clone(shared), Arc::clone(egress));
        let is_cancelled = AtomicBool::new(false);
        Self { answer: Answer::new(answer), token, shared, egress, number, is_cancelled }
    }

    /// What the endpoint has refused at once is an error of the call that posted it.
    pub(super) fn settle(mut self) -> Result<Self, Rejected> {
        match self.answer.take() {
            Some(Err(rejected)) => return Err(rejected),
            Some(sent) => {
                let (tell, answer) = bounded(1);
                // There is room for one.
                let _ = tell.send(sent);
                self.answer = Answer::new(answer);
            }
            None => {}
        }
        Ok(self)
    }

    /// Waits for the outcome, for at most `timeout`. `Ok(None)` means that there is none yet. The
    /// outcome is returned once.
    ///
    /// # Errors
    /// [`Rejected`] with the message: it was not taken.
    pub fn wait(&self, timeout: Duration) -> Result<Option<SentMessage>, Rejected> {
        self.answer.wait(&self.shared.bell, timeout, || Ok(lost(self.token))).transpose()
    }

    /// Gives the message up and does not block; [`wait`](Self::wait) then returns the outcome.
    /// It is [`Abandoned`](Outcome::Abandoned) when the peer's application has not seen the message
    /// whole and never will, [`Delivered`](Outcome::Delivered) when it was delivered before, and
    /// [`Unknown`](Outcome::Unknown) when the peer is gone and may have it.
    pub fn cancel(&self) {
        if self.answer.is_empty() && !self.is_cancelled.swap(true, Ordering::Relaxed) {
            self.shared.bell.cancel(&self.egress, self.number);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(Err(rejected)) = self.answer.take() {
            log_unseen(&rejected);
        }
    }
}

impl Future for Ticket {
    type Output = Result<SentMessage, Rejected>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (token, shared) = (self.token, Arc::clone(&self.shared));
        self.answer.poll(&shared.bell, cx, || Ok(lost(token)))
    }
}

/// Nobody has the ticket of a message any more that was refused.
pub(crate) fn log_unseen(rejected: &Rejected) {
    let error = &rejected.error;
    if !matches!(error, SubmitError::NotOpen(_) | SubmitError::NoSuchLink | SubmitError::ShutDown) {
        unseen::refused("a message", error);
    }
}

/// The worker panicked while it had the message.
fn lost(token: u64) -> SentMessage {
    SentMessage { token, outcome: Outcome::Unknown, payload: Payload::lost() }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("number", &self.number).finish_non_exhaustive()
    }
}
