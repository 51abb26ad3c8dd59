//! The hosts of a history, and the time that passes.

use std::collections::VecDeque;

use towpath_base::{Nanos, Prng, Time};
use towpath_disk::sim::{Loss, Medium};
use towpath_sim::{Change, Fabric, FaultPlan, Health, HostConfig, HostId, Star, World};

use super::client::RETRY;
use super::server::{Bug, Life, join};
use super::work::{Actor, Ground};

/// A server is looked after so often while somebody works, and when nobody does.
const TICK: Nanos = Nanos::from_millis(1);
const LATE_TICK: Nanos = Nanos::from_millis(10);

/// A host with a server.
pub(super) struct Node {
    pub(super) medium: Medium,
    pub(super) life: Option<Life>,
    pub(super) stalled_until: Time,
}

pub(super) struct Scene {
    pub(super) world: World,
    pub(super) fabric: Fabric,
    /// On the first hosts.
    pub(super) nodes: Vec<Node>,
    /// On the hosts behind them; none where one has died.
    pub(super) actors: Vec<Option<Actor>>,
    pub(super) ground: Ground,
    pub(super) bug: Option<Bug>,
    due: VecDeque<usize>,
    woken: Vec<HostId>,
    pub(super) is_late: bool,
}

impl Scene {
    /// Hosts without clients, whose servers have empty disks.
    pub(super) fn new(
        world: World,
        (servers, clients): (usize, usize),
        ground: impl FnOnce(&World, &Fabric) -> Ground,
        bug: Option<Bug>,
    ) -> Self {
        let host = HostConfig { source_ports: 1, ..HostConfig::default() };
        let fabric = Star { hosts: servers + clients, host, ..Star::default() }.build(&world);
        let ground = ground(&world, &fabric);
        let nodes = (0..servers).map(|server| {
            let medium = super::server::medium(world.next_seed());
            let life = Some(Life::start(&world, fabric.hosts[server], &medium, bug));
            Node { medium, life, stalled_until: Time::ZERO }
        });
        let nodes = nodes.collect();
        let (actors, due, woken) = (Vec::new(), VecDeque::new(), Vec::new());
        Self { world, fabric, nodes, actors, ground, bug, due, woken, is_late: false }
    }

    pub(super) fn now(&self) -> Time {
        self.world.now()
    }

    /// Faults of all cables, from now on.
    pub(super) fn set_faults(&self, plan: &FaultPlan) {
        for host in &self.fabric.hosts {
            let cable = self.world.cable(*host);
            self.world.set_faults(cable.forth(), plan.clone());
            self.world.set_faults(cable.back(), plan.clone());
        }
    }

    fn set_health(&self, host: usize, health: Health) {
        let cable = self.world.cable(self.fabric.hosts[host]);
        self.world.change(Change::Cable(cable, health));
    }

    /// A server dies as in a power cut.
    pub(super) fn kill(&mut self, server: usize, loss: Loss) {
        if let Some(life) = self.nodes[server].life.take() {
            life.kill(loss);
            self.set_health(server, Health::Silent);
            self.ground.died[server] = Some(self.now());
            self.ground.log.tally.killed += 1;
        }
    }

    /// It is started again on its disk.
    pub(super) fn start_again(&mut self, server: usize) {
        self.set_health(server, Health::Up);
        let host = self.fabric.hosts[server];
        let life = Life::start(&self.world, host, &self.nodes[server].medium, self.bug);
        self.nodes[server].life = Some(life);
        self.wake(server);
    }

    pub(super) fn kill_client(&mut self, client: usize) {
        if self.actors[client].take().is_some() {
            self.set_health(self.nodes.len() + client, Health::Silent);
            self.ground.log.tally.clients_killed += 1;
        }
    }

    pub(super) fn stall(&mut self, server: usize, until: Time) {
        self.nodes[server].stalled_until = until;
        self.ground.log.tally.stalled += 1;
    }

    fn wake(&mut self, host: usize) {
        if !self.due.contains(&host) {
            self.due.push_back(host);
        }
    }

    pub(super) fn wake_all(&mut self) {
        (0..self.fabric.hosts.len()).for_each(|host| self.wake(host));
    }

    /// Lets time pass until `end`.
    pub(super) fn run_until(&mut self, end: Time) -> Result<(), String> {
        self.wake_all();
        loop {
            while let Some(host) = self.due.pop_front() {
                self.turn(host)?;
            }
            let mut woken = std::mem::take(&mut self.woken);
            let goes_on = self.world.advance_to_next(end, &mut woken);
            woken.drain(..).for_each(|host| self.wake(host.0 as usize));
            self.woken = woken;
            if !goes_on {
                return Ok(());
            }
        }
    }

    fn turn(&mut self, host: usize) -> Result<(), String> {
        let now = self.now();
        let next = match host.checked_sub(self.nodes.len()) {
            None => self.turn_server(host, now)?,
            Some(client) => self.turn_client(client, now)?,
        };
        let next = next.max(now + Nanos(1));
        self.world.set_timer(self.fabric.hosts[host], next);
        Ok(())
    }

    fn turn_server(&mut self, server: usize, now: Time) -> Result<Time, String> {
        let node = &mut self.nodes[server];
        let Some(life) = &mut node.life else { return Ok(Time::NEVER) };
        if now < node.stalled_until {
            return Ok(node.stalled_until);
        }
        life.turn(now).map_err(|wrong| format!("server {server}: {wrong}"))?;
        for (peer, place) in life.server.links_wanted(now) {
            let Some(other) = self.ground.places.iter().position(|at| *at == place) else {
                return Err(format!("server {server} wants to connect to {place}"));
            };
            self.join_servers(server, other, peer, now);
        }
        let tick = if self.is_late { LATE_TICK } else { TICK };
        let life = self.nodes[server].life.as_ref();
        Ok(life.map_or(Time::NEVER, Life::next_due).min(now + tick))
    }

    fn join_servers(&mut self, server: usize, other: usize, peer: usize, now: Time) {
        let Ok([near, far]) = self.nodes.get_disjoint_mut([server, other]) else { return };
        if now < far.stalled_until {
            // It is tried again at the next tick, as by who waits for an answer.
            return;
        }
        let Some(near) = &mut near.life else { return };
        let far = far.life.as_mut();
        let link = far.and_then(|far| join(&mut near.server.endpoint, &mut far.server.endpoint));
        near.server.link_made(peer, link);
        self.wake(server);
        self.wake(other);
    }

    fn turn_client(&mut self, client: usize, now: Time) -> Result<Time, String> {
        let Some(Some(actor)) = self.actors.get_mut(client) else { return Ok(Time::NEVER) };
        actor.turn(now, &mut self.ground)?;
        let mut woken = Vec::new();
        for server in actor.client.wanted(now) {
            let node = &mut self.nodes[server];
            let far = node.life.as_mut().filter(|_| now >= node.stalled_until);
            let link = far.and_then(|far| {
                woken.push(server);
                join(&mut actor.client.endpoint, &mut far.server.endpoint)
            });
            let is_joined = link.is_some();
            actor.client.join(server, link.ok_or(now + RETRY));
            if is_joined {
                actor.client.endpoint.flush();
            }
        }
        let next = actor.next_due();
        woken.into_iter().for_each(|server| self.wake(server));
        Ok(next)
    }

    /// A slow disk, from now on.
    pub(super) fn slow_disk(&self, server: usize, prng: &mut Prng) {
        self.nodes[server].medium.set_timing(super::server::slow(prng));
    }
}
