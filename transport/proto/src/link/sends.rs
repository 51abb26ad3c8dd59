//! Messages being sent: taking them in, supplying them, giving them up, and their ends.

use super::channels::{Channels, line_up};
use super::control::Control;
use super::find_mut;
use crate::channel::{
    Channel, ChannelState, Outgoing, PieceSizes, SendError, SendRequest, SendState, SupplyError,
};
use crate::event::{Event, Outcome, SendFrame, SendKey};
use crate::limits::{MESSAGE_BYTES_MAX, SEGMENTS_MAX};
use crate::slots::Slots;
use crate::stats::LinkStats;
use crate::wire::Kind;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use towpath_base::Time;

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
    /// `lost` may need sorting: frames of pieces that the receiver holds parts of go first.
    is_lost_mixed: bool,
    next_deadline: Time,
    /// The longest piece that both ends take.
    pub(super) piece_max: u32,
    /// Channels that may continue after the ack that is being taken in: more of a message may be
    /// cut, or the channel may end.
    pub(super) woken: Vec<u32>,
    /// Kept between calls for its memory, like the one below.
    pub(super) frames_scratch: Vec<SendFrame>,
    scratch: Vec<SendKey>,
}

impl Sends {
    pub(super) fn new(sends_max: usize, piece_max: u32) -> Self {
        Self {
            messages: Slots::new(sends_max),
            lost: VecDeque::with_capacity(64),
            is_lost_mixed: false,
            next_deadline: Time::NEVER,
            piece_max,
            woken: Vec::new(),
            frames_scratch: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Messages whose [`Event::Sent`] was not taken.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// When the next message is to be given up.
    pub(super) fn next_deadline(&self) -> Time {
        self.next_deadline
    }

    /// The [`Event::Sent`] of a message was taken.
    #[inline]
    pub(super) fn free(&mut self, send: SendKey) {
        self.messages.free(send.0);
    }

    /// Takes a message. If it `grows`, the bytes of its last segment are supplied later.
    #[inline]
    pub(super) fn take_in(
        &mut self,
        channels: &mut Channels,
        request: &SendRequest<'_>,
        grows: bool,
    ) -> Result<SendKey, SendError> {
        let message_len = message_len(request.segments).ok_or(SendError::BadLayout)?;
        let Channels { all, schedule, .. } = channels;
        let open = find_mut(all, request.channel.0).filter(|c| c.state == ChannelState::Open);
        let channel = open.ok_or(SendError::NotOpen)?;
        let max = channel.peer_message_max.min(MESSAGE_BYTES_MAX);
        if message_len > u64::from(max) {
            return Err(SendError::TooLong { max });
        }
        if grows && channel.ordered {
            return Err(SendError::Ordered);
        }
        let (key, message) = self.messages.take().ok_or(SendError::Full)?;
        let send = SendKey(key);
        message.start(request);
        if grows {
            begin_to_grow(channel, message, (request, message_len as u32), self.piece_max);
        }
        self.next_deadline = self.next_deadline.min(request.deadline);
        channel.tx.queue.push_back(send);
        channel.tx.live += 1;
        line_up(channel, schedule);
        Ok(send)
    }

    /// Takes bytes of a message that grows, from `offset` of its last segment on.
    pub(super) fn supply(
        &mut self,
        channels: &mut Channels,
        send: SendKey,
        bytes: (u32, u32),
    ) -> Result<(), SupplyError> {
        let Self { messages, lost, .. } = self;
        let message = messages.get_mut(send.0).filter(|message| message.is_queued());
        let message = message.ok_or(SupplyError::Ended)?;
        message.supply(send, bytes, |frame| {
            // Its piece is cut already: the frame goes like the rest of a piece that goes in parts.
            lost.push_back(Pending { frame, lost_on: None });
        })?;
        let Channels { all, schedule, .. } = channels;
        let id = message.channel;
        let Some(channel) = find_mut(all, id) else { return Ok(()) };
        if !message.in_line && message.bytes_at_hand() > 0 {
            message.in_line = true;
            channel.tx.queue.push_back(send);
        }
        // A gap may be filled, or the message complete: this one or others may continue.
        settle_held(channel, message);
        line_up(channel, schedule);
        Ok(())
    }

    /// Where a message is in its life.
    pub(super) fn state(&self, send: SendKey) -> Option<SendState> {
        self.messages.get(send.0).map(|message| message.state)
    }

    /// Begins to give up a message of which something was sent. Returns the ABANDON for the peer.
    pub(super) fn abandon(&mut self, channels: &mut Channels, send: SendKey) -> Option<Control> {
        let message = self.messages.get_mut(send.0)?;
        message.state = SendState::Abandoning;
        let (id, index) = (message.channel, message.pieces_cut());
        let Outgoing { id: message, message_len, .. } = *message;
        find_mut(&mut channels.all, id)?.tx.abandoning.insert(message, send);
        self.leave_line(channels, send);
        Some(Control { message, message_len, index, ..Control::of(Kind::Abandon, id) })
    }

    /// Takes a message out of the queue of its channel, and frees the credit that it held if it
    /// grew. Others may be cut in its place.
    fn leave_line(&mut self, channels: &mut Channels, send: SendKey) {
        let Some(message) = self.messages.get_mut(send.0) else { return };
        let Channels { all, schedule, .. } = channels;
        let Some(channel) = find_mut(all, message.channel) else { return };
        if let Some(growing) = message.growing.take() {
            channel.tx.growing -= 1;
            channel.tx.growing_held -= growing.held;
        }
        if core::mem::take(&mut message.in_line) {
            channel.tx.queue.note_gone(|send| is_queued(&self.messages, send));
        }
        line_up(channel, schedule);
    }

    /// Gives a message its outcome, which is reported when the device holds none of its buffers.
    /// Returns its channel if that waits for its messages to end.
    #[inline]
    pub(super) fn end(
        &mut self,
        channels: &mut Channels,
        (send, outcome): (SendKey, Outcome),
        (events, stats): (&mut VecDeque<Event>, &mut LinkStats),
    ) -> Option<u32> {
        let message = self.messages.get_mut(send.0)?;
        let (state, channel_id, id) = (message.state, message.channel, message.id);
        if matches!(state, SendState::Ended(_)) {
            return None;
        }
        message.state = SendState::Ended(outcome);
        let (token, posted) = (message.token, message.posted);
        if message.in_line || message.growing.is_some() {
            self.leave_line(channels, send);
        }
        match outcome {
            Outcome::Delivered => stats.messages_delivered += 1,
            Outcome::Abandoned => stats.messages_abandoned += 1,
            Outcome::Unknown => {}
        }
        if posted == 0 {
            events.push_back(Event::Sent { send, token, outcome });
        }
        let Channels { all, schedule, .. } = channels;
        let channel = find_mut(all, channel_id)?;
        channel.tx.live -= 1;
        if state == SendState::Abandoning {
            channel.tx.abandoning.remove(&id);
        }
        if state != SendState::Queued {
            channel.tx.end_id(id);
            // A new id may have come within reach.
            if !channel.tx.queue.is_empty() {
                line_up(channel, schedule);
            }
        }
        (channel.state == ChannelState::Closing).then_some(channel_id)
    }

    /// Ends all messages, or those of one channel, without asking the peer.
    pub(super) fn end_all(
        &mut self,
        channels: &mut Channels,
        of: Option<u32>,
        (events, stats): (&mut VecDeque<Event>, &mut LinkStats),
    ) {
        let mut keys = core::mem::take(&mut self.scratch);
        keys.extend(self.messages.keys().map(SendKey));
        for send in keys.drain(..) {
            let Some(message) = self.messages.get(send.0) else { continue };
            if of.is_none_or(|id| message.channel == id) {
                let outcome = match message.state {
                    SendState::Queued => Outcome::Abandoned,
                    _ => Outcome::Unknown,
                };
                // No channel is closed in order any more.
                let _ = self.end(channels, (send, outcome), (events, stats));
            }
        }
        self.scratch = keys;
    }

    /// The messages whose deadline has passed.
    pub(super) fn expired(&mut self, now: Time) -> Vec<SendKey> {
        let mut expired = Vec::new();
        if self.next_deadline > now {
            return expired;
        }
        self.next_deadline = Time::NEVER;
        for key in self.messages.keys() {
            let message = self.messages.get(key).filter(|message| message.is_queued());
            let Some(message) = message else { continue };
            if message.deadline <= now {
                expired.push(SendKey(key));
            } else {
                self.next_deadline = self.next_deadline.min(message.deadline);
            }
        }
        expired
    }

    /// A frame was acknowledged, and perhaps with it all of its message. A message that is given up
    /// ends with the answer to ABANDON.
    #[inline(always)]
    pub(super) fn on_acked(
        &mut self,
        frame: &SendFrame,
        channels: &mut Channels,
        (events, stats): (&mut VecDeque<Event>, &mut LinkStats),
    ) {
        let send = frame.source.send;
        let message = self.messages.get_mut(send.0);
        let live = message.filter(|message| message.state == SendState::Sending);
        let Some(message) = live else { return };
        let begun = message.pieces_begun();
        let is_whole = message.on_acked(&frame.frame);
        self.is_lost_mixed |= message.pieces_begun() > begun;
        if message.growing.is_some() {
            bring_home(message, events, frame);
        }
        let (id, is_fully_cut) = (message.channel, message.is_fully_cut());
        if is_whole {
            let closing = self.end(channels, (send, Outcome::Delivered), (events, stats));
            self.woken.extend(closing);
        } else if !is_fully_cut && self.woken.last() != Some(&id) {
            self.woken.push(id);
        }
    }

    /// A frame is with the device.
    #[inline(always)]
    pub(super) fn on_posted(&mut self, frame: &SendFrame) {
        if let Some(message) = self.messages.get_mut(frame.source.send.0) {
            message.on_posted(&frame.frame);
        }
    }

    /// The device holds the bytes of a frame no more.
    #[inline]
    pub(super) fn on_returned(&mut self, frame: &SendFrame, events: &mut VecDeque<Event>) {
        let send = frame.source.send;
        let Some(message) = self.messages.get_mut(send.0) else { return };
        message.on_returned(&frame.frame);
        if message.growing.is_some() {
            bring_home(message, events, frame);
        }
        if let (SendState::Ended(outcome), 0) = (message.state, message.posted) {
            events.push_back(Event::Sent { send, token: message.token, outcome });
        }
    }

    /// Frames were lost on a path.
    pub(super) fn on_lost<'f>(&mut self, frames: impl Iterator<Item = &'f SendFrame>, path: u8) {
        for &frame in frames {
            self.is_lost_mixed |= frame.frame.is_part();
            self.lost.push_back(Pending { frame, lost_on: Some(path) });
        }
    }

    /// Puts lost frames of pieces that the receiver holds parts of in front. Such a piece keeps a
    /// buffer until it is whole. Pieces that need this buffer are refused until then, and their
    /// chunks count as lost.
    #[cold]
    fn put_begun_first(&mut self) {
        let Self { messages, lost, .. } = self;
        let is_begun = |Pending { frame: SendFrame { source, frame }, .. }: &_| {
            messages.get(source.send.0).is_some_and(|message| message.is_begun(frame))
        };
        lost.make_contiguous().sort_by_key(|pending| !is_begun(pending));
    }

    /// The first frame to be sent again, or the first rest of a piece. Frames that need not be sent
    /// any more are forgotten.
    pub(super) fn first_lost(&mut self) -> Option<Pending> {
        if core::mem::take(&mut self.is_lost_mixed) && self.lost.len() > 1 {
            self.put_begun_first();
        }
        while let Some(&pending) = self.lost.front() {
            if self.is_wanted(&pending.frame) {
                return Some(pending);
            }
            self.lost.pop_front();
        }
        None
    }

    /// Whether what a frame carries still has to reach the peer.
    pub(super) fn is_wanted(&self, frame: &SendFrame) -> bool {
        self.messages.get(frame.source.send.0).is_some_and(|message| {
            message.state == SendState::Sending && !message.is_acked(&frame.frame)
        })
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

/// Prepares a new message whose last segment is supplied later.
#[cold]
fn begin_to_grow(
    channel: &mut Channel,
    message: &mut Outgoing,
    (request, message_len): (&SendRequest<'_>, u32),
    piece_max: u32,
) {
    let sizes = PieceSizes::new(piece_max, request.at_pages);
    let held_whole = channel.tx.may_be_whole(message_len, sizes.shortest);
    message.grow(request.segments, sizes, held_whole);
    channel.tx.growing += 1;
}

/// Whether a message in the queue of its channel still belongs there.
pub(super) fn is_queued(messages: &Slots<Outgoing>, send: SendKey) -> bool {
    messages.get(send.0).is_some_and(Outgoing::is_queued)
}

/// Updates the credit that a message may hold until more of it is supplied.
pub(super) fn settle_held(channel: &mut Channel, message: &mut Outgoing) {
    let now = message.may_hold();
    let Some(growing) = &mut message.growing else { return };
    let before = core::mem::replace(&mut growing.held, now);
    channel.tx.growing_held = channel.tx.growing_held - before + now;
}

/// Reports a piece of a growing message once it is acknowledged and back from the device.
#[cold]
fn bring_home(message: &mut Outgoing, events: &mut VecDeque<Event>, frame: &SendFrame) {
    if let Some((offset, length)) = message.take_home(&frame.frame) {
        events.push_back(Event::PieceSent { send: frame.source.send, offset, length });
    }
}
