//! New data: pieces of messages whose channels have the turn, cut as a chunk has room for them.

use super::build::{Builder, Take};
use super::grow::{set_aside, settle_held};
use super::transmit::split;
use super::{Channels, Link, Pending, Sends, find_mut};
use crate::channel::{Channel, ChannelState, Outgoing, SendState};
use crate::event::{ChannelId, SendFrame, SendKey, Transmit};
use crate::limits::HEADER_BYTES;
use crate::path::Spreading;
use crate::schedule::FairQueue;
use crate::slots::Slots;
use alloc::collections::VecDeque;
use core::hint::cold_path;
use towpath_base::Time;

impl Link {
    /// A chunk of new data, if any may go now: from the channel whose turn it is, and from those
    /// whose turn is next as long as there is room.
    #[inline]
    pub(super) fn next_of_new(&mut self, now: Time) -> Option<Transmit> {
        let mut builder = self.builder();
        let index = self.begin_chunk(now, &builder);
        let Some(index) = index.filter(|&index| self.paths[index].has_room_for_chunk()) else {
            self.sends.frames_scratch = builder.into_frames();
            return None;
        };
        self.fill_with_new(&mut builder, index);
        debug_assert!(!builder.is_empty(), "who has the turn can send");
        Some(self.transmit_data(now, index, builder))
    }

    /// Fills a chunk that leaves on the path at `index` with what is ready.
    #[inline]
    pub(super) fn fill_with_new(&mut self, builder: &mut Builder, index: usize) {
        let room = self.flow.room();
        while let Some(Turn { channel, send, take }) = self.turn(builder) {
            if !builder.is_empty() {
                let charge = self.flow.charge(builder.body_with(take.length()));
                if u64::from(charge) > room || !self.may_join(send, index) {
                    break;
                }
            }
            self.cut_for(channel, send, take, builder);
        }
    }

    /// The path of the next chunk, if what has the turn may go now.
    #[inline]
    fn begin_chunk(&mut self, now: Time, builder: &Builder) -> Option<usize> {
        let Some(Turn { channel, send, take }) = self.turn(builder) else {
            self.flow.on_nothing_to_send();
            self.arm_credit_probe(now);
            return None;
        };
        let ready_bytes = self.ready_behind(channel, send, take.length());
        let may_send = self.flow.may_send(now, take.length(), ready_bytes);
        let index = if may_send { self.choose_for(now, send) } else { None };
        if index.is_none() {
            cold_path();
            self.arm_credit_probe(now);
        }
        index
    }

    /// Bytes that are ready behind the first `length` of a message, about: what there is of it, and
    /// as much of each that waits behind it or on another channel.
    #[inline]
    fn ready_behind(&mut self, channel: u32, send: SendKey, length: u32) -> u64 {
        let Self {
            channels: Channels { all: channels, schedule, .. },
            sends: Sends { messages: sends, .. },
            ..
        } = self;
        let queued = find_mut(channels, channel).map_or(0, |channel| channel.tx.queue.len());
        let others = queued.saturating_sub(1) + schedule.waiting().saturating_sub(1);
        let rest = sends
            .get_mut(send.0)
            .map_or(0, |message| message.bytes_at_hand().saturating_sub(length));
        u64::from(rest) + others as u64 * u64::from(length)
    }

    /// The path for the next chunk, which begins with a frame of a message.
    #[inline]
    pub(super) fn choose_for(&mut self, now: Time, send: SendKey) -> Option<usize> {
        if self.paths.spreading != Spreading::Message || !self.paths.has_choice() {
            return self.paths.choose(now, 0);
        }
        self.choose_to_keep(now, send)
    }

    #[inline(never)]
    fn choose_to_keep(&mut self, now: Time, send: SendKey) -> Option<usize> {
        let Self { paths, sends: Sends { messages: sends, .. }, .. } = self;
        let message = sends.get_mut(send.0)?;
        let kept = message.path.map(usize::from).filter(|&index| paths.is_usable(index));
        let index = kept.or_else(|| paths.choose(now, 0))?;
        message.path = Some(index as u8);
        Some(index)
    }

