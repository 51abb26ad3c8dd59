//! Two endpoints in one process over loopback UDP, driven by turns.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use towpath_base::Nanos;
use towpath_device_roce::udp::UdpConfig;
use towpath_proto::{ChannelId, Outcome};
use towpath_transport::{
    ConnectError, Device, Endpoint, EndpointConfig, Event, LinkId, Message, Payload, Region,
    RoceUdp, SendOptions,
};

pub type UdpEndpoint = Endpoint<RoceUdp>;

pub const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Turns without success after which a test fails: no clock is asked.
const TURNS_MAX: usize = 500_000;

/// How long whatever shall end well may take, however busy the machine.
pub const LONG: Nanos = Nanos::from_secs(60);

/// An address at which nobody listens. No test listens on this address of 127/8, so that none is
/// given the port meanwhile.
pub fn nobody() -> SocketAddr {
    let socket = TcpListener::bind("127.47.94.1:0").expect("a free port");
    socket.local_addr().expect("a bound address")
}

pub fn any_port() -> SocketAddr {
    (LOOPBACK, 0).into()
}

pub fn endpoint(config: EndpointConfig) -> UdpEndpoint {
    Endpoint::udp(UdpConfig::new(LOOPBACK.into()), config).expect("loopback UDP")
}

/// An endpoint and what it has told so far.
pub struct Node<D: Device<Memory = Region> = RoceUdp> {
    pub endpoint: Endpoint<D>,
    pub events: Vec<Event>,
}

impl Node {
    pub fn new(config: EndpointConfig) -> Self {
        Self::on(endpoint(config))
    }
}

impl<D: Device<Memory = Region>> Node<D> {
    pub fn on(endpoint: Endpoint<D>) -> Self {
        Self { endpoint, events: Vec::new() }
    }

    pub fn turn(&mut self) -> bool {
        let events = &mut self.events;
        self.endpoint.turn(|_, event| events.push(event))
    }

    /// Takes the first event that `pick` wants.
    pub fn take<T>(&mut self, pick: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let place = self.events.iter().position(|event| pick(event).is_some())?;
        pick(&self.events.remove(place))
    }

    pub fn take_message(&mut self) -> Option<Message> {
        let place = self.events.iter().position(|event| matches!(event, Event::Message(_)))?;
        match self.events.remove(place) {
            Event::Message(message) => Some(message),
            _ => None,
        }
    }

