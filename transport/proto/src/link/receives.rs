//! Messages being received: reassembly, order, and what readers are given.

use super::channels::note_credit;
use super::find_mut;
use super::receive::Piggyback;
use crate::channel::{Channel, Closed, Incoming, Place, Reading, RxViolation, Stage};
use crate::event::{ChannelId, ChunkRef, Event, IncomingKey};
use crate::slots::{Key, Slots};
use crate::stats::LinkStats;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hint::cold_path;

/// Where it is told what receiving causes.
pub(super) struct Report<'a> {
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) stats: &'a mut LinkStats,
    /// Channels whose credit is to be told to the peer.
    pub(super) credit_due: &'a mut VecDeque<u32>,
}

impl Report<'_> {
    fn piece(
        &mut self,
        channel: &Channel,
        incoming: IncomingKey,
        chunk: ChunkRef,
        (message_len, end): (u32, bool),
    ) {
        let channel = ChannelId(channel.id);
        self.events.push_back(Event::StreamChunk { channel, incoming, chunk, message_len, end });
    }
}

/// Messages being received.
#[derive(Debug)]
pub(super) struct Receives {
    pub(super) messages: Slots<Incoming>,
    /// Those whose reader takes pieces as they come, and has not been given all that came.
    begun: Vec<IncomingKey>,
    /// Longer messages are streamed.
    whole_bytes_max: u32,
    /// An ack that waits for what is more urgent.
    pub(super) piggyback: Option<Piggyback>,
    /// What the peer may have in flight, and what it was last told in an ack.
    pub(super) window_bytes: u64,
    pub(super) window_told_bytes: u64,
    /// Kept between calls for its memory.
    scratch: Vec<Key>,
}

impl Receives {
    pub(super) fn new(incoming_max: usize, whole_bytes_max: u32) -> Self {
        Self {
            messages: Slots::new(incoming_max),
            begun: Vec::new(),
            whole_bytes_max,
            piggyback: None,
            window_bytes: u64::MAX,
            window_told_bytes: u64::MAX,
            scratch: Vec::new(),
        }
    }

    /// Messages of which something is held.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// See [`Link::whole_bytes_max`](super::Link::whole_bytes_max).
    pub(super) fn whole_bytes_max(&self) -> u32 {
        self.whole_bytes_max
    }

