//! A client endpoint and a server endpoint in one thread over loopback UDP.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::net::{Ipv4Addr, SocketAddr};
use towpath_rpc::{
    Call, Completion, Incoming, Outgoing, Request, RequestId, RequestKey, RpcClient, RpcServer,
};
use towpath_transport::{
    ChannelId, Endpoint, EndpointConfig, Event, LinkId, Nanos, RoceUdp, Time, UdpConfig,
};

pub type UdpEndpoint = Endpoint<RoceUdp>;

/// Turns without success after which a test fails.
const TURNS_MAX: usize = 300_000;

pub fn endpoint(config: EndpointConfig) -> UdpEndpoint {
    Endpoint::udp(UdpConfig::new(Ipv4Addr::LOCALHOST.into()), config).expect("loopback UDP")
}

pub struct World {
    pub client: UdpEndpoint,
    pub server: UdpEndpoint,
    pub rpc: RpcClient,
    pub serving: RpcServer,
    pub link: LinkId,
    pub channel: ChannelId,
    /// Requests that nobody has answered.
    pub requests: Vec<Request>,
    pub completions: Vec<Completion>,
    /// What the server was told is not wanted any more.
    pub cancelled: Vec<RequestKey>,
    /// Whether requests are asked after when they are given up.
    pub ask_fate: bool,
}

impl World {
    pub fn new(config: EndpointConfig, serving: RpcServer) -> Self {
        let mut client = endpoint(config.clone());
        let mut server = endpoint(config);
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let addr = server.listen(any).expect("a free port");
        client.connect(addr).expect("room for a connection");
        let mut opened = None;
        for _ in 0..TURNS_MAX {
            let mut busy = server.turn(|_, _| {});
            busy |= client.turn(|client, event| match event {
                Event::Connected { link, .. } => {
                    client.open_channel(link, false).expect("room for a channel");
                }
                Event::ChannelOpened { link, channel, .. } => opened = Some((link, channel)),
                other => panic!("{other:?}"),
            });
            if opened.is_some() {
                break;
            }
            if !busy {
                client.wait(Nanos::from_micros(50));
            }
        }
        let (link, channel) = opened.expect("a channel");
        let rpc = RpcClient::new(link, channel);
        let (requests, completions, cancelled) = (Vec::new(), Vec::new(), Vec::new());
        let ask_fate = true;
        Self {
            client,
            server,
            rpc,
            serving,
            link,
            channel,
            requests,
            completions,
            cancelled,
            ask_fate,
        }
    }

    pub fn call(&mut self, method: u16, body: &[u8], data: &[u8], deadline: Time) -> RequestId {
        let mut out = Outgoing::new(&self.client, body.len(), data.len()).expect("a buffer");
        out.extend(body).expect("room for the body");
        if !data.is_empty() {
            out.set_data(self.client.copy(data).expect("a buffer"));
        }
        let call = Call { method, token: u64::from(method), deadline, ask_fate: self.ask_fate };
        self.rpc.call(&mut self.client, call, out).expect("room for a request")
    }

    pub fn turn_client(&mut self) -> bool {
        let Self { client, rpc, completions, .. } = self;
        rpc.expire(client);
        let busy = client.turn(|client, event| drop(rpc.on_event(client, event)));
        while let Some(completion) = rpc.poll() {
            completions.push(completion);
        }
        busy
    }

    pub fn turn_server(&mut self) -> bool {
        let Self { server, serving, requests, cancelled, .. } = self;
        server.turn(|server, event| match serving.on_event(server, event) {
            Some(Incoming::Request(request)) => requests.push(request),
            Some(Incoming::Cancelled { request, .. }) => cancelled.push(request),
            Some(Incoming::Other(_)) | None => {}
        })
    }

    pub fn turn(&mut self) {
        let busy = self.turn_client() | self.turn_server();
        if !busy {
            self.client.wait(Nanos::from_micros(50));
        }
    }

    pub fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..TURNS_MAX {
            self.turn();
            if let Some(found) = done(self) {
                return found;
            }
        }
        panic!("not done: {:?} {:?} {:?}", self.completions, self.serving, self.server.buffers());
    }

    pub fn request(&mut self) -> Request {
        self.until(|world| world.requests.pop())
    }

    pub fn completion(&mut self) -> Completion {
        self.until(|world| world.completions.pop())
    }

    pub fn soon(&self) -> Time {
        self.client.now() + Nanos::from_secs(20)
    }

    pub fn deadline_in_millis(&self, ms: u64) -> Time {
        self.client.now() + Nanos::from_millis(ms)
    }
}

pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    towpath_base::Prng::new(seed).fill(&mut bytes);
    bytes
}
