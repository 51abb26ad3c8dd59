//! The worker that owns an endpoint: commands in, turns, events to whom they concern.

use super::channel::{ChannelEnd, End, Incoming};
use super::clock::Clock;
use super::commands::{Claim, Command, NewChannel, NewLink};
use super::doorbell::Doorbell;
use super::egress::Egress;
use super::lane::Changes;
use super::ops::Ops;
use super::outbound::Outbound;
use super::queue::{Sender, TryRecvError, unbounded};
use super::{EndpointHandle, LinkHandle};
use crate::endpoint::{Endpoint, PendingLink};
use crate::error::{ChannelError, ConnectError, LinkError};
use crate::event::{ConnectId, Event, LinkId, Peer};
use crate::limits::{BACKLOG_MAX, BATCH, WORKER_BLOCK_NS, WORKER_SLEEP_NS};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::wire::Hello;
use towpath_proto::{ChannelId, DownReason, Side};
use towpath_verbs::Device;

/// How long links may take to close in order when the worker ends.
const GRACE: Nanos = Nanos::from_secs(1);

/// Turns in which the device lets go of what links had that are cut: one for them to end, three for
/// completions, and as many to spare.
const LAST_TURNS: u32 = 8;

/// What the worker keeps of a link.
struct LinkEntry {
    id: LinkId,
    new_channels: Sender<NewChannel>,
    /// Where arrivals go and messages come from, by the channel's place.
    channels: Vec<Option<(Sender<Incoming>, Arc<Egress>)>>,
    down: Arc<OnceLock<DownReason>>,
    /// What the peer grants.
    changes: Arc<Changes>,
}

impl Drop for LinkEntry {
    fn drop(&mut self) {
        self.changes.close();
    }
}

type OpenReply = Sender<Result<NewChannel, ChannelError>>;

/// Everything that events are matched with.
struct Desk {
    accept: Sender<NewLink>,
    connects: Vec<(ConnectId, Sender<Result<NewLink, ConnectError>>)>,
    opens: Vec<(LinkId, ChannelId, OpenReply)>,
    /// By [`LinkId::index`].
    links: Vec<Option<LinkEntry>>,
    outbound: Outbound,
    ops: Ops,
    /// Links to close once everything posted to their channels was handed to them.
    closing: Vec<LinkId>,
}

/// What an [`EndpointHandle`] talks to: it owns the endpoint. Most have a thread that drives them;
/// one that was made by [`EndpointHandle::driven`](super::EndpointHandle::driven) is driven by
/// whoever holds it: in virtual time, or in one thread with the applications. Nothing blocks here.
///
/// When it is dropped, its links end without a word: what was posted is refused, as is what is
/// posted afterwards, and what a link had already has an outcome as on any link that ends, unknown
/// where the peer may have it.
pub struct EndpointWorker<D: Device<Memory = Region>> {
    endpoint: Endpoint<D>,
    commands: crossbeam_channel::Receiver<Command>,
    bell: Arc<Doorbell>,
    clock: Arc<Clock>,
    desk: Desk,
    spin: Nanos,
    ending: bool,
}

impl<D: Device<Memory = Region>> EndpointWorker<D> {
    pub(super) fn new(
        endpoint: Endpoint<D>,
        commands: crossbeam_channel::Receiver<Command>,
        (bell, clock): (Arc<Doorbell>, Arc<Clock>),
        accept: Sender<NewLink>,
        spin: Nanos,
    ) -> Self {
        let desk = Desk {
            accept,
            connects: Vec::new(),
            opens: Vec::new(),
            links: Vec::new(),
            outbound: Outbound::new(Arc::clone(&bell)),
            ops: Ops::default(),
            closing: Vec::new(),
        };
        Self { endpoint, commands, bell, clock, desk, spin, ending: false }
    }

    pub(super) fn run(mut self) {
        let mut busy_at = self.endpoint.now();
        self.clock.run(busy_at);
        while !self.ending {
            let worked = self.take_turn();
            let now = self.endpoint.now();
            if worked {
                busy_at = now;
            } else if now.since(busy_at) >= self.spin {
                self.clock.run(now);
                self.block(now);
            }
        }
        self.leave();
    }

