//! From threads to the worker without a lock: a queue per channel, and one doorbell.
//!
//! A thread puts its message into the queue of the channel and, unless the channel is listed as
//! having some, lists it: the worker looks at listed channels only, however many there are. Only
//! a thread that finds the queue full takes a lock, to sleep; so does the worker, to wake it.

use super::completions::Place;
use super::link::SentMessage;
use crate::bell::Bell;
use crate::event::LinkId;
use crate::limits::{EGRESS_MAX, EGRESS_ROOM_POLL, EGRESS_UNDER_WAY_MAX};
use crate::payload::{Payload, Rejected, SendOptions, SubmitError};
use crossbeam_channel::Sender;
use crossbeam_queue::{ArrayQueue, SegQueue};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use towpath_proto::ChannelId;

/// A message to send, and whom its outcome is told.
pub(super) struct Outgoing {
    pub(super) payload: Payload,
    pub(super) options: SendOptions,
    pub(super) reply: Reply,
}

impl Outgoing {
    /// Gives it back: the worker ends.
    pub(super) fn refuse(self) {
        let Self { payload, reply, .. } = self;
        reply.tell(Err(Rejected { payload, error: SubmitError::ShutDown }));
    }
}

/// Whom the outcome of a message is told.
pub(super) enum Reply {
    /// Who waits for this message alone.
    Ticket(Sender<Result<SentMessage, Rejected>>),
    /// Who waits for several.
    Queue(Place),
}

impl Reply {
    /// Whoever asked may not wait for the answer: then it is dropped.
    pub(super) fn tell(self, answer: Result<SentMessage, Rejected>) {
        match self {
            Self::Ticket(reply) => drop(reply.send(answer)),
            Self::Queue(place) => place.tell(answer),
        }
    }
}

/// Why a post was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    Sealed,
    Ended,
}

/// What the threads of an endpoint and its worker call each other by.
pub(super) struct Doorbell {
    /// Channels that have something waiting, each at most once.
    listed: SegQueue<Arc<Egress>>,
    bell: Arc<Bell>,
    /// The worker takes nothing more.
    ended: AtomicBool,
    /// The worker has looked at the queues for the last time, or is about to.
    gone: AtomicBool,
}

impl Doorbell {
    pub(super) fn new(bell: Arc<Bell>) -> Self {
        Self {
            listed: SegQueue::new(),
            bell,
            ended: AtomicBool::new(false),
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

    /// The worker takes nothing any more.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
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
        egress.is_listed.store(false, Ordering::SeqCst);
        if !egress.posts.is_empty()
            || egress.is_leaving.load(Ordering::SeqCst)
            || egress.weight.load(Ordering::SeqCst) != 0
        {
            self.list(egress);
        }
    }

    fn list(&self, egress: &Arc<Egress>) {
        if !egress.is_listed.swap(true, Ordering::SeqCst) {
            self.listed.push(Arc::clone(egress));
        }
    }
}

/// What waits to be sent on one channel.
pub(super) struct Egress {
    pub(super) link: LinkId,
    pub(super) channel: ChannelId,
    posts: ArrayQueue<Outgoing>,
    is_listed: AtomicBool,
    /// Nothing is taken any more: the channel or its link is closed.
    is_sealed: AtomicBool,
    /// Its owner is done with the channel: it is closed once the queue is empty.
    is_leaving: AtomicBool,
    /// What the channel is to get of its link from now on, plus one; zero when that is known.
    weight: AtomicU32,
    /// Messages that the link has; the worker's own, as is the next.
    under_way: AtomicUsize,
    /// Too many are under way: it is listed again when fewer are.
    is_paused: AtomicBool,
    /// Threads that sleep until there is room.
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    room: Condvar,
}

impl Egress {
    pub(super) fn new(link: LinkId, channel: ChannelId) -> Self {
        Self {
            link,
            channel,
            posts: ArrayQueue::new(EGRESS_MAX),
            is_listed: AtomicBool::new(false),
            is_sealed: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            weight: AtomicU32::new(0),
            under_way: AtomicUsize::new(0),
            is_paused: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            bed: Mutex::new(()),
            room: Condvar::new(),
        }
    }

