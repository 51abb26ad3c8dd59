//! How a thread waits for something, and sleeps meanwhile.

use crate::limits::KEEPER_LOOK;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use towpath_wake::Bell;

/// A thread that waits: it is parked, or watches the files of an endpoint.
pub(crate) struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
    /// It watches the files of an endpoint, and a bell of its own: a bell that several threads
    /// watch may be heard by another one.
    is_watching: AtomicBool,
    own: OnceLock<Waker>,
}

thread_local! {
    static OWN: RefCell<Option<Bell>> = const { RefCell::new(None) };
    static SLEEPER: Arc<Sleeper> = Arc::new(Sleeper::new());
    /// This thread polls a future that it waits for itself.
    static IS_WAITING: Cell<bool> = const { Cell::new(false) };
}

impl Sleeper {
    fn new() -> Self {
        let (is_woken, is_watching, own) = Default::default();
        Self { thread: thread::current(), is_woken, is_watching, own }
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

    /// Sleeps for so long, until there is something at `files`, or until it is woken.
    pub(crate) fn watch(&self, files: &OwnedFd, span: Duration) {
        let watched = OWN.try_with(|own| {
            let own = &mut *own.borrow_mut();
            if own.is_none() {
                *own = Bell::new().ok();
            }
            let Some(own) = own else { return false };
            self.own.get_or_init(|| own.waker());
            self.is_watching.store(true, Ordering::SeqCst);
            if !self.is_woken() {
                let limit = Timespec::try_from(span).ok();
                let files =
                    &mut [PollFd::new(files, PollFlags::IN), PollFd::new(own, PollFlags::IN)];
                // An interrupted sleep is one that has ended.
                let _ = poll(files, limit.as_ref());
            }
            self.is_watching.store(false, Ordering::SeqCst);
            own.clear();
            true
        });
        if watched != Ok(true) {
            // The system has no file left, or the thread ends: it looks up now and then.
            thread::park_timeout(span.min(KEEPER_LOOK));
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
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        // A thread that wakes itself is awake.
        if self.thread.id() != thread::current().id() {
            match self.own.get() {
                Some(own) if self.is_watching.load(Ordering::SeqCst) => own.wake_by_ref(),
                _ => self.thread.unpark(),
            }
        }
    }
}

/// Waits for a future until `end`; `pass` sleeps until the sleeper is woken, or looks again.
pub(crate) fn wait<F: Future>(
    end: Option<Instant>,
    mut future: Pin<&mut F>,
    mut pass: impl FnMut(&Sleeper, &mut Context<'_>),
) -> Option<F::Output> {
    let sleeper = Sleeper::current();
    let waker = Waker::from(Arc::clone(&sleeper));
    let cx = &mut Context::from_waker(&waker);
    let output = loop {
        if let Poll::Ready(output) = sleeper.look(|| future.as_mut().poll(cx)) {
            break Some(output);
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            break None;
        }
        pass(&sleeper, cx);
    };
    // A wait of this thread that goes on around this one looks once more.
    sleeper.is_woken.store(true, Ordering::SeqCst);
    output
}

/// Whether this thread itself waits for what it polls, and no executor does.
pub(crate) fn is_waiting() -> bool {
    IS_WAITING.try_with(Cell::get).unwrap_or(false)
}
