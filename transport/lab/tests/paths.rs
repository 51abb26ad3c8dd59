//! Links with many paths over a fabric whose switches swallow packets: how soon each way is left.

use std::collections::VecDeque;
use towpath_base::{Nanos, Time};
use towpath_cc::{ControllerConfig, FixedWindowConfig};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_lab::cluster::{Cluster, FlowCount, FlowPlan};
use towpath_proto::{Class, LinkStats, PathState, Spreading};
use towpath_sim::world::SwitchConfig;
use towpath_sim::{Change, Fabric, FaultPlan, Health, HostConfig, LeafSpine, VirtualLink, World};
use towpath_transport::{EndpointConfig, PathReport};

const SPINES: usize = 16;
const TICK: Nanos = Nanos::from_millis(4);

/// A round trip takes 6 us of cables; the rest is what a window takes on them.
const RTT_MAX: Nanos = Nanos::from_micros(100);

/// How often it is looked what has been delivered.
const LOOK_EACH: Nanos = Nanos::from_micros(50);

/// Two hosts on two leaves with 16 spines between them, and small messages from one to the other.
struct Rig {
    cluster: Cluster<RoceDevice<VirtualLink>>,
    fabric: Fabric,
}

fn endpoint(paths: usize, spreading: Spreading) -> EndpointConfig {
    EndpointConfig::new()
        .paths(paths)
        .quota_chunks(64)
        .credit_total(256)
        .links_max(8)
        .chunk_bytes_max(16 << 10)
        .send_pools(&[(64 << 10, 1024)])
        .tune_links(move |link| link.spreading(spreading))
}

fn rig(seed: u64, paths: usize, every: Nanos) -> Rig {
    rig_of(seed, paths, Spreading::Bytes(1), small(every))
}

/// Small messages.
fn small(every: Nanos) -> FlowPlan {
    FlowPlan::closed(0, 1, 8_000).open(every, 250)
}

fn rig_of(seed: u64, paths: usize, spreading: Spreading, flow: FlowPlan) -> Rig {
    println!("{paths} paths, {spreading:?}");
    rig_with(seed, 1024, &endpoint(paths, spreading), flow)
}

fn rig_with(seed: u64, source_ports: u16, endpoint: &EndpointConfig, flow: FlowPlan) -> Rig {
    println!("seed {seed}, {source_ports} source ports");
    let world = World::new(seed);
    let host = HostConfig { source_ports, ..HostConfig::default() };
    let shape =
        LeafSpine { leaves: 2, hosts_per_leaf: 1, spines: SPINES, host, ..LeafSpine::default() };
    let fabric = shape.build(&world);
    let config = RoceConfig::default().qp_max(256);
    let device = |&host| RoceDevice::new(world.end(host), config.clone());
    let devices = fabric.hosts.iter().map(device).collect();
    let mut cluster = Cluster::new(world, devices, 64 << 10, |_| endpoint.clone()).unwrap();
    for _ in 0..4 {
        cluster.add_flow(flow).unwrap();
    }
    cluster.run_for(Nanos::from_millis(5));
    Rig { cluster, fabric }
}

impl Rig {
    fn change(&self, change: Change) {
        self.cluster.world().change(change);
    }

    fn spine(&self, spine: usize, health: Health) {
        self.change(Change::Switch(self.fabric.spines[spine], health));
    }

    /// What the second leaf sends up to a spine is swallowed.
    fn swallow_back(&self, spine: usize) {
        let wire = self.fabric.uplinks[SPINES + spine].forth();
        self.change(Change::Faults(wire, FaultPlan::none().black_hole(true)));
    }

    /// What a host sends from these source ports is swallowed, whatever spine it goes to.
    fn swallow_ports(&self, host: usize, ports: &[u16]) {
        for uplink in &self.fabric.uplinks[host * SPINES..][..SPINES] {
            let plan = FaultPlan::none().black_hole_ports(ports.iter().copied());
            self.change(Change::Faults(uplink.forth(), plan));
        }
    }

    fn stats(&self, host: usize) -> LinkStats {
        self.cluster.endpoint(host).stats_of_all_links()
    }

    fn paths(&self, host: usize) -> Vec<PathReport> {
        let (near, far) = self.cluster.link(0, 1, Class::default()).unwrap();
        self.cluster.endpoint(host).paths(if host == 0 { near } else { far }).collect()
    }

