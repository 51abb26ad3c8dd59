//! What is told of a worker to who collects metrics.

use std::sync::Arc;

use towpath_fastpath::HealthState;
use towpath_fastpath::control::InterferenceInfo;
use towpath_fastpath::qos::wire::QosReply;
use towpath_transport::keys::{Mode, Refusals};
use towpath_transport::{Class, Device, PoolReport, Region, SecureTally};

use super::scrubbing::ScrubBoard;
use super::server::ChunkServer;
use super::stats::ServerStats;
use crate::metrics::Meter;
use crate::qos::Qos;

/// A worker as it is now.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerFigures {
    pub(crate) stats: ServerStats,
    pub(crate) under_way: u64,
    /// Requests that wait for the store.
    pub(crate) waiting: u64,
    /// How long the oldest request has been here.
    pub(crate) oldest_ns: u64,
    pub(crate) links: u64,
    /// What the seals of links have refused.
    pub(crate) refused: Refusals,
    /// How links are protected, and what happened with the keys of the host, the same at all
    /// workers; none where they are open.
    pub(crate) keys: Option<(Mode, SecureTally)>,
    /// Links that are degraded, by cause.
    pub(crate) degraded: Vec<(String, u64)>,
    /// The buffers that its links share, and who holds most of them.
    pub(crate) pools: Vec<PoolReport>,
    /// The peer to whom most refusals and fates were not sent, of those that are here; how many.
    pub(crate) most_dropped: Option<(String, u64)>,
    /// How reservations are kept, the same at all workers.
    pub(crate) qos: Option<QosReply>,
    /// What interference control does, the same at all workers, and the tokens that each class
    /// took; none where there is no control.
    pub(crate) interference: Option<(InterferenceInfo, [u64; Class::COUNT])>,
    /// Names of tenants, each at the place of its number.
    pub(crate) tenants: Vec<String>,
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Where it counts its requests: anybody may read that at any time.
    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::clone(self.watch.meter())
    }

    /// Counts its requests there from now on.
    pub(crate) fn count_in(mut self, meter: Arc<Meter>) -> Self {
        self.watch.count_in(meter);
        self
    }

    /// How far the background scrub of each disk is stands there.
    pub(crate) fn scrubbing(mut self, boards: Arc<[ScrubBoard]>) -> Self {
        self.watch.set_scrubs(boards);
        self
    }

    pub(crate) fn figures(&self) -> WorkerFigures {
        let now = self.endpoint.now();
        let mut degraded: Vec<(String, u64)> = Vec::new();
        for link in self.watch.health().links() {
            let HealthState::Degraded(cause) = link.state else { continue };
            let cause = cause.to_string();
            match degraded.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, count)) => *count += 1,
                None => degraded.push((cause, 1)),
            }
        }
        WorkerFigures {
            stats: self.stats(),
            under_way: self.rpc.under_way() as u64,
            waiting: self.sched.waiting() as u64,
            oldest_ns: self.rpc.oldest().map_or(0, |began| now.since(began).0),
            links: self.endpoint.links().count() as u64,
            refused: self.endpoint.refusals(),
            keys: self.endpoint.config().keys().map(|keys| (keys.sealing().mode(), keys.tally())),
            degraded,
            pools: self.endpoint.pool_reports().collect(),
            most_dropped: self.rpc.most_dropped().map(|(link, count)| (self.peer(link), count)),
            interference: self.sched.control().map(|control| (control.report(), control.taken())),
            qos: self.reservations().map(Qos::report),
            tenants: self.reservations().map(Qos::names).unwrap_or_default(),
        }
    }
}
