//! Who drives an endpoint: whoever waits for something of it, else a thread of its own.
//!
//! Of the threads that wait one leads: it takes in what comes, wakes those whom it concerns, and
//! sleeps on the sockets. Each of the others sleeps until its own thing has come, or the lead is
//! free. Whoever posts something sends it itself, unless another thread is at the endpoint in that
//! very moment, which then does. So no message passes from thread to thread on its way.
//!
//! The keeper is a thread that looks after the endpoint while nobody leads. A thread whose wait is
//! over mostly comes back soon, with the answer: it then leaves the lead without a word, and the
//! keeper, which looks about twice in a millisecond while that goes on, takes over only from one
//! who has not come back. The acknowledgement of what the thread waited for can ride on that
//! answer.

use crate::commands::Command;
use crate::doorbell::Doorbell;
use crate::limits::{BRIEF_NS, KEEPER_LOOK, WORKER_BLOCK_NS, WORKER_SLEEP_NS};
use crate::park::{self, Sleeper};
use crate::spin::{Spin, Spinning};
use crate::worker::Drive;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};
use towpath_wake::{Awaited, Lead, Serving, Taking};

/// What the keeper does.
const WATCHES: u8 = 0;
const LOOKS: u8 = 1;
const SLEEPS: u8 = 2;

type Worker = Option<Box<dyn Drive>>;

/// An endpoint that its handles drive.
pub(crate) struct Engine {
    worker: Serving<Worker>,
    doorbell: Arc<Doorbell>,
    commands: crossbeam_channel::Sender<Command>,
    /// What a thread sleeps on that does not keep the endpoint meanwhile; none where the device has
    /// no files.
    files: Option<OwnedFd>,
    lead: Lead,
    /// Changes with each thread that leads, or ends to.
    moves: AtomicU64,
    /// Posts since somebody last slept.
    posts: AtomicU64,
    /// Until when who watches the files sleeps, in nanoseconds since the start; zero while nobody
    /// does.
    wakes_at_ns: AtomicU64,
    start: Instant,
    /// When the last one that led went.
    left_at_ns: AtomicU64,
    /// How long the one before was away.
    away_ns: AtomicU64,
    /// Executors wait, which drive nothing themselves.
    has_tasks: AtomicBool,
    /// When the keeper last told anybody of what came; zero once that was answered.
    told_at_ns: AtomicU64,
    /// What it told before was answered at once.
    is_answered: AtomicBool,
    /// The keeper is to watch, whoever was here of late.
    is_called: AtomicBool,
    keeper: AtomicU8,
    sleeper: OnceLock<Arc<Sleeper>>,
    spin: Spin,
}

/// What one that drives the endpoint does next.
enum Next {
    Again,
    /// For so long, which is until then, in nanoseconds since the start.
    Sleep(Duration, u64),
    Leave,
}

