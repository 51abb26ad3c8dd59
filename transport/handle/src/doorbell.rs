//! What threads tell the worker of an endpoint: channels that have something for it.

use crate::egress::Egress;
use crossbeam_queue::SegQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use towpath_transport::LinkId;
use towpath_transport::for_handles::Bell;

/// What the threads of an endpoint and its worker call each other by.
pub(super) struct Doorbell {
    /// Channels that have something waiting, each at most once.
    listed: SegQueue<Arc<Egress>>,
    /// Channels where a message that has a deadline was queued, each at most once.
    timed: SegQueue<Arc<Egress>>,
    /// Messages that were cancelled, each once, by channel and number.
    cancelled: SegQueue<(Arc<Egress>, u64)>,
    /// Links that nobody has a handle of.
    left: SegQueue<LinkId>,
    bell: Arc<Bell>,
    /// The worker takes nothing more.
    ended: AtomicBool,
    /// The worker panicked.
    panicked: AtomicBool,
    /// The worker has looked at the queues for the last time, or is about to.
    gone: AtomicBool,
}

impl Doorbell {
    pub(super) fn new(bell: Arc<Bell>) -> Self {
        Self {
            listed: SegQueue::new(),
            timed: SegQueue::new(),
            cancelled: SegQueue::new(),
            left: SegQueue::new(),
            bell,
            ended: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    /// Tells the worker that there is something for it, if it may be blocking.
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// What ends the worker's sleep.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Whether the worker takes nothing any more.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Whether the worker may have looked at the queues for the last time.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// The worker takes nothing any more.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// The worker is unwinding.
    pub(super) fn panic(&self) {
        self.panicked.store(true, Ordering::SeqCst);
    }

    /// Whether the worker ended in a panic.
    pub(super) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::SeqCst)
    }

    /// Refuses whatever is left; the last thing the worker does here.
    pub(super) fn leave(&self) {
        self.gone.store(true, Ordering::SeqCst);
        while let Some(egress) = self.listed.pop() {
            egress.refuse_all();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty()
            && self.timed.is_empty()
            && self.cancelled.is_empty()
            && self.left.is_empty()
    }

    /// Takes a channel where a message that has a deadline was queued since it was last taken.
    pub(super) fn next_timed(&self) -> Option<Arc<Egress>> {
        let egress = self.timed.pop()?;
        egress.unmark_timed();
        Some(egress)
    }

    /// Has the worker look at a channel where a message that has a deadline was queued.
    pub(super) fn list_timed(&self, egress: &Arc<Egress>) {
        self.timed.push(Arc::clone(egress));
    }

    /// Asks the worker to give a message up.
    pub(super) fn cancel(&self, egress: &Arc<Egress>, number: u64) {
        if !self.ended.load(Ordering::SeqCst) {
            self.cancelled.push((Arc::clone(egress), number));
            self.ring();
        }
    }

    /// Takes a message that was cancelled.
    pub(super) fn next_cancelled(&self) -> Option<(Arc<Egress>, u64)> {
        self.cancelled.pop()
    }

    /// Has the worker close a link that nobody has a handle of.
    pub(super) fn leave_link(&self, link: LinkId) {
        self.left.push(link);
        self.ring();
    }

    /// Takes a link that nobody has a handle of.
    pub(super) fn next_left(&self) -> Option<LinkId> {
        self.left.pop()
    }

    pub(super) fn len(&self) -> usize {
        self.listed.len()
    }

    /// Takes the channel that has waited longest. It counts as listed until the worker is
    /// [through](Self::through) with it.
    pub(super) fn next(&self) -> Option<Arc<Egress>> {
        self.listed.pop()
    }

    /// Puts a channel behind all others that is not through.
    pub(super) fn again(&self, egress: Arc<Egress>) {
        self.listed.push(egress);
    }

    /// The channel's queue was found empty: what comes from here on lists it again.
    pub(super) fn through(&self, egress: &Arc<Egress>) {
        if egress.unmark_listed() {
            self.list(egress);
        }
    }

    /// Has the worker look at a channel that has something.
    pub(super) fn list(&self, egress: &Arc<Egress>) {
        if egress.mark_listed() {
            self.listed.push(Arc::clone(egress));
        }
    }
}
