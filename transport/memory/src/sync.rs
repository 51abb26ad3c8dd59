//! Atomics and locks of what threads share here: those of std, or in models those of loom.

#[cfg(all(loom, test))]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize},
};
#[cfg(all(loom, test))]
pub(crate) use loom::{thread::yield_now, thread_local};
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize},
};
#[cfg(not(all(loom, test)))]
pub(crate) use std::{thread::yield_now, thread_local};

/// Stands between two `SeqCst` accesses of a thread that those of another must not pass. Loom knows
/// of that single order in fences alone, so that models need one here; the accesses do it
/// otherwise.
#[inline]
pub(crate) fn keep_order() {
    #[cfg(all(loom, test))]
    loom::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