impl Engine {
    pub(crate) fn new(
        worker: Box<dyn Drive>,
        files: Option<OwnedFd>,
        (doorbell, commands): (&Arc<Doorbell>, &crossbeam_channel::Sender<Command>),
        spin: Duration,
    ) -> Self {
        Self {
            worker: Serving::new(Some(worker)),
            doorbell: Arc::clone(doorbell),
            commands: commands.clone(),
            files,
            lead: Lead::default(),
            moves: AtomicU64::new(0),
            posts: AtomicU64::new(0),
            wakes_at_ns: AtomicU64::new(0),
            start: Instant::now(),
            left_at_ns: AtomicU64::new(0),
            away_ns: AtomicU64::new(0),
            has_tasks: AtomicBool::new(false),
            told_at_ns: AtomicU64::new(0),
            is_answered: AtomicBool::new(false),
            is_called: AtomicBool::new(true),
            keeper: AtomicU8::new(LOOKS),
            sleeper: OnceLock::new(),
            spin: Spin::new(spin),
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Waits for a future until `end`, and drives the endpoint meanwhile if nobody else does.
    pub(crate) fn wait<F: Future>(
        &self,
        end: Option<Instant>,
        mut future: Pin<&mut F>,
    ) -> Option<F::Output> {
        let sleeper = Sleeper::current();
        let waker = park::waker(&sleeper);
        let cx = &mut Context::from_waker(&waker);
        let mut lead = pin!(Taking::new(&self.lead));
        let output = loop {
            if let Poll::Ready(output) = sleeper.look(|| future.as_mut().poll(cx)) {
                break Some(output);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                break None;
            }
            if self.doorbell.has_ended() {
                sleeper.park(end);
                continue;
            }
            match lead.as_mut().poll(cx) {
                Poll::Ready(leader) => self.lead(leader, &sleeper, end),
                Poll::Pending => sleeper.park(end),
            }
        };
        sleeper.end();
        output
    }

    /// Drives the endpoint until the sleeper is woken, or `end`.
    fn lead(&self, leader: usize, sleeper: &Sleeper, end: Option<Instant>) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        self.note_return();
        if self.files.is_none() {
            // The keeper may sleep with the endpoint in its hands.
            self.doorbell.wake();
            sleeper.set_bell(Some(Arc::clone(self.doorbell.bell())));
        }
        let mut spin = self.spin.begin();
        // Most find nothing when they come: whether there is anything the files say, too.
        let mut looks = spin.goes_on() || self.files.is_none();
        loop {
            let is_spinning = spin.goes_on();
            let most = end.map(|end| end.saturating_duration_since(Instant::now()));
            let next = self.drive(|worker| {
                let is_busy = std::mem::replace(&mut looks, true) && worker.take_in();
                if sleeper.is_woken() {
                    // Else acks ride on the answer.
                    if self.away_ns.load(Ordering::Relaxed) >= BRIEF_NS {
                        worker.send_off();
                    }
                    return Next::Leave;
                }
                if is_busy && self.files.is_some() {
                    self.lead.has_nothing();
                }
                let is_busy = worker.send_off() | is_busy;
                if is_busy || is_spinning { Next::Again } else { self.rest(worker, most) }
            });
            match next {
                Next::Leave => break,
                Next::Again => spin.pause(),
                Next::Sleep(span, until_ns) if !self.has_work() => {
                    self.sleep(sleeper, span, until_ns);
                }
                Next::Sleep(..) => {}
            }
            if most.is_some_and(|most| most.is_zero()) || !self.lead.is_of(leader) {
                break;
            }
        }
        spin.end(sleeper.is_woken());
        sleeper.set_bell(None);
        if self.lead.is_of(leader) {
            self.left_at_ns.store(self.now_ns(), Ordering::Relaxed);
            self.release(leader);
        }
        self.serve_rest();
    }

    /// How long the last one that led was away says how long the next one will be.
    fn note_return(&self) {
        let left_at = self.left_at_ns.swap(0, Ordering::Relaxed);
        if left_at != 0 {
            self.away_ns.store(self.now_ns().saturating_sub(left_at), Ordering::Relaxed);
        }
    }

    /// Gives the lead up: to who waits for it or to the keeper, unless the caller comes back soon.
    fn release(&self, leader: usize) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        let away_ns = self.away_ns.load(Ordering::Relaxed);
        let is_alone = self.lead.is_alone();
        let most_ns = if is_alone { KEEPER_LOOK.as_nanos() as u64 } else { BRIEF_NS };
        let comes_back = away_ns < most_ns
            && !self.has_tasks.load(Ordering::Relaxed)
            && !self.doorbell.has_ended();
        if comes_back {
            self.lead.leave(leader);
        } else if !self.lead.pass(leader) {
            self.is_called.store(true, Ordering::SeqCst);
        }
        if self.is_called.load(Ordering::SeqCst) || self.keeper.load(Ordering::SeqCst) != LOOKS {
            self.wake_keeper();
        }
    }

