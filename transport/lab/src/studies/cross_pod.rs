//! Two pods of unlike network cards: what a client gets when more of its servers are in the other.
//!
//! Within a pod there is one switch, between the pods some spines. RC wants a lossless network;
//! it has one within the pods (pauses by priority flow control) and none between them, as where
//! pods are joined by a network that nobody wants to pause. Towpath runs on the same network
//! without pauses.

mod report;

pub use report::STUDY;

use super::mixed_nics::NicMake;
use crate::cluster::{Cluster, FlowPlan, RcCluster, Window};
use crate::failure::Cause;
use crate::studies::RunEnd;
use towpath_base::Nanos;
use towpath_cc::ControllerConfig;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::World;
use towpath_sim::world::{
    CableConfig, HostConfig, HostDelay, PfcConfig, SwitchConfig, VirtualLink,
};
use towpath_transport::EndpointConfig;
use towpath_verbs::{Mtu, RcAttr};

const MESSAGE_BYTES: u32 = 64 << 10;

/// Messages of each flow under way at a time.
const DEPTH: u32 = 4;

/// Servers that each client sends to.
pub const SERVERS: usize = 4;

/// What is under way at the end has so long to come.
const SETTLE_MAX: Nanos = Nanos::from_millis(100);

/// Two pods, and where the servers of each client are.
#[derive(Clone, Debug)]
pub struct CrossPod {
    /// Where everything random comes from.
    pub seed: u64,
    /// The congestion controller of Towpath.
    pub controller: ControllerConfig,
    /// The card of each pod.
    pub nics: [NicMake; 2],
    /// Hosts of each pod; each is a client and a server.
    pub hosts_each: usize,
    /// Servers of each client that are in the other pod, of [`SERVERS`].
    pub remote: usize,
    /// Of every host, in bits a second.
    pub rate_bits_per_s: u64,
    /// Switches between the pods, each at 100 Gb/s to either.
    pub spines: usize,
    /// What is left out at the start.
    pub warm_up: Nanos,
    /// What is measured.
    pub span: Nanos,
}

impl CrossPod {
    /// Eight hosts in each pod at 50 Gb/s, and five spines: a quarter more than they can send,
    /// which equal-cost paths chosen by a hash still overload now and then.
    #[must_use]
    pub fn new(seed: u64, controller: ControllerConfig, remote: usize) -> Self {
        let delay = |fixed, jitter| HostDelay { fixed: Nanos(fixed), jitter: Nanos(jitter) };
        Self {
            seed,
            controller,
            nics: [
                NicMake { host_delay: delay(300, 100), rc_window_packets: 32, rc_timeout: 8 },
                NicMake { host_delay: delay(400, 200), rc_window_packets: 16, rc_timeout: 8 },
            ],
            hosts_each: 8,
            remote: remote.min(SERVERS),
            rate_bits_per_s: 50_000_000_000,
            spines: 5,
            warm_up: Nanos::from_millis(8),
            span: Nanos::from_millis(12),
        }
    }
}

/// What the clients of each pod got, in bits a second and client.
#[derive(Clone, Debug)]
pub struct CrossPodResult {
    /// Over RC.
    pub rc: [f64; 2],
    /// RC queue pairs that gave up.
    pub rc_broken: usize,
    /// Over Towpath.
    pub towpath: [f64; 2],
    /// Packets that switches dropped: under RC, under Towpath.
    pub dropped: [u64; 2],
    /// What it ended with.
    pub end: RunEnd,
}

impl CrossPod {
    /// Runs it over both.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<CrossPodResult, Cause> {
        let (world, devices) = self.lay(true);
        let mut rc = RcCluster::new(world, devices, MESSAGE_BYTES)?;
        for plan in self.plans() {
            let timeout = self.nic(plan.from).rc_timeout;
            rc.add_flow(plan, Mtu::Mtu4096, RcAttr { timeout, ..RcAttr::default() })?;
        }
        rc.run_for(self.warm_up);
        let begin = rc.moment();
        rc.run_for(self.span);
        let rc_window = rc.since(&begin);

