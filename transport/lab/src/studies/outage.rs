//! Small I/Os between hosts on leaf and spine switches while something there breaks.
//!
//! Clients on one leaf write to servers on two others, over links with several paths and many
//! source ports (rerouting on) or with one of each (off). What breaks says nothing, and routes
//! stay as they are, where [`Fault`] does not say otherwise.

use super::Param;
use crate::cluster::{Answer, Cluster, FlowPlan, PathMove, Record};
use crate::failure::Cause;
use crate::studies::RunEnd;
use crate::studies::wire::devices;
use std::collections::BTreeMap;
use towpath_base::{Nanos, Time};
use towpath_sim::world::{CableConfig, Change, Health, HostConfig, SwitchConfig};
use towpath_sim::{Fabric, FaultPlan, LeafSpine, World};
use towpath_transport::{EndpointConfig, PathState};

/// An I/O without an answer for so long is slow: a user of a disk sees it hang.
pub const SLOW: Nanos = Nanos::from_secs(1);

/// An I/O without an answer for so long is late: hundreds of times what it takes.
pub const LATE: Nanos = Nanos::from_millis(10);

/// The tick at which a silent path is doubted: what links have where nothing is said.
pub const SLA_TICK: Nanos = Nanos::from_millis(4);

/// Bytes of an I/O.
pub const IO_BYTES: u32 = 4096;

/// Base round trip: eight cables.
pub const BASE_RTT: Nanos = Nanos(8 * CABLE_DELAY.0);

const CABLE_DELAY: Nanos = Nanos(1_250);

/// I/Os that a client keeps waiting for a link; it turns more away.
const BACKLOG_MAX: u32 = 1024;

/// The part that flaps is away and back again for so long each.
const FLAP: Nanos = Nanos::from_millis(50);

/// What congests is of messages of this size, and so many of each client under way.
const LOAD_BYTES: u32 = 64 << 10;
const LOAD_DEPTH: u32 = 8;

/// It lasts for this part of the span: gigabytes cross the fabric packet by packet meanwhile.
const LOAD_PART: u64 = 20;

/// Buffer of each port under congestion: a quarter of the usual, so that packets are lost too.
const LOAD_BUFFER_BYTES: u64 = 256 << 10;

/// Source ports of a host where links may be rerouted: a path that is dead goes on from another.
const SOURCE_PORTS: u16 = 1024;

/// What waits at the end has so long to come.
const SETTLE_MAX: Nanos = Nanos::from_secs(30);

/// Paths of the links that may be rerouted.
pub(super) const PATHS: Param = Param::count("paths", "paths", 2..=16, ["16"; 3])
    .what("Paths of a link with rerouting; without it has one");

/// Clients, and servers of each.
pub(super) const HOSTS: Param = Param::count("hosts", "hosts", 1..=32, ["4", "8", "16"])
    .what("Clients, and servers that each writes to");

/// How often a link has an I/O.
pub(super) const EVERY: Param =
    Param::count("every-us", "us", 100..=1_000_000, ["5000", "2000", "2000"])
        .what("Mean time between two I/Os of a link");

/// Within so long what is in flight on one dead path of several is to be answered.
pub(super) fn recovery_bound() -> Nanos {
    SLA_TICK.saturating_mul(2) + BASE_RTT.saturating_mul(2)
}

/// In milliseconds, as tables have it.
pub(super) fn ms(span: Nanos) -> f64 {
    span.as_secs_f64() * 1e3
}

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One spine swallows what comes, in both directions.
    Spine,
    /// It swallows what comes from the clients.
    Forward,
    /// It swallows what comes from the servers: their acks.
    Reverse,
    /// One spine comes and goes.
    Flap,
    /// All spines but one swallow what comes: a link may have no path through that one at first.
    AllButOne,
    /// The switch of half the servers swallows what comes: there is no other way to them.
    Rack,
    /// Nothing breaks, but all clients send to one server as fast as they can.
    Congestion,
    /// Spines die one after another until one is left, and come back in that order.
    OneByOne {
        /// From one event to the next.
        step: Nanos,
        /// A dead spine swallows what comes for so long; then the switches have noticed.
        noticed: Nanos,
    },
}

