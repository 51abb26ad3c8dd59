//! Builds a world, lets time pass, and says what came of it.

use super::books::Books;
use super::client::Client;
use super::host::{Host, NUMBER_BYTES, Nic};
use super::latency::Latency;
use super::plan::{Plan, RECORD_BYTES, Rates};
use super::server::Server;
use super::store;
use super::work::Work;
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_lab::cluster::run::Runner;
use towpath_lab::failure::Cause;
use towpath_lab::studies::RunEnd;
use towpath_sim::world::{HostConfig, HostId, SwitchConfig};
use towpath_sim::{Star, World};
use towpath_transport::{Endpoint, EndpointConfig, EndpointError, Side};

/// How long links, channels and grants may take: some round trips.
const READY_MAX: Nanos = Nanos::from_millis(100);

/// What is waited for is looked at so often.
const READY_EACH: Nanos = Nanos::from_micros(100);

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// I/Os that ended, by measured period and client.
    pub done: Vec<Vec<u32>>,
    /// How long they took, by client.
    pub latency: Vec<Latency>,
    /// The length of a period.
    pub period: Nanos,
    /// Packets that ports dropped.
    pub packets_dropped: u64,
    /// What it ended with.
    pub end: RunEnd,
}

impl Outcome {
    /// I/Os a second, of all clients.
    #[must_use]
    pub fn ios_per_s(&self) -> f64 {
        let all: u64 = self.done.iter().flatten().map(|&count| u64::from(count)).sum();
        all as f64 / (self.period.as_secs_f64() * self.done.len().max(1) as f64)
    }

    /// I/Os a second of one.
    #[must_use]
    pub fn client_ios_per_s(&self, client: usize) -> f64 {
        let all: u64 = self.done.iter().map(|period| u64::from(period[client])).sum();
        all as f64 / (self.period.as_secs_f64() * self.done.len().max(1) as f64)
    }
}

impl Plan {
    /// Runs it.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<Outcome, Cause> {
        let mut runner = self.build()?;
        (0..=self.clients.len()).for_each(|host| runner.wake(host));
        let limit = Time::ZERO + READY_MAX;
        while runner.shared.ready < self.clients.len() {
            let now = runner.world().now();
            if now >= limit {
                return Err(Cause::Endless("all clients have links, channels and grants"));
            }
            runner.run_until(now + READY_EACH);
        }
        let start = runner.world().now();
        runner.shared.start = start;
        (0..=self.clients.len()).for_each(|host| runner.wake(host));
        let end = runner.shared.end();
        runner.run_until(end);
        let packets_dropped = runner.world().counters().dropped_queue;
        let books = runner.shared;
        Ok(Outcome {
            done: books.done,
            latency: books.latency,
            period: self.period,
            packets_dropped,
            end: RunEnd { traces: vec![("", books.hash)], troubles: books.troubles },
        })
    }

    fn build(&self) -> Result<Runner<Host>, Cause> {
        let clients = self.clients.len();
        let world = World::new(self.seed);
        let host = |number: usize| HostConfig {
            rate_bits_per_s: Rates::bits_per_s(if number < clients {
                self.rates.one
            } else {
                self.rates.all
            }),
            ..HostConfig::default()
        };
        let star = Star { hosts: clients + 1, ..Star::default() };
        let switch = SwitchConfig::default();
        let fabric = Star { switch, ..star }.build_with(&world, host);
        let depth = self.depth as usize;
        let memory = store::filled().map_err(EndpointError::from)?;
        let far = endpoint(&world, fabric.hosts[clients], clients, clients * depth)?;
        let mut server = Server::new(far, memory, self.sides);
        let mut hosts = Vec::with_capacity(clients + 1);
        for (number, &plan) in self.clients.iter().enumerate() {
            let mut near = endpoint(&world, fabric.hosts[number], 1, depth)?;
            let (near_hello, near_half) = near.offer()?;
            let (far_hello, far_half) = server.endpoint.offer()?;
            let link = near.establish(near_half, &far_hello, Side::Client)?;
            let far_link = server.endpoint.establish(far_half, &near_hello, Side::Server)?;
            server.admit(far_link).map_err(|_| Cause::Endless("the server grants its records"))?;
            let mut prng = Prng::new(world.next_seed());
            let work = Work::new(plan, self.depth, self.period, prng.unit());
            let seed = prng.next_u64();
            let client = Client::new(number, (near, link), work, (self.sides, self.depth), seed);
            hosts.push(Host::Client(Box::new(client)));
        }
        hosts.push(Host::Server(Box::new(server)));
        let books = Books::new(self.period, (self.warm_up, self.periods), clients);
        Ok(Runner::new(world, hosts, books))
    }
}

/// An endpoint of a host, for so many links with so many messages under way in all.
fn endpoint(
    world: &World,
    host: HostId,
    links: usize,
    messages: usize,
) -> Result<Endpoint<Nic>, EndpointError> {
    let device = RoceDevice::new(world.end(host), RoceConfig::default());
    let record = NUMBER_BYTES + RECORD_BYTES;
    let config = EndpointConfig::new()
        .links_max(links)
        .chunk_bytes_max(2 * RECORD_BYTES as u32)
        .send_pools(&[(64, messages), (record, messages)])
        .seed(world.next_seed());
    Endpoint::new(device, config)
}
