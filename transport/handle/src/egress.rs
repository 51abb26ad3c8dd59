//! From threads to the worker without a lock: a queue per channel, and one doorbell.
//!
//! A thread puts its message into the queue of the channel and, unless the channel is listed as
//! having some, lists it: the worker looks at listed channels only, however many there are. Only
//! who finds the queue full takes a lock, to wait; so does the worker, to tell it.
//!
//! A message that has a deadline, or is cancelled, may have to leave the queue before its turn. To
//! get at it the worker moves what is queued, in order, to a line of its own, which counts as part
//! of the queue.

use crate::channel::End;
use crate::completions::Place;
use crate::doorbell::Doorbell;
use crate::limits::{EGRESS_MAX, EGRESS_UNDER_WAY_MAX};
use crate::queue::Sender;
use crate::room::Posting;
use crate::ticket::{SentMessage, log_unseen};
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use towpath_base::Time;
use towpath_proto::{ChannelId, Outcome};
use towpath_transport::LinkId;
use towpath_transport::{Payload, Rejected, SendOptions, SubmitError};
use towpath_wake::Listed;
use towpath_wake::Waiters;

/// A message to send, and whom its outcome is told.
pub(super) struct Outgoing {
    pub(super) payload: Payload,
    pub(super) options: SendOptions,
    pub(super) reply: Reply,
}

impl Outgoing {
    /// Ends it before its turn came: nothing of it was sent.
    pub(super) fn abandon(self) {
        let Self { payload, options, reply } = self;
        let outcome = Outcome::Abandoned;
        reply.tell(Ok(SentMessage { token: options.token, outcome, payload }));
    }

    /// Gives it back: the worker ends.
    pub(super) fn refuse(self) {
        let Self { payload, reply, .. } = self;
        reply.tell(Err(Rejected { payload, error: SubmitError::ShutDown }));
    }
}

/// Whom the outcome of a message is told.
pub(super) enum Reply {
    /// Who waits for this message alone, which has a number on its channel.
    Ticket(Sender<Result<SentMessage, Rejected>>, u64),
    /// Who waits for several.
    Queue(Place),
}

impl Reply {
    /// The number of a message that has a ticket.
    pub(super) fn ticket(&self) -> Option<u64> {
        match self {
            Self::Ticket(_, number) => Some(*number),
            Self::Queue(_) => None,
        }
    }