impl Fault {
    /// Those with a name.
    pub const ALL: [(&'static str, Self); 7] = [
        ("spine", Self::Spine),
        ("forward", Self::Forward),
        ("reverse", Self::Reverse),
        ("flap", Self::Flap),
        ("all-but-one", Self::AllButOne),
        ("rack", Self::Rack),
        ("congestion", Self::Congestion),
    ];

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|&(of, _)| of == name).map(|(_, fault)| fault)
    }
}

/// A fabric, its load, and what breaks.
#[derive(Clone, Debug)]
pub struct Outage {
    /// Where everything random comes from.
    pub seed: u64,
    /// What breaks.
    pub fault: Fault,
    /// Paths of each link; one is a link that cannot be rerouted, with one source port for ever.
    pub paths: usize,
    /// Spines: so many ways lead from leaf to leaf.
    pub spines: usize,
    /// Clients, and servers that each of them writes to; there are twice as many servers.
    pub hosts: usize,
    /// The mean time between two I/Os of a link.
    pub every: Nanos,
    /// When it breaks.
    pub start: Time,
    /// How long it stays broken.
    pub span: Nanos,
}

/// What became of I/Os and paths.
#[derive(Clone, Debug)]
pub struct OutageResult {
    /// Every I/O that was answered: all that were sent, where the run ended well.
    pub answers: Vec<Answer>,
    /// I/Os that a client turned away because too many waited.
    pub refused: u64,
    /// Links.
    pub links: usize,
    /// Paths that hosts thought otherwise of than before.
    pub moves: Vec<PathMove>,
    /// When it broke, and when that was over.
    pub broken: (Time, Time),
    /// What it ended with.
    pub end: RunEnd,
}

impl Outage {
    /// Whether its links may be rerouted, in a word: on or off.
    pub(super) fn rerouting(&self) -> &'static str {
        if self.paths > 1 { "on" } else { "off" }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<OutageResult, Cause> {
        let world = World::new(self.seed);
        let fabric = self.lay(&world);
        let broken = self.break_it(&world, &fabric);
        let devices = devices(&world, &fabric.hosts);
        let mut cluster =
            Cluster::new(world, devices, LOAD_BYTES, |host| self.endpoint(host))?.with_record();
        let end = broken.1 + Nanos(self.span.0 / 4);
        for (from, to) in self.pairs() {
            let plan = FlowPlan::closed(from, to, IO_BYTES).open(self.every, BACKLOG_MAX);
            cluster.add_flow(plan.between(Time::ZERO, end))?;
        }
        let links = self.pairs().count();
        if self.fault == Fault::Congestion {
            for client in 0..self.hosts {
                let plan = FlowPlan::closed(client, self.hosts, LOAD_BYTES).depth(LOAD_DEPTH);
                cluster.add_flow(plan.between(broken.0, broken.1))?;
            }
        }
        cluster.run_until(end);
        cluster.settle(SETTLE_MAX);
        let Record { answers, moves } = cluster.record().clone();
        Ok(OutageResult {
            answers: answers.into_iter().filter(|answer| answer.flow < links).collect(),
            refused: cluster.flows().take(links).map(|(_, count)| count.skipped).sum(),
            links,
            moves,
            broken,
            end: cluster.end(),
        })
    }

