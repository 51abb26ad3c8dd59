//! One history: drawn from its seed, run, and checked.

use std::net::SocketAddr;

use towpath_base::{Nanos, Prng, Time};
use towpath_disk::sim::Loss;
use towpath_ec::Shape;
use towpath_fastpath::{RouteKind, SLICE_BYTES};
use towpath_sim::{Fabric, FaultPlan, World};
use towpath_verbs::PacketLink as _;

use super::client::Client;
use super::log::{Log, Register, Tally, bytes_of, value_of};
use super::scene::Scene;
use super::server::{Bug, endpoint, left_of};
use super::work::{
    Actor, Ask, COPIES, COPIES_SLICES, Ground, PARTS, PARTS_SLICES, STRIPES, at, parity_of,
};
use crate::store::ChunkId;

/// How long clients work.
const SPAN: Nanos = Nanos::from_millis(250);

/// How long after that all deadlines are over, and whoever is gone is given up.
const REST: Nanos = Nanos::from_millis(1_500);

/// How long what the keeper asks for may take, where nothing is lost.
const KEEPER: Nanos = Nanos::from_secs(20);

/// Slices that the keeper reads or writes at a time.
const READ_SLICES: u64 = 4;

/// What happens to somebody.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Kill(usize, Loss),
    Stall(usize, Nanos),
    SlowDisk(usize),
    KillClient(usize),
}

/// What a seed says.
#[derive(Clone, Debug)]
struct Plan {
    servers: usize,
    writers: usize,
    readers: usize,
    kinds: Vec<RouteKind>,
    /// The first servers, whose copies are enough for an answer.
    acked: usize,
    shape: Option<Shape>,
    faults: FaultPlan,
    blows: Vec<(Nanos, Blow)>,
}

fn shape(data: usize, parity: usize) -> Shape {
    Shape::new(data, parity).expect("a shape")
}

impl Plan {
    fn new(prng: &mut Prng) -> Self {
        let servers = 3 + prng.below(3) as usize;
        let kinds = match prng.below(3) {
            0 => vec![RouteKind::Ring],
            1 => vec![RouteKind::Tree],
            _ => vec![RouteKind::Ring, RouteKind::Tree],
        };
        let parts = [shape(2, 1), shape(3, 1), shape(3, 2)][servers - 3];
        let shape = prng.chance(0.75).then_some(parts);
        let us = Nanos::from_micros;
        let faults = FaultPlan::none()
            .drop(0.01)
            .duplicate(0.01, us(500))
            .reorder(0.02, 8, us(200))
            .delay(us(prng.below(50)), us(prng.below(30)))
            .late(0.002, us(500), us(5_000));
        let readers = 1 + prng.below(2) as usize;
        let (writers, blows) = (2, Vec::new());
        let acked =
            if prng.chance(0.5) { servers } else { 1 + prng.below(servers as u64) as usize };
        let mut plan = Self { servers, writers, readers, kinds, acked, shape, faults, blows };
        plan.draw_blows(prng);
        plan
    }

    /// Of the copies along a tree one server may die, of those along rings all but one: behind in
    /// a tree are two, and what the one has the other one may lack.
    fn draw_blows(&mut self, prng: &mut Prng) {
        let is_ring = self.kinds == [RouteKind::Ring];
        let most = if is_ring { self.servers as u64 - 1 } else { 1 };
        let kills = prng.below(most + 1).min(prng.below(4));
        let mut servers: Vec<usize> = (0..self.servers).collect();
        let when = |prng: &mut Prng| Nanos(prng.below(SPAN.0));
        for _ in 0..kills {
            let at = prng.below(servers.len() as u64) as usize;
            let loss = [Loss::Everything, Loss::Scattered, Loss::Suffix, Loss::Nothing];
            let loss = loss[prng.below(4) as usize];
            let blow = Blow::Kill(servers.swap_remove(at), loss);
            self.blows.push((when(prng), blow));
        }
        for server in servers {
            if prng.chance(0.25) {
                let span = Nanos::from_micros(prng.between(500, 120_000));
                self.blows.push((when(prng), Blow::Stall(server, span)));
            }
            if prng.chance(0.2) {
                self.blows.push((when(prng), Blow::SlowDisk(server)));
            }
        }
        if prng.chance(0.3) {
            let client = prng.below((self.writers + self.readers) as u64) as usize;
            self.blows.push((when(prng), Blow::KillClient(client)));
        }
        self.blows.sort_by_key(|(when, _)| *when);
    }

    fn ground(&self, world: &World, fabric: &Fabric) -> Ground {
        let place = |host| world.end(host).local_addr();
        let places: Vec<SocketAddr> =
            fabric.hosts[..self.servers].iter().map(|host| place(*host)).collect();
        Ground {
            died: vec![None; places.len()],
            places,
            kinds: self.kinds.clone(),
            acked: self.acked,
            shape: self.shape,
            until: Time::ZERO,
            log: Log::default(),
            stripes: vec![None; STRIPES.len()],
        }
    }
}

