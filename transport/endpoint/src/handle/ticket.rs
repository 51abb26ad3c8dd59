//! Tickets of sends: the outcome of one message.

use super::Shared;
use super::egress::Egress;
use crate::payload::{Payload, Rejected};
use crossbeam_channel::Receiver;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use towpath_proto::Outcome;

/// The outcome of a message, with the buffers of that message.
#[derive(Debug)]
pub struct SentMessage {
    /// The caller's token ([`SendOptions::token`]).
    pub token: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The buffers of the message; empty if the worker panicked while it had them.
    pub payload: Payload,
}

/// A handle for one sent message: waits for its outcome, or gives the message up.
///
/// Dropping a ticket does neither: the message is still sent.
pub struct Ticket {
    answer: Receiver<Result<SentMessage, Rejected>>,
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
        number: u64,
    ) -> Self {
        let (shared, egress) = (Arc::clone(shared), Arc::clone(egress));
        Self { answer, shared, egress, number, is_cancelled: AtomicBool::new(false) }
    }

    /// Waits for the outcome, for at most `timeout`. `Ok(None)` means that there is none yet. The
    /// outcome is returned once.
    ///
    /// # Errors
    /// [`Rejected`] with the message: it was not taken.
    pub fn wait(&self, timeout: Duration) -> Result<Option<SentMessage>, Rejected> {
        self.answer.recv_timeout(timeout).ok().transpose()
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

    pub(super) fn answer(&self) -> &Receiver<Result<SentMessage, Rejected>> {
        &self.answer
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("number", &self.number).finish_non_exhaustive()
    }
}
