//! Which thread changes the words of a mapping without atomic read-modify-write steps.
//!
//! As a rule one thread drives the device of a mapping and takes its buffers back. This thread is
//! the home of the mapping's words: it changes a word by a load and a store. Another thread that
//! changes a word first moves the home to itself. After some moves all threads share the words,
//! and each change is an atomic step from then on.
//!
//! The home thread says that it is busy, then looks whether it still is the home. A thread that
//! moves the home says so, then waits until the thread before is not busy. Between their two steps
//! both need a fence, or each could miss what the other said: see [`barrier`].

use crate::barrier;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, thread_local, yield_now};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering;

/// Moves of a home before all threads share the words: some for an endpoint that is made in one
/// thread and driven in another, few enough that threads which take turns soon stop to move it.
const MOVES_MAX: u32 = if cfg!(all(loom, test)) { 2 } else { 8 };

/// Stands for a thread. It lives for ever, and serves one thread after the other.
#[repr(align(64))]
struct Seat {
    /// The thread is changing a word. Only that thread writes it.
    is_busy: AtomicBool,
}

// What stands in place of a thread.
/// No thread has changed a word yet.
const NEW: *mut Seat = ptr::without_provenance_mut(64);
/// A thread waits until the home before is not busy any more.
const MOVING: *mut Seat = ptr::without_provenance_mut(128);
/// All threads change words by atomic steps, for good.
const SHARED: *mut Seat = ptr::without_provenance_mut(192);

/// The home of the words of one mapping. Nothing else is in its cache line.
#[repr(align(64))]
pub(crate) struct Home {
    tenant: AtomicPtr<Seat>,
    moves: AtomicU32,
}

impl Home {
    pub(crate) fn new() -> Self {
        let tenant = if barrier::is_there() { NEW } else { SHARED };
        Self { tenant: AtomicPtr::new(tenant), moves: AtomicU32::new(0) }
    }

    /// All threads share the words from the beginning.
    #[cfg(all(loom, test))]
    pub(crate) fn shared() -> Self {
        Self { tenant: AtomicPtr::new(SHARED), moves: AtomicU32::new(0) }
    }

    /// Changes a word of the mapping to what `next` makes of it, as one step towards all threads;
    /// returns what it was. None where `next` makes nothing of it. What was done before is seen by
    /// whoever changes the word after this, or reads it.
    #[inline]
    pub(crate) fn update(
        &self,
        word: &AtomicU64,
        next: impl Fn(u64) -> Option<u64> + Copy,
    ) -> Option<u64> {
        let updated = self.at_home(|| {
            let before = word.load(Ordering::Acquire);
            let after = next(before)?;
            word.store(after, Ordering::Release);
            Some(before)
        });
        updated.unwrap_or_else(|| self.update_from_elsewhere(word, next))
    }

    /// Runs `step` if this is the home thread: no other thread changes a word of the mapping
    /// before `step` is over. None, without running it, in other threads. It must neither change
    /// words in another way nor panic.
    #[inline]
    pub(crate) fn at_home<R>(&self, step: impl FnOnce() -> R) -> Option<R> {
        let seat = SEAT.with(Cell::get);
        if self.tenant.load(Ordering::Relaxed) != seat {
            return None;
        }
        // SAFETY: a tenant that is also the seat of a thread is one; seats live for ever.
        let seat = unsafe { &*seat };
        seat.is_busy.store(true, Ordering::Relaxed);
        barrier::light();
        let is_home = ptr::eq(self.tenant.load(Ordering::Relaxed), seat);
        let done = is_home.then(step);
        seat.is_busy.store(false, Ordering::Release);
        done
    }

    #[inline(never)]
    fn update_from_elsewhere(
        &self,
        word: &AtomicU64,
        next: impl Fn(u64) -> Option<u64> + Copy,
    ) -> Option<u64> {
        loop {
            let (tenant, seat) = (self.tenant.load(Ordering::Acquire), Seat::of_thread());
            match (tenant, seat) {
                (SHARED, _) => return update_shared(word, next),
                (MOVING, _) => yield_now(),
                (_, Some(seat)) if ptr::eq(tenant, seat) => return self.update(word, next),
                _ => self.move_from(tenant, seat),
            }
        }
    }

    /// Moves the home to `seat`, or lets all share the words, unless another thread was faster.
    fn move_from(&self, tenant: *mut Seat, seat: Option<&'static Seat>) {
        let (moving, other) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.tenant.compare_exchange(tenant, MOVING, moving, other).is_err() {
            return;
        }
        if tenant != NEW {
            // SAFETY: it is neither of the others, but a seat; seats live for ever.
            let before = unsafe { &*tenant };
            barrier::heavy();
            while before.is_busy.load(Ordering::Acquire) {
                yield_now();
            }
        }
        // Nobody else is here while it is moving.
        let moves = self.moves.load(Ordering::Relaxed);
        self.moves.store(moves + 1, Ordering::Relaxed);
        let after = match seat {
            Some(seat) if moves < MOVES_MAX => ptr::from_ref(seat).cast_mut(),
            _ => SHARED,
        };
        self.tenant.store(after, Ordering::Release);
    }
}

