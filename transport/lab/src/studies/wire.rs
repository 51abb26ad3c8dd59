//! The wire that studies have in common, and its round trip as a parameter.

use super::{Param, Params};
use towpath_base::Nanos;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::{HostId, VirtualLink, World};

/// Of every wire, in bits a second, where a study does not vary it.
pub(super) const RATE_BITS_PER_S: u64 = 100_000_000_000;

/// There and back with nothing in the way.
pub(super) const BASE_RTT: Param =
    Param::count("rtt-us", "us", 2..=10_000, ["10"; 3]).what("Base round trip");

/// What was asked for by [`BASE_RTT`].
pub(super) fn base_rtt_of(params: &Params) -> Nanos {
    Nanos::from_micros(params.count(BASE_RTT.name))
}

/// A userspace NIC on each of the hosts.
pub(super) fn devices(world: &World, hosts: &[HostId]) -> Vec<RoceDevice<VirtualLink>> {
    let device = |&host| RoceDevice::new(world.end(host), RoceConfig::default());
    hosts.iter().map(device).collect()
}
