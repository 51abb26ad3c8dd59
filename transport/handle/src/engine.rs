//! Which thread drives an endpoint: one that waits for it, else a thread of its own.
//!
//! One of the waiting threads leads: it takes in packets, wakes the threads whose results have
//! come, and sleeps on the sockets. Each other thread sleeps until its own result has come or the
//! lead is free. A thread that posts a message sends it itself, unless another thread is at the
//! endpoint at that moment; then that one sends it. So no message passes from thread to thread.
//!
//! The keeper is a thread that drives the endpoint while no thread leads. A thread whose wait is
//! over mostly comes back soon, with an answer on which acks can ride. Such a thread leaves the
//! lead without waking the keeper. Meanwhile the keeper looks about once in a millisecond, and
//! takes over if no thread has come back. The keeper alone drives a device without files, and
//! sleeps in it.

use crate::inbox::{Driver, Inbox};
use crate::limits::{BRIEF_NS, KEEPER_LOOK, WORKER_BLOCK_NS, WORKER_SLEEP_NS};
use crate::park::{self, Sleeper};
use crate::spin::Spin;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Wake};
use std::time::{Duration, Instant};
use towpath_wake::{Awaited, Lead, Serving, Taking};

/// The longest sleep on the files.
const LONGEST: Duration = Duration::from_nanos(WORKER_SLEEP_NS);

/// What the keeper does.
const LOOKS: u8 = 0;
const WATCHES: u8 = 1;
const SLEEPS: u8 = 2;

/// What a thread that drives a worker needs of it.
pub(crate) trait Drive: Send {
    /// Takes in what has come, and passes events on.
    fn take_in(&mut self) -> Came;

    /// Sends what was posted, and acks last. True if anything was posted.
    fn send_off(&mut self) -> bool;

    /// Before the device's files are watched: how long that may last. See
    /// [`Endpoint::prepare_wait`](towpath_transport::Endpoint::prepare_wait).
    fn prepare(&mut self, most: Duration) -> Duration;

    /// Sleeps in the device, where it has no files.
    fn block(&mut self, most: Duration);

    /// Time until the next timer; none without a timer.
    fn time_left(&self) -> Option<Duration>;

    fn is_over(&self) -> bool;

    /// Closes all links in order, for as long as that may take.
    fn leave(self: Box<Self>);
}

/// What has come since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Nothing,
    /// Packets, timers or outcomes, but no message for the application.
    Something,
    /// At least one message for the application.
    Messages,
}

type Worker = Option<Box<dyn Drive>>;

/// An endpoint that its handles drive.
pub(crate) struct Engine {
    worker: Serving<Worker>,
    inbox: Arc<Inbox>,
    /// What a thread sleeps on without holding the endpoint; none where the device has no files.
    files: Option<OwnedFd>,
    lead: Lead,
    start: Instant,
    state: State,
    sleeper: OnceLock<Arc<Sleeper>>,
    spin: Spin,
}

/// What the threads that drive the endpoint know of each other.
#[derive(Default)]
struct State {
    /// Counts each begin and each end of a lead.
    moves: AtomicU64,
    /// When the thread that watches the files wakes, in nanoseconds since the start; zero without
    /// one.
    wakes_at_ns: AtomicU64,
    /// When the last leader left; zero once another has come.
    left_at_ns: AtomicU64,
    /// Time between the last two leads.
    away_ns: AtomicU64,
    /// Tasks of executors wait: they drive nothing themselves.
    has_tasks: AtomicBool,
    /// When messages last came; zero once a message was posted.
    came_at_ns: AtomicU64,
    /// The last messages were answered at once.
    is_answered: AtomicBool,
    /// The keeper is to drive, even if another thread led of late.
    is_called: AtomicBool,
    keeper: AtomicU8,
}

/// What the driving thread does next.
enum Next {
    /// Something came: looks again.
    Busy,
    /// Nothing came: looks again, because the thread spins.
    Spin,
    /// Sleeps until this time, in nanoseconds since the start.
    Sleep(u64),
    /// The caller's own result has come.
    Leave,
    /// The worker is to end, or has ended.
    End,
}

