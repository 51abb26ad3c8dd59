//! Several workers behind one listener, and the handles of all of them.

use super::commands::{Command, NewLink};
use super::queue::Receiver;
use super::waiters::Taking;
use super::{EndpointHandle, LinkHandle, WaitError};
use crate::config::EndpointConfig;
use crate::error::{ConnectError, EndpointError, ListenError};
use crate::park;
use crate::udp::roce_udp_group;
use crate::workers::{Placing, Workers};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use towpath_device_roce::udp::UdpConfig;
use towpath_memory::Region;
use towpath_verbs::Device;

/// Endpoints on a thread each, that are one to their peers: one address, one listener. A link and
/// its channels are one worker's; what one worker has to do costs the links of the others nothing
/// but the core, where they have the same.
#[derive(Debug)]
pub struct EndpointGroup {
    workers: Workers,
    handles: Vec<EndpointHandle>,
    /// Which of them is asked first for a link that was accepted.
    turn: AtomicUsize,
}

impl EndpointGroup {
    /// A worker for each device; all of them must have one address.
    ///
    /// # Errors
    /// [`EndpointError`]: of the first endpoint that could not be made.
    pub fn spawn<D>(
        devices: Vec<D>,
        config: &EndpointConfig,
        placing: Placing,
    ) -> Result<Self, EndpointError>
    where
        D: Device<Memory = Region> + Send + 'static,
    {
        let workers = Workers::new(devices.len(), placing, config.seed);
        let spawn = |(index, device)| {
            EndpointHandle::spawn(move || Ok(device), config.clone().of_worker(&workers, index))
        };
        let handles = devices.into_iter().enumerate().map(spawn).collect::<Result<_, _>>()?;
        Ok(Self { workers, handles, turn: AtomicUsize::new(0) })
    }

    /// `count` workers on the default device.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn spawn_udp(
        udp: UdpConfig,
        config: &EndpointConfig,
        count: usize,
        placing: Placing,
    ) -> Result<Self, EndpointError> {
        Self::spawn(roce_udp_group(udp, config, count)?, config, placing)
    }

    /// The handle of each worker.
    #[must_use]
    pub fn workers(&self) -> &[EndpointHandle] {
        &self.handles
    }

    /// How many links each worker has.
    pub fn links(&self) -> impl Iterator<Item = usize> {
        self.workers.links()
    }

    /// Listens for peers on a TCP address; port 0 is any free one. Returns the address with its
    /// port; [`accept`](Self::accept) gives the links of all workers.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&self, addr: SocketAddr) -> Result<SocketAddr, ListenError> {
        self.handles.first().ok_or(ListenError::ShutDown)?.listen(addr)
    }

    /// Connects the worker with the fewest links to a peer that listens on a TCP address. For
    /// another one ask [its handle](Self::workers). Blocks until the link is up.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&self, addr: SocketAddr) -> Result<LinkHandle, ConnectError> {
        let chosen = self.handles.get(self.workers.least_loaded());
        chosen.ok_or(ConnectError::ShutDown)?.connect(addr)
    }

    /// The next link that a peer connected to any worker.
    ///
    /// # Errors
    /// [`WaitError::Timeout`] when none came within `timeout`; [`WaitError::ShutDown`] when all
    /// workers have ended, so that none will come, and [`WaitError::Panicked`] when any of them
    /// ended so.
    pub fn accept(&self, timeout: Duration) -> Result<LinkHandle, WaitError> {
        park::within(timeout, self.accept_async()).unwrap_or(Err(WaitError::Timeout))
    }

    /// As [`accept`](Self::accept), for as long as it takes, as a future. One that is dropped has
    /// taken no link.
    ///
    /// # Errors
    /// As [`accept`](Self::accept), but for the time.
    pub async fn accept_async(&self) -> Result<LinkHandle, WaitError> {
        let mut waits: Vec<_> =
            self.handles.iter().map(|handle| (handle, handle.accepted.recv_async())).collect();
        // Each is the first to be asked in its turn.
        let count = waits.len().max(1);
        waits.rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % count);
        poll_fn(|cx| self.poll_accept(&mut waits, cx)).await
    }

    fn poll_accept(
        &self,
        waits: &mut Vec<(&EndpointHandle, Taking<&Receiver<NewLink>>)>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<LinkHandle, WaitError>> {
        let mut accepted = None;
        waits.retain_mut(|(handle, wait)| {
            if accepted.is_some() {
                return true;
            }
            match Pin::new(wait).poll(cx) {
                Poll::Ready(Ok(new)) => accepted = Some(LinkHandle::new(&handle.shared, new)),
                Poll::Ready(Err(_)) => return false,
                Poll::Pending => {}
            }
            true
        });
        match accepted {
            Some(link) => Poll::Ready(Ok(link)),
            None if waits.is_empty() => {
                let has_panicked = |handle: &EndpointHandle| handle.shared.bell.has_panicked();
                let is_panic = self.handles.iter().any(has_panicked);
                Poll::Ready(Err(if is_panic { WaitError::Panicked } else { WaitError::ShutDown }))
            }
            None => Poll::Pending,
        }
    }

    /// Closes all links in order, ends the workers and waits for them.
    pub fn shutdown(self) {
        // All are told first, so that none waits for another.
        for handle in &self.handles {
            handle.shared.command(Command::Shutdown);
        }
        self.handles.into_iter().for_each(EndpointHandle::shutdown);
    }
}
