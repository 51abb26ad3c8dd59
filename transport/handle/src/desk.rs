//! What a worker matches events with: links, and who waits for what.

use crate::channel::{ChannelEnd, End, Incoming};
use crate::commands::{Claim, NewChannel, NewLink};
use crate::doorbell::Doorbell;
use crate::egress::Egress;
use crate::lane::Changes;
use crate::limits::BACKLOG_MAX;
use crate::ops::Ops;
use crate::outbound::Outbound;
use crate::queue::{Sender, unbounded};
use std::sync::{Arc, OnceLock};
use towpath_memory::Region;
use towpath_proto::{ChannelId, DownReason};
use towpath_transport::Endpoint;
use towpath_transport::{ChannelError, ConnectError};
use towpath_transport::{ConnectId, Event, LinkId, Peer};
use towpath_verbs::Device;

/// What the worker keeps of a link.
pub(super) struct LinkEntry {
    id: LinkId,
    new_channels: Sender<NewChannel>,
    /// Where arrivals go and messages come from, by the channel's place.
    pub(super) channels: Vec<Option<(Sender<Incoming>, Arc<Egress>)>>,
    down: Arc<OnceLock<DownReason>>,
    /// What the peer grants.
    changes: Arc<Changes>,
}

impl Drop for LinkEntry {
    fn drop(&mut self) {
        self.changes.close();
    }
}

pub(super) type OpenReply = Sender<Result<NewChannel, ChannelError>>;

/// Everything that events are matched with.
pub(super) struct Desk {
    accept: Sender<NewLink>,
    pub(super) connects: Vec<(ConnectId, Sender<Result<NewLink, ConnectError>>)>,
    pub(super) opens: Vec<(LinkId, ChannelId, OpenReply)>,
    /// By [`LinkId::index`].
    pub(super) links: Vec<Option<LinkEntry>>,
    pub(super) outbound: Outbound,
    pub(super) ops: Ops,
    /// Links to close once everything posted to their channels was handed to them.
    closing: Vec<LinkId>,
}

impl Desk {
    pub(super) fn new(accept: Sender<NewLink>, bell: &Arc<Doorbell>) -> Self {
        Self {
            accept,
            connects: Vec::new(),
            opens: Vec::new(),
            links: Vec::new(),
            outbound: Outbound::new(Arc::clone(bell)),
            ops: Ops::default(),
            closing: Vec::new(),
        }
    }

