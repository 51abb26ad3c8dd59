//! Which of several threads looks after what they share.

use crate::sync::{AtomicBool, AtomicUsize};
use crate::waiters::{Awaited, Take, Waiters};
use std::sync::atomic::Ordering;

/// The lead over something that several threads wait for: one has it, and looks after all; the
/// others sleep, each until what it waits for has come or the lead is free.
///
/// Whoever wants the lead [takes](Take::take) it, or waits for it as for anything else. One that
/// leads and has [nothing of it](Self::has_nothing) loses it to the next one that comes: an
/// acceptor should not be woken for each message that another thread waits for.
#[derive(Debug, Default)]
pub struct Lead {
    /// The number of the one that leads; zero while nobody does.
    leader: AtomicUsize,
    /// The last number that was given.
    last: AtomicUsize,
    has_nothing: AtomicBool,
    followers: Waiters,
}

impl Lead {
    /// Whether that one still leads.
    #[must_use]
    pub fn is_of(&self, leader: usize) -> bool {
        self.leader.load(Ordering::SeqCst) == leader
    }

    /// What came was for others than the one that leads.
    pub fn has_nothing(&self) {
        self.has_nothing.store(true, Ordering::SeqCst);
    }

    /// Gives the lead up, and has the first of those that wait take it. True if there is any.
    pub fn pass(&self, leader: usize) -> bool {
        self.leave(leader) && self.call()
    }

    /// Gives the lead up, for the moment: nobody is told. False if it was lost before.
    pub fn leave(&self, leader: usize) -> bool {
        self.leader.compare_exchange(leader, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Has the first of those that wait take the lead. True if there is any.
    pub fn call(&self) -> bool {
        let is_wanted = !self.followers.is_empty();
        self.followers.tell_one();
        is_wanted
    }

    /// Whether nobody waits for it.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.followers.is_empty()
    }
}

impl Awaited for Lead {
    fn waiters(&self) -> &Waiters {
        &self.followers
    }

    fn is_there(&self) -> bool {
        self.leader.load(Ordering::SeqCst) == 0
    }
}

impl Take for Lead {
    /// The number of the one that leads from now on.
    type Item = usize;

    fn take(&self) -> Option<usize> {
        let leader = self.leader.load(Ordering::SeqCst);
        if leader != 0 && !self.has_nothing.load(Ordering::SeqCst) {
            return None;
        }
        // Never zero: so many do not come.
        let own = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.leader.compare_exchange(leader, own, Ordering::SeqCst, Ordering::SeqCst).ok()?;
        self.has_nothing.store(false, Ordering::SeqCst);
        Some(own)
    }
}
