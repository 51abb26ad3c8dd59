//! Turning what links tell into what the application is told.

use super::Endpoint;
use crate::event::Event;
use crate::ids::{LinkId, SendId, StreamId};
use crate::message::{Chunk, Message};
use crate::payload::Payload;
use crate::rx::Rx;
use smallvec::SmallVec;
use std::hint::cold_path;
use towpath_memory::Region;
use towpath_proto::{Event as LinkEvent, IncomingKey, Link};
use towpath_verbs::Device;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// The next thing to tell. Take all events of a turn before the [`flush`](Self::flush).
    pub fn next_event(&mut self) -> Option<Event> {
        let mut next = None;
        self.take_event(|_, event| next = Some(event));
        next
    }

    /// One turn: [`poll`](Self::poll), every event to `on_event`, [`flush`](Self::flush).
    /// Acks go out after the application's turn, so that they ride on its answers. Returns whether
    /// anything happened; if not, an owner with nothing else to do may [`wait`](Self::wait).
    pub fn turn(&mut self, mut on_event: impl FnMut(&mut Self, Event)) -> bool {
        let mut busy = self.poll() > 0;
        while self.take_event(&mut on_event) {
            busy = true;
        }
        self.flush();
        busy
    }

    /// Hands the next thing to tell to `on_event`; false when there is none. As
    /// [`next_event`](Self::next_event), but the event stays where it was put together: to copy it
    /// just then is slow. Take all events of a turn before the [`flush`](Self::flush).
    #[inline]
    pub fn take_event(&mut self, on_event: impl FnOnce(&mut Self, Event)) -> bool {
        if !self.told.is_empty() {
            cold_path();
            if let Some(event) = self.told.pop_front() {
                on_event(self, event);
                return true;
            }
        }
        while let Some(index) = self.links.eventful() {
            let Self { links, rx, .. } = self;
            let told = links.at(index).and_then(|conn| {
                let from = conn.link.as_mut()?;
                let (sends, lane) = (&mut conn.sends, (&mut conn.lane, conn.refused_lane));
                Some((conn.id, from.poll_event()?, from, sends, lane))
            });
            let Some((link, event, from, sends, (lane, refused))) = told else {
                if let Some(link) = self.take_writable(index) {
                    on_event(self, Event::Writable { link });
                    return true;
                }
                self.links.pop_eventful();
                continue;
            };
            match event {
                LinkEvent::Message { channel, incoming, length } => {
                    // Filled in place: chunks are put down one by one, and a copy would wait.
                    let chunks = SmallVec::new();
                    let mut event = Event::Message(Message { link, channel, len: length, chunks });
                    if let Event::Message(message) = &mut event {
                        gather(from, rx, incoming, message);
                    }
                    if (lane.as_ref().is_some_and(|lane| lane.talk.has(channel))
                        || refused == Some(channel))
                        && let Event::Message(message) = event
                    {
                        self.on_lane_message(link, message);
                        continue;
                    }
                    on_event(self, event);
                }
                LinkEvent::Sent { send, token, outcome } => {
                    // The one place where what was sent is taken back: the link says Sent only
                    // after every work request of the message has come back.
                    let Some(segments) = sends.leave(send) else { continue };
                    if lane.as_mut().is_some_and(|lane| lane.talk.leave(send)) {
                        drop(segments);
                        self.on_lane_sent(link, outcome);
                        continue;
                    }
                    let (send, payload) = (SendId { link, key: send }, Payload::of(segments));
                    on_event(self, Event::Sent { send, token, outcome, payload });
                }
                LinkEvent::PieceSent { send, offset, length } => {
                    sends.on_piece_sent(send, offset, length);
                    continue;
                }
                LinkEvent::StreamChunk { channel, incoming, chunk, message_len, end } => {
                    let Some(chunk) = rx.slots().lend_out(&chunk, channel) else { continue };
                    let stream = StreamId(incoming);
                    let event =
                        Event::StreamChunk { link, channel, stream, chunk, message_len, end };
                    on_event(self, event);
                }
                _ => match self.translate_rare(link, &event) {
                    Some(event) => on_event(self, event),
                    None => continue,
                },
            }
            return true;
        }
        false
    }

    /// The link, when it has room after a message was refused for want of it: once.
    #[inline]
    fn take_writable(&mut self, index: u16) -> Option<LinkId> {
        let conn = self.links.at(index).filter(|conn| conn.is_refused)?;
        cold_path();
        conn.link.as_ref().filter(|link| link.has_room())?;
        conn.is_refused = false;
        Some(conn.id)
    }

    /// What comes once in a link's or a channel's life, or when something went wrong.
    #[cold]
    fn translate_rare(&mut self, link: LinkId, event: &LinkEvent) -> Option<Event> {
        Some(match *event {
            LinkEvent::StreamAborted { channel, incoming } => {
                Event::StreamAborted { link, channel, stream: StreamId(incoming) }
            }
            LinkEvent::Opened { channel, for_lane: true, by_peer, .. } => {
                self.on_lane_opened(link, channel, by_peer);
                return None;
            }
            LinkEvent::Opened { channel, ordered, by_peer, .. } => {
                Event::ChannelOpened { link, channel, ordered, by_peer }
            }
            LinkEvent::PathChanged { path, from, to, signal } => {
                Event::PathChanged { link, path, from, to, signal }
            }
            LinkEvent::PathMtuChanged { path, from, to, why } => {
                self.note_mtu_change(link, (path, from, to, why));
                Event::PathMtuChanged { link, path, from, to, why }
            }
            LinkEvent::Granted { grant } => Event::Granted { link, grant },
            LinkEvent::Revoked { grant } => Event::Revoked { link, grant },
            LinkEvent::OpDone { op, token, outcome } => self.op_done(link, op, token, outcome),
            LinkEvent::CarrierChanged { from, to, why } => {
                self.reconsider_lane(link);
                self.tally.rides.note(self.device.now(), link, (from, to, why));
                Event::CarrierChanged { link, from, to, why }
            }
            LinkEvent::Closed { channel, .. } if self.on_lane_closed(link, channel) => return None,
            LinkEvent::Closed { channel, reason } => Event::ChannelClosed { link, channel, reason },
            LinkEvent::Down { reason } => {
                self.end_link(link);
                Event::LinkDown { link, reason }
            }
            LinkEvent::Recycled { buf } => {
                self.rx.piece_home(&mut self.links, buf.0, None);
                return None;
            }
            LinkEvent::Message { .. }
            | LinkEvent::Sent { .. }
            | LinkEvent::PieceSent { .. }
            | LinkEvent::StreamChunk { .. } => return None,
        })
    }
}

/// The chunks of a message that is handed over.
#[inline]
fn gather(from: &mut Link, rx: &Rx, incoming: IncomingKey, message: &mut Message) {
    let Message { channel, chunks, .. } = message;
    from.take_message(incoming, |taken| {
        if taken.len() > chunks.inline_size() {
            make_room(chunks, taken.len());
        }
        for chunk in taken {
            let lent = rx.slots().lend_out(chunk, *channel);
            debug_assert!(lent.is_some(), "a chunk of a message is in its slot");
            if let Some(lent) = lent {
                chunks.push(lent);
            }
        }
    });
}

#[inline(never)]
fn make_room(chunks: &mut SmallVec<[Chunk; 2]>, count: usize) {
    chunks.reserve_exact(count);
}
