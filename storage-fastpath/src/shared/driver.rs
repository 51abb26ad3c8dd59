//! What drives the endpoint of a client: a thread of the client's, or its caller.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use towpath_base::Prng;
use towpath_rpc::{CallError, Fate};
use towpath_transport::{Buf, Device, Endpoint, LinkId, Nanos, Region, SubmitError, Time};

use super::repeat::{self, Next};
use super::request::{Counters, Data, Ended, ReadBy, Request, Task, Ticket};
use super::seat::{Failure, Seat, SeatEvent};
use crate::change::{NewChunk, Terms};
use crate::config::{ClientConfig, OnRide, Patience};
use crate::error::{ErrorKind, OpenError};
use crate::hedge::{HedgeServer, HedgeStats};
use crate::leg::wait;
use crate::output::Output;
use crate::request::StorageRequest;
use crate::resident::ResidentStats;
use crate::slice::ChunkId;
use crate::wire::ErrorReply;

/// The longest that a wait blocks before it looks at deadlines again.
const BLOCK_MAX: Nanos = Nanos::from_millis(1);

/// How long a goodbye may take.
const GOODBYE_WAIT: Nanos = Nanos::from_secs(1);

/// Whether what is under way gives back what is missing.
fn is_shortage(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Call(
            CallError::NoBuffer(_) | CallError::Full { .. } | CallError::Submit(SubmitError::Full)
        )
    )
}

/// A [`Client`](super::Client) on its caller's own thread: it connects, repeats and hedges as
/// every client does, and works while it is [turned](Self::turn).
///
/// It does what the client's own calls ask for, and what is started here. What is started here has
/// a [`Ticket`], and is repeated whatever breaks, as for a
/// [sole writer](super::Client::sole_writer). Writes take a [`Buf`] of the endpoint's, whose bytes
/// are not copied.
///
/// ```no_run
/// use towpath_fastpath::{ChunkId, Client, ClientConfig, Ended, NewChunk, Output};
/// use towpath_transport::{Endpoint, EndpointConfig, Nanos, UdpConfig};
///
/// let config = EndpointConfig::new().app_protocol(towpath_fastpath::wire::PROTOCOL);
/// let endpoint = Endpoint::udp(UdpConfig::new([127, 0, 0, 1].into()), config)?;
/// let server = "127.0.0.1:7400".parse()?;
/// let (client, mut driver) = Client::driven(endpoint, server, &ClientConfig::new());
/// let chunk = ChunkId(0x70a7_0002);
/// let mut created = client.create(chunk, None, NewChunk::default());
/// while created.try_take().transpose()?.is_none() {
///     driver.turn();
/// }
/// let bytes = driver.endpoint().copy(b"hello")?;
/// let write = driver.write(chunk, 0, bytes);
/// loop {
///     if !driver.turn() {
///         driver.endpoint_mut().wait(Nanos::from_millis(1));
///     }
///     match driver.next_ended() {
///         Some(Ended::Done(ticket, result)) if ticket == write => break drop(result?),
///         // The link broke, and the buffer went with it.
///         Some(Ended::Refill(ticket)) => {
///             let bytes = driver.endpoint().copy(b"hello")?;
///             driver.refill(ticket, bytes);
///         }
///         _ => {}
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Driver<D: Device<Memory = Region>> {
    endpoint: Endpoint<D>,
    seats: Vec<Seat>,
    asked: Receiver<Task>,
    /// All clients are gone, and nothing more will be asked.
    is_closing: bool,
    /// Links are closed, and none is made any more.
    is_leaving: bool,
    is_asleep: Arc<AtomicBool>,
    counters: Arc<Counters>,
    waiting: VecDeque<Task>,
    /// Not before that time.
    later: Vec<(Time, Task)>,
    /// Writes that wait for their bytes.
    unfilled: Vec<Task>,
    /// There is something to send since the last flush.
    is_unflushed: bool,
    /// What was started here and has come so far.
    ended: VecDeque<Ended>,
    next_ticket: u64,
    stamp: u64,
    /// When the time of something that waits is over, at the earliest.
    next_late: Time,
    /// How the first link was made, or why there is none; none while that is not known.
    opened: Option<Result<(), OpenError>>,
    /// There was a link that took requests.
    is_open: bool,
    /// Those that have failed before there was any link, and how the first of them did.
    failed_seats: BTreeSet<usize>,
    open_error: Option<OpenError>,
    prng: Prng,
    depth: usize,
    timeout: Nanos,
    patience: Patience,
    /// The listener for changes of carrier, and how many it was told.
    on_ride: Option<OnRide>,
    rides: u64,
    /// Since when no link has taken requests; none while one does.
    out_since: Option<Time>,
    spin: Nanos,
    idle_since: Option<Time>,
}

