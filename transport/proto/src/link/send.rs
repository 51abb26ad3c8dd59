//! SEND: taking messages from the application, and giving them up again.

use super::control::Control;
use super::fresh::is_queued;
use super::grow::begin_to_grow;
use super::{Channels, Link, LinkState, find_mut};
use crate::channel::Outgoing;
use crate::channel::{Channel, ChannelState, SendState};
use crate::event::SendFrame;
use crate::event::{ChannelId, Outcome, SendKey};
use crate::limits::{MESSAGE_BYTES_MAX, SEGMENTS_MAX};
use crate::schedule::FairQueue;
use crate::slots::Slots;
use crate::wire::Kind;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendError {
    /// The channel does not exist or is not open (yet, or any more).
    NotOpen,
    /// As many messages are being sent as the link allows; wait for one to end.
    Full,
    /// Longer than the peer or the protocol takes.
    TooLong {
        /// What the peer takes.
        max: u32,
    },
    /// No segment, too many, or an empty one.
    BadLayout,
    /// It grows, on an ordered channel: there it would hold up what is sent behind it.
    Ordered,
    /// The link is leaving or down.
    Down,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpen => write!(f, "the channel is not open"),
            Self::Full => write!(f, "too many messages are being sent; wait for one to end"),
            Self::TooLong { max } => {
                write!(f, "the message is longer than the {max} bytes the peer takes")
            }
            Self::BadLayout => write!(f, "a message has 1 to {SEGMENTS_MAX} segments, none empty"),
            Self::Ordered => {
                write!(f, "a message that is supplied while it is sent needs an unordered channel")
            }
            Self::Down => write!(f, "the link is down or leaving"),
        }
    }
}

impl core::error::Error for SendError {}

/// Why a message cannot be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelError {
    /// It has ended already; its outcome was or will be reported.
    Ended,
}

impl fmt::Display for CancelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message has ended already")
    }
}

impl core::error::Error for CancelError {}

/// A frame that waits to be sent before anything new.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) frame: SendFrame,
    /// The path that lost it; none where it is the rest of a piece, sent for the first time.
    pub(super) lost_on: Option<u8>,
}

/// Messages being sent.
#[derive(Debug)]
pub(super) struct Sends {
    pub(super) messages: Slots<Outgoing>,
    /// Frames that were lost, and the rests of pieces that go in parts: to be sent before anything
    /// new.
    pub(super) lost: VecDeque<Pending>,
    pub(super) next_deadline: Time,
    /// The longest piece that both ends take.
    pub(super) piece_max: u32,
    /// Kept between calls for its memory, like the two below.
    pub(super) ended_scratch: Vec<SendKey>,
    pub(super) frames_scratch: Vec<SendFrame>,
    pub(super) newest_scratch: Vec<SendFrame>,
}

impl Sends {
    pub(super) fn new(sends_max: usize, piece_max: u32) -> Self {
        Self {
            messages: Slots::new(sends_max),
            lost: VecDeque::with_capacity(64),
            next_deadline: Time::NEVER,
            piece_max,
            ended_scratch: Vec::new(),
            frames_scratch: Vec::new(),
            newest_scratch: Vec::new(),
        }
    }
}

impl Link {
    /// Takes a message. Its bytes stay with the device until [`Event::Sent`](crate::Event::Sent)
    /// reports the key that is returned here.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was taken.
    pub fn send(&mut self, request: &SendRequest<'_>) -> Result<SendKey, SendError> {
        self.take_in(request, false)
    }

    /// Takes a message; of one that `grows` the bytes of the last segment are still to come.
    #[inline]
    pub(super) fn take_in(
        &mut self,
        request: &SendRequest<'_>,
        grows: bool,
    ) -> Result<SendKey, SendError> {
        if self.end.state != LinkState::Up {
            return Err(SendError::Down);
        }
        let message_len = message_len(request.segments).ok_or(SendError::BadLayout)?;
        let Self {
            channels: Channels { all: channels, schedule, .. },
            sends: Sends { messages: sends, piece_max, .. },
            ..
        } = self;
        let open = find_mut(channels, request.channel.0).filter(|c| c.state == ChannelState::Open);
        let channel = open.ok_or(SendError::NotOpen)?;
        let max = channel.peer_message_max.min(MESSAGE_BYTES_MAX);
        if message_len > u64::from(max) {
            return Err(SendError::TooLong { max });
        }
        if grows && channel.ordered {
            return Err(SendError::Ordered);
        }
        let (key, message) = sends.take().ok_or(SendError::Full)?;
        let send = SendKey(key);
        message.start(request);
        if grows {
            begin_to_grow(channel, message, (request, message_len as u32), *piece_max);
        }
        self.sends.next_deadline = self.sends.next_deadline.min(request.deadline);
        channel.tx.queue.push_back(send);
        channel.tx.live += 1;
        line_up(channel, schedule);
        Ok(send)
    }

