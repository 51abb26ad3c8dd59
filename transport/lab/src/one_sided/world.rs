//! One server and its clients on one switch, in virtual time.

use super::area;
use super::books::{Books, Outcomes};
use super::broken::{Broken, Failed};
use super::client::{Client, DEPTH};
use super::server::{Nic, Server};
use super::trouble::{Befallen, Dice, Mishap};
use super::{CLIENTS_MAX, OneSidedPlan};
use crate::cluster::run::{Machine, MachineLoop};
use crate::device::SharedLink;
use crate::failure::Cause;
use crate::limits::TURNS_PER_INSTANT_MAX;
use std::collections::BTreeMap;
use towpath_base::{Nanos, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::Side;
use towpath_sim::{FaultControl, FaultCounters, FaultLink, FaultPlan, Star, World};
use towpath_transport::{Endpoint, EndpointConfig, EndpointError};
use towpath_verbs::{Mtu, PacketLink};

/// How long it is until what is due is looked at again.
const STEP: Nanos = Nanos::from_micros(20);

/// How long the last outcomes may take, and all of them: RC waits for some 130 ms, and a lane that
/// has failed again and again for a second.
const SILENCE_MAX: Nanos = Nanos::from_secs(20);

/// How long a silent peer is waited for: longer than a stall, and so short that the links of dead
/// clients do not fill the server.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// How long packets may be under way when all is over.
const AFTER: Nanos = Nanos::from_millis(10);

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Additions that were carried out.
    pub additions: u64,
    /// Additions of which nobody knows.
    pub additions_unknown: u64,
    /// Additions that the memory shows at the end: all of the first, and some of the second.
    pub found: u64,
    /// Swaps that were carried out and found what they wanted.
    pub swaps: u64,
    /// Operations of all kinds.
    pub outcomes: Outcomes,
    /// What has befallen clients.
    pub befallen: Befallen,
    /// What has befallen packets.
    pub faults: FaultCounters,
    /// Packets that devices sent again, and those that came twice.
    pub retransmitted: u64,
    /// See before.
    pub duplicates: u64,
    /// How long it took, in virtual time.
    pub took: Nanos,
    /// Over all that software saw: the same for the same plan.
    pub hash: u64,
}

/// Who runs on a host.
enum Role {
    Client(Client),
    Server(Server),
}

struct SimHost {
    role: Role,
    link: SharedLink,
    number: usize,
}

impl Machine for SimHost {
    type Shared = Books;

    fn turn(&mut self, books: &mut Books) {
        let now = self.link.now();
        for _ in 0..TURNS_PER_INSTANT_MAX {
            let busy = match &mut self.role {
                Role::Client(client) => client.turn(now, books),
                Role::Server(server) => server.turn(books),
            };
            if !busy {
                return;
            }
        }
        books.note(Err(Broken::Restless { host: self.number }));
    }

    fn next_time(&self, now: Time, books: &Books) -> Time {
        if books.broken.is_some() {
            return Time::NEVER;
        }
        match &self.role {
            Role::Client(client) => client.next_time(now),
            Role::Server(server) => {
                let held = self.link.link().next_release().unwrap_or(Time::NEVER);
                server.endpoint.next_timeout().min(held)
            }
        }
    }
}

/// What is to happen at a time.
enum Due {
    Grant,
    Return,
}

struct Run<'a> {
    plan: &'a OneSidedPlan,
    runner: MachineLoop<SimHost>,
    control: FaultControl,
    dice: Dice,
    due: BTreeMap<(Time, usize), Due>,
    /// Additions that have ended when the next trouble comes.
    next_trouble: u64,
    buried: (u64, u64),
}

/// Runs a plan.
pub(super) fn run(plan: &OneSidedPlan) -> Result<Tally, Failed> {
    let mut run = Run::new(plan)?;
    run.work()?;
    run.end()
}

