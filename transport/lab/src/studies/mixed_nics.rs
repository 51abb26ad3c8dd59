//! Fast and slow network cards in one cluster: what each kind gets, over RC and over Towpath.
//!
//! Two makes of card differ less in their line rate than in what they do around it: how long a
//! packet takes through the host, how much a queue pair keeps under way, how soon it repeats.
//! Over RC these decide who gets the shared ports. Here all ports have the same 50 Gb/s, every
//! sender sends to every receiver, there are three receivers for four senders, so that an equal
//! share is 37.5 Gb/s, and the network may drop.

mod report;

pub use report::STUDY;

use crate::cluster::{Cluster, FlowPlan, RcCluster, Window};
use crate::failure::Cause;
use crate::studies::RunEnd;
use towpath_base::Nanos;
use towpath_cc::ControllerConfig;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::World;
use towpath_sim::world::{HostConfig, HostDelay, SwitchConfig, VirtualLink};
use towpath_transport::EndpointConfig;
use towpath_verbs::{Mtu, RcAttr};

const MESSAGE_BYTES: u32 = 64 << 10;

/// Messages of each flow under way at a time.
const DEPTH: u32 = 4;

/// What is under way at the end has so long to come.
const SETTLE_MAX: Nanos = Nanos::from_millis(100);

type Nics = RoceDevice<VirtualLink>;

/// A make of network card, with the host around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicMake {
    /// From the wire to software, and from software to the wire, each.
    pub host_delay: HostDelay,
    /// Packets that an RC queue pair keeps under way.
    pub rc_window_packets: u32,
    /// How long an RC acknowledgement may take, as the exponent of `ibv_modify_qp`.
    pub rc_timeout: u8,
}

/// A cluster of two makes.
#[derive(Clone, Debug)]
pub struct MixedNics {
    /// Where everything random comes from.
    pub seed: u64,
    /// The congestion controller of Towpath.
    pub controller: ControllerConfig,
    /// The newer make.
    pub fast: NicMake,
    /// The older make.
    pub slow: NicMake,
    /// Senders of each make. Receivers, which are of the newer make, are three for four senders.
    pub hosts_each: usize,
    /// Of every port, in bits a second.
    pub rate_bits_per_s: u64,
    /// What a port of the switch holds.
    pub port_buffer_bytes: u64,
    /// What is left out at the start.
    pub warm_up: Nanos,
    /// What is measured.
    pub span: Nanos,
}

impl MixedNics {
    /// Four senders of each make at 50 Gb/s (two ports of 25), as in the published cluster.
    #[must_use]
    pub fn new(seed: u64, controller: ControllerConfig) -> Self {
        let delay = |fixed, jitter| HostDelay { fixed: Nanos(fixed), jitter: Nanos(jitter) };
        Self {
            seed,
            controller,
            fast: NicMake { host_delay: delay(300, 100), rc_window_packets: 32, rc_timeout: 8 },
            slow: NicMake { host_delay: delay(400, 200), rc_window_packets: 24, rc_timeout: 8 },
            hosts_each: 4,
            rate_bits_per_s: 50_000_000_000,
            port_buffer_bytes: 1 << 20,
            warm_up: Nanos::from_millis(10),
            span: Nanos::from_millis(20),
        }
    }
}

/// What each make got, in bits a second and host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// What a host of the newer make sent.
    pub fast: f64,
    /// What a host of the older make sent.
    pub slow: f64,
    /// Jain's index over all senders.
    pub fairness: f64,
}

impl Shares {
    /// How far the slow are behind the fast, of what the fast get.
    #[must_use]
    pub fn gap(&self) -> f64 {
        1.0 - self.slow.min(self.fast) / self.slow.max(self.fast)
    }
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct MixedResult {
    /// Over RC.
    pub rc: Shares,
    /// RC queue pairs that gave up.
    pub rc_broken: usize,
    /// Packets that ports dropped under RC.
    pub rc_dropped: u64,
    /// Over Towpath.
    pub towpath: Shares,
    /// What Towpath sent again, of all it sent.
    pub retransmitted: f64,
    /// What it ended with.
    pub end: RunEnd,
}

impl MixedNics {
    /// Runs it over both.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<MixedResult, Cause> {
        let (rc, window, rc_dropped) = self.run_rc()?;
        let (towpath, towpath_window) = self.run_towpath()?;
        Ok(MixedResult {
            rc: self.shares(&window),
            rc_broken: rc.broken(),
            rc_dropped,
            towpath: self.shares(&towpath_window),
            retransmitted: towpath_window.retransmitted(),
            end: towpath.end_of("towpath").after("rc", rc.world().trace_hash()),
        })
    }

