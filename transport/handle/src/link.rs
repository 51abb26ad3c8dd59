//! Handles of links, and waiting for what comes over them.

use crate::channel::ChannelHandle;
use crate::commands::{Command, NewChannel, NewLink};
use crate::endpoint::Shared;
use crate::lane::Changes;
use crate::queue::{Receiver, RecvTimeoutError, TryRecvError, bounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use towpath_proto::{DownReason, LinkStats};
use towpath_transport::ChannelError;
use towpath_transport::{LinkId, Peer};

/// A link to a peer. Handles can be cloned and shared.
///
/// One side opens a channel ([`open_channel`](Self::open_channel)), the other side accepts it
/// ([`accept_channel`](Self::accept_channel)); both then send and receive on it.
#[derive(Clone)]
pub struct LinkHandle {
    shared: Arc<Shared>,
    id: LinkId,
    peer: Peer,
    channels: Receiver<NewChannel>,
    is_closing: Arc<AtomicBool>,
    down: Arc<OnceLock<DownReason>>,
    changes: Arc<Changes>,
}

impl LinkHandle {
    pub(super) fn new(shared: &Arc<Shared>, new: NewLink) -> Self {
        let NewLink { id, peer, channels, is_closing, down, changes, claim } = new;
        claim.settle();
        Self { shared: Arc::clone(shared), id, peer, channels, is_closing, down, changes }
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Why the link is down, when it is.
    #[must_use]
    pub fn down(&self) -> Option<DownReason> {
        self.down.get().copied()
    }

    /// Opens a channel. Blocks until the peer has answered.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn open_channel(&self, ordered: bool) -> Result<ChannelHandle, ChannelError> {
        self.shared.wait_for(self.open_channel_async(ordered))
    }

    /// Non-blocking version of [`open_channel`](Self::open_channel): it does not wait for the
    /// peer's answer. When 1,024 commands already wait for the worker it returns
    /// [`ChannelError::Busy`].
    #[must_use]
    pub fn begin_open(&self, ordered: bool) -> Opening {
        let (reply, answer) = bounded(1);
        if self.shared.takes_commands() {
            self.shared.command(Command::OpenChannel { link: self.id, ordered, reply });
        } else {
            // Its place is free: nothing was answered yet.
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
        let new = self
            .channels
            .recv_timeout(&self.shared.bell, timeout)
            .map_err(|error| self.wait_error(error))?;
        Ok(ChannelHandle::new(&self.shared, new))
    }

    pub(super) fn wait_error(&self, error: RecvTimeoutError) -> WaitError {
        match (error, self.down()) {
            (RecvTimeoutError::Timeout, _) => WaitError::Timeout,
            (RecvTimeoutError::Disconnected, Some(reason)) => WaitError::Down(reason),
            (RecvTimeoutError::Disconnected, None) => WaitError::of_end(&self.shared),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn id(&self) -> LinkId {
        self.id
    }

    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }

    pub(super) fn opened(&self) -> &Receiver<NewChannel> {
        &self.channels
    }

    /// The counters of the link; `None` when the link is gone.
    #[must_use]
    pub fn stats(&self) -> Option<LinkStats> {
        self.shared.wait_for(self.stats_async())
    }

    /// Closes the link: messages that are under way are still sent, then the peer is told.
    pub fn close(&self) {
        if !self.is_closing.swap(true, Ordering::Relaxed) {
            self.shared.command(Command::CloseLink { link: self.id });
        }
    }
}

impl std::fmt::Debug for LinkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkHandle").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// A channel that is being opened. If this is dropped before the channel opens, the channel is
/// closed.
pub struct Opening {
    shared: Arc<Shared>,
    answer: Receiver<Result<NewChannel, ChannelError>>,
}

impl Opening {
    /// The channel, once the peer has answered; it is given out once.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn poll(&self) -> Result<Option<ChannelHandle>, ChannelError> {
        match self.answer.try_recv() {
            Ok(new) => Ok(Some(ChannelHandle::new(&self.shared, new?))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ChannelError::ShutDown),
        }
    }
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").finish_non_exhaustive()
    }
}

/// Why nothing was accepted, or nothing has come of what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Nothing came in time; it may yet come.
    #[error("nothing came in time; wait again, or longer")]
    Timeout,
    /// The link is down: nothing will come over it any more.
    #[error("the link is down: {}; connect again", .0)]
    Down(DownReason),
    /// The endpoint has shut down: nothing will come any more.
    #[error("the endpoint has shut down; spawn another one")]
    ShutDown,
    /// The worker of the endpoint panicked: see standard error, or the log, for the reason.
    #[error("the endpoint's worker thread panicked; spawn another endpoint")]
    Panicked,
}

impl WaitError {
    /// What ended a wait, where it was not the time.
    pub(super) fn of_end(shared: &Shared) -> Self {
        if shared.bell.has_panicked() { Self::Panicked } else { Self::ShutDown }
    }
}