impl<D: Device<Memory = Region>> Driver<D> {
    pub(super) fn new(
        endpoint: Endpoint<D>,
        addr: SocketAddr,
        config: &ClientConfig,
        asked: Receiver<Task>,
        (is_asleep, counters): (Arc<AtomicBool>, Arc<Counters>),
    ) -> Self {
        let seat = |index| Seat::new(addr, config, index);
        Self {
            // Waits of different clients are to differ.
            prng: Prng::new(endpoint.instance()),
            seats: (0..config.links).map(seat).collect(),
            endpoint,
            asked,
            is_closing: false,
            is_leaving: false,
            is_asleep,
            counters,
            waiting: VecDeque::new(),
            later: Vec::new(),
            unfilled: Vec::new(),
            is_unflushed: false,
            ended: VecDeque::new(),
            next_ticket: 0,
            stamp: config.first_stamp() ^ 1 << 63,
            next_late: Time::NEVER,
            opened: None,
            is_open: false,
            failed_seats: BTreeSet::new(),
            open_error: None,
            depth: config.depth,
            timeout: config.timeout,
            patience: config.patience,
            on_ride: config.on_ride.clone(),
            rides: 0,
            out_since: None,
            spin: config.spin,
            idle_since: None,
        }
    }

    /// Goes on with a link to the server that was made otherwise than over TCP
    /// ([`Endpoint::establish`]), before the first [turn](Self::turn).
    pub fn join(&mut self, link: LinkId) {
        let Self { seats, endpoint, prng, .. } = self;
        if let Some(event) = seats.first_mut().and_then(|seat| seat.joined(endpoint, link, prng)) {
            self.on_seat(0, event);
        }
    }