    /// Lets `span` pass; the longest that a message took that was sent meanwhile and delivered.
    fn slowest(&mut self, span: Nanos) -> Nanos {
        let end = self.cluster.now() + span;
        let mut waiting = VecDeque::<(usize, Time, u64)>::new();
        let mut slowest = Nanos::ZERO;
        while self.cluster.now() < end {
            let now = self.cluster.now();
            for (number, (_, count)) in self.cluster.flows().enumerate() {
                waiting.push_back((number, now, count.sent));
            }
            self.cluster.run_for(LOOK_EACH);
            let now = self.cluster.now();
            let delivered: Vec<u64> = self.cluster.flows().map(|(_, c)| c.delivered).collect();
            waiting.retain(|&(flow, sent_at, sent)| {
                let is_done = delivered[flow] >= sent;
                if is_done {
                    slowest = slowest.max(now.since(sent_at));
                }
                !is_done
            });
        }
        let oldest = waiting.iter().map(|&(_, sent_at, _)| end.since(sent_at));
        slowest.max(oldest.max().unwrap_or_default())
    }

    fn settle(&mut self) {
        self.cluster.settle(Nanos::from_secs(2));
        assert_eq!(self.cluster.troubles(), []);
    }
}

#[test]
fn messages_on_any_of_16_spines_that_dies_are_delivered_within_two_ticks() {
    let (mut worst, mut left) = (Nanos::ZERO, 0);
    for spine in 0..SPINES {
        let mut rig = rig(100 + spine as u64, 16, Nanos::from_micros(50));
        rig.spine(spine, Health::Silent);
        let took = rig.slowest(Nanos::from_millis(40));
        println!("spine {spine}: {took}");
        let bound = TICK.saturating_mul(2) + RTT_MAX.saturating_mul(2);
        assert!(took <= bound + LOOK_EACH, "spine {spine}: {took}");
        worst = worst.max(took);
        left += rig.stats(0).path_doubts + rig.stats(1).path_doubts;
        rig.settle();
    }
    println!("worst {worst}, {left} paths left");
    assert!(left >= SPINES as u64 / 2, "most spines carry a path: {left}");
}

#[test]
fn the_one_spine_that_is_left_is_found_by_links_of_16_paths() {
    for alive in 0..6 {
        let mut rig = rig(200 + alive as u64, 16, Nanos::from_micros(500));
        for dead in (0..SPINES).filter(|&spine| spine != alive) {
            rig.spine(dead, Health::Silent);
        }
        let took = rig.slowest(Nanos::from_secs(2));
        println!("spine {alive} left: {took}, {:?}", rig.stats(0).path_moves);
        assert!(took < Nanos::from_secs(1), "{took}");
        rig.settle();
    }
}

#[test]
fn acks_that_are_swallowed_on_their_way_take_another() {
    let mut reroutes = 0;
    for spine in 0..SPINES {
        let mut rig = rig(300 + spine as u64, 4, Nanos::from_micros(50));
        rig.swallow_back(spine);
        let took = rig.slowest(Nanos::from_millis(40));
        let (sender, receiver) = (rig.stats(0), rig.stats(1));
        println!("spine {spine}: {took}, {} reroutes", receiver.ack_reroutes);
        assert!(took <= TICK.saturating_mul(2) + RTT_MAX.saturating_mul(2) + LOOK_EACH);
        assert_eq!(sender.path_retirements, 0, "the sender's ways are sound");
        reroutes += receiver.ack_reroutes;
        rig.settle();
    }
    assert!(reroutes >= 1, "the acks of some link led over the spine that swallows");
}

#[test]
fn a_spine_that_comes_and_goes_is_left_alone_for_longer_each_time() {
    let mut rig = rig(400, 16, Nanos::from_millis(1));
    let flaps = 60;
    for _ in 0..flaps {
        rig.spine(3, Health::Silent);
        rig.cluster.run_for(Nanos::from_millis(60));
        rig.spine(3, Health::Up);
        rig.cluster.run_for(Nanos::from_millis(60));
    }
    let stats = rig.stats(0);
    println!("{flaps} flaps in 7 s: {stats:?}");
    let doubts = rig.paths(0).iter().map(|path| path.facts.doubts).max();
    assert!((1..=8).contains(&stats.path_retirements), "{stats:?}");
    assert!(doubts <= Some(4), "no path was doubted more often: {doubts:?}");
    rig.settle();
}

