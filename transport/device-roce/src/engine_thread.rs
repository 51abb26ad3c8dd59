//! A thread that drives a device, so that peers are served while the application is elsewhere.
//!
//! READs, WRITEs and atomics of RC need no work of the application that owns the memory, but a
//! software device moves packets only in [`progress`](Device::progress). [`EngineThread`] calls it,
//! and [`SharedDevice`] is the device for everybody else: one lock around the device, which the
//! thread leaves alone as long as somebody waits for it. Packets are moved under the lock, so the
//! application is at most one `progress` away from its turn.
//!
//! What peers write becomes visible as with hardware: believe completions, not bytes.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_verbs::{
    Access, AsyncEvent, BadWr, Connect, CqNum, Device, DeviceCaps, Memory, MrKeys, PathMtu, PdNum,
    QpInit, QpNum, QpState, QueueLimits, RecvWr, SendWr, SrqNum, VerbError, Wc,
};

/// Packets taken in before the lock is offered to the application.
const BUDGET: usize = 64;

/// Rounds without a packet before the thread sleeps: some ten microseconds, which is about a round
/// trip, so that a peer in the middle of an exchange is answered at once.
const IDLE_ROUNDS: u32 = 64;

/// How often the thread lets others have the lock before it insists on its turn: applications that
/// do nothing but poll must not keep their completions from coming.
const DEFERS_MAX: u32 = 16;

/// How long the thread sleeps at most unless told otherwise.
const SLEEP_DEFAULT: Duration = Duration::from_micros(50);

/// What the thread and the others tell each other.
#[derive(Debug, Default)]
struct Signals {
    /// How many want the lock, the thread left out.
    waiting: AtomicUsize,
    /// How often something happened that may have made completions; changes only under the lock.
    moves: AtomicU64,
    /// The thread sleeps, or looks for the last time before it does.
    sleeps: AtomicBool,
    stops: AtomicBool,
}

struct Shared<D> {
    device: Mutex<D>,
    /// Notified when there may be new completions.
    moved: Condvar,
    signals: Arc<Signals>,
}

impl<D> Shared<D> {
    fn lock(&self) -> MutexGuard<'_, D> {
        self.signals.waiting.fetch_add(1, Ordering::SeqCst);
        let device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        self.signals.waiting.fetch_sub(1, Ordering::SeqCst);
        device
    }

    /// Gives the lock back, and tells those who wait that there may be completions.
    fn tell(&self, device: MutexGuard<'_, D>) {
        self.signals.moves.fetch_add(1, Ordering::SeqCst);
        drop(device);
        self.moved.notify_all();
    }
}

/// The thread that drives a device. Dropping it stops it, as [`stop`](Self::stop) does.
#[derive(Debug)]
#[must_use = "dropping it stops the thread"]
pub struct EngineThread {
    thread: Option<JoinHandle<()>>,
    signals: Arc<Signals>,
}

impl EngineThread {
    /// Starts to drive `device`.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn spawn<D: Device + Send + 'static>(device: D) -> io::Result<(Self, SharedDevice<D>)> {
        Self::spawn_with(device, SLEEP_DEFAULT)
    }

    /// As [`spawn`](Self::spawn), with the longest time that the thread sleeps when nothing moves:
    /// what a request may wait at a device that was idle. Zero never sleeps and takes a whole core.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn spawn_with<D: Device + Send + 'static>(
        device: D,
        sleep: Duration,
    ) -> io::Result<(Self, SharedDevice<D>)> {
        let caps = DeviceCaps { arrives_in_progress: false, ..*device.caps() };
        let limits = device.queue_limits();
        let local_addr = device.local_addr();
        let signals = Arc::new(Signals::default());
        let shared = Arc::new(Shared {
            device: Mutex::new(device),
            moved: Condvar::new(),
            signals: Arc::clone(&signals),
        });
        let driven = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("towpath-engine".into())
            .spawn(move || drive(&driven, sleep))?;
        let driver = thread.thread().clone();
        let shared =
            SharedDevice { shared, driver, caps, limits, local_addr, seen: 0, has_polled: false };
        Ok((Self { thread: Some(thread), signals }, shared))
    }

    /// Stops the thread and waits until it is gone. The device stays with its [`SharedDevice`]s,
    /// whose `progress` drives it from then on.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.signals.stops.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread was printed where it happened; the lock outlives it.
            let _ = thread.join();
        }
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a timer will end work requests, or send them again, though no packet comes in.
fn is_due(device: &impl Device) -> bool {
    let at = device.next_timeout();
    at != Time::NEVER && at <= device.now()
}

fn drive<D: Device>(shared: &Shared<D>, sleep: Duration) {
    let signals = &*shared.signals;
    let (mut idle_rounds, mut defers) = (0, 0);
    while !signals.stops.load(Ordering::SeqCst) {
        if signals.waiting.load(Ordering::SeqCst) > 0 && defers < DEFERS_MAX {
            defers += 1;
            std::thread::yield_now();
            continue;
        }
        defers = 0;
        // Said before the last look: whoever posts after it rings the bell.
        let is_idle = idle_rounds >= IDLE_ROUNDS;
        signals.sleeps.store(is_idle, Ordering::SeqCst);
        let mut device = shared.device.lock().unwrap_or_else(PoisonError::into_inner);
        let was_due = is_due(&*device);
        if device.progress(BUDGET) > 0 || was_due {
            shared.tell(device);
            idle_rounds = 0;
            continue;
        }
        let due = Duration::from(device.next_timeout().since(device.now()));
        drop(device);
        idle_rounds = (idle_rounds + 1).min(IDLE_ROUNDS);
        let span = sleep.min(due);
        if is_idle && !span.is_zero() {
            std::thread::park_timeout(span);
        } else {
            std::thread::yield_now();
        }
    }
}