    /// Hands on what was posted, and closes links that have all of theirs.
    pub(super) fn serve<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) -> bool {
        let served = self.outbound.serve(endpoint);
        while let Some(link) = self.outbound.bell().next_left() {
            self.begin_close(link);
        }
        for place in (0..self.closing.len()).rev() {
            let link = self.closing[place];
            let entry = self.links.get(link.index()).and_then(Option::as_ref);
            let channels = entry.filter(|entry| entry.id == link).map_or(&[][..], |e| &e.channels);
            if channels.iter().flatten().all(|(_, egress)| egress.is_idle()) {
                self.closing.swap_remove(place);
                endpoint.close(link);
            }
        }
        served
    }

    /// Closes a link when what was posted before has been handed to it; takes no more.
    pub(super) fn begin_close(&mut self, link: LinkId) {
        let Some(entry) = self.link(link) else { return };
        entry.channels.iter().flatten().for_each(|(_, egress)| egress.seal());
        if !self.closing.contains(&link) {
            self.closing.push(link);
        }
    }

    fn link(&mut self, id: LinkId) -> Option<&mut LinkEntry> {
        self.links.get_mut(id.index())?.as_mut().filter(|entry| entry.id == id)
    }

    pub(super) fn add_link(&mut self, id: LinkId, peer: Peer) -> NewLink {
        // Bounded by who sends: only such a queue drops what is in it with its last receiver.
        let (new_channels, channels) = unbounded();
        let down = Arc::new(OnceLock::new());
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        let changes = Arc::<Changes>::default();
        self.links[id.index()] = Some(LinkEntry {
            id,
            new_channels,
            channels: Vec::new(),
            down: Arc::clone(&down),
            changes: Arc::clone(&changes),
        });
        let claim = Claim::new(self.outbound.bell(), id);
        NewLink { id, peer, channels, is_closing: Arc::default(), down, changes, claim }
    }

    /// Tells whoever asked for a connection how that ended. What nobody waits for any more is
    /// dropped, which closes it.
    fn answer(&mut self, connect: ConnectId, result: Result<NewLink, ConnectError>) {
        if let Some(place) = self.connects.iter().position(|&(id, _)| id == connect) {
            drop(self.connects.swap_remove(place).1.send(result));
        }
    }

    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { connect, link, peer } => {
                let new = self.add_link(link, peer);
                self.answer(connect, Ok(new));
            }
            Event::ConnectFailed { connect, error } => self.answer(connect, Err(error)),
            Event::Accepted { link, peer } => {
                let new = self.add_link(link, peer);
                // Nobody accepts, or not fast enough: the peer is better off elsewhere.
                drop(self.accept.send(new));
            }
            Event::AcceptFailed { from, error } => {
                tracing::debug!(%from, %error, "a peer was turned away");
            }
            Event::ChannelOpened { link, channel, ordered, by_peer } => {
                self.on_opened(link, channel, ordered, by_peer);
            }
            Event::ChannelClosed { link, channel, reason } => {
                self.end_open(link, channel, ChannelError::Closed(reason));
                let entry = self.link(link);
                let place = entry.and_then(|entry| entry.channels.get_mut(channel.place()));
                if let Some((_, egress)) = place.and_then(Option::take) {
                    egress.finish(End::Closed(reason));
                }
            }
            Event::Message(message) => {
                self.arrive(message.link(), message.channel(), Incoming::Message(message));
            }
            Event::StreamChunk { link, channel, stream, chunk, message_len, end } => {
                self.arrive(
                    link,
                    channel,
                    Incoming::StreamChunk { stream, chunk, message_len, end },
                );
            }
            Event::StreamAborted { link, channel, stream } => {
                self.arrive(link, channel, Incoming::StreamAborted { stream });
            }
            Event::Sent { token, outcome, payload, .. } => {
                self.outbound.on_sent(token, outcome, payload);
            }
            Event::PathChanged { link, path, from, to, signal } => {
                tracing::info!(?link, path = path.0, %from, %to, %signal, "a path changed");
            }
            Event::CarrierChanged { link, from, to, why } => {
                tracing::warn!(?link, %from, %to, %why, "a link rides on another carrier");
            }
            Event::Writable { link } => self.outbound.make_room(link),
            Event::LinkDown { link, reason } => {
                // What waits for room is refused.
                self.outbound.make_room(link);
                self.on_down(link, reason);
            }
            Event::Granted { link, grant } => {
                if let Some(entry) = self.link(link) {
                    entry.changes.granted(grant);
                }
            }
            Event::Revoked { link, grant } => {
                if let Some(entry) = self.link(link) {
                    entry.changes.revoked(grant);
                }
            }
            Event::OpDone { token, outcome, word, buf, .. } => {
                self.ops.on_done(token, outcome, word, buf);
            }
            // Those of the device stand in the log, and what they end is told as links that are
            // down; handles take their buffers themselves.
            _ => {}
        }
    }

    fn on_opened(&mut self, link: LinkId, channel: ChannelId, ordered: bool, by_peer: bool) {
        let bell = Arc::clone(self.outbound.bell());
        let (arrive, incoming) = unbounded();
        let Some(entry) = self.link(link) else { return };
        let place = channel.place();
        if entry.channels.len() <= place {
            entry.channels.resize_with(place + 1, || None);
        }
        let egress = Arc::new(Egress::new(link, channel));
        entry.channels[place] = Some((arrive, Arc::clone(&egress)));
        let new = NewChannel { id: channel, ordered, incoming, end: ChannelEnd::new(egress, bell) };
        // One that nobody takes is dropped, which closes it.
        if by_peer {
            if entry.new_channels.len() < BACKLOG_MAX {
                drop(entry.new_channels.send(new));
            }
            return;
        }
        let waits = |&(l, c, _): &(LinkId, ChannelId, OpenReply)| (l, c) == (link, channel);
        if let Some(place) = self.opens.iter().position(waits) {
            drop(self.opens.swap_remove(place).2.send(Ok(new)));
        }
    }

    fn end_open(&mut self, link: LinkId, channel: ChannelId, error: ChannelError) {
        let waits = |&(l, c, _): &(LinkId, ChannelId, OpenReply)| (l, c) == (link, channel);
        if let Some(place) = self.opens.iter().position(waits) {
            drop(self.opens.swap_remove(place).2.send(Err(error)));
        }
    }

    /// Hands an arrival over; when nobody takes it, dropping it gives its credit back.
    fn arrive(&mut self, link: LinkId, channel: ChannelId, incoming: Incoming) {
        let entry = self.link(link);
        if let Some(Some((arrive, _))) = entry.and_then(|e| e.channels.get(channel.place())) {
            drop(arrive.send(incoming));
        }
    }

    fn on_down(&mut self, link: LinkId, reason: DownReason) {
        self.opens.retain(|(of, _, reply)| {
            if *of == link {
                drop(reply.send(Err(ChannelError::Down(reason))));
            }
            *of != link
        });
        let known = self.link(link).is_some();
        if let Some(entry) = self.links.get_mut(link.index()).filter(|_| known)
            && let Some(entry) = entry.take()
        {
            let channels = entry.channels.iter().flatten();
            channels.for_each(|(_, egress)| egress.finish(End::Down(reason)));
            // It is set once, here.
            let _ = entry.down.set(reason);
        }
    }
}