fn update_shared(word: &AtomicU64, next: impl Fn(u64) -> Option<u64> + Copy) -> Option<u64> {
    let mut before = word.load(Ordering::Acquire);
    loop {
        let after = next(before)?;
        match word.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(before),
            Err(now) => before = now,
        }
    }
}

#[cfg(not(all(loom, test)))]
thread_local! {
    /// Null until the thread needs one, and when it is nearly over.
    static SEAT: Cell<*mut Seat> = const { Cell::new(ptr::null_mut()) };
}
#[cfg(all(loom, test))]
thread_local! {
    static SEAT: Cell<*mut Seat> = Cell::new(ptr::null_mut());
}

impl Seat {
    /// None for a thread that is nearly over.
    fn of_thread() -> Option<&'static Self> {
        let seat = SEAT.with(Cell::get);
        if !seat.is_null() {
            // SAFETY: a thread's seat is null or a seat; seats live for ever.
            return Some(unsafe { &*seat });
        }
        let seat = seats::take()?;
        SEAT.with(|place| place.set(ptr::from_ref(seat).cast_mut()));
        Some(seat)
    }

    fn leaked() -> &'static Self {
        Box::leak(Box::new(Self { is_busy: AtomicBool::new(false) }))
    }
}

/// Seats of threads that are over, for those that come: a process has as many seats as it had
/// threads at a time. What a thread did before it is over is seen by the next on its seat.
#[cfg(not(all(loom, test)))]
mod seats {
    use super::{SEAT, Seat};
    use std::ptr;
    use std::sync::{Mutex, PoisonError};

    static FREE: Mutex<Vec<&'static Seat>> = Mutex::new(Vec::new());

    /// Gives the seat back when the thread is over.
    struct Taken(&'static Seat);

    impl Drop for Taken {
        fn drop(&mut self) {
            SEAT.set(ptr::null_mut());
            FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
        }
    }

    thread_local! {
        static TAKEN: Taken = {
            let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
            Taken(free.unwrap_or_else(Seat::leaked))
        };
    }

    pub(super) fn take() -> Option<&'static Seat> {
        TAKEN.try_with(|taken| taken.0).ok()
    }
}

/// Each thread of a model has a seat of its own: those of a run before are of no use.
#[cfg(all(loom, test))]
mod seats {
    pub(super) fn take() -> Option<&'static super::Seat> {
        Some(super::Seat::leaked())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    fn add(home: &Home, word: &AtomicU64) -> Option<u64> {
        home.update(word, |value| Some(value + 1))
    }

    #[test]
    fn every_thread_changes_words_wherever_their_home_is() {
        let (home, word) = (Home::new(), AtomicU64::new(0));
        for round in 0..u64::from(2 * MOVES_MAX) {
            let elsewhere = || thread::scope(|s| s.spawn(|| add(&home, &word)).join());
            assert_eq!(elsewhere().expect("no panic"), Some(3 * round));
            assert_eq!([(); 2].map(|()| add(&home, &word)), [1, 2].map(|n| Some(3 * round + n)));
        }
        assert_eq!(home.tenant.load(Ordering::Relaxed), SHARED);
        assert_eq!(home.update(&word, |_| None), None);
    }

    #[test]
    fn no_change_is_lost_while_the_home_moves() {
        let (homes, changes) = if cfg!(miri) { (3, 20) } else { (200, 2_000) };
        // Each home moves a few times only.
        for _ in 0..homes {
            let (home, word) = (Home::new(), AtomicU64::new(0));
            let all = || (0..changes).for_each(|_| assert!(add(&home, &word).is_some()));
            thread::scope(|scope| {
                (0..3).for_each(|_| drop(scope.spawn(all)));
                all();
            });
            assert_eq!(word.load(Ordering::Relaxed), 4 * changes);
        }
    }

    #[test]
    fn one_thread_alone_stays_at_home_and_a_seat_serves_the_next_thread() {
        let (home, word) = (Home::new(), AtomicU64::new(0));
        (0..100).for_each(|_| assert!(add(&home, &word).is_some()));
        let here = if barrier::is_there() { SEAT.with(Cell::get) } else { SHARED };
        assert_eq!(home.tenant.load(Ordering::Relaxed), here);
        assert!(here != NEW && !here.is_null());
    }
}
