//! What the simulator itself costs: events a second as hosts grow, bare and with the whole stack.
//!
//! This is the one study whose figures are of the machine that it runs on: they are not the same
//! on every run, though what is simulated is.

mod report;

pub use report::STUDY;

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_lab::cluster::{Cluster, FlowPlan};
use towpath_lab::failure::Cause;
use towpath_lab::studies::RunEnd;
use towpath_sim::World;
use towpath_sim::world::{CableConfig, HostConfig, HostId, SwitchConfig, VirtualLink};
use towpath_transport::EndpointConfig;
use towpath_verbs::{PacketLink, TxPacket};

/// Hosts of a leaf switch.
const HOSTS_PER_LEAF: usize = 32;

/// Switches that join the leaves.
const SPINES: usize = 8;

/// Packets of each host that are under way in the bare run, for ever.
const UNDER_WAY: usize = 4;

/// BTH to ICRC of a full packet.
const PACKET_BYTES: usize = 4_096 + 16;

/// Bytes of each message of the whole stack.
const MESSAGE_BYTES: u32 = 64 << 10;

/// What is left out at the start: until then the slabs and heaps have grown to their size.
const WARM_UP: Nanos = Nanos::from_micros(200);

/// What one size came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Hosts.
    pub hosts: usize,
    /// Events of the world that were counted.
    pub events: u64,
    /// Packets that came in at hosts.
    pub packets: u64,
    /// Time on the processor that they took, in seconds: real time where the system does not tell.
    pub seconds: f64,
    /// What it ended with.
    pub end: RunEnd,
}

impl Cost {
    /// Events a second.
    #[must_use]
    pub fn events_per_s(&self) -> f64 {
        self.events as f64 / self.seconds
    }

    /// Nanoseconds for each event.
    #[must_use]
    pub fn ns_per_event(&self) -> f64 {
        self.seconds * 1e9 / self.events as f64
    }
}

/// Time of this thread, on the processor where the system tells, so that others who are busy on
/// the machine count less.
struct Stopwatch {
    real: Instant,
    on_cpu_ns: Option<u64>,
}

impl Stopwatch {
    fn start() -> Self {
        Self { real: Instant::now(), on_cpu_ns: on_cpu_ns() }
    }

    fn seconds(&self) -> f64 {
        let on_cpu = self.on_cpu_ns.zip(on_cpu_ns()).map(|(then, now)| now.saturating_sub(then));
        let on_cpu = on_cpu.filter(|&ns| ns > 0).map(|ns| ns as f64 / 1e9);
        on_cpu.unwrap_or_else(|| self.real.elapsed().as_secs_f64())
    }
}

/// The first number of Linux's `schedstat` of a thread: nanoseconds on the processor.
fn on_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn fabric(seed: u64, hosts: usize) -> (World, Vec<HostId>) {
    let world = World::new(seed);
    let config = SwitchConfig::default();
    let leaves: Vec<_> =
        (0..hosts.div_ceil(HOSTS_PER_LEAF)).map(|_| world.add_switch(&config)).collect();
    for _ in 0..SPINES {
        let spine = world.add_switch(&config);
        for &leaf in &leaves {
            world.connect(leaf, spine, &CableConfig::default());
        }
    }
    let add = |host| world.add_host(leaves[host / HOSTS_PER_LEAF], &HostConfig::default());
    let ids = (0..hosts).map(add).collect();
    (world, ids)
}

/// A host that answers each packet with one to somebody.
struct Tosser {
    end: VirtualLink,
    prng: Prng,
    all: Rc<[SocketAddr]>,
    /// Packets that the network card has not taken yet.
    owed: usize,
}

impl Tosser {
    fn turn(&mut self) {
        let packet = [0x5a; PACKET_BYTES];
        self.owed += self.end.receive(usize::MAX, &mut |_| {});
        while self.owed > 0 {
            let dest = self.all[self.prng.below(self.all.len() as u64) as usize];
            let source_port = self.prng.below(16) as u16;
            let mut tx = TxPacket::new(dest, source_port, 0);
            tx.push(&packet);
            if self.end.transmit(&[tx]) == 0 {
                return;
            }
            self.owed -= 1;
        }
    }
}

/// Packets alone, tossed between `hosts` for `span` of virtual time.
#[must_use]
pub fn bare(seed: u64, hosts: usize, span: Nanos) -> Cost {
    let (world, ids) = fabric(seed, hosts);
    let all: Rc<[SocketAddr]> = ids.iter().map(|&id| world.end(id).local_addr()).collect();
    let mut tossers: Vec<Tosser> = ids
        .iter()
        .map(|&id| {
            let (prng, all) = (Prng::new(world.next_seed()), Rc::clone(&all));
            Tosser { end: world.end(id), prng, all, owed: UNDER_WAY }
        })
        .collect();
    tossers.iter_mut().for_each(Tosser::turn);
    let mut woken = Vec::new();
    let mut run_until = |end: Time| {
        while world.advance_to_next(end, &mut woken) {
            woken.drain(..).for_each(|host| tossers[host.0 as usize].turn());
        }
    };
    run_until(world.now() + WARM_UP);
    let (before, begin) = (world.counters(), Stopwatch::start());
    run_until(world.now() + span);
    let (seconds, after) = (begin.seconds(), world.counters());
    let (events, packets) = (after.events - before.events, after.delivered - before.delivered);
    let end = RunEnd { traces: vec![("bare", world.trace_hash())], troubles: Vec::new() };
    Cost { hosts, events, packets, seconds, end }
}

