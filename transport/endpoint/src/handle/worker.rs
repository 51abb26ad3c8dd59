//! The thread that owns an endpoint: commands in, turns, events to whom they concern.

use super::commands::{Command, NewChannel, NewLink, SendCommand};
use super::link::{Incoming, SentMessage};
use crate::endpoint::Endpoint;
use crate::error::{ChannelError, ConnectError};
use crate::event::{ConnectId, Event, LinkId, Peer};
use crate::limits::{BACKLOG_MAX, BATCH, WORKER_BLOCK_NS};
use crate::payload::{Rejected, SendOptions};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::{ChannelId, DownReason};
use towpath_verbs::Device;

/// How long links may take to close in order when the worker ends.
const GRACE: Nanos = Nanos::from_secs(1);

/// What the worker keeps of a link.
struct LinkEntry {
    id: LinkId,
    new_channels: Sender<NewChannel>,
    /// Where arrivals go, by channel number.
    channels: Vec<Option<Sender<Incoming>>>,
    down: Arc<OnceLock<DownReason>>,
}

/// Whom the outcome of a message is told, and the caller's own word.
type Waiting = (Sender<Result<SentMessage, Rejected>>, u64);

type OpenReply = Sender<Result<NewChannel, ChannelError>>;

/// Everything that events are matched with.
struct Desk {
    accept: Sender<NewLink>,
    connects: Vec<(ConnectId, Sender<Result<NewLink, ConnectError>>)>,
    opens: Vec<(LinkId, ChannelId, OpenReply)>,
    /// By [`LinkId::index`].
    links: Vec<Option<LinkEntry>>,
    /// By token.
    sends: Vec<Option<Waiting>>,
    free_sends: Vec<usize>,
}

pub(super) struct Worker<D: Device<Memory = Region>> {
    endpoint: Endpoint<D>,
    commands: Receiver<Command>,
    desk: Desk,
    spin: Nanos,
    ending: bool,
}

impl<D: Device<Memory = Region>> Worker<D> {
    pub(super) fn new(
        endpoint: Endpoint<D>,
        commands: Receiver<Command>,
        accept: Sender<NewLink>,
        spin: Nanos,
    ) -> Self {
        let desk = Desk {
            accept,
            connects: Vec::new(),
            opens: Vec::new(),
            links: Vec::new(),
            sends: Vec::new(),
            free_sends: Vec::new(),
        };
        Self { endpoint, commands, desk, spin, ending: false }
    }

    pub(super) fn run(mut self) {
        let mut busy_at = self.endpoint.now();
        while !self.ending {
            let commanded = self.take_commands();
            let desk = &mut self.desk;
            let turned = self.endpoint.turn(|endpoint, event| desk.on_event(endpoint, event));
            let now = self.endpoint.now();
            if commanded || turned {
                busy_at = now;
            } else if now.since(busy_at) >= self.spin {
                self.block(now);
            }
        }
        self.leave();
    }

