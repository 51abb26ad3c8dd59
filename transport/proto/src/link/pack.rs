//! Which frames make the next chunk: what was lost, then pieces of messages in fair turns.

use super::build::{Bounds, Builder, Take};
use super::channels::Channels;
use super::find_mut;
use super::sends::{Pending, Sends, is_queued, settle_held};
use crate::channel::{Channel, ChannelState, Line, Outgoing, SendState};
use crate::event::{ChannelId, SendFrame, SendKey};
use crate::limits::HEADER_BYTES;
use crate::slots::Slots;
use core::hint::cold_path;

/// What goes next of new data.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    channel: u32,
    pub(super) send: SendKey,
    pub(super) take: Take,
}

impl Sends {
    /// An empty chunk with room for so many bytes behind its header.
    #[inline]
    pub(super) fn builder(&mut self, body_max: u32, gather_max: usize) -> Builder {
        let (body_max, piece_max) = (body_max as usize, self.piece_max as usize);
        let bounds = Bounds { body_max, piece_max, gather_max };
        Builder::new(bounds, core::mem::take(&mut self.frames_scratch))
    }

    /// A chunk is not sent after all.
    pub(super) fn put_back(&mut self, builder: Builder) {
        self.frames_scratch = builder.into_frames();
    }

    /// The next message in fair turns, and what of it finds room; `None` where that is nothing, or
    /// no channel can send.
    #[inline]
    pub(super) fn turn(&mut self, channels: &mut Channels, builder: &Builder) -> Option<Turn> {
        let Channels { all, schedule, starved, .. } = channels;
        while let Some(ChannelId(id)) = schedule.turn() {
            let mut channel = find_mut(all, id);
            if let Some(channel) = &mut channel {
                if channel.tx.growing > 0 {
                    self.set_aside(channel);
                }
                if let Some((send, message)) = self.next_of(channel) {
                    if channel.tx.has_credit() {
                        let take = builder.take_of(message)?;
                        return Some(Turn { channel: id, send, take });
                    }
                    cold_path();
                    if !core::mem::replace(&mut channel.tx.is_listed_starved, true) {
                        starved.push_back(id);
                    }
                }
            }
            cold_path();
            schedule.pass();
            if let Some(channel) = channel {
                channel.tx.is_ready = false;
            }
        }
        None
    }

    /// The message of a channel that can have a piece cut now, if there is credit for one.
    #[inline]
    fn next_of(&self, channel: &mut Channel) -> Option<(SendKey, &Outgoing)> {
        let sends_on = matches!(channel.state, ChannelState::Open | ChannelState::Closing);
        let is_queued = |send| is_queued(&self.messages, send);
        let send = channel.tx.queue.front(is_queued).filter(|_| sends_on)?;
        let message = self.messages.get(send.0)?;
        let has_id = message.state != SendState::Queued || channel.tx.has_id();
        // One that grows is first in line only where it may be cut.
        let may_cut = message.may_cut() || message.grows();
        (has_id && may_cut).then_some((send, message))
    }

    /// Takes messages out of the line that grow and may not be cut further, as far as they are
    /// first.
    #[cold]
    fn set_aside(&mut self, channel: &mut Channel) {
        let Self { messages, .. } = self;
        while let Some(send) = channel.tx.queue.front(|send| is_queued(messages, send))
            && let Some(first) = messages.get(send.0)
        {
            let has_id = first.state != SendState::Queued || channel.tx.has_id();
            // Ids come back when a message ends that has one: perhaps one that waits behind it.
            if !has_id && channel.tx.queue.bring_forward(|send| grows(messages, send)) {
                continue;
            }
            let Some(message) = messages.get_mut(send.0) else { break };
            let held = message.growing.as_ref().map_or(0, |growing| growing.held);
            let others = channel.tx.growing_held - held;
            if message.may_cut_growing(others, channel.tx.growing_max()) {
                break;
            }
            channel.tx.queue.pop_front();
            message.line = if message.bytes_at_hand() > 0 { Line::Aside } else { Line::Out };
            if message.line == Line::Aside {
                channel.tx.aside.push(send);
            }
        }
    }

    /// Bytes that are ready behind what goes next, about: what there is of its message, and as much
    /// of each that waits behind it or on another channel.
    #[inline]
    pub(super) fn ready_behind(&self, channels: &mut Channels, turn: &Turn) -> u64 {
        let length = turn.take.length();
        let queued = find_mut(&mut channels.all, turn.channel).map_or(0, |c| c.tx.queue.len());
        let others = queued.saturating_sub(1) + channels.schedule.waiting().saturating_sub(1);
        let message = self.messages.get(turn.send.0);
        let rest = message.map_or(0, |message| message.bytes_at_hand().saturating_sub(length));
        u64::from(rest) + others as u64 * u64::from(length)
    }

