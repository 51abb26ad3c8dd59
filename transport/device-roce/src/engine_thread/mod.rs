//! A thread that drives a device, so that peers are served while the application is elsewhere.
//!
//! READs, WRITEs and atomics of RC need no work of the application that owns the memory, but a
//! software device moves packets only in [`progress`](Device::progress). [`EngineThread`] calls it,
//! and [`SharedDevice`] is the device for everybody else: one lock around the device, which the
//! thread leaves alone as long as somebody waits for it. Packets are moved under the lock, so the
//! application is at most one `progress` away from its turn.
//!
//! Who waits is woken by completions, not by packets: an application whose memory is read sleeps
//! on. What peers write becomes visible as with hardware: believe completions, not bytes.
//!
//! | file | what |
//! |---|---|
//! | here | the thread, and what it and the others tell each other |
//! | `shared` | the device for everybody else |
//! | `sleep` | what the thread sleeps on, and what ends the sleep of others |

mod shared;
mod sleep;

pub use shared::SharedDevice;

use sleep::{Ears, Nap, Sleeper};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_verbs::Device;
use towpath_wake::Rest;

/// Packets taken in before the lock is offered to the application.
const BUDGET: usize = 64;

/// How often the thread lets others have the lock before it insists on its turn: applications that
/// do nothing but poll must not keep their completions from coming.
const DEFERS_MAX: u32 = 16;

/// About a round trip, so that a peer in the middle of an exchange is answered at once.
const SPIN_DEFAULT: Nanos = Nanos::from_micros(50);

/// What a request may wait at a device that was idle, where the system does not tell of packets.
const SLEEP_DEFAULT: Duration = Duration::from_micros(50);

/// How the thread of a device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    spin: Nanos,
    sleep: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { spin: SPIN_DEFAULT, sleep: SLEEP_DEFAULT }
    }
}

impl EngineOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the thread looks on after the last packet before it sleeps. Default 50 us: about a
    /// round trip. A longer one takes more of a processor, and saves a wake-up (some 50 us) in what
    /// comes meanwhile.
    #[must_use]
    pub fn spin(mut self, spin: Nanos) -> Self {
        self.spin = spin;
        self
    }

    /// How long it sleeps at a time on a device that has no files to wait for, as one with faults:
    /// what a request may wait there. Zero never sleeps. Default 50 us.
    #[must_use]
    pub fn sleep(mut self, sleep: Duration) -> Self {
        self.sleep = sleep;
        self
    }
}

/// What the thread and the others tell each other.
#[derive(Debug, Default)]
struct Signals {
    /// How many want the lock, the thread left out.
    waiting: AtomicUsize,
    /// How often something happened that may have made completions; changes only under the lock.
    moves: AtomicU64,
    /// How many of the others sleep until there may be completions, or are about to.
    resting: AtomicUsize,
    /// The thread sleeps, or looks for the last time before it does.
    rest: Rest,
    stops: AtomicBool,
}

struct Shared<D> {
    device: Mutex<D>,
    /// Who may sleep until there are new completions: each handle that ever did.
    sleepers: Mutex<Vec<Weak<Sleeper>>>,
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
        if self.signals.resting.load(Ordering::SeqCst) > 0 {
            self.rouse();
        }
    }

    /// Somebody may sleep from now on.
    fn expect(&self, ears: &Ears) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.retain(|sleeper| sleeper.strong_count() > 0);
        sleepers.push(Arc::downgrade(&ears.sleeper));
    }

    #[cold]
    fn rouse(&self) {
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.iter().filter_map(Weak::upgrade).for_each(|sleeper| sleeper.rouse());
    }
}

impl<D: Device> Shared<D> {
    /// Moves packets, and tells of completions; returns how many packets moved, and whether there
    /// may be completions.
    fn progress(&self, mut device: MutexGuard<'_, D>, budget: usize) -> (usize, bool) {
        let (before, was_due) = (device.completions_made(), is_due(&*device));
        let moved = device.progress(budget);
        let has_news = match before {
            Some(_) => device.completions_made() != before,
            None => moved > 0 || was_due,
        };
        if has_news {
            self.tell(device);
        }
        (moved + usize::from(was_due), has_news)
    }
}

/// The thread that drives a device. Dropping it stops it, as [`stop`](Self::stop) does.
#[derive(Debug)]
#[must_use = "dropping it stops the thread"]
pub struct EngineThread {
    thread: Option<JoinHandle<()>>,
    signals: Arc<Signals>,
    waker: Waker,
}

impl EngineThread {
    /// Starts to drive `device`. For a thread that ends with the last handle of the device, see
    /// [`SharedDevice::spawn`].
    ///
    /// # Errors
    /// When the system has no thread to give, or no files.
    pub fn spawn<D: Device + Send + 'static>(device: D) -> io::Result<(Self, SharedDevice<D>)> {
        Self::spawn_with(device, EngineOptions::new())
    }

    /// As [`spawn`](Self::spawn), with other options.
    ///
    /// # Errors
    /// As there.
    pub fn spawn_with<D: Device + Send + 'static>(
        mut device: D,
        options: EngineOptions,
    ) -> io::Result<(Self, SharedDevice<D>)> {
        let nap = Nap::for_device(&mut device)?;
        let waker = nap.waker();
        let signals = Arc::new(Signals::default());
        let handle = SharedDevice::new(device, Arc::clone(&signals), waker.clone());
        let driven = handle.shared();
        let thread = std::thread::Builder::new()
            .name("towpath-engine".into())
            .spawn(move || drive(&driven, nap, options))?;
        Ok((Self { thread: Some(thread), signals, waker }, handle))
    }

    /// Stops the thread and waits until it is gone. The device stays with its [`SharedDevice`]s,
    /// whose `progress` drives it from then on.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.signals.stops.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            self.waker.wake_by_ref();
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

fn drive<D: Device>(shared: &Shared<D>, mut nap: Nap, options: EngineOptions) {
    let signals = &*shared.signals;
    let (mut busy_at, mut now, mut defers) = (Time(0), Time(0), 0);
    while !signals.stops.load(Ordering::SeqCst) {
        if signals.waiting.load(Ordering::SeqCst) > 0 && defers < DEFERS_MAX {
            defers += 1;
            std::thread::yield_now();
            continue;
        }
        defers = 0;
        // Said before the last look: whoever posts after it rings the bell.
        let is_idle = now.since(busy_at) >= options.spin;
        if is_idle {
            signals.rest.begin();
        } else {
            signals.rest.end();
        }
        let device = shared.device.lock().unwrap_or_else(PoisonError::into_inner);
        now = device.now();
        if shared.progress(device, BUDGET).0 > 0 {
            busy_at = now;
            continue;
        }
        if !is_idle {
            std::thread::yield_now();
            continue;
        }
        let mut device = shared.device.lock().unwrap_or_else(PoisonError::into_inner);
        // What is there already is told now, and what comes later by the files.
        if nap.has_files() && device.wait(Nanos::ZERO) {
            continue;
        }
        let due = Duration::from(device.next_timeout().since(device.now()));
        drop(device);
        nap.sleep(due, options.sleep);
    }
}
