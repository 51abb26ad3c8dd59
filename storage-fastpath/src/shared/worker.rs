//! The thread that drives the endpoint of a shared client.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use towpath_base::Prng;
use towpath_rpc::{CallError, Fate};
use towpath_transport::{Device, Endpoint, LinkId, Nanos, Region, SubmitError, Time};

use super::repeat::{self, Next};
use super::request::{Counters, Task};
use super::seat::{Ended, Failure, News, Seat};
use crate::config::{ClientConfig, OnRide};
use crate::error::{ErrorKind, OpenError};
use crate::leg::wait;
use crate::output::Output;

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

pub(super) struct Worker<D: Device<Memory = Region>> {
    endpoint: Endpoint<D>,
    seats: Vec<Seat>,
    asked: Receiver<Task>,
    /// All clients are gone, and nothing more will be asked.
    is_closing: bool,
    is_asleep: Arc<AtomicBool>,
    counters: Arc<Counters>,
    waiting: VecDeque<Task>,
    /// Not before that time.
    later: Vec<(Time, Task)>,
    /// When the time of something that waits is over, at the earliest.
    next_late: Time,
    /// Who waits for the first link, and learns why there is none.
    opened: Option<SyncSender<Result<(), OpenError>>>,
    /// Those that have failed before there was any link, and how the first of them did.
    failed_seats: BTreeSet<usize>,
    open_error: Option<OpenError>,
    /// There was never any link.
    is_over: bool,
    prng: Prng,
    depth: usize,
    timeout: Nanos,
    /// The listener for changes of carrier, and how many it was told.
    on_ride: Option<OnRide>,
    rides: u64,
    /// Since when no link has taken requests; none while one does.
    out_since: Option<Time>,
    spin: Nanos,
    idle_since: Option<Time>,
}

impl<D: Device<Memory = Region>> Worker<D> {
    pub(super) fn new(
        endpoint: Endpoint<D>,
        addr: std::net::SocketAddr,
        config: &ClientConfig,
        asked: Receiver<Task>,
        (is_asleep, counters): (Arc<AtomicBool>, Arc<Counters>),
        opened: SyncSender<Result<(), OpenError>>,
    ) -> Self {
        Self {
            // Waits of different clients are to differ.
            prng: Prng::new(endpoint.instance()),
            seats: (0..config.links).map(|index| Seat::new(addr, config, index)).collect(),
            endpoint,
            asked,
            is_closing: false,
            is_asleep,
            counters,
            waiting: VecDeque::new(),
            later: Vec::new(),
            next_late: Time::NEVER,
            opened: Some(opened),
            failed_seats: BTreeSet::new(),
            open_error: None,
            is_over: false,
            depth: config.depth,
            timeout: config.timeout,
            on_ride: config.on_ride.clone(),
            rides: 0,
            out_since: None,
            spin: config.spin,
            idle_since: None,
        }
    }

    /// Until all clients are gone and what they asked for has ended, or the first link could not
    /// be made.
    pub(super) fn run(mut self) {
        while !(self.is_closing && self.is_done()) {
            let busy = self.turn();
            if self.is_over {
                return;
            }
            if busy {
                self.idle_since = None;
            } else {
                self.idle();
            }
        }
        say_goodbye(&mut self.endpoint);
    }

    fn is_done(&self) -> bool {
        let is_idle = self.seats.iter().all(Seat::is_idle);
        is_idle && self.waiting.is_empty() && self.later.is_empty()
    }

