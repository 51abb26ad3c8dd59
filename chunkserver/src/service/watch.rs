//! What a server sees of itself: the health of its links, its counters, and lines for the log.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use towpath_fastpath::{HealthConfig, HealthMonitor};
use towpath_transport::{DownReason, LinkId, Nanos, Time};

use super::limits::CLIENTS_LOGGED;
use super::pace::Pace;
use super::scrubbing::{ScrubBoard, ScrubProgress};
use super::stops::{Stopped, Stops};
use crate::metrics::Meter;

#[derive(Debug)]
pub(super) struct Watch {
    monitor: HealthMonitor,
    meter: Arc<Meter>,
    /// Of each disk.
    scrubs: Arc<[ScrubBoard]>,
    /// Requests that stopped half-way.
    stops: Stops,
    refusals: Pace,
    losses: Pace,
    slow: Pace,
    started: Time,
    /// When the poll of this turn was.
    polled: Time,
}

impl Watch {
    pub(super) fn new(health: HealthConfig, started: Time) -> Self {
        Self {
            monitor: HealthMonitor::new(health),
            meter: Arc::default(),
            scrubs: Arc::from([]),
            stops: Stops::default(),
            refusals: Pace::default(),
            losses: Pace::of_burst(CLIENTS_LOGGED),
            slow: Pace::default(),
            started,
            polled: started,
        }
    }

    /// How the links are.
    pub(super) fn health(&self) -> &HealthMonitor {
        &self.monitor
    }

    pub(super) fn health_mut(&mut self) -> &mut HealthMonitor {
        &mut self.monitor
    }

    /// Where requests are counted.
    pub(super) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    pub(super) fn count_in(&mut self, meter: Arc<Meter>) {
        self.meter = meter;
    }

    /// How far the background scrub of each disk is stands there.
    pub(super) fn set_scrubs(&mut self, boards: Arc<[ScrubBoard]>) {
        self.scrubs = boards;
    }

    pub(super) fn scrubs(&self) -> impl Iterator<Item = ScrubProgress> {
        self.scrubs.iter().map(ScrubBoard::read)
    }

    pub(super) fn uptime(&self, now: Time) -> Nanos {
        now.since(self.started)
    }

    /// A turn begins with a poll.
    pub(super) fn begin_turn(&mut self, now: Time) {
        self.polled = now;
    }

    /// When the poll of this turn was.
    pub(super) fn polled(&self) -> Time {
        self.polled
    }

    /// A client was turned away.
    pub(super) fn refused(&mut self, now: Time, from: SocketAddr, error: &dyn Display) {
        if let Some(others) = self.refusals.others_when_due(now) {
            tracing::warn!(%from, %error, others, "a client was turned away");
        }
    }

    /// The link of a client is gone. Every command ends its link, so only a lost client is worth a
    /// line.
    pub(super) fn left(&mut self, now: Time, link: LinkId, reason: DownReason) {
        let link = link.index();
        if let DownReason::Goodbye | DownReason::Local = reason {
            tracing::debug!(link, %reason, "a client has left");
        } else if let Some(others) = self.losses.others_when_due(now) {
            tracing::info!(link, %reason, others, "a client was lost");
        }
    }

    /// A request that took so long was slow. Whether it is told in the log: then how many were not
    /// since the last one that was.
    pub(super) fn is_told_slow(&mut self, now: Time, took: Nanos) -> Option<u64> {
        if took < self.monitor.config().slow_limit() {
            return None;
        }
        self.meter.count_slow();
        self.slow.others_when_due(now)
    }

    /// A request has stopped half-way.
    pub(super) fn stopped(&mut self, now: Time, stopped: Stopped) {
        self.stops.add(now, stopped);
    }

    /// The next one that has, the oldest first.
    pub(super) fn next_stopped(&mut self) -> Option<Stopped> {
        self.stops.next()
    }
}