    /// Blocks in the device, or, where it cannot, on the commands; never for long, because each
    /// wakes up only for its own.
    fn block(&mut self, before: Time) {
        if self.endpoint.wait(Nanos(WORKER_BLOCK_NS)) {
            return;
        }
        if self.endpoint.now().since(before) < self.spin {
            let span = Duration::from(self.spin.saturating_mul(2)).min(Duration::from_millis(1));
            if let Ok(command) = self.commands.recv_timeout(span) {
                self.on_command(command);
            }
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
            Command::Connect { addr, reply } => match endpoint.connect(addr) {
                Ok(connect) => desk.connects.push((connect, reply)),
                Err(error) => drop(reply.send(Err(error))),
            },
            Command::Register { region, reply } => drop(reply.send(endpoint.register(&region))),
            Command::OpenChannel { link, ordered, reply } => {
                match endpoint.open_channel(link, ordered) {
                    Ok(channel) => desk.opens.push((link, channel, reply)),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            // A channel or link that is gone is closed already.
            Command::CloseChannel { link, channel } => {
                let _ = endpoint.close_channel(link, channel);
            }
            Command::CloseLink { link } => endpoint.close(link),
            Command::Send(send) => desk.send(endpoint, *send),
            Command::Stats { link, reply } => drop(reply.send(endpoint.stats(link))),
            Command::Shutdown => self.ending = true,
        }
    }

    /// Closes all links in order, for as long as that may take.
    fn leave(mut self) {
        self.endpoint.stop_listening();
        let links: Vec<LinkId> = self.endpoint.links().collect();
        links.into_iter().for_each(|link| self.endpoint.close(link));
        let until = self.endpoint.now() + GRACE;
        while self.endpoint.links().next().is_some() && self.endpoint.now() < until {
            let desk = &mut self.desk;
            if !self.endpoint.turn(|endpoint, event| desk.on_event(endpoint, event)) {
                self.endpoint.wait(Nanos(WORKER_BLOCK_NS));
            }
        }
    }
}

impl Desk {
    fn send<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, send: SendCommand) {
        let SendCommand { link, channel, payload, options, reply } = send;
        let token = self.free_sends.pop().unwrap_or_else(|| {
            self.sends.push(None);
            self.sends.len() - 1
        });
        let options_here = SendOptions { token: token as u64, ..options };
        match endpoint.send(link, channel, payload, options_here) {
            Ok(_) => self.sends[token] = Some((reply, options.token)),
            Err(rejected) => {
                self.free_sends.push(token);
                drop(reply.send(Err(rejected)));
            }
        }
    }

    fn link(&mut self, id: LinkId) -> Option<&mut LinkEntry> {
        self.links.get_mut(id.index())?.as_mut().filter(|entry| entry.id == id)
    }

    fn add_link(&mut self, id: LinkId, peer: Peer) -> NewLink {
        let (new_channels, channels) = bounded(BACKLOG_MAX);
        let down = Arc::new(OnceLock::new());
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        let entry = LinkEntry { id, new_channels, channels: Vec::new(), down: Arc::clone(&down) };
        self.links[id.index()] = Some(entry);
        NewLink { id, peer, channels, down }
    }

    fn on_event<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, event: Event) {
        match event {
            Event::Connected { connect, link, peer } => {
                let new = self.add_link(link, peer);
                let place = self.connects.iter().position(|&(id, _)| id == connect);
                let told = place.map(|place| self.connects.swap_remove(place).1.send(Ok(new)));
                if !matches!(told, Some(Ok(()))) {
                    endpoint.close(link);
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
                if self.accept.try_send(new).is_err() {
                    endpoint.close(link);
                }
            }
            Event::AcceptFailed { from, error } => {
                tracing::debug!(%from, %error, "a peer was turned away");
            }
            Event::ChannelOpened { link, channel, ordered, by_peer } => {
                self.on_opened(endpoint, link, channel, ordered, by_peer);
            }
            Event::ChannelClosed { link, channel, reason } => {
                self.end_open(link, channel, ChannelError::Closed(reason));
                let entry = self.link(link);
                if let Some(place) = entry.and_then(|e| e.channels.get_mut(channel.place())) {
                    *place = None;
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
                let place = token as usize;
                if let Some((reply, token)) = self.sends.get_mut(place).and_then(Option::take) {
                    self.free_sends.push(place);
                    drop(reply.send(Ok(SentMessage { token, outcome, payload })));
                }
            }
            Event::PathChanged { link, path, from, to, signal } => {
                tracing::info!(?link, path = path.0, %from, %to, %signal, "a path changed");
            }
            Event::LinkDown { link, reason } => self.on_down(link, reason),
        }
    }

    fn on_opened<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        link: LinkId,
        channel: ChannelId,
        ordered: bool,
        by_peer: bool,
    ) {
        let (arrive, incoming) = unbounded();
        let Some(entry) = self.link(link) else { return };
        let place = channel.place();
        if entry.channels.len() <= place {
            entry.channels.resize_with(place + 1, || None);
        }
        entry.channels[place] = Some(arrive);
        let new = NewChannel { id: channel, ordered, incoming };
        let told = if by_peer {
            entry.new_channels.try_send(new).is_ok()
        } else {
            let waits = |&(l, c, _): &(LinkId, ChannelId, OpenReply)| (l, c) == (link, channel);
            let place = self.opens.iter().position(waits);
            place.is_some_and(|place| self.opens.swap_remove(place).2.send(Ok(new)).is_ok())
        };
        if !told {
            // It cannot fail: the channel was opened just now; and if it did, it is closed.
            let _ = endpoint.close_channel(link, channel);
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
        if let Some(Some(arrive)) = entry.and_then(|e| e.channels.get(channel.place())) {
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
            // It is set once, here.
            let _ = entry.down.set(reason);
        }
    }
}
