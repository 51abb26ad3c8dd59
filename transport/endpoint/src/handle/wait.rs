//! Waiting for whichever comes first of several things, on one thread.

use super::channel::ChannelHandle;
use super::completions::CompletionQueue;
use super::lane::OpTicket;
use super::link::LinkHandle;
use super::ticket::Ticket;
use super::waiters::{Awaited, Taking};
use super::{EndpointHandle, WaitError};
use crate::park;
use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

/// What one thread waits for: messages, outcomes, room to send, channels, links. Each thing that is
/// added has a number, from 0 on; [`wait`](Self::wait) returns the number of one that has come.
///
/// Nothing is taken by waiting: call [`recv`](ChannelHandle::recv), [`poll`](CompletionQueue::poll)
/// or whatever takes the thing, with no time to wait, for another thread may have been faster. What
/// has come for good (a channel that is closed, say) counts as having come, too: then that call
/// says so. Where several things have come any of them is named.
#[derive(Default)]
pub struct WaitSet<'a> {
    things: Vec<Taking<Box<dyn Awaited + 'a>>>,
    /// The one that is looked at first, so that each has its turn.
    first: usize,
}

impl<'a> WaitSet<'a> {
    /// Waits for nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, thing: impl Awaited + 'a) -> usize {
        self.things.push(Taking::new(Box::new(thing)));
        self.things.len() - 1
    }

    /// Waits for an arrival on a channel: then [`recv`](ChannelHandle::recv) has something.
    pub fn message(&mut self, channel: &'a ChannelHandle) -> usize {
        self.add(channel.incoming())
    }

    /// Waits for an outcome: then [`poll`](CompletionQueue::poll) has one.
    pub fn outcome(&mut self, completions: &'a CompletionQueue) -> usize {
        self.add(completions.outcomes())
    }

    /// Waits for the outcome of one message: then [`wait`](Ticket::wait) has it.
    pub fn ticket(&mut self, ticket: &'a Ticket) -> usize {
        self.add(ticket.awaited())
    }

    /// Waits for the outcome of a one-sided operation: then [`wait`](OpTicket::wait) has it.
    pub fn operation(&mut self, ticket: &'a OpTicket) -> usize {
        self.add(ticket.awaited())
    }

    /// Waits for a change of what the peer grants: then [`recv_grant`](LinkHandle::recv_grant) has
    /// it.
    pub fn grant(&mut self, link: &'a LinkHandle) -> usize {
        self.add(link.changes())
    }

    /// Waits for room in the queue of a channel: then [`post`](ChannelHandle::post) and
    /// [`try_send`](ChannelHandle::try_send) are not refused for want of it.
    pub fn writable(&mut self, channel: &'a ChannelHandle) -> usize {
        self.add(channel.room())
    }

    /// Waits for a channel that the peer opens: then
    /// [`accept_channel`](LinkHandle::accept_channel) has it.
    pub fn channel(&mut self, link: &'a LinkHandle) -> usize {
        self.add(link.opened())
    }

    /// Waits for a link that a peer connects: then [`accept`](EndpointHandle::accept) has it.
    pub fn link(&mut self, endpoint: &'a EndpointHandle) -> usize {
        self.add(&endpoint.accepted)
    }

    /// The number of one thing that has come, waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`WaitError::Timeout`]: none has come.
    pub fn wait(&mut self, timeout: Duration) -> Result<usize, WaitError> {
        let found = if timeout.is_zero() {
            self.find()
        } else {
            park::look(|| self.find()).or_else(|| {
                let found = park::within(timeout, poll_fn(|cx| self.poll(cx)));
                self.things.iter_mut().for_each(Taking::leave);
                found
            })
        };
        found.ok_or(WaitError::Timeout)
    }

    fn find(&mut self) -> Option<usize> {
        self.pick(|thing| thing.source.is_there())
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<usize> {
        self.pick(|thing| thing.watch(cx.waker())).map_or(Poll::Pending, Poll::Ready)
    }

    fn pick(
        &mut self,
        mut is_there: impl FnMut(&mut Taking<Box<dyn Awaited + 'a>>) -> bool,
    ) -> Option<usize> {
        let count = self.things.len();
        let mut order = (self.first..count).chain(0..self.first.min(count));
        let found = order.find(|&number| is_there(&mut self.things[number]))?;
        self.first = found + 1;
        Some(found)
    }
}

impl fmt::Debug for WaitSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitSet").finish_non_exhaustive()
    }
}
