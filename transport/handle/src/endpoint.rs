//! Handles of endpoints.

use crate::clock::Clock;
use crate::engine::Engine;
use crate::inbox::{Command, Inbox, OpenLink};
use crate::link::LinkHandle;
use crate::queue::{Receiver, queue};
use crate::shared::{Shared, WaitError};
use crate::worker::EndpointWorker;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use towpath_base::Time;
use towpath_memory::{Buf, Region};
use towpath_proto::wire::Hello;
use towpath_proto::{Class, Side};
use towpath_transport::{AllocError, ConnectError, Endpoint, EndpointConfig, EndpointError};
use towpath_transport::{LinkError, ListenError, PendingLink};
use towpath_verbs::Device;

/// An endpoint that runs on a worker thread of its own. Handles can be cloned and shared.
///
/// [`listen`](Self::listen) and [`accept`](Self::accept) get links from peers;
/// [`connect`](Self::connect) makes a link to a peer. Messages are sent and received on the
/// channels of a [`LinkHandle`].
///
/// The worker polls while there is work. After [`EndpointConfig::spin`] without work it blocks
/// until something arrives, a timer is due, or a message is posted. When the last handle of the
/// endpoint, its links and its channels has been dropped, the worker closes the links and ends.
#[derive(Clone)]
pub struct EndpointHandle {
    shared: Arc<Shared>,
    accepted: Arc<Receiver<OpenLink>>,
    /// The worker's own, where it has one.
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl EndpointHandle {
    /// Starts a worker thread, which calls `make_device` and runs an endpoint on that device.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn spawn<D, F>(make_device: F, config: EndpointConfig) -> Result<Self, EndpointError>
    where
        D: Device<Memory = Region> + Send + 'static,
        F: FnOnce() -> Result<D, EndpointError> + Send + 'static,
    {
        let (ready, made) = mpsc::sync_channel(1);
        let spin = config.spin_span().into();
        let run = move || match make_device().and_then(|device| Self::driven(device, config)) {
            // The caller waits for this; should it be gone, so is the endpoint's purpose.
            Ok((handle, worker)) => {
                let engine = handle.engine(worker, spin);
                if ready.send(Ok(handle)).is_ok() {
                    engine.keep();
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        let thread = thread::Builder::new().name("towpath-endpoint".into()).spawn(run);
        let thread = thread.map_err(EndpointError::Thread)?;
        let panicked = |_| Err(EndpointError::Thread(io::ErrorKind::Interrupted.into()));
        let handle: Self = made.recv().unwrap_or_else(panicked)?;
        *handle.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(handle)
    }

    /// Has the handles drive the endpoint.
    fn engine<D>(&self, mut worker: EndpointWorker<D>, spin: Duration) -> Arc<Engine>
    where
        D: Device<Memory = Region> + Send + 'static,
    {
        let Shared { inbox, clock, engine, .. } = &*self.shared;
        clock.run(worker.endpoint.now());
        let files = worker.endpoint.poll_fd().ok();
        let made = Arc::new(Engine::new(Box::new(worker), files, inbox, spin));
        let driver: Weak<Engine> = Arc::downgrade(&made);
        inbox.set_driver(driver);
        Arc::clone(engine.get_or_init(|| made))
    }

    /// Makes an endpoint on `device` without a thread: the caller drives the returned worker. Calls
    /// that block until the worker has answered, such as [`connect`](Self::connect), must then come
    /// from another thread.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn driven<D>(
        device: D,
        config: EndpointConfig,
    ) -> Result<(Self, EndpointWorker<D>), EndpointError>
    where
        D: Device<Memory = Region>,
    {
        let (accept, accepted) = queue();
        let endpoint = Endpoint::new(device, config.without_streams_unless_asked())?;
        let inbox = Arc::new(Inbox::new(Arc::clone(endpoint.bell())));
        let pools = endpoint.pools().clone();
        let clock = Arc::new(Clock::new(endpoint.now()));
        let with = (Arc::clone(&inbox), Arc::clone(&clock));
        let worker = EndpointWorker::new(endpoint, with, accept);
        let shared = Arc::new(Shared { inbox, pools, clock, engine: OnceLock::new() });
        Ok((Self { shared, accepted: Arc::new(accepted), thread: Arc::default() }, worker))
    }

    /// Listens for peers on a TCP address; port 0 is any free one. Returns the address with its
    /// port; [`accept`](Self::accept) gives the links.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&self, addr: SocketAddr) -> Result<SocketAddr, ListenError> {
        self.shared.wait_for(self.listen_async(addr))
    }

    /// As [`listen`](Self::listen), as a future. Once polled it listens even if it is dropped.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn listen_async(&self, addr: SocketAddr) -> Result<SocketAddr, ListenError> {
        let asked = self.shared.ask(|reply| Command::Listen { addr, reply }).await;
        asked.unwrap_or(Err(ListenError::ShutDown))
    }

    /// Connects to a peer that listens on a TCP address. Blocks until the link is up, at most
    /// [`EndpointConfig::connect_timeout`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&self, addr: SocketAddr) -> Result<LinkHandle, ConnectError> {
        self.shared.wait_for(self.connect_async(addr))
    }

