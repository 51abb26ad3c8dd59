//! One server and its clients on one switch, in virtual time.

use super::client::Client;
use super::dice::Weather;
use super::model::Broken;
use super::server::Server;
use super::soak::Rig;
use super::stream::{StreamClock, stream};
use towpath_base::{Nanos, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_lab::cluster::run::{Machine, MachineLoop};
use towpath_lab::device::SharedLink;
use towpath_lab::failure::Cause;
use towpath_proto::Side;
use towpath_sim::{FaultLink, Hole, HostConfig, HostId, Star, World};
use towpath_transport::{Endpoint, EndpointConfig, Hello, LinkId, PendingLink};

/// Turns at one instant before a host counts as stuck.
const TURNS_MAX: u32 = 100_000;

/// What one turn of a real loop takes.
const PAUSE: Nanos = Nanos::from_micros(2);

/// How long a step of a [`KeyedWorld`] lasts.
const STEP: Nanos = Nanos::from_micros(200);

/// What hosts send a second: so slow that carriers come and go within some thousand operations.
const RATE_BITS_PER_S: u64 = 1_000_000_000;

/// What bytes of a stream take from end to end: the kernels of two hosts.
const STREAM_DELAY: Nanos = Nanos::from_micros(30);

/// What a byte takes on a stream: 200 Mb/s.
const STREAM_BYTE: Nanos = Nanos(40);

/// The device of each host.
pub type KeyedDevice = RoceDevice<Hole<SharedLink>>;

/// What a world of clients is like.
#[derive(Clone, Debug)]
pub struct KeyedConfig {
    /// Where everything random comes from.
    pub seed: u64,
    /// How many clients.
    pub clients: usize,
    /// Their endpoints, and the server's; seeds are set.
    pub endpoint: EndpointConfig,
    /// How long an operation may take.
    pub deadline: Nanos,
}

/// Who runs on a host.
enum Role {
    Server(Server<KeyedDevice>),
    Client(Client<KeyedDevice>),
}

struct Host {
    role: Role,
    link: SharedLink,
    clock: StreamClock,
}

impl Role {
    fn endpoint(&self) -> &Endpoint<KeyedDevice> {
        match self {
            Self::Server(server) => &server.endpoint,
            Self::Client(client) => &client.endpoint,
        }
    }

    fn turn(&mut self) -> Result<bool, Broken> {
        match self {
            Self::Server(server) => server.turn(),
            Self::Client(client) => client.turn(),
        }
    }
}

impl Machine for Host {
    type Shared = Option<Broken>;

    fn turn(&mut self, broken: &mut Option<Broken>) {
        self.clock.set(self.role.endpoint().now());
        for _ in 0..TURNS_MAX {
            match self.role.turn() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    broken.get_or_insert(error);
                    return;
                }
            }
        }
        broken.get_or_insert(Broken::Restless);
    }

    fn next_time(&self, _: Time, broken: &Option<Broken>) -> Time {
        if broken.is_some() {
            return Time::NEVER;
        }
        let held = self.link.link().next_release().unwrap_or(Time::NEVER);
        held.min(self.role.endpoint().next_timeout())
    }
}

/// One server and its clients, in virtual time: the same for the same seed.
pub struct KeyedWorld {
    runner: MachineLoop<Host>,
    clients: usize,
}

impl KeyedWorld {
    /// Makes them, with a link each whose set-up meets no fault.
    ///
    /// # Errors
    /// [`Cause`] when an endpoint or a link cannot be made.
    pub fn new(config: &KeyedConfig) -> Result<Self, Cause> {
        let world = World::new(config.seed);
        let host = HostConfig { rate_bits_per_s: RATE_BITS_PER_S, ..HostConfig::default() };
        let star = Star { hosts: config.clients + 1, host, ..Star::default() };
        let fabric = star.build(&world);
        let clock = StreamClock::default();
        let make = |number: usize, host: HostId| {
            let weather = Weather::default();
            let faulty = FaultLink::new(world.end(host), world.next_seed(), weather.faults.clone());
            let link = SharedLink::new(faulty);
            let roce = RoceConfig::default().seed(config.seed ^ (number as u64) << 32);
            let device = RoceDevice::new(Hole::new(link.clone(), weather.hole.clone()), roce);
            let endpoint = Endpoint::new(device, config.endpoint.clone().seed(world.next_seed()))?;
            let role = match number {
                0 => Role::Server(Server::new(endpoint, config.deadline)),
                _ => Role::Client(Client::new(
                    endpoint,
                    weather,
                    (world.next_seed(), config.deadline),
                )),
            };
            Ok::<_, Cause>(Host { role, link, clock: clock.clone() })
        };
        let hosts = fabric.hosts.iter().enumerate().map(|(number, &host)| make(number, host));
        let hosts: Vec<Host> = hosts.collect::<Result<_, _>>()?;
        let mut runner = MachineLoop::new(world, hosts, None);
        runner.set_pause(PAUSE);
        let mut made = Self { runner, clients: config.clients };
        (0..config.clients).try_for_each(|number| made.join(number, &clock))?;
        Ok(made)
    }

    fn join(&mut self, number: usize, clock: &StreamClock) -> Result<(), Cause> {
        let (near_stream, far_stream) = stream(clock, STREAM_DELAY, STREAM_BYTE);
        let (near_hello, near) = self.client(number).endpoint.offer_on_stream()?;
        let (far_hello, far): (Hello, PendingLink) = self.server().endpoint.offer_on_stream()?;
        let server = &mut self.server().endpoint;
        server.establish_on_stream(far, &near_hello, Side::Server, far_stream)?;
        let client = self.client(number);
        let link: LinkId =
            client.endpoint.establish_on_stream(near, &far_hello, Side::Client, near_stream)?;
        client.endpoint.open_channel(link, true)?;
        Ok(())
    }

    /// The hash over everything that was carried: the same for the same seed.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.runner.world().trace_hash()
    }
}

impl Rig for KeyedWorld {
    type Device = KeyedDevice;

    fn count(&self) -> usize {
        self.clients
    }

    fn client(&mut self, number: usize) -> &mut Client<KeyedDevice> {
        match &mut self.runner.machine_mut(number + 1).role {
            Role::Client(client) => client,
            Role::Server(_) => unreachable!("the server is host 0, and no other"),
        }
    }

    fn server(&mut self) -> &mut Server<KeyedDevice> {
        match &mut self.runner.machine_mut(0).role {
            Role::Server(server) => server,
            Role::Client(_) => unreachable!("host 0 is the server"),
        }
    }

    fn step(&mut self) -> Result<(), Broken> {
        let end = self.runner.world().now() + STEP;
        self.runner.run_until(end);
        self.runner.shared.take().map_or(Ok(()), Err)
    }
}