    /// Takes the reason why a connection could not be made.
    pub fn take_failure(&mut self) -> Option<ConnectError> {
        let is = |event: &Event| matches!(event, Event::ConnectFailed { .. });
        match self.events.remove(self.events.iter().position(is)?) {
            Event::ConnectFailed { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Takes the outcome of a message, by token.
    pub fn take_sent(&mut self, wanted: u64) -> Option<(Outcome, Payload)> {
        let is = |event: &Event| matches!(event, Event::Sent { token, .. } if *token == wanted);
        let place = self.events.iter().position(is)?;
        match self.events.remove(place) {
            Event::Sent { outcome, payload, .. } => Some((outcome, payload)),
            _ => None,
        }
    }
}

/// A client, a server, and a link between them.
/// A link between two nodes, and a channel that the client opened.
pub struct Joined {
    pub link: LinkId,
    /// The same at the server.
    pub accepted: LinkId,
    pub channel: ChannelId,
}

/// Connects `client` to `server`, which listens on `addr`, and opens an ordered channel.
pub fn join<C: Device<Memory = Region>, S: Device<Memory = Region>>(
    client: &mut Node<C>,
    server: &mut Node<S>,
    addr: SocketAddr,
) -> Joined {
    fn up(event: &Event) -> Option<LinkId> {
        match event {
            Event::Connected { link, .. } | Event::Accepted { link, .. } => Some(*link),
            _ => None,
        }
    }
    client.endpoint.connect(addr).expect("room for a connection");
    let link = drive(client, server, |client, _| client.take(up));
    let accepted = drive(client, server, |_, server| server.take(up));
    let channel = client.endpoint.open_channel(link, true).expect("room for a channel");
    let opened = |event: &Event| matches!(event, Event::ChannelOpened { .. }).then_some(());
    drive(client, server, |client, _| client.take(opened));
    drive(client, server, |_, server| server.take(opened));
    Joined { link, accepted, channel }
}

impl Joined {
    /// Sends a copy of `bytes` from the client.
    pub fn send<D: Device<Memory = Region>>(&self, client: &mut Node<D>, bytes: &[u8]) {
        let payload = payload(&client.endpoint, bytes);
        let sent = client.endpoint.send(self.link, self.channel, payload, SendOptions::new());
        sent.expect("room");
    }
}

pub struct Pair {
    pub client: Node,
    pub server: Node,
    pub client_link: LinkId,
    pub server_link: LinkId,
}

impl Pair {
    pub fn new(config: EndpointConfig) -> Self {
        Self::with(config.clone(), config)
    }

    pub fn with(client: EndpointConfig, server: EndpointConfig) -> Self {
        let patient = |config: EndpointConfig| {
            config.connect_timeout(LONG).tune_links(|link| link.peer_timeout(LONG))
        };
        let mut client = Node::new(patient(client));
        let mut server = Node::new(patient(server));
        let addr = server.endpoint.listen(any_port()).expect("a free port");
        client.endpoint.connect(addr).expect("room for a connection");
        let (client_link, server_link) = drive(&mut client, &mut server, |client, server| {
            fn up(event: &Event) -> Option<LinkId> {
                match event {
                    Event::Connected { link, .. } | Event::Accepted { link, .. } => Some(*link),
                    _ => None,
                }
            }
            if !(client.events.iter().any(|e| up(e).is_some())
                && server.events.iter().any(|e| up(e).is_some()))
            {
                return None;
            }
            Some((client.take(up)?, server.take(up)?))
        });
        Self { client, server, client_link, server_link }
    }

    /// Turns both until `done` says something.
    pub fn until<T>(&mut self, mut done: impl FnMut(&mut Node, &mut Node) -> Option<T>) -> T {
        drive(&mut self.client, &mut self.server, &mut done)
    }

    /// Opens a channel from the client.
    pub fn open(&mut self, ordered: bool) -> ChannelId {
        let link = self.client_link;
        let wanted = self.client.endpoint.open_channel(link, ordered).expect("room for a channel");
        let is_it = move |event: &Event| match event {
            Event::ChannelOpened { channel, ordered: kept, .. } if *channel == wanted => {
                assert_eq!(*kept, ordered);
                Some(())
            }
            _ => None,
        };
        self.until(|client, _| client.take(is_it));
        self.until(|_, server| server.take(is_it));
        wanted
    }

    /// Sends a copy of `bytes` from the client.
    pub fn send(&mut self, channel: ChannelId, bytes: &[u8], token: u64) {
        let payload = payload(&self.client.endpoint, bytes);
        self.send_payload(channel, payload, token);
    }

    pub fn send_payload(&mut self, channel: ChannelId, payload: Payload, token: u64) {
        let options = SendOptions::new().token(token);
        self.client.endpoint.send(self.client_link, channel, payload, options).expect("room");
    }
}

/// A message of up to four segments from the send pools.
pub fn payload<D: Device<Memory = Region>>(endpoint: &Endpoint<D>, bytes: &[u8]) -> Payload {
    let mut parts = bytes.chunks(bytes.len().min(1 << 20));
    let first = parts.next().expect("at least one byte");
    let mut payload = Payload::new(endpoint.copy(first).expect("a free buffer"));
    for part in parts {
        payload.push(endpoint.copy(part).expect("a free buffer")).expect("at most four segments");
    }
    payload
}

pub fn drive<T, C: Device<Memory = Region>, S: Device<Memory = Region>>(
    client: &mut Node<C>,
    server: &mut Node<S>,
    mut done: impl FnMut(&mut Node<C>, &mut Node<S>) -> Option<T>,
) -> T {
    for _ in 0..TURNS_MAX {
        let busy = client.turn() | server.turn();
        if let Some(found) = done(client, server) {
            return found;
        }
        if !busy {
            client.endpoint.wait(Nanos::from_micros(100));
        }
    }
    panic!("not done; client told {:?}; server told {:?}", client.events, server.events);
}

/// Bytes that tell where they belong.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    towpath_base::Prng::new(seed).fill(&mut bytes);
    bytes
}
