//! How much of a lane is under way.
//!
//! The network carries a READ's bytes towards the reader, and RC at the other end sends them with a
//! fixed window and no pace. So the reader counts them as if it sent them itself: a hundred readers
//! of one server then fill its port and no more. What the link sends beside counts, too: a link
//! with both takes the share of one flow.

use crate::config::{LinkConfig, PeerParams};
use crate::flow::share_of;
use towpath_base::{Nanos, Time};
use towpath_cc::{AckSample, AnyController, Cached, Controller, Pacer, PathFacts, Rate};

/// What holds operations back.
#[derive(Debug)]
pub(super) struct Pace {
    cc: Cached<AnyController>,
    pacer: Pacer,
    in_flight_bytes: u64,
    /// What was done at the time of the last completion, which the controller is not told yet: what
    /// a driver takes in at once is one sample, as for acks.
    pub(super) done: Option<AckSample>,
    /// Window or pacer held the last operation back that was asked for.
    is_limited: bool,
    /// One larger than the window went: nothing more before this.
    oversize_until: Time,
    round_trip: Option<Nanos>,
}

impl Pace {
    pub(super) fn new(config: &LinkConfig, peer: &PeerParams, now: Time) -> Self {
        let packet_bytes = peer.mtu.bytes() + peer.charge_bytes;
        let facts = PathFacts { packet_bytes, delay_noise: config.flow.delay_noise };
        Self {
            cc: Cached::new(config.flow.controller.build(now, &facts)),
            pacer: Pacer::new(now, config.flow.burst_bytes),
            in_flight_bytes: 0,
            done: None,
            is_limited: false,
            oversize_until: now,
            round_trip: None,
        }
    }

    /// Our host is away for up to `away` at a time.
    pub(super) fn set_away(&mut self, away: Nanos) {
        self.cc.set_away(away);
    }

    /// What operations have under way.
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Whether an operation may be posted now, and if not, when to ask again: [`Time::NEVER`] when
    /// another has to be done first. One always may when none is posted.
    /// The link has `beside_bytes` of chunks under way.
    pub(super) fn may_post(
        &mut self,
        now: Time,
        charge: u64,
        beside_bytes: u64,
    ) -> Result<(), Time> {
        self.tell();
        let window = share_of(self.cc.window_bytes(), beside_bytes);
        if self.in_flight_bytes > 0 && self.in_flight_bytes + charge > window {
            self.is_limited = true;
            return Err(Time::NEVER);
        }
        let at = self.pacer.ready_at(now, charge, self.cc.pacing_rate()).max(self.oversize_until);
        self.is_limited = at > now || charge > window;
        if at > now { Err(at) } else { Ok(()) }
    }

    pub(super) fn on_posted(&mut self, now: Time, charge: u64) {
        self.in_flight_bytes += charge;
        let window = self.cc.window_bytes();
        if charge > window
            && let Some(round_trip) = self.round_trip
            && self.cc.pacing_rate().is_none()
        {
            self.oversize_until = now + Rate::from_bytes_per(window, round_trip).time_for(charge);
        }
        self.pacer.on_sent(now, charge, self.cc.pacing_rate());
    }

    /// One is done that was posted at `posted_at`: at `done_at`, as far as the device told. Since
    /// then it has waited for this host.
    pub(super) fn on_done(
        &mut self,
        now: Time,
        charge: u64,
        (posted_at, done_at): (Time, Option<Time>),
    ) {
        let done_at = done_at.filter(|&at| posted_at < at && at <= now).unwrap_or(now);
        let (rtt, endpoint) = (done_at.since(posted_at), now.since(done_at));
        let in_flight_bytes = self.in_flight_bytes;
        self.in_flight_bytes -= charge;
        self.round_trip = Some(match self.round_trip {
            Some(before) => Nanos(before.0 - before.0 / 8 + rtt.0 / 8),
            None => rtt,
        });
        if let Some(done) = self.done.as_mut().filter(|done| done.now == now) {
            (done.rtt, done.endpoint) = (Some(rtt), endpoint);
            done.acked_bytes += charge;
            done.acked_chunks += 1;
            return;
        }
        self.tell();
        self.done = Some(AckSample {
            now,
            rtt: Some(rtt),
            endpoint,
            acked_bytes: charge,
            acked_chunks: 1,
            in_flight_bytes,
            window_limited: self.is_limited,
            chunk_bytes: charge.min(u64::from(u32::MAX)) as u32,
        });
    }

    /// Tells the controller what was done.
    fn tell(&mut self) {
        if let Some(done) = self.done.take() {
            self.cc.on_ack(&done);
        }
    }

    pub(super) fn on_lost(&mut self, charge: u64) {
        self.in_flight_bytes -= charge;
    }

    /// The queue pair gave up: as a timeout.
    pub(super) fn on_failed(&mut self, now: Time) {
        self.tell();
        self.cc.on_rto(now);
    }
}