    /// Whether a reader that takes pieces as they come has some to get.
    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// See [`Slots::steps`].
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.messages.steps.get()
    }

    /// Hands the pieces of a whole message to `take`, in order, and ends the message.
    #[inline]
    pub(super) fn take(&mut self, incoming: IncomingKey, take: impl FnOnce(&[ChunkRef])) {
        let message = self.messages.get_mut(incoming.0);
        if let Some(message) = message.filter(|message| message.stage == Stage::Delivered) {
            take(&message.chunks);
            message.chunks.clear();
            self.messages.free(incoming.0);
        }
    }

    /// A message has another piece or part: gives the application what it may have of it now.
    #[inline(always)]
    pub(super) fn advance(
        &mut self,
        channel: &mut Channel,
        key: IncomingKey,
        report: &mut Report<'_>,
    ) {
        let Some(message) = self.messages.get_mut(key.0) else { return };
        if message.stage == Stage::Broken {
            cold_path();
            report.stats.violations += 1;
            self.drop(channel, key.0, report);
            self.take_turns(channel, report);
        } else if message.is_complete() {
            // Its id is closed from now on.
            channel.rx.close(message.id, Closed::Delivered);
            if channel.ordered {
                self.take_turns(channel, report);
            } else {
                self.deliver(channel, key, report);
            }
        } else if message.reading != Reading::Whole {
            self.advance_stream(channel, key, report);
        }
    }

    /// Delivers what can be on an ordered channel, from the message whose turn it is on.
    pub(super) fn take_turns(&mut self, channel: &mut Channel, report: &mut Report<'_>) {
        while channel.ordered {
            let turn = channel.rx.turn;
            match channel.rx.opened(turn) {
                Some(key) if channel.rx.is_closed(turn) => self.deliver(channel, key, report),
                Some(key) => return self.advance_stream(channel, key, report),
                // Abandoned, or nothing of it came yet.
                None if channel.rx.is_closed(turn) => {}
                None => return,
            }
            channel.rx.turn = turn + 1;
        }
    }

    /// Hands a complete message over, or the rest of it if its reader has some.
    #[inline]
    fn deliver(&mut self, channel: &mut Channel, key: IncomingKey, report: &mut Report<'_>) {
        let Some(message) = self.messages.get_mut(key.0) else { return };
        match message.reading {
            Reading::InOrder => return self.stream_out(channel, key, report),
            Reading::AsItComes if message.stream_begun() => {
                return self.hand_out(channel, key, report);
            }
            Reading::AsItComes | Reading::Whole => {}
        }
        message.arrange();
        message.stage = Stage::Delivered;
        channel.rx.forget(message.id);
        let (channel, length) = (ChannelId(channel.id), message.message_len);
        report.events.push_back(Event::Message { channel, incoming: key, length });
        report.stats.messages_received += 1;
    }

    /// Gives a streaming reader what follows of an unfinished message, when it is its turn.
    #[inline(never)]
    fn advance_stream(&mut self, channel: &mut Channel, key: IncomingKey, report: &mut Report<'_>) {
        let Some(message) = self.messages.get_mut(key.0) else { return };
        match message.reading {
            Reading::Whole => {}
            Reading::InOrder if channel.ordered && channel.rx.turn != message.id => {}
            Reading::InOrder => self.stream_out(channel, key, report),
            Reading::AsItComes => {
                if message.stage == Stage::Open {
                    message.stage = Stage::Listed;
                    self.begun.push(key);
                }
            }
        }
    }

    fn stream_out(&mut self, channel: &mut Channel, key: IncomingKey, report: &mut Report<'_>) {
        let Some(message) = self.messages.get_mut(key.0) else { return };
        let message_len = message.message_len;
        while let Some((chunk, end)) = message.next_in_stream() {
            report.piece(channel, key, chunk, (message_len, end));
            if end {
                return self.end_stream(channel, key, report);
            }
        }
    }

    /// Hands out what has come of messages whose reader takes pieces as they come. Called when the
    /// application has taken all else: what is whole by then is handed over whole.
    pub(super) fn hand_out_begun(
        &mut self,
        channels: &mut [Option<Box<Channel>>],
        report: &mut Report<'_>,
    ) {
        let mut begun = core::mem::take(&mut self.begun);
        for key in begun.drain(..) {
            // One that is whole meanwhile, or was given up, is out of the list.
            let message = self.messages.get_mut(key.0);
            let Some(message) = message.filter(|message| message.stage == Stage::Listed) else {
                continue;
            };
            message.stage = Stage::Open;
            if let Some(channel) = find_mut(channels, message.channel) {
                self.hand_out(channel, key, report);
            }
        }
        self.begun = begun;
    }

    /// Hands out the pieces that are held.
    fn hand_out(&mut self, channel: &mut Channel, key: IncomingKey, report: &mut Report<'_>) {
        let Some(message) = self.messages.get_mut(key.0) else { return };
        let (message_len, is_complete) = (message.message_len, message.is_complete());
        let last = message.chunks.len().saturating_sub(1);
        for (at, chunk) in message.hand_out().enumerate() {
            report.piece(channel, key, chunk, (message_len, is_complete && at == last));
        }
        if is_complete {
            self.end_stream(channel, key, report);
        }
    }

    /// A streaming reader has all of a message.
    fn end_stream(&mut self, channel: &mut Channel, key: IncomingKey, report: &mut Report<'_>) {
        if let Some(message) = self.messages.get(key.0) {
            channel.rx.forget(message.id);
            self.messages.free(key.0);
            report.stats.messages_received += 1;
        }
    }

    /// Takes in that the peer gave a message up, of which it had cut so many pieces; how the
    /// message has ended.
    pub(super) fn abandon(
        &mut self,
        channel: &mut Channel,
        (id, cut): (u64, u32),
        report: &mut Report<'_>,
    ) -> Result<Closed, RxViolation> {
        let place = channel.rx.place(id)?;
        // Pieces that were cut and never came used credit all the same.
        let received = match place {
            Place::Closed(_) => cut,
            Place::Open(key) => self.messages.get(key.0).map_or(0, Incoming::pieces_begun),
            Place::New => 0,
        };
        channel.rx.forgo(cut.saturating_sub(received));
        let verdict = match place {
            Place::Closed(verdict) => verdict,
            Place::Open(key) => {
                self.drop(channel, key.0, report);
                Closed::Abandoned
            }
            Place::New => {
                channel.rx.close(id, Closed::Abandoned);
                Closed::Abandoned
            }
        };
        note_credit(channel, report.credit_due);
        self.take_turns(channel, report);
        Ok(verdict)
    }

    /// Drops all half-received messages, or those of one channel; whole ones stay for the
    /// application.
    pub(super) fn drop_all(
        &mut self,
        of: Option<u32>,
        channels: &mut [Option<Box<Channel>>],
        report: &mut Report<'_>,
    ) {
        let mut keys = core::mem::take(&mut self.scratch);
        keys.extend(self.messages.keys());
        for key in keys.drain(..) {
            let Some(message) = self.messages.get(key) else { continue };
            let is_meant = of.is_none_or(|id| message.channel == id);
            if is_meant
                && message.stage != Stage::Delivered
                && let Some(channel) = find_mut(channels, message.channel)
            {
                self.drop(channel, key, report);
            }
        }
        self.scratch = keys;
    }

    /// Drops one message: gives its buffers back, and calls the cleanup of a streaming reader.
    fn drop(&mut self, channel: &mut Channel, key: Key, report: &mut Report<'_>) {
        let Some(message) = self.messages.get_mut(key) else { return };
        let (id, begun, mut held) = (message.id, message.stream_begun(), 0);
        for buf in message.drain_partials() {
            report.events.push_back(Event::Recycled { buf });
            held += 1;
        }
        for ChunkRef { buf, .. } in message.chunks.drain(..) {
            report.events.push_back(Event::Recycled { buf });
            held += 1;
        }
        self.messages.free(key);
        if begun {
            let (channel, incoming) = (ChannelId(channel.id), IncomingKey(key));
            report.events.push_back(Event::StreamAborted { channel, incoming });
        }
        channel.rx.close(id, Closed::Abandoned);
        channel.rx.forget(id);
        channel.rx.release(held);
        note_credit(channel, report.credit_due);
    }
}
