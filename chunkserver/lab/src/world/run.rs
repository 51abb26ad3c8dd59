//! Builds a world, lets time pass, and says what came of it.

use super::books::{Account, Books};
use super::client::Client;
use super::host::{Host, NUMBER_BYTES, Nic};
use super::latency::Latency;
use super::plan::{Pattern, Plan, RECORD_BYTES, Rates};
use super::server::Server;
use super::steward::Steward;
use super::store;
use super::tenant::Tenant;
use super::work::Work;
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_fastpath::qos::wire::PeriodReport;
use towpath_lab::cluster::run::MachineLoop;
use towpath_lab::failure::Cause;
use towpath_lab::studies::RunEnd;
use towpath_sim::world::{HostConfig, HostId, SwitchConfig};
use towpath_sim::{Star, World};
use towpath_transport::{Endpoint, EndpointConfig, EndpointError, Side};

/// How long links, channels and grants may take: some round trips.
const READY_MAX: Nanos = Nanos::from_millis(100);

/// I/Os that may have tokens and not be done: more than any run has.
const TOKENS_EARLY_MAX: u32 = 1 << 30;

/// What is waited for is looked at so often.
const READY_EACH: Nanos = Nanos::from_micros(100);

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// I/Os that ended, by measured period and client; without those of jobs that have no share.
    pub done: Vec<Vec<u32>>,
    /// I/Os that ended in each part of a period, of all measured periods together.
    pub course: Vec<u64>,
    /// How long they took, by client.
    pub latency: Vec<Latency>,
    /// The length of a period.
    pub period: Nanos,
    /// What the monitor said at the end of each measured period.
    pub ends: Vec<PeriodReport>,
    /// What the server knows of each client, of all periods.
    pub accounts: Vec<Account>,
    /// Tokens that clients held at the end of each measured period.
    pub stranded: Vec<u64>,
    /// Additions to the pool's word in the measured periods.
    pub fetches: u64,
    /// Reports that were written in them.
    pub reports: u64,
    /// Packets that ports dropped.
    pub packets_dropped: u64,
    /// What it ended with.
    pub end: RunEnd,
}

impl Outcome {
    /// I/Os of all clients in a measured period.
    #[must_use]
    pub fn total(&self, period: usize) -> u64 {
        self.done[period].iter().map(|&count| u64::from(count)).sum()
    }

    /// A number in the measured periods, for each second.
    #[must_use]
    pub fn per_s(&self, count: u64) -> f64 {
        count as f64 / (self.period.as_secs_f64() * self.done.len().max(1) as f64)
    }

    /// I/Os a second, of all clients.
    #[must_use]
    pub fn ios_per_s(&self) -> f64 {
        self.per_s((0..self.done.len()).map(|period| self.total(period)).sum())
    }

    /// I/Os a second of one.
    #[must_use]
    pub fn client_ios_per_s(&self, client: usize) -> f64 {
        self.per_s(self.done.iter().map(|period| u64::from(period[client])).sum())
    }

    /// Measured periods in which a client got less than so much.
    #[must_use]
    pub fn missed(&self, client: usize, reservation: u32) -> usize {
        self.done.iter().filter(|period| period[client] < reservation).count()
    }
}

