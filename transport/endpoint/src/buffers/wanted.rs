//! The wish of an endpoint's application for a send buffer, when all were out.

use super::pools::SendPools;
use crate::bell::Bell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Wake, Waker};

/// No buffer is wanted.
const NONE: usize = usize::MAX;

/// Set by whoever gives a buffer back that was wanted.
struct Back {
    is_back: AtomicBool,
    bell: Arc<Bell>,
}

impl Wake for Back {
    fn wake(self: Arc<Self>) {
        self.is_back.store(true, Ordering::SeqCst);
        self.bell.ring();
    }
}

/// What was asked for in vain, until there is a buffer for it again.
pub(crate) struct Wanted {
    back: Arc<Back>,
    waker: Waker,
    /// The least that was asked for in vain, in bytes.
    least: AtomicUsize,
}

impl Wanted {
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        let back = Arc::new(Back { is_back: AtomicBool::new(false), bell });
        Self { waker: Waker::from(Arc::clone(&back)), back, least: AtomicUsize::new(NONE) }
    }

    /// All buffers of so many bytes were out.
    #[cold]
    pub(crate) fn note(&self, pools: &SendPools, bytes: usize) {
        self.least.fetch_min(bytes, Ordering::Relaxed);
        if pools.want(bytes, &self.waker) {
            self.back.is_back.store(true, Ordering::SeqCst);
        }
    }

    /// Whether a buffer came back since one was wanted.
    pub(crate) fn is_back(&self) -> bool {
        self.back.is_back.load(Ordering::Relaxed)
    }

    /// For how many bytes there is a buffer again, once.
    #[cold]
    pub(crate) fn take(&self, pools: &SendPools) -> Option<usize> {
        self.back.is_back.store(false, Ordering::SeqCst);
        let bytes = self.least.load(Ordering::Relaxed);
        // It may be out again.
        if bytes == NONE || !pools.want(bytes, &self.waker) {
            return None;
        }
        pools.unwant(&self.waker);
        self.least.store(NONE, Ordering::Relaxed);
        Some(bytes)
    }
}