    /// The path that a message keeps to, where messages do.
    pub(super) fn path_of(&mut self, send: SendKey) -> Option<&mut Option<u8>> {
        self.messages.get_mut(send.0).map(|message| &mut message.path)
    }

    /// Cuts what goes next, gives the turn on, and adds what of it has room in the chunk.
    #[inline]
    pub(super) fn cut(&mut self, channels: &mut Channels, turn: Turn, builder: &mut Builder) {
        let Turn { channel, send, take } = turn;
        let Channels { all, schedule, .. } = channels;
        let Self { messages, lost, .. } = self;
        let channel = find_mut(all, channel).expect("it has the turn");
        let message = messages.get_mut(send.0).expect("queued messages are live");
        if message.state == SendState::Queued {
            message.state = SendState::Sending;
            message.id = channel.tx.assign_id();
        }
        channel.tx.use_credit();
        let (length, part) = match take {
            Take::Piece(length) => (length, length),
            Take::Part(length, part) => (length, part),
        };
        let mut is_first = true;
        // Of a piece that grows what comes behind a gap goes by itself, before what is new and
        // after what was lost. So does what finds no room.
        let mut add = |frame: SendFrame| {
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
        };
        let mut served = length;
        if message.grows() {
            cold_path();
            message.cut_grown(send, length, add);
            served = part;
        } else {
            add(message.cut(send, length));
        }
        if message.is_fully_cut() {
            channel.tx.queue.pop_front();
        }
        channel.tx.is_ready = !channel.tx.queue.is_empty();
        // A piece of a byte takes the link for its header too.
        let more = channel.tx.is_ready.then_some(channel.tx.weight);
        schedule.served(served + HEADER_BYTES as u32, more);
        if message.growing.is_some() && settle_held(channel, message) {
            let id = channel.id;
            self.bring_in(channels, id);
        }
    }

    /// What is first in line to be sent again, or for the first time behind what was. What need not
    /// be sent any more is forgotten.
    pub(super) fn first_lost(&mut self) -> Option<Pending> {
        while let Some(&pending) = self.lost.front() {
            if self.is_wanted(&pending.frame) {
                return Some(pending);
            }
            self.lost.pop_front();
        }
        None
    }

    /// Takes from the line of what was lost what finds room in a chunk and `may_go`; whether any of
    /// it was sent before.
    pub(super) fn fill_with_lost(
        &mut self,
        builder: &mut Builder,
        may_go: impl Fn(u32) -> bool,
    ) -> bool {
        let mut is_again = false;
        while let Some(Pending { frame, lost_on }) = self.first_lost() {
            let (frame, rest) = if builder.takes(&frame) {
                (frame, None)
            } else if let Some(length) = builder.part_of(frame.frame.length) {
                let (part, rest) = split(&frame, length);
                (part, Some(rest))
            } else {
                break;
            };
            if !builder.is_empty() && !may_go(builder.body() + frame.frame.length) {
                break;
            }
            builder.add(frame);
            is_again |= lost_on.is_some();
            self.lost.pop_front();
            if let Some(frame) = rest {
                self.lost.push_front(Pending { frame, lost_on });
            }
        }
        is_again
    }

    /// Fills an empty chunk with what the peer still needs of frames that were sent before.
    pub(super) fn repeat<'f>(
        &self,
        frames: impl Iterator<Item = &'f SendFrame>,
        builder: &mut Builder,
    ) {
        for frame in frames.filter(|frame| self.is_wanted(frame)) {
            if builder.takes(frame) {
                builder.add(*frame);
            } else if builder.is_empty()
                && let Some(length) = builder.part_of(frame.frame.length)
            {
                builder.add(split(frame, length).0);
            }
        }
    }
}

/// Whether the next piece of a message is one of a segment that grows.
fn grows(messages: &Slots<Outgoing>, send: SendKey) -> bool {
    messages.get(send.0).is_some_and(|message| message.is_queued() && message.grows())
}

/// A frame in two: the first part of so many bytes, and the rest.
pub(super) fn split(frame: &SendFrame, length: u32) -> (SendFrame, SendFrame) {
    let (mut part, mut rest) = (*frame, *frame);
    part.source.length = length;
    part.frame.length = length;
    rest.source.offset += length;
    rest.source.length -= length;
    rest.frame.offset += length;
    rest.frame.part_start += length;
    rest.frame.length -= length;
    // Parts are copied by the receiver.
    (part.frame.at_page, rest.frame.at_page) = (false, false);
    (part, rest)
}