    /// The channel whose turn it is and what of its next message finds room; `None` where that
    /// is nothing, or no channel can send.
    #[inline]
    fn turn(&mut self, builder: &Builder) -> Option<Turn> {
        while let Some(ChannelId(id)) = self.channels.schedule.turn() {
            let Self {
                channels: Channels { all: channels, starved, schedule, .. },
                sends: Sends { messages: sends, .. },
                ..
            } = self;
            let sendable = find_mut(channels, id).and_then(|channel| {
                if channel.tx.growing > 0 {
                    set_aside(channel, sends);
                }
                let (send, message) = next_message(channel, sends)?;
                if channel.tx.has_credit() {
                    return Some((send, message));
                }
                list_starved(channel, starved);
                None
            });
            if let Some((send, message)) = sendable {
                return builder.take_of(message).map(|take| Turn { channel: id, send, take });
            }
            cold_path();
            schedule.pass();
            if let Some(channel) = self.channel_mut(id) {
                channel.tx.is_ready = false;
            }
        }
        None
    }

    /// Whether a message may leave on the path of a chunk that others began.
    #[inline]
    fn may_join(&mut self, send: SendKey, index: usize) -> bool {
        if self.paths.spreading != Spreading::Message || !self.paths.has_choice() {
            return true;
        }
        let Some(message) = self.sends.messages.get_mut(send.0) else { return false };
        *message.path.get_or_insert(index as u8) == index as u8
    }

    /// Cuts a piece for the channel whose turn it is, gives the turn on, and adds what of the piece
    /// has room.
    #[inline]
    fn cut_for(&mut self, id: u32, send: SendKey, take: Take, builder: &mut Builder) {
        let Self {
            channels: Channels { all: channels, schedule, .. },
            sends: Sends { messages: sends, lost, .. },
            ..
        } = self;
        let channel = find_mut(channels, id).expect("it has the turn");
        let message = sends.get_mut(send.0).expect("queued messages are live");
        let length = match take {
            Take::Piece(length) | Take::Part(length, _) => length,
        };
        if message.grows() {
            return self.cut_grown(id, send, take, builder);
        }
        let frame = cut(channel, schedule, send, message, length);
        if message.growing.is_some() {
            settle_held(channel, message);
        }
        if let Take::Part(_, length) = take {
            let (part, rest) = split(&frame, length);
            builder.add(part);
            // Before what is new, and after what was lost.
            lost.push_back(Pending { frame: rest, lost_on: None });
        } else {
            builder.add(frame);
        }
    }
}

/// What goes next.
struct Turn {
    channel: u32,
    send: SendKey,
    take: Take,
}

/// The message of a channel that can have a piece cut now, if there is credit for one.
#[inline]
fn next_message<'a>(
    channel: &mut Channel,
    sends: &'a mut Slots<Outgoing>,
) -> Option<(SendKey, &'a mut Outgoing)> {
    let sends_on = matches!(channel.state, ChannelState::Open | ChannelState::Closing);
    let send = channel.tx.queue.front(|send| is_queued(sends, send)).filter(|_| sends_on)?;
    let message = sends.get_mut(send.0).expect("queued messages are live");
    let has_id = message.state != SendState::Queued || channel.tx.has_id();
    // One that grows is first in line only where it may be cut.
    let may_cut = message.may_cut() || message.grows();
    (has_id && may_cut).then_some((send, message))
}

/// Whether a message that was queued is so still.
pub(super) fn is_queued(sends: &Slots<Outgoing>, send: SendKey) -> bool {
    sends.get(send.0).is_some_and(Outgoing::is_queued)
}

#[cold]
fn list_starved(channel: &mut Channel, starved: &mut VecDeque<u32>) {
    channel.tx.is_starved = true;
    if !core::mem::replace(&mut channel.tx.is_listed_starved, true) {
        starved.push_back(channel.id);
    }
}

/// Cuts a piece for the channel whose turn it is, and gives the turn on.
#[inline]
fn cut(
    channel: &mut Channel,
    schedule: &mut FairQueue,
    send: SendKey,
    message: &mut Outgoing,
    length: u32,
) -> SendFrame {
    if message.state == SendState::Queued {
        message.state = SendState::Sending;
        message.id = channel.tx.assign_id();
    }
    channel.tx.use_credit();
    let frame = message.cut(send, length);
    give_turn_on(channel, schedule, message, length);
    frame
}

/// A piece was cut for the channel whose turn it is: the next one has the turn.
#[inline]
pub(super) fn give_turn_on(
    channel: &mut Channel,
    schedule: &mut FairQueue,
    message: &Outgoing,
    length: u32,
) {
    if message.is_fully_cut() {
        channel.tx.queue.pop_front();
    }
    let has_more = !channel.tx.queue.is_empty();
    channel.tx.is_ready = has_more;
    // A piece of a byte takes the link for its header too.
    let more = has_more.then_some(channel.tx.weight);
    schedule.served(length + HEADER_BYTES as u32, more);
}
