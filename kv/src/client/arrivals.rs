//! On which of many transports of a thread something came.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;
use towpath_wake::{Bell, Listed, Rest};

/// What the bell is told of as.
const BELL: u64 = u64::MAX;

/// Files that one wait tells of: more are told of by the next.
const EVENTS_AT_A_TIME: usize = 64;

/// Signs of many transports, of which one thread waits for any.
pub(super) struct Arrivals {
    epoll: Arc<OwnedFd>,
    raised: Arc<Raised>,
    bell: Bell,
    seen: Vec<Arc<Flag>>,
}

/// Signs that were raised by their wakers and not seen yet: each at most once.
struct Raised {
    flags: Mutex<Vec<Arc<Flag>>>,
    rest: Rest,
    rope: Waker,
}

impl Raised {
    /// Nothing that is done under the lock leaves it half done.
    fn flags(&self) -> MutexGuard<'_, Vec<Arc<Flag>>> {
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By what a transport tells that something came: by a file that becomes readable, or by waking.
#[derive(Clone, Debug)]
pub struct Sign {
    number: u64,
    epoll: Arc<OwnedFd>,
    waker: Waker,
}

/// Raises the sign of a number.
struct Flag {
    number: u64,
    listed: Listed,
    /// Which holds this one while it is raised; gone where nobody waits any more.
    raised: Weak<Raised>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(raised) = self.raised.upgrade() else { return };
        if self.listed.mark() {
            raised.flags().push(Arc::clone(self));
            if raised.rest.is_to_be_woken() {
                raised.rope.wake_by_ref();
            }
        }
    }
}

impl Sign {
    /// Raised whenever more comes on this file, from now on, and at once where something is there;
    /// once for a file.
    ///
    /// # Errors
    /// The system has no room.
    pub fn of_file(&self, file: impl AsFd) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.epoll, file, EventData::new_u64(self.number), flags)?)
    }

    /// Raises it, from any thread.
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl Arrivals {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let bell = Bell::new()?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let (flags, rest, rope) = (Mutex::default(), Rest::default(), bell.waker());
        let raised = Arc::new(Raised { flags, rest, rope });
        Ok(Self { epoll, raised, bell, seen: Vec::new() })
    }

    /// The sign that is told of as `number`.
    pub(super) fn sign(&self, number: usize) -> Sign {
        let number = number as u64;
        let (listed, raised) = (Listed::default(), Arc::downgrade(&self.raised));
        let waker = Waker::from(Arc::new(Flag { number, listed, raised }));
        Sign { number, epoll: Arc::clone(&self.epoll), waker }
    }

    /// Waits for at most `timeout`, and tells of signs that were raised.
    ///
    /// # Errors
    /// Of the system.
    pub(super) fn wait(
        &mut self,
        timeout: Duration,
        mut tell: impl FnMut(usize),
    ) -> io::Result<()> {
        let rest = &self.raised.rest;
        rest.begin();
        let timeout = if self.raised.flags().is_empty() { timeout } else { Duration::ZERO };
        let timeout = Timespec::try_from(timeout).ok();
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(BELL) };
        let mut events = [none; EVENTS_AT_A_TIME];
        let waited = epoll::wait(&self.epoll, &mut events, timeout.as_ref());
        rest.end();
        let count = match waited {
            Err(rustix::io::Errno::INTR) => 0,
            count => count?,
        };
        self.bell.clear();
        let numbers = events[..count].iter().map(|event| event.data.u64());
        numbers.filter(|&number| number != BELL).for_each(|number| tell(number as usize));
        std::mem::swap(&mut *self.raised.flags(), &mut self.seen);
        for flag in self.seen.drain(..) {
            // Before it is looked at: what comes from now on raises it again.
            flag.listed.unmark();
            tell(flag.number as usize);
        }
        Ok(())
    }
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrivals").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_signs_that_were_raised_and_never_seen() {
        let arrivals = Arrivals::new().expect("files");
        let sign = arrivals.sign(0);
        sign.waker().wake_by_ref();
        let raised = Arc::downgrade(&arrivals.raised);
        drop(arrivals);
        assert!(raised.upgrade().is_none());
        sign.waker().wake_by_ref();
    }
}
