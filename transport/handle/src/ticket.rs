//! Tickets of sends: the outcome of one message.

use crate::egress::Egress;
use crate::inbox::Word;
use crate::queue::{Closed, Receiver};
use crate::reply::{Sent, SentMessage, log_unseen};
use crate::shared::Shared;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use towpath_proto::Outcome;
use towpath_transport::{Payload, Rejected};
use towpath_wake::Taking;

/// An answer that is given out once.
pub(crate) struct Answer<T> {
    answer: Taking<Receiver<T>>,
    shared: Arc<Shared>,
    is_given: AtomicBool,
    /// The caller's token, and what the answer is if the worker dropped the question.
    pub(crate) token: u64,
    lost: fn(u64) -> T,
}

impl<T> Answer<T> {
    pub(crate) fn new(
        answer: Receiver<T>,
        shared: &Arc<Shared>,
        token: u64,
        lost: fn(u64) -> T,
    ) -> Self {
        let (answer, shared) = (Taking::new(answer), Arc::clone(shared));
        Self { answer, shared, is_given: AtomicBool::new(false), token, lost }
    }

    /// Waits for it for at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<T> {
        let answer = self.shared.receive(&self.answer.source, timeout)?;
        self.give(answer)
    }

    /// The same as a future.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(cx) else {
            self.shared.engine().into_iter().for_each(|engine| engine.attend());
            return Poll::Pending;
        };
        self.give(answer).map_or(Poll::Pending, Poll::Ready)
    }

    fn give(&self, answer: Result<T, Closed>) -> Option<T> {
        let was_given = self.is_given.swap(true, Ordering::Relaxed);
        (!was_given).then(|| answer.unwrap_or_else(|Closed| (self.lost)(self.token)))
    }

    /// Where the answer comes; it is there until it is given out.
    pub(crate) fn queue(&self) -> &Receiver<T> {
        &self.answer.source
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
    answer: Answer<Sent>,
    egress: Arc<Egress>,
    /// Of the message, on its channel.
    number: u64,
    is_cancelled: AtomicBool,
}

impl Ticket {
    /// The ticket with this number of a message with this token.
    pub(crate) fn new(
        answer: Receiver<Sent>,
        shared: &Arc<Shared>,
        egress: &Arc<Egress>,
        (number, token): (u64, u64),
    ) -> Self {
        // The worker panicked while it had the message.
        let lost =
            |token| Ok(SentMessage { token, outcome: Outcome::Unknown, payload: Payload::lost() });
        let answer = Answer::new(answer, shared, token, lost);
        let (egress, is_cancelled) = (Arc::clone(egress), AtomicBool::new(false));
        Self { answer, egress, number, is_cancelled }
    }

    /// What the endpoint has refused at once is an error of the call that posted it.
    pub(crate) fn settle(self) -> Result<Self, Rejected> {
        match self.answer.queue().take_if(Result::is_err) {
            Some(Err(rejected)) => Err(rejected),
            _ => Ok(self),
        }
    }

    /// Waits for the outcome, for at most `timeout`. `Ok(None)` means that there is none yet. The
    /// outcome is returned once.
    ///
    /// # Errors
    /// [`Rejected`] with the message: it was not taken.
    pub fn wait(&self, timeout: Duration) -> Result<Option<SentMessage>, Rejected> {
        self.answer.wait(timeout).transpose()
    }

    /// Gives the message up and does not block; [`wait`](Self::wait) then returns the outcome.
    /// It is [`Abandoned`](Outcome::Abandoned) when the peer's application has not seen the message
    /// whole and never will, [`Delivered`](Outcome::Delivered) when it was delivered before, and
    /// [`Unknown`](Outcome::Unknown) when the peer is gone and may have it.
    pub fn cancel(&self) {
        if self.answer.queue().is_empty() && !self.is_cancelled.swap(true, Ordering::Relaxed) {
            self.answer.shared.inbox.tell(&self.egress, Word::Cancel(self.number));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(Err(rejected)) = self.answer.queue().take_if(Result::is_err) {
            log_unseen(&rejected);
        }
    }
}

impl Future for Ticket {
    type Output = Result<SentMessage, Rejected>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer.poll(cx)
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("number", &self.number).finish_non_exhaustive()
    }
}
