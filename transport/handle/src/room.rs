//! Waiting for room in the queue of a channel, with a message to post and without.

use crate::doorbell::Doorbell;
use crate::egress::{Egress, Outgoing, Refusal};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use towpath_base::Nanos;
use towpath_wake::{Awaited, Take, Waiters};

/// One that waits for room for its message. Dropped before, it takes the message with it.
pub(super) struct Posting<'a> {
    egress: &'a Arc<Egress>,
    bell: &'a Doorbell,
    post: Option<Outgoing>,
    /// Its timeout, and since when it counts.
    timeout: Option<Nanos>,
    began: Option<Instant>,
    place: Option<u64>,
}

impl<'a> Posting<'a> {
    pub(super) fn new(egress: &'a Arc<Egress>, bell: &'a Doorbell, post: Outgoing) -> Self {
        let timeout = post.options.timeout;
        Self { egress, bell, post: Some(post), timeout, began: None, place: None }
    }

    /// Hands it over, if there is room.
    pub(super) fn attempt(&mut self) -> Option<Result<(), (Outgoing, Refusal)>> {
        let mut post = self.post.take()?;
        if let Some(began) = self.began {
            post.options.timeout = self.timeout.map(|span| span - began.elapsed().into());
        }
        match self.egress.try_post(self.bell, post) {
            Err((back, Refusal::Full)) => {
                self.began.get_or_insert_with(Instant::now);
                self.post = Some(back);
                None
            }
            decided => Some(decided),
        }
    }

    /// The message, unless it was handed over.
    pub(super) fn take_back(&mut self) -> Option<Outgoing> {
        self.post.take()
    }

    fn leave(&mut self) {
        if self.egress.room.leave(&mut self.place) && self.egress.is_writable(self.bell) {
            self.egress.room.tell_one();
        }
    }
}

impl Future for Posting<'_> {
    type Output = Result<(), (Outgoing, Refusal)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let posting = &mut *self;
        let decided = posting.attempt().or_else(|| {
            posting.egress.room.join(&mut posting.place, cx.waker());
            posting.attempt()
        });
        if decided.is_some() {
            posting.leave();
        }
        decided.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Room in the queue of a channel, to be waited for.
#[derive(Clone, Copy)]
pub(super) struct Room<'a> {
    pub(super) egress: &'a Egress,
    pub(super) bell: &'a Doorbell,
}

impl Awaited for Room<'_> {
    fn waiters(&self) -> &Waiters {
        &self.egress.room
    }

    fn is_there(&self) -> bool {
        self.egress.is_writable(self.bell)
    }
}

impl Take for Room<'_> {
    type Item = ();

    fn take(&self) -> Option<()> {
        self.is_there().then_some(())
    }
}