    /// Hands something over, unless the queue is full; what was refused comes back.
    pub(super) fn try_post(
        self: &Arc<Self>,
        bell: &Doorbell,
        post: Outgoing,
    ) -> Result<(), (Outgoing, Refusal)> {
        if bell.ended.load(Ordering::SeqCst) {
            return Err((post, Refusal::Ended));
        }
        if self.is_sealed.load(Ordering::SeqCst) {
            return Err((post, Refusal::Sealed));
        }
        self.posts.push(post).map_err(|post| (post, Refusal::Full))?;
        bell.list(self);
        bell.ring();
        if bell.gone.load(Ordering::SeqCst) {
            // The worker may have missed it.
            self.refuse_all();
        }
        Ok(())
    }

    /// Hands something over, waiting for room.
    pub(super) fn post(
        self: &Arc<Self>,
        bell: &Doorbell,
        mut post: Outgoing,
    ) -> Result<(), (Outgoing, Refusal)> {
        loop {
            match self.try_post(bell, post) {
                Err((back, Refusal::Full)) => post = back,
                done => return done,
            }
            let bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            if self.posts.is_full() {
                // For a while only: the worker may end without a word.
                drop(self.room.wait_timeout(bed, EGRESS_ROOM_POLL));
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Takes the oldest; the worker's side.
    pub(super) fn take(&self) -> Option<Outgoing> {
        let post = self.posts.pop();
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Under the lock nobody is between looking and sleeping.
            drop(self.bed.lock().unwrap_or_else(PoisonError::into_inner));
            self.room.notify_one();
        }
        post
    }

    /// Gives back what waits, refused.
    pub(super) fn refuse_all(&self) {
        while let Some(post) = self.take() {
            post.refuse();
        }
    }

    /// Takes nothing more.
    pub(super) fn seal(&self) {
        self.is_sealed.store(true, Ordering::SeqCst);
    }

    /// Takes nothing more, and has the worker close the channel behind what was taken. Needs no
    /// room in the queue, so it can be called by whoever drops the last handle.
    pub(super) fn leave(self: &Arc<Self>, bell: &Doorbell) {
        self.seal();
        self.is_leaving.store(true, Ordering::SeqCst);
        bell.list(self);
        bell.ring();
    }

    /// Tells the worker of another weight. Takes no room in the queue: only the last one counts.
    pub(super) fn set_weight(self: &Arc<Self>, bell: &Doorbell, weight: u16) {
        // One that is listed holds back the close of its link.
        if bell.ended.load(Ordering::SeqCst) || self.is_sealed.load(Ordering::SeqCst) {
            return;
        }
        self.weight.store(u32::from(weight) + 1, Ordering::SeqCst);
        bell.list(self);
        bell.ring();
    }

    /// The weight that the worker has not heard of; its own side.
    pub(super) fn take_weight(&self) -> Option<u16> {
        if self.weight.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let told = self.weight.swap(0, Ordering::SeqCst);
        told.checked_sub(1).map(|weight| weight as u16)
    }

    /// Whether the channel is to be closed, once; asked by the worker when the queue is empty.
    pub(super) fn take_leave(&self) -> bool {
        self.is_leaving.swap(false, Ordering::SeqCst)
    }

    /// Whether the worker has nothing left to take or to hand on.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_listed.load(Ordering::SeqCst)
    }

    /// Whether one more message may be handed to the link; if not, the worker leaves the channel
    /// until [`on_sent`](Self::on_sent) says so.
    pub(super) fn may_send(&self) -> bool {
        let may = self.under_way.load(Ordering::Relaxed) < EGRESS_UNDER_WAY_MAX;
        self.is_paused.store(!may, Ordering::Relaxed);
        may
    }

    /// The link has one more message of this channel.
    pub(super) fn on_taken(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    /// A message has had its outcome. True when a channel that was left is to be served again.
    pub(super) fn on_sent(&self) -> bool {
        let before = self.under_way.fetch_sub(1, Ordering::Relaxed);
        before <= EGRESS_UNDER_WAY_MAX / 2 + 1 && self.is_paused.swap(false, Ordering::Relaxed)
    }
}