impl Engine {
    pub(crate) fn new(
        worker: Box<dyn Drive>,
        files: Option<OwnedFd>,
        inbox: &Arc<Inbox>,
        spin: Duration,
    ) -> Self {
        Self {
            worker: Serving::new(Some(worker)),
            inbox: Arc::clone(inbox),
            files,
            lead: Lead::default(),
            start: Instant::now(),
            state: State::default(),
            sleeper: OnceLock::new(),
            spin: Spin::new(spin),
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Drives the endpoint until the sleeper is woken, or `end`.
    fn lead(&self, leader: usize, (files, sleeper): (&OwnedFd, &Sleeper), end: Option<Instant>) {
        self.state.moves.fetch_add(1, Ordering::SeqCst);
        self.note_return();
        let mut spin = self.spin.begin();
        // A new leader mostly finds nothing: it looks first only if it spins, else the files wake
        // it.
        let (mut looks, mut longest) = (spin.goes_on(), KEEPER_LOOK);
        loop {
            let is_spinning = spin.goes_on();
            let most = end.map(|end| end.saturating_duration_since(Instant::now()));
            let most = most.map_or(longest, |most| most.min(longest));
            let looks_now = std::mem::replace(&mut looks, true);
            match self
                .drive(|worker| self.turn(worker, Some(sleeper), looks_now, is_spinning, most))
            {
                Next::Leave => break,
                Next::End => {
                    self.call_keeper();
                    break;
                }
                Next::Busy => {
                    spin.renew(is_spinning);
                    longest = KEEPER_LOOK;
                }
                Next::Spin => spin.pause(),
                Next::Sleep(until_ns) => {
                    spin.end(false);
                    self.sleep(files, sleeper, until_ns);
                    longest = LONGEST;
                }
            }
            if most.is_zero() || !self.lead.is_of(leader) {
                break;
            }
        }
        spin.end(sleeper.is_woken());
        if self.lead.is_of(leader) {
            self.state.left_at_ns.store(self.now_ns(), Ordering::Relaxed);
            self.release(leader);
        }
        self.serve_rest();
    }

    /// Notes how long no thread led: the next absence is expected to be as long.
    fn note_return(&self) {
        let left_at = self.state.left_at_ns.swap(0, Ordering::Relaxed);
        if left_at != 0 {
            self.state.away_ns.store(self.now_ns().saturating_sub(left_at), Ordering::Relaxed);
        }
    }

    /// One turn at the endpoint, of the keeper or of a caller, which leaves when its own result has
    /// come.
    fn turn(
        &self,
        worker: &mut dyn Drive,
        caller: Option<&Sleeper>,
        looks: bool,
        is_spinning: bool,
        most: Duration,
    ) -> Next {
        let came = if looks { worker.take_in() } else { Came::Nothing };
        // Acks ride on the answer if one is expected soon.
        let is_answered_soon = came == Came::Messages && {
            self.state.came_at_ns.store(self.now_ns(), Ordering::Relaxed);
            self.state.is_answered.swap(false, Ordering::Relaxed)
        };
        if caller.is_some_and(Sleeper::is_woken) {
            if !is_answered_soon {
                worker.send_off();
            }
            return Next::Leave;
        }
        if came != Came::Nothing {
            self.lead.has_nothing();
        }
        if is_answered_soon && caller.is_none() && self.files.is_some() {
            return self.until_in(most.min(Duration::from_nanos(BRIEF_NS / 2)));
        }
        let is_busy = worker.send_off() | (came != Came::Nothing);
        if worker.is_over() {
            Next::End
        } else if is_busy {
            Next::Busy
        } else if is_spinning {
            Next::Spin
        } else {
            self.rest(worker, most)
        }
    }

    /// Gives the lead to a waiting thread or to the keeper, unless the caller will be back soon.
    fn release(&self, leader: usize) {
        self.state.moves.fetch_add(1, Ordering::SeqCst);
        let most_ns = if self.lead.is_alone() { KEEPER_LOOK.as_nanos() as u64 } else { BRIEF_NS };
        let comes_back = self.state.away_ns.load(Ordering::Relaxed) < most_ns
            && !self.state.has_tasks.load(Ordering::Relaxed)
            && !self.inbox.has_ended();
        if comes_back {
            self.lead.leave(leader);
        } else if !self.lead.pass(leader) {
            self.state.is_called.store(true, Ordering::SeqCst);
        }
        if self.state.is_called.load(Ordering::SeqCst)
            || self.state.keeper.load(Ordering::SeqCst) != LOOKS
        {
            self.wake_keeper();
        }
    }

    fn wake_keeper(&self) {
        if self.files.is_none() {
            self.inbox.bell().ring();
        }
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.wake_by_ref();
        }
    }

    /// Has the keeper drive the endpoint from now on.
    fn call_keeper(&self) {
        self.state.is_called.store(true, Ordering::SeqCst);
        self.wake_keeper();
    }

    /// Whether posts or commands wait, and the endpoint has not ended.
    fn has_work(&self) -> bool {
        !(self.inbox.has_ended() || self.inbox.is_empty())
    }

    /// Sends for threads that posted while the caller had the endpoint.
    fn serve_rest(&self) {
        if self.has_work() {
            self.nudge();
        }
    }

    fn send_off(&self, worker: &mut Worker) {
        let sent = self.guarded(worker, |worker| {
            worker.send_off();
            (worker.time_left(), worker.is_over())
        });
        match sent {
            Some((_, true)) => self.call_keeper(),
            // The next timer is due before the watching thread wakes.
            Some((Some(left), _))
                if self.in_ns(left) < self.state.wakes_at_ns.load(Ordering::Relaxed) =>
            {
                self.inbox.bell().wake();
            }
            _ => {}
        }
    }

    /// The end of a span that begins now, in nanoseconds since the start.
    fn in_ns(&self, span: Duration) -> u64 {
        self.now_ns().saturating_add(span.as_nanos() as u64)
    }

    /// Runs `work` at the endpoint; [`Next::End`] where that has ended.
    fn drive(&self, work: impl FnOnce(&mut dyn Drive) -> Next) -> Next {
        self.worker.enter(|worker| self.guarded(worker, work)).unwrap_or(Next::End)
    }

    /// Runs `work`. A worker that panics is dropped, and those that wait for it are told.
    fn guarded<R>(&self, worker: &mut Worker, work: impl FnOnce(&mut dyn Drive) -> R) -> Option<R> {
        let driven = worker.as_mut()?;
        match catch_unwind(AssertUnwindSafe(|| work(driven.as_mut()))) {
            Ok(done) => Some(done),
            Err(_) => {
                self.inbox.panic();
                *worker = None;
                self.call_keeper();
                None
            }
        }
    }

    /// Nothing is to do: until when to watch the files. Without files it sleeps in the device at
    /// once.
    fn rest(&self, worker: &mut dyn Drive, most: Duration) -> Next {
        let is_heard = self.inbox.bell().is_heard();
        let most = if is_heard { most } else { most.min(Duration::from_nanos(WORKER_BLOCK_NS)) };
        if self.files.is_none() {
            worker.block(most);
            return Next::Spin;
        }
        let span = worker.prepare(most);
        if span.is_zero() { Next::Spin } else { self.until_in(span) }
    }

    /// Announces a sleep of this length to threads that post from here on.
    fn until_in(&self, span: Duration) -> Next {
        let until_ns = self.in_ns(span);
        self.state.wakes_at_ns.store(until_ns, Ordering::SeqCst);
        Next::Sleep(until_ns)
    }

    /// Sleeps on the files, unless there is work.
    fn sleep(&self, files: &OwnedFd, sleeper: &Sleeper, until_ns: u64) {
        if !self.has_work() {
            let span = until_ns.saturating_sub(self.now_ns());
            sleeper.watch(files, Duration::from_nanos(span));
        }
        // Another thread may watch since, and has set its own time.
        let (told, awake) = (&self.state.wakes_at_ns, Ordering::SeqCst);
        let _ = told.compare_exchange(until_ns, 0, awake, awake);
    }

    /// Calls the keeper for a task that waits, unless a wait of this thread polls the task.
    pub(crate) fn attend(&self) {
        if park::is_waiting() {
            return;
        }
        if !self.state.has_tasks.swap(true, Ordering::SeqCst)
            || self.state.keeper.load(Ordering::SeqCst) != WATCHES && self.lead.is_there()
        {
            self.call_keeper();
        }
    }

    /// The keeper's work until the endpoint ends.
    pub(crate) fn keep(&self) {
        let sleeper = self.sleeper.get_or_init(Sleeper::current);
        let (mut seen, mut spin) = (0, self.spin.begin());
        while !self.inbox.is_gone() {
            sleeper.look(|| ());
            let moves = self.state.moves.load(Ordering::SeqCst);
            let is_led = !self.lead.is_there();
            let is_called = self.state.is_called.swap(false, Ordering::SeqCst);
            if !is_called && (is_led || moves != seen) {
                self.serve_rest();
                self.stand_by(sleeper, is_led && moves == seen);
                seen = moves;
                continue;
            }
            self.state.keeper.store(WATCHES, Ordering::SeqCst);
            // A thread that wants the lead takes it now; then the keeper is not needed.
            self.lead.call();
            let is_spinning = self.state.has_tasks.load(Ordering::Relaxed) && spin.goes_on();
            let next = self.drive(|worker| self.turn(worker, None, true, is_spinning, LONGEST));
            match (next, &self.files) {
                (Next::End, _) => self.end(),
                (Next::Busy, _) => spin.renew(is_spinning),
                (Next::Sleep(until_ns), Some(files)) => {
                    spin.end(false);
                    self.sleep(files, sleeper, until_ns);
                }
                _ => spin.pause(),
            }
        }
    }

    /// Sleeps while other threads lead: until woken if one leads all the time, else for a moment.
    fn stand_by(&self, sleeper: &Sleeper, is_long: bool) {
        self.state.keeper.store(if is_long { SLEEPS } else { LOOKS }, Ordering::SeqCst);
        if !is_long {
            sleeper.park(Instant::now().checked_add(KEEPER_LOOK));
        } else if !self.lead.is_there() {
            sleeper.park(None);
        }
    }

    /// Closes all links in order, for as long as that may take.
    fn end(&self) {
        let worker = self.worker.enter(Option::take);
        if let Some(worker) = worker {
            let ended = catch_unwind(AssertUnwindSafe(|| worker.leave()));
            if ended.is_err() {
                self.inbox.panic();
            }
        }
    }
}

/// Waits for a future, for at most `patience` if there is any, and drives the endpoint meanwhile
/// if nobody else does. Without an engine it only sleeps.
pub(crate) fn wait<F: Future>(
    engine: Option<&Arc<Engine>>,
    patience: Option<Duration>,
    future: F,
) -> Option<F::Output> {
    // A time that the clock cannot hold is no limit.
    let end = patience.and_then(|patience| Instant::now().checked_add(patience));
    let mut lead = pin!(engine.map(|engine| Taking::new(&engine.lead)));
    park::wait(end, pin!(future), |sleeper, cx| {
        if let Some(engine) = engine
            && let Some(files) = engine.files.as_ref().filter(|_| !engine.inbox.has_ended())
            && let Some(lead) = lead.as_mut().as_pin_mut()
            && let Poll::Ready(leader) = lead.poll(cx)
        {
            engine.lead(leader, (files, sleeper), end);
        } else {
            sleeper.park(end);
        }
    })
}

/// Waits for a future in an executor, which drives nothing itself.
pub(crate) async fn attended<F: Future>(engine: Option<&Arc<Engine>>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        if let (Some(engine), true) = (engine, polled.is_pending()) {
            engine.attend();
        }
        polled
    })
    .await
}

impl Driver for Engine {
    /// Sends what was posted, unless another thread does.
    fn nudge(&self) {
        let came_at = self.state.came_at_ns.load(Ordering::Relaxed);
        if came_at != 0 {
            self.state.came_at_ns.store(0, Ordering::Relaxed);
            let is_soon = self.now_ns().saturating_sub(came_at) < BRIEF_NS;
            self.state.is_answered.store(is_soon, Ordering::Relaxed);
        }
        if self.files.is_none() {
            // The keeper may sleep with the endpoint in its hands.
            return self.inbox.bell().ring();
        }
        self.worker.serve(|| self.has_work(), |worker| self.send_off(worker));
    }
}
