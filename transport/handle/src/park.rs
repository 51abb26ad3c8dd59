//! Blocking a thread until a future is ready: how every call that blocks waits.

use std::hint::spin_loop;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// So often a thread looks before it sleeps.
const LOOKS: u32 = 11;

/// After the first so many looks it pauses, each time for twice as long; then it lets others run.
const PAUSES: u32 = 7;

/// Wakes the thread that it is of.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(Sleeper(thread::current())));
}

/// The waker of this thread. One that ends has no place for it any more.
fn waker() -> Waker {
    WAKER.try_with(Waker::clone).unwrap_or_else(|_| Arc::new(Sleeper(thread::current())).into())
}

/// Looks a few times, with pauses of some microseconds in all: what it costs to sleep and be woken.
pub(crate) fn look<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    for round in 0..LOOKS {
        let found = look();
        if found.is_some() {
            return found;
        }
        if round < PAUSES {
            (0..1 << round).for_each(|_| spin_loop());
        } else {
            thread::yield_now();
        }
    }
    None
}

/// Waits for ever.
pub(crate) fn on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = waker();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// Waits for at most `timeout`; for ever, where there are no times so late.
pub(crate) fn within<F: Future>(timeout: Duration, future: F) -> Option<F::Output> {
    until(Instant::now().checked_add(timeout), pin!(future))
}

/// Waits until `end`, if there is one.
pub(crate) fn until<F: Future>(end: Option<Instant>, mut future: Pin<&mut F>) -> Option<F::Output> {
    let waker = waker();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        match end {
            None => thread::park(),
            Some(end) => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                thread::park_timeout(left);
            }
        }
    }
}
