//! What threads tell the worker of an endpoint: channels that have something for it.

use crate::egress::Egress;
use crate::engine::Engine;
use crate::park;
use crossbeam_queue::SegQueue;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
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
    /// What drives the endpoint, where handles do.
    engine: OnceLock<Weak<Engine>>,
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
            engine: OnceLock::new(),
            ended: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    /// Tells the worker that there is something for it, if it may be blocking.
    pub(super) fn ring(&self) {
        match self.engine() {
            Some(engine) => engine.nudge(),
            None => self.bell.ring(),
        }
    }

    /// Threads drive the endpoint by this from here on.
    pub(super) fn set_engine(&self, engine: &Arc<Engine>) {
        // It is set once.
        let _ = self.engine.set(Arc::downgrade(engine));
    }

    fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.get()?.upgrade()
    }

    /// Waits for a future, for at most `patience` if there is any, and drives the endpoint
    /// meanwhile if nobody else does.
    pub(super) fn wait<F: Future>(
        &self,
        patience: Option<Duration>,
        future: F,
    ) -> Option<F::Output> {
        // There are no times so late.
        let end = patience.and_then(|patience| Instant::now().checked_add(patience));
        let future = pin!(future);
        match self.engine() {
            Some(engine) => engine.wait(end, future),
            None => park::wait(end, future),
        }
    }

    /// An executor waits, unless this thread does so itself: somebody must look after the endpoint.
    pub(super) fn attend(&self) {
        if !park::is_waiting()
            && let Some(engine) = self.engine()
        {
            engine.attend();
        }
    }

    /// A future of an executor, which drives nothing itself.
    pub(super) async fn attended<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let polled = future.as_mut().poll(cx);
            if polled.is_pending() {
                self.attend();
            }
            polled
        })
        .await
    }

    /// What ends the worker's sleep.
    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Wakes whoever sleeps on the device's files.
    pub(super) fn wake(&self) {
        self.bell.wake();
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
