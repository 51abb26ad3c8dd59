//! Fast and slow network cards in one cluster: what each kind gets, over RC and over Towpath.
//!
//! Two makes of card differ in their line rate and in what they do around it: how long a packet
//! takes through the host, how much a queue pair keeps under way, what it repeats and when, and
//! how its control of congestion is set. Over RC these decide who gets the shared ports. Every
//! sender sends to every receiver, and the ports of the receivers carry three quarters of what the
//! senders can send.

mod report;

pub use report::STUDY;

use crate::cluster::{Cluster, FlowPlan, Window};
use crate::failure::Cause;
use crate::nic::{DcqcnConfig, NicCluster, NicConfig, Repair};
use crate::studies::RunEnd;
use towpath_base::Nanos;
use towpath_cc::ControllerConfig;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::world::{EcnConfig, HostConfig, HostDelay, SwitchConfig, VirtualLink};
use towpath_sim::{HostId, World};
use towpath_transport::EndpointConfig;

const MESSAGE_BYTES: u32 = 64 << 10;

/// Messages of each flow under way at a time.
const DEPTH: u32 = 4;

/// What is under way at the end has so long to come.
const SETTLE_MAX: Nanos = Nanos::from_millis(100);

/// What a card of the model hands to its wire ahead: it has its own queues, one for each queue
/// pair, and holds a packet back until the wire is nearly free.
const CARD_QUEUE_BYTES: u64 = 16 << 10;

/// How long cards run before they are measured. DCQCN starts at line rate, falls far below the
/// fair share, and then adds 40 Mb/s in 55 us: 29 Gb/s in this time.
const CARD_WARM_UP: Nanos = Nanos::from_millis(40);

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

/// A make of card as a sender has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderMake {
    /// The card and its host.
    pub nic: NicMake,
    /// Of its port, in bits a second.
    pub rate_bits_per_s: u64,
    /// What an RC queue pair sends again.
    pub repair: Repair,
    /// How its control of congestion is set, where it is on.
    pub dcqcn: DcqcnConfig,
}

/// A cluster of two makes.
#[derive(Clone, Debug)]
pub struct MixedNics {
    /// Where everything random comes from.
    pub seed: u64,
    /// The congestion controller of Towpath.
    pub controller: ControllerConfig,
    /// The newer make.
    pub fast: SenderMake,
    /// The older make.
    pub slow: SenderMake,
    /// Senders of each make. Receivers, which are of the newer make, are three for four senders.
    pub hosts_each: usize,
    /// What a port of the switch holds.
    pub port_buffer_bytes: u64,
    /// When the switch marks packets, where cards heed marks.
    pub ecn: EcnConfig,
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
        let make = |host_delay, rc_window_packets| SenderMake {
            nic: NicMake { host_delay, rc_window_packets, rc_timeout: 8 },
            rate_bits_per_s: 50_000_000_000,
            repair: Repair::Window,
            dcqcn: DcqcnConfig::default(),
        };
        Self {
            seed,
            controller,
            fast: make(delay(300, 100), 32),
            slow: make(delay(400, 200), 24),
            hosts_each: 4,
            port_buffer_bytes: 1 << 20,
            ecn: EcnConfig { min_bytes: 5_000, max_bytes: 200_000, p_max_ppm: 10_000 },
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
    /// The same of each, of its fair share of the line.
    pub of_fair: [f64; 2],
    /// Jain's index over all senders.
    pub fairness: f64,
    /// Packets that ports dropped.
    pub dropped: u64,
    /// What was sent again, of all that was sent.
    pub again: f64,
}

impl Shares {
    /// How far one make is behind the other, each by its fair share.
    #[must_use]
    pub fn gap(&self) -> f64 {
        let [fast, slow] = self.of_fair;
        1.0 - slow.min(fast) / slow.max(fast)
    }

    /// What both makes sent, of one host each.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.fast + self.slow
    }
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct MixedResult {
    /// Over RC without control of congestion.
    pub rc: Shares,
    /// Over RC with DCQCN.
    pub dcqcn: Shares,
    /// Over Towpath.
    pub towpath: Shares,
    /// What it ended with.
    pub end: RunEnd,
}

impl MixedNics {
    /// Runs it over all three.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<MixedResult, Cause> {
        let (rc, rc_hash) = self.run_cards(false);
        let (dcqcn, dcqcn_hash) = self.run_cards(true);
        let (towpath, end) = self.run_towpath()?;
        let end = end.after("dcqcn", dcqcn_hash).after("rc", rc_hash);
        Ok(MixedResult { rc, dcqcn, towpath, end })
    }

    fn senders(&self) -> usize {
        2 * self.hosts_each
    }

    fn receivers(&self) -> usize {
        (3 * self.hosts_each).div_ceil(2)
    }

    fn hosts(&self) -> usize {
        self.senders() + self.receivers()
    }

    /// Senders are fast and slow by turns.
    fn make(&self, host: usize) -> &SenderMake {
        let is_slow = host < self.senders() && !host.is_multiple_of(2);
        if is_slow { &self.slow } else { &self.fast }
    }

    /// Of a host's port. That of a receiver has the mean of both makes.
    fn rate(&self, host: usize) -> u64 {
        if host < self.senders() {
            return self.make(host).rate_bits_per_s;
        }
        u64::midpoint(self.fast.rate_bits_per_s, self.slow.rate_bits_per_s)
    }

