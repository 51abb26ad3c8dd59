//! How a thread sleeps that waits for something.

use crate::limits::KEEPER_LOOK;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use towpath_transport::for_handles::Bell;

/// A thread that waits: parked, or looking after an endpoint.
pub(crate) struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
    /// It watches the files of an endpoint, and one of its own: a bell that several watch may be
    /// heard by another one.
    is_watching: AtomicBool,
    own: OnceLock<Waker>,
    /// What ends its sleep in an endpoint that has no files.
    bell: Mutex<Option<Arc<Bell>>>,
}

thread_local! {
    static OWN: RefCell<Option<towpath_wake::Bell>> = const { RefCell::new(None) };
    static SLEEPER: Arc<Sleeper> = Arc::new(Sleeper::new());
    /// This thread polls a future that it waits for itself.
    static IS_WAITING: Cell<bool> = const { Cell::new(false) };
}

impl Sleeper {
    fn new() -> Self {
        let (is_woken, is_watching, own, bell) = Default::default();
        Self { thread: thread::current(), is_woken, is_watching, own, bell }
    }

    /// That of this thread. A thread that ends has no place for it any more.
    pub(crate) fn current() -> Arc<Self> {
        SLEEPER.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Self::new()))
    }

    /// Looks at what is waited for: what comes from here on wakes this thread.
    pub(crate) fn look<T>(&self, look: impl FnOnce() -> T) -> T {
        self.is_woken.store(false, Ordering::SeqCst);
        let outer = IS_WAITING.replace(true);
        let found = look();
        IS_WAITING.set(outer);
        found
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }

    /// It looks after an endpoint that has no files from here on, until `None`.
    pub(crate) fn set_bell(&self, bell: Option<Arc<Bell>>) {
        *self.bell.lock().unwrap_or_else(PoisonError::into_inner) = bell;
    }

    /// Sleeps for so long until there is something at `files`, or it is woken.
    pub(crate) fn watch(&self, files: &OwnedFd, span: Duration) {
        let watched = OWN.try_with(|own| {
            let mut own = own.borrow_mut();
            if own.is_none() {
                *own = towpath_wake::Bell::new().ok();
            }
            // Without a file of its own it looks up now and then.
            let most = if own.is_some() { Duration::MAX } else { KEEPER_LOOK };
            let limit = Timespec::try_from(span.min(most)).ok();
            let of_device = PollFd::new(files, PollFlags::IN);
            self.is_watching.store(true, Ordering::SeqCst);
            if let Some(own) = &*own {
                self.own.get_or_init(|| own.waker());
            }
            if !self.is_woken() {
                // What interrupts it is looked at as what ends it.
                let _ = match &*own {
                    Some(own) => {
                        let own = PollFd::new(own, PollFlags::IN);
                        poll(&mut [of_device, own], limit.as_ref())
                    }
                    None => poll(&mut [of_device], limit.as_ref()),
                };
            }
            self.is_watching.store(false, Ordering::SeqCst);
            if let Some(own) = &mut *own {
                own.clear();
            }
        });
        if watched.is_err() {
            // The thread ends, and has no place for a file.
            thread::sleep(span.min(KEEPER_LOOK));
        }
    }

    /// Sleeps until it is woken, or `end`.
    pub(crate) fn park(&self, end: Option<Instant>) {
        if !self.is_woken() {
            match end {
                None => thread::park(),
                Some(end) => thread::park_timeout(end.saturating_duration_since(Instant::now())),
            }
        }
    }

    /// The wait is over. One that goes on around it looks once more.
    pub(crate) fn end(&self) {
        self.is_woken.store(true, Ordering::SeqCst);
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        // A thread that wakes itself is awake.
        if self.thread.id() == thread::current().id() {
            return;
        }
        if self.is_watching.load(Ordering::SeqCst)
            && let Some(own) = self.own.get()
        {
            return own.wake_by_ref();
        }
        match &*self.bell.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(bell) => bell.ring(),
            None => self.thread.unpark(),
        }
    }
}

/// Waits for a future until `end`.
pub(crate) fn wait<F: Future>(end: Option<Instant>, mut future: Pin<&mut F>) -> Option<F::Output> {
    let sleeper = Sleeper::current();
    let waker = waker(&sleeper);
    let cx = &mut Context::from_waker(&waker);
    let output = loop {
        if let Poll::Ready(output) = sleeper.look(|| future.as_mut().poll(cx)) {
            break Some(output);
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            break None;
        }
        sleeper.park(end);
    };
    sleeper.end();
    output
}

/// Whether this thread itself waits for what it polls, and no executor does.
pub(crate) fn is_waiting() -> bool {
    IS_WAITING.try_with(Cell::get).unwrap_or(false)
}

/// The waker of a thread that waits.
pub(crate) fn waker(sleeper: &Arc<Sleeper>) -> Waker {
    Waker::from(Arc::clone(sleeper))
}