    fn senders(&self) -> usize {
        2 * self.hosts_each
    }

    fn hosts(&self) -> usize {
        self.senders() + (3 * self.hosts_each).div_ceil(2)
    }

    /// Senders are fast and slow by turns.
    fn nic(&self, host: usize) -> &NicMake {
        let is_slow = host < self.senders() && !host.is_multiple_of(2);
        if is_slow { &self.slow } else { &self.fast }
    }

    fn plans(&self) -> impl Iterator<Item = FlowPlan> {
        let (senders, hosts) = (self.senders(), self.hosts());
        let pairs = (0..senders).flat_map(move |from| (senders..hosts).map(move |to| (from, to)));
        pairs.map(|(from, to)| FlowPlan::closed(from, to, MESSAGE_BYTES).depth(DEPTH))
    }

    fn lay(&self) -> (World, Vec<Nics>) {
        let world = World::new(self.seed);
        let port_buffer_bytes = self.port_buffer_bytes;
        let switch =
            world.add_switch(&SwitchConfig { port_buffer_bytes, ..SwitchConfig::default() });
        let device = |host| {
            let nic = self.nic(host);
            let config = HostConfig {
                rate_bits_per_s: self.rate_bits_per_s,
                tx_delay: nic.host_delay,
                rx_delay: nic.host_delay,
                ..HostConfig::default()
            };
            let roce = RoceConfig::default().rc_window_packets(nic.rc_window_packets);
            RoceDevice::new(world.end(world.add_host(switch, &config)), roce)
        };
        let devices = (0..self.hosts()).map(device).collect();
        (world, devices)
    }

    fn run_rc(&self) -> Result<(RcCluster<Nics>, Window, u64), Cause> {
        let (world, devices) = self.lay();
        let mut cluster = RcCluster::new(world, devices, MESSAGE_BYTES)?;
        for plan in self.plans() {
            let rc = RcAttr { timeout: self.nic(plan.from).rc_timeout, ..RcAttr::default() };
            cluster.add_flow(plan, Mtu::Mtu4096, rc)?;
        }
        cluster.run_for(self.warm_up);
        let (begin, before) = (cluster.moment(), cluster.world().counters());
        cluster.run_for(self.span);
        let dropped = cluster.world().counters().dropped_queue - before.dropped_queue;
        let window = cluster.since(&begin);
        Ok((cluster, window, dropped))
    }

    fn run_towpath(&self) -> Result<(Cluster<Nics>, Window), Cause> {
        let (world, devices) = self.lay();
        let links = self.hosts();
        let endpoint = |_| {
            EndpointConfig::new()
                .quota_chunks(64)
                .credit_total(64)
                .links_max(links)
                .controller(self.controller)
                .send_pools(&[(MESSAGE_BYTES as usize, links * DEPTH as usize)])
        };
        let mut cluster = Cluster::new(world, devices, MESSAGE_BYTES, endpoint)?;
        for plan in self.plans() {
            cluster.add_flow(plan)?;
        }
        cluster.run_for(self.warm_up);
        let begin = cluster.moment();
        cluster.run_for(self.span);
        let window = cluster.since(&begin);
        cluster.settle(SETTLE_MAX);
        Ok((cluster, window))
    }

    fn shares(&self, window: &Window) -> Shares {
        let mut sent = vec![0.0; self.senders()];
        for (plan, goodput) in self.plans().zip(window.goodputs()) {
            sent[plan.from] += goodput;
        }
        let mean =
            |first: usize| sent.iter().skip(first).step_by(2).sum::<f64>() / self.hosts_each as f64;
        let fairness = crate::cluster::jain(sent.iter().copied());
        Shares { fast: mean(0), slow: mean(1), fairness }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_cards_get_equal_shares_of_the_ports() {
        let controller = "fixed:64KiB".parse().unwrap();
        let mut mixed = MixedNics::new(5, controller);
        mixed.slow = mixed.fast;
        (mixed.warm_up, mixed.span) = (Nanos::from_millis(2), Nanos::from_millis(4));
        let result = mixed.run().unwrap();
        assert_eq!((result.end.troubles, result.rc_broken), (vec![], 0));
        assert!(result.towpath.gap() < 0.05, "{:?}", result.towpath);
        assert!(result.towpath.fast > 34e9, "{:?}", result.towpath);
        assert!(result.rc.fast > 1e9, "{:?}", result.rc);
    }
}
