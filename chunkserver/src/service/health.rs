//! How the links of a server are: looked at now and then, logged, and told to who asks.

use towpath_fastpath::health::{
    HealthReply, LinkHealthReply, OpKind, Phase, PhaseTimesReply, PoolReply,
};
use towpath_fastpath::limits::HEALTH_LINKS_MAX;
use towpath_fastpath::{HealthEvent, HealthMonitor, HealthState, LinkHealth};
use towpath_status::ProcessStatus;
use towpath_transport::{Device, LinkId, PoolReport, Region};

use super::ask::Asked;
use super::server::ChunkServer;
use crate::metrics::Counts;

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// How the links are, and what has become of them: its events are there to be taken.
    pub fn health(&mut self) -> &mut HealthMonitor {
        self.watch.health_mut()
    }

    pub(super) fn look_at_health(&mut self) {
        let now = self.endpoint.now();
        let Self { watch, endpoint, rpc, sched, .. } = self;
        let monitor = watch.health_mut();
        if monitor.is_due(now) {
            sched.limited(now, |asked| {
                if let Asked::Job(job) = asked {
                    job.trace.excuse(now);
                    rpc.excuse(&job.responder, now);
                }
            });
        }
        monitor.look_when_due(now, endpoint, |now, after, tell| rpc.note_slow(now, after, tell));
    }

    /// Takes what the monitor has told and logs it. For owners that do not act on it themselves.
    pub fn log_health(&mut self) {
        // One line for all slow requests at a time: a stuck store makes hundreds.
        let (mut slow, mut worst) = (0_u64, None);
        while let Some(event) = self.watch.health_mut().poll_event() {
            match event {
                HealthEvent::Degraded { link, cause } => {
                    let peer = self.peer(link);
                    tracing::warn!(link = link.index(), peer, %cause, "a link is degraded");
                }
                HealthEvent::Recovered { link } => {
                    let peer = self.peer(link);
                    tracing::info!(link = link.index(), peer, "a link is good again");
                }
                HealthEvent::CarrierChanged { link, from, to, why } => {
                    let (peer, link) = (self.peer(link), link.index());
                    tracing::warn!(link, peer, %from, %to, %why, "a link changes carrier");
                }
                HealthEvent::PathChanged { link, path, to, signal } => {
                    let (path, peer, link) = (path.0, self.peer(link), link.index());
                    tracing::info!(link, peer, path, %to, %signal, "a path has changed");
                }
                HealthEvent::SlowIo { link, age } => {
                    slow += 1;
                    worst = worst.max(Some((age, link.index())));
                }
            }
        }
        if let Some((age, link)) = worst {
            let age_ms = age.0 / 1_000_000;
            tracing::warn!(requests = slow, age_ms, link, "requests are slow");
        }
    }

    /// How its links and their paths stand, for a status socket.
    #[must_use]
    pub fn status(&self) -> ProcessStatus {
        ProcessStatus::with(&self.endpoint, "towpath-chunkserver", |link, status| {
            let found = self.watch.health().link(link);
            status.health = found.map(|health| health.state.to_string());
            status.slow = found.map(|health| health.slow);
        })
    }

    pub(super) fn peer(&self, link: LinkId) -> String {
        self.endpoint.peer(link).map_or_else(String::new, |peer| peer.device_addr.to_string())
    }

    pub(super) fn health_reply(&self, with_times: bool) -> HealthReply {
        let mut links: Vec<_> = self.watch.health().links().collect();
        let rank = |state| match state {
            HealthState::Good => 0,
            HealthState::Degraded(cause) => 1 + cause as u32,
        };
        links.sort_by_key(|health| std::cmp::Reverse((rank(health.state), health.slow)));
        let link_count = links.len() as u64;
        links.truncate(HEALTH_LINKS_MAX);
        let of = |health: &LinkHealth| LinkHealthReply::new(self.peer(health.link), health);
        let (now, most) = (self.endpoint.now(), self.rpc.most_dropped());
        HealthReply {
            links: links.into_iter().map(of).collect(),
            link_count,
            slow: self.watch.health().slow(),
            slow_after_ms: self.watch.health().config().slow_limit().0 / 1_000_000,
            oldest_us: self.rpc.oldest().map_or(0, |began| now.since(began).0 / 1000),
            given_up: self.stats.cancelled + self.stats.expired,
            pools: self.endpoint.pool_reports().map(|report| pool_reply(&report)).collect(),
            notes_dropped: self.rpc.stats().notes_dropped,
            most_dropped_peer: most.map_or_else(String::new, |(link, _)| self.peer(link)),
            most_dropped: most.map_or(0, |(_, count)| count),
            times: if with_times { self.times() } else { Vec::new() },
        }
    }

    /// What each phase of the requests of each kind took.
    fn times(&self) -> Vec<PhaseTimesReply> {
        let meter = self.watch.meter();
        let each = OpKind::ALL.into_iter().flat_map(|kind| {
            let of_kind = Phase::ALL.map(|phase| (kind, phase, meter.of_kind(kind, phase)));
            of_kind.into_iter().filter(|(.., counts)| counts.total() > 0)
        });
        each.map(|(kind, phase, Counts { buckets, sum_ns })| {
            let (kind, phase) = (kind as u32, phase as u32);
            PhaseTimesReply { kind, phase, buckets: buckets.to_vec(), sum_ns }
        })
        .collect()
    }
}

fn pool_reply(report: &PoolReport) -> PoolReply {
    let peer = report.most.and_then(|most| most.peer);
    PoolReply {
        name: report.name(),
        out: report.out as u64,
        max: report.max as u64,
        most_peer: peer.map_or_else(String::new, |peer| peer.to_string()),
        most_held: report.most.map_or(0, |most| most.held as u64),
    }
}
