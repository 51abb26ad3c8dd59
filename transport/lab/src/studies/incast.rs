//! N senders, one receiver, one port: who gets how much of it, and how long its queue is.

mod report;

pub use report::STUDY;

use crate::cluster::{Cluster, FlowPlan, Samples, Window};
use crate::failure::Cause;
use crate::studies::RunEnd;
use crate::wr_device::WrDevice;
use towpath_base::{Nanos, Prng, Time};
use towpath_cc::{ControllerConfig, PathFacts, Swift};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::Region;
use towpath_sim::World;
use towpath_sim::world::{HostConfig, HostId, SwitchConfig, VirtualLink, WireId};
use towpath_transport::EndpointConfig;
use towpath_verbs::{Device, PacketLink};

/// How often the queue is looked at: a packet of 4,096 bytes takes 330 ns at 100 Gb/s.
const LOOK_EACH: Nanos = Nanos::from_micros(2);

/// Senders start at random within this span. Hosts that are told at once differ by more: the
/// default timer slack of Linux is 50 us. It is shorter than the first packets of 300 of them take,
/// so they still come all at once; with the same start for all, all seeds would give one run.
const START_SPREAD: Nanos = Nanos::from_micros(100);

/// What is under way at the end has so many spans to come: a sender of thousands may just have sent
/// a packet when all stop, and only finds out then that the port is free.
const SETTLE_SPANS_MAX: u64 = 20;

/// With more senders than this, chunks are kept to four packets: the receiver keeps 17 buffers
/// for each of them.
const SENDERS_WITH_FULL_CHUNKS_MAX: usize = 1_000;

/// Whether packets or whole messages cross the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Each packet by itself, through the userspace NIC.
    Packets,
    /// Each chunk as one train, through the work-request level.
    WorkRequests,
}

/// An incast.
#[derive(Clone, Debug)]
pub struct Incast {
    /// Where everything random comes from.
    pub seed: u64,
    /// Packets or trains.
    pub level: Detail,
    /// Senders, each with a link, a channel and a host of its own.
    pub senders: usize,
    /// The congestion controller of each.
    pub controller: ControllerConfig,
    /// Bytes of a message; each sender sends one after another.
    pub message_bytes: u32,
    /// Of every wire, in bits a second.
    pub rate_bits_per_s: u64,
    /// There and back with nothing in the way.
    pub base_rtt: Nanos,
    /// What the receiver's port can hold.
    pub port_buffer_bytes: u64,
    /// What hosts are like, but for their rate and their distance.
    pub host: HostConfig,
    /// What is left out at the start.
    pub warm_up: Nanos,
    /// What is measured after it.
    pub span: Nanos,
    /// What is under way at the end has so long to come, or twenty spans if that is more.
    pub settle: Nanos,
}

impl Incast {
    /// `senders` to one at 100 Gb/s, 10 us and 16 MiB of port buffer, 64 KiB at a time.
    #[must_use]
    pub fn new(seed: u64, level: Detail, senders: usize, controller: ControllerConfig) -> Self {
        // Each sender's share of the port is a message each `senders` x 5.3 us.
        let turn = Nanos::from_micros(6).saturating_mul(senders as u64);
        Self {
            seed,
            level,
            senders,
            controller,
            message_bytes: 64 << 10,
            rate_bits_per_s: 100_000_000_000,
            base_rtt: Nanos::from_micros(10),
            port_buffer_bytes: 16 << 20,
            host: HostConfig::default(),
            warm_up: turn.saturating_mul(2).max(Nanos::from_millis(10)),
            span: turn.saturating_mul(5).max(Nanos::from_millis(20)),
            settle: Nanos::ZERO,
        }
    }
}

/// What an incast came to.
#[derive(Clone, Debug)]
pub struct IncastResult {
    /// What the flows did.
    pub window: Window,
    /// The share of the receiver's wire that carried packets, headers of all layers counted in.
    pub utilisation: f64,
    /// How long a packet that came now would wait at the port, in microseconds, looked at every
    /// two.
    pub queue_us: Samples,
    /// The queue that the controller aims at, in microseconds, where it has such a target: its
    /// target less the base round trip, for a window of the senders' equal share.
    pub target_us: Option<f64>,
    /// Packets that the port dropped.
    pub packets_dropped: u64,
    /// Flows of which no message was delivered.
    pub starved: usize,
    /// Chunks that found no receive buffer: none, if credit is right.
    pub no_recv_wqe: u64,
    /// Events of the world.
    pub events: u64,
    /// What it ended with.
    pub end: RunEnd,
}

