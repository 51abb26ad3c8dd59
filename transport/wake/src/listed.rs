//! The mark of what stands in a list, so that it stands there once.

use crate::sync::AtomicBool;
use std::sync::atomic::Ordering;

/// Says whether something stands in the list of those that have work, for one thread that works and
/// others that put work there.
///
/// Who has put work there lists it if [`mark`](Self::mark) says so. Who works takes it from the
/// list, works, calls [`unmark`](Self::unmark), and looks once more: work that came before is seen
/// then, and what comes later lists it again.
#[derive(Debug, Default)]
pub struct Listed {
    is_listed: AtomicBool,
}

impl Listed {
    /// It is to be listed; true when it was not.
    #[must_use]
    #[inline]
    pub fn mark(&self) -> bool {
        !self.is_listed.swap(true, Ordering::SeqCst)
    }

    /// It is not listed any more.
    #[inline]
    pub fn unmark(&self) {
        // No plain store: what those did who found it marked is to be seen after this.
        self.is_listed.swap(false, Ordering::SeqCst);
    }

    /// Whether it is listed.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.is_listed.load(Ordering::SeqCst)
    }
}
