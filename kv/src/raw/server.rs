//! Threads that serve raw queue pairs: how they begin, sleep and end.

use super::RawKind;
use super::accept::{Acceptor, refuse};
use super::counters::{RawCounters, add};
use super::hello::Refusal;
use super::port::{Inbox, Joined, Port, PortError, Work};
use crate::execute::Service;
use crate::limits::{
    RAW_LOOK_EVERY, RAW_NAP, RAW_SLEEP_MAX, RAW_UNDER_WAY_DEFAULT, RAW_VALUE_BYTES_DEFAULT,
    UNDER_WAY_MAX, VALUE_BYTES_MAX, WORKERS_MAX,
};
use crate::serve::Counters;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use towpath_base::Nanos;
use towpath_clock::Clock;
use towpath_memory::Region;
use towpath_verbs::Device;

/// Why a device cannot be had.
pub type DeviceError = Box<dyn std::error::Error + Send + Sync>;

/// Makes a device: one for each thread that has its own.
pub type MakeDevice<D> = Box<dyn FnMut() -> Result<D, DeviceError> + Send>;

/// How raw queue pairs are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawConfig {
    /// By which service.
    pub kind: RawKind,
    /// Threads that share the clients, 1 to [`WORKERS_MAX`]. On RC and UC each has a device of its
    /// own; on UD they share the one queue pair.
    pub workers: usize,
    /// In place of those a thread for each client, as the study has it.
    pub worker_per_client: bool,
    /// Threads do not sleep: they ask again and again.
    pub polls: bool,
    /// The longest value that RC and UC carry; a datagram carries what fits its packet.
    pub value_bytes_max: usize,
    /// Requests that each client of RC and UC may have under way, 1 to [`UNDER_WAY_MAX`].
    pub under_way: u16,
}

