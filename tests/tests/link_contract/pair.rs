//! Two endpoints with a link between them, on any kind of device.

use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use towpath_base::{Nanos, Prng, Time};
use towpath_device_mem::MemDevice;
use towpath_device_roce::udp::{PortChoice, UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::Region;
use towpath_proto::{ChannelId, Outcome, Side};
use towpath_sim::{HostConfig, SwitchConfig, VirtualLink, World};
use towpath_transport::{
    Endpoint, EndpointConfig, Event, LinkId, Message, Payload, SendId, SendOptions,
};
use towpath_verbs::Device;

/// Turns without success after which a test gives up: fifty seconds of waiting and more.
const TURNS_MAX: usize = 1_000_000;

/// The largest buffers that endpoints have by default.
const BUF_BYTES: usize = 1 << 20;

/// How long an idle turn waits where time is real. Both ends live on one thread.
const REST: Nanos = Nanos::from_micros(50);

/// Makes the device of one end, 0 or 1, in its life `life`.
pub(crate) struct Maker<D> {
    make: Box<dyn FnMut(usize, u64) -> D>,
    /// Where time is virtual.
    pub(crate) world: Option<Rc<World>>,
}

impl<D> Maker<D> {
    pub(crate) fn device(&mut self, end: usize, life: u64) -> D {
        (self.make)(end, life)
    }
}

pub(crate) fn mem() -> Maker<MemDevice> {
    let (a, b) = MemDevice::pair();
    let mut ends = [Some(a), Some(b)];
    let make = move |end: usize, _| ends[end].take().expect("each end is made once");
    Maker { make: Box::new(make), world: None }
}

fn seed_of(end: usize, life: u64) -> u64 {
    life << 1 | end as u64
}

pub(crate) fn sim() -> Maker<RoceDevice<VirtualLink>> {
    let world = Rc::new(World::new(1));
    let switch = world.add_switch(&SwitchConfig::default());
    let hosts = [(); 2].map(|()| world.add_host(switch, &HostConfig::default()));
    let ends = Rc::clone(&world);
    let make = move |end: usize, life| {
        let config = RoceConfig::default().seed(seed_of(end, life));
        RoceDevice::new(ends.end(hosts[end]), config)
    };
    Maker { make: Box::new(make), world: Some(world) }
}

pub(crate) fn udp() -> Maker<RoceDevice<UdpLink>> {
    // An address for each test, so that nobody else is given the port of an end that starts anew.
    static MADE: AtomicU8 = AtomicU8::new(0);
    let ip = Ipv4Addr::new(127, 47, 93, MADE.fetch_add(1, Ordering::Relaxed));
    let mut ports = [0; 2];
    let make = move |end: usize, life| {
        let config = UdpConfig::new(ip.into()).port(PortChoice::Exact(ports[end]));
        let link = UdpLink::bind(config).expect("loopback UDP");
        let device = RoceDevice::new(link, RoceConfig::default().seed(seed_of(end, life)));
        ports[end] = device.local_addr().port();
        device
    };
    Maker { make: Box::new(make), world: None }
}

#[cfg(feature = "verbs")]
pub(crate) fn verbs() -> Maker<towpath_device_verbs::VerbsDevice> {
    let make = |end: usize, _| crate::rig::verbs_end(end);
    Maker { make: Box::new(make), world: None }
}

#[cfg(feature = "verbs")]
pub(crate) fn nic_and_kernel(nic_first: bool) -> Maker<crate::rig::EitherNic> {
    use towpath_verbs::Either;
    let interop = crate::rig::Interop::from_environment();
    let make = move |end: usize, life| match (end == 0) == nic_first {
        true => Either::Left(interop.nic(false, seed_of(end, life))),
        false => Either::Right(interop.kernel(false)),
    };
    Maker { make: Box::new(make), world: None }
}

/// An endpoint, its end of the link, and what it has told so far.
pub(crate) struct Node<D: Device<Memory = Region>> {
    pub(crate) endpoint: Endpoint<D>,
    pub(crate) link: Option<LinkId>,
    pub(crate) events: Vec<Event>,
}

impl<D: Device<Memory = Region>> Node<D> {
    fn new(device: D, config: EndpointConfig) -> Self {
        let endpoint = Endpoint::new(device, config).expect("an endpoint");
        Self { endpoint, link: None, events: Vec::new() }
    }

    pub(crate) fn link(&self) -> LinkId {
        self.link.expect("it is joined")
    }

    /// Takes the first event that `pick` wants.
    pub(crate) fn take<T>(&mut self, pick: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let place = self.events.iter().position(|event| pick(event).is_some())?;
        pick(&self.events.remove(place))
    }

    pub(crate) fn take_message(&mut self) -> Option<Message> {
        let place = self.events.iter().position(|event| matches!(event, Event::Message(_)))?;
        match self.events.remove(place) {
            Event::Message(message) => Some(message),
            _ => None,
        }
    }

    /// Takes the outcome of a message, by its token.
    pub(crate) fn take_sent(&mut self, wanted: u64) -> Option<(Outcome, Payload)> {
        let is = |event: &Event| matches!(event, Event::Sent { token, .. } if *token == wanted);
        let place = self.events.iter().position(is)?;
        match self.events.remove(place) {
            Event::Sent { outcome, payload, .. } => Some((outcome, payload)),
            _ => None,
        }
    }

    /// Whether every buffer is where it belongs when nothing is under way.
    pub(crate) fn buffers_are_home(&self) -> bool {
        let census = self.endpoint.buffers();
        census.send_free == census.send_all
            && census.recv_posted + census.recv_free == census.recv_all
    }
}

/// Two nodes; the far one may be gone.
pub(crate) struct Pair<D: Device<Memory = Region>> {
    pub(crate) near: Node<D>,
    pub(crate) far: Option<Node<D>>,
    maker: Maker<D>,
    config: EndpointConfig,
    life: u64,
}

impl<D: Device<Memory = Region>> Pair<D> {
    pub(crate) fn new(maker: Maker<D>) -> Self {
        Self::with(maker, config())
    }

    pub(crate) fn with(mut maker: Maker<D>, config: EndpointConfig) -> Self {
        let near = Node::new(maker.device(0, 0), config.clone().seed(seed_of(0, 0)));
        let mut pair = Self { near, far: None, maker, config, life: 0 };
        pair.start_far();
        pair
    }

    /// Starts the far end, in its next life, and joins it with the near one.
    pub(crate) fn start_far(&mut self) {
        let device = self.maker.device(1, self.life);
        let mut far = Node::new(device, self.config.clone().seed(seed_of(1, self.life)));
        self.life += 1;
        let (near_hello, near_half) = self.near.endpoint.offer().expect("room");
        let (far_hello, far_half) = far.endpoint.offer().expect("room");
        let joined = self.near.endpoint.establish(near_half, &far_hello, Side::Client);
        self.near.link = Some(joined.expect("they fit"));
        let joined = far.endpoint.establish(far_half, &near_hello, Side::Server);
        far.link = Some(joined.expect("they fit"));
        self.far = Some(far);
    }

    pub(crate) fn far(&mut self) -> &mut Node<D> {
        self.far.as_mut().expect("it lives")
    }

    pub(crate) fn turn(&mut self) -> bool {
        let mut busy = false;
        for node in [Some(&mut self.near), self.far.as_mut()].into_iter().flatten() {
            let events = &mut node.events;
            busy |= node.endpoint.turn(|_, event| events.push(event));
        }
        busy
    }

    /// Lets time pass.
    fn rest(&mut self, turn: usize) {
        let Some(world) = &self.maker.world else {
            let node =
                if turn.is_multiple_of(2) { Some(&mut self.near) } else { self.far.as_mut() };
            node.map(|node| node.endpoint.wait(REST));
            return;
        };
        let far = self.far.as_ref().map_or(Time::NEVER, |far| far.endpoint.next_timeout());
        let due = self.near.endpoint.next_timeout().min(far);
        let next = world.next_event_time().unwrap_or(Time::NEVER).min(due);
        world.advance_to(next.min(world.now() + Nanos::from_millis(1)).max(world.now()));
    }

    /// Goes on until `done` says something.
    pub(crate) fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        for turn in 0..TURNS_MAX {
            let busy = self.turn();
            if let Some(found) = done(self) {
                return found;
            }
            if !busy {
                self.rest(turn);
            }
        }
        let far = self.far.as_ref().map(|far| &far.events);
        panic!("not done; near told {:?}, far told {far:?}", self.near.events);
    }

    /// Opens a channel from the near end.
    pub(crate) fn open(&mut self, ordered: bool) -> ChannelId {
        let link = self.near.link();
        let wanted = self.near.endpoint.open_channel(link, ordered).expect("room for a channel");
        let is_it = move |event: &Event| match event {
            Event::ChannelOpened { channel, ordered: kept, .. } if *channel == wanted => {
                assert_eq!(*kept, ordered);
                Some(())
            }
            _ => None,
        };
        self.until(|pair| pair.near.take(is_it));
        self.until(|pair| pair.far().take(is_it));
        wanted
    }

    /// Sends a copy of `bytes` from the near end.
    pub(crate) fn send(
        &mut self,
        channel: ChannelId,
        bytes: &[u8],
        options: SendOptions,
    ) -> SendId {
        let mut parts = bytes.chunks(bytes.len().min(BUF_BYTES));
        let copy = |part| self.near.endpoint.copy(part).expect("a free buffer");
        let mut payload = Payload::new(copy(parts.next().expect("at least one byte")));
        for part in parts {
            payload.push(copy(part)).expect("at most four segments");
        }
        let link = self.near.link();
        self.near.endpoint.send(link, channel, payload, options).expect("room")
    }
}

/// Small quotas, so that they are felt.
pub(crate) fn config() -> EndpointConfig {
    EndpointConfig::new().quota_chunks(16).credit_total(64).progress_budget(64).links_max(2)
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Prng::new(seed).fill(&mut bytes);
    bytes
}