/// A device that an [`EngineThread`] drives too. Clones are the same device; each call takes its
/// lock, so one thread that posts and polls in batches does best.
pub struct SharedDevice<D> {
    shared: Arc<Shared<D>>,
    driver: Thread,
    caps: DeviceCaps,
    limits: QueueLimits,
    local_addr: SocketAddr,
    /// The moves when completions were polled here for the first time since the last wait.
    seen: u64,
    /// They were.
    has_polled: bool,
}

impl<D> Clone for SharedDevice<D> {
    fn clone(&self) -> Self {
        let (shared, driver) = (Arc::clone(&self.shared), self.driver.clone());
        Self { shared, driver, ..*self }
    }
}

impl<D> std::fmt::Debug for SharedDevice<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedDevice").field("local_addr", &self.local_addr).finish()
    }
}

impl<D: Device> SharedDevice<D> {
    /// Lends the device itself, for what verbs do not know: counters, the link.
    pub fn with<R>(&self, work: impl FnOnce(&mut D) -> R) -> R {
        work(&mut self.shared.lock())
    }

    /// Rings the bell after something was posted.
    fn wake(&self) {
        if self.shared.signals.sleeps.load(Ordering::SeqCst) {
            self.driver.unpark();
        }
    }
}

impl<D: Device> Device for SharedDevice<D> {
    type Memory = D::Memory;

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn queue_limits(&self) -> QueueLimits {
        self.limits
    }

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    fn path_mtu(&self, dest: Option<SocketAddr>) -> PathMtu {
        self.shared.lock().path_mtu(dest)
    }

    fn packets_too_long(&self) -> u64 {
        self.shared.lock().packets_too_long()
    }

    fn now(&self) -> Time {
        self.shared.lock().now()
    }

    fn alloc_pd(&mut self) -> Result<PdNum, VerbError> {
        self.shared.lock().alloc_pd()
    }

    fn dealloc_pd(&mut self, pd: PdNum) -> Result<(), VerbError> {
        self.shared.lock().dealloc_pd(pd)
    }

    fn reg_mr(
        &mut self,
        pd: PdNum,
        memory: &Self::Memory,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        self.shared.lock().reg_mr(pd, memory, access)
    }

    fn reg_shared_mr(
        &mut self,
        pd: PdNum,
        memory: &<Self::Memory as Memory>::Shared,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        self.shared.lock().reg_shared_mr(pd, memory, range, access)
    }

    fn dereg_mr(&mut self, lkey: u32) -> Result<(), VerbError> {
        self.shared.lock().dereg_mr(lkey)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        self.shared.lock().create_cq(depth)
    }

    fn create_srq(&mut self, depth: u32) -> Result<SrqNum, VerbError> {
        self.shared.lock().create_srq(depth)
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        self.shared.lock().create_qp(init)
    }

    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        self.shared.lock().connect_qp(qp_num, connect)
    }

    fn modify_qp(&mut self, qp_num: QpNum, state: QpState) -> Result<(), VerbError> {
        let mut device = self.shared.lock();
        let modified = device.modify_qp(qp_num, state);
        self.shared.tell(device);
        modified
    }

    fn set_source_port(&mut self, qp_num: QpNum, source_port: u16) -> Result<(), VerbError> {
        self.shared.lock().set_source_port(qp_num, source_port)
    }

    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError> {
        self.shared.lock().qp_state(qp_num)
    }

    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        let mut device = self.shared.lock();
        let destroyed = device.destroy_qp(qp_num);
        self.shared.tell(device);
        destroyed
    }

    fn post_send<const N: usize>(&mut self, qp_num: QpNum, wrs: &[SendWr<N>]) -> Result<(), BadWr> {
        let posted = self.shared.lock().post_send(qp_num, wrs);
        self.wake();
        posted
    }

    fn post_recv(&mut self, qp_num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        self.shared.lock().post_recv(qp_num, wrs)
    }

    fn post_srq_recv(&mut self, srq: SrqNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        self.shared.lock().post_srq_recv(srq, wrs)
    }

    /// Moves packets here and now, beside what the thread moves.
    fn progress(&mut self, budget: usize) -> usize {
        let mut device = self.shared.lock();
        let was_due = is_due(&*device);
        let moved = device.progress(budget);
        if moved > 0 || was_due {
            self.shared.tell(device);
        }
        moved
    }

    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        let mut device = self.shared.lock();
        // The first of several queues counts: what comes meanwhile may be for that one.
        if !std::mem::replace(&mut self.has_polled, true) {
            self.seen = self.shared.signals.moves.load(Ordering::SeqCst);
        }
        device.poll_cq(cq, out)
    }

    /// Blocks until there may be completions that polling through this handle since the last wait
    /// did not find, or `timeout` is over; true in the first case.
    fn wait(&mut self, timeout: Nanos) -> bool {
        self.has_polled = false;
        let (device, moves) = (self.shared.lock(), &self.shared.signals.moves);
        let idle = |_: &mut D| moves.load(Ordering::SeqCst) == self.seen;
        let waited = self.shared.moved.wait_timeout_while(device, timeout.into(), idle);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.shared.lock().poll_async_event()
    }
}
