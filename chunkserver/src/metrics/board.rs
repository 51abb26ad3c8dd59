//! Where a worker puts its figures when somebody wants them. The worker never waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// One worker's board. Clones share it.
#[derive(Debug)]
pub(crate) struct Board<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    /// Number of the last wish.
    wanted: AtomicU64,
    /// The last that was told, and the wish that it was for.
    told: Mutex<(u64, Option<T>)>,
    is_new: Condvar,
    /// What wakes the worker.
    waker: OnceLock<Waker>,
}

impl<T> Clone for Board<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Board<T> {
    fn default() -> Self {
        let told = Mutex::new((0, None));
        let (wanted, is_new, waker) = (AtomicU64::new(0), Condvar::new(), OnceLock::new());
        Self(Arc::new(Shared { wanted, told, is_new, waker }))
    }
}

impl<T> Board<T> {
    /// The worker's side, once a turn: puts its figures where somebody wants new ones. False where
    /// the next turn is to try again.
    pub(crate) fn tell_when_wanted(&self, last: &mut u64, make: impl FnOnce() -> T) -> bool {
        let wanted = self.0.wanted.load(Ordering::Acquire);
        if wanted == *last {
            return true;
        }
        // Whoever reads just now holds it for a moment.
        let Ok(mut told) = self.0.told.try_lock() else { return false };
        *told = (wanted, Some(make()));
        *last = wanted;
        self.0.is_new.notify_all();
        true
    }

    /// What wakes the worker when somebody wants new figures.
    pub(crate) fn wakes(&self, worker: Waker) {
        // A worker has one waker from its start to its end.
        let _ = self.0.waker.set(worker);
    }

    /// Wants new figures; [`take`](Self::take) gets them.
    pub(crate) fn want(&self) -> u64 {
        let wish = self.0.wanted.fetch_add(1, Ordering::AcqRel) + 1;
        self.0.waker.get().into_iter().for_each(Waker::wake_by_ref);
        wish
    }

    /// The figures for a wish; none where the worker has not told them before `until`.
    pub(crate) fn take(&self, wish: u64, until: Instant) -> Option<T> {
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if told.0 >= wish
                && let Some(found) = told.1.take()
            {
                return Some(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return None;
            }
            let waited = self.0.is_new.wait_timeout(told, left);
            told = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_wakes_the_worker() {
        let mut bell = towpath_wake::Bell::new().expect("two sockets");
        let board = Board::<u32>::default();
        board.wakes(bell.waker());
        assert!(!bell.clear());
        board.clone().want();
        assert!(bell.clear());
    }

    #[test]
    fn figures_come_for_a_wish_and_a_worker_that_is_stuck_gives_none() {
        let board = Board::<u32>::default();
        let mut last = 0;
        board.tell_when_wanted(&mut last, || panic!("nobody wants it"));
        let wish = board.want();
        assert_eq!(board.take(wish, Instant::now()), None, "the worker is stuck");
        let workers = board.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut last = 0;
                while last == 0 {
                    workers.tell_when_wanted(&mut last, || 7);
                }
            });
            assert_eq!(board.take(wish, Instant::now() + Duration::from_secs(60)), Some(7));
        });
        let second = board.want();
        assert_eq!(board.take(second, Instant::now()), None, "the old figures are not new ones");
    }
}