    /// Each client writes to every other server, so that half of them are on either leaf.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let hosts = self.hosts;
        (0..hosts).flat_map(move |client| {
            (0..hosts).map(move |server| (client, hosts + 2 * server + client % 2))
        })
    }

    fn endpoint(&self, host: usize) -> EndpointConfig {
        let config = EndpointConfig::new()
            .paths(self.paths)
            .links_max(self.hosts + 1)
            .quota_chunks(64)
            .credit_total(128);
        if host >= self.hosts {
            return config;
        }
        let ios = self.hosts * BACKLOG_MAX as usize;
        config.send_pools(&[(IO_BYTES as usize, ios), (LOAD_BYTES as usize, LOAD_DEPTH as usize)])
    }

    fn lay(&self, world: &World) -> Fabric {
        let usual = SwitchConfig::default();
        let port_buffer_bytes = match self.fault {
            Fault::Congestion => LOAD_BUFFER_BYTES,
            _ => usual.port_buffer_bytes,
        };
        let source_ports = if self.paths == 1 { 1 } else { SOURCE_PORTS };
        let fabric = LeafSpine {
            leaves: 3,
            hosts_per_leaf: self.hosts,
            spines: self.spines,
            host: HostConfig { delay: CABLE_DELAY, source_ports, ..HostConfig::default() },
            switch: SwitchConfig { port_buffer_bytes, ..usual },
            uplink: CableConfig { delay: CABLE_DELAY, ..CableConfig::default() },
        };
        fabric.build(world)
    }

    /// Says what breaks when; returns when that begins and ends.
    fn break_it(&self, world: &World, fabric: &Fabric) -> (Time, Time) {
        let (start, end) = (self.start, self.start + self.span);
        let silent = |switch, from, to| {
            world.change_at(from, Change::Switch(switch, Health::Silent));
            world.change_at(to, Change::Switch(switch, Health::Up));
        };
        // The uplinks of a leaf to all spines stand together, the first spine's first.
        let deaf = |leaf: usize| {
            let wire = fabric.uplinks[leaf * self.spines].forth();
            world.change_at(start, Change::Faults(wire, FaultPlan::none().black_hole(true)));
            world.change_at(end, Change::Faults(wire, FaultPlan::none()));
        };
        match self.fault {
            Fault::Spine => silent(fabric.spines[0], start, end),
            Fault::Forward => deaf(0),
            Fault::Reverse => (1..3).for_each(deaf),
            Fault::Flap => {
                let mut from = start;
                while from < end {
                    silent(fabric.spines[0], from, (from + FLAP).min(end));
                    from += FLAP.saturating_mul(2);
                }
            }
            Fault::AllButOne => {
                fabric.spines[1..].iter().for_each(|&spine| silent(spine, start, end));
            }
            Fault::Rack => silent(fabric.leaves[2], start, end),
            Fault::OneByOne { step, noticed } => {
                let (_, mortal) = fabric.spines.split_last().unwrap_or((&fabric.spines[0], &[]));
                for (place, &spine) in (0..).zip(mortal) {
                    let dies_at = start + step.saturating_mul(place);
                    let back_at = dies_at + step.saturating_mul(mortal.len() as u64);
                    world.change_at(dies_at, Change::Switch(spine, Health::Silent));
                    if dies_at + noticed < back_at {
                        world.change_at(dies_at + noticed, Change::Switch(spine, Health::Down));
                    }
                    world.change_at(back_at, Change::Switch(spine, Health::Up));
                }
            }
            Fault::Congestion => return (start, start + Nanos(self.span.0 / LOAD_PART)),
        }
        (start, end)
    }
}

impl OutageResult {
    /// I/Os that were asked for.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.answers.len() as u64 + self.refused
    }

    /// Those without an answer within `span`, those that were turned away among them.
    #[must_use]
    pub fn above(&self, span: Nanos) -> u64 {
        Answer::count_above(&self.answers, span) + self.refused
    }

    /// The longest answer.
    #[must_use]
    pub fn longest(&self) -> Nanos {
        Answer::longest(&self.answers)
    }

    /// Links with an I/O that took longer than `span`.
    #[must_use]
    pub fn links_above(&self, span: Nanos) -> u64 {
        let mut hit = vec![false; self.links];
        for answer in self.answers.iter().filter(|answer| answer.latency() > span) {
            hit[answer.flow] = true;
        }
        hit.iter().filter(|hit| **hit).count() as u64
    }

    /// How long after it was whole again the last I/O was answered that was sent before.
    #[must_use]
    pub fn over_after(&self) -> Nanos {
        let before = self.answers.iter().filter(|answer| answer.sent_at < self.broken.1);
        before.map(|answer| answer.answered_at.since(self.broken.1)).max().unwrap_or_default()
    }

    /// Paths that were doubted.
    #[must_use]
    pub fn doubts(&self) -> u64 {
        self.moves.iter().filter(|change| change.is_doubt()).count() as u64
    }

    /// Paths that were put away.
    #[must_use]
    pub fn put_away(&self) -> u64 {
        self.moves.iter().filter(|change| change.is_put_away()).count() as u64
    }

    /// How many moves of a kind one end of a link made within one second, the most of all.
    #[must_use]
    pub fn in_a_second(&self, is_one: impl Fn(&PathMove) -> bool) -> u64 {
        let mut by_link: BTreeMap<(usize, usize), Vec<Time>> = BTreeMap::new();
        for change in self.moves.iter().filter(|change| is_one(change)) {
            by_link.entry((change.host, change.link.index())).or_default().push(change.at);
        }
        by_link.values().map(|times| most_in_a_second(times)).max().unwrap_or(0)
    }

    /// What became of what was sent, and of paths that moved, from one time until another. What was
    /// turned away is of no time, and left out.
    #[must_use]
    pub fn between(&self, from: Time, to: Time) -> Self {
        let is_in = |at: Time| from <= at && at < to;
        let answers = self.answers.iter().filter(|answer| is_in(answer.sent_at));
        let moves = self.moves.iter().filter(|change| is_in(change.at));
        let (answers, moves) = (answers.copied().collect(), moves.copied().collect());
        Self { answers, moves, refused: 0, end: RunEnd::default(), ..*self }
    }

    /// The share of paths, of both ends of all links, that are good just before `at`.
    #[must_use]
    pub fn good_paths(&self, paths: usize, at: Time) -> f64 {
        let mut states = BTreeMap::new();
        for change in self.moves.iter().filter(|change| change.at < at) {
            states.insert((change.host, change.link.index(), change.path), change.to);
        }
        let bad = states.values().filter(|state| **state != PathState::Good).count();
        1.0 - bad as f64 / (2 * self.links * paths) as f64
    }

    /// The longest answer, in ms, of the I/Os that were sent in each `step`, by the middle of the
    /// step, in ms: for a plot.
    #[must_use]
    pub fn longest_by_step(&self, step: Nanos) -> Vec<(f64, f64)> {
        let mut longest = BTreeMap::new();
        for answer in &self.answers {
            let most = longest.entry(answer.sent_at.0 / step.0).or_insert(Nanos::ZERO);
            *most = answer.latency().max(*most);
        }
        let middle = |place: u64| (place as f64 + 0.5) * step.as_secs_f64() * 1e3;
        longest.into_iter().map(|(place, most)| (middle(place), most.as_secs_f64() * 1e3)).collect()
    }
}

