//! Who waits for something: threads and tasks alike, by their wakers, in the order in which they
//! came.
//!
//! There is one way to wait. Whoever waits takes what is there; else joins the line, looks once
//! more, and returns to its executor, or parks. Whoever puts something there tells
//! the first of the line after that. Who was told leaves the line, and tells the next one when it
//! goes and leaves something there: because it was dropped, or its time was over, or there was more
//! than it took.

use crate::sync::{AtomicUsize, Mutex, fence};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

/// The line. It has a place for each future that was polled and is neither ready nor dropped, and
/// one for each thread that waits: no peer makes it longer.
#[derive(Debug, Default)]
pub struct Waiters {
    /// How long it is, for those who have nothing to tell anybody and take no lock to find out.
    count: AtomicUsize,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// The number of the next place.
    next: u64,
    /// With the numbers of their places, which rise.
    wakers: VecDeque<(u64, Waker)>,
}

impl Line {
    fn find(&self, place: Option<u64>) -> Option<usize> {
        self.wakers.binary_search_by_key(&place?, |&(number, _)| number).ok()
    }
}

impl Waiters {
    /// What `change` returns is dropped, or woken, without the lock: wakers may be anybody's code.
    fn change<T>(&self, change: impl FnOnce(&mut Line) -> T) -> T {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut line);
        self.count.store(line.wakers.len(), Ordering::SeqCst);
        changed
    }

    /// Whether nobody waits. Call it after putting something there: who joins later sees that.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::SeqCst) == 0
    }

    /// There is one thing more to take: the first of the line is to look.
    pub fn tell_one(&self) {
        if !self.is_empty()
            && let Some((_, waker)) = self.change(|line| line.wakers.pop_front())
        {
            waker.wake();
        }
    }

    /// There is something for everybody: an end, or more than one thing.
    pub fn tell_all(&self) {
        if !self.is_empty() {
            let told = self.change(|line| std::mem::take(&mut line.wakers));
            told.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }

    /// Takes a place at the end of the line, or keeps the one that it has. Whoever joins looks
    /// once more after this.
    pub fn join(&self, place: &mut Option<u64>, waker: &Waker) {
        let waker = waker.clone();
        let _before = self.change(|line| {
            if let Some(at) = line.find(*place) {
                return Some(std::mem::replace(&mut line.wakers[at].1, waker));
            }
            *place = Some(line.next);
            line.wakers.push_back((line.next, waker));
            line.next += 1;
            None
        });
        fence(Ordering::SeqCst);
    }

    /// Gives its place up. True when it had been told to look.
    #[must_use]
    pub fn leave(&self, place: &mut Option<u64>) -> bool {
        if place.is_none() {
            return false;
        }
        let left = self.change(|line| {
            let at = line.find(place.take())?;
            line.wakers.remove(at)
        });
        left.is_none()
    }

    /// How many wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// Something that is waited for.
pub trait Awaited {
    /// Who waits for it.
    fn waiters(&self) -> &Waiters;

    /// Whether it is there, or will never be.
    fn is_there(&self) -> bool;
}

/// Something that is waited for, and taken.
pub trait Take: Awaited {
    /// What is taken.
    type Item;

    /// Takes it, if it is there.
    fn take(&self) -> Option<Self::Item>;
}

impl<S: Awaited + ?Sized> Awaited for &S {
    fn waiters(&self) -> &Waiters {
        (**self).waiters()
    }

    fn is_there(&self) -> bool {
        (**self).is_there()
    }
}

impl<S: Take> Take for &S {
    type Item = S::Item;

    fn take(&self) -> Option<Self::Item> {
        (**self).take()
    }
}

/// One that waits for `source`. What is there is taken when this is ready and not before, so that
/// nothing is lost with one that is dropped.
#[derive(Debug)]
pub struct Taking<S: Awaited> {
    /// What is waited for.
    pub source: S,
    place: Option<u64>,
}

impl<S: Awaited> Taking<S> {
    /// Waits from its first poll on.
    pub fn new(source: S) -> Self {
        Self { source, place: None }
    }

    /// Waits no longer. If it was told and leaves something there, the next one is told.
    pub fn leave(&mut self) {
        if self.source.waiters().leave(&mut self.place) && self.source.is_there() {
            self.source.waiters().tell_one();
        }
    }
}

impl<S: Take + Unpin> Future for Taking<S> {
    type Output = S::Item;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<S::Item> {
        let taking = self.get_mut();
        let item = taking.source.take().or_else(|| {
            taking.source.waiters().join(&mut taking.place, cx.waker());
            taking.source.take()
        });
        if item.is_some() {
            taking.leave();
        }
        item.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<S: Awaited> Drop for Taking<S> {
    fn drop(&mut self) {
        self.leave();
    }
}
