//! Turning what links tell into what the application is told.

use super::Endpoint;
use crate::event::{Event, LinkId, SendId, StreamId};
use crate::message::Message;
use crate::payload::Payload;
use smallvec::SmallVec;
use towpath_memory::Region;
use towpath_proto::{ChannelId, Event as LinkEvent, IncomingKey};
use towpath_verbs::Device;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// The next thing to tell. Take all events of a turn before the [`flush`](Self::flush).
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.told.pop_front() {
            return Some(event);
        }
        while let Some(index) = self.links.eventful() {
            let conn = self.links.at(index);
            let event = conn.and_then(|conn| Some((conn.id, conn.link.as_mut()?.poll_event()?)));
            let Some((id, event)) = &event else {
                self.links.pop_eventful();
                continue;
            };
            if let Some(event) = self.translate(*id, event) {
                return Some(event);
            }
        }
        None
    }

    /// One turn: [`poll`](Self::poll), every event to `on_event`, [`flush`](Self::flush).
    /// Acks go out after the application's turn, so that they ride on its answers. Returns whether
    /// anything happened; if not, an owner with nothing else to do may [`wait`](Self::wait).
    pub fn turn(&mut self, mut on_event: impl FnMut(&mut Self, Event)) -> bool {
        let mut busy = self.poll() > 0;
        while let Some(event) = self.next_event() {
            busy = true;
            on_event(self, event);
        }
        self.flush();
        busy
    }

    #[inline]
    fn translate(&mut self, link: LinkId, event: &LinkEvent) -> Option<Event> {
        Some(match *event {
            LinkEvent::Message { channel, incoming, length } => {
                Event::Message(self.gather(link, channel, incoming, length))
            }
            LinkEvent::Sent { send, token, outcome } => {
                // The one place where what was sent is taken back: the link says Sent only after
                // every work request of the message has come back.
                let segments = self.links.find_mut(link)?.sends.leave(send)?;
                let payload = Payload { segments };
                Event::Sent { send: SendId { link, key: send }, token, outcome, payload }
            }
            LinkEvent::StreamChunk { channel, incoming, chunk, message_len, end } => {
                let chunk = self.recv.lend_out(&chunk, channel)?;
                let stream = StreamId(incoming);
                Event::StreamChunk { link, channel, stream, chunk, message_len, end }
            }
            _ => return self.translate_rare(link, event),
        })
    }

    /// What comes once in a link's or a channel's life, or when something went wrong.
    #[cold]
    fn translate_rare(&mut self, link: LinkId, event: &LinkEvent) -> Option<Event> {
        Some(match *event {
            LinkEvent::StreamAborted { channel, incoming } => {
                Event::StreamAborted { link, channel, stream: StreamId(incoming) }
            }
            LinkEvent::Opened { channel, ordered, by_peer } => {
                Event::ChannelOpened { link, channel, ordered, by_peer }
            }
            LinkEvent::PathChanged { path, from, to, signal } => {
                Event::PathChanged { link, path, from, to, signal }
            }
            LinkEvent::Closed { channel, reason } => Event::ChannelClosed { link, channel, reason },
            LinkEvent::Down { reason } => {
                self.end_link(link);
                Event::LinkDown { link, reason }
            }
            LinkEvent::Recycled { buf } => {
                self.chunk_home(buf.0, false);
                return None;
            }
            LinkEvent::Message { .. } | LinkEvent::Sent { .. } | LinkEvent::StreamChunk { .. } => {
                return None;
            }
        })
    }

    fn gather(
        &mut self,
        link: LinkId,
        channel: ChannelId,
        incoming: IncomingKey,
        len: u32,
    ) -> Message {
        let mut chunks = SmallVec::new();
        let Self { links, recv, .. } = self;
        if let Some(found) = links.find_mut(link).and_then(|conn| conn.link.as_mut()) {
            found.take_message(incoming, |chunk| {
                let lent = recv.lend_out(&chunk, channel);
                debug_assert!(lent.is_some(), "a chunk of a message is in its slot");
                if let Some(lent) = lent {
                    chunks.push(lent);
                }
            });
        }
        Message { link, channel, len, chunks }
    }
}
