//! Handles of channels: what arrives on them, and sending.

use crate::commands::NewChannel;
use crate::completions::CompletionQueue;
use crate::doorbell::Doorbell;
use crate::egress::{Egress, Outgoing, Refusal, Reply};
use crate::endpoint::Shared;
use crate::queue::{Receiver, RecvTimeoutError, bounded};
use crate::room::Room;
use crate::ticket::{SentMessage, Ticket};
use std::sync::Arc;
use std::time::Duration;
use towpath_memory::Buf;
use towpath_proto::{ChannelId, CloseReason, DownReason};
use towpath_transport::AllocError;
use towpath_transport::StreamId;
use towpath_transport::{Chunk, Message};
use towpath_transport::{Payload, Rejected, SendOptions, SubmitError};

/// What arrives on a channel.
#[derive(Debug)]
pub enum Incoming {
    /// A whole message.
    Message(Message),
    /// The next piece of a message that is longer than
    /// [`EndpointConfig::whole_bytes_max`](towpath_transport::EndpointConfig::whole_bytes_max), in
    /// order. It comes only where
    /// [`EndpointConfig::streams`](towpath_transport::EndpointConfig::streams) is on.
    StreamChunk {
        /// Its message.
        stream: StreamId,
        /// The piece.
        chunk: Chunk,
        /// Bytes of the whole message.
        message_len: u32,
        /// No more pieces follow: the message was whole.
        end: bool,
    },
    /// The rest of a streamed message will not come: undo what its pieces did.
    StreamAborted {
        /// Its message.
        stream: StreamId,
    },
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// Nothing came in time.
    #[error("nothing arrived in time; the peer may be busy")]
    Timeout,
    /// The channel was closed in order, and everything that had arrived was taken.
    #[error("the channel is closed ({}); open another one", closed_by(*.0))]
    Closed(CloseReason),
    /// Its link is down, and everything that had arrived was taken.
    #[error("the link is down: {}; connect again", .0)]
    Down(DownReason),
    /// The endpoint has shut down, and everything that had arrived was taken.
    #[error("the endpoint has shut down; spawn another one")]
    ShutDown,
    /// The worker of the endpoint panicked: see standard error, or the log, for the reason.
    #[error("the endpoint's worker thread panicked; spawn another endpoint")]
    Panicked,
}

fn closed_by(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Local => "by this side",
        CloseReason::Peer => "by the peer",
        CloseReason::Refused(_) => "the peer refused it",
    }
}

/// Why nothing more arrives on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Closed(CloseReason),
    Down(DownReason),
}

/// One end of a channel, until its last handle is gone, wherever that may happen.
pub(crate) struct ChannelEnd {
    pub(super) egress: Arc<Egress>,
    bell: Arc<Doorbell>,
}

impl ChannelEnd {
    pub(super) fn new(egress: Arc<Egress>, bell: Arc<Doorbell>) -> Self {
        Self { egress, bell }
    }

    fn leave(&self) {
        self.egress.leave(&self.bell);
    }
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A channel of a link, on which messages are sent and received. Handles can be cloned and shared.
///
/// [`send`](Self::send) sends a message, [`recv`](Self::recv) receives the next one. When several
/// threads receive, each message goes to one of them. The channel is [closed](Self::close) when its
/// last handle is dropped, also by a thread that panics.
#[derive(Clone)]
pub struct ChannelHandle {
    shared: Arc<Shared>,
    end: Arc<ChannelEnd>,
    id: ChannelId,
    ordered: bool,
    incoming: Receiver<Incoming>,
}

impl ChannelHandle {
    pub(super) fn new(shared: &Arc<Shared>, new: NewChannel) -> Self {
        let NewChannel { id, ordered, incoming, end } = new;
        Self { shared: Arc::clone(shared), end: Arc::new(end), id, ordered, incoming }
    }

    /// Its number, the same at both ends.
    #[must_use]
    pub fn id(&self) -> ChannelId {
        self.id
    }

    /// Whether messages arrive in the order they were sent.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// An empty buffer for at least `len` bytes; see
    /// [`EndpointHandle::alloc`](crate::EndpointHandle::alloc).
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn alloc(&self, len: usize) -> Result<Buf, AllocError> {
        self.shared.pools.take(len)
    }

    /// A buffer with a copy of `bytes`.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn copy(&self, bytes: &[u8]) -> Result<Buf, AllocError> {
        self.shared.pools.copy(bytes)
    }

