//! Where the outcome of a message goes.

use crate::queue::{Receiver, Sender, queue};
use crate::unseen;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use towpath_proto::Outcome;
use towpath_transport::{Payload, Rejected, SubmitError};

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

/// The outcome of a posted message, or its refusal.
pub(crate) type Sent = Result<SentMessage, Rejected>;

/// Where the outcome of a message goes.
pub(crate) enum Reply {
    /// To the ticket of the message, which has a number on its channel.
    Ticket(Sender<Sent>, u64),
    /// To a completion queue.
    Queue(Place),
}

impl Reply {
    /// The number of a message that has a ticket.
    pub(crate) fn ticket(&self) -> Option<u64> {
        match self {
            Self::Ticket(_, number) => Some(*number),
            Self::Queue(_) => None,
        }
    }

    /// Delivers the outcome. If the ticket was dropped, a refusal is logged and any other outcome
    /// is dropped.
    pub(crate) fn tell(self, sent: Sent) {
        match self {
            Self::Ticket(reply, _) => {
                if let Err(Err(unseen)) = reply.send(sent) {
                    log_unseen(&unseen);
                }
            }
            Self::Queue(place) => place.tell(sent),
        }
    }
}

/// Logs a refusal whose ticket was dropped, unless the channel, link or endpoint is gone.
pub(crate) fn log_unseen(rejected: &Rejected) {
    let error = &rejected.error;
    if !matches!(error, SubmitError::NotOpen(_) | SubmitError::NoSuchLink | SubmitError::ShutDown) {
        unseen::refused("a message", error);
    }
}

/// The outcomes of a completion queue.
pub(crate) struct Outcomes {
    sender: Sender<Sent>,
    pub(crate) told: Receiver<Sent>,
    /// Posted messages whose outcomes were not taken, at most `depth`.
    taken: AtomicUsize,
    pub(crate) depth: usize,
}

impl Outcomes {
    pub(crate) fn new(depth: usize) -> Self {
        let (sender, told) = queue();
        Self { sender, told, taken: AtomicUsize::new(0), depth }
    }

    /// Reserves the place of one more message, if one is free.
    pub(crate) fn reserve(self: &Arc<Self>) -> Option<Place> {
        let reserve = |taken| (taken < self.depth).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).ok()?;
        Some(Place(Some(Arc::clone(self))))
    }

    /// Frees the place of a message.
    pub(crate) fn free_place(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// The place of one message in a completion queue. Dropping it frees the place.
pub(crate) struct Place(Option<Arc<Outcomes>>);

impl Place {
    fn tell(mut self, sent: Sent) {
        if let Some(outcomes) = self.0.take() {
            // `outcomes` has the receiver, too: the queue takes the outcome.
            drop(outcomes.sender.send(sent));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(outcomes) = self.0.take() {
            outcomes.free_place();
        }
    }
}
