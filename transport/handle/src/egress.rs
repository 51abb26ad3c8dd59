//! What waits to be sent on one channel.
//!
//! Threads put messages into the inbox of the worker, without a lock. The worker moves them to the
//! line of their channel, and hands them to the link from there, a few of each channel in turn.

use crate::limits::EGRESS_MAX;
use crate::reply::{Reply, SentMessage};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use towpath_base::Time;
use towpath_proto::{ChannelId, CloseReason, DownReason, Outcome};
use towpath_transport::{LinkId, Payload, Rejected, SendOptions, SubmitError};
use towpath_wake::{Awaited, Take, Waiters};

/// A message to send, and where its outcome goes.
pub(crate) struct Outgoing {
    pub(crate) payload: Payload,
    pub(crate) options: SendOptions,
    pub(crate) reply: Reply,
}

impl Outgoing {
    /// Ends it as abandoned: nothing of it was sent.
    pub(crate) fn abandon(self) {
        let Self { payload, options, reply } = self;
        let outcome = Outcome::Abandoned;
        reply.tell(Ok(SentMessage { token: options.token, outcome, payload }));
    }

    /// Refuses it, because the worker ends.
    pub(crate) fn refuse(self) {
        let Self { payload, reply, .. } = self;
        reply.tell(Err(Rejected { payload, error: SubmitError::ShutDown }));
    }
}

/// Why nothing more arrives on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Closed(CloseReason),
    Down(DownReason),
}

/// Messages that wait to be sent on one channel. Its [waiters](Awaited) wait for room for one more.
pub(crate) struct Egress {
    pub(crate) link: LinkId,
    pub(crate) channel: ChannelId,
    /// Posted messages that the link does not have yet, at most [`EGRESS_MAX`].
    waiting: AtomicUsize,
    /// The number of the next message that has a ticket.
    next_ticket: AtomicU64,
    /// No more messages are accepted: the channel, its link or the worker has ended.
    is_sealed: AtomicBool,
    /// Why nothing more arrives. The worker sets it before it closes the queue of arrivals.
    pub(crate) end: OnceLock<End>,
    /// A new weight that the worker has not read, plus one; zero when there is none.
    weight: AtomicU32,
    room: Waiters,
    line: Mutex<Line>,
}

/// The worker's side of a channel.
pub(crate) struct Line {
    pub(crate) posts: VecDeque<Outgoing>,
    /// No message in `posts` has a deadline before this time.
    pub(crate) due: Time,
    /// Messages that the link has and that have no outcome yet.
    pub(crate) under_way: usize,
    pub(crate) standing: Standing,
    /// The worker watches `due`, because it does not serve the channel now.
    pub(crate) is_watched: bool,
    /// The channel is to be closed once the link has all posted messages.
    pub(crate) is_leaving: bool,
}

/// Whether the worker serves a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing waits to be sent.
    Idle,
    /// The channel waits for its turn.
    Ready,
    /// As many messages as allowed are with the link. The channel continues when some end.
    Paused,
    /// The link has no room. The channel continues when the link has room.
    Stalled,
}

impl Egress {
    pub(crate) fn new(link: LinkId, channel: ChannelId) -> Self {
        let line = Line {
            posts: VecDeque::new(),
            due: Time::NEVER,
            under_way: 0,
            standing: Standing::Idle,
            is_watched: false,
            is_leaving: false,
        };
        Self {
            link,
            channel,
            waiting: AtomicUsize::new(0),
            next_ticket: AtomicU64::new(0),
            is_sealed: AtomicBool::new(false),
            end: OnceLock::new(),
            weight: AtomicU32::new(0),
            room: Waiters::default(),
            line: Mutex::new(line),
        }
    }

    /// The number of the next ticket.
    pub(crate) fn number_ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
    }

    /// Reserves room for one message.
    pub(crate) fn reserve(&self) -> Result<(), SubmitError> {
        if self.is_sealed() {
            return Err(SubmitError::NotOpen(self.channel));
        }
        let reserve = |waiting| (waiting < EGRESS_MAX).then_some(waiting + 1);
        let reserved = self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, reserve);
        reserved.map(drop).map_err(|_| SubmitError::QueueFull)
    }

    /// Frees the room of one message.
    pub(crate) fn free(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.room.tell_one();
    }

    /// Whether the link has all posted messages.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Accepts no more messages.
    pub(crate) fn seal(&self) {
        self.is_sealed.store(true, Ordering::SeqCst);
        self.room.tell_all();
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed.load(Ordering::SeqCst)
    }

    /// Sets why nothing more arrives, and accepts no more messages.
    pub(crate) fn finish(&self, end: End) {
        // The first reason counts.
        let _ = self.end.set(end);
        self.seal();
    }

    /// Sets another weight. True if the worker has to be told, because it has read the last one.
    pub(crate) fn set_weight(&self, weight: u16) -> bool {
        self.weight.swap(u32::from(weight) + 1, Ordering::SeqCst) == 0
    }

    /// A new weight that the worker has not read.
    pub(crate) fn take_weight(&self) -> Option<u16> {
        let weight = self.weight.swap(0, Ordering::SeqCst);
        weight.checked_sub(1).map(|weight| weight as u16)
    }

    /// The worker's side.
    pub(crate) fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Abandons the messages in the line that `is_over` finds. Returns the next deadline left.
    pub(crate) fn abandon(&self, is_over: impl Fn(&Outgoing) -> bool) -> Time {
        let mut line = self.line();
        let (over, posts) = line.posts.drain(..).partition::<VecDeque<_>, _>(is_over);
        line.due = posts.iter().map(|post| post.options.deadline).min().unwrap_or(Time::NEVER);
        line.posts = posts;
        let due = line.due;
        drop(line);
        for post in over {
            post.abandon();
            self.free();
        }
        due
    }

    /// Seals the channel and refuses the messages in the line, because the worker ends.
    pub(crate) fn refuse_all(&self) {
        self.seal();
        let posts = std::mem::take(&mut self.line().posts);
        posts.into_iter().for_each(Outgoing::refuse);
    }
}

impl Awaited for Egress {
    fn waiters(&self) -> &Waiters {
        &self.room
    }

    /// Whether a post would be decided at once: taken, or refused for good.
    fn is_there(&self) -> bool {
        self.is_sealed() || self.waiting.load(Ordering::SeqCst) < EGRESS_MAX
    }
}

impl Take for Egress {
    type Item = ();

    fn take(&self) -> Option<()> {
        self.is_there().then_some(())
    }
}

#[cfg(test)]
mod tests;
