//! What one thread at a time works at, for all that leave work there.

use crate::sync::{Mutex, fence};
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, TryLockError};

/// Something that one thread at a time works at. A thread that leaves work there, and finds another
/// one at it, need not wait: the other one looks for work once more when it has let go.
#[derive(Debug, Default)]
pub struct Serving<T> {
    served: Mutex<T>,
}

impl<T> Serving<T> {
    /// Nobody works at it yet.
    pub fn new(served: T) -> Self {
        Self { served: Mutex::new(served) }
    }

    /// Works, unless another thread does, until there is nothing left. False if another one was at
    /// it: that one does what the caller has left before this call.
    pub fn serve(&self, has_work: impl Fn() -> bool, mut work: impl FnMut(&mut T)) -> bool {
        let mut is_served = false;
        loop {
            // What the caller has left is seen by who is found here.
            fence(Ordering::SeqCst);
            match self.served.try_lock() {
                Ok(mut served) => work(&mut served),
                Err(TryLockError::Poisoned(served)) => work(&mut served.into_inner()),
                Err(TryLockError::WouldBlock) => return is_served,
            }
            is_served = true;
            fence(Ordering::SeqCst);
            if !has_work() {
                return true;
            }
        }
    }

    /// Works, once nobody else does. Call [`serve`](Self::serve) if there is work afterwards.
    pub fn enter<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let done = work(&mut self.served.lock().unwrap_or_else(PoisonError::into_inner));
        fence(Ordering::SeqCst);
        done
    }
}