        let (world, devices) = self.lay(false);
        let mut towpath = Cluster::new(world, devices, MESSAGE_BYTES, |_| self.endpoint())?;
        for plan in self.plans() {
            towpath.add_flow(plan)?;
        }
        towpath.run_for(self.warm_up);
        let begin = towpath.moment();
        towpath.run_for(self.span);
        let window = towpath.since(&begin);
        towpath.settle(SETTLE_MAX);
        Ok(CrossPodResult {
            rc: self.by_pod(&rc_window),
            rc_broken: rc.broken(),
            towpath: self.by_pod(&window),
            dropped: [rc.world().counters(), towpath.world().counters()]
                .map(|counters| counters.dropped_queue),
            end: towpath.end_of("towpath").after("rc", rc.world().trace_hash()),
        })
    }

    fn endpoint(&self) -> EndpointConfig {
        let links = 2 * 2 * self.hosts_each;
        EndpointConfig::new()
            .quota_chunks(64)
            .credit_total(64)
            .links_max(links)
            .controller(self.controller)
            .send_pools(&[(MESSAGE_BYTES as usize, SERVERS * DEPTH as usize)])
    }

    /// Hosts are numbered pod by pod.
    fn pod(&self, host: usize) -> usize {
        host / self.hosts_each
    }

    fn nic(&self, host: usize) -> &NicMake {
        &self.nics[self.pod(host)]
    }

    /// Each client has the next hosts of its own pod, and those over against them, as servers: so
    /// every host serves as many clients.
    fn plans(&self) -> impl Iterator<Item = FlowPlan> {
        let (each, remote) = (self.hosts_each, self.remote);
        (0..2 * each).flat_map(move |from| {
            (1..=SERVERS).map(move |server| {
                let pod = if server <= remote { 1 - from / each } else { from / each };
                let to = pod * each + (from + server) % each;
                FlowPlan::closed(from, to, MESSAGE_BYTES).depth(DEPTH)
            })
        })
    }

    fn lay(&self, lossless_pods: bool) -> (World, Vec<RoceDevice<VirtualLink>>) {
        let world = World::new(self.seed);
        let lossy = SwitchConfig::default();
        let pfc = lossless_pods.then(PfcConfig::default);
        let leaf = SwitchConfig { pfc, ..lossy };
        let leaves = [(); 2].map(|()| world.add_switch(&leaf));
        for _ in 0..self.spines {
            let spine = world.add_switch(&lossy);
            for leaf in leaves {
                world.connect(leaf, spine, &CableConfig::default());
            }
        }
        let device = |host| {
            let nic = self.nic(host);
            let config = HostConfig {
                rate_bits_per_s: self.rate_bits_per_s,
                tx_delay: nic.host_delay,
                rx_delay: nic.host_delay,
                ..HostConfig::default()
            };
            let roce = RoceConfig::default().rc_window_packets(nic.rc_window_packets);
            RoceDevice::new(world.end(world.add_host(leaves[self.pod(host)], &config)), roce)
        };
        let devices = (0..2 * self.hosts_each).map(device).collect();
        (world, devices)
    }

    fn by_pod(&self, window: &Window) -> [f64; 2] {
        let mut goodput = [0.0; 2];
        for (plan, flow) in self.plans().zip(window.goodputs()) {
            goodput[self.pod(plan.from)] += flow / self.hosts_each as f64;
        }
        goodput
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_serves_as_many_clients_wherever_they_are() {
        for remote in 0..=SERVERS {
            let study = CrossPod::new(1, ControllerConfig::default(), remote);
            let mut served = vec![0; 2 * study.hosts_each];
            let mut crossing = 0;
            for plan in study.plans() {
                assert_ne!(plan.from, plan.to);
                served[plan.to] += 1;
                crossing += usize::from(study.pod(plan.from) != study.pod(plan.to));
            }
            assert_eq!(served, vec![SERVERS; 2 * study.hosts_each]);
            assert_eq!(crossing, remote * 2 * study.hosts_each);
        }
    }
}
