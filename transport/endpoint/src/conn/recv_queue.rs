//! A receive queue: what is posted there, and what waits for that.

use std::hint::cold_path;
use std::slice;
use towpath_verbs::RecvWr;

/// The receive queue of a path, or one that the links of a class share.
#[derive(Default)]
pub(crate) struct RecvQueue {
    posted: usize,
    target: usize,
    waiting: Vec<RecvWr>,
}

impl RecvQueue {
    /// So many receives should be posted.
    pub(crate) fn set_target(&mut self, receives: usize) {
        self.target = receives;
    }

    /// Receives that are neither posted nor wait for that.
    #[inline]
    pub(crate) fn missing(&self) -> usize {
        self.target.saturating_sub(self.posted + self.waiting.len())
    }

    /// Queues a receive for posting.
    #[inline]
    pub(crate) fn push(&mut self, wr: &RecvWr) {
        // `push` would copy it twice.
        self.waiting.extend_from_slice(slice::from_ref(wr));
    }

    /// Posts what waits by `post`, which returns how many were taken if not all were. Returns what
    /// was refused.
    #[inline]
    pub(crate) fn post(&mut self, post: impl FnOnce(&[RecvWr]) -> Option<usize>) -> Vec<RecvWr> {
        let mut refused = Vec::new();
        if !self.waiting.is_empty() {
            let taken = post(&self.waiting).unwrap_or(self.waiting.len());
            self.posted += taken;
            if taken < self.waiting.len() {
                cold_path();
                refused = self.waiting.split_off(taken);
            }
            self.waiting.clear();
        }
        refused
    }

    /// Takes out what waits: the queue is no more.
    pub(crate) fn take_waiting(&mut self) -> Vec<RecvWr> {
        self.waiting.drain(..).collect()
    }

    /// A receive has completed.
    #[inline]
    pub(crate) fn on_completed(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    pub(crate) fn posted(&self) -> usize {
        self.posted
    }

    /// Receives that should be posted.
    pub(crate) fn target(&self) -> usize {
        self.target
    }

    /// Receives that are posted or wait for that.
    pub(crate) fn filled(&self) -> usize {
        self.posted + self.waiting.len()
    }
}