impl Plan {
    /// Runs it.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<Outcome, Cause> {
        let mut runner = self.build()?;
        let hosts = self.clients.len() + 1;
        (0..hosts).for_each(|host| runner.wake(host));
        let limit = Time::ZERO + READY_MAX;
        while runner.shared.ready < self.clients.len() {
            let now = runner.world().now();
            if now >= limit {
                let missing = "all clients have links, channels and grants";
                return Err(Cause::Endless(missing));
            }
            runner.run_until(now + READY_EACH);
        }
        // Clients join in the server's first period, and begin with its next one.
        let now = runner.world().now();
        let first = runner.shared.first_join.min(now);
        let passed = now.since(first).0.next_multiple_of(self.period.0);
        runner.shared.start = first + Nanos(passed);
        (0..hosts).for_each(|host| runner.wake(host));
        let begin = runner.shared.begin_of(0);
        runner.run_until(begin);
        let before = stats(&runner);
        let mut stranded = Vec::with_capacity(self.periods);
        for period in 0..self.periods {
            let next = runner.shared.begin_of(period + 1);
            runner.run_until(Time(next.0 - 1));
            stranded.push(tenants(&runner).map(Tenant::tokens).sum());
        }
        let after = stats(&runner);
        // The monitor ends the last period.
        let end = runner.shared.begin_of(self.periods);
        runner.run_until(end);
        let packets_dropped = runner.world().counters().dropped_queue;
        let mut books = runner.shared;
        Ok(Outcome {
            done: books.done,
            course: books.course,
            latency: books.latency,
            period: self.period,
            ends: books.ends.split_off(self.warm_up.min(books.ends.len())),
            accounts: books.accounts,
            stranded,
            fetches: after.0 - before.0,
            reports: after.1 - before.1,
            packets_dropped,
            end: RunEnd { traces: vec![("", books.hash)], troubles: books.troubles },
        })
    }

    fn build(&self) -> Result<MachineLoop<Host>, Cause> {
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
        let steward = self.rules.map(|rules| Steward::new(self, rules, &far)).transpose()?;
        let mut server = Server::new(far, memory, (self.sides, steward));
        let mut hosts = Vec::with_capacity(clients + 1);
        for (number, &plan) in self.clients.iter().enumerate() {
            let mut near = endpoint(&world, fabric.hosts[number], 1, depth)?;
            let (near_hello, near_half) = near.offer()?;
            let (far_hello, far_half) = server.endpoint.offer()?;
            let link = near.establish(near_half, &far_hello, Side::Client)?;
            let far_link = server.endpoint.establish(far_half, &near_hello, Side::Server)?;
            let admitted = server.admit(far_link, plan.share.map(|_| number));
            admitted.map_err(|_| Cause::Endless("the server admits its clients"))?;
            let mut prng = Prng::new(world.next_seed());
            let work = Work::new(plan, self.depth, self.period, prng.unit());
            let seed = prng.next_u64();
            let rules = self.rules.filter(|_| plan.share.is_some());
            // Who takes tokens for all that waits may have as many I/Os with tokens as it wants.
            let takes_early = plan.pattern == Pattern::AtOnce;
            let depth = if takes_early { TOKENS_EARLY_MAX } else { self.depth };
            let with = (link, depth, self.tick);
            let tenant = rules.map(|rules| Tenant::new(&plan, rules, with));
            let client = Client::new(
                number,
                (near, link),
                (work, tenant, plan.manner),
                (self.sides, self.depth),
                seed,
            );
            hosts.push(Host::Client(Box::new(client)));
        }
        hosts.push(Host::Server(Box::new(server)));
        let counted = self.clients.iter().take_while(|client| client.share.is_some()).count();
        let books = Books::new(self.period, (self.warm_up, self.periods), counted);
        Ok(MachineLoop::new(world, hosts, books))
    }
}

fn tenants(runner: &MachineLoop<Host>) -> impl Iterator<Item = &Tenant> {
    runner.machines().filter_map(|host| match host {
        Host::Client(client) => client.tenant.as_ref(),
        Host::Server(_) => None,
    })
}

/// Additions and reports so far.
fn stats(runner: &MachineLoop<Host>) -> (u64, u64) {
    tenants(runner).map(Tenant::stats).fold((0, 0), |(fetches, reports), stats| {
        (fetches + stats.fetches, reports + stats.reports)
    })
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
        // Each link may be told of a period and of a change in it.
        .send_pools(&[(64, messages + 4 * links), (record, messages)])
        .seed(world.next_seed());
    Endpoint::new(device, config)
}
