//! What handles wait for, as futures: made of wakers alone, so that any executor runs them.
//!
//! Each of these waits in the same way as the call of the same name that blocks; they mix. A future
//! that is dropped waits no longer, and takes nothing with it but what its own words say.

use crate::channel::{ChannelHandle, Incoming, RecvError};
use crate::commands::{Command, NewLink};
use crate::completions::CompletionQueue;
use crate::egress::{Outgoing, Reply};
use crate::endpoint::{EndpointHandle, Shared};
use crate::link::{LinkHandle, WaitError};
use crate::queue::{RecvTimeoutError, bounded};
use crate::room::Posting;
use crate::ticket::{SentMessage, Ticket};
use std::io;
use std::net::SocketAddr;
use towpath_memory::{Buf, Region};
use towpath_proto::{Class, LinkStats};
use towpath_transport::AllocError;
use towpath_transport::{ChannelError, ConnectError, EndpointError, ListenError};
use towpath_transport::{Payload, Rejected, SendOptions};
use towpath_wake::Taking;

impl EndpointHandle {
    /// As [`listen`](Self::listen), as a future. Once polled it listens even if it is dropped.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn listen_async(&self, addr: SocketAddr) -> Result<SocketAddr, ListenError> {
        let asked = self.shared.ask(|reply| Command::Listen { addr, reply }).await;
        asked.unwrap_or(Err(ListenError::ShutDown))
    }

    /// As [`connect`](Self::connect), as a future. If it is dropped, the link is closed as soon as
    /// it is up.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect_async(&self, addr: SocketAddr) -> Result<LinkHandle, ConnectError> {
        self.connect_to(addr, None).await
    }

    /// As [`connect_as`](Self::connect_as), as a future; see
    /// [`connect_async`](Self::connect_async).
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect_as_async(
        &self,
        addr: SocketAddr,
        class: Class,
    ) -> Result<LinkHandle, ConnectError> {
        self.connect_to(addr, Some(class)).await
    }

    async fn connect_to(
        &self,
        addr: SocketAddr,
        class: Option<Class>,
    ) -> Result<LinkHandle, ConnectError> {
        let asked = self.shared.ask(|reply| Command::Connect { addr, class, reply }).await;
        Ok(LinkHandle::new(&self.shared, asked.unwrap_or(Err(ConnectError::ShutDown))?))
    }

    /// As [`accept`](Self::accept), for as long as it takes, as a future. One that is dropped has
    /// taken no link.
    ///
    /// # Errors
    /// As [`accept`](Self::accept), but for the time.
    pub async fn accept_async(&self) -> Result<LinkHandle, WaitError> {
        let new: NewLink = self
            .shared
            .bell
            .attended(self.accepted.recv_async())
            .await
            .map_err(|_| WaitError::of_end(&self.shared))?;
        Ok(LinkHandle::new(&self.shared, new))
    }

    /// As [`alloc`](Self::alloc), but waits while all buffers are out, as a future.
    ///
    /// # Errors
    /// [`AllocError::TooLong`].
    pub async fn alloc_async(&self, len: usize) -> Result<Buf, AllocError> {
        self.shared.bell.attended(self.shared.pools.taking(len)).await
    }

    /// As [`copy`](Self::copy), but waits while all buffers are out, as a future.
    ///
    /// # Errors
    /// [`AllocError::TooLong`].
    pub async fn copy_async(&self, bytes: &[u8]) -> Result<Buf, AllocError> {
        self.shared.bell.attended(self.shared.pools.copying(bytes)).await
    }

    /// As [`register`](Self::register), as a future. Once polled it registers even if it is
    /// dropped.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub async fn register_async(&self, region: &Region) -> Result<(), EndpointError> {
        let region = region.clone();
        let asked = self.shared.ask(|reply| Command::Register { region, reply }).await;
        let gone = || EndpointError::Thread(io::ErrorKind::BrokenPipe.into());
        asked.unwrap_or_else(|| Err(gone()))
    }
}

impl LinkHandle {
    /// As [`open_channel`](Self::open_channel), as a future. If it is dropped, the channel is
    /// closed as soon as it is open.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub async fn open_channel_async(&self, ordered: bool) -> Result<ChannelHandle, ChannelError> {
        let link = self.id();
        let ask = |reply| Command::OpenChannel { link, ordered, reply };
        let asked = self.shared().ask(ask).await;
        Ok(ChannelHandle::new(self.shared(), asked.unwrap_or(Err(ChannelError::ShutDown))?))
    }

    /// As [`accept_channel`](Self::accept_channel), for as long as it takes, as a future. One that
    /// is dropped has taken no channel.
    ///
    /// # Errors
    /// As [`accept_channel`](Self::accept_channel), but for the time.
    pub async fn accept_channel_async(&self) -> Result<ChannelHandle, WaitError> {
        let new = self.shared().bell.attended(self.opened().recv_async()).await;
        let new = new.map_err(|_| self.wait_error(RecvTimeoutError::Disconnected))?;
        Ok(ChannelHandle::new(self.shared(), new))
    }

    /// As [`stats`](Self::stats), as a future.
    pub async fn stats_async(&self) -> Option<LinkStats> {
        let link = self.id();
        self.shared().ask(|reply| Command::Stats { link, reply }).await.flatten()
    }
}

impl ChannelHandle {
    /// As [`alloc`](Self::alloc), but waits while all buffers are out, as a future.
    ///
    /// # Errors
    /// [`AllocError::TooLong`].
    pub async fn alloc_async(&self, len: usize) -> Result<Buf, AllocError> {
        self.shared().bell.attended(self.shared().pools.taking(len)).await
    }

    /// As [`copy`](Self::copy), but waits while all buffers are out, as a future.
    ///
    /// # Errors
    /// [`AllocError::TooLong`].
    pub async fn copy_async(&self, bytes: &[u8]) -> Result<Buf, AllocError> {
        self.shared().bell.attended(self.shared().pools.copying(bytes)).await
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
        let (reply, answer) = bounded(1);
        let (ticket, number) = self.ticket(answer, options.token);
        let message =
            Outgoing { payload: payload.into(), options, reply: Reply::Ticket(reply, number) };
        let shared: &Shared = self.shared();
        let posted = shared.bell.attended(Posting::new(self.egress(), &shared.bell, message)).await;
        match posted {
            Ok(()) => ticket.settle(),
            Err((Outgoing { payload, .. }, refusal)) => {
                Err(Rejected { payload, error: self.error(refusal) })
            }
        }
    }

    /// Waits for room in the queue of the channel, as a future: then [`post`](Self::post) and
    /// [`try_send`](Self::try_send) are not refused for want of it, unless another was faster.
    pub async fn writable_async(&self) {
        self.shared().bell.attended(Taking::new(self.room())).await;
    }

    /// As [`recv`](Self::recv), for as long as it takes, as a future. One that is dropped has taken
    /// nothing: what arrived stays for the next one.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but for the time.
    pub async fn recv_async(&self) -> Result<Incoming, RecvError> {
        self.shared().bell.attended(self.incoming().recv_async()).await.map_err(|_| self.recv_end())
    }
}

impl CompletionQueue {
    /// As [`wait`](Self::wait), for as long as it takes, as a future. One that is dropped has taken
    /// nothing.
    ///
    /// # Errors
    /// [`Rejected`] with the message: it was not taken.
    pub async fn wait_async(&self) -> Result<SentMessage, Rejected> {
        match self.attended(self.outcomes().recv_async()).await {
            Ok(outcome) => {
                self.free_place();
                outcome
            }
            // The queue holds an end of its own.
            Err(_) => std::future::pending().await,
        }
    }
}