    /// Gives a message up; its outcome comes with [`Event::Sent`](crate::Event::Sent)
    /// (docs/protocol.md section 7).
    ///
    /// # Errors
    /// [`CancelError::Ended`] when it has its outcome already.
    pub fn cancel(&mut self, send: SendKey) -> Result<(), CancelError> {
        let message = self.sends.messages.get_mut(send.0).ok_or(CancelError::Ended)?;
        match message.state {
            SendState::Queued => self.end_send(send, Outcome::Abandoned),
            SendState::Sending => {
                message.state = SendState::Abandoning;
                let abandon = Control {
                    message: message.id,
                    message_len: message.message_len,
                    index: message.pieces_cut(),
                    ..Control::of(Kind::Abandon, message.channel)
                };
                let (id, queued) = (message.channel, message.is_in_queue());
                let message_id = message.id;
                if let Some(channel) = self.channel_mut(id) {
                    channel.tx.abandoning.insert(message_id, send);
                }
                if queued {
                    self.leave_queue(id);
                    self.make_ready(id);
                }
                self.leave_growing(send);
                self.control.queue.push_back(abandon);
            }
            SendState::Abandoning => {}
            SendState::Ended(_) => return Err(CancelError::Ended),
        }
        Ok(())
    }

    /// Gives up every message whose deadline has passed.
    pub(super) fn expire_sends(&mut self, now: Time) {
        if self.sends.next_deadline > now {
            return;
        }
        self.sends.next_deadline = Time::NEVER;
        let mut expired = core::mem::take(&mut self.sends.ended_scratch);
        for key in self.sends.messages.keys() {
            let message = self.sends.messages.get(key).expect("keys are live");
            if !matches!(message.state, SendState::Queued | SendState::Sending) {
                continue;
            }
            if message.deadline <= now {
                expired.push(SendKey(key));
            } else {
                self.sends.next_deadline = self.sends.next_deadline.min(message.deadline);
            }
        }
        for send in expired.drain(..) {
            // It may have ended through another one's end; then there is nothing to give up.
            let _ = self.cancel(send);
        }
        self.sends.ended_scratch = expired;
    }

    /// A message in a channel's queue is queued no more.
    pub(super) fn leave_queue(&mut self, id: u32) {
        let Self {
            channels: Channels { all: channels, .. },
            sends: Sends { messages: sends, .. },
            ..
        } = self;
        if let Some(channel) = find_mut(channels, id) {
            channel.tx.queue.note_gone(|send| is_queued(sends, send));
        }
    }

    /// Puts a channel in the line of those with something to send.
    pub(super) fn make_ready(&mut self, id: u32) {
        let Self { channels: Channels { all: channels, schedule, .. }, .. } = self;
        if let Some(channel) = find_mut(channels, id) {
            line_up(channel, schedule);
        }
    }
}

/// The bytes of all segments; `None` when there are none, too many, or empty ones.
#[inline]
fn message_len(segments: &[u32]) -> Option<u64> {
    if segments.len() > SEGMENTS_MAX {
        return None;
    }
    let mut sum = 0;
    for &len in segments {
        if len == 0 {
            return None;
        }
        sum += u64::from(len);
    }
    (sum > 0).then_some(sum)
}

/// Puts a channel in line, if it is not there.
#[inline]
pub(super) fn line_up(channel: &mut Channel, schedule: &mut FairQueue) {
    if !core::mem::replace(&mut channel.tx.is_ready, true) {
        schedule.enter(ChannelId(channel.id), channel.tx.weight);
    }
}
