//! Handles of endpoints, and what all handles of one endpoint share.

use crate::clock::Clock;
use crate::commands::{Command, NewLink};
use crate::doorbell::Doorbell;
use crate::engine::Engine;
use crate::limits::{BACKLOG_MAX, COMMANDS_MAX};
use crate::link::{LinkHandle, WaitError};
use crate::park;
use crate::queue::{Closed, Receiver, RecvTimeoutError, Sender, bounded};
use crate::worker::EndpointWorker;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use towpath_base::Time;
use towpath_memory::{Buf, Region};
use towpath_proto::Class;
use towpath_transport::for_handles::SendPools;
use towpath_transport::{
    AllocError, ConnectError, Endpoint, EndpointConfig, EndpointError, ListenError,
};
use towpath_verbs::Device;

/// What all handles of one endpoint share.
pub(crate) struct Shared {
    commands: crossbeam_channel::Sender<Command>,
    pub(crate) bell: Arc<Doorbell>,
    pub(crate) pools: SendPools,
    clock: Arc<Clock>,
    /// Where the handles drive the endpoint: it lives as long as they do.
    engine: OnceLock<Arc<Engine>>,
}

impl Shared {
    /// Sends a command without waiting, for the worker may be driven by whoever asks. One that
    /// nobody takes is dropped, and its answer with it. Bounded by who asks: a thread that waits
    /// for the answer asks for nothing else meanwhile, links are closed once, and for what nobody
    /// waits for see [`takes_commands`](Self::takes_commands).
    pub(crate) fn command(&self, command: Command) {
        match self.commands.send(command) {
            Ok(()) => self.bell.ring(),
            Err(refused) => refused.into_inner().refuse(),
        }
    }

    /// Waits for a future, for as long as it takes.
    pub(crate) fn wait_for<F: Future>(&self, future: F) -> F::Output {
        let output = self.bell.wait(None, future);
        output.unwrap_or_else(|| unreachable!("it ends with the future alone"))
    }

    /// Asks the worker, and is its answer; none where nobody gives one.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = bounded(1);
        self.command(command(reply));
        self.bell.attended(answer.recv_async()).await.ok()
    }

    pub(crate) fn alloc_timeout(&self, len: usize, patience: Duration) -> Result<Buf, AllocError> {
        let found = self.pools.take(len);
        if !matches!(found, Err(AllocError::AllOut { .. })) || patience.is_zero() {
            return found;
        }
        self.bell.wait(Some(patience), self.pools.taking(len)).unwrap_or(found)
    }

    pub(crate) fn copy_timeout(&self, bytes: &[u8], patience: Duration) -> Result<Buf, AllocError> {
        let mut buf = self.alloc_timeout(bytes.len(), patience)?;
        let copied = buf.extend(bytes);
        debug_assert!(copied.is_ok(), "a fresh buffer has room for what was asked for");
        Ok(buf)
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Whether one may ask for what may be asked for again before it is answered: not when too many
    /// commands wait.
    pub(crate) fn takes_commands(&self) -> bool {
        self.commands.len() < COMMANDS_MAX
    }
}

/// The last handle is gone: nobody will ask for anything any more.
impl Drop for Shared {
    fn drop(&mut self) {
        self.command(Command::Shutdown);
    }
}

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
    pub(crate) shared: Arc<Shared>,
    pub(crate) accepted: Receiver<NewLink>,
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
        let (ready, made) = bounded(1);
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
        let thread = std::thread::Builder::new().name("towpath-endpoint".into()).spawn(run);
        let thread = thread.map_err(EndpointError::Thread)?;
        let made = park::wait(None, pin!(made.recv_async())).unwrap_or(Err(Closed));
        let handle: Self = made.unwrap_or_else(|_| {
            Err(EndpointError::Thread(std::io::ErrorKind::Interrupted.into()))
        })?;
        *handle.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(handle)
    }

    /// Has the handles drive the endpoint.
    fn engine<D>(&self, mut worker: EndpointWorker<D>, spin: Duration) -> Arc<Engine>
    where
        D: Device<Memory = Region> + Send + 'static,
    {
        self.shared.clock.run(worker.endpoint().now());
        let files = worker.poll_fd().ok();
        let with = (&self.shared.bell, &self.shared.commands);
        let engine = Arc::new(Engine::new(Box::new(worker), files, with, spin));
        self.shared.bell.set_engine(&engine);
        Arc::clone(self.shared.engine.get_or_init(|| engine))
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
        let (commands, inbox) = crossbeam_channel::unbounded();
        let (accept, accepted) = bounded(BACKLOG_MAX);
        let endpoint = Endpoint::new(device, config.without_streams_unless_asked())?;
        let bell = Arc::new(Doorbell::new(Arc::clone(endpoint.bell())));
        let pools = endpoint.pools().clone();
        let clock = Arc::new(Clock::new(endpoint.now()));
        let of_worker = (Arc::clone(&bell), Arc::clone(&clock));
        let worker = EndpointWorker::new(endpoint, inbox, of_worker, accept);
        let shared = Arc::new(Shared { commands, bell, pools, clock, engine: OnceLock::new() });
        Ok((Self { shared, accepted, thread: Arc::default() }, worker))
    }

    /// Listens for peers on a TCP address; port 0 is any free one. Returns the address with its
    /// port; [`accept`](Self::accept) gives the links.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&self, addr: SocketAddr) -> Result<SocketAddr, ListenError> {
        self.shared.wait_for(self.listen_async(addr))
    }

    /// Connects to a peer that listens on a TCP address. Blocks until the link is up, at most
    /// [`EndpointConfig::connect_timeout`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&self, addr: SocketAddr) -> Result<LinkHandle, ConnectError> {
        self.shared.wait_for(self.connect_async(addr))
    }

    /// As [`connect`](Self::connect), with another class than [`EndpointConfig::class`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_as(&self, addr: SocketAddr, class: Class) -> Result<LinkHandle, ConnectError> {
        self.shared.wait_for(self.connect_as_async(addr, class))
    }

    /// Waits for the next link that a peer made.
    ///
    /// # Errors
    /// [`WaitError::Timeout`] when none came within `timeout`; [`WaitError::ShutDown`] or
    /// [`WaitError::Panicked`] when the endpoint has ended, so that none will come.
    pub fn accept(&self, timeout: Duration) -> Result<LinkHandle, WaitError> {
        let new =
            self.accepted.recv_timeout(&self.shared.bell, timeout).map_err(
                |error| match error {
                    RecvTimeoutError::Timeout => WaitError::Timeout,
                    RecvTimeoutError::Disconnected => WaitError::of_end(&self.shared),
                },
            )?;
        Ok(LinkHandle::new(&self.shared, new))
    }

    /// The device's clock now, for [deadlines](towpath_transport::SendOptions::deadline): as the
    /// worker last told it, carried on by the host's clock. Without a thread it is the time of the
    /// worker's last turn.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.now()
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

    /// Registers a region, so that buffers in it can be sent.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn register(&self, region: &Region) -> Result<(), EndpointError> {
        self.shared.wait_for(self.register_async(region))
    }

    /// Runs a future on this thread: what it waits for of this endpoint is driven meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.shared.wait_for(future)
    }

    /// Closes all links in order, ends the worker and waits for its thread, where it has one.
    pub fn shutdown(self) {
        self.shared.command(Command::Shutdown);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A worker that panicked has ended too.
            drop(thread.join());
        }
    }
}

impl std::fmt::Debug for EndpointHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointHandle").finish_non_exhaustive()
    }
}
