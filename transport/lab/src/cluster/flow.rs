//! What one application sends another, and what came of it.

use std::collections::VecDeque;
use towpath_base::{Nanos, Prng, Time};
use towpath_proto::{ChannelId, Class};
use towpath_transport::LinkId;

/// When an application sends its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// As soon as fewer than `depth` are under way.
    Closed {
        /// Messages under way at a time.
        depth: u32,
    },
    /// Whatever is under way: one each `every` on average, at random times (a Poisson process).
    /// No more than `backlog_max` wait; later ones are counted and never sent.
    Open {
        /// The mean time between two messages.
        every: Nanos,
        /// Messages under way at a time, at most.
        backlog_max: u32,
    },
}

/// What one application sends another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPlan {
    /// The host that sends.
    pub from: usize,
    /// The host that reads.
    pub to: usize,
    /// Bytes of each message, at least one.
    pub message_bytes: u32,
    /// The class of the link that it goes over.
    pub class: Class,
    /// When the next one is sent.
    pub load: Load,
    /// The first message is sent then.
    pub start: Time,
    /// No message is sent from then on.
    pub stop: Time,
}

impl FlowPlan {
    /// One message after another, from the start to the end of the run.
    #[must_use]
    pub fn closed(from: usize, to: usize, message_bytes: u32) -> Self {
        let (load, start, stop) = (Load::Closed { depth: 1 }, Time::ZERO, Time::NEVER);
        Self { from, to, message_bytes, class: Class::default(), load, start, stop }
    }

    /// Over a link of this class.
    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// With up to so many messages under way at a time.
    #[must_use]
    pub fn depth(mut self, depth: u32) -> Self {
        self.load = Load::Closed { depth };
        self
    }

    /// At random times, `every` apart on average.
    #[must_use]
    pub fn open(mut self, every: Nanos, backlog_max: u32) -> Self {
        self.load = Load::Open { every, backlog_max };
        self
    }

    /// Only from `start` on and before `stop`.
    #[must_use]
    pub fn between(mut self, start: Time, stop: Time) -> Self {
        (self.start, self.stop) = (start, stop);
        self
    }

    /// Messages that are under way at a time, at most.
    pub(super) fn under_way_max(&self) -> u32 {
        match self.load {
            Load::Closed { depth } => depth,
            Load::Open { backlog_max, .. } => backlog_max,
        }
    }
}

/// What came of a flow so far; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that the sender was told are delivered.
    pub delivered: u64,
    /// Messages that were read, whole and intact, in order, each once.
    pub read: u64,
    /// Bytes that were read, those of messages that are not whole yet included.
    pub bytes: u64,
    /// Messages of an open load that were not sent because too many were under way,
    /// or there was no buffer.
    pub skipped: u64,
    /// The sum of the times from sending to the sender's word of delivery.
    pub latency: Nanos,
}

impl FlowCount {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            sent: self.sent - earlier.sent,
            delivered: self.delivered - earlier.delivered,
            read: self.read - earlier.read,
            bytes: self.bytes - earlier.bytes,
            skipped: self.skipped - earlier.skipped,
            latency: self.latency - earlier.latency,
        }
    }
}

/// A flow under way.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) plan: FlowPlan,
    pub(super) count: FlowCount,
    /// The sender's link.
    pub(super) link: LinkId,
    pub(super) channel: ChannelId,
    /// The channel is open at the sender.
    pub(super) is_open: bool,
    /// Whose the channel is: itself, or the flow that it shares it with.
    pub(super) owner: usize,
    /// Whose channel others use: the flows of the messages that are to be read, its own included,
    /// in the order in which they were sent.
    pub(super) line: Option<VecDeque<usize>>,
    /// When the next message of an open load is due.
    next_at: Time,
    prng: Prng,
    /// Bytes of the message that is being read.
    pub(super) read_bytes: u32,
}

impl Flow {
    pub(super) fn new(
        plan: FlowPlan,
        (link, channel): (LinkId, ChannelId),
        owner: usize,
        seed: u64,
    ) -> Self {
        Self {
            plan,
            count: FlowCount::default(),
            link,
            channel,
            is_open: false,
            owner,
            line: None,
            next_at: plan.start,
            prng: Prng::new(seed),
            read_bytes: 0,
        }
    }

    /// Whether all that was sent is delivered and read.
    pub(super) fn is_settled(&self) -> bool {
        self.count.sent == self.count.delivered && self.count.sent == self.count.read
    }

    /// Whether a message is to be sent now.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        if !self.is_open || now < self.next_at || now >= self.plan.stop {
            return false;
        }
        let under_way = self.count.sent - self.count.delivered;
        match self.plan.load {
            Load::Closed { depth } => under_way < u64::from(depth),
            Load::Open { every, backlog_max } => {
                // An exponential span; the unit draw is below one.
                let span = -(1.0 - self.prng.unit()).ln() * every.0 as f64;
                self.next_at += Nanos((span as u64).max(1));
                let has_room = under_way < u64::from(backlog_max);
                self.count.skipped += u64::from(!has_room);
                has_room
            }
        }
    }

    /// A message that was due had no buffer: one of an open load is not sent later.
    pub(super) fn on_no_buffer(&mut self) {
        self.count.skipped += u64::from(matches!(self.plan.load, Load::Open { .. }));
    }

    /// When it does something by itself, after `now`.
    pub(super) fn next_time(&self, now: Time) -> Time {
        let waits = self.is_open && self.next_at > now && self.next_at < self.plan.stop;
        if waits { self.next_at } else { Time::NEVER }
    }
}