    /// One turn: takes what handles asked for and posted, and has the endpoint take its turn, whose
    /// outcomes and arrivals it tells. Says whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        self.clock.set(self.endpoint.now());
        self.take_turn()
    }

    fn take_turn(&mut self) -> bool {
        self.take_commands() | self.serve()
    }

    fn serve(&mut self) -> bool {
        let Self { endpoint, desk, .. } = self;
        desk.serve(endpoint) | endpoint.turn(|_, event| desk.on_event(event))
    }

    /// When [`turn`](Self::turn) has something to do at the latest, unless something arrives or is
    /// asked for: see [`Endpoint::next_timeout`].
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        self.endpoint.next_timeout().min(self.desk.outbound.due())
    }

    /// Whether its last handle is gone, or one of them asked for the end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ending
    }

    /// The endpoint, for its clock and its counters.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint<D> {
        &self.endpoint
    }

    /// Our half of a link whose HELLOs travel in another way than over TCP; see
    /// [`Endpoint::offer`].
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn offer(&mut self) -> Result<(Hello, PendingLink), LinkError> {
        self.endpoint.offer()
    }

    /// Joins our half with the peer's, for a handle of this worker; see [`Endpoint::establish`].
    ///
    /// # Errors
    /// [`LinkError`]; our half is withdrawn.
    pub fn establish(
        &mut self,
        handle: &EndpointHandle,
        half: PendingLink,
        peer: &Hello,
        side: Side,
    ) -> Result<LinkHandle, LinkError> {
        let id = self.endpoint.establish(half, peer, side)?;
        let peer = self.endpoint.peer(id).ok_or(LinkError::NotPending)?;
        Ok(LinkHandle::new(&handle.shared, self.desk.add_link(id, peer)))
    }

    /// Blocks until something arrives, is due or is asked for.
    fn block(&mut self, before: Time) {
        self.bell.bell().sleeps();
        let asked = !(self.commands.is_empty() && self.bell.is_empty());
        if !asked
            && !self.endpoint.wait(self.sleep())
            && self.endpoint.now().since(before) < self.spin
        {
            self.block_on_commands();
        }
        self.bell.bell().wakes();
    }

    /// How long nothing needs to be looked at: what is asked for, posted or given back rings, and
    /// deadlines of what waits for its turn are known.
    fn sleep(&self) -> Nanos {
        let most = if self.bell.bell().is_heard() { WORKER_SLEEP_NS } else { WORKER_BLOCK_NS };
        self.desk.outbound.due().since(self.endpoint.now()).min(Nanos(most))
    }

    /// Where the device cannot block.
    fn block_on_commands(&mut self) {
        let span = Duration::from(self.spin.saturating_mul(2)).min(Duration::from_millis(1));
        if let Ok(command) = self.commands.recv_timeout(span) {
            self.on_command(command);
        }
    }

    fn take_commands(&mut self) -> bool {
        for taken in 0..BATCH {
            match self.commands.try_recv() {
                Ok(command) => self.on_command(command),
                Err(TryRecvError::Empty) => return taken > 0,
                Err(TryRecvError::Disconnected) => {
                    self.ending = true;
                    return true;
                }
            }
        }
        true
    }

    fn on_command(&mut self, command: Command) {
        let Self { endpoint, desk, .. } = self;
        // An answer that nobody waits for any more is dropped.
        match command {
            Command::Listen { addr, reply } => drop(reply.send(endpoint.listen(addr))),
            Command::Connect { addr, class, reply } => {
                let class = class.unwrap_or(endpoint.config().class.own);
                match endpoint.connect_as(addr, class) {
                    Ok(connect) => desk.connects.push((connect, reply)),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Command::Register { region, reply } => drop(reply.send(endpoint.register(&region))),
            Command::OpenChannel { link, ordered, reply } => {
                match endpoint.open_channel(link, ordered) {
                    Ok(channel) => desk.opens.push((link, channel, reply)),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Command::Grant { link, memory, range, rights, reply } => {
                let granted = endpoint.grant(link, &memory, range, rights);
                if let Err(Ok(id)) = reply.send(granted) {
                    // Nobody knows of it who could revoke it.
                    endpoint.revoke(link, id);
                }
            }
            Command::Revoke { link, grant, reply } => {
                let _ = reply.send(endpoint.revoke(link, grant));
            }
            Command::Operate(asked) => desk.ops.ask(endpoint, asked),
            Command::CloseLink { link } => desk.begin_close(link),
            Command::Stats { link, reply } => drop(reply.send(endpoint.stats(link))),
            Command::Shutdown => self.ending = true,
        }
    }

    /// Closes all links in order, for as long as that may take.
    fn leave(mut self) {
        self.bell.end();
        self.endpoint.stop_listening();
        self.endpoint
            .links()
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|l| self.desk.begin_close(l));
        let until = self.endpoint.now() + GRACE;
        while self.endpoint.links().next().is_some() && self.endpoint.now() < until {
            if !self.serve() {
                self.endpoint.wait(Nanos(WORKER_BLOCK_NS));
            }
        }
    }

    /// Ends all links without a word, and tells what became of their messages.
    fn cut_links(&mut self) {
        let Self { endpoint, desk, .. } = self;
        endpoint.stop_listening();
        let links: Vec<_> = endpoint.links().collect();
        links.into_iter().for_each(|link| endpoint.cut(link));
        for _ in 0..LAST_TURNS {
            if desk.links.iter().all(Option::is_none) {
                break;
            }
            endpoint.turn(|_, event| desk.on_event(event));
        }
    }
}

impl<D: Device<Memory = Region>> Drop for EndpointWorker<D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.bell.panic();
        }
        self.bell.end();
        self.bell.leave();
        let channels = self.desk.links.iter().flatten().flat_map(|entry| &entry.channels);
        channels.flatten().for_each(|(_, egress)| egress.refuse_all());
        self.desk.outbound.refuse_all();
        self.commands.try_iter().for_each(Command::refuse);
        // One that panicked may do so again.
        if !std::thread::panicking() {
            self.cut_links();
        }
        self.desk.outbound.give_up_all();
        self.desk.ops.give_up_all();
    }
}