    fn wake_keeper(&self) {
        if self.files.is_none() {
            self.doorbell.bell().ring();
        }
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.wake_by_ref();
        }
    }

    /// What was posted, or asked for, is waiting for somebody who takes it.
    fn has_work(&self) -> bool {
        !(self.doorbell.has_ended() || self.doorbell.is_empty() && self.commands.is_empty())
    }

    /// Somebody may have posted who found the endpoint in the caller's hands.
    fn serve_rest(&self) {
        if self.has_work() {
            self.nudge();
        }
    }

    /// Something was left for the endpoint: sends it off, unless another thread does.
    pub(crate) fn nudge(&self) {
        self.posts.fetch_add(1, Ordering::Relaxed);
        let told_at = self.told_at_ns.load(Ordering::Relaxed);
        if told_at != 0 {
            self.told_at_ns.store(0, Ordering::Relaxed);
            let is_answer = self.now_ns().saturating_sub(told_at) < BRIEF_NS;
            self.is_answered.store(is_answer, Ordering::Relaxed);
        }
        let is_served = self.worker.serve(|| self.has_work(), |worker| self.send_off(worker));
        if !is_served && self.files.is_none() {
            // Who is there may sleep there.
            self.doorbell.bell().ring();
        }
    }

    fn send_off(&self, worker: &mut Worker) {
        let sent = self.guarded(worker, |worker| {
            worker.send_off();
            (self.due_ns(worker), worker.is_over())
        });
        let Some((due_ns, is_over)) = sent else { return };
        if is_over {
            self.is_called.store(true, Ordering::SeqCst);
            self.wake_keeper();
        } else if due_ns < self.wakes_at_ns.load(Ordering::Relaxed) {
            // Timers come sooner now than who watches wakes.
            self.doorbell.wake();
        }
    }

    /// When the endpoint has something to do at the latest.
    fn due_ns(&self, worker: &dyn Drive) -> u64 {
        match worker.time_left() {
            None => u64::MAX,
            Some(left) => self.now_ns().saturating_add(left.as_nanos() as u64),
        }
    }

    /// Works at the endpoint. Where it has ended there is nothing to do any more.
    fn drive(&self, work: impl FnOnce(&mut dyn Drive) -> Next) -> Next {
        self.worker.enter(|worker| self.guarded(worker, work)).unwrap_or(Next::Leave)
    }

    /// A worker that panics is gone; whoever waits for it is told.
    fn guarded<R>(&self, worker: &mut Worker, work: impl FnOnce(&mut dyn Drive) -> R) -> Option<R> {
        let driven = worker.as_mut()?;
        match catch_unwind(AssertUnwindSafe(|| work(driven.as_mut()))) {
            Ok(done) => Some(done),
            Err(_) => {
                self.doorbell.panic();
                *worker = None;
                self.is_called.store(true, Ordering::SeqCst);
                self.wake_keeper();
                None
            }
        }
    }

    /// There is nothing to do: how long the files may be watched. Sleeps at once where there are
    /// none.
    fn rest(&self, worker: &mut dyn Drive, most: Option<Duration>) -> Next {
        let longest = if self.posts.swap(0, Ordering::Relaxed) > 0 {
            // Others may post again, and timers come sooner then: who looks up now and then need
            // not be woken for each.
            KEEPER_LOOK
        } else if self.doorbell.bell().is_heard() {
            Duration::from_nanos(WORKER_SLEEP_NS)
        } else {
            Duration::from_nanos(WORKER_BLOCK_NS)
        };
        let most = most.unwrap_or(longest).min(longest);
        if self.files.is_none() {
            worker.block(most);
            return Next::Again;
        }
        let span = worker.prepare(most);
        if span.is_zero() { Next::Again } else { self.until_in(span) }
    }

    /// To sleep for so long. Whoever posts from here on knows of it.
    fn until_in(&self, span: Duration) -> Next {
        let until_ns = self.now_ns().saturating_add(span.as_nanos() as u64);
        self.wakes_at_ns.store(until_ns, Ordering::SeqCst);
        Next::Sleep(span, until_ns)
    }

    /// Sleeps on the files.
    fn sleep(&self, sleeper: &Sleeper, span: Duration, until_ns: u64) {
        if let Some(files) = &self.files {
            sleeper.watch(files, span);
        }
        // Another one may have come to watch since.
        let (told, awake) = (&self.wakes_at_ns, Ordering::SeqCst);
        let _ = told.compare_exchange(until_ns, 0, awake, awake);
    }

    /// An executor waits: somebody must look after the endpoint.
    #[inline]
    pub(crate) fn attend(&self) {
        if !self.has_tasks.swap(true, Ordering::SeqCst)
            || self.keeper.load(Ordering::SeqCst) != WATCHES && self.lead.is_there()
        {
            self.is_called.store(true, Ordering::SeqCst);
            self.wake_keeper();
        }
    }

    /// The life of the keeper: until the endpoint ends.
    pub(crate) fn keep(&self) {
        let sleeper = self.sleeper.get_or_init(Sleeper::current);
        let (mut seen, mut spin) = (0, None);
        while !self.doorbell.is_gone() {
            sleeper.look(|| ());
            let moves = self.moves.load(Ordering::SeqCst);
            let is_led = !self.lead.is_there();
            let is_called = self.is_called.swap(false, Ordering::SeqCst);
            if !is_called && (is_led || moves != seen) {
                self.serve_rest();
                self.stand_by(sleeper, is_led && moves == seen);
                seen = moves;
                continue;
            }
            self.keeper.store(WATCHES, Ordering::SeqCst);
            // Who wants the lead is told to take it; then this one is not needed.
            self.lead.call();
            match self.drive(|worker| self.look(worker, &mut spin)) {
                Next::Leave => self.end(),
                Next::Sleep(span, until_ns) if !self.has_work() => {
                    self.sleep(sleeper, span, until_ns);
                }
                _ => spin.iter_mut().for_each(Spinning::pause),
            }
        }
    }

    /// One turn of the keeper.
    fn look<'a>(&'a self, worker: &mut dyn Drive, spin: &mut Option<Spinning<'a>>) -> Next {
        let has_come = worker.take_in();
        if has_come {
            if let Some(spin) = spin.take() {
                spin.end(true);
            }
            self.told_at_ns.store(self.now_ns(), Ordering::Relaxed);
            if self.files.is_some() && self.is_answered.swap(false, Ordering::Relaxed) {
                // Acks ride on the answer.
                return self.until_in(Duration::from_nanos(BRIEF_NS / 2));
            }
        }
        let is_busy = worker.send_off() | has_come;
        if worker.is_over() {
            return Next::Leave;
        }
        let has_tasks = self.has_tasks.load(Ordering::Relaxed);
        let is_spinning = has_tasks && spin.get_or_insert_with(|| self.spin.begin()).goes_on();
        if is_busy || is_spinning { Next::Again } else { self.rest(worker, None) }
    }

    /// Sleeps while others lead: until told if one of them leads all the time, else for a moment.
    fn stand_by(&self, sleeper: &Sleeper, is_long: bool) {
        self.keeper.store(if is_long { SLEEPS } else { LOOKS }, Ordering::SeqCst);
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
                self.doorbell.panic();
            }
        }
    }
}