/// How many of these times, which stand in their order, lie within one second, at most.
fn most_in_a_second(times: &[Time]) -> u64 {
    let second = Nanos::from_secs(1);
    let from = |place: usize| {
        times[place..].iter().take_while(|at| at.since(times[place]) < second).count()
    };
    (0..times.len()).map(from).max().unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(fault: Fault, paths: usize) -> OutageResult {
        let (every, start) = (Nanos::from_micros(500), Time(5_000_000));
        let span = Nanos::from_millis(150);
        let outage = Outage { seed: 5, fault, paths, spines: 4, hosts: 2, every, start, span };
        let result = outage.run().unwrap();
        assert_eq!(result.end.troubles, [""; 0], "seed 5, {fault:?}, {paths} paths");
        result
    }

    #[test]
    fn with_other_paths_no_link_waits_for_what_is_broken_and_with_one_most_do() {
        let (on, off) = (small(Fault::AllButOne, 8), small(Fault::AllButOne, 1));
        assert_eq!(on.links_above(Nanos::from_millis(100)), 0, "{:?}", on.longest());
        assert!(off.links_above(Nanos::from_millis(100)) > off.links as u64 / 2);
        assert!(on.doubts() > 0 && off.moves.is_empty());
        assert!(off.over_after() > Nanos::ZERO && on.over_after() == Nanos::ZERO);
    }

    #[test]
    fn nothing_happens_before_it_breaks_and_phases_add_up() {
        let on = small(Fault::Spine, 8);
        let (start, _) = on.broken;
        let (before, after) = (on.between(Time::ZERO, start), on.between(start, Time::NEVER));
        assert_eq!(before.ios() + after.ios(), on.ios());
        assert!(before.moves.is_empty() && !after.moves.is_empty());
        assert_eq!(on.good_paths(8, start), 1.0);
        let worst = on.moves.iter().map(|change| on.good_paths(8, change.at)).fold(1.0, f64::min);
        assert!(0.5 < worst && worst < 1.0, "{worst}");
        assert!(before.longest() < LATE && after.longest() < LATE, "{:?}", on.longest());
    }

    #[test]
    fn only_what_lies_within_a_second_counts_together() {
        let at = |times: &[u64]| {
            let times: Vec<Time> = times.iter().map(|ms| Time(ms * 1_000_000)).collect();
            most_in_a_second(&times)
        };
        assert_eq!(at(&[]), 0);
        assert_eq!(at(&[0, 1_000, 2_000]), 1);
        assert_eq!(at(&[0, 900, 1_800, 1_850, 2_700]), 3);
    }
}