#[test]
fn a_path_whose_spine_died_goes_on_over_another() {
    let mut rig = rig(500, 16, Nanos::from_micros(200));
    (4..8).for_each(|spine| rig.spine(spine, Health::Silent));
    rig.cluster.run_for(Nanos::from_secs(3));
    let moved: Vec<_> = rig.paths(0).into_iter().filter(|path| path.facts.moves > 0).collect();
    println!("{moved:?}");
    assert!(!moved.is_empty());
    for path in moved.iter().filter(|path| path.facts.moves == 1) {
        assert_eq!(path.source_port, path.facts.source_port, "the device was told");
        assert!(path.facts.state != PathState::Suspect, "{path:?}");
    }
    assert!(moved.iter().any(|path| path.facts.state == PathState::Good));
    rig.settle();
}

#[test]
fn a_port_that_rests_is_found_when_it_is_the_only_one_left() {
    for seed in 550..556 {
        let flow = small(Nanos::from_micros(200));
        let mut rig = rig_with(seed, 8, &endpoint(4, Spreading::Bytes(1)), flow);
        rig.swallow_ports(0, &[2]);
        rig.cluster.run_for(Nanos::from_millis(200));
        assert!(rig.paths(0).iter().all(|path| path.source_port != 2), "it rests");
        rig.swallow_ports(0, &[0, 1, 3, 4, 5, 6, 7]);
        let took = rig.slowest(Nanos::from_secs(2));
        println!("seed {seed}: {took}");
        assert!(took < Nanos::from_secs(1), "{took}");
        rig.settle();
    }
}

#[test]
fn the_spares_are_found_when_all_paths_in_use_die_at_once_and_keep_their_ports() {
    let pinned = endpoint(8, Spreading::Bytes(1))
        .tune_links(|link| link.spreading(Spreading::Bytes(1)).source_ports(1).spare_paths(2));
    for seed in 560..566 {
        let mut rig = rig_with(seed, 1024, &pinned, small(Nanos::from_micros(200)));
        let is_spare = |path: &PathReport| path.facts.state == PathState::Spare;
        assert_eq!(rig.paths(0).iter().filter(|path| is_spare(path)).count(), 2);
        (0..2).for_each(|host| rig.swallow_ports(host, &[0, 1, 2, 3, 4, 5]));
        let took = rig.slowest(Nanos::from_secs(1));
        println!("seed {seed}: {took}");
        assert!(took < Nanos::from_millis(50), "{took}");
        rig.settle();
    }
}

/// Eight hosts on four leaves; all send one of them as much as they can.
#[test]
fn congestion_alone_changes_no_more_than_one_path_a_second() {
    let seed = 600;
    println!("seed {seed}");
    let world = World::new(seed);
    let host = HostConfig { source_ports: 1024, ..HostConfig::default() };
    let switch = SwitchConfig { port_buffer_bytes: 256 << 10, ..SwitchConfig::default() };
    let shape = LeafSpine { hosts_per_leaf: 2, spines: 2, host, switch, ..LeafSpine::default() };
    let fabric = shape.build(&world);
    let config = RoceConfig::default().qp_max(256);
    let device = |&host| RoceDevice::new(world.end(host), config.clone());
    let devices = fabric.hosts.iter().map(device).collect();
    // A window that heeds nothing: whatever the buffers do not hold is lost.
    let window = FixedWindowConfig::new(192 << 10).unwrap();
    let of_host = |_| {
        let config = endpoint(8, Spreading::Bytes(1));
        config.controller(ControllerConfig::Fixed(window))
    };
    let mut cluster = Cluster::new(world, devices, 64 << 10, of_host).unwrap();
    for from in 1..8 {
        for _ in 0..2 {
            cluster.add_flow(FlowPlan::closed(from, 0, 64 << 10).depth(16)).unwrap();
        }
    }
    let span = Nanos::from_millis(100);
    cluster.run_for(span);
    let mut lost = 0;
    for from in 1..8 {
        let stats = cluster.endpoint(from).stats_of_all_links();
        println!("host {from}: {stats:?}");
        lost += stats.losses_by_gap;
        assert!(stats.path_retirements + stats.path_moves <= 1, "{stats:?}");
        assert!(stats.path_doubts <= 3, "{stats:?}");
    }
    assert!(lost > 10_000, "{lost} chunks lost: no congestion");
    cluster.settle(Nanos::from_secs(2));
    assert_eq!(cluster.troubles(), []);
}

/// What a policy of spreading costs and brings, for messages of five chunks.
#[derive(Debug)]
struct Spread {
    goodput_gbit_s: f64,
    acks_of_chunk: f64,
    /// Of all chunks when a spine dies, how many go again; and the mean time of a message then.
    again: f64,
    mean_us_at_death: f64,
    /// The mean time of a message while one spine takes 200 us longer.
    mean_us_with_slow: f64,
}

