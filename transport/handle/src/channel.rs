//! Handles of channels: what arrives on them, and sending.

use crate::completions::CompletionQueue;
use crate::egress::{Egress, End, Outgoing};
use crate::inbox::{Incoming, OpenChannel};
use crate::queue::{Closed, queue};
use crate::reply::Reply;
use crate::shared::Shared;
use crate::ticket::Ticket;
use std::sync::Arc;
use std::time::Duration;
use towpath_memory::Buf;
use towpath_proto::{ChannelId, CloseReason, DownReason};
use towpath_transport::{AllocError, Payload, Rejected, SendOptions, SubmitError};
use towpath_wake::Taking;

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

/// A channel of a link, on which messages are sent and received. Handles can be cloned and shared.
///
/// [`send`](Self::send) sends a message, [`recv`](Self::recv) receives the next one. When several
/// threads receive, each message goes to one of them. The channel is [closed](Self::close) when its
/// last handle is dropped, also by a thread that panics.
#[derive(Clone)]
pub struct ChannelHandle {
    shared: Arc<Shared>,
    channel: Arc<OpenChannel>,
}

impl ChannelHandle {
    pub(crate) fn new(shared: &Arc<Shared>, channel: OpenChannel) -> Self {
        Self { shared: Arc::clone(shared), channel: Arc::new(channel) }
    }

    /// Its number, the same at both ends.
    #[must_use]
    pub fn id(&self) -> ChannelId {
        self.channel.id
    }

    /// Whether messages arrive in the order they were sent.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.channel.ordered
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

    /// As [`alloc`](Self::alloc), but waits while all buffers are out, as a future.
    ///
    /// # Errors
    /// [`AllocError::TooLong`].
    pub async fn alloc_async(&self, len: usize) -> Result<Buf, AllocError> {
        self.shared.attended(self.shared.pools.taking(len)).await
    }

    /// As [`copy`](Self::copy), but waits while all buffers are out, as a future.
    ///
    /// # Errors
    /// [`AllocError::TooLong`].
    pub async fn copy_async(&self, bytes: &[u8]) -> Result<Buf, AllocError> {
        self.shared.attended(self.shared.pools.copying(bytes)).await
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
        let (ticket, message) = self.ticketed(payload.into(), options);
        match self.shared.post(self.egress(), message, patience) {
            Err((message, SubmitError::QueueFull)) => message.abandon(),
            Err((Outgoing { payload, .. }, error)) => return Err(Rejected { payload, error }),
            Ok(()) => {}
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
        let (ticket, message) = self.ticketed(payload.into(), options);
        match self.shared.post(self.egress(), message, Some(patience)) {
            Err((Outgoing { payload, .. }, error)) => Err(Rejected { payload, error }),
            Ok(()) => ticket.settle(),
        }
    }

    /// As [`send`](Self::send), as a future: ready with the ticket when the channel's queue has
    /// room and has taken the message. The ticket is a future of the outcome. If this is dropped
    /// before it is ready, the message is not sent and its buffers return to their pools. The
    /// [timeout](SendOptions::timeout) of the message counts from the first poll, but while
    /// the queue is full nothing ends the wait: that is up to the executor's own timer.
    ///
    /// # Errors
    /// [`Rejected`] with the message: the channel or the endpoint is closed.
    pub async fn send_async(
        &self,
        payload: impl Into<Payload>,
        options: SendOptions,
    ) -> Result<Ticket, Rejected> {
        let (ticket, message) = self.ticketed(payload.into(), options);
        let mut message = Some(message);
        let posted = self.shared.post_async(self.egress(), &mut message).await;
        match (posted, message) {
            (Err(error), Some(Outgoing { payload, .. })) => Err(Rejected { payload, error }),
            _ => ticket.settle(),
        }
    }

    /// Waits for room in the queue of the channel, as a future: then [`post`](Self::post) and
    /// [`try_send`](Self::try_send) are not refused for want of it, unless another was faster.
    pub async fn writable_async(&self) {
        self.shared.attended(Taking::new(&**self.egress())).await;
    }

    /// A message, and the ticket of its outcome.
    fn ticketed(&self, payload: Payload, options: SendOptions) -> (Ticket, Outgoing) {
        let (tell, answer) = queue();
        let number = self.egress().number_ticket();
        let ticket = Ticket::new(answer, &self.shared, self.egress(), (number, options.token));
        (ticket, Outgoing { payload, options, reply: Reply::Ticket(tell, number) })
    }

    fn egress(&self) -> &Arc<Egress> {
        &self.channel.egress
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
        let Some(place) = completions.reserve(self.shared.engine()) else {
            let depth = completions.depth();
            return Err(Rejected { payload, error: SubmitError::CompletionsFull { depth } });
        };
        let message = Outgoing { payload, options, reply: Reply::Queue(place) };
        let posted = self.shared.inbox.post(self.egress(), message);
        posted.map_err(|(Outgoing { payload, .. }, error)| Rejected { payload, error })
    }

    /// Sets the share of the link that this channel gets at this end, relative to the other
    /// channels; see [`Endpoint::set_weight`](towpath_transport::Endpoint::set_weight). Never
    /// blocks; the weight applies from the next time that the worker serves the channel.
    pub fn set_weight(&self, weight: u16) {
        self.shared.inbox.weigh(self.egress(), weight);
    }

    /// Why the channel has ended; `None` while it is open. What had arrived before can still be
    /// [received](Self::recv).
    #[must_use]
    pub fn end(&self) -> Option<RecvError> {
        let has_ended = self.egress().is_sealed() || self.shared.inbox.has_ended();
        has_ended.then(|| self.recv_end())
    }

    /// Why nothing more arrives.
    #[cold]
    fn recv_end(&self) -> RecvError {
        match self.egress().end.get().copied() {
            Some(End::Closed(reason)) => RecvError::Closed(reason),
            Some(End::Down(reason)) => RecvError::Down(reason),
            None if self.shared.inbox.has_panicked() => RecvError::Panicked,
            None if self.shared.inbox.has_ended() => RecvError::ShutDown,
            // It is being closed.
            None => RecvError::Closed(CloseReason::Local),
        }
    }

    /// Waits for the next message, for at most `timeout`.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv(&self, timeout: Duration) -> Result<Incoming, RecvError> {
        let received = self.shared.receive(&self.channel.incoming, timeout);
        received.ok_or(RecvError::Timeout)?.map_err(|Closed| self.recv_end())
    }

    /// As [`recv`](Self::recv), for as long as it takes, as a future. One that is dropped has taken
    /// nothing: what arrived stays for the next one.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but for the time.
    pub async fn recv_async(&self) -> Result<Incoming, RecvError> {
        let received = self.shared.receive_async(&self.channel.incoming).await;
        received.map_err(|Closed| self.recv_end())
    }

    /// Closes the channel: it accepts no more messages, and closes when each message that was sent
    /// on it has its outcome.
    pub fn close(&self) {
        self.shared.inbox.leave(self.egress());
    }
}

impl std::fmt::Debug for ChannelHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelHandle").field("id", &self.id()).finish_non_exhaustive()
    }
}
