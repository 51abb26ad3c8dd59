//! The sending side of a channel: messages that wait, ids, credit.

use super::outgoing::{Outgoing, SendState};
use super::queue::SendQueue;
use crate::event::SendKey;
use crate::limits::MESSAGE_WINDOW;
use crate::schedule::WEIGHT_DEFAULT;
use alloc::collections::BTreeMap;
use towpath_base::WindowBitmap;

/// The sending side of a channel.
#[derive(Debug)]
pub(crate) struct ChannelTx {
    pub(crate) queue: SendQueue,
    /// Messages whose ABANDON has no answer, by their ids.
    pub(crate) abandoning: BTreeMap<u64, SendKey>,
    /// Messages that have no outcome yet.
    pub(crate) live: u32,
    next_message: u64,
    /// Ids whose messages have their outcome.
    ended: WindowBitmap,
    granted: u64,
    used: u64,
    /// What the peer granted at first: its grant is never further ahead of what was used.
    peer_quota: u64,
    /// Messages that are supplied while they are sent and have no outcome yet.
    pub(crate) growing: u32,
    /// Credit that all of them may hold at the receiver until more is supplied.
    pub(crate) growing_held: u32,
    /// In the link's line of channels with something to send.
    pub(crate) is_ready: bool,
    /// Its share of the link's bytes beside other channels.
    pub(crate) weight: u16,
    /// In the link's list of channels that [are starved](Self::is_starved), or were.
    pub(crate) is_listed_starved: bool,
}

impl ChannelTx {
    /// A channel whose peer grants `peer_quota` pieces at first; 0 while that is not known.
    pub(crate) fn new(peer_quota: u64) -> Self {
        Self {
            queue: SendQueue::default(),
            abandoning: BTreeMap::new(),
            live: 0,
            next_message: 0,
            ended: WindowBitmap::new(0, MESSAGE_WINDOW as usize),
            granted: peer_quota,
            used: 0,
            peer_quota,
            growing: 0,
            growing_held: 0,
            is_ready: false,
            weight: WEIGHT_DEFAULT,
            is_listed_starved: false,
        }
    }

    pub(crate) fn has_credit(&self) -> bool {
        self.used < self.granted
    }

    /// Whether it has something to send and no credit for it.
    pub(crate) fn is_starved(&self) -> bool {
        !self.has_credit() && !self.queue.is_empty()
    }

    /// Whether a piece of a message can be cut now, if there is credit for one.
    #[inline]
    pub(crate) fn may_cut(&self, message: &Outgoing) -> bool {
        let has_id = message.state != SendState::Queued || self.has_id();
        has_id && message.may_cut(self.growing_held, self.growing_max())
    }

    pub(crate) fn use_credit(&mut self) {
        self.used += 1;
    }

    /// The peer has opened the channel, and grants so much at first.
    pub(crate) fn open(&mut self, peer_quota: u64) {
        (self.granted, self.peer_quota) = (peer_quota, peer_quota);
    }

    /// Whether a cumulative grant can be true. A receiver grants its quota and what it has
    /// released, which is no more than what was used.
    pub(crate) fn may_be_granted(&self, granted: u64) -> bool {
        granted <= self.used + self.peer_quota
    }

    /// Credit that messages which are supplied while they are sent may hold until more is supplied:
    /// half, so that a message that is held whole, which needs no more than the other half, has the
    /// rest of it.
    fn growing_max(&self) -> u32 {
        (self.peer_quota / 2) as u32
    }

    /// Whether the receiver may hold a message of so many bytes whole, whose pieces have `shortest`
    /// bytes or more (docs/protocol.md section 6).
    pub(crate) fn may_be_whole(&self, message_len: u32, shortest: u32) -> bool {
        u64::from(message_len) <= (self.peer_quota / 2).max(1) * u64::from(shortest)
    }

    /// As if `chunks` more had been granted and used.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, chunks: u64) {
        self.granted += chunks;
        self.used += chunks;
    }

    /// The credit that was granted, to expand narrow values against.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// Takes in a cumulative grant; true when it is more than before.
    pub(crate) fn grant(&mut self, granted: u64) -> bool {
        let more = granted > self.granted;
        self.granted = self.granted.max(granted);
        more
    }

    /// Whether another id is within the receiver's window.
    pub(crate) fn has_id(&self) -> bool {
        self.next_message - self.ended.base() < MESSAGE_WINDOW
    }

    pub(crate) fn assign_id(&mut self) -> u64 {
        self.next_message += 1;
        self.next_message - 1
    }

    pub(crate) fn end_id(&mut self, id: u64) {
        self.ended.insert(id);
    }

    /// Credit used, cumulative.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Ids assigned.
    pub(crate) fn ids(&self) -> u64 {
        self.next_message
    }

    /// Ids from the oldest that has not ended on.
    pub(crate) fn open_ids(&self) -> u64 {
        self.next_message - self.ended.base()
    }
}