/// A history while it goes on.
struct History {
    scene: Scene,
    plan: Plan,
    prng: Prng,
}

/// Whether there are stripes in the history of a seed.
pub(super) fn has_stripes(seed: u64) -> bool {
    Plan::new(&mut Prng::new(seed)).shape.is_some()
}

/// Runs the history of a seed; gives what was done in it, and the hash of its packets.
///
/// # Errors
/// What was wrong in it.
pub(super) fn run(seed: u64, bug: Option<Bug>) -> Result<(Tally, u64), String> {
    let mut prng = Prng::new(seed);
    let plan = Plan::new(&mut prng);
    let world = World::new(prng.next_u64());
    // The last one is the keeper, who is not part of the history.
    let clients = plan.writers + plan.readers + 1;
    let ground = |world: &World, fabric: &Fabric| plan.ground(world, fabric);
    let scene = Scene::new(world, (plan.servers, clients), ground, bug);
    let told = format!("{plan:?}");
    let mut history = History { scene, plan, prng };
    history.whole().map_err(|wrong| format!("{wrong}\n{told}"))?;
    let tally = &mut history.scene.ground.log.tally;
    tally.packets = history.scene.world.counters().delivered;
    Ok((*tally, history.scene.world.trace_hash()))
}

impl History {
    fn whole(&mut self) -> Result<(), String> {
        self.prepare()?;
        self.work()?;
        self.rest()?;
        self.look()
    }

    fn client(&mut self, host: usize, times: (Nanos, Nanos)) -> Client {
        let (host, seed) = (self.scene.fabric.hosts[host], self.prng.next_u64());
        let endpoint = endpoint(&self.scene.world, host, (seed, false));
        Client::new(endpoint, self.plan.servers, times)
    }

    fn pass(&mut self, span: Nanos) -> Result<(), String> {
        let end = self.scene.now() + span;
        self.scene.run_until(end)
    }

    /// Has the keeper ask a server, and waits for what it says.
    fn ask(&mut self, server: usize, ask: &Ask) -> Result<Vec<u8>, String> {
        let (end, keeper) = (self.scene.now() + KEEPER, self.scene.actors.len() - 1);
        let mut is_asked = false;
        while self.scene.now() < end {
            let Some(keeper) = &mut self.scene.actors[keeper] else { break };
            is_asked = is_asked || keeper.ask(server, ask);
            if let Some(kept) = keeper.kept.take() {
                return kept.map_err(|error| format!("{ask:?} of server {server}: {error}"));
            }
            self.pass(Nanos::from_millis(1))?;
        }
        Err(format!("server {server} says nothing to {ask:?}"))
    }

    /// Makes the chunks, and the clients.
    fn prepare(&mut self) -> Result<(), String> {
        let Plan { servers, writers, readers, .. } = self.plan;
        for client in 0..writers + readers {
            let micros = |prng: &mut Prng, most| Nanos::from_micros(prng.between(20_000, most));
            let times = (micros(&mut self.prng, 120_000), micros(&mut self.prng, 60_000));
            let of_client = self.client(servers + client, times);
            let (seed, now) = (self.prng.next_u64(), self.scene.now());
            let actor = match client.checked_sub(writers) {
                None => Actor::writer(of_client, seed, now, (client, writers)),
                Some(_) => Actor::reader(of_client, seed, now),
            };
            self.scene.actors.push(Some(actor));
        }
        let keeper = self.client(servers + writers + readers, (KEEPER, KEEPER));
        // The others begin when they are there.
        let others = std::mem::take(&mut self.scene.actors);
        self.scene.actors = others.iter().map(|_| None).collect();
        self.scene.actors.push(Some(Actor::keeper(keeper, 0)));
        for server in 0..servers {
            for (chunk, slices) in [(COPIES, COPIES_SLICES), (PARTS, PARTS_SLICES)] {
                self.ask(server, &Ask::Create(chunk))?;
                for first in (0..slices).step_by(READ_SLICES as usize) {
                    let bytes = bytes_of(0, first..slices.min(first + READ_SLICES));
                    let offset = first * SLICE_BYTES as u64;
                    self.ask(server, &Ask::Write(chunk, offset, bytes))?;
                }
            }
        }
        for (place, other) in self.scene.actors.iter_mut().zip(others) {
            *place = other;
        }
        Ok(())
    }

    fn work(&mut self) -> Result<(), String> {
        let begin = self.scene.now();
        self.scene.ground.until = begin + SPAN;
        self.scene.set_faults(&self.plan.faults.clone());
        for (when, blow) in std::mem::take(&mut self.plan.blows) {
            self.scene.run_until(begin + when)?;
            match blow {
                Blow::Kill(server, loss) => self.scene.kill(server, loss),
                Blow::Stall(server, span) => {
                    let until = self.scene.now() + span;
                    self.scene.stall(server, until);
                }
                Blow::SlowDisk(server) => self.scene.slow_disk(server, &mut self.prng),
                Blow::KillClient(client) => self.scene.kill_client(client),
            }
        }
        self.scene.run_until(begin + SPAN)
    }

