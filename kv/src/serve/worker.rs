//! One thread: it waits for its connections and serves those that have something.

use super::connection::{Connection, End, Scratch};
use super::counters::add;
use super::server::{Front, Shared};
use crate::limits::{
    ACCEPT_PAUSE, ACCEPTS_MAX, EVENTS_MAX, READ_BYTES, SLOW_CHECK_EVERY, TURNED_AWAY_MAX,
    UNSENT_BYTES_MAX,
};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use slab::Slab;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use towpath_base::{Nanos, Time};
use towpath_clock::Clock;
use towpath_secure::front::Place;
use towpath_wake::Bell;

/// Token of the bell; connections have their place, and listeners count down from before it.
const BELL: u64 = u64::MAX;

/// Connections that were accepted for a worker, and what wakes it.
#[derive(Debug)]
pub(super) struct Inbox {
    /// None once the worker has ended.
    arrived: Mutex<Option<Vec<Connection>>>,
    waker: Waker,
}

impl Inbox {
    fn arrived(&self) -> MutexGuard<'_, Option<Vec<Connection>>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a connection over; gives it back where the worker has ended and nobody would serve it.
    fn put(&self, connection: Connection) -> Option<Connection> {
        match &mut *self.arrived() {
            Some(arrived) => arrived.push(connection),
            None => return Some(connection),
        }
        self.waker.wake_by_ref();
        None
    }

    fn take(&self) -> Vec<Connection> {
        self.arrived().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Ends a wait.
    pub(super) fn wake(&self) {
        self.waker.wake_by_ref();
    }
}

/// A thread's part of a server.
pub(super) struct Worker {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    bell: Bell,
    inbox: Arc<Inbox>,
    connections: Slab<Connection>,
    /// Connections that were served and not yet flushed, and whether each was sending before.
    served: Vec<(usize, bool)>,
    unsent_bytes: usize,
    /// Requests that were answered and not yet counted.
    answered: u64,
    scratch: Scratch,
    clock: Clock,
    accepts: Option<Accepts>,
    /// It ends with its one connection.
    is_alone: bool,
    /// Connections that are told that there are too many.
    turned_away: usize,
}

/// What the worker that accepts has more.
struct Accepts {
    fronts: Vec<Front>,
    turns: Turns,
    /// Until when it does not, because the system had no descriptor.
    paused_until: Option<Time>,
}

/// Which worker gets the next connection.
struct Turns {
    inboxes: Vec<Arc<Inbox>>,
    next: usize,
}

impl Turns {
    /// Hands a connection to the next worker that has not ended; gives it back where all have.
    fn put(&mut self, connection: Connection) -> Option<Connection> {
        let mut left = connection;
        for _ in 0..self.inboxes.len() {
            let inbox = &self.inboxes[self.next];
            self.next = (self.next + 1) % self.inboxes.len();
            left = inbox.put(left)?;
        }
        Some(left)
    }
}

impl Drop for Worker {
    /// Also after a panic: nobody waits for a worker that has ended.
    fn drop(&mut self) {
        let arrived = self.inbox.arrived().take().unwrap_or_default();
        let own = std::mem::take(&mut self.connections);
        let left = own.into_iter().map(|(_, connection)| connection).chain(arrived);
        for connection in left.filter(|connection| connection.is_counted) {
            self.shared.hold(connection.counted_bytes, 0);
            self.shared.counters.disconnect();
        }
    }
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, clock: Clock) -> io::Result<Self> {
        let bell = Bell::new()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let inbox = Arc::new(Inbox { arrived: Mutex::new(Some(Vec::new())), waker: bell.waker() });
        let scratch = Scratch { input: vec![0; READ_BYTES].into(), outputs: Vec::new() };
        Ok(Self {
            shared,
            epoll,
            bell,
            inbox,
            connections: Slab::new(),
            served: Vec::new(),
            unsent_bytes: 0,
            answered: 0,
            scratch,
            clock,
            accepts: None,
            is_alone: false,
            turned_away: 0,
        })
    }

    /// A thread's part that serves this connection alone.
    fn alone(shared: Arc<Shared>, clock: Clock, connection: Connection) -> io::Result<Self> {
        let mut made = Self::new(shared, clock)?;
        made.is_alone = true;
        made.enter(connection);
        Ok(made)
    }

    pub(super) fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    /// Has this worker accept connections, for all in turn.
    pub(super) fn accept_for(
        &mut self,
        fronts: Vec<Front>,
        inboxes: Vec<Arc<Inbox>>,
    ) -> io::Result<()> {
        self.accepts =
            Some(Accepts { fronts, turns: Turns { inboxes, next: 0 }, paused_until: None });
        self.listen(true)
    }

