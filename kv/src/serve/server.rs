//! Listeners and threads: how a server begins and ends.

use super::Dialogue;
use super::counters::Counters;
use super::worker::{Inbox, Worker};
use crate::limits::{BUFFERS_BYTES_DEFAULT, STALL_DEFAULT, WORKERS_MAX};
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use towpath_base::Nanos;
use towpath_clock::Clock;
use towpath_secure::front::Front as Tls;

/// A listener, and what is said on its connections.
pub struct Front {
    /// Where clients come.
    pub listener: TcpListener,
    /// Makes the dialogue of a connection.
    pub dialogue: Box<dyn Fn() -> Box<dyn Dialogue> + Send>,
    /// What a client is told for which there is no room; nothing over TLS.
    pub turned_away: &'static [u8],
    /// The certificate that its clients are shown, where it is over TLS.
    pub tls: Option<Tls>,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// How connections are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Threads that share the connections, 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Each connection has a thread of its own, as in the study, and `workers` is not looked at.
    pub worker_per_client: bool,
    /// They do not sleep: they ask again and again.
    pub polls: bool,
    /// Bytes that all connections together may hold: one half in equal shares, so that each has its
    /// own, and the other half whoever needs more.
    pub buffers_bytes_max: u64,
    /// How long a client may take, beside the time for its bytes.
    pub stall: Nanos,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            worker_per_client: false,
            polls: false,
            buffers_bytes_max: BUFFERS_BYTES_DEFAULT,
            stall: STALL_DEFAULT,
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// No thread, or too many.
    #[error("a server has 1 to {WORKERS_MAX} threads")]
    Workers,
    /// The system has no descriptor or thread for it.
    #[error("the system refused a descriptor or a thread: {0}")]
    System(#[from] io::Error),
}

/// A thread, and how it ended.
type Thread = JoinHandle<io::Result<()>>;

/// What all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: ServerConfig,
    pub(super) counters: Arc<Counters>,
    pub(super) is_stopped: AtomicBool,
    /// Bytes that each connection may hold, whatever others hold.
    share_bytes: u64,
    /// Bytes that all together may hold beyond that.
    pool_bytes: u64,
    /// Threads of one connection each, and what wakes them.
    own: Mutex<Vec<(Arc<Inbox>, Thread)>>,
}

impl Shared {
    /// Begins a thread that serves one connection, which is in its inbox, to its end.
    pub(super) fn serve_alone(&self, worker: Worker) -> io::Result<()> {
        let inbox = worker.inbox();
        let thread = thread::Builder::new().name("kv-own".into()).spawn(move || worker.run())?;
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.retain(|(_, thread)| !thread.is_finished());
        own.push((inbox, thread));
        Ok(())
    }

    /// A connection that held `before` bytes holds `after` now; whether it may. Within its share it
    /// always may; what is beyond that is of a pool that all draw from.
    pub(super) fn hold(&self, before: u64, after: u64) -> bool {
        let beyond = |bytes: u64| bytes.saturating_sub(self.share_bytes);
        let (before, after, buffers) = (beyond(before), beyond(after), &self.counters.buffers);
        if after <= before {
            // Most hold nothing, and ask no other processor's cache about it.
            if after < before {
                buffers.fetch_sub(before - after, Relaxed);
            }
            return true;
        }
        let more = after - before;
        buffers.fetch_add(more, Relaxed) + more <= self.pool_bytes
    }
}

/// A server that runs until it is dropped or stopped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    inboxes: Vec<Arc<Inbox>>,
    threads: Vec<Thread>,
}

impl Server {
    /// Starts to serve. Times are those of `clock`.
    ///
    /// # Errors
    /// [`ServerError`]
    pub fn start(
        fronts: Vec<Front>,
        config: ServerConfig,
        counters: Arc<Counters>,
        clock: &Clock,
    ) -> Result<Self, ServerError> {
        if !(1..=WORKERS_MAX).contains(&config.workers) {
            return Err(ServerError::Workers);
        }
        for front in &fronts {
            front.listener.set_nonblocking(true)?;
        }
        let (bytes_max, most) = (config.buffers_bytes_max, counters.connected_max().max(1));
        let share_bytes = bytes_max / 2 / most;
        let shared = Arc::new(Shared {
            config,
            counters,
            is_stopped: AtomicBool::new(false),
            share_bytes,
            pool_bytes: bytes_max - share_bytes * most,
            own: Mutex::default(),
        });
        let count = if config.worker_per_client { 1 } else { config.workers };
        let workers = (0..count).map(|_| Worker::new(Arc::clone(&shared), clock.clone()));
        let mut workers = workers.collect::<io::Result<Vec<_>>>()?;
        let inboxes: Vec<_> = workers.iter().map(Worker::inbox).collect();
        workers[0].accept_for(fronts, inboxes.clone())?;
        let mut server = Self { shared, inboxes, threads: Vec::new() };
        for (number, worker) in workers.into_iter().enumerate() {
            let name = format!("kv-{number}");
            let thread = thread::Builder::new().name(name).spawn(move || {
                let ended = worker.run();
                if let Err(error) = &ended {
                    tracing::error!(%error, "a thread that serves connections has ended");
                }
                ended
            })?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.shared.counters
    }

    /// Ends all connections and threads.
    ///
    /// # Errors
    /// A thread had failed.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.shared.is_stopped.store(true, Relaxed);
        self.inboxes.iter().for_each(|inbox| inbox.wake());
        let join = |thread: Thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        };
        let ended: Vec<_> = self.threads.drain(..).map(join).collect();
        // The one that accepts has ended: no more are begun.
        let own = &self.shared.own;
        let own = std::mem::take(&mut *own.lock().unwrap_or_else(PoisonError::into_inner));
        own.iter().for_each(|(inbox, _)| inbox.wake());
        let alone: Vec<_> = own.into_iter().map(|(_, thread)| join(thread)).collect();
        ended.into_iter().chain(alone).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`.
        let _ = self.end();
    }
}