impl<'a> Run<'a> {
    fn new(plan: &'a OneSidedPlan) -> Result<Self, Failed> {
        let clients = plan.clients.clamp(1, CLIENTS_MAX);
        let world = World::new(plan.seed);
        let fabric = Star { hosts: clients + 1, ..Star::default() }.build(&world);
        let control = FaultControl::new(plan.faults.clone());
        let link_of = |host: usize| {
            let end = world.end(fabric.hosts[host]);
            SharedLink::new(FaultLink::new(end, world.next_seed(), control.clone()))
        };
        let mut hosts = Vec::new();
        for number in 0..clients {
            let link = link_of(number);
            let share = plan.additions / clients as u64
                + u64::from((number as u64) < plan.additions % clients as u64);
            let client = Client::new(number, link.clone(), world.next_seed(), share);
            hosts.push(SimHost { role: Role::Client(client), link, number });
        }
        let link = link_of(clients);
        let endpoint = endpoint(plan, &world, &link, 16 * clients)?;
        let memory =
            area::fresh(clients).map_err(|error| Cause::Endpoint(EndpointError::from(error)))?;
        let server = Server::new(endpoint, memory, clients);
        hosts.push(SimHost { role: Role::Server(server), link, number: clients });
        let runner = MachineLoop::new(world, hosts, Books::new(clients));
        let mut dice = Dice::new(plan.seed);
        let next_trouble = if plan.every == 0 { u64::MAX } else { dice.after(plan.every) };
        let (due, buried) = (BTreeMap::new(), (0, 0));
        let mut run = Self { plan, runner, control, dice, due, next_trouble, buried };
        (0..clients).try_for_each(|client| run.join(client))?;
        Ok(run)
    }

    fn clients(&self) -> usize {
        self.runner.machines().len() - 1
    }

    fn now(&self) -> Time {
        self.runner.world().now()
    }

    fn client(&mut self, number: usize) -> &mut Client {
        match &mut self.runner.machine_mut(number).role {
            Role::Client(client) => client,
            Role::Server(_) => unreachable!("the server is the last host"),
        }
    }

    fn server(&mut self) -> &mut Server {
        let last = self.clients();
        match &mut self.runner.machine_mut(last).role {
            Role::Server(server) => server,
            Role::Client(_) => unreachable!("the last host is the server"),
        }
    }

    /// A client starts, with a link whose set-up meets no fault.
    fn join(&mut self, number: usize) -> Result<(), Failed> {
        let link = self.client(number).link.clone();
        let mut near = endpoint(self.plan, self.runner.world(), &link, 1)?;
        let server = self.server();
        let (near_hello, near_half) = near.offer().map_err(Cause::from)?;
        let (far_hello, far_half) = server.endpoint.offer().map_err(Cause::from)?;
        let near_link = near.establish(near_half, &far_hello, Side::Client).map_err(Cause::from)?;
        let far_link =
            server.endpoint.establish(far_half, &near_hello, Side::Server).map_err(Cause::from)?;
        server.admit(number, far_link)?;
        self.client(number).start(near, near_link);
        Ok(())
    }

    /// Until all clients have asked for all that they had to, and have been answered.
    fn work(&mut self) -> Result<(), Failed> {
        let (mut moved_at, mut ended) = (self.now(), 0);
        loop {
            let until = self.now() + STEP;
            self.runner.run_until(until);
            if let Some(broken) = self.runner.shared.broken.take() {
                return Err(broken.into());
            }
            self.let_happen()?;
            let Outcomes { executed, not, unknown } = self.runner.shared.outcomes;
            if executed + not + unknown > ended {
                (moved_at, ended) = (self.now(), executed + not + unknown);
            }
            let clients = 0..self.clients();
            let asked = clients.clone().all(|number| self.client(number).has_asked());
            let waits = clients.max_by_key(|&number| self.runner.shared.live(number));
            let waits = waits.map(|client| (client, self.runner.shared.live(client)));
            match waits {
                Some((_, 0)) | None if asked && self.due.is_empty() => return Ok(()),
                Some((client, live)) if self.now().since(moved_at) > SILENCE_MAX => {
                    return Err(Broken::Endless { client, live }.into());
                }
                _ => {}
            }
        }
    }