    /// Nobody begins anything any more; then nothing may be left.
    fn rest(&mut self) -> Result<(), String> {
        self.scene.is_late = true;
        self.pass(REST)?;
        for (server, node) in self.scene.nodes.iter_mut().enumerate() {
            let Some(life) = &mut node.life else { continue };
            life.left().map_err(|left| format!("server {server}: {left}"))?;
            life.told().map_err(|wrong| format!("server {server}: {wrong}"))?;
            let (stats, tally) = (life.server.stats(), &mut self.scene.ground.log.tally);
            tally.bytes_staged += stats.staged_bytes;
            tally.stopped.iter_mut().zip(stats.stopped).for_each(|(sum, more)| *sum += more);
        }
        for (number, actor) in self.scene.actors.iter().enumerate() {
            let Some(Actor { client, .. }) = actor else { continue };
            left_of(&client.endpoint).map_err(|left| format!("client {number}: {left}"))?;
            if client.under_way() > 0 {
                return Err(format!("client {number} waits for {}", client.under_way()));
            }
        }
        Ok(())
    }

    fn read(&mut self, server: usize, chunk: ChunkId, slices: u64) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        for first in (0..slices).step_by(READ_SLICES as usize) {
            let count = READ_SLICES.min(slices - first);
            let (offset, len) = (first * SLICE_BYTES as u64, count as usize * SLICE_BYTES);
            bytes.extend(self.ask(server, &Ask::Read(chunk, offset, len))?);
        }
        Ok(bytes)
    }

    /// Looks at what each server has, and those that died had when they did.
    fn look(&mut self) -> Result<(), String> {
        self.scene.set_faults(&FaultPlan::none());
        self.scene.ground.log.check(&[], u64::MAX)?;
        let is_ring = self.plan.kinds == [RouteKind::Ring];
        // Where the first of a tree is gone those on one branch may have what the others lack.
        let root_died = self.scene.ground.died[0].filter(|_| !is_ring);
        let until = root_died.map_or(u64::MAX, at);
        let (mut all, mut parts) = (Vec::new(), Vec::new());
        for server in 0..self.plan.servers {
            let died = self.scene.ground.died[server];
            if died.is_some() {
                self.scene.start_again(server);
            }
            // Whoever died may have made what those before it made later, or never.
            let now = at(self.scene.now());
            let when = died.map_or((now, now), |died| (at(died), u64::MAX));
            let bytes = self.read(server, COPIES, COPIES_SLICES)?;
            parts.push(self.read(server, PARTS, PARTS_SLICES)?);
            if server >= self.plan.acked {
                self.look_behind(server, &bytes)?;
                continue;
            }
            let mut last = Vec::new();
            for (slice, bytes) in (0..).zip(bytes.chunks(SLICE_BYTES)) {
                let value = value_of(bytes, slice).map_err(|torn| format!("{server}: {torn}"))?;
                last.push((Register::Copies { slice }, value, when));
            }
            let checked = self.scene.ground.log.check(&last, until);
            checked.map_err(|wrong| format!("at server {server} at last: {wrong}"))?;
            if died.is_none() {
                all.extend(last);
            }
        }
        if is_ring {
            let checked = self.scene.ground.log.check(&all, u64::MAX);
            checked.map_err(|wrong| format!("at all servers by and by: {wrong}"))?;
        }
        self.look_at_stripes(&parts)
    }

    /// A copy that nobody waited for lacks some writes, and has none that was refused.
    fn look_behind(&mut self, server: usize, bytes: &[u8]) -> Result<(), String> {
        let log = &mut self.scene.ground.log;
        for (slice, bytes) in (0..).zip(bytes.chunks(SLICE_BYTES)) {
            let value = value_of(bytes, slice).map_err(|torn| format!("{server}: {torn}"))?;
            log.tally.slices_behind += u64::from(value > 0);
            if log.is_gone(value) {
                return Err(format!("server {server} has {value}, which was refused"));
            }
        }
        Ok(())
    }

    fn look_at_stripes(&self, parts: &[Vec<u8>]) -> Result<(), String> {
        let Some(shape) = self.plan.shape else { return Ok(()) };
        for (stripe, written) in self.scene.ground.stripes.iter().enumerate() {
            let Some((values, true)) = written else { continue };
            let (first, count) = STRIPES[stripe];
            let range = first as usize * SLICE_BYTES..(first + count) as usize * SLICE_BYTES;
            let data = values.iter().map(|value| bytes_of(*value, first..first + count));
            let expected = data.chain(parity_of(shape, stripe, values));
            for (rank, expected) in expected.enumerate() {
                if parts[rank][range.clone()] != expected {
                    let kind = if rank < shape.k() { "data" } else { "parity" };
                    return Err(format!("stripe {stripe} of {values:?}: {kind} {rank} is wrong"));
                }
            }
        }
        Ok(())
    }
}