impl<D: Device<Memory = Region>> std::fmt::Debug for EndpointWorker<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointWorker").field("ending", &self.ending).finish_non_exhaustive()
    }
}

impl Desk {
    /// Hands on what was posted, and closes links that have all of theirs.
    fn serve<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) -> bool {
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
    fn begin_close(&mut self, link: LinkId) {
        let Some(entry) = self.link(link) else { return };
        entry.channels.iter().flatten().for_each(|(_, egress)| egress.seal());
        if !self.closing.contains(&link) {
            self.closing.push(link);
        }
    }

    fn link(&mut self, id: LinkId) -> Option<&mut LinkEntry> {
        self.links.get_mut(id.index())?.as_mut().filter(|entry| entry.id == id)
    }

    fn add_link(&mut self, id: LinkId, peer: Peer) -> NewLink {
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

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { connect, link, peer } => {
                let new = self.add_link(link, peer);
                let place = self.connects.iter().position(|&(id, _)| id == connect);
                if let Some(place) = place {
                    // What nobody waits for any more is dropped, which closes it.
                    drop(self.connects.swap_remove(place).1.send(Ok(new)));
                }
            }
            Event::ConnectFailed { connect, error } => {
                if let Some(place) = self.connects.iter().position(|&(id, _)| id == connect) {
                    drop(self.connects.swap_remove(place).1.send(Err(error)));
                }
            }
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
                self.arrive(message.link, message.channel, Incoming::Message(message));
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
            Event::CarrierChanged { link, from, to } => {
                tracing::warn!(?link, %from, %to, "a link rides on another carrier");
            }
            Event::Writable { link } => self.outbound.make_room(link),
            Event::LinkDown { link, reason } => {
                // What waits for room is refused.
                self.outbound.make_room(link);
                self.on_down(link, reason);
            }
            // They stand in the log; what they end is told as links that are down.
            Event::Device { .. } | Event::PathMtuChanged { .. } => {}
            // Handles take their buffers themselves.
            Event::BufferFree { .. } => {}
            Event::Granted { .. } | Event::Revoked { .. } | Event::OpDone { .. } => {
                self.on_lane_event(event);
            }
        }
    }

    fn on_lane_event(&mut self, event: Event) {
        match event {
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