    fn let_happen(&mut self) -> Result<(), Failed> {
        let now = self.now();
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, client), due) = entry.remove_entry();
            match due {
                Due::Grant => self.server().grant(client)?,
                Due::Return => {
                    self.server().dismiss(client);
                    self.join(client)?;
                }
            }
        }
        let (sure, unknown) = self.runner.shared.additions();
        if sure + unknown >= self.next_trouble {
            self.next_trouble = sure + unknown + self.dice.after(self.plan.every);
            let (client, trouble) = self.dice.roll(self.clients());
            self.befall(client, trouble);
        }
        Ok(())
    }

    fn befall(&mut self, number: usize, trouble: Mishap) {
        let now = self.now();
        match trouble {
            Mishap::NearBreaks => self.client(number).break_lane(),
            Mishap::FarBreaks => self.server().break_lane(number),
            Mishap::Stalls(span) => self.client(number).stall(now + span),
            Mishap::IsRevoked(which, absence) => {
                self.server().revoke(number, which);
                self.due.entry((now + absence, number)).or_insert(Due::Grant);
            }
            Mishap::Dies(absence) => {
                let Some((endpoint, _)) = self.client(number).endpoint.take() else { return };
                let counters = endpoint.device().counters();
                self.buried.0 += counters.retransmitted;
                self.buried.1 += counters.duplicates;
                drop(endpoint);
                self.runner.shared.on_death(number);
                self.due.insert((now + absence, number), Due::Return);
            }
        }
    }

    fn end(mut self) -> Result<Tally, Failed> {
        let took = self.now().since(Time::ZERO);
        let memory = self.server().memory.clone();
        let found = self.runner.shared.check(&memory)?;
        // Whatever is still on its way changes nothing.
        self.control.set_receive(FaultPlan::none());
        self.control.set_transmit(FaultPlan::none());
        let until = self.now() + AFTER;
        self.runner.run_until(until);
        if self.runner.shared.broken.is_none() {
            let is_same = self.runner.shared.check(&memory)? == found;
            debug_assert!(is_same, "nobody has asked for anything");
        }
        if let Some(broken) = self.runner.shared.broken.take() {
            return Err(broken.into());
        }
        for number in 0..self.clients() {
            self.client(number).check_buffers()?;
            self.server().check_kept(number)?;
        }
        let (additions, additions_unknown) = self.runner.shared.additions();
        let (mut retransmitted, mut duplicates) = self.buried;
        for host in self.runner.machines() {
            let endpoint = match &host.role {
                Role::Client(client) => client.endpoint.as_ref().map(|(endpoint, _)| endpoint),
                Role::Server(server) => Some(&server.endpoint),
            };
            let counters = endpoint.map(|endpoint| endpoint.device().counters());
            retransmitted += counters.map_or(0, |counters| counters.retransmitted);
            duplicates += counters.map_or(0, |counters| counters.duplicates);
        }
        let books = &self.runner.shared;
        Ok(Tally {
            additions,
            additions_unknown,
            found,
            swaps: books.swaps(),
            outcomes: books.outcomes,
            befallen: self.dice.befallen,
            faults: self.control.counters(),
            retransmitted,
            duplicates,
            took,
            hash: books.hash,
        })
    }
}

/// An endpoint on a wire, in its next life: its device has the same queue pairs as in the one
/// before.
fn endpoint(
    plan: &OneSidedPlan,
    world: &World,
    link: &SharedLink,
    links: usize,
) -> Result<Endpoint<Nic>, Cause> {
    let device = RoceDevice::new(link.clone(), RoceConfig::default().seed(plan.seed));
    let config = EndpointConfig::new()
        .mtu_max(Mtu::Mtu1024)
        .links_max(links)
        .quota_chunks(8)
        .credit_total(8)
        .send_pools(&[(area::AREA_BYTES, DEPTH)])
        .tune_links(|link| link.peer_timeout(PATIENCE));
    Ok(Endpoint::new(device, config.seed(world.next_seed()))?)
}
