//! The loop, and what is measured.

use super::client::Client;
use super::server::{Server, endpoint, join};
use super::{Failed, Seen, Served, Way};
use std::collections::VecDeque;
use std::net::SocketAddr;
use towpath_base::{Nanos, Time};
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::{NewChunk, Route, StorageRequest, Terms};
use towpath_lab::studies::RunEnd;
use towpath_sim::world::{HostConfig, HostId, SwitchConfig};
use towpath_sim::{Fabric, Star, World};

/// What is written.
const CHUNK: ChunkId = ChunkId(0xc0);

/// How long links, and a write, may take.
const PATIENCE: Nanos = Nanos::from_millis(500);

/// A server is looked after so often while it waits for nothing.
const TICK: Nanos = Nanos::from_millis(1);

struct Scene {
    world: World,
    fabric: Fabric,
    servers: Vec<Server>,
    places: Vec<SocketAddr>,
    client: Client,
    due: VecDeque<usize>,
    troubles: Vec<String>,
}

impl Served {
    /// Runs it.
    ///
    /// # Errors
    /// [`Failed`] when a host or a store cannot be made.
    pub fn run(&self) -> Result<Seen, Failed> {
        let mut scene = self.lay()?;
        let is_ready = scene.run_until(|client| client.is_ready());
        for server in 0..self.copies {
            let kind = NewChunk::default();
            let create = StorageRequest::Create { chunk: CHUNK, limit_bytes: None, kind, stamp: 0 };
            scene.client.ask(server, |chunks, endpoint| chunks.start_request(endpoint, &create));
        }
        let is_made = scene.run_until(Client::is_idle);
        if !(is_ready && is_made) {
            scene.troubles.push("servers cannot be reached".to_owned());
        }
        let data: Vec<u8> = (0..self.bytes).map(|at| (at % 251) as u8).collect();
        let first = self.write(&mut scene, &data, 1)?;
        let times = (0..self.writes).map(|number| self.write(&mut scene, &data, 2 + number as u64));
        let times = times.collect::<Result<Vec<_>, _>>()?;
        let troubles = [scene.troubles, scene.client.troubles].concat();
        let traces = vec![("", scene.world.trace_hash())];
        Ok(Seen { first, times, end: RunEnd { traces, troubles } })
    }

    fn lay(&self) -> Result<Scene, Failed> {
        let world = World::new(self.seed);
        let host = HostConfig {
            rate_bits_per_s: self.rate_bits_per_s,
            delay: self.delay,
            source_ports: 1,
            ..HostConfig::default()
        };
        let switch = SwitchConfig { port_buffer_bytes: 16 << 20, ..SwitchConfig::default() };
        let fabric = Star { hosts: self.copies + 1, host, switch }.build(&world);
        let mut servers = Vec::new();
        for &host in &fabric.hosts[..self.copies] {
            servers.push(Server::new(&world, host, self.bytes)?);
        }
        let last = fabric.hosts[self.copies];
        let mut client = Client::new(endpoint(&world, last, self.bytes, false)?);
        let mut places = Vec::new();
        for server in &mut servers {
            client.connect(server.service.endpoint_mut());
            places.push(server.addr());
        }
        let (due, troubles) = (VecDeque::new(), Vec::new());
        Ok(Scene { world, fabric, servers, places, client, due, troubles })
    }

    /// One write, from its posting to the answer that all copies are durable. Stamps tell writes of
    /// a stripe apart.
    fn write(&self, scene: &mut Scene, data: &[u8], stamp: u64) -> Result<Nanos, Failed> {
        let begin = scene.world.now();
        match self.way {
            Way::Flat => {
                for server in 0..self.copies {
                    scene.client.ask(server, |chunks, endpoint| {
                        chunks.start_write_copy(endpoint, CHUNK, 0, data)
                    });
                }
            }
            Way::Along(kind) => {
                let route = Route::new(kind, &scene.places)?;
                scene.client.ask(0, |chunks, endpoint| {
                    let terms = (&route, Terms::default());
                    chunks.start_forward_copy(endpoint, terms, (CHUNK, 0), data)
                });
            }
            Way::Stripe(units) => {
                for unit in 0..units {
                    let route = Route::stripe(unit, units, &scene.places)?;
                    scene.client.ask(usize::from(unit), |chunks, endpoint| {
                        let terms = Terms { stamp, ..Terms::default() };
                        chunks.start_forward_copy(endpoint, (&route, terms), (CHUNK, 0), data)
                    });
                }
            }
        }
        if !scene.run_until(Client::is_idle) {
            scene.troubles.push("a write does not end".to_owned());
        }
        Ok(scene.world.now().since(begin))
    }
}

impl Scene {
    fn wake(&mut self, host: usize) {
        if !self.due.contains(&host) {
            self.due.push_back(host);
        }
    }

    /// Lets time pass until the client says so; false where that takes too long.
    fn run_until(&mut self, is_over: impl Fn(&Client) -> bool) -> bool {
        let end = self.world.now() + PATIENCE;
        (0..self.fabric.hosts.len()).for_each(|host| self.wake(host));
        let mut woken: Vec<HostId> = Vec::new();
        loop {
            while let Some(host) = self.due.pop_front() {
                self.turn(host);
            }
            if is_over(&self.client) || !self.client.troubles.is_empty() {
                return true;
            }
            if !self.world.advance_to_next(end, &mut woken) {
                return false;
            }
            for host in woken.drain(..) {
                self.wake(host.0 as usize);
            }
        }
    }

    fn turn(&mut self, host: usize) {
        let now = self.world.now();
        let next = match self.servers.len() {
            servers if host < servers => self.turn_server(host, now),
            _ => {
                while self.client.turn() {}
                self.client.next_time()
            }
        };
        self.world.set_timer(self.fabric.hosts[host], next.max(now + Nanos(1)));
    }

    fn turn_server(&mut self, number: usize, now: Time) -> Time {
        if !self.servers[number].turn(now) {
            self.troubles.push("a server does not come to rest".to_owned());
        }
        for (peer, place) in self.servers[number].service.links_wanted(now) {
            let other = self.places.iter().position(|at| *at == place);
            let both = other.and_then(|other| {
                self.servers.get_disjoint_mut([number, other]).ok().map(|both| (other, both))
            });
            let Some((other, [near, far])) = both else { continue };
            let link = join(near.service.endpoint_mut(), far.service.endpoint_mut());
            near.service.link_made(peer, link);
            self.wake(number);
            self.wake(other);
        }
        self.servers[number].next_time().min(now + TICK)
    }
}
