//! What one path has sent and received: numbers, acks, loss, timers.

mod rx;
#[cfg(test)]
mod tests;
mod tx;

pub(crate) use rx::ReceiveWindow;
pub(crate) use tx::{AckDigest, DataChunk, SendWindow, What};

use crate::carrier::Carrier;
use crate::chunk_size::ChunkSize;
use crate::config::{LinkConfig, PeerParams};
use crate::event::Cut;
use alloc::collections::VecDeque;
use towpath_base::{Nanos, Time};
use towpath_cc::{
    AckSample, AnyController, Controller, LossSample, Pacer, PathFacts, Rate, RttConfig,
    RttEstimator,
};

/// Before the first sample the peer may be on another continent or off its CPU.
const RTO_INITIAL: Nanos = Nanos::from_millis(20);

/// A tail-loss probe sooner than this would race acks that wait for a turn of the peer's loop.
const TAIL_PROBE_MIN: Nanos = Nanos::from_micros(200);

/// A window holds at least so many chunks, unless it holds less than so many packets: acks then
/// come often enough to send smoothly by.
const CHUNKS_PER_WINDOW: u64 = 4;

/// One path: a queue pair and a source port.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) carrier: Carrier,
    /// Its carrier has ended: nothing is sent on it any more.
    pub(crate) has_failed: bool,
    pub(crate) generation_in: u32,
    pub(crate) generation_out: u32,
    pub(crate) tx: SendWindow,
    pub(crate) rx: ReceiveWindow,
    pub(crate) rtt: RttEstimator,
    pub(crate) cc: AnyController,
    pub(crate) pacer: Pacer,
    pub(crate) chunk_size: ChunkSize,
    /// Chunks found lost, to be sent before anything new.
    pub(crate) lost: VecDeque<DataChunk>,
    /// What the peer lets us have in flight.
    pub(crate) peer_window_bytes: u64,
    pub(crate) ack_number_seen: u64,
    /// The longest recent delay of acks within the hosts, decaying.
    hold_max: Nanos,
    /// A chunk found the window full, and it has not opened by a burst since.
    window_full: bool,
    burst_bytes: u64,
    /// Window or pacer, not the application, held us back when we last looked for a chunk.
    window_limited: bool,
    /// A chunk larger than the window went out: nothing more before this.
    oversize_until: Time,
    /// The last time something was sent or newly acknowledged.
    pub(crate) last_progress: Time,
    pub(crate) tail_probe: TailProbe,
    pub(crate) rto_count: u32,
    charge_bytes: u32,
}

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

impl Path {
    pub(crate) fn new(
        config: &LinkConfig,
        peer: &PeerParams,
        carrier: Carrier,
        (generation_in, generation_out): (u32, u32),
        now: Time,
    ) -> Self {
        let rtt = RttConfig::default()
            .with_rto_initial(RTO_INITIAL)
            .with_rto_range(config.rto_min, config.rto_max)
            .expect("LinkConfig::rto keeps the bounds in order");
        let chunk_bytes_max = config.chunk_bytes_max.min(peer.chunk_bytes_max);
        let packet_bytes = peer.mtu.bytes() + peer.charge_bytes;
        let facts = PathFacts { packet_bytes, delay_noise: config.delay_noise };
        Self {
            carrier,
            has_failed: false,
            generation_in,
            generation_out,
            tx: SendWindow::new(),
            rx: ReceiveWindow::new(),
            rtt: RttEstimator::new(rtt),
            cc: config.controller.build(now, &facts),
            pacer: Pacer::new(now, config.burst_bytes),
            chunk_size: ChunkSize::new(peer.mtu.bytes(), chunk_bytes_max, config),
            lost: VecDeque::with_capacity(64),
            peer_window_bytes: peer.window_bytes,
            ack_number_seen: 0,
            hold_max: Nanos::ZERO,
            window_full: false,
            burst_bytes: config.burst_bytes,
            window_limited: false,
            oversize_until: now,
            last_progress: now,
            tail_probe: TailProbe::Idle,
            rto_count: 0,
            charge_bytes: peer.charge_bytes,
        }
    }

    /// What a chunk counts against windows: its bytes and what the receiver charges beside them.
    pub(crate) fn charge(&self, payload_bytes: u32) -> u32 {
        payload_bytes + crate::limits::HEADER_BYTES as u32 + self.charge_bytes
    }

    /// Whether the windows have room for a chunk. One chunk always goes when nothing is in flight:
    /// it cannot be cut to fit.
    ///
    /// A window that was full opens again only when there is room for a burst (or a quarter of the
    /// window): chunks that are let go one by one, as acks come, leave in sends as small as they,
    /// and come in so, and are acknowledged so, for ever.
    pub(crate) fn has_room(&mut self, payload_bytes: u32) -> bool {
        if !self.tx.has_number() {
            return false;
        }
        let in_flight = self.tx.in_flight_bytes();
        let charge = u64::from(self.charge(payload_bytes));
        let of_controller = self.cc.window_bytes();
        let window = of_controller.min(self.peer_window_bytes);
        let wanted =
            if self.window_full { charge.max(self.burst_bytes.min(window / 4)) } else { charge };
        self.window_full = in_flight > 0 && in_flight + wanted > window;
        // A chunk that goes although it is larger than the window shows the limit as well.
        let blocked = self.window_full && of_controller <= self.peer_window_bytes;
        self.window_limited = blocked || in_flight + charge > of_controller;
        !self.window_full
    }

