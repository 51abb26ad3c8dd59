//! What is told of a thread that owns an endpoint.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use towpath_memory::Region;
use towpath_transport::{Endpoint, PoolReport};
use towpath_verbs::Device;

/// What a worker uses, and how much of it there may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// Its number.
    pub worker: u64,
    /// Processor time of its thread, in user and system mode, in nanoseconds.
    pub cpu_ns: u64,
    /// Its links that are up.
    pub links: u64,
    /// The most of them.
    pub links_max: u64,
    /// Its queue pairs, those in error left out.
    pub qps: u64,
    /// The most of them.
    pub qps_max: u64,
    /// Receives for data that are posted.
    pub receives_posted: u64,
    /// How many its links should have posted.
    pub receives_wanted: u64,
    /// Receive buffers that were made.
    pub receive_buffers: u64,
    /// The most of them.
    pub receive_buffers_max: u64,
    /// Send buffers that are out of their pools.
    pub send_buffers_out: u64,
    /// All send buffers.
    pub send_buffers_max: u64,
    /// The buffers that its links share, and who holds most of them.
    pub pools: Vec<PoolStatus>,
}

/// Buffers that the links of a worker share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PoolStatus {
    /// What they are for, and the bytes of each.
    pub name: String,
    /// Those that are out.
    pub out: u64,
    /// All of them.
    pub max: u64,
    /// The index of the link that holds most; none where no link holds any.
    pub most_link: Option<u64>,
    /// Where the peer of that link receives; none when the link is gone.
    pub most_peer: Option<SocketAddr>,
    /// What that link holds.
    pub most_held: u64,
}

impl PoolStatus {
    fn new(report: &PoolReport) -> Self {
        Self {
            name: report.name(),
            out: report.out as u64,
            max: report.max as u64,
            most_link: report.most.map(|most| most.link as u64),
            most_peer: report.most.and_then(|most| most.peer),
            most_held: report.most.map_or(0, |most| most.held as u64),
        }
    }
}

impl WorkerStatus {
    /// That of the thread that calls, whose endpoint it is.
    pub(crate) fn of<D: Device<Memory = Region>>(endpoint: &Endpoint<D>) -> Self {
        let usage = endpoint.usage();
        Self {
            worker: 0,
            cpu_ns: ns_by(ClockId::ThreadCPUTime),
            links: usage.links as u64,
            links_max: usage.links_max as u64,
            qps: usage.qps as u64,
            qps_max: usage.qps_max as u64,
            receives_posted: usage.receives_posted as u64,
            receives_wanted: usage.receives_wanted as u64,
            receive_buffers: usage.receive_buffers as u64,
            receive_buffers_max: usage.receive_buffers_max as u64,
            send_buffers_out: usage.send_buffers_out as u64,
            send_buffers_max: usage.send_buffers_max as u64,
            pools: endpoint.pool_reports().map(|report| PoolStatus::new(&report)).collect(),
        }
    }
}

/// Processor time of this process so far, in nanoseconds.
pub(crate) fn cpu_ns_of_process() -> u64 {
    ns_by(ClockId::ProcessCPUTime)
}

fn ns_by(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither is negative on these clocks.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