    /// Whoever asked may not wait for the answer: then a refusal is logged, and the rest dropped.
    pub(super) fn tell(self, answer: Result<SentMessage, Rejected>) {
        match self {
            Self::Ticket(reply, _) => {
                if let Err(Err(unseen)) = reply.send(answer) {
                    log_unseen(&unseen);
                }
            }
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

/// What waits to be sent on one channel.
pub(super) struct Egress {
    pub(super) link: LinkId,
    pub(super) channel: ChannelId,
    posts: ArrayQueue<Outgoing>,
    /// What the worker has taken from there and not handed on: older than what is there now.
    line: Mutex<VecDeque<Outgoing>>,
    /// How many those are; the worker's to change.
    lined_up: AtomicUsize,
    /// Something that has a deadline was queued, and the worker has not looked since.
    is_timed: AtomicBool,
    /// The number of the next message that has a ticket.
    next_ticket: AtomicU64,
    listed: Listed,
    /// Nothing is taken any more: the channel or its link is closed.
    is_sealed: AtomicBool,
    /// Why nothing more arrives; set by the worker before it lets go of where arrivals go.
    end: OnceLock<End>,
    /// Its owner is done with the channel: it is closed once the queue is empty.
    is_leaving: AtomicBool,
    /// What the channel is to get of its link from now on, plus one; zero when that is known.
    weight: AtomicU32,
    /// Messages that the link has; the worker's own, as is the next.
    under_way: AtomicUsize,
    /// Too many are under way: it is listed again when fewer are.
    is_paused: AtomicBool,
    /// The link has no room: it is listed again when there is.
    is_stalled: AtomicBool,
    /// What is queued may have a deadline; the worker's own, too, as is the next.
    may_expire: AtomicBool,
    /// It is in the worker's list of such channels.
    is_watched: AtomicBool,
    /// Who waits for room.
    pub(super) room: Waiters,
}

impl Egress {
    pub(super) fn new(link: LinkId, channel: ChannelId) -> Self {
        Self {
            link,
            channel,
            posts: ArrayQueue::new(EGRESS_MAX),
            line: Mutex::default(),
            lined_up: AtomicUsize::new(0),
            is_timed: AtomicBool::new(false),
            next_ticket: AtomicU64::new(0),
            listed: Listed::default(),
            is_sealed: AtomicBool::new(false),
            end: OnceLock::new(),
            is_leaving: AtomicBool::new(false),
            weight: AtomicU32::new(0),
            under_way: AtomicUsize::new(0),
            is_paused: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            may_expire: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            room: Waiters::default(),
        }
    }

    /// It is to be listed; true when it was not.
    pub(super) fn mark_listed(&self) -> bool {
        self.listed.mark()
    }

    /// It is not listed any more; true when it has something for the worker all the same.
    pub(super) fn unmark_listed(&self) -> bool {
        self.listed.unmark();
        !self.posts.is_empty()
            || self.lined_up.load(Ordering::SeqCst) > 0
            || self.is_leaving.load(Ordering::SeqCst)
            || self.weight.load(Ordering::SeqCst) != 0
    }

    /// The worker looks at what has a deadline.
    pub(super) fn unmark_timed(&self) {
        self.is_timed.store(false, Ordering::SeqCst);
    }

    /// A number for a message that gets a ticket.
    pub(super) fn number_ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the queue, with what the worker has lined up, has as many messages as it may.
    fn is_full(&self) -> bool {
        match self.lined_up.load(Ordering::SeqCst) {
            0 => self.posts.is_full(),
            lined_up => lined_up + self.posts.len() >= EGRESS_MAX,
        }
    }

    /// Whether a post would be decided at once: taken, or refused for good.
    pub(super) fn is_writable(&self, bell: &Doorbell) -> bool {
        let is_over = self.is_sealed.load(Ordering::SeqCst) || bell.has_ended();
        is_over || !self.is_full()
    }

    /// Hands something over, unless the queue is full; what was refused comes back.
    #[expect(clippy::result_large_err, reason = "what is refused goes back to its owner")]
    pub(super) fn try_post(
        self: &Arc<Self>,
        bell: &Doorbell,
        post: Outgoing,
    ) -> Result<(), (Outgoing, Refusal)> {
        if bell.has_ended() {
            return Err((post, Refusal::Ended));
        }
        if self.is_sealed.load(Ordering::SeqCst) {
            return Err((post, Refusal::Sealed));
        }
        if self.lined_up.load(Ordering::SeqCst) > 0 && self.is_full() {
            return Err((post, Refusal::Full));
        }
        let is_timed = post.options.is_timed();
        self.posts.push(post).map_err(|post| (post, Refusal::Full))?;
        bell.list(self);
        if is_timed && !self.is_timed.swap(true, Ordering::SeqCst) {
            bell.list_timed(self);
        }
        bell.ring();
        if bell.is_gone() {
            // The worker may have missed it.
            self.refuse_all();
        }
        Ok(())
    }

    /// Hands something over, waiting for room as long as `patience` says: for ever if it says
    /// nothing. The time that passes counts against the timeout of the message.
    #[expect(clippy::result_large_err, reason = "what is refused goes back to its owner")]
    pub(super) fn post(
        self: &Arc<Self>,
        bell: &Doorbell,
        post: Outgoing,
        patience: Option<Duration>,
    ) -> Result<(), (Outgoing, Refusal)> {
        let mut posting = Posting::new(self, bell, post);
        let mut posted = posting.attempt();
        if posted.is_none() && patience != Some(Duration::ZERO) {
            posted = bell.wait(patience, &mut posting);
        }
        match (posted, posting.take_back()) {
            (None, Some(post)) => Err((post, Refusal::Full)),
            (posted, _) => posted.unwrap_or(Ok(())),
        }
    }

    /// Takes the oldest; the worker's side, as is all that follows but sealing.
    pub(super) fn take(&self) -> Option<Outgoing> {
        let lined_up = self.lined_up.load(Ordering::SeqCst) > 0;
        let post = if lined_up { self.line().pop_front() } else { self.posts.pop() };
        if post.is_some() {
            self.room.tell_one();
        }
        post
    }

    /// Gives the oldest back, which had no room after all.
    pub(super) fn put_back(&self, post: Outgoing) {
        self.line().push_front(post);
    }

    /// Moves what is queued to the line, with timeouts counted from `now`. Says when the first of
    /// those that were moved is to end.
    pub(super) fn line_up(&self, now: Time) -> Time {
        let mut due = Time::NEVER;
        let mut line = self.line();
        // No more than the queue holds: threads may go on posting.
        for _ in 0..EGRESS_MAX {
            let Some(mut post) = self.posts.pop() else { break };
            post.options = post.options.counted_from(|| now);
            due = due.min(post.options.deadline);
            line.push_back(post);
        }
        due
    }

    /// When the oldest in the line is to end.
    pub(super) fn next_deadline(&self) -> Time {
        self.line().front().map_or(Time::NEVER, |post| post.options.deadline)
    }

    /// Keeps of the line what `keep` wants, and hands the others to `give`. Says when the next of
    /// those that are left is to end.
    pub(super) fn sift(
        &self,
        mut keep: impl FnMut(&Outgoing) -> bool,
        mut give: impl FnMut(Outgoing),
    ) -> Time {
        let mut due = Time::NEVER;
        let mut line = self.line();
        for _ in 0..line.len() {
            let Some(post) = line.pop_front() else { break };
            if keep(&post) {
                due = due.min(post.options.deadline);
                line.push_back(post);
            } else {
                give(post);
            }
        }
        drop(line);
        self.room.tell_all();
        due
    }

    fn line(&self) -> Line<'_> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        Line { line, lined_up: &self.lined_up }
    }

    /// Whether the worker leaves the channel alone until something ends.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed) || self.is_stalled.load(Ordering::Relaxed)
    }

    /// Whether something that has a deadline came since the queue was last found empty.
    pub(super) fn may_expire(&self) -> bool {
        self.may_expire.load(Ordering::Relaxed)
    }

    /// See [`may_expire`](Self::may_expire).
    pub(super) fn set_may_expire(&self, yes: bool) {
        self.may_expire.store(yes, Ordering::Relaxed);
    }

    /// It is in the list, or not any more; true when it was.
    pub(super) fn set_watched(&self, yes: bool) -> bool {
        self.is_watched.swap(yes, Ordering::Relaxed)
    }

    /// The link has no room for its next message, or has again.
    pub(super) fn set_stalled(&self, yes: bool) {
        self.is_stalled.store(yes, Ordering::Relaxed);
    }

    /// Gives back what waits, refused.
    pub(super) fn refuse_all(&self) {
        while let Some(post) = self.take() {
            post.refuse();
        }
        self.room.tell_all();
    }

    /// Takes nothing more.
    pub(super) fn seal(&self) {
        self.is_sealed.store(true, Ordering::SeqCst);
        self.room.tell_all();
    }

    /// Nothing more arrives, and nothing is taken any more.
    pub(super) fn finish(&self, end: End) {
        // The first word counts.
        let _ = self.end.set(end);
        self.seal();
    }

    /// Whether nothing is taken any more.
    pub(super) fn is_sealed(&self) -> bool {
        self.is_sealed.load(Ordering::SeqCst)
    }

    /// Why nothing more arrives, where it is not that the worker has ended.
    pub(super) fn end(&self) -> Option<End> {
        self.end.get().copied()
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
        if bell.has_ended() || self.is_sealed.load(Ordering::SeqCst) {
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
        !self.listed.is_marked()
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

/// The worker's line of a channel, which nobody else changes. How long it is is told at the end.
struct Line<'a> {
    line: MutexGuard<'a, VecDeque<Outgoing>>,
    lined_up: &'a AtomicUsize,
}

impl Deref for Line<'_> {
    type Target = VecDeque<Outgoing>;

    fn deref(&self) -> &VecDeque<Outgoing> {
        &self.line
    }
}

impl DerefMut for Line<'_> {
    fn deref_mut(&mut self) -> &mut VecDeque<Outgoing> {
        &mut self.line
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.lined_up.store(self.line.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
