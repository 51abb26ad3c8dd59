//! The thread-safe face: a worker owns the endpoint, handles talk to it.
//!
//! | file | what it is |
//! |---|---|
//! | `worker`, `desk` | commands in, turns, events to whom they concern; a thread's loop |
//! | `clock` | the device's clock, for threads that have no device |
//! | `commands` | what handles ask the worker for |
//! | `doorbell`, `egress`, `outbound` | messages to the worker without a lock, and its side |
//! | `room` | waiting for room in the queue of a channel |
//! | `lane`, `ops` | one-sided operations, and the worker's side of them |
//! | `places` | numbers for what the worker waits for |
//! | `futures` | what handles wait for, as futures |
//! | `completions` | outcomes of many messages in one queue |
//! | `group` | several workers behind one listener |
//! | `reconnect` | a channel that is made anew when it breaks |
//! | `waiters`, `queue` | how threads and tasks wait, and what most of them wait for |
//! | `unseen` | refusals that nobody waits for, in the log |
//! | `wait` | for whichever comes first of several things |
//! | `link`, `channel`, `ticket` | handles of links and channels, and tickets of sends |

mod channel;
mod clock;
mod commands;
mod completions;
mod desk;
mod doorbell;
mod egress;
mod futures;
mod group;
mod lane;
mod link;
mod ops;
mod outbound;
mod places;
mod queue;
mod reconnect;
mod room;
mod ticket;
mod unseen;
mod wait;
mod waiters;
mod worker;

pub use channel::{ChannelHandle, Incoming, RecvError};
pub use completions::CompletionQueue;
pub use group::EndpointGroup;
pub use lane::{GrantChange, OpDone, OpTicket};
pub use link::{LinkHandle, Opening, WaitError};
pub use reconnect::{Fate, Reconnect, ReconnectError, Settled};
pub use ticket::{SentMessage, Ticket};
pub use wait::WaitSet;
pub use worker::EndpointWorker;

use crate::blacklist::Blacklist;
use crate::config::EndpointConfig;
use crate::endpoint::Endpoint;
use crate::error::{ConnectError, EndpointError, ListenError};
use crate::limits::COMMANDS_MAX;
use crate::park;
use crate::pools::{AllocError, SendPools};
use clock::Clock;
use commands::{Command, NewLink};
use doorbell::Doorbell;
use queue::{Receiver, RecvTimeoutError, Sender, bounded};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use towpath_base::Time;
use towpath_memory::{Buf, Region};
use towpath_proto::Class;
use towpath_verbs::Device;

/// What all handles of one endpoint share.
pub(crate) struct Shared {
    commands: crossbeam_channel::Sender<Command>,
    bell: Arc<Doorbell>,
    pools: SendPools,
    blacklist: Blacklist,
    clock: Arc<Clock>,
}

impl Shared {
    /// Sends a command without waiting, for the worker may be driven by whoever asks. One that
    /// nobody takes is dropped, and its answer with it. Bounded by who asks: a thread that waits
    /// for the answer asks for nothing else meanwhile, links are closed once, and for what nobody
    /// waits for see [`takes_commands`](Self::takes_commands).
    fn command(&self, command: Command) {
        match self.commands.send(command) {
            Ok(()) => self.bell.ring(),
            Err(refused) => refused.into_inner().refuse(),
        }
    }

    /// Asks the worker, and is its answer; none where nobody gives one.
    async fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = bounded(1);
        self.command(command(reply));
        answer.recv_async().await.ok()
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Whether one may ask for what may be asked for again before it is answered: not when too many
    /// commands wait.
    fn takes_commands(&self) -> bool {
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
    shared: Arc<Shared>,
    accepted: Receiver<NewLink>,
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
        D: Device<Memory = Region> + 'static,
        F: FnOnce() -> Result<D, EndpointError> + Send + 'static,
    {
        let (ready, made) = bounded(1);
        let run = move || match make_device().and_then(|device| Self::driven(device, config)) {
            // The caller waits for this; should it be gone, so is the worker's purpose.
            Ok((handle, worker)) => {
                if ready.send(Ok(handle)).is_ok() {
                    worker.run();
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name("towpath-endpoint".into()).spawn(run);
        let thread = thread.map_err(EndpointError::Thread)?;
        let handle: Self = made.recv().unwrap_or_else(|_| {
            Err(EndpointError::Thread(std::io::ErrorKind::Interrupted.into()))
        })?;
        *handle.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(handle)
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
        let (accept, accepted) = bounded(crate::limits::BACKLOG_MAX);
        let spin = config.timing.spin;
        let endpoint = Endpoint::new(device, config.without_streams_unless_asked())?;
        let bell = Arc::new(Doorbell::new(Arc::clone(endpoint.bell())));
        let (pools, blacklist) = (endpoint.pools().clone(), endpoint.blacklist().clone());
        let clock = Arc::new(Clock::new(endpoint.now()));
        let of_worker = (Arc::clone(&bell), Arc::clone(&clock));
        let worker = EndpointWorker::new(endpoint, inbox, of_worker, accept, spin);
        let shared = Arc::new(Shared { commands, bell, pools, blacklist, clock });
        Ok((Self { shared, accepted, thread: Arc::default() }, worker))
    }

    /// The peers with which the endpoint recently had trouble.
    #[must_use]
    pub fn blacklist(&self) -> &Blacklist {
        &self.shared.blacklist
    }

    /// Listens for peers on a TCP address; port 0 is any free one. Returns the address with its
    /// port; [`accept`](Self::accept) gives the links.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&self, addr: SocketAddr) -> Result<SocketAddr, ListenError> {
        park::on(self.listen_async(addr))
    }

    /// Connects to a peer that listens on a TCP address. Blocks until the link is up, at most
    /// [`EndpointConfig::connect_timeout`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&self, addr: SocketAddr) -> Result<LinkHandle, ConnectError> {
        park::on(self.connect_async(addr))
    }

    /// As [`connect`](Self::connect), with another class than [`EndpointConfig::class`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_as(&self, addr: SocketAddr, class: Class) -> Result<LinkHandle, ConnectError> {
        park::on(self.connect_as_async(addr, class))
    }

    /// Waits for the next link that a peer made.
    ///
    /// # Errors
    /// [`WaitError::Timeout`] when none came within `timeout`; [`WaitError::ShutDown`] or
    /// [`WaitError::Panicked`] when the endpoint has ended, so that none will come.
    pub fn accept(&self, timeout: Duration) -> Result<LinkHandle, WaitError> {
        let new = self.accepted.recv_timeout(timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => WaitError::Timeout,
            RecvTimeoutError::Disconnected => WaitError::of_end(&self.shared),
        })?;
        Ok(LinkHandle::new(&self.shared, new))
    }

    /// The device's clock now, for [deadlines](crate::SendOptions::deadline): as the worker last
    /// told it, carried on by the host's clock. Without a thread it is the time of the worker's
    /// last turn.
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
        self.shared.pools.take_timeout(len, patience)
    }

    /// As [`copy`](Self::copy), but waits for at most `patience` while all buffers are out.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn copy_timeout(&self, bytes: &[u8], patience: Duration) -> Result<Buf, AllocError> {
        self.shared.pools.copy_timeout(bytes, patience)
    }

    /// Registers a region, so that buffers in it can be sent.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn register(&self, region: &Region) -> Result<(), EndpointError> {
        park::on(self.register_async(region))
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
