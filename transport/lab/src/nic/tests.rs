//! Tests of the model of cards.

use super::*;
use crate::cluster::RcCluster;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::FaultPlan;
use towpath_sim::world::{EcnConfig, HostConfig, SwitchConfig};
use towpath_verbs::{Mtu, RcAttr};

const RATE: u64 = 50_000_000_000;

fn plain(window_packets: u32) -> NicConfig {
    let timeout = Nanos(4_096 << 8);
    NicConfig { window_packets, repair: Repair::Window, timeout, dcqcn: None }
}

/// A switch, and so many hosts on it.
fn star(seed: u64, hosts: usize, port_buffer_bytes: u64, ecn: Option<EcnConfig>) -> World {
    let world = World::new(seed);
    let switch =
        world.add_switch(&SwitchConfig { port_buffer_bytes, ecn, ..SwitchConfig::default() });
    let host =
        HostConfig { rate_bits_per_s: RATE, nic_queue_bytes: 16 << 10, ..HostConfig::default() };
    for _ in 0..hosts {
        let _ = world.add_host(switch, &host);
    }
    world
}

/// What each of some senders to one receiver has, and packets that were lost and sent again.
fn incast(config: NicConfig, senders: usize, buffer: u64, seed: u64) -> (Vec<f64>, u64, u64) {
    let ecn =
        config.dcqcn.map(|_| EcnConfig { min_bytes: 5_000, max_bytes: 200_000, p_max_ppm: 10_000 });
    let world = star(seed, senders + 1, buffer, ecn);
    let mut cluster = NicCluster::new(world, &vec![(config, RATE); senders + 1]);
    for from in 1..=senders {
        cluster.add_flow(FlowPlan::closed(from, 0, 64 << 10).depth(4));
    }
    // At 40 Mb/s in 55 us a rate rises by 7 Gb/s in 10 ms.
    cluster.run_for(Nanos::from_millis(20));
    let (begin, before) = (cluster.moment(), cluster.world().counters().dropped_queue);
    cluster.run_for(Nanos::from_millis(10));
    let goodputs = cluster.since(&begin).goodputs().collect();
    let lost = cluster.world().counters().dropped_queue - before;
    (goodputs, lost, cluster.resent().0)
}

#[test]
fn one_flow_fills_the_wire_and_loses_nothing() {
    for repair in [Repair::Window, Repair::Message, Repair::Packet] {
        let (goodputs, lost, again) = incast(NicConfig { repair, ..plain(64) }, 1, 1 << 20, 1);
        assert_eq!((lost, again), (0, 0), "{repair:?}");
        assert!(goodputs[0] > 0.97 * RATE as f64, "{repair:?}: {goodputs:?}");
    }
}

/// Two hosts, and one packet of a hundred is lost on the way from one to the other.
fn lossy(repair: Repair, seed: u64) -> (f64, u64) {
    let world = star(seed, 2, 1 << 20, None);
    world.set_faults(world.cable(HostId(1)).forth(), FaultPlan::none().drop(0.01));
    let mut cluster = NicCluster::new(world, &[(NicConfig { repair, ..plain(64) }, RATE); 2]);
    cluster.add_flow(FlowPlan::closed(1, 0, 256 << 10).depth(4));
    cluster.run_for(Nanos::from_millis(2));
    let begin = cluster.moment();
    cluster.run_for(Nanos::from_millis(20));
    (cluster.since(&begin).goodput(), cluster.resent().0)
}

#[test]
fn who_repeats_lost_packets_alone_gets_more_than_who_goes_back_and_least_by_messages() {
    let seed = 7;
    println!("seed {seed}");
    let of = |repair| lossy(repair, seed);
    let [packet, window, message] = [Repair::Packet, Repair::Window, Repair::Message].map(of);
    assert!(packet.0 > window.0 && window.0 > message.0, "{packet:?} {window:?} {message:?}");
    assert!(packet.1 < window.1, "{packet:?} {window:?}");
}

#[test]
fn rates_by_marks_keep_the_queue_short_and_share_the_port() {
    let dcqcn = Some(DcqcnConfig::default());
    let (goodputs, lost, _) = incast(NicConfig { dcqcn, ..plain(64) }, 4, 1 << 20, 3);
    let all: f64 = goodputs.iter().sum();
    assert_eq!(lost, 0, "{goodputs:?}");
    assert!(all > 0.8 * RATE as f64, "{goodputs:?}");
    assert!(crate::cluster::jain(goodputs.into_iter()) > 0.9);
}

/// The device in software and the model have the same rules: window, Go-Back-N, timer.
#[test]
fn without_control_of_congestion_it_does_what_rc_on_the_userspace_nic_does() {
    let by_model: f64 = incast(plain(16), 2, 1 << 20, 5).0.iter().sum();
    let world = star(5, 3, 1 << 20, None);
    let config = RoceConfig::default().rc_window_packets(16);
    let device = |host| RoceDevice::new(world.end(HostId(host)), config.clone());
    let devices = (0..3).map(device).collect();
    let mut rc = RcCluster::new(world, devices, 64 << 10).expect("a cluster");
    for from in 1..3 {
        let plan = FlowPlan::closed(from, 0, 64 << 10).depth(4);
        let attr = RcAttr { timeout: 8, ..RcAttr::default() };
        rc.add_flow(plan, Mtu::Mtu4096, attr).expect("a flow");
    }
    rc.run_for(Nanos::from_millis(5));
    let begin = rc.moment();
    rc.run_for(Nanos::from_millis(10));
    let by_device = rc.since(&begin).goodput();
    assert!((by_model / by_device - 1.0).abs() < 0.02, "{by_model} {by_device}");
}

#[test]
fn a_seed_gives_the_same_packets_again() {
    let hash = |seed| {
        let dcqcn = Some(DcqcnConfig::default());
        let ecn = Some(EcnConfig { min_bytes: 5_000, max_bytes: 200_000, p_max_ppm: 10_000 });
        let world = star(seed, 3, 64 << 10, ecn);
        let mut cluster = NicCluster::new(world, &[(NicConfig { dcqcn, ..plain(32) }, RATE); 3]);
        cluster.add_flow(FlowPlan::closed(1, 0, 100_000).depth(2));
        cluster.add_flow(FlowPlan::closed(2, 0, 100_000).depth(2));
        cluster.run_for(Nanos::from_millis(2));
        cluster.world().trace_hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}