    /// As [`connect`](Self::connect), as a future. If it is dropped, the link is closed as soon as
    /// it is up.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect_async(&self, addr: SocketAddr) -> Result<LinkHandle, ConnectError> {
        self.connect_to(addr, None).await
    }

    /// As [`connect`](Self::connect), with another class than [`EndpointConfig::class`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_as(&self, addr: SocketAddr, class: Class) -> Result<LinkHandle, ConnectError> {
        self.shared.wait_for(self.connect_as_async(addr, class))
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

    /// Waits for the next link that a peer made.
    ///
    /// # Errors
    /// [`WaitError::Timeout`] when none came within `timeout`; [`WaitError::ShutDown`] or
    /// [`WaitError::Panicked`] when the endpoint has ended, so that none will come.
    pub fn accept(&self, timeout: Duration) -> Result<LinkHandle, WaitError> {
        let new = self.shared.receive(&self.accepted, timeout).ok_or(WaitError::Timeout)?;
        new.map(|new| LinkHandle::new(&self.shared, new)).map_err(|_| self.shared.end())
    }

    /// As [`accept`](Self::accept), for as long as it takes, as a future. One that is dropped has
    /// taken no link.
    ///
    /// # Errors
    /// As [`accept`](Self::accept), but for the time.
    pub async fn accept_async(&self) -> Result<LinkHandle, WaitError> {
        let new = self.shared.receive_async(&self.accepted).await;
        new.map(|new| LinkHandle::new(&self.shared, new)).map_err(|_| self.shared.end())
    }

    /// The device's clock now, for [deadlines](towpath_transport::SendOptions::deadline): as the
    /// worker last told it, carried on by the host's clock. Without a thread it is the time of the
    /// worker's last turn.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// An empty buffer for at least `len` bytes, from the smallest send pool that has one.
    ///
    /// # Errors
    /// [`AllocError`]: no buffer is so long, or all that are long enough are out now.
    pub fn alloc(&self, len: usize) -> Result<Buf, AllocError> {
        self.shared.pools.take(len)
    }

    /// A buffer with a copy of `bytes`.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
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

    /// Registers a region, so that buffers in it can be sent.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn register(&self, region: &Region) -> Result<(), EndpointError> {
        self.shared.wait_for(self.register_async(region))
    }

    /// As [`register`](Self::register), as a future. Once polled it registers even if it is
    /// dropped.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub async fn register_async(&self, region: &Region) -> Result<(), EndpointError> {
        let region = region.clone();
        let asked = self.shared.ask(|reply| Command::Register { region, reply }).await;
        let gone = || Err(EndpointError::Thread(io::ErrorKind::BrokenPipe.into()));
        asked.unwrap_or_else(gone)
    }

    /// Runs a future on this thread: what it waits for of this endpoint is driven meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.shared.wait_for(future)
    }

    /// Closes all links in order, ends the worker and waits for its thread, where it has one.
    pub fn shutdown(self) {
        self.shared.inbox.command(Command::Shutdown);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A worker that panicked has ended too.
            drop(thread.join());
        }
    }
}

impl<D: Device<Memory = Region>> EndpointWorker<D> {
    /// Joins our half with the peer's, for a handle of this worker; see [`Endpoint::establish`].
    ///
    /// # Errors
    /// [`LinkError`]; our half is withdrawn.
    pub fn establish(
        &mut self,
        handle: &EndpointHandle,
        half: PendingLink,
        peer: &Hello,
        side: Side,
    ) -> Result<LinkHandle, LinkError> {
        let id = self.endpoint.establish(half, peer, side)?;
        let peer = self.endpoint.peer(id).ok_or(LinkError::NotPending)?;
        Ok(LinkHandle::new(&handle.shared, self.desk.add_link(id, peer)))
    }
}

impl std::fmt::Debug for EndpointHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointHandle").finish_non_exhaustive()
    }
}