const SPREAD_SPAN: Nanos = Nanos::from_millis(20);

/// Messages of five chunks.
fn medium() -> FlowPlan {
    FlowPlan::closed(0, 1, 64 << 10).open(Nanos::from_micros(100), 250)
}

/// What flows do while a spine takes 200 us longer than the others, and than before.
fn flows_beside_slow(seed: u64, spine: usize, spreading: Spreading) -> Vec<FlowCount> {
    let mut rig = rig_of(seed, 16, spreading, medium());
    let begin = rig.cluster.moment();
    let wire = rig.fabric.uplinks[spine].forth();
    let delay = FaultPlan::none().delay(Nanos::from_micros(200), Nanos::ZERO);
    rig.change(Change::Faults(wire, delay));
    rig.cluster.run_for(SPREAD_SPAN);
    let flows = rig.cluster.since(&begin).flows;
    rig.settle();
    flows
}

fn spread(spreading: Spreading) -> Spread {
    let span = SPREAD_SPAN;
    let mut bulk = rig_of(700, 16, spreading, FlowPlan::closed(0, 1, 64 << 10).depth(4));
    // A turn of a receiver's loop takes in several chunks.
    bulk.cluster = bulk.cluster.pause(Nanos::from_micros(5));
    let (begin, receiver) = (bulk.cluster.moment(), bulk.stats(1));
    bulk.cluster.run_for(span);
    let (window, after) = (bulk.cluster.since(&begin), bulk.stats(1));
    let chunks = after.chunks_received - receiver.chunks_received;
    let acks_of_chunk = (after.acks_sent - receiver.acks_sent) as f64 / chunks as f64;
    bulk.settle();
    let (mut again, mut deaths, mut slow) = (0.0, (0.0, 0), (0.0, 0));
    for spine in 0..8 {
        let mut dying = rig_of(710 + spine as u64, 16, spreading, medium());
        let (begin, sent) = (dying.cluster.moment(), dying.stats(0).chunks_sent);
        dying.spine(spine, Health::Silent);
        dying.cluster.run_for(span);
        let stats = dying.stats(0);
        again += stats.chunks_retransmitted as f64 / (stats.chunks_sent - sent) as f64 / 8.0;
        add_latency(&mut deaths, &dying.cluster.since(&begin).flows);
        dying.settle();
        add_latency(&mut slow, &flows_beside_slow(710 + spine as u64, spine, spreading));
    }
    Spread {
        goodput_gbit_s: window.goodput() / 1e9,
        acks_of_chunk,
        again,
        mean_us_at_death: deaths.0 / deaths.1 as f64,
        mean_us_with_slow: slow.0 / slow.1 as f64,
    }
}

fn add_latency(sum: &mut (f64, u64), flows: &[FlowCount]) {
    for flow in flows {
        *sum = (sum.0 + flow.latency.0 as f64 / 1e3, sum.1 + flow.delivered);
    }
}

#[test]
fn turns_and_messages_that_keep_to_a_path_need_fewer_acks_and_are_not_slowed_more() {
    let policies = [Spreading::Bytes(1), Spreading::default(), Spreading::Message];
    let [sprayed, turns, kept] = policies.map(|policy| {
        let spread = spread(policy);
        println!("{policy:?}: {spread:?}");
        spread
    });
    assert!(turns.acks_of_chunk < 0.5 * sprayed.acks_of_chunk);
    assert!(kept.acks_of_chunk < sprayed.acks_of_chunk);
    for one in [&turns, &kept] {
        assert!(one.goodput_gbit_s > 0.9 * sprayed.goodput_gbit_s);
    }
    assert!(kept.again < 1.25 * sprayed.again);
    for one in [&turns, &kept] {
        assert!(one.mean_us_at_death < sprayed.mean_us_at_death);
        assert!(one.mean_us_with_slow < 1.25 * sprayed.mean_us_with_slow);
    }
}

/// A path's round trip becomes twenty times as long. What goes there brings the window down, so
/// that a turn of so many bytes takes the longer, the slower the path is: it must not last so long.
#[test]
fn a_link_does_not_stay_on_a_path_that_has_become_slow() {
    for (seed, spine) in [(711, 1), (714, 4), (1113, 3), (1116, 6), (1311, 1), (1612, 2)] {
        let mut latency = (0.0, 0);
        add_latency(&mut latency, &flows_beside_slow(seed, spine, Spreading::default()));
        let mean_us = latency.0 / latency.1 as f64;
        println!("seed {seed}: {mean_us:.0} us");
        assert!(mean_us < 100.0, "{mean_us} us");
    }
}
