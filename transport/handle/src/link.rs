//! Handles of links, and waiting for what comes over them.

use crate::channel::ChannelHandle;
use crate::inbox::{Command, OpenChannel, OpenLink};
use crate::queue::{Closed, Receiver, queue};
use crate::shared::{Shared, WaitError};
use std::sync::Arc;
use std::time::Duration;
use towpath_proto::{DownReason, LinkStats};
use towpath_transport::{ChannelError, Peer};
use towpath_wake::Take;

/// A link to a peer. Handles can be cloned and shared.
///
/// One side opens a channel ([`open_channel`](Self::open_channel)), the other side accepts it
/// ([`accept_channel`](Self::accept_channel)); both then send and receive on it.
#[derive(Clone)]
pub struct LinkHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) link: Arc<OpenLink>,
}

impl LinkHandle {
    pub(crate) fn new(shared: &Arc<Shared>, mut link: OpenLink) -> Self {
        link.is_claimed = true;
        Self { shared: Arc::clone(shared), link: Arc::new(link) }
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.link.peer
    }

    /// Why the link is down, when it is.
    #[must_use]
    pub fn down(&self) -> Option<DownReason> {
        self.link.down.get().copied()
    }

    /// Opens a channel. Blocks until the peer has answered.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn open_channel(&self, ordered: bool) -> Result<ChannelHandle, ChannelError> {
        self.shared.wait_for(self.open_channel_async(ordered))
    }

    /// As [`open_channel`](Self::open_channel), as a future. If it is dropped, the channel is
    /// closed as soon as it is open.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub async fn open_channel_async(&self, ordered: bool) -> Result<ChannelHandle, ChannelError> {
        let link = self.link.id;
        let asked = self.shared.ask(|reply| Command::OpenChannel { link, ordered, reply }).await;
        Ok(ChannelHandle::new(&self.shared, asked.unwrap_or(Err(ChannelError::ShutDown))?))
    }

    /// Non-blocking version of [`open_channel`](Self::open_channel): it does not wait for the
    /// peer's answer. When 1,024 commands already wait for the worker it returns
    /// [`ChannelError::Busy`].
    #[must_use]
    pub fn begin_open(&self, ordered: bool) -> Opening {
        let ((reply, answer), inbox) = (queue(), &self.shared.inbox);
        if inbox.takes_commands() {
            inbox.command(Command::OpenChannel { link: self.link.id, ordered, reply });
        } else {
            drop(reply.send(Err(ChannelError::Busy)));
        }
        Opening { shared: Arc::clone(&self.shared), answer }
    }

    /// Waits for the next channel that the peer opened.
    ///
    /// # Errors
    /// [`WaitError::Timeout`] when none came within `timeout`; [`WaitError::Down`] when the link is
    /// [down](Self::down), [`WaitError::ShutDown`] or [`WaitError::Panicked`] when the endpoint has
    /// ended, so that none will come.
    pub fn accept_channel(&self, timeout: Duration) -> Result<ChannelHandle, WaitError> {
        let new = self.shared.receive(&self.link.channels, timeout).ok_or(WaitError::Timeout)?;
        self.accepted(new)
    }

    /// As [`accept_channel`](Self::accept_channel), for as long as it takes, as a future. One that
    /// is dropped has taken no channel.
    ///
    /// # Errors
    /// As [`accept_channel`](Self::accept_channel), but for the time.
    pub async fn accept_channel_async(&self) -> Result<ChannelHandle, WaitError> {
        let new = self.shared.receive_async(&self.link.channels).await;
        self.accepted(new)
    }

    fn accepted(&self, new: Result<OpenChannel, Closed>) -> Result<ChannelHandle, WaitError> {
        new.map(|new| ChannelHandle::new(&self.shared, new)).map_err(|_| self.end())
    }

    /// Why nothing more comes over the link.
    pub(crate) fn end(&self) -> WaitError {
        self.down().map_or_else(|| self.shared.end(), WaitError::Down)
    }

    /// The counters of the link; `None` when the link is gone.
    #[must_use]
    pub fn stats(&self) -> Option<LinkStats> {
        self.shared.wait_for(self.stats_async())
    }

    /// As [`stats`](Self::stats), as a future.
    pub async fn stats_async(&self) -> Option<LinkStats> {
        let link = self.link.id;
        self.shared.ask(|reply| Command::Stats { link, reply }).await.flatten()
    }

    /// Closes the link: messages that are under way are still sent, then the peer is told.
    pub fn close(&self) {
        self.link.close();
    }
}

impl std::fmt::Debug for LinkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkHandle").field("peer", &self.link.peer).finish_non_exhaustive()
    }
}

/// A channel that is being opened. If this is dropped before the channel opens, the channel is
/// closed.
pub struct Opening {
    shared: Arc<Shared>,
    answer: Receiver<Result<OpenChannel, ChannelError>>,
}

impl Opening {
    /// The channel, once the peer has answered; it is given out once.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn poll(&self) -> Result<Option<ChannelHandle>, ChannelError> {
        match self.answer.take() {
            Some(Ok(new)) => Ok(Some(ChannelHandle::new(&self.shared, new?))),
            Some(Err(Closed)) => Err(ChannelError::ShutDown),
            None => Ok(None),
        }
    }
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").finish_non_exhaustive()
    }
}