    /// The endpoint, for its buffers, its clock and its counters.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint<D> {
        &self.endpoint
    }

    /// The endpoint, to wait for what comes: [`turn`](Self::turn) polls it.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint<D> {
        &mut self.endpoint
    }

    /// Whether the first link could be made: told once, when that is known.
    pub fn take_opened(&mut self) -> Option<Result<(), OpenError>> {
        self.opened.take()
    }

    /// Whether no link takes requests, after one did.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_open && !self.is_leaving && self.out_since.is_some()
    }

    /// Whether a replica can be asked to read.
    #[must_use]
    pub fn has_replica(&self) -> bool {
        self.seats.iter().any(Seat::replica_is_up)
    }

    /// What hedging did on the first of the links.
    #[must_use]
    pub fn hedge_stats(&self) -> HedgeStats {
        self.seats.first().map_or_else(HedgeStats::default, Seat::hedge_stats)
    }

    /// What became of reads of resident chunks over the first of the links, as long as that is up.
    #[must_use]
    pub fn resident_stats(&self) -> ResidentStats {
        let client = self.seats.first().and_then(Seat::client);
        client.map(|client| client.resident_stats()).unwrap_or_default()
    }

    /// Avoids a server for a while, as when its requests are too slow: it is not asked to read
    /// while the other one is well. So is a server to which a link was lost, or could not be made.
    pub fn avoid(&mut self, server: HedgeServer) {
        let now = self.endpoint.now();
        self.seats.iter_mut().for_each(|seat| seat.avoid(server, now));
    }

    /// Trusts a server again: what happened before is forgotten.
    pub fn trust(&mut self, server: HedgeServer) {
        self.seats.iter_mut().for_each(|seat| seat.trust(server));
    }

    /// Whether a server is avoided now.
    #[must_use]
    pub fn is_avoided(&self, server: HedgeServer) -> bool {
        self.seats.iter().any(|seat| seat.is_avoided(server, self.endpoint.now()))
    }

    /// Tells link and age of each request that has waited for `after`, and whether it is told for
    /// the first time: for a [`HealthMonitor`](crate::HealthMonitor).
    pub fn note_slow(
        &mut self,
        now: Time,
        after: Nanos,
        mut tell: impl FnMut(LinkId, Nanos, bool),
    ) {
        self.seats.iter_mut().for_each(|seat| seat.note_slow(now, after, &mut tell));
    }

    /// Starts the creation of a chunk.
    pub fn create(&mut self, chunk: ChunkId, kind: NewChunk) -> Ticket {
        self.stamp = self.stamp.wrapping_add(1).max(1);
        let (limit_bytes, stamp) = (None, self.stamp);
        self.start(StorageRequest::Create { chunk, limit_bytes, kind, stamp })
    }

    /// Starts the finish of an unfinished chunk of `byte_len` bytes.
    pub fn finish(&mut self, chunk: ChunkId, byte_len: u64) -> Ticket {
        self.start(StorageRequest::Finish { chunk, byte_len, terms: Terms::default() })
    }

    /// Starts a write of the bytes of a buffer of the endpoint's, which are not copied.
    pub fn write(&mut self, chunk: ChunkId, offset: u64, data: Buf) -> Ticket {
        let (data, terms) = (Data::Buf(Some(data)), Terms::default());
        self.start(Request::Write { chunk, offset, data, terms, route: None })
    }

    /// Starts a read, which ends with [`Output::Read`]: by requests, hedged where there is a
    /// replica; or by READs of the server's memory where the chunk is `resident`.
    pub fn read(&mut self, chunk: ChunkId, offset: u64, length: usize, resident: bool) -> Ticket {
        let by = if resident { ReadBy::Resident } else { ReadBy::Held };
        self.start(Request::Read { chunk, offset, length, by })
    }

    fn start(&mut self, request: impl Into<Request>) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.take(Task::with_ticket(request.into(), self.patience, ticket));
        if self.waiting.len() == 1 {
            self.start_waiting();
            self.is_unflushed = true;
        }
        ticket
    }

    /// Gives a write its bytes once more, for which [`Ended::Refill`] has asked.
    pub fn refill(&mut self, ticket: Ticket, data: Buf) {
        let found = self.unfilled.iter().position(|task| task.ticket() == Some(ticket));
        let Some(mut task) = found.map(|at| self.unfilled.swap_remove(at)) else { return };
        task.request.refill(data);
        self.next_late = self.next_late.min(task.deadline);
        self.waiting.push_back(task);
    }

    /// The next of what was started here that has ended, or needs something.
    pub fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// When [`turn`](Self::turn) has something to do, whatever comes.
    #[must_use]
    pub fn next_due(&self) -> Time {
        let later = self.later.iter().map(|(at, _)| *at).min().unwrap_or(Time::NEVER);
        let seats = self.seats.iter().map(Seat::next_due).min().unwrap_or(Time::NEVER);
        let seats = if self.is_leaving { Time::NEVER } else { seats };
        seats.min(later).min(self.next_late)
    }

    /// Closes all links in order; none is made any more. Turns take leave of the server until the
    /// endpoint has no links.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        let links: Vec<LinkId> = self.endpoint.links().collect();
        links.into_iter().for_each(|link| self.endpoint.close(link));
    }

    /// Until all clients are gone and what they asked for has ended, or the first link could not
    /// be made. Whoever waits for the first link learns how it went.
    pub(super) fn run(mut self, opened: &SyncSender<Result<(), OpenError>>) {
        while !(self.is_closing && self.is_done()) {
            let busy = self.turn();
            if let Some(outcome) = self.take_opened() {
                let is_over = outcome.is_err();
                let _ = opened.send(outcome);
                if is_over {
                    return;
                }
            }
            if busy {
                self.idle_since = None;
            } else {
                self.idle();
            }
        }
        self.leave();
        let until = self.endpoint.now() + GOODBYE_WAIT;
        while self.endpoint.links().next().is_some() && self.endpoint.now() < until {
            if !self.turn() {
                self.endpoint.wait(BLOCK_MAX);
            }
        }
    }

    fn is_done(&self) -> bool {
        let is_idle = self.seats.iter().all(Seat::is_idle);
        is_idle && self.waiting.is_empty() && self.later.is_empty()
    }

    /// Takes in what has come, and sends what is to be sent; whether anything has happened.
    pub fn turn(&mut self) -> bool {
        if mem::take(&mut self.is_unflushed) {
            self.endpoint.flush();
        }
        let mut busy = self.take_asked();
        busy |= self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            let mut event = Some(event);
            for index in 0..self.seats.len() {
                let Some(found) = event.take() else { break };
                let Self { seats, endpoint, prng, .. } = self;
                let (rest, news) = seats[index].on_event(endpoint, found, prng);
                event = rest;
                if let Some(news) = news {
                    self.on_seat(index, news);
                }
            }
        }
        for index in 0..self.seats.len() {
            let Self { seats, endpoint, prng, .. } = self;
            seats[index].expire(endpoint);
            if !self.is_leaving
                && let Some(news) = seats[index].begin(endpoint, prng)
            {
                self.on_seat(index, news);
            }
            while let Some(news) = self.seats[index].poll(&mut self.endpoint) {
                busy = true;
                self.on_seat(index, news);
            }
        }
        self.tell_rides();
        self.note_away();
        self.take_late();
        self.start_waiting();
        // What the caller asks for next, now that something has ended, takes the acks with it.
        self.is_unflushed = !self.ended.is_empty();
        if !self.is_unflushed {
            self.endpoint.flush();
        }
        busy
    }

    fn take_asked(&mut self) -> bool {
        let mut any = false;
        loop {
            match self.asked.try_recv() {
                Ok(task) => {
                    self.take(task);
                    any = true;
                }
                Err(TryRecvError::Empty) => return any,
                Err(TryRecvError::Disconnected) => {
                    self.is_closing = true;
                    return any;
                }
            }
        }
    }

    fn take(&mut self, mut task: Task) {
        task.deadline = self.endpoint.now() + self.timeout;
        self.next_late = self.next_late.min(task.deadline);
        self.counters.operations.fetch_add(1, Relaxed);
        self.waiting.push_back(task);
    }

    /// Tells what links ride on from now on.
    fn tell_rides(&mut self) {
        let rides = self.endpoint.rides();
        if rides.count() == self.rides {
            return;
        }
        if let Some(OnRide(tell)) = &self.on_ride {
            for ride in rides.after(self.rides) {
                let peer = self.endpoint.peer(ride.link).and_then(|peer| peer.setup_addr);
                let server = peer.or_else(|| self.seats.first().map(Seat::addr));
                server.inspect(|server| tell(*server, ride));
            }
        }
        self.rides = rides.count();
    }

    /// Notes since when no link takes requests.
    fn note_away(&mut self) {
        let is_out = !self.seats.iter().any(|seat| seat.takes(false));
        if is_out != self.out_since.is_some() {
            let now = self.endpoint.now();
            self.set_out_since(is_out.then_some(now));
        }
    }

    /// Also tells whoever holds the client, unless there was no link yet.
    fn set_out_since(&mut self, since: Option<Time>) {
        self.out_since = since;
        // What waits has less time from now on, or more.
        self.next_late = Time::ZERO;
        let is_away = self.is_away();
        let mut told = self.counters.away_since.lock().unwrap_or_else(PoisonError::into_inner);
        *told = is_away.then(Instant::now);
    }

    fn on_seat(&mut self, index: usize, event: SeatEvent) {
        match event {
            SeatEvent::Ended(task, outcome) => self.on_outcome(index, task, outcome),
            SeatEvent::Ready => {
                let room = self.seats[index].io_bytes_max(&self.endpoint);
                let known = self.counters.io_bytes_max.load(Relaxed);
                let least = if known == 0 { room } else { known.min(room) };
                self.counters.io_bytes_max.store(least, Relaxed);
                self.counters.links_made.fetch_add(1, Relaxed);
                if !self.is_open {
                    self.is_open = true;
                    self.opened = Some(Ok(()));
                }
                self.begin_time_anew();
                for (task, again) in self.seats[index].take_fenced() {
                    let unsure = ErrorKind::PeerGone { fate: Fate::Unknown };
                    match again {
                        true => self.again(task),
                        false => task.give_up(unsure, &mut self.ended),
                    }
                }
            }
            // It is tried again, unless there was never any link.
            SeatEvent::Failed(_) if self.is_open => {}
            SeatEvent::Failed(failure) => {
                let error = match failure {
                    Failure::Link(error) => OpenError::of_link(self.seats[index].addr(), error),
                    Failure::Entry(error) => OpenError::Session(error),
                };
                self.failed_seats.insert(index);
                self.open_error.get_or_insert(error);
                if self.failed_seats.len() == self.seats.len() {
                    self.opened = self.open_error.take().map(Err);
                }
            }
        }
    }

    fn on_outcome(&mut self, index: usize, mut task: Task, outcome: Result<Output, ErrorKind>) {
        let kind = match outcome {
            Ok(output) => return task.end(Ok(output), &mut self.ended),
            Err(kind) => kind,
        };
        let next = repeat::next(&task, &kind);
        task.failed = Some(kind);
        match next {
            Next::Give => task.end(Err(kind), &mut self.ended),
            Next::Done => {
                let outcome = task.request.done().ok_or(kind);
                task.end(outcome, &mut self.ended);
            }
            Next::Again => self.again(task),
            Next::Later => {
                let is_corrupt = matches!(
                    kind,
                    ErrorKind::ReplyCorrupt { .. }
                        | ErrorKind::Refused(ErrorReply::WireCorrupt { .. })
                );
                let Counters { busy, corrupt, .. } = &*self.counters;
                (if is_corrupt { corrupt } else { busy }).fetch_add(1, Relaxed);
                let wait = wait(task.tries, &mut self.prng);
                self.later.push((self.endpoint.now() + wait, task));
            }
            Next::Fenced { again } => {
                task.unsure = Some(kind);
                self.next_late = self.next_late.min(task.deadline);
                self.seats[index].fence(task, again);
            }
        }
    }

    fn again(&mut self, task: Task) {
        self.counters.repeated.fetch_add(1, Relaxed);
        self.next_late = self.next_late.min(task.deadline);
        self.waiting.push_back(task);
    }

    /// The server is there again: what waited for it has its whole time.
    fn begin_time_anew(&mut self) {
        let was_out = self.out_since.is_some();
        self.set_out_since(None);
        if !was_out {
            return;
        }
        let deadline = self.endpoint.now() + self.timeout;
        let later = self.later.iter_mut().map(|(_, task)| task);
        let fenced = self.seats.iter_mut().flat_map(Seat::fenced_mut);
        for task in self.waiting.iter_mut().chain(later).chain(fenced) {
            if task.patience.span > Nanos::ZERO {
                task.deadline = task.deadline.max(deadline);
            }
        }
    }

    /// Gives up what waits and whose time is over.
    fn take_late(&mut self) {
        let (now, out_since) = (self.endpoint.now(), self.out_since);
        for (_, task) in self.later.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            self.again(task);
        }
        if now < self.next_late {
            return;
        }
        let has_replica = self.has_replica();
        let late_at = |task: &Task| task.late_at(out_since, has_replica);
        let is_late = |task: &Task| late_at(task) <= now;
        let (late, waiting): (Vec<Task>, Vec<Task>) = self.waiting.drain(..).partition(is_late);
        self.waiting = waiting.into();
        for task in late {
            task.give_up(ErrorKind::TimedOut { fate: Fate::DidNotHappen }, &mut self.ended);
        }
        for mut task in self.seats.iter_mut().flat_map(|seat| seat.take_late(now, out_since)) {
            // Nothing keeps it from coming yet. A server that is away has said enough by that.
            if !task.patience.is_limit {
                task.unsure = Some(ErrorKind::TimedOut { fate: Fate::Unknown });
            }
            task.give_up(ErrorKind::TimedOut { fate: Fate::Unknown }, &mut self.ended);
        }
        let waiting = self.waiting.iter().map(late_at);
        let fenced = self.seats.iter().map(|seat| seat.next_late(out_since));
        self.next_late = waiting.chain(fenced).min().unwrap_or(Time::NEVER);
    }

    /// Starts what waits, where links have room.
    fn start_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(task) = self.waiting.pop_front() else { return };
            if task.is_abandoned() {
                task.give_up(ErrorKind::PeerGone { fate: Fate::DidNotHappen }, &mut self.ended);
                continue;
            }
            if task.request.is_spent() {
                self.ended.extend(task.ticket().map(Ended::Refill));
                self.unfilled.push(task);
                continue;
            }
            let is_for_replica = task.request.is_for_replica();
            let takes = |(_, seat): &(usize, &Seat)| {
                seat.takes(is_for_replica) && seat.running() < self.depth
            };
            let seats = self.seats.iter().enumerate().filter(takes);
            let Some((index, _)) = seats.min_by_key(|(_, seat)| seat.running()) else {
                self.waiting.push_front(task);
                if self.seats.iter().any(|seat| seat.takes(true) && seat.running() < self.depth) {
                    // A read behind it may go to a replica.
                    self.waiting.rotate_left(1);
                    continue;
                }
                return;
            };
            match self.seats[index].start(&mut self.endpoint, task) {
                Ok(()) => {}
                Err((mut task, kind)) if is_shortage(&kind) => {
                    if self.seats.iter().any(|seat| seat.running() > 0) {
                        // What is under way gives it back.
                        self.waiting.push_front(task);
                        return;
                    }
                    task.failed = Some(kind);
                    self.later.push((self.endpoint.now() + BLOCK_MAX, task));
                }
                Err((task, kind)) => self.on_outcome(index, task, Err(kind)),
            }
        }
    }

    fn idle(&mut self) {
        let now = self.endpoint.now();
        let since = *self.idle_since.get_or_insert(now);
        if now.since(since) < self.spin {
            std::hint::spin_loop();
            return;
        }
        // Who asks after this wakes the wait.
        self.is_asleep.store(true, SeqCst);
        let was_closing = self.is_closing;
        if !self.take_asked() && self.is_closing == was_closing {
            let due = self.next_due().since(now);
            let has_work = self.counters.open.load(Relaxed) > 0;
            // With nothing under way only keepalives are due, which the endpoint knows.
            let most = if has_work { BLOCK_MAX } else { Nanos::from_secs(1) };
            self.endpoint.wait(due.min(most));
        }
        self.is_asleep.store(false, SeqCst);
    }
}

impl<D: Device<Memory = Region>> std::fmt::Debug for Driver<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}
