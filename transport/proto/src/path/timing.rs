//! The clock of one path: its round trips, and when an answer is overdue.

use crate::config::LinkConfig;
use crate::flow::{Flow, estimator};
use towpath_base::{Nanos, Time};
use towpath_cc::RttEstimator;

/// A tail-loss probe sooner than this would race acks that wait for a turn of the peer's loop.
const TAIL_PROBE_MIN: Nanos = Nanos::from_micros(200);

/// Timeouts of an only path that tries other ways double no further: 8 ms at the shortest.
const RTO_DOUBLINGS_WHILE_MOVING: u32 = 3;

/// Probes of a path come no faster than this: the peer may be off its CPU for that long.
pub(crate) const PROBE_INTERVAL_MIN: Nanos = Nanos::from_millis(1);

/// Where the tail-loss probe stands (docs/protocol.md section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailProbe {
    /// None since the last progress.
    Idle,
    /// To be sent now, whatever the window says.
    Due,
    /// Sent: what comes next is the retransmission timeout.
    Sent,
}

/// Round trips and timeouts of one path.
#[derive(Debug)]
pub(crate) struct Timing {
    rtt: RttEstimator,
    /// The last time that something was sent or newly acknowledged.
    last_progress: Time,
    /// The SLA timer counts from this time, if the oldest outstanding number is older.
    tick_from: Time,
    pub(crate) tail_probe: TailProbe,
    /// Timeouts in a row.
    rto_count: u32,
    /// Retransmission timeouts of which it is not known whether anything was lost.
    rtos_open: u64,
}

impl Timing {
    pub(super) fn new(config: &LinkConfig, now: Time) -> Self {
        Self {
            rtt: estimator(config),
            last_progress: now,
            tick_from: now,
            tail_probe: TailProbe::Idle,
            rto_count: 0,
            rtos_open: 0,
        }
    }

    /// The smoothed round-trip time, once there is a sample.
    pub(crate) fn srtt(&self) -> Option<Nanos> {
        self.rtt.smoothed()
    }

    pub(super) fn on_sample(&mut self, rtt: Nanos) {
        self.rtt.update(rtt);
    }

    /// The path goes another way: its round trips are unknown.
    pub(super) fn forget_round_trips(&mut self, fresh: RttEstimator) {
        self.rtt = fresh;
    }

    #[inline]
    pub(super) fn on_sent(&mut self, now: Time) {
        self.last_progress = now;
    }

    /// Something was newly acknowledged, or the path is used again after a while.
    pub(crate) fn on_progress(&mut self, now: Time) {
        (self.last_progress, self.tick_from) = (now, now);
        (self.tail_probe, self.rto_count) = (TailProbe::Idle, 0);
    }

    /// A reliable carrier is silent. It reports loss itself, so silence is not loss: another probe
    /// follows later.
    pub(crate) fn on_silence(&mut self, now: Time, may_ask: bool) {
        self.rto_count += 1;
        self.last_progress = now;
        self.tail_probe = if may_ask { TailProbe::Due } else { TailProbe::Sent };
    }

    pub(crate) fn on_rto(&mut self, now: Time) {
        self.rto_count += 1;
        self.rtos_open += 1;
        self.last_progress = now;
        self.tail_probe = TailProbe::Sent;
    }

    /// Timeouts in a row.
    pub(crate) fn rto_count(&self) -> u32 {
        self.rto_count
    }

    /// It is known whether the timeouts since the last call of this lost anything: how many.
    pub(crate) fn take_open_rtos(&mut self) -> u64 {
        core::mem::take(&mut self.rtos_open)
    }

    /// The path tries other ways: timeouts stay as frequent as its tries.
    pub(crate) fn hold_back_off(&mut self) {
        self.rto_count = self.rto_count.min(RTO_DOUBLINGS_WHILE_MOVING);
    }

    /// The silence was the peer's: what is outstanding is missed as soon as usual.
    pub(super) fn forget_back_off(&mut self) {
        self.rto_count = 0;
    }

    /// The SLA timer counts from now.
    pub(crate) fn restart_tick(&mut self, now: Time) {
        self.tick_from = now;
    }

    /// The SLA timer waits for no round of silence any more.
    pub(super) fn end_silence(&mut self, now: Time) {
        self.tick_from = self.tick_from.min(now);
    }

    /// The SLA timer counts from this time.
    pub(crate) fn tick_from(&self) -> Time {
        self.tick_from
    }

    /// The round trips to go by: those of all paths where this one has had none.
    fn round_trips<'a>(&'a self, flow: &'a Flow) -> &'a RttEstimator {
        if self.rtt.smoothed().is_some() { &self.rtt } else { &flow.rtt }
    }

    /// Two round trips, so many deviations, and what the hosts may take.
    fn answer(&self, flow: &Flow, deviations: u64) -> Nanos {
        let rtt = self.round_trips(flow);
        let srtt = rtt.smoothed().unwrap_or(Nanos::ZERO);
        srtt.saturating_mul(2) + rtt.variance().saturating_mul(deviations) + flow.hosts_max()
    }

    /// An answer comes within this time, if any does: probes come no faster.
    pub(crate) fn probe_interval(&self, flow: &Flow) -> Nanos {
        self.answer(flow, 4).max(PROBE_INTERVAL_MIN)
    }

    pub(crate) fn rto(&self, flow: &Flow) -> Nanos {
        self.round_trips(flow).rto_backed_off(flow.hosts_max(), self.rto_count)
    }

    /// When the newest number that is outstanding is overdue.
    pub(super) fn overdue_at(&self, flow: &Flow) -> Time {
        let span = match self.tail_probe {
            TailProbe::Idle if self.round_trips(flow).smoothed().is_some() => {
                self.answer(flow, 2).max(TAIL_PROBE_MIN)
            }
            TailProbe::Due => Nanos::ZERO,
            TailProbe::Idle | TailProbe::Sent => self.rto(flow),
        };
        self.last_progress + span
    }

    /// When the SLA timer of a number expires that was sent at this time.
    pub(super) fn tick_due(&self, flow: &Flow, sla_tick: Nanos, sent_at: Time) -> Time {
        sent_at.max(self.tick_from) + self.answer(flow, 4).max(sla_tick)
    }
}