    /// What a sender of each make would have in a max-min fair network, of the line.
    fn fair(&self) -> [f64; 2] {
        let each = self.hosts_each as f64;
        let ports = self.receivers() as f64 * self.rate(self.senders()) as f64 / each;
        let [fast, slow] = [self.fast, self.slow].map(|make| make.rate_bits_per_s as f64);
        let low = fast.min(slow).min(ports / 2.0);
        let high = fast.max(slow).min(ports - low);
        if fast >= slow { [high, low] } else { [low, high] }
    }

    fn plans(&self) -> impl Iterator<Item = FlowPlan> {
        let (senders, hosts) = (self.senders(), self.hosts());
        let pairs = (0..senders).flat_map(move |from| (senders..hosts).map(move |to| (from, to)));
        pairs.map(|(from, to)| FlowPlan::closed(from, to, MESSAGE_BYTES).depth(DEPTH))
    }

    fn lay(&self, ecn: Option<EcnConfig>, nic_queue_bytes: u64) -> World {
        let world = World::new(self.seed);
        let port_buffer_bytes = self.port_buffer_bytes;
        let switch =
            world.add_switch(&SwitchConfig { port_buffer_bytes, ecn, ..SwitchConfig::default() });
        for host in 0..self.hosts() {
            let nic = &self.make(host).nic;
            let config = HostConfig {
                rate_bits_per_s: self.rate(host),
                tx_delay: nic.host_delay,
                rx_delay: nic.host_delay,
                nic_queue_bytes,
                ..HostConfig::default()
            };
            let _ = world.add_host(switch, &config);
        }
        world
    }

    fn run_cards(&self, has_dcqcn: bool) -> (Shares, u64) {
        let world = self.lay(has_dcqcn.then_some(self.ecn), CARD_QUEUE_BYTES);
        let card = |host| {
            let make = self.make(host);
            let config = NicConfig {
                window_packets: make.nic.rc_window_packets,
                repair: make.repair,
                timeout: Nanos(4_096 << make.nic.rc_timeout),
                dcqcn: has_dcqcn.then_some(make.dcqcn),
            };
            (config, self.rate(host))
        };
        let cards: Vec<_> = (0..self.hosts()).map(card).collect();
        let mut cluster = NicCluster::new(world, &cards);
        for plan in self.plans() {
            cluster.add_flow(plan);
        }
        cluster.run_for(CARD_WARM_UP);
        let (begin, before) = (cluster.moment(), cluster.world().counters().dropped_queue);
        let (again_before, all_before) = cluster.resent();
        cluster.run_for(self.span);
        let dropped = cluster.world().counters().dropped_queue - before;
        let (again, all) = cluster.resent();
        let again = (again - again_before) as f64 / (all - all_before).max(1) as f64;
        let shares = self.shares(&cluster.since(&begin), dropped, again);
        (shares, cluster.world().trace_hash())
    }

    fn run_towpath(&self) -> Result<(Shares, RunEnd), Cause> {
        let world = self.lay(None, HostConfig::default().nic_queue_bytes);
        let hosts = (0..self.hosts() as u32).map(HostId);
        let device = |host| -> Nics { RoceDevice::new(world.end(host), RoceConfig::default()) };
        let devices = hosts.map(device).collect();
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
        let (begin, before) = (cluster.moment(), cluster.world().counters().dropped_queue);
        cluster.run_for(self.span);
        let window = cluster.since(&begin);
        let dropped = cluster.world().counters().dropped_queue - before;
        cluster.settle(SETTLE_MAX);
        let shares = self.shares(&window, dropped, window.retransmitted());
        Ok((shares, cluster.end_of("towpath")))
    }

    fn shares(&self, window: &Window, dropped: u64, again: f64) -> Shares {
        let mut sent = vec![0.0; self.senders()];
        for (plan, goodput) in self.plans().zip(window.goodputs()) {
            sent[plan.from] += goodput;
        }
        let mean =
            |first: usize| sent.iter().skip(first).step_by(2).sum::<f64>() / self.hosts_each as f64;
        let (fast, slow) = (mean(0), mean(1));
        let fairness = crate::cluster::jain(sent.iter().copied());
        let [fair_fast, fair_slow] = self.fair();
        let of_fair = [fast / fair_fast, slow / fair_slow];
        Shares { fast, slow, of_fair, fairness, dropped, again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal() -> MixedNics {
        let controller = "fixed:64KiB".parse().unwrap();
        let mut mixed = MixedNics::new(5, controller);
        mixed.slow = mixed.fast;
        (mixed.warm_up, mixed.span) = (Nanos::from_millis(2), Nanos::from_millis(4));
        mixed
    }

    #[test]
    fn equal_cards_get_equal_shares_of_the_ports() {
        let result = equal().run().unwrap();
        assert_eq!(result.end.troubles, [""; 0]);
        assert!(result.towpath.gap() < 0.05, "{:?}", result.towpath);
        assert!(result.towpath.fast > 34e9, "{:?}", result.towpath);
        for cards in [result.rc, result.dcqcn] {
            assert!(cards.fast > 30e9 && cards.gap() < 0.1, "{cards:?}");
        }
    }

    #[test]
    fn a_sender_whose_port_is_slower_than_its_fair_share_leaves_the_rest_to_others() {
        let mut mixed = equal();
        assert_eq!(mixed.fair(), [37.5e9; 2]);
        mixed.fast.rate_bits_per_s = 100_000_000_000;
        mixed.slow.rate_bits_per_s = 25_000_000_000;
        assert_eq!(mixed.rate(mixed.senders()), 62_500_000_000);
        assert_eq!(mixed.fair(), [68.75e9, 25e9]);
        std::mem::swap(&mut mixed.fast, &mut mixed.slow);
        assert_eq!(mixed.fair(), [25e9, 68.75e9]);
    }
}
