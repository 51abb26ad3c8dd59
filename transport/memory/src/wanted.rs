//! Who waits for a buffer of a pool.

use crate::sync::{AtomicBool, Mutex, keep_order};
use std::hint::cold_path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// Those who found no buffer and want to be woken when one comes back. Where there are none, a
/// buffer that comes back costs one load more.
#[derive(Default)]
pub(crate) struct Wanted {
    is_any: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Wanted {
    /// Adds a waker, which is woken once. The caller looks for a buffer once more after this, in
    /// the single order of all `SeqCst` operations.
    pub(crate) fn add(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        self.is_any.store(true, Ordering::SeqCst);
        keep_order();
    }

    /// Takes a waker out.
    pub(crate) fn remove(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.retain(|other| !other.will_wake(waker));
    }

    /// A buffer has come back.
    #[inline]
    pub(crate) fn tell(&self) {
        keep_order();
        if self.is_any.load(Ordering::SeqCst) {
            cold_path();
            self.wake_all();
        }
    }

    #[inline(never)]
    fn wake_all(&self) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_any.store(false, Ordering::SeqCst);
        let woken = std::mem::take(&mut *wakers);
        drop(wakers);
        woken.into_iter().for_each(Waker::wake);
    }
}
