//! What threads share: that of std, or in models that of loom.

#[cfg(all(loom, test))]
pub(crate) use loom::sync::Mutex;
#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, fence};
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::Mutex;
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, fence};
