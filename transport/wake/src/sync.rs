//! Atomics: those of std, or in models those of loom.

#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{AtomicBool, fence};
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic::{AtomicBool, fence};
