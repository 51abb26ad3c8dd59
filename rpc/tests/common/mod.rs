//! A client endpoint and a server endpoint in one thread and in virtual time, so that no deadline
//! depends on how busy the machine is.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::Side;
use towpath_rpc::{
    Call, Completion, Incoming, Outgoing, Request, RequestId, RequestKey, RpcClient, RpcServer,
};
use towpath_sim::{LinkConfig, VirtualLink};
use towpath_transport::{ChannelId, Endpoint, EndpointConfig, Event, LinkId, Nanos, Time};

pub type VirtualEndpoint = Endpoint<RoceDevice<VirtualLink>>;

/// Turns without success after which a test fails.
const TURNS_MAX: usize = 300_000;

/// How far time goes on at most where nothing is due: what a test does by itself may be.
const STEP_MAX: Nanos = Nanos::from_millis(1);

pub struct World {
    pub client: VirtualEndpoint,
    pub server: VirtualEndpoint,
    wire: towpath_sim::World,
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
        let wire = towpath_sim::World::new(1);
        let (near, far) = wire.link(&LinkConfig::default());
        let end = |link, seed| {
            let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
            Endpoint::new(device, config.clone().seed(seed)).expect("an endpoint")
        };
        let (mut client, mut server) = (end(near, 1), end(far, 2));
        let (near_hello, near_half) = client.offer().expect("room for a link");
        let (far_hello, far_half) = server.offer().expect("room for a link");
        let link = client.establish(near_half, &far_hello, Side::Client).expect("they fit");
        server.establish(far_half, &near_hello, Side::Server).expect("they fit");
        let channel = client.open_channel(link, false).expect("room for a channel");
        let rpc = RpcClient::new(link, channel);
        let (requests, completions, cancelled) = (Vec::new(), Vec::new(), Vec::new());
        let ask_fate = true;
        let mut world = Self {
            client,
            server,
            wire,
            rpc,
            serving,
            link,
            channel,
            requests,
            completions,
            cancelled,
            ask_fate,
        };
        let mut is_open = false;
        while !is_open {
            let busy = world.server.turn(|_, _| {}) | world.client.turn(|_, event| {
                is_open |=
                    matches!(event, Event::ChannelOpened { channel: of, .. } if of == channel);
            });
            if !busy {
                world.pass_time();
            }
        }
        world
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
        let busy = client.turn(|client, event| drop(rpc.on_event(client, event)));
        rpc.expire(client);
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
            Some(Incoming::Streamed(_) | Incoming::Other(_)) | None => {}
        })
    }

    pub fn turn(&mut self) {
        let busy = self.turn_client() | self.turn_server();
        if !busy {
            self.pass_time();
        }
    }

    /// Lets so much time go on, whatever is due.
    pub fn pass(&mut self, span: Nanos) {
        self.wire.advance_to(self.wire.now() + span);
    }

    /// Lets time go on to what is due next.
    fn pass_time(&mut self) {
        let timers = self.client.next_timeout().min(self.server.next_timeout());
        let arrives = self.wire.next_event_time().unwrap_or(Time::NEVER);
        let now = self.wire.now();
        let next = timers.min(arrives).min(self.rpc.next_deadline()).min(now + STEP_MAX);
        self.wire.advance_to(next.max(now + Nanos(1)));
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
