//! One-sided operations in the window and the pace of their link.
//!
//! The network carries a READ's bytes towards the reader, and RC at the other end sends them with a
//! fixed window and no pace. So the reader counts them as if it sent them itself: a hundred readers
//! of one server then fill its port and no more. Chunks and operations share one window, so a link
//! with both takes the share of one flow.

use super::{Flow, estimator};
use crate::config::LinkConfig;
use towpath_base::{Nanos, Time};
use towpath_cc::{AckSample, Controller, RttEstimator};
use towpath_verbs::Mtu;

/// What operations have under way.
#[derive(Debug)]
pub(super) struct Operations {
    pub(super) in_flight_bytes: u64,
    /// What was done at the time of the last completion and the controller was not told yet: what
    /// a driver takes in at once is one sample, as for acks.
    pub(super) done: Option<AckSample>,
    /// Window or pacer held the last operation back that was asked for.
    is_limited: bool,
    /// Round trips of operations.
    rtt: RttEstimator,
}

impl Operations {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Self { in_flight_bytes: 0, done: None, is_limited: false, rtt: estimator(config) }
    }
}

/// What is left of a window where `beside_bytes` of another kind are under way on the same link:
/// chunks beside operations, and the other way round. Half of it is left in any case, so that both
/// go on.
#[inline]
pub(super) fn share_of(window: u64, beside_bytes: u64) -> u64 {
    window.saturating_sub(beside_bytes).max(window / 2)
}

impl Flow {
    /// Charges an operation that is posted now. If it may not be, returns when to ask again:
    /// [`Time::NEVER`] when another operation has to be done first. One always may when none is
    /// posted.
    pub(crate) fn post_operation(&mut self, now: Time, charge: u64) -> Result<(), Time> {
        self.tell_of_operations();
        // Chunks on TCP do not compete with operations.
        let chunks = if self.is_stream { 0 } else { self.in_flight_bytes };
        let window = share_of(self.cc.window_bytes(), chunks);
        let in_flight_bytes = self.operations.in_flight_bytes;
        if in_flight_bytes > 0 && in_flight_bytes + charge > window {
            self.operations.is_limited = true;
            return Err(Time::NEVER);
        }
        let at = self.pacer.ready_at(now, charge, self.cc.pacing_rate()).max(self.oversize_until);
        self.operations.is_limited = at > now || charge > window;
        if at > now {
            return Err(at);
        }
        self.operations.in_flight_bytes += charge;
        if charge > self.cc.window_bytes() {
            self.hold_after_oversize(now, charge, self.operations.rtt.smoothed());
        }
        self.pacer.on_sent(now, charge, self.cc.pacing_rate());
        Ok(())
    }

    /// An operation is done that was posted at `posted_at`, in packets of `mtu`: at `done_at`, as
    /// far as the device told. Since then it has waited for this host.
    pub(crate) fn on_operation_done(
        &mut self,
        now: Time,
        mtu: Mtu,
        charge: u64,
        (posted_at, done_at): (Time, Option<Time>),
    ) {
        let done_at = done_at.filter(|&at| posted_at < at && at <= now).unwrap_or(now);
        let (rtt, endpoint) = (done_at.since(posted_at), now.since(done_at));
        let in_flight_bytes = self.operations.in_flight_bytes;
        self.operations.in_flight_bytes -= charge;
        let rtt = Some(self.delay_of_operation(rtt, charge));
        if let Some(done) = self.operations.done.as_mut().filter(|done| done.now == now) {
            (done.rtt, done.endpoint) = (rtt, endpoint);
            done.acked_bytes += charge;
            done.acked_chunks += 1;
            return;
        }
        self.tell_of_operations();
        self.hear_of(mtu);
        self.operations.done = Some(AckSample {
            now,
            rtt,
            endpoint,
            acked_bytes: charge,
            acked_chunks: 1,
            in_flight_bytes,
            window_limited: self.operations.is_limited,
            chunk_bytes: charge.min(u64::from(u32::MAX)) as u32,
        });
    }

    /// The round trip that the controller hears of: that of an operation which is no longer than a
    /// chunk. A longer one takes longer where nothing is queued: what it took beyond the least
    /// operation of late is added to the least round trip of either kind.
    fn delay_of_operation(&mut self, rtt: Nanos, charge: u64) -> Nanos {
        self.operations.rtt.update(rtt);
        if charge <= u64::from(self.charge(self.body_max())) {
            return rtt;
        }
        let least = self.operations.rtt.min().map_or(rtt, |least| least.min(rtt));
        let of_chunks = self.rtt.min().unwrap_or(least);
        least.min(of_chunks) + (rtt - least)
    }

    /// Tells the controller what was done.
    fn tell_of_operations(&mut self) {
        if let Some(done) = self.operations.done.take() {
            self.cc.on_ack(&done);
        }
    }

    /// The device has given an operation back that was not done.
    pub(crate) fn on_operation_lost(&mut self, charge: u64) {
        self.operations.in_flight_bytes -= charge;
    }

    /// The queue pair of operations gave up: as a timeout.
    pub(crate) fn on_operations_failed(&mut self, now: Time) {
        self.tell_of_operations();
        self.cc.on_rto(now);
    }
}
