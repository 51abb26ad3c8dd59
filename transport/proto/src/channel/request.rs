//! What is asked of a channel, and why it may be refused.

use crate::event::ChannelId;
use crate::limits::SEGMENTS_MAX;
use towpath_base::Time;

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// On which channel.
    pub channel: ChannelId,
    /// The caller's own word, returned in [`Event::Sent`](crate::Event::Sent).
    pub token: u64,
    /// The lengths of its segments, 1 to 4, none empty. A piece never spans two.
    pub segments: &'a [u32],
    /// When to give it up; [`Time::NEVER`] for never.
    pub deadline: Time,
    /// Its pieces of [`PAGE_BYTES`](crate::limits::PAGE_BYTES) or more are to land at pages, and
    /// are cut there. Others lie back to back in full chunks, which takes fewer of these.
    pub at_pages: bool,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SendError {
    /// The channel does not exist or is not open (yet, or any more).
    #[error("the channel is not open")]
    NotOpen,
    /// As many messages are being sent as the link allows; wait for one to end.
    #[error("too many messages are being sent; wait for one to end")]
    Full,
    /// Longer than the peer or the protocol takes.
    #[error("the message is longer than the {max} bytes the peer takes")]
    TooLong {
        /// What the peer takes.
        max: u32,
    },
    /// No segment, too many, or an empty one.
    #[error("a message has 1 to {SEGMENTS_MAX} segments, none empty")]
    BadLayout,
    /// It grows, on an ordered channel: there it would hold up what is sent behind it.
    #[error("a message that is supplied while it is sent needs an unordered channel")]
    Ordered,
    /// The link is leaving or down.
    #[error("the link is down or leaving")]
    Down,
}

/// Why a message cannot be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CancelError {
    /// It has ended already; its outcome was or will be reported.
    #[error("the message has ended already")]
    Ended,
}