impl Incast {
    /// Runs it.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<IncastResult, Cause> {
        let world = World::new(self.seed);
        let port_buffer_bytes = self.port_buffer_bytes;
        let switch =
            world.add_switch(&SwitchConfig { port_buffer_bytes, ..SwitchConfig::default() });
        let config = HostConfig {
            rate_bits_per_s: self.rate_bits_per_s,
            delay: Nanos(self.base_rtt.0 / 4),
            ..self.host
        };
        let hosts: Vec<HostId> =
            (0..=self.senders).map(|_| world.add_host(switch, &config)).collect();
        let port = world.cable(hosts[0]).back();
        let ends: Vec<VirtualLink> = hosts.iter().map(|&host| world.end(host)).collect();
        match self.level {
            Detail::Packets => {
                let config = RoceConfig::default().qp_max(2 * self.senders as u32 + 2);
                let devices = ends.into_iter().map(|end| RoceDevice::new(end, config.clone()));
                let dry = |device: &RoceDevice<_>| device.counters().no_recv_wqe;
                self.run_on(world, devices.collect(), port, dry)
            }
            Detail::WorkRequests => {
                let devices = ends.into_iter().map(|end| WrDevice::new(end, self.seed));
                let dry = |device: &WrDevice<_>| device.counters().no_recv_wqe;
                self.run_on(world, devices.collect(), port, dry)
            }
        }
    }

    /// See [`IncastResult::target_us`].
    fn target_us(&self) -> Option<f64> {
        let ControllerConfig::Swift(config) = self.controller else { return None };
        let facts = PathFacts::default();
        let swift = Swift::new(config, Time::ZERO, &facts);
        let share = self.rate_bits_per_s as f64 / 8e9 / self.senders as f64;
        // Target and window depend on each other; a few steps settle them.
        let mut target = swift.target_at(self.base_rtt, 1.0);
        for _ in 0..32 {
            let packets = target.0 as f64 * share / f64::from(facts.packet_bytes);
            target = swift.target_at(self.base_rtt, packets);
        }
        Some((target - self.base_rtt).0 as f64 / 1e3)
    }

    fn endpoint(&self, host: usize) -> EndpointConfig {
        let full = self.senders <= SENDERS_WITH_FULL_CHUNKS_MAX;
        let config = EndpointConfig::new()
            .quota_chunks(8)
            .credit_total(8)
            .receive_slack(0)
            .chunk_bytes_max(if full { 56 << 10 } else { (16 << 10) - 64 })
            .send_queue_depth(32)
            .controller(self.controller);
        match host {
            0 => config.links_max(self.senders).send_pools(&[(64, 1)]),
            _ => config.links_max(1).send_pools(&[(self.message_bytes as usize, 2)]),
        }
    }

    fn run_on<D: Device<Memory = Region>>(
        &self,
        world: World,
        devices: Vec<D>,
        port: WireId,
        dry: impl Fn(&D) -> u64,
    ) -> Result<IncastResult, Cause> {
        let overhead_bytes = u64::from(HostConfig::default().overhead_bytes);
        let mut cluster =
            Cluster::new(world, devices, self.message_bytes, |host| self.endpoint(host))?;
        let mut prng = Prng::new(cluster.world().next_seed());
        for sender in 1..=self.senders {
            let start = Time(prng.below(START_SPREAD.0));
            let plan = FlowPlan::closed(sender, 0, self.message_bytes);
            cluster.add_flow(plan.between(start, Time::NEVER))?;
        }
        cluster.run_for(self.warm_up);
        let (begin, before) = (cluster.moment(), cluster.world().counters());
        let carried = |cluster: &Cluster<D>| {
            let counters = cluster.world().end(HostId(0)).counters();
            counters.bytes_received + counters.packets_received * overhead_bytes
        };
        let carried_before = carried(&cluster);
        let mut queue_us = Samples::new();
        let end = cluster.now() + self.span;
        while cluster.now() < end {
            cluster.run_for(LOOK_EACH);
            let queued_bytes = cluster.world().queued_bytes(port);
            queue_us.add(queued_bytes as f64 * 8e6 / self.rate_bits_per_s as f64);
        }
        let window = cluster.since(&begin);
        let after = cluster.world().counters();
        let bits = (carried(&cluster) - carried_before) as f64 * 8.0;
        let all = window.span.as_secs_f64() * self.rate_bits_per_s as f64;
        cluster.settle(self.span.saturating_mul(SETTLE_SPANS_MAX).max(self.settle));
        let hosts = 0..=self.senders;
        Ok(IncastResult {
            utilisation: bits / all,
            queue_us,
            target_us: self.target_us(),
            packets_dropped: after.dropped_queue - before.dropped_queue,
            starved: window.flows.iter().filter(|flow| flow.delivered == 0).count(),
            no_recv_wqe: hosts.map(|host| dry(cluster.endpoint(host).device())).sum(),
            events: after.events - before.events,
            end: cluster.end(),
            window,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(level: Detail) -> Incast {
        let controller = "fixed:64KiB".parse().unwrap();
        let (warm_up, span) = (Nanos::from_millis(1), Nanos::from_millis(2));
        Incast { warm_up, span, ..Incast::new(7, level, 8, controller) }
    }

    #[test]
    fn eight_senders_share_a_port_at_either_level_and_replay() {
        for level in [Detail::Packets, Detail::WorkRequests] {
            let result = small(level).run().unwrap();
            assert_eq!(result.end.troubles, [""; 0], "{level:?}");
            assert_eq!((result.no_recv_wqe, result.starved), (0, 0), "{level:?}");
            // They end their messages together, and then wait a round trip together.
            let used = result.utilisation;
            assert!((0.75..=1.001).contains(&used), "{level:?}: {used}");
            assert!(result.window.fairness() > 0.95, "{level:?}");
            assert_eq!(result.end, small(level).run().unwrap().end, "{level:?}");
        }
    }

    #[test]
    fn another_seed_is_another_run() {
        for level in [Detail::Packets, Detail::WorkRequests] {
            let [one, other] = [7, 8].map(|seed| Incast { seed, ..small(level) }.run().unwrap());
            assert_ne!(one.end.traces, other.end.traces, "{level:?}");
            assert_ne!(one.window.flows, other.window.flows, "{level:?}");
        }
    }

    #[test]
    fn both_levels_see_the_same_queue() {
        let seen = [Detail::Packets, Detail::WorkRequests]
            .map(|level| small(level).run().unwrap().queue_us.percentile(0.5));
        assert!((seen[0] - seen[1]).abs() < 0.25 * seen[0], "{seen:?} us");
    }
}