/// The whole stack: every host an endpoint over the userspace NIC, sending to one other.
///
/// # Errors
/// [`Cause`] when the hosts cannot be made or joined.
pub fn whole(seed: u64, hosts: usize, span: Nanos) -> Result<Cost, Cause> {
    let (world, ids) = fabric(seed, hosts);
    let config = RoceConfig::default().qp_max(16);
    let devices = ids.iter().map(|&id| RoceDevice::new(world.end(id), config.clone())).collect();
    let endpoint = |_| {
        EndpointConfig::new()
            .quota_chunks(8)
            .credit_total(8)
            .links_max(2)
            // Few and small buffers, so that the caches are asked for what the stack does.
            .chunk_bytes_max((16 << 10) - 64)
            .progress_budget(8)
            .receive_slack(0)
            .send_queue_depth(32)
            .send_pools(&[(MESSAGE_BYTES as usize, 2)])
    };
    let mut cluster = Cluster::new(world, devices, MESSAGE_BYTES, endpoint)?;
    let stride = hosts / 2 + 1;
    for from in 0..hosts {
        cluster.add_flow(FlowPlan::closed(from, (from + stride) % hosts, MESSAGE_BYTES))?;
    }
    cluster.run_for(WARM_UP);
    let (before, begin) = (cluster.world().counters(), Stopwatch::start());
    cluster.run_for(span);
    let (seconds, after) = (begin.seconds(), cluster.world().counters());
    let (events, packets) = (after.events - before.events, after.delivered - before.delivered);
    let end = cluster.end_of("whole stack");
    Ok(Cost { hosts, events, packets, seconds, end })
}

/// Of each size, which each round has at the same place, the round that took the median time.
#[must_use]
pub fn medians(rounds: Vec<Vec<Cost>>) -> Vec<Cost> {
    let mut sizes: Vec<Vec<Cost>> = Vec::new();
    for round in rounds {
        sizes.resize_with(round.len(), Vec::new);
        sizes.iter_mut().zip(round).for_each(|(seen, cost)| seen.push(cost));
    }
    let median = |mut seen: Vec<Cost>| {
        seen.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let middle = seen.len().saturating_sub(1) / 2;
        seen.into_iter().nth(middle)
    };
    sizes.into_iter().filter_map(median).collect()
}

/// How many times faster the cost of an event grew from the first size to the last than the
/// logarithm of the hosts did: at most 1 is no faster.
#[must_use]
pub fn growth_beyond_log(costs: &[Cost]) -> Option<f64> {
    let (first, last) = (costs.first()?, costs.last()?);
    let cost = last.ns_per_event() / first.ns_per_event();
    let log = (last.hosts as f64).ln() / (first.hosts as f64).ln();
    (first.hosts < last.hosts).then_some(cost / log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_tossed_for_ever_and_the_same_on_every_run() {
        let span = Nanos::from_micros(300);
        let (first, again, other) = (bare(1, 64, span), bare(1, 64, span), bare(2, 64, span));
        assert!(first.packets > 64 * 20, "{first:?}");
        assert_eq!((&first.end, first.events), (&again.end, again.events));
        assert_ne!(first.end.traces, other.end.traces);
        let stack = whole(1, 64, span).unwrap();
        assert!(stack.packets > 64 * 20, "{stack:?}");
        assert_eq!(stack.end.troubles, [""; 0]);
    }

    fn cost(hosts: usize, seconds: f64) -> Cost {
        Cost { hosts, events: 1, packets: 1, seconds, end: RunEnd::default() }
    }

    #[test]
    fn one_round_that_was_disturbed_counts_for_nothing() {
        let rounds = [[1.0, 5.0], [9.0, 4.0], [2.0, 50.0]];
        let round = |[a, b]: [f64; 2]| vec![cost(16, a), cost(256, b)];
        assert_eq!(medians(rounds.map(round).into()), [cost(16, 2.0), cost(256, 5.0)]);
        assert_eq!(medians(vec![round([1.0, 2.0])]), round([1.0, 2.0]));
    }

    #[test]
    fn growth_is_measured_against_the_logarithm() {
        assert_eq!(growth_beyond_log(&[cost(16, 1.0), cost(256, 2.0)]), Some(1.0));
        assert_eq!(growth_beyond_log(&[cost(16, 1.0), cost(256, 1.0)]), Some(0.5));
        assert_eq!(growth_beyond_log(&[cost(16, 1.0)]), None);
    }
}
