//! Messages whose last segment is supplied while they are being sent (docs/protocol.md section 6).

use super::build::{Builder, Take};
use super::fresh::{give_turn_on, is_queued};
use super::send::line_up;
use super::transmit::split;
use super::{Channels, Link, Pending, SendError, SendRequest, Sends, find_mut};
use crate::channel::{Channel, Line, Outgoing, PieceSizes, SendState, SupplyError};
use crate::event::SendKey;
use crate::slots::Slots;

impl Link {
    /// Takes a message of which the bytes of the last segment are still to come: [`supply`] gives
    /// them, in any order. The others are there. Its channel must not be ordered.
    ///
    /// A message whose bytes do not come is given up like any other: at its deadline, or by
    /// [`cancel`](Self::cancel). Meanwhile such messages of a channel hold half of its credit at
    /// most (docs/protocol.md section 6).
    ///
    /// [`supply`]: Self::supply
    ///
    /// # Errors
    /// See [`SendError`]; nothing was taken. One segment is [`SendError::BadLayout`]: the first
    /// bytes of a message are there when it is sent.
    pub fn send_growing(&mut self, request: &SendRequest<'_>) -> Result<SendKey, SendError> {
        if request.segments.len() < 2 {
            return Err(SendError::BadLayout);
        }
        self.take_in(request, true)
    }

    /// Takes `length` bytes of the segment that was to come later, which begin at `offset` in that
    /// and lie together: no frame carries bytes of two calls. They stay with the device until
    /// [`Event::PieceSent`] or [`Event::Sent`] tells of them.
    ///
    /// [`Event::PieceSent`]: crate::Event::PieceSent
    /// [`Event::Sent`]: crate::Event::Sent
    ///
    /// # Errors
    /// See [`SupplyError`]; nothing was taken.
    pub fn supply(&mut self, send: SendKey, offset: u32, length: u32) -> Result<(), SupplyError> {
        let Self {
            channels: Channels { all: channels, schedule, .. },
            sends: Sends { messages: sends, lost, .. },
            ..
        } = self;
        let message = sends.get_mut(send.0).filter(|message| message.is_queued());
        let message = message.ok_or(SupplyError::Ended)?;
        message.supply(send, (offset, length), |frame| {
            // Its piece is cut: it goes like the rest of one that goes in parts.
            lost.push_back(Pending { frame, lost_on: None });
        })?;
        let id = message.channel;
        let Some(channel) = find_mut(channels, id) else { return Ok(()) };
        let Some(growing) = &mut message.growing else { return Ok(()) };
        let line = growing.line;
        if line == Line::Out && growing.has_ready() {
            growing.line = Line::Queued;
            channel.tx.queue.push_back(send);
            line_up(channel, schedule);
        }
        // A gap may be filled, or all of it be there.
        if settle_held(channel, message) || line == Line::Aside {
            self.bring_in(id);
        }
        Ok(())
    }

    /// What stands aside gets in line again.
    pub(super) fn bring_in(&mut self, id: u32) {
        let Self {
            channels: Channels { all: channels, schedule, .. },
            sends: Sends { messages: sends, .. },
            ..
        } = self;
        let Some(channel) = find_mut(channels, id).filter(|channel| !channel.tx.aside.is_empty())
        else {
            return;
        };
        let mut aside = core::mem::take(&mut channel.tx.aside);
        for send in aside.drain(..) {
            let message = sends.get_mut(send.0).and_then(|message| message.growing.as_mut());
            let Some(growing) = message else { continue };
            growing.line = Line::Queued;
            channel.tx.queue.push_back(send);
        }
        channel.tx.aside = aside;
        line_up(channel, schedule);
    }

    /// A message is over, or given up: if it grew, it holds nothing back any more.
    pub(super) fn leave_growing(&mut self, send: SendKey) {
        let Self {
            channels: Channels { all: channels, .. },
            sends: Sends { messages: sends, .. },
            ..
        } = self;
        let Some(message) = sends.get_mut(send.0).filter(|message| message.growing.is_some())
        else {
            return;
        };
        let id = message.channel;
        let Some(channel) = find_mut(channels, id) else { return };
        let is_less = settle_held(channel, message);
        let Some(growing) = &mut message.growing else { return };
        if growing.line == Line::Aside {
            channel.tx.aside.retain(|&other| other != send);
        }
        growing.line = Line::Out;
        if !core::mem::replace(&mut growing.is_over, true) {
            channel.tx.growing -= 1;
        }
        if is_less {
            self.bring_in(id);
        }
    }

    /// Cuts a piece of a segment that grows, for the channel whose turn it is.
    #[cold]
    pub(super) fn cut_grown(&mut self, id: u32, send: SendKey, take: Take, builder: &mut Builder) {
        let Self {
            channels: Channels { all: channels, schedule, .. },
            sends: Sends { messages: sends, lost, .. },
            ..
        } = self;
        let channel = find_mut(channels, id).expect("it has the turn");
        let message = sends.get_mut(send.0).expect("queued messages are live");
        let (piece_len, part) = match take {
            Take::Piece(length) => (length, length),
            Take::Part(length, part) => (length, part),
        };
        channel.tx.use_credit();
        let mut is_first = true;
        message.cut_grown(send, piece_len, |frame| {
            let pending = |frame| Pending { frame, lost_on: None };
            if !core::mem::take(&mut is_first) {
                lost.push_back(pending(frame));
            } else if part < frame.frame.length {
                let (part, rest) = split(&frame, part);
                builder.add(part);
                lost.push_back(pending(rest));
            } else {
                builder.add(frame);
            }
        });
        debug_assert!(!is_first, "what is cut is there");
        if message.is_fully_cut()
            && let Some(growing) = &mut message.growing
        {
            growing.line = Line::Out;
        }
        give_turn_on(channel, schedule, message, part);
        if settle_held(channel, message) {
            self.bring_in(id);
        }
    }
}

/// The last segment of a message that was just taken is still to come.
#[cold]
pub(super) fn begin_to_grow(
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

/// Takes messages out of the line that grow and may not be cut further, as far as they are first.
#[cold]
pub(super) fn set_aside(channel: &mut Channel, sends: &mut Slots<Outgoing>) {
    while let Some(send) = channel.tx.queue.front(|send| is_queued(sends, send))
        && let Some(first) = sends.get(send.0)
    {
        let has_id = first.state != SendState::Queued || channel.tx.has_id();
        // Ids come back when a message ends that has one: perhaps one that waits behind it.
        if !has_id && channel.tx.queue.bring_forward(|send| grows(sends, send)) {
            continue;
        }
        let Some(message) = sends.get_mut(send.0) else { break };
        let held = message.growing.as_ref().map_or(0, |growing| growing.held);
        let others = channel.tx.growing_held - held;
        if message.may_cut_growing(others, channel.tx.growing_max()) {
            break;
        }
        channel.tx.queue.pop_front();
        let line = if message.bytes_at_hand() > 0 { Line::Aside } else { Line::Out };
        if line == Line::Aside {
            channel.tx.aside.push(send);
        }
        if let Some(growing) = &mut message.growing {
            growing.line = line;
        }
    }
}

/// Whether the next piece of a message is one of a segment that grows.
fn grows(sends: &Slots<Outgoing>, send: SendKey) -> bool {
    sends.get(send.0).is_some_and(|message| message.is_queued() && message.grows())
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
