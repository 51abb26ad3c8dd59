//! Tests of clusters.

use super::*;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::{LinkConfig, VirtualLink};

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
    assert_eq!(cluster.troubles(), []);
    let [closed, deep, open] = window.flows[..] else { panic!("three flows") };
    assert!(closed.delivered > 500 && deep.delivered > 500, "{window:?}");
    assert!((400..600).contains(&open.sent), "one each 20 us for 10 ms: {open:?}");
    assert_eq!(window.span, Nanos::from_millis(10));
}
