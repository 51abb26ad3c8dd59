//! Which frames make the next chunk: what was lost, then pieces of messages in fair turns.

use super::build::{Bounds, Builder, Take};
use super::channels::Channels;
use super::find_mut;
use super::sends::{Pending, Sends, is_queued, settle_held};
use crate::channel::{Channel, ChannelState, Outgoing, SendState};
use crate::event::{SendFrame, SendKey};
use crate::limits::HEADER_BYTES;
use core::hint::cold_path;

/// What goes next of new data.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    channel: u32,
    pub(super) send: SendKey,
    /// Its place in the queue of the channel.
    place: usize,
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
        while let Some(id) = schedule.turn() {
            let mut channel = find_mut(all, id);
            if let Some(channel) = &mut channel
                && let Some((place, send, message)) = self.next_of(channel)
            {
                if channel.tx.has_credit() {
                    let take = builder.take_of(message)?;
                    return Some(Turn { channel: id, send, place, take });
                }
                cold_path();
                if !core::mem::replace(&mut channel.tx.is_listed_starved, true) {
                    starved.push_back(id);
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

    /// The message of a channel that can have a piece cut now, if there is credit for one, and its
    /// place in the queue.
    #[inline]
    fn next_of(&self, channel: &mut Channel) -> Option<(usize, SendKey, &Outgoing)> {
        if !matches!(channel.state, ChannelState::Open | ChannelState::Closing) {
            return None;
        }
        let send = channel.tx.queue.front(|send| is_queued(&self.messages, send))?;
        let message = self.messages.get(send.0)?;
        if channel.tx.may_cut(message) {
            return Some((0, send, message));
        }
        if channel.tx.growing > 0 { self.next_behind(channel) } else { None }
    }

    /// The same where the first message may wait for its supplier: nobody waits behind it.
    #[cold]
    fn next_behind(&self, channel: &Channel) -> Option<(usize, SendKey, &Outgoing)> {
        channel.tx.queue.iter().enumerate().find_map(|(place, send)| {
            let message = self.messages.get(send.0).filter(|message| message.is_queued())?;
            channel.tx.may_cut(message).then_some((place, send, message))
        })
    }

    /// Bytes that are ready behind what goes next, about: what there is of its message, and as much
    /// of each that waits behind it or on another channel.
    #[inline]
    pub(super) fn ready_behind(&self, channels: &mut Channels, turn: &Turn) -> u64 {
        let length = turn.take.part;
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
        let Turn { channel, send, place, take: Take { piece, part } } = turn;
        let Channels { all, schedule, .. } = channels;
        let Self { messages, lost, .. } = self;
        let channel = find_mut(all, channel).expect("it has the turn");
        let message = messages.get_mut(send.0).expect("queued messages are live");
        if message.state == SendState::Queued {
            message.state = SendState::Sending;
            message.id = channel.tx.assign_id();
        }
        channel.tx.use_credit();
        // What finds no room goes by itself, before what is new and after what was lost.
        let pending = |frame| Pending { frame, lost_on: None };
        let mut served = piece;
        if message.grows() {
            cold_path();
            served = part;
            // So does what comes behind a gap.
            let mut frames = message.cut_grown(send, piece).into_iter();
            let rest = frames.next().and_then(|frame| builder.add_part(frame, part));
            lost.extend(rest.into_iter().chain(frames).map(pending));
        } else if let Some(rest) = builder.add_part(message.cut(send, piece), part) {
            lost.push_back(pending(rest));
        }
        if message.bytes_at_hand() == 0 {
            message.in_line = false;
            channel.tx.queue.remove(place);
        }
        if message.growing.is_some() {
            settle_held(channel, message);
        }
        channel.tx.is_ready = !channel.tx.queue.is_empty();
        // A piece of a byte takes the link for its header too.
        let more = channel.tx.is_ready.then_some(channel.tx.weight);
        schedule.served(served + HEADER_BYTES as u32, more);
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
            let Some(length) = builder.room_for(&frame) else { break };
            if !builder.is_empty() && !may_go(builder.body() + length) {
                break;
            }
            is_again |= lost_on.is_some();
            self.lost.pop_front();
            if let Some(frame) = builder.add_part(frame, length) {
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
            if let Some(length) = builder.room_for(frame) {
                builder.add_part(*frame, length);
            }
        }
    }
}