    /// Whether anything happened.
    fn turn(&mut self) -> bool {
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
                    self.on_news(index, news);
                }
            }
        }
        for index in 0..self.seats.len() {
            let Self { seats, endpoint, prng, .. } = self;
            seats[index].expire(endpoint);
            if let Some(news) = seats[index].begin(endpoint, prng) {
                self.on_news(index, news);
            }
        }
        busy |= self.take_ended();
        self.tell_rides();
        self.note_away();
        self.take_late();
        self.start_waiting();
        self.endpoint.flush();
        busy
    }

    fn take_asked(&mut self) -> bool {
        let mut any = false;
        loop {
            match self.asked.try_recv() {
                Ok(mut task) => {
                    task.deadline = self.endpoint.now() + self.timeout;
                    self.next_late = self.next_late.min(task.deadline);
                    self.counters.operations.fetch_add(1, Relaxed);
                    self.waiting.push_back(task);
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
        let is_away = since.is_some() && self.opened.is_none();
        let mut told = self.counters.away_since.lock().unwrap_or_else(PoisonError::into_inner);
        *told = is_away.then(Instant::now);
    }

    fn take_ended(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.seats.len() {
            while let Some(ended) = self.seats[index].poll(&mut self.endpoint) {
                any = true;
                match ended {
                    Ended::Task(task, outcome) => self.on_outcome(index, task, outcome),
                    Ended::News(news) => self.on_news(index, news),
                }
            }
        }
        any
    }

    fn on_news(&mut self, index: usize, news: News) {
        match news {
            News::Ready => {
                let room = self.seats[index].io_bytes_max(&self.endpoint);
                let known = self.counters.io_bytes_max.load(Relaxed);
                let least = if known == 0 { room } else { known.min(room) };
                self.counters.io_bytes_max.store(least, Relaxed);
                self.counters.links_made.fetch_add(1, Relaxed);
                if let Some(opened) = self.opened.take() {
                    let _ = opened.send(Ok(()));
                }
                self.begin_time_anew();
                for (task, again) in self.seats[index].take_fenced() {
                    let unsure = ErrorKind::PeerGone { fate: Fate::Unknown };
                    match again {
                        true => self.again(task),
                        false => task.give_up(unsure),
                    }
                }
            }
            News::Failed(failure) => {
                // It is tried again, unless there was never any link.
                if self.opened.is_none() {
                    return;
                }
                let addr = self.seats[index].addr();
                let error = match failure {
                    Failure::Connect(error) => OpenError::Connect(error),
                    Failure::NoChannel => OpenError::NoChannel { addr },
                    Failure::Entry(error) => OpenError::Session(error),
                };
                self.failed_seats.insert(index);
                self.open_error.get_or_insert(error);
                if self.failed_seats.len() == self.seats.len()
                    && let (Some(opened), Some(error)) =
                        (self.opened.take(), self.open_error.take())
                {
                    let _ = opened.send(Err(error));
                    self.is_over = true;
                }
            }
        }
    }

    fn on_outcome(&mut self, index: usize, mut task: Task, outcome: Result<Output, ErrorKind>) {
        let kind = match outcome {
            Ok(output) => return task.end(Ok(output)),
            Err(kind) => kind,
        };
        let next = repeat::next(&task, &kind);
        task.failed = Some(kind);
        match next {
            Next::Give => task.end(Err(kind)),
            Next::Done => match task.request.done() {
                Some(output) => task.end(Ok(output)),
                None => task.end(Err(kind)),
            },
            Next::Again => self.again(task),
            Next::Later => {
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
            if task.patience > Nanos::ZERO {
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
        let is_late = |task: &Task| task.late_at(out_since) <= now;
        let (late, waiting): (Vec<Task>, Vec<Task>) = self.waiting.drain(..).partition(is_late);
        self.waiting = waiting.into();
        for task in late {
            task.give_up(ErrorKind::TimedOut { fate: Fate::DidNotHappen });
        }
        for mut task in self.seats.iter_mut().flat_map(|seat| seat.take_late(now, out_since)) {
            // Nothing keeps it from coming yet.
            task.unsure = Some(ErrorKind::TimedOut { fate: Fate::Unknown });
            task.give_up(ErrorKind::TimedOut { fate: Fate::Unknown });
        }
        let waiting = self.waiting.iter().map(|task| task.late_at(out_since));
        let fenced = self.seats.iter().map(|seat| seat.next_late(out_since));
        self.next_late = waiting.chain(fenced).min().unwrap_or(Time::NEVER);
    }

    /// Starts what waits, where links have room.
    fn start_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(task) = self.waiting.pop_front() else { return };
            if task.is_abandoned() {
                task.give_up(ErrorKind::PeerGone { fate: Fate::DidNotHappen });
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
            let later = self.later.iter().map(|(at, _)| *at).min().unwrap_or(Time::NEVER);
            let due = self.seats.iter().map(Seat::next_due).min().unwrap_or(Time::NEVER);
            let due = due.min(later).min(self.next_late).since(now);
            let has_work = self.counters.open.load(Relaxed) > 0;
            // With nothing under way only keepalives are due, which the endpoint knows.
            let most = if has_work { BLOCK_MAX } else { Nanos::from_secs(1) };
            self.endpoint.wait(due.min(most));
        }
        self.is_asleep.store(false, SeqCst);
    }
}

/// Leaves on all links in order, and waits for a moment until their peers know.
fn say_goodbye<D: Device<Memory = Region>>(endpoint: &mut Endpoint<D>) {
    let links: Vec<LinkId> = endpoint.links().collect();
    links.into_iter().for_each(|link| endpoint.close(link));
    let until = endpoint.now() + GOODBYE_WAIT;
    while endpoint.links().next().is_some() && endpoint.now() < until {
        if !endpoint.turn(|_, _| {}) {
            endpoint.wait(BLOCK_MAX);
        }
    }
}