    /// As [`alloc`](Self::alloc), but waits for at most `patience` while all buffers are out.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn alloc_timeout(&self, len: usize, patience: Duration) -> Result<Buf, AllocError> {
        self.shared.alloc_timeout(len, patience)
    }

    /// As [`copy`](Self::copy), but waits for at most `patience` while all buffers are out.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn copy_timeout(&self, bytes: &[u8], patience: Duration) -> Result<Buf, AllocError> {
        self.shared.copy_timeout(bytes, patience)
    }

    /// Sends a message without copying it (but for segments of up to 512 bytes, which may be copied
    /// to share a chunk with others). The ticket gives the outcome; the message is sent even if you
    /// do not wait for the outcome.
    ///
    /// This call blocks while the channel's queue is full (256 messages). If the peer never reads,
    /// that is for ever, unless the message has a [timeout](SendOptions::timeout), which counts
    /// from this call; the message is then abandoned. [`try_send`](Self::try_send) and
    /// [`post`](Self::post) never wait; [`send_timeout`](Self::send_timeout) waits for a limited
    /// time.
    ///
    /// # Errors
    /// [`Rejected`] with the message: it is not one that the peer takes, or the channel or the
    /// endpoint is closed. Where other messages of the channel wait, the ticket may say so instead.
    pub fn send(
        &self,
        payload: impl Into<Payload>,
        options: SendOptions,
    ) -> Result<Ticket, Rejected> {
        let patience = options.timeout.map(Duration::from);
        let (ticket, refused) = self.send_within(payload.into(), options, patience);
        match refused {
            Some((message, Refusal::Full)) => message.abandon(),
            Some((Outgoing { payload, .. }, refusal)) => {
                return Err(Rejected { payload, error: self.error(refusal) });
            }
            None => {}
        }
        ticket.settle()
    }

    /// As [`send`](Self::send), but never waits.
    ///
    /// # Errors
    /// [`Rejected`] with the message: [`SubmitError::QueueFull`], or the channel or the endpoint is
    /// closed.
    pub fn try_send(
        &self,
        payload: impl Into<Payload>,
        options: SendOptions,
    ) -> Result<Ticket, Rejected> {
        self.send_timeout(payload, options, Duration::ZERO)
    }

    /// As [`send`](Self::send), but waits for room in the channel's queue for at most `patience`.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub fn send_timeout(
        &self,
        payload: impl Into<Payload>,
        options: SendOptions,
        patience: Duration,
    ) -> Result<Ticket, Rejected> {
        let (ticket, refused) = self.send_within(payload.into(), options, Some(patience));
        match refused {
            Some((Outgoing { payload, .. }, refusal)) => {
                Err(Rejected { payload, error: self.error(refusal) })
            }
            None => ticket.settle(),
        }
    }

    fn send_within(
        &self,
        payload: Payload,
        options: SendOptions,
        patience: Option<Duration>,
    ) -> (Ticket, Option<(Outgoing, Refusal)>) {
        let (tell, answer) = bounded(1);
        let (ticket, number) = self.ticket(answer, options.token);
        let message = Outgoing { payload, options, reply: Reply::Ticket(tell, number) };
        let posted = self.egress().post(&self.shared.bell, message, patience);
        (ticket, posted.err())
    }

    /// A ticket, and the number of its message.
    pub(super) fn ticket(
        &self,
        answer: Receiver<Result<SentMessage, Rejected>>,
        token: u64,
    ) -> (Ticket, u64) {
        let egress = self.egress();
        let number = egress.number_ticket();
        (Ticket::new(answer, &self.shared, egress, (number, token)), number)
    }

    /// Sends a message without copying it, without waiting and without a lock. Its outcome goes to
    /// `completions`.
    ///
    /// # Errors
    /// [`Rejected`] with the message: [`SubmitError::QueueFull`] when the channel's queue is full,
    /// [`SubmitError::CompletionsFull`] when the completion queue is, or the channel or the
    /// endpoint is closed.
    pub fn post(
        &self,
        payload: impl Into<Payload>,
        options: SendOptions,
        completions: &CompletionQueue,
    ) -> Result<(), Rejected> {
        let payload = payload.into();
        let Some(place) = completions.reserve() else {
            let depth = completions.depth();
            return Err(Rejected { payload, error: SubmitError::CompletionsFull { depth } });
        };
        completions.note(&self.shared.bell);
        let message = Outgoing { payload, options, reply: Reply::Queue(place) };
        let posted = self.end.egress.try_post(&self.shared.bell, message);
        posted.map_err(|(Outgoing { payload, .. }, refusal)| {
            let error = self.error(refusal);
            Rejected { payload, error }
        })
    }

    /// Sets the share of the link that this channel gets at this end, relative to the other
    /// channels; see [`Endpoint::set_weight`](towpath_transport::Endpoint::set_weight). Never
    /// blocks; the weight applies from the next time that the worker serves the channel.
    pub fn set_weight(&self, weight: u16) {
        self.end.egress.set_weight(&self.shared.bell, weight);
    }

    pub(super) fn error(&self, refusal: Refusal) -> SubmitError {
        match refusal {
            Refusal::Full => SubmitError::QueueFull,
            Refusal::Sealed => SubmitError::NotOpen(self.id),
            Refusal::Ended => SubmitError::ShutDown,
        }
    }

    pub(super) fn incoming(&self) -> &Receiver<Incoming> {
        &self.incoming
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn egress(&self) -> &Arc<Egress> {
        &self.end.egress
    }

    pub(super) fn room(&self) -> Room<'_> {
        Room { egress: &self.end.egress, bell: &self.shared.bell }
    }

    /// Why the channel has ended; `None` while it is open. What had arrived before can still be
    /// [received](Self::recv).
    #[must_use]
    pub fn end(&self) -> Option<RecvError> {
        let has_ended = self.end.egress.is_sealed() || self.shared.bell.has_ended();
        has_ended.then(|| self.recv_end())
    }

    /// Why nothing more arrives.
    #[cold]
    pub(super) fn recv_end(&self) -> RecvError {
        match self.end.egress.end() {
            Some(End::Closed(reason)) => RecvError::Closed(reason),
            Some(End::Down(reason)) => RecvError::Down(reason),
            None if self.shared.bell.has_panicked() => RecvError::Panicked,
            None if self.shared.bell.has_ended() => RecvError::ShutDown,
            // It is being closed.
            None => RecvError::Closed(CloseReason::Local),
        }
    }

    /// Waits for the next message, for at most `timeout`.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv(&self, timeout: Duration) -> Result<Incoming, RecvError> {
        self.incoming.recv_timeout(&self.shared.bell, timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => RecvError::Timeout,
            RecvTimeoutError::Disconnected => self.recv_end(),
        })
    }

    /// Closes the channel: it accepts no more messages, and closes when each message that was sent
    /// on it has its outcome.
    pub fn close(&self) {
        self.end.leave();
    }
}

impl std::fmt::Debug for ChannelHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelHandle").field("id", &self.id).finish_non_exhaustive()
    }
}
