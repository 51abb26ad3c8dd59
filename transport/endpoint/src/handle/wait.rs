//! Waiting for whichever comes first of several things, on one thread.

use super::channel::ChannelHandle;
use super::completions::CompletionQueue;
use super::link::LinkHandle;
use super::ticket::Ticket;
use super::{EndpointHandle, WaitError};
use crossbeam_channel::Select;
use std::fmt;
use std::time::{Duration, Instant};

/// What one thread waits for: messages, outcomes, room to send, channels, links. Each thing that is
/// added has a number, from 0 on; [`wait`](Self::wait) returns the number of one that has come.
///
/// Nothing is taken by waiting: call [`recv`](ChannelHandle::recv), [`poll`](CompletionQueue::poll)
/// or whatever takes the thing, with no time to wait, for another thread may have been faster. What
/// has come for good (a channel that is closed, say) counts as having come, too: then that call
/// says so. Where several things have come any of them is named.
#[derive(Default)]
pub struct WaitSet<'a> {
    select: Select<'a>,
    /// Channels that are waited for until they are writable, by number.
    writable: Vec<(usize, &'a ChannelHandle)>,
}

impl<'a> WaitSet<'a> {
    /// Waits for nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for an arrival on a channel: then [`recv`](ChannelHandle::recv) has something.
    pub fn message(&mut self, channel: &'a ChannelHandle) -> usize {
        self.select.recv(channel.incoming())
    }

    /// Waits for an outcome: then [`poll`](CompletionQueue::poll) has one.
    pub fn outcome(&mut self, completions: &'a CompletionQueue) -> usize {
        self.select.recv(completions.outcomes())
    }

    /// Waits for the outcome of one message: then [`wait`](Ticket::wait) has it.
    pub fn ticket(&mut self, ticket: &'a Ticket) -> usize {
        self.select.recv(ticket.answer())
    }

    /// Waits for room in the queue of a channel: then [`post`](ChannelHandle::post) and
    /// [`try_send`](ChannelHandle::try_send) are not refused for want of it.
    pub fn writable(&mut self, channel: &'a ChannelHandle) -> usize {
        let number = self.select.recv(channel.room());
        self.writable.push((number, channel));
        number
    }

    /// Waits for a channel that the peer opens: then
    /// [`accept_channel`](LinkHandle::accept_channel) has it.
    pub fn channel(&mut self, link: &'a LinkHandle) -> usize {
        self.select.recv(link.opened())
    }

    /// Waits for a link that a peer connects: then [`accept`](EndpointHandle::accept) has it.
    pub fn link(&mut self, endpoint: &'a EndpointHandle) -> usize {
        self.select.recv(&endpoint.accepted)
    }

    /// The number of one thing that has come, waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`WaitError::Timeout`]: none has come.
    pub fn wait(&mut self, timeout: Duration) -> Result<usize, WaitError> {
        for (_, channel) in &self.writable {
            channel.watch_room();
        }
        let found = self.wait_until(Instant::now().checked_add(timeout));
        for (_, channel) in &self.writable {
            channel.unwatch_room();
        }
        found
    }

    /// Channels are watched meanwhile, so that each word about room comes after somebody made some.
    fn wait_until(&mut self, end: Option<Instant>) -> Result<usize, WaitError> {
        loop {
            let number = match end {
                Some(end) => self.select.ready_deadline(end).map_err(|_| WaitError::Timeout)?,
                None => self.select.ready(),
            };
            let channel = self.writable.iter().find(|(of, _)| *of == number);
            // The word may be an old one.
            if channel.is_none_or(|(_, channel)| channel.take_room()) {
                return Ok(number);
            }
        }
    }
}

impl fmt::Debug for WaitSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitSet").finish_non_exhaustive()
    }
}
