//! Tests of clusters.

use super::*;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::world::{HostConfig, SwitchConfig};
use towpath_sim::{LinkConfig, VirtualLink};
use towpath_verbs::{Mtu, RcAttr};

fn lean() -> EndpointConfig {
    EndpointConfig::new()
        .quota_chunks(16)
        .credit_total(64)
        .links_max(2)
        .chunk_bytes_max(16 << 10)
        .send_pools(&[(64 << 10, 16)])
}

fn two(seed: u64) -> Cluster<RoceDevice<VirtualLink>> {
    let world = World::new(seed);
    let (a, b) = world.link(&LinkConfig::default());
    let device = |link| RoceDevice::new(link, RoceConfig::default().qp_max(16));
    Cluster::new(world, vec![device(a), device(b)], 1 << 16, |_| lean()).unwrap()
}

#[test]
fn closed_and_open_loads_both_ways_are_read_whole_and_in_order() {
    let mut cluster = two(1);
    cluster.add_flow(FlowPlan::closed(0, 1, 5_000)).unwrap();
    cluster.add_flow(FlowPlan::closed(1, 0, 64 << 10).depth(3)).unwrap();
    let span = Nanos::from_micros(20);
    cluster.add_flow(FlowPlan::closed(0, 1, 700).open(span, 8)).unwrap();
    cluster.run_for(Nanos::from_millis(1));
    let begin = cluster.moment();
    cluster.run_for(Nanos::from_millis(10));
    let window = cluster.since(&begin);
    cluster.settle(Nanos::from_millis(10));
    assert_eq!(cluster.troubles(), []);
    let [closed, deep, open] = window.flows[..] else { panic!("three flows") };
    assert!(closed.delivered > 500 && deep.delivered > 500, "{window:?}");
    assert!((400..600).contains(&open.sent), "one each 20 us for 10 ms: {open:?}");
    assert_eq!(window.span, Nanos::from_millis(10));
}

#[test]
fn flows_of_one_channel_are_read_in_the_order_in_which_they_send() {
    let mut cluster = two(3);
    let long = cluster.add_flow(FlowPlan::closed(0, 1, 64 << 10).depth(6)).unwrap();
    let short = cluster.add_flow_beside(long, FlowPlan::closed(0, 1, 900));
    let own = cluster.add_flow(FlowPlan::closed(0, 1, 900)).unwrap();
    cluster.run_for(Nanos::from_millis(10));
    cluster.settle(Nanos::from_millis(10));
    assert_eq!(cluster.troubles(), []);
    let read: Vec<u64> = cluster.flows().map(|(_, count)| count.read).collect();
    assert!(read[short] > 100 && 2 * read[own] > 3 * read[short], "it waits for six: {read:?}");
}

#[test]
fn what_an_open_load_has_no_buffer_for_is_counted_and_not_sent_later() {
    let mut cluster = two(2);
    let plan = FlowPlan::closed(0, 1, 64 << 10).open(Nanos(1_000), 1_000);
    cluster.add_flow(plan.between(Time::ZERO, Time(2_000_000))).unwrap();
    cluster.run_for(Nanos::from_millis(2));
    cluster.settle(Nanos::from_millis(10));
    assert_eq!(cluster.troubles(), []);
    let (_, count) = cluster.flows().next().unwrap();
    assert!(count.skipped > 1_000, "the wire takes one each 5 us, and 16 may wait: {count:?}");
    assert!((1_800..2_200).contains(&(count.sent + count.skipped)), "{count:?}");
}

fn star(world: &World, hosts: usize, port_buffer_bytes: u64) -> Vec<RoceDevice<VirtualLink>> {
    let switch = world.add_switch(&SwitchConfig { port_buffer_bytes, ..SwitchConfig::default() });
    let host = HostConfig { delay: Nanos(2_500), ..HostConfig::default() };
    let end = |_| world.end(world.add_host(switch, &host));
    // Two of these windows overflow 64 KiB.
    let config = RoceConfig::default().qp_max(64).rc_window_packets(16);
    (0..hosts).map(|h| RoceDevice::new(end(h), config.clone())).collect()
}

#[test]
fn a_cluster_of_many_links_runs_into_its_buffers_and_loses_nothing() {
    let hash = |seed| {
        let world = World::new(seed);
        let devices = star(&world, 5, 32 << 10);
        let endpoint = |_| lean().links_max(8);
        let mut cluster = Cluster::new(world, devices, 64 << 10, endpoint).unwrap();
        for from in 0..5 {
            for to in (0..5).filter(|to| *to != from) {
                cluster
                    .add_flow(FlowPlan::closed(from, to, 20_000 + from as u32).depth(4))
                    .unwrap();
            }
        }
        cluster.run_for(Nanos::from_millis(10));
        cluster.settle(Nanos::from_millis(100));
        assert_eq!(cluster.troubles(), [], "seed {seed}");
        assert!(cluster.world().counters().dropped_queue > 0, "the buffers were too small");
        assert!(cluster.flows().all(|(_, count)| count.delivered > 5));
        cluster.world().trace_hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn rc_flows_go_back_and_on_where_packets_are_lost() {
    let world = World::new(4);
    let devices = star(&world, 3, 64 << 10);
    let mut cluster = RcCluster::new(world, devices, 64 << 10).unwrap();
    let rc = RcAttr { timeout: 5, ..RcAttr::default() };
    for from in 1..3 {
        let plan = FlowPlan::closed(from, 0, 64 << 10).depth(8);
        cluster.add_flow(plan, Mtu::Mtu4096, rc).unwrap();
    }
    cluster.run_for(Nanos::from_millis(2));
    let begin = cluster.moment();
    cluster.run_for(Nanos::from_millis(10));
    let window = cluster.since(&begin);
    assert_eq!(cluster.broken(), 0);
    assert!(cluster.world().counters().dropped_queue > 0);
    assert!(window.flows.iter().all(|flow| flow.delivered > 10), "{window:?}");
    assert!(window.goodput() < 100e9);
}
