//! Delivery: handing received messages to the application, in order where that was promised.

use super::{Channels, Link, Receives, find_mut};
use crate::channel::{Channel, Closed, Incoming, Reading};
use crate::event::{ChannelId, ChunkRef, Event, IncomingKey};

impl Link {
    /// Hands the chunks of a whole message to `take`, in order, and ends the message here. Their
    /// buffers are the application's until it calls [`release`](Self::release).
    #[inline]
    pub fn take_message(&mut self, incoming: IncomingKey, take: impl FnOnce(&[ChunkRef])) {
        if let Some(message) = self.receives.messages.get_mut(incoming.0).filter(|m| m.delivered) {
            take(&message.chunks);
            message.chunks.clear();
            self.receives.messages.free(incoming.0);
        }
    }

    /// Delivers what can be on an ordered channel, from the message whose turn it is on.
    pub(super) fn take_turns(&mut self, id: u32) {
        loop {
            let Some(channel) = self.channel(id).filter(|channel| channel.ordered) else { return };
            let turn = channel.rx.turn;
            match channel.rx.opened(turn) {
                Some(key) if channel.rx.is_closed(turn) => {
                    if !self.deliver(id, key) {
                        return;
                    }
                }
                Some(key) => {
                    self.advance_stream(id, key);
                    return;
                }
                // Abandoned, or nothing of it came yet.
                None if channel.rx.is_closed(turn) => {}
                None => return,
            }
            self.channel_mut(id).expect("found above").rx.turn = turn + 1;
        }
    }

    /// Delivers a complete message; false when it broke a rule and the link dropped it, in which
    /// case the turn has been taken on.
    fn deliver(&mut self, id: u32, key: IncomingKey) -> bool {
        let Some(message) = self.receives.messages.get_mut(key.0) else { return true };
        if message.reading == Reading::InOrder {
            return self.stream_out(id, key);
        }
        let channel = find_mut(&mut self.channels.all, id).expect("messages belong to channels");
        self.events.push_back(hand_over(channel, message, key));
        self.stats.messages_received += 1;
        true
    }

    /// Gives a streaming reader what follows of an unfinished message, when it is its turn.
    #[inline(never)]
    pub(super) fn advance_stream(&mut self, id: u32, key: IncomingKey) {
        let Some(message) = self.receives.messages.get_mut(key.0) else { return };
        let message_id = message.id;
        match message.reading {
            Reading::Whole => {}
            Reading::InOrder => {
                let channel = self.channel(id).expect("messages belong to channels");
                if !channel.ordered || channel.rx.turn == message_id {
                    self.stream_out(id, key);
                }
            }
            Reading::AsItComes => {
                if !core::mem::replace(&mut message.is_listed, true) {
                    self.receives.begun.push(key);
                }
            }
        }
    }

    /// Hands out what has come of messages whose reader takes pieces as they come. Called when the
    /// application has taken all else: what is whole by then is handed over whole.
    pub(super) fn hand_out_begun(&mut self) {
        let mut begun = core::mem::take(&mut self.receives.begun);
        for key in begun.drain(..) {
            // One that is whole meanwhile, or was given up, is out of the list.
            let message =
                self.receives.messages.get_mut(key.0).filter(|m| m.is_listed && !m.delivered);
            let Some(message) = message else { continue };
            message.is_listed = false;
            if message.note_handed_out().is_ok() {
                self.hand_out(key);
            } else {
                self.stats.violations += 1;
                self.drop_incoming(key.0, Closed::Abandoned);
            }
        }
        self.receives.begun = begun;
    }

    /// Hands out the pieces that are held, which were noted as handed out.
    pub(super) fn hand_out(&mut self, key: IncomingKey) {
        let Self {
            events,
            stats,
            receives: Receives { messages: incoming, .. },
            channels: Channels { all: channels, .. },
            ..
        } = self;
        let Some(message) = incoming.get_mut(key.0) else { return };
        let (id, message_id, message_len) = (message.channel, message.id, message.message_len);
        let is_complete = message.is_complete();
        let last = message.chunks.len().saturating_sub(1);
        for (at, chunk) in message.chunks.drain(..).enumerate() {
            let (channel, end) = (ChannelId(id), is_complete && at == last);
            let incoming = key;
            events.push_back(Event::StreamChunk { channel, incoming, chunk, message_len, end });
        }
        if is_complete {
            stats.messages_received += 1;
            incoming.free(key.0);
            let channel = find_mut(channels, id).expect("messages belong to channels");
            channel.rx.forget(message_id);
        }
    }

    fn stream_out(&mut self, id: u32, key: IncomingKey) -> bool {
        while let Some(message) = self.receives.messages.get_mut(key.0) {
            match message.next_in_stream() {
                Ok(None) => break,
                Ok(Some((chunk, end))) => {
                    let (channel, message_len) = (ChannelId(id), message.message_len);
                    let message_id = message.id;
                    self.events.push_back(Event::StreamChunk {
                        channel,
                        incoming: key,
                        chunk,
                        message_len,
                        end,
                    });
                    if end {
                        self.stats.messages_received += 1;
                        self.receives.messages.free(key.0);
                        let channel = self.channel_mut(id).expect("messages belong to channels");
                        channel.rx.forget(message_id);
                    }
                }
                Err(_) => {
                    self.stats.violations += 1;
                    self.drop_incoming(key.0, Closed::Abandoned);
                    self.take_turns(id);
                    return false;
                }
            }
        }
        true
    }
}

/// A whole message is the application's to take from here on.
#[inline]
pub(super) fn hand_over(channel: &mut Channel, message: &mut Incoming, key: IncomingKey) -> Event {
    message.delivered = true;
    channel.rx.forget(message.id);
    let (channel, length) = (ChannelId(channel.id), message.message_len);
    Event::Message { channel, incoming: key, length }
}
