//! What a worker matches events with: links, and who waits for what.

use crate::egress::{Egress, End};
use crate::inbox::{Inbox, Incoming, OpenChannel, OpenLink};
use crate::limits::BACKLOG_MAX;
use crate::ops::{GrantChange, Ops};
use crate::outbound::Outbound;
use crate::queue::{Sender, queue};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use towpath_memory::Region;
use towpath_proto::{ChannelId, DownReason, GrantId};
use towpath_transport::Endpoint;
use towpath_transport::{ChannelError, ConnectError};
use towpath_transport::{ConnectId, Event, LinkId, Peer};
use towpath_verbs::Device;

/// What the worker keeps of a link.
pub(crate) struct LinkEntry {
    id: LinkId,
    opened: Sender<OpenChannel>,
    /// Where arrivals go and messages come from, by the channel's place.
    pub(crate) channels: Vec<Option<(Sender<Incoming>, Arc<Egress>)>>,
    down: Arc<OnceLock<DownReason>>,
    /// What the peer grants.
    grants: Sender<GrantChange>,
}

pub(crate) type OpenReply = Sender<Result<OpenChannel, ChannelError>>;

/// Everything that events are matched with.
pub(crate) struct Desk {
    inbox: Arc<Inbox>,
    accept: Sender<OpenLink>,
    pub(crate) connects: Vec<(ConnectId, Sender<Result<OpenLink, ConnectError>>)>,
    pub(crate) opens: Vec<(LinkId, ChannelId, OpenReply)>,
    /// By [`LinkId::index`].
    pub(crate) links: Vec<Option<LinkEntry>>,
    pub(crate) outbound: Outbound,
    pub(crate) ops: Ops,
    /// Links to close once everything posted to their channels was handed to them.
    closing: Vec<LinkId>,
    /// Something has arrived on a channel since the driver last looked.
    pub(crate) has_arrivals: bool,
}

impl Desk {
    pub(crate) fn new(accept: Sender<OpenLink>, inbox: &Arc<Inbox>) -> Self {
        Self {
            inbox: Arc::clone(inbox),
            accept,
            connects: Vec::new(),
            opens: Vec::new(),
            links: Vec::new(),
            outbound: Outbound::new(Arc::clone(inbox)),
            ops: Ops::default(),
            closing: Vec::new(),
            has_arrivals: false,
        }
    }