    fn listen(&self, first: bool) -> io::Result<()> {
        let fronts = self.accepts.iter().flat_map(|accepts| &accepts.fronts);
        for (front, token) in fronts.zip((0..BELL).rev()) {
            let data = EventData::new_u64(token);
            match first {
                true => epoll::add(&self.epoll, &front.listener, data, EventFlags::IN)?,
                false => epoll::modify(&self.epoll, &front.listener, data, EventFlags::IN)?,
            }
        }
        Ok(())
    }

    /// Serves until the server is to stop.
    ///
    /// # Errors
    /// The system refuses to say what has something new.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut checked = self.clock.now();
        while !self.shared.is_stopped.load(Relaxed) {
            events.clear();
            let timeout = self.timeout();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.handle(*event);
            }
            self.flush();
            let now = self.clock.now();
            add(&self.shared.counters.requests, std::mem::take(&mut self.answered));
            // Their places may be those of connections that an event above was for.
            for connection in self.inbox.take() {
                self.enter(connection);
            }
            if self.is_alone && self.connections.is_empty() {
                return Ok(());
            }
            if now.since(checked) >= SLOW_CHECK_EVERY {
                checked = now;
                self.close_slow(now);
            }
            self.accept_again(now)?;
        }
        Ok(())
    }

    /// How long to wait: never without end, for a client may turn out slow, and nothing that goes
    /// wrong with a wake-up lasts longer. A thread that polls sleeps while it has no connection.
    fn timeout(&self) -> Option<Timespec> {
        let paused = self.accepts.as_ref().is_some_and(|accepts| accepts.paused_until.is_some());
        let span = match () {
            () if self.shared.config.polls && !self.connections.is_empty() => Nanos::ZERO,
            () if paused => ACCEPT_PAUSE,
            () => SLOW_CHECK_EVERY,
        };
        Timespec::try_from(std::time::Duration::from(span)).ok()
    }

    fn handle(&mut self, event: Event) {
        match event.data.u64() {
            BELL => drop(self.bell.clear()),
            token
                if let Ok(place) = usize::try_from(token)
                    && self.connections.contains(place) =>
            {
                self.serve(place, event.flags);
            }
            token => self.accept((BELL - 1 - token) as usize),
        }
    }

    /// Takes in what a connection has, and notes it as one to flush.
    fn serve(&mut self, place: usize, flags: EventFlags) {
        let connection = &mut self.connections[place];
        let is_sending = connection.is_sending();
        let served = match is_sending {
            true if flags.intersects(EventFlags::ERR | EventFlags::HUP) => Err(End::Closed),
            true => Ok(()),
            false => connection.receive(&mut self.scratch, &self.clock),
        };
        match served {
            Ok(()) => {
                self.unsent_bytes += connection.unsent_bytes();
                self.served.push((place, is_sending));
                if self.unsent_bytes > UNSENT_BYTES_MAX {
                    self.flush();
                }
            }
            Err(_) => self.close(place),
        }
    }

    /// Sends the replies of all connections that were served. Their clients are woken when all is
    /// carried out, and not one by one while it is: they then find many replies at a time.
    fn flush(&mut self) {
        self.unsent_bytes = 0;
        let mut served = std::mem::take(&mut self.served);
        for (place, was_sending) in served.drain(..) {
            self.flush_one(place, was_sending);
        }
        self.served = served;
    }

    fn flush_one(&mut self, place: usize, was_sending: bool) {
        let connection = &mut self.connections[place];
        let counters = &self.shared.counters;
        // Before the client hears of it, unless what has no meaning waited for replies to be sent.
        if connection.take_malformed() {
            add(&counters.malformed, 1);
        }
        let flushed = connection.flush(&mut self.scratch, &self.clock);
        if connection.take_malformed() {
            add(&counters.malformed, 1);
        }
        self.answered += std::mem::take(&mut connection.answered);
        let held = connection.held_bytes();
        let fits = self.shared.hold(std::mem::replace(&mut connection.counted_bytes, held), held);
        if flushed.is_ok() && !fits {
            add(&counters.crowded, 1);
        }
        if flushed.is_err() || !fits {
            return self.close(place);
        }
        let is_sending = connection.is_sending();
        if is_sending != was_sending {
            let flags = if is_sending { EventFlags::OUT } else { EventFlags::IN };
            let data = EventData::new_u64(place as u64);
            if epoll::modify(&self.epoll, &connection.stream, data, flags).is_err() {
                self.close(place);
            }
        }
    }

    fn close(&mut self, place: usize) {
        let connection = self.connections.remove(place);
        self.answered += connection.answered;
        if connection.is_handshaking() {
            add(&self.shared.counters.tls_failed, 1);
        }
        self.shared.hold(connection.counted_bytes, 0);
        if connection.is_counted {
            self.shared.counters.disconnect();
        } else {
            self.turned_away -= 1;
        }
    }

    fn enter(&mut self, connection: Connection) {
        let flags = if connection.is_sending() { EventFlags::OUT } else { EventFlags::IN };
        let place = self.connections.insert(connection);
        let data = EventData::new_u64(place as u64);
        if epoll::add(&self.epoll, &self.connections[place].stream, data, flags).is_err() {
            self.close(place);
        }
    }

    fn close_slow(&mut self, now: Time) {
        let stall = self.shared.config.stall;
        let slow = self.connections.iter().filter(|(_, one)| one.is_slow(now, stall));
        for place in slow.map(|(place, _)| place).collect::<Vec<_>>() {
            if !self.connections[place].lingers() {
                add(&self.shared.counters.slow, 1);
            }
            self.close(place);
        }
    }

    /// Accepts at one listener, for each worker in turn.
    fn accept(&mut self, number: usize) {
        let Some(accepts) = &mut self.accepts else { return };
        let Some(front) = accepts.fronts.get(number) else { return };
        for _ in 0..ACCEPTS_MAX {
            let (stream, from) = match front.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client is gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted for a moment");
                    accepts.paused_until = Some(self.clock.now() + ACCEPT_PAUSE);
                    for front in &accepts.fronts {
                        let _ = epoll::modify(
                            &self.epoll,
                            &front.listener,
                            EventData::new_u64(BELL - 1),
                            EventFlags::empty(),
                        );
                    }
                    return;
                }
            };
            // As many handshakes are under way as may be, in all or from there.
            let place = front.tls.as_ref().map(|tls| tls.place(from.ip()));
            let Some(place) = place.map_or(Some(None), |place| place.map(Some)) else {
                add(&self.shared.counters.turned_away, 1);
                continue;
            };
            if !self.shared.counters.connect() {
                let _ = stream.set_nonblocking(true);
                if self.turned_away < TURNED_AWAY_MAX && !front.turned_away.is_empty() {
                    self.turned_away += 1;
                    let (dialogue, text) = ((front.dialogue)(), front.turned_away);
                    // It is this worker's own, which has not ended.
                    let _ = self.inbox.put(Connection::turned_away(stream, dialogue, text));
                } else {
                    say_and_close(&stream, front.turned_away);
                }
                continue;
            }
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
                self.shared.counters.disconnect();
                continue;
            }
            let Some(connection) = begin(front, stream, place, self.clock.now()) else {
                self.shared.counters.disconnect();
                continue;
            };
            if self.shared.config.worker_per_client {
                match Self::alone(Arc::clone(&self.shared), self.clock.clone(), connection) {
                    Ok(worker) => {
                        if let Err(error) = self.shared.serve_alone(worker) {
                            tracing::warn!(%error, "a client has no thread of its own");
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a client has no descriptors of its own");
                        self.shared.counters.disconnect();
                    }
                }
                continue;
            }
            if accepts.turns.put(connection).is_some() {
                self.shared.counters.disconnect();
            }
        }
    }

    fn accept_again(&mut self, now: Time) -> io::Result<()> {
        let Some(accepts) = &mut self.accepts else { return Ok(()) };
        if accepts.paused_until.is_some_and(|until| now >= until) {
            accepts.paused_until = None;
            self.listen(false)?;
        }
        Ok(())
    }
}

/// The connection of a client, whose handshake begins where that is over TLS; none where the system
/// has no random bytes for it.
fn begin(front: &Front, stream: TcpStream, place: Option<Place>, now: Time) -> Option<Connection> {
    let connection = Connection::new(stream, (front.dialogue)());
    let Some((tls, place)) = front.tls.as_ref().zip(place) else { return Some(connection) };
    let session = tls.accept().inspect_err(|error| tracing::warn!(%error, "a client gets no TLS"));
    Some(connection.over_tls(session.ok()?, place, now))
}

fn say_and_close(mut stream: &TcpStream, text: &[u8]) {
    // The socket is new and has room; whoever is gone does not hear it.
    let _ = stream.write(text);
}