    /// Payload bytes of the next chunk, at most: what loss suggests, and no more than a part of the
    /// window, so that a sender with a small share of a link puts small pieces into its queue.
    pub(crate) fn chunk_bytes(&self, cut: Cut) -> u32 {
        let part = self.cc.window_bytes() / CHUNKS_PER_WINDOW;
        self.chunk_size.bytes_within(part, cut)
    }

    /// There was nothing to send: the application is what holds us back.
    pub(crate) fn on_nothing_to_send(&mut self) {
        self.window_limited = false;
    }

    /// When pacing lets the next chunk go.
    pub(crate) fn ready_at(&mut self, now: Time, payload_bytes: u32) -> Time {
        let charge = u64::from(self.charge(payload_bytes));
        let at = self.pacer.ready_at(now, charge, self.cc.pacing_rate()).max(self.oversize_until);
        self.window_limited |= at > now;
        at
    }

    pub(crate) fn on_sent(&mut self, now: Time, payload_bytes: u32) {
        let charge = u64::from(self.charge(payload_bytes));
        self.hold_after_oversize(now, charge);
        self.pacer.on_sent(now, charge, self.cc.pacing_rate());
        self.chunk_size.on_sent(self.chunk_size.packets_of(payload_bytes));
        self.last_progress = now;
    }

    /// A chunk cannot be cut again: one that is larger than the window goes alone, and takes as
    /// long as the window says that its bytes take.
    fn hold_after_oversize(&mut self, now: Time, charge: u64) {
        let window = self.cc.window_bytes();
        let Some(srtt) = self.rtt.smoothed().filter(|_| charge > window) else { return };
        if self.cc.pacing_rate().is_none() {
            let span = Rate::from_bytes_per(window, srtt).time_for(charge);
            self.oversize_until = now + span;
        }
    }

    /// A reliable carrier is silent: that what it carries is lost it would have said. Another probe
    /// follows, later.
    pub(crate) fn on_silence(&mut self, now: Time) {
        self.rto_count += 1;
        self.last_progress = now;
        let may_probe = self.tx.has_number();
        self.tail_probe = if may_probe { TailProbe::Due } else { TailProbe::Sent };
    }

    /// Feeds the retransmission timeout to the controller.
    pub(crate) fn on_rto(&mut self, now: Time) {
        self.rto_count += 1;
        // What was sent is paid for at the rate at which it was.
        self.pacer.on_sent(now, 0, self.cc.pacing_rate());
        self.cc.on_rto(now);
        self.last_progress = now;
        self.tail_probe = TailProbe::Sent;
    }

    /// Feeds the estimator and the controller with what an ack brought: one that arrived at
    /// `received_at` and that the peer had held for `hold`.
    pub(crate) fn on_ack_digest(
        &mut self,
        now: Time,
        received_at: Time,
        hold: Nanos,
        digest: &AckDigest,
    ) {
        let received_at = received_at.min(now);
        let endpoint = hold + now.since(received_at);
        // A peer that claims to have held the ack for longer than it was away gives no sample.
        let rtt = digest.largest_sent_at.and_then(|sent| {
            let away = received_at.since(sent);
            (away > hold).then(|| away - hold)
        });
        if let Some(rtt) = rtt {
            self.rtt.update(rtt);
            self.hold_max = Nanos((self.hold_max.0 - self.hold_max.0 / 8).max(endpoint.0));
        }
        if digest.acked_chunks == 0 {
            return;
        }
        self.cc.on_ack(&AckSample {
            now,
            rtt,
            endpoint,
            acked_bytes: digest.acked_bytes,
            acked_chunks: digest.acked_chunks,
            in_flight_bytes: digest.in_flight_before,
            window_limited: self.window_limited,
            chunk_bytes: self.chunk_bytes(Cut::FullPackets),
        });
        self.last_progress = now;
        self.tail_probe = TailProbe::Idle;
        self.rto_count = 0;
    }

    /// Tells the controller of losses found by a gap.
    pub(crate) fn on_losses(&mut self, now: Time, lost_chunks: u32, lost_bytes: u64) {
        if lost_chunks > 0 {
            let in_flight_bytes = self.tx.in_flight_bytes();
            self.cc.on_loss(&LossSample { now, lost_bytes, lost_chunks, in_flight_bytes });
        }
    }

    /// When the last acknowledgement is overdue; `NEVER` while nothing is outstanding.
    pub(crate) fn timer(&self) -> Time {
        if !self.tx.any_outstanding() {
            return Time::NEVER;
        }
        let span = match self.tail_probe {
            TailProbe::Idle => self.tail_probe_span(),
            TailProbe::Due => Nanos::ZERO,
            TailProbe::Sent => self.rtt.rto_backed_off(self.hold_max, self.rto_count),
        };
        self.last_progress + span
    }

    fn tail_probe_span(&self) -> Nanos {
        let Some(srtt) = self.rtt.smoothed() else {
            return self.rtt.rto_backed_off(self.hold_max, self.rto_count);
        };
        let span = srtt.saturating_mul(2) + self.rtt.variance().saturating_mul(2) + self.hold_max;
        span.max(TAIL_PROBE_MIN)
    }
}