    /// Hands on what was posted, and closes links that have all of theirs.
    pub(crate) fn serve<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) -> bool {
        let served = self.outbound.serve(endpoint);
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
    pub(crate) fn begin_close(&mut self, link: LinkId) {
        let Some(entry) = self.link(link) else { return };
        entry.channels.iter().flatten().for_each(|(_, egress)| egress.seal());
        if !self.closing.contains(&link) {
            self.closing.push(link);
        }
    }

    fn link(&mut self, id: LinkId) -> Option<&mut LinkEntry> {
        self.links.get_mut(id.index())?.as_mut().filter(|entry| entry.id == id)
    }

    pub(crate) fn add_link(&mut self, id: LinkId, peer: Peer) -> OpenLink {
        let ((opened, channels), (grants, changes)) = (queue(), queue());
        let (inbox, down) = (Arc::clone(&self.inbox), Arc::new(OnceLock::new()));
        let entry = LinkEntry { id, opened, channels: Vec::new(), down: Arc::clone(&down), grants };
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        self.links[id.index()] = Some(entry);
        let (is_claimed, is_closing) = (false, AtomicBool::new(false));
        OpenLink { id, peer, channels, changes, down, inbox, is_claimed, is_closing }
    }

    /// Tells whoever asked for a connection how that ended. What nobody waits for any more is
    /// dropped, which closes it.
    fn answer(&mut self, connect: ConnectId, result: Result<OpenLink, ConnectError>) {
        if let Some(place) = self.connects.iter().position(|&(id, _)| id == connect) {
            drop(self.connects.swap_remove(place).1.send(result));
        }
    }

    pub(crate) fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { connect, link, peer } => {
                let new = self.add_link(link, peer);
                self.answer(connect, Ok(new));
            }
            Event::ConnectFailed { connect, error } => self.answer(connect, Err(error)),
            Event::Accepted { link, peer } => {
                let new = self.add_link(link, peer);
                // Nobody accepts, or not fast enough: the peer is better off elsewhere.
                if self.accept.len() < BACKLOG_MAX {
                    drop(self.accept.send(new));
                }
            }
            Event::AcceptFailed { from, error } => {
                tracing::debug!(%from, %error, "a peer was turned away");
            }
            Event::ChannelOpened { link, channel, ordered, by_peer } => {
                self.on_opened(link, channel, ordered, by_peer);
            }
            Event::ChannelClosed { link, channel, reason } => {
                self.answer_open(link, channel, Err(ChannelError::Closed(reason)));
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
                    let _ = entry.grants.send(GrantChange::Granted(grant));
                }
            }
            Event::Revoked { link, grant } => self.on_revoked(link, grant),
            Event::OpDone { token, outcome, word, buf, .. } => {
                self.ops.on_done(token, outcome, word, buf);
            }
            // Those of the device stand in the log, and what they end is told as links that are
            // down; handles take their buffers themselves.
            _ => {}
        }
    }

    /// A grant that nobody has heard of is not told at all, so that the queue stays bounded.
    fn on_revoked(&mut self, link: LinkId, id: GrantId) {
        let is_of =
            |news: &GrantChange| matches!(news, GrantChange::Granted(grant) if grant.id == id);
        if let Some(entry) = self.link(link)
            && !entry.grants.withdraw(is_of)
        {
            let _ = entry.grants.send(GrantChange::Revoked(id));
        }
    }

    fn on_opened(&mut self, link: LinkId, channel: ChannelId, ordered: bool, by_peer: bool) {
        let inbox = Arc::clone(&self.inbox);
        let (arrive, incoming) = queue();
        let Some(entry) = self.link(link) else { return };
        let place = channel.place();
        if entry.channels.len() <= place {
            entry.channels.resize_with(place + 1, || None);
        }
        let egress = Arc::new(Egress::new(link, channel));
        entry.channels[place] = Some((arrive, Arc::clone(&egress)));
        let new = OpenChannel { id: channel, ordered, incoming, egress, inbox };
        // One that nobody takes is dropped, which closes it.
        if by_peer {
            if entry.opened.len() < BACKLOG_MAX {
                drop(entry.opened.send(new));
            }
            return;
        }
        self.answer_open(link, channel, Ok(new));
    }

    /// Tells whoever asked for a channel how that ended.
    fn answer_open(
        &mut self,
        link: LinkId,
        channel: ChannelId,
        result: Result<OpenChannel, ChannelError>,
    ) {
        let waits = |&(l, c, _): &(LinkId, ChannelId, OpenReply)| (l, c) == (link, channel);
        if let Some(place) = self.opens.iter().position(waits) {
            drop(self.opens.swap_remove(place).2.send(result));
        }
    }

    /// Hands an arrival over; when nobody takes it, dropping it gives its credit back.
    fn arrive(&mut self, link: LinkId, channel: ChannelId, incoming: Incoming) {
        let entry = self.link(link);
        if let Some(Some((arrive, _))) = entry.and_then(|e| e.channels.get(channel.place())) {
            drop(arrive.send(incoming));
            self.has_arrivals = true;
        }
    }

    fn on_down(&mut self, link: LinkId, reason: DownReason) {
        self.opens.retain(|(of, _, reply)| {
            if *of == link {
                drop(reply.send(Err(ChannelError::Down(reason))));
            }
            *of != link
        });
        let entry = self.links.get_mut(link.index());
        if let Some(entry) = entry.and_then(|e| e.take_if(|entry| entry.id == link)) {
            let channels = entry.channels.iter().flatten();
            channels.for_each(|(_, egress)| egress.finish(End::Down(reason)));
            // It is set once, here.
            let _ = entry.down.set(reason);
        }
    }
}
