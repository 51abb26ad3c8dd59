//! Messages being sent: taking them in, supplying them, giving them up, and their ends.

use super::channels::{Channels, line_up};
use super::control::Control;
use super::find_mut;
use crate::channel::{
    Channel, ChannelState, Line, Outgoing, PieceSizes, SendError, SendRequest, SendState,
    SupplyError,
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

/// What giving a message up takes.
pub(super) enum GivingUp {
    /// Nothing of it was sent: it is over.
    Over,
    /// The peer is to be asked what has become of it.
    Ask(Control),
    /// The peer was asked before.
    Asked,
}

/// Messages being sent.
#[derive(Debug)]
pub(super) struct Sends {
    pub(super) messages: Slots<Outgoing>,
    /// Frames that were lost, and the rests of pieces that go in parts: to be sent before anything
    /// new.
    pub(super) lost: VecDeque<Pending>,
    next_deadline: Time,
    /// The longest piece that both ends take.
    pub(super) piece_max: u32,
    /// Messages that the ack which is being taken in completes, and channels of others that it is
    /// about.
    whole: Vec<SendKey>,
    woken: Vec<u32>,
    /// Kept between calls for its memory, like the one below.
    pub(super) frames_scratch: Vec<SendFrame>,
    scratch: Vec<SendKey>,
}

impl Sends {
    pub(super) fn new(sends_max: usize, piece_max: u32) -> Self {
        Self {
            messages: Slots::new(sends_max),
            lost: VecDeque::with_capacity(64),
            next_deadline: Time::NEVER,
            piece_max,
            whole: Vec::new(),
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

    /// Takes a message; of one that `grows` the bytes of the last segment are still to come.
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
            // Its piece is cut: it goes like the rest of one that goes in parts.
            lost.push_back(Pending { frame, lost_on: None });
        })?;
        let Channels { all, schedule, .. } = channels;
        let id = message.channel;
        let Some(channel) = find_mut(all, id) else { return Ok(()) };
        let line = message.line;
        if line == Line::Out && message.bytes_at_hand() > 0 {
            message.line = Line::Queued;
            channel.tx.queue.push_back(send);
            line_up(channel, schedule);
        }
        // A gap may be filled, or all of it be there.
        if settle_held(channel, message) || line == Line::Aside {
            self.bring_in(channels, id);
        }
        Ok(())
    }

    /// What stands aside on a channel gets in line again.
    pub(super) fn bring_in(&mut self, channels: &mut Channels, id: u32) {
        let Channels { all, schedule, .. } = channels;
        let Some(channel) = find_mut(all, id).filter(|channel| !channel.tx.aside.is_empty()) else {
            return;
        };
        let mut aside = core::mem::take(&mut channel.tx.aside);
        for send in aside.drain(..) {
            let Some(message) = self.messages.get_mut(send.0) else { continue };
            message.line = Line::Queued;
            channel.tx.queue.push_back(send);
        }
        channel.tx.aside = aside;
        line_up(channel, schedule);
    }

    /// Begins to give a message up; none when it has its outcome.
    pub(super) fn give_up(&mut self, channels: &mut Channels, send: SendKey) -> Option<GivingUp> {
        let message = self.messages.get_mut(send.0)?;
        match message.state {
            SendState::Queued => return Some(GivingUp::Over),
            SendState::Abandoning => return Some(GivingUp::Asked),
            SendState::Ended(_) => return None,
            SendState::Sending => {}
        }
        message.state = SendState::Abandoning;
        let (id, was_queued) = (message.channel, message.line == Line::Queued);
        let abandon = Control {
            message: message.id,
            message_len: message.message_len,
            index: message.pieces_cut(),
            ..Control::of(Kind::Abandon, id)
        };
        if let Some(channel) = find_mut(&mut channels.all, id) {
            channel.tx.abandoning.insert(abandon.message, send);
        }
        self.leave_line(channels, send, was_queued);
        if was_queued {
            channels.make_ready(id);
        }
        Some(GivingUp::Ask(abandon))
    }

    /// A message goes on no more: it leaves the queue of its channel, and if it grew, it holds
    /// nothing back.
    fn leave_line(&mut self, channels: &mut Channels, send: SendKey, was_queued: bool) {
        let Some(message) = self.messages.get_mut(send.0) else { return };
        let id = message.channel;
        let Some(channel) = find_mut(&mut channels.all, id) else { return };
        let line = core::mem::replace(&mut message.line, Line::Out);
        let Some(growing) = message.growing.take() else {
            if was_queued {
                channel.tx.queue.note_gone(|send| is_queued(&self.messages, send));
            }
            return;
        };
        channel.tx.growing -= 1;
        channel.tx.growing_held -= growing.held;
        if line == Line::Aside {
            channel.tx.aside.retain(|&other| other != send);
        }
        if was_queued {
            channel.tx.queue.note_gone(|send| is_queued(&self.messages, send));
        }
        if growing.held > 0 {
            self.bring_in(channels, id);
        }
    }

    /// Gives a message its outcome; it is reported when the device holds none of its buffers. Its
    /// channel, if that waits for its messages to end.
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
        let was_queued = message.line == Line::Queued;
        let (token, posted) = (message.token, message.posted);
        if was_queued || message.growing.is_some() {
            self.leave_line(channels, send, was_queued);
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
                // Nobody closes a channel in order any more.
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

    /// A frame was acknowledged. What is given up ends with the answer to ABANDON.
    #[inline(always)]
    pub(super) fn on_acked(&mut self, frame: &SendFrame, events: &mut VecDeque<Event>) {
        let message = self.messages.get_mut(frame.source.send.0);
        let live = message.filter(|message| message.state == SendState::Sending);
        let Some(message) = live else { return };
        let is_whole = message.on_acked(&frame.frame);
        if message.growing.is_some() {
            bring_home(message, events, frame);
        }
        if is_whole {
            self.whole.push(frame.source.send);
        } else if !message.is_fully_cut() && self.woken.last() != Some(&message.channel) {
            self.woken.push(message.channel);
        }
    }

    /// The messages that the ack which was taken in has completed. They are to be put
    /// [back](Self::put_whole) when they are ended.
    #[inline]
    pub(super) fn take_whole(&mut self) -> Vec<SendKey> {
        core::mem::take(&mut self.whole)
    }

    /// For its memory.
    #[inline]
    pub(super) fn put_whole(&mut self, ended: Vec<SendKey>) {
        self.whole = ended;
    }

    /// The windows of messages may have moved with the ack that was taken in.
    #[inline]
    pub(super) fn wake(&mut self, channels: &mut Channels) {
        let mut woken = core::mem::take(&mut self.woken);
        for id in woken.drain(..) {
            self.bring_in(channels, id);
            channels.make_ready(id);
        }
        self.woken = woken;
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
        let again = |frame: &_| Pending { frame: *frame, lost_on: Some(path) };
        self.lost.extend(frames.map(again));
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

/// The last segment of a message that was just taken is still to come.
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

/// Whether a message that was queued is so still.
pub(super) fn is_queued(messages: &Slots<Outgoing>, send: SendKey) -> bool {
    messages.get(send.0).is_some_and(Outgoing::is_queued)
}

/// Counts the credit anew that a message may hold until more of it is supplied; true when it is
/// less than before.
pub(super) fn settle_held(channel: &mut Channel, message: &mut Outgoing) -> bool {
    let now = message.may_hold();
    let Some(growing) = &mut message.growing else { return false };
    let before = core::mem::replace(&mut growing.held, now);
    channel.tx.growing_held = channel.tx.growing_held - before + now;
    now < before
}

/// Tells of a piece of a growing message that is acknowledged and that the device does not hold.
#[cold]
fn bring_home(message: &mut Outgoing, events: &mut VecDeque<Event>, frame: &SendFrame) {
    if let Some((offset, length)) = message.take_home(&frame.frame) {
        events.push_back(Event::PieceSent { send: frame.source.send, offset, length });
    }
}