impl RawConfig {
    /// One thread that sleeps, and the default bounds.
    #[must_use]
    pub fn new(kind: RawKind) -> Self {
        Self {
            kind,
            workers: 1,
            worker_per_client: false,
            polls: false,
            value_bytes_max: RAW_VALUE_BYTES_DEFAULT,
            under_way: RAW_UNDER_WAY_DEFAULT,
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RawError {
    /// A number is out of its bounds.
    #[error(
        "a server has 1 to {WORKERS_MAX} threads, values of at most {VALUE_BYTES_MAX} bytes, and \
         1 to {UNDER_WAY_MAX} requests of a client under way"
    )]
    Config,
    /// There is no device.
    #[error("no device can be had: {0}")]
    Device(#[source] DeviceError),
    /// The device cannot serve.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The system has no descriptor or thread for it.
    #[error("the system refused a descriptor or a thread: {0}")]
    System(#[from] io::Error),
}

/// A device, with what its threads need of it without its lock.
struct Place<D> {
    port: Mutex<Port<D>>,
    inbox: Arc<Inbox>,
    /// Of several threads: the files of the device and of its clients.
    files: Option<OwnedFd>,
}

/// What all threads share.
struct Shared {
    config: RawConfig,
    service: Service,
    counters: Arc<Counters>,
    raw: Arc<RawCounters>,
    is_stopped: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Those who begin threads: the starting one, then the one that accepts.
struct Crew<D> {
    shared: Arc<Shared>,
    make: MakeDevice<D>,
    clock: Clock,
    /// Those that are there whoever comes and goes.
    places: Vec<Arc<Place<D>>>,
    /// Of all that have threads, to end their waits.
    inboxes: Vec<Weak<Inbox>>,
    peers_max: usize,
    begun: u64,
}

/// A server that runs until it is dropped or stopped.
pub struct RawServer {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    waker: Waker,
}

impl fmt::Debug for RawServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawServer").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked is told of when the server stops.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RawServer {
    /// Starts to serve those who connect to `listener`. Times are those of `clock`.
    ///
    /// # Errors
    /// [`RawError`]
    pub fn start<D: Device<Memory = Region> + Send + 'static>(
        listener: TcpListener,
        make: MakeDevice<D>,
        config: RawConfig,
        (service, counters, clock): (&Service, &Arc<Counters>, &Clock),
    ) -> Result<Self, RawError> {
        let is_sound = (1..=WORKERS_MAX).contains(&config.workers)
            && config.value_bytes_max <= VALUE_BYTES_MAX
            && (1..=UNDER_WAY_MAX).contains(&usize::from(config.under_way));
        if !is_sound {
            return Err(RawError::Config);
        }
        let (counters, raw) = (Arc::clone(counters), Arc::<RawCounters>::default());
        let mut acceptor = Acceptor::new(listener, Arc::clone(&counters), Arc::clone(&raw))?;
        let peers_max = usize::try_from(counters.counted().connected_max).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            config,
            service: service.clone(),
            counters,
            raw,
            is_stopped: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        let mut server =
            Self { shared: Arc::clone(&shared), acceptor: None, waker: acceptor.waker() };
        let clock = clock.clone();
        let (places, inboxes) = (Vec::new(), Vec::new());
        let mut crew = Crew { shared, make, clock, places, inboxes, peers_max, begun: 0 };
        crew.begin()?;
        let run = move || {
            while !crew.shared.is_stopped.load(Relaxed) {
                let clock = crew.clock.clone();
                if let Err(error) = acceptor.turn(|| clock.now(), &mut |joined| crew.admit(joined))
                {
                    tracing::error!(%error, "no more clients are accepted");
                    break;
                }
            }
            crew.inboxes.iter().filter_map(Weak::upgrade).for_each(|inbox| inbox.wake());
        };
        server.acceptor = Some(thread::Builder::new().name("kv-raw-accept".into()).spawn(run)?);
        Ok(server)
    }

    /// What it counts of its queue pairs.
    #[must_use]
    pub fn counters(&self) -> &Arc<RawCounters> {
        &self.shared.raw
    }

    /// Ends all queue pairs and threads.
    ///
    /// # Errors
    /// A thread had panicked.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.shared.is_stopped.store(true, Relaxed);
        self.waker.wake_by_ref();
        let acceptor = self.acceptor.take().map_or(Ok(()), JoinHandle::join);
        let threads = std::mem::take(&mut *lock(&self.shared.threads));
        let ended: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
        let ended = ended.into_iter().chain([acceptor]).collect::<Result<Vec<_>, _>>();
        ended.map(|_| ()).map_err(|_| io::Error::other("a thread panicked"))
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`.
        let _ = self.end();
    }
}

impl<D: Device<Memory = Region> + Send + 'static> Crew<D> {
    /// The devices and threads that are there before anybody comes.
    fn begin(&mut self) -> Result<(), RawError> {
        let RawConfig { kind, workers, worker_per_client, .. } = self.shared.config;
        match (kind, worker_per_client) {
            (RawKind::Ud, true) => {
                let place = self.place(self.peers_max, true)?;
                self.places.push(place);
            }
            (RawKind::Ud, false) => {
                let place = self.place(self.peers_max, workers > 1)?;
                for _ in 0..workers {
                    self.thread(&place)?;
                }
                self.places.push(place);
            }
            (_, true) => {
                // Whether there can be one is to be known now, and not by the first client.
                (self.make)().map_err(RawError::Device)?;
            }
            (_, false) => {
                for _ in 0..workers {
                    let place = self.place(self.peers_max, false)?;
                    self.thread(&place)?;
                    self.places.push(place);
                }
            }
        }
        Ok(())
    }

    fn place(&mut self, peers_max: usize, is_shared: bool) -> Result<Arc<Place<D>>, RawError> {
        let device = (self.make)().map_err(RawError::Device)?;
        let counters = (&self.shared.counters, &self.shared.raw);
        let seed = RandomState::new().hash_one(self.begun);
        let config = &self.shared.config;
        let published = self.shared.service.store().published().map(|published| &**published);
        let mut port = Port::new(device, config, counters, published, (peers_max, seed))?;
        let inbox = Arc::clone(&port.doors.inbox);
        let files = match is_shared {
            true => {
                let files = epoll::create(CreateFlags::CLOEXEC).map_err(io::Error::from)?;
                let data = EventData::new_u64(0);
                let added = epoll::add(&files, port.doors.file(), data, EventFlags::IN);
                added.map_err(io::Error::from)?;
                port.device.add_to_epoll(files.as_raw_fd()).then_some(files)
            }
            false => {
                let file = port.doors.file().as_raw_fd();
                // Where it cannot, clients come and go at the end of each sleep.
                let _ = port.device.watch_file(file);
                None
            }
        };
        self.inboxes.retain(|inbox| inbox.strong_count() > 0);
        self.inboxes.push(Arc::downgrade(&inbox));
        Ok(Arc::new(Place { port: Mutex::new(port), inbox, files }))
    }

    fn thread(&mut self, place: &Arc<Place<D>>) -> io::Result<()> {
        lock(&place.port).threads += 1;
        let (place, shared) = (Arc::clone(place), Arc::clone(&self.shared));
        let clock = self.clock.clone();
        let name = format!("kv-raw-{}", self.begun);
        self.begun += 1;
        let thread =
            thread::Builder::new().name(name).spawn(move || shared.serve(&place, &clock))?;
        let mut threads = lock(&self.shared.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Gives a client to the thread that has the fewest, or to one of its own.
    fn admit(&mut self, joined: Joined) {
        let RawConfig { kind, worker_per_client, .. } = self.shared.config;
        if !worker_per_client {
            if let Some(place) = self.places.iter().min_by_key(|place| place.inbox.load()) {
                place.inbox.put(joined);
            }
            return;
        }
        // A device of a client's own goes with the thread that it gets.
        let place = match self.places.first() {
            Some(place) if kind == RawKind::Ud => Ok(Arc::clone(place)),
            _ => self.place(1, false),
        };
        match place {
            Ok(place) => {
                place.inbox.put(joined);
                if let Err(error) = self.thread(&place) {
                    tracing::warn!(%error, "a client has no thread of its own");
                    lock(&place.port).threads -= 1;
                    // Unless a thread of another client has taken it in.
                    for joined in place.inbox.take() {
                        place.inbox.left();
                        self.turn_away(&joined);
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a client cannot be served");
                self.turn_away(&joined);
            }
        }
    }

    fn turn_away(&self, joined: &Joined) {
        refuse(&joined.stream, Refusal::NoRoom);
        add(&self.shared.raw.refused, 1);
        self.shared.counters.disconnect();
    }
}

impl Shared {
    /// One thread, until the server stops, or the client that it was begun for has gone.
    fn serve<D: Device<Memory = Region>>(&self, place: &Place<D>, clock: &Clock) {
        let mut work = Work::default();
        let (mut looked, mut was_woken) = (clock.now(), true);
        while !self.is_stopped.load(Relaxed) {
            let mut port = lock(&place.port);
            let has_moved = port.gather(&mut work);
            let now = clock.now();
            // Woken for no message, or long busy: somebody may have come or gone.
            if (was_woken && !has_moved) || now.since(looked) >= RAW_LOOK_EVERY {
                looked = now;
                port.look(&mut work);
                // One that has taken requests in answers them first.
                if work.is_empty() && self.config.worker_per_client && port.has_surplus() {
                    port.threads -= 1;
                    return;
                }
            }
            was_woken = false;
            if !work.is_empty() {
                drop(port);
                work.answer(&self.service, (&self.counters, &self.raw), now);
                lock(&place.port).reply(&mut work);
            } else if !has_moved && (!self.config.polls || port.is_idle()) {
                self.sleep(port, place);
                was_woken = true;
            }
        }
    }

    /// Sleeps until a message comes, or somebody comes or goes.
    fn sleep<D: Device<Memory = Region>>(
        &self,
        mut port: MutexGuard<'_, Port<D>>,
        place: &Place<D>,
    ) {
        let span = if self.is_alone() { RAW_SLEEP_MAX } else { Nanos::ZERO };
        if port.device.wait(span) {
            return add(&self.raw.wakes, 1);
        }
        let left = port.device.next_timeout().since(port.device.now());
        let can_wake = port.device.waker().is_some();
        drop(port);
        match &place.files {
            Some(files) => {
                let mut events: Vec<Event> = Vec::with_capacity(1);
                let buffer = rustix::buffer::spare_capacity(&mut events);
                let timeout = Timespec::try_from(Duration::from(left.min(RAW_SLEEP_MAX))).ok();
                // A signal ends it as well, and does no harm.
                let _ = epoll::wait(files, buffer, timeout.as_ref());
                add(&self.raw.wakes, u64::from(!events.is_empty()));
            }
            None if self.is_alone() && can_wake => {}
            None => thread::sleep(RAW_NAP.into()),
        }
    }

    /// Whether each thread has a device of its own.
    fn is_alone(&self) -> bool {
        let RawConfig { kind, workers, worker_per_client, .. } = self.config;
        kind != RawKind::Ud || (workers == 1 && !worker_per_client)
    }
}
