//! What one path has sent and received: numbers, acks, loss, timers; and which path is next.

mod choice;
mod frames;
mod ladder;
mod loss;
mod mtu;
mod order;
mod ports;
mod renewal;
mod rx;
mod standing;
mod state;
mod table;
mod tx;

pub use choice::Spreading;
pub use mtu::{MtuPhase, MtuReason, PacketSizes};
pub(crate) use mtu::{MtuSearch, MtuStep};
pub use renewal::QpHalf;
pub(crate) use renewal::Renewal;
pub(crate) use rx::ReceiveWindow;
pub(crate) use standing::{Standing, Verdict as ProbeVerdict};
pub use state::{MOVES, Move, PathSignal, PathState};
pub(crate) use table::{PathTable, bit};
pub(crate) use tx::{AckDigest, SendWindow, What};

use crate::carrier::Carrier;
use crate::config::{LinkConfig, PeerParams};
use crate::flow::{Flow, estimator};
use crate::limits::NUMBER_WINDOW;
use crate::wire::HOLD_UNKNOWN;
use towpath_base::{Nanos, Time};
use towpath_cc::RttEstimator;

/// A tail-loss probe sooner than this would race acks that wait for a turn of the peer's loop.
const TAIL_PROBE_MIN: Nanos = Nanos::from_micros(200);

/// Timeouts of an only path that tries other ways double no further: 8 ms at the shortest.
const RTO_DOUBLINGS_WHILE_MOVING: u32 = 3;

/// One path: a queue pair and a source port.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) carrier: Carrier,
    /// Which of the device's source ports it leaves from, and how often that was changed.
    pub(crate) source_port: u16,
    pub(crate) moves: u64,
    /// Its queue pair is in error, and another is not there yet: nothing is sent on it.
    pub(crate) has_failed: bool,
    pub(crate) renewal: Renewal,
    pub(crate) generation_in: u32,
    pub(crate) generation_out: u32,
    pub(crate) tx: SendWindow,
    pub(crate) rx: ReceiveWindow,
    pub(crate) rtt: RttEstimator,
    pub(crate) ack_number_seen: u64,
    /// Chunks that the peer says came behind later ones, low bits.
    pub(crate) disordered_seen: u16,
    /// The last time something was sent or newly acknowledged.
    pub(crate) last_progress: Time,
    /// Where the SLA timer counts from, if the oldest outstanding number is older.
    pub(crate) tick_from: Time,
    pub(crate) tail_probe: TailProbe,
    pub(crate) rto_count: u32,
    /// When the newest was sent that was acknowledged here since its source port is this one.
    pub(crate) answered_at: Time,
    pub(crate) standing: Standing,
    pub(crate) lost_chunks: u64,
    /// How long its packets may be.
    pub(crate) mtu: MtuSearch,
    /// Retransmission timeouts of which it is not known whether anything was lost.
    pub(crate) rtos_open: u64,
    /// Numbers that may be outstanding: the peer has receives for so many, and an ack tells of no
    /// more.
    numbers_max: u64,
    /// Those that chunks may use.
    chunks_max: u64,
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
        (carrier, source_port): (Carrier, u16),
        (generation_in, generation_out): (u32, u32),
        now: Time,
    ) -> Self {
        let numbers_max = u64::from(peer.path_chunks).min(NUMBER_WINDOW);
        // A carrier that repeats by itself would repeat a probe, and all behind it would wait.
        let sizes =
            if carrier.is_reliable() { PacketSizes::Fixed } else { config.ways.packet_sizes };
        Self {
            carrier,
            source_port,
            moves: 0,
            has_failed: false,
            renewal: Renewal::new(now),
            generation_in,
            generation_out,
            tx: SendWindow::new(),
            rx: ReceiveWindow::new(),
            rtt: estimator(config),
            ack_number_seen: 0,
            disordered_seen: 0,
            last_progress: now,
            tick_from: now,
            tail_probe: TailProbe::Idle,
            rto_count: 0,
            answered_at: Time::ZERO,
            standing: Standing::new(now),
            lost_chunks: 0,
            mtu: MtuSearch::new(peer.mtu, sizes, now),
            rtos_open: 0,
            numbers_max,
            chunks_max: chunks_max(numbers_max),
        }
    }

    /// As if the peer had receives for fewer numbers.
    #[cfg(test)]
    pub(crate) fn limit_numbers(&mut self, numbers_max: u64) {
        (self.numbers_max, self.chunks_max) = (numbers_max, chunks_max(numbers_max));
    }

    /// Whether a chunk may use another number here. The last one is left for a probe: when the
    /// peer has refused all that is outstanding, nothing else shows it.
    pub(crate) fn has_number(&self) -> bool {
        self.tx.span() < self.chunks_max && self.tx.has_number()
    }

    /// Whether a chunk of frames may be sent here; see [`has_number`](Self::has_number).
    pub(crate) fn has_room_for_chunk(&mut self) -> bool {
        self.has_number() && self.tx.has_room_for_frames()
    }

    /// Whether a probe may use another number here.
    pub(crate) fn has_number_for_probe(&self) -> bool {
        self.tx.span() < self.numbers_max && self.tx.has_number()
    }

    /// A reliable carrier is silent: that what it carries is lost it would have said. Another probe
    /// follows, later.
    pub(crate) fn on_silence(&mut self, now: Time) {
        self.rto_count += 1;
        self.last_progress = now;
        let may_ask = self.has_number_for_probe();
        self.tail_probe = if may_ask { TailProbe::Due } else { TailProbe::Sent };
    }

    pub(crate) fn on_rto(&mut self, now: Time) {
        self.rto_count += 1;
        self.rtos_open += 1;
        self.last_progress = now;
        self.tail_probe = TailProbe::Sent;
    }

    /// Its timeouts come as often as it has other ways to try.
    pub(crate) fn hold_back_off(&mut self) {
        self.rto_count = self.rto_count.min(RTO_DOUBLINGS_WHILE_MOVING);
    }

    /// Takes in what an ack brought that arrived at `received_at` and that the peer had held for
    /// `hold`.
    pub(crate) fn on_ack_digest(
        &mut self,
        now: Time,
        received_at: Time,
        hold: Nanos,
        digest: &AckDigest,
        flow: Option<&mut Flow>,
    ) {
        let received_at = received_at.min(now);
        let endpoint = hold + now.since(received_at);
        // A peer that claims to have held the ack for longer than it was away gives no sample,
        // nor does an ack before which others may have been lost.
        let is_first = hold < Nanos(u64::from(HOLD_UNKNOWN));
        let rtt = digest.largest_sent_at.filter(|_| is_first).and_then(|sent| {
            let away = received_at.since(sent);
            (away > hold).then(|| away - hold)
        });
        if let Some(rtt) = rtt {
            self.rtt.update(rtt);
        }
        // What comes back on a carrier that we do not ride on says nothing of the one we do.
        if let Some(flow) = flow {
            flow.on_ack(now, self.mtu.reckoned(), (rtt, endpoint), digest);
        }
        if digest.acked_chunks > 0 {
            self.last_progress = now;
            self.tick_from = now;
            self.tail_probe = TailProbe::Idle;
            self.rto_count = 0;
        }
    }

    /// When the last acknowledgement is overdue, or what was overtaken is lost; `NEVER` while
    /// nothing is outstanding.
    pub(crate) fn timer(&self, flow: &Flow) -> Time {
        if !self.tx.any_outstanding() {
            return Time::NEVER;
        }
        let span = match self.tail_probe {
            TailProbe::Idle => self.tail_probe_span(flow),
            TailProbe::Due => Nanos::ZERO,
            TailProbe::Sent => self.rto(flow),
        };
        (self.last_progress + span).min(self.tx.overtaken_due())
    }

    /// Whether something was overtaken for so long that it is lost, although no ack says so.
    pub(crate) fn is_overtaken(&self, now: Time) -> bool {
        self.tx.overtaken_due() <= now
    }

    /// The round trips to go by: those of all paths where this one has had none.
    fn round_trips<'a>(&'a self, flow: &'a Flow) -> &'a RttEstimator {
        if self.rtt.smoothed().is_some() { &self.rtt } else { &flow.rtt }
    }

    pub(crate) fn rto(&self, flow: &Flow) -> Nanos {
        self.round_trips(flow).rto_backed_off(flow.hosts_max(), self.rto_count)
    }

    fn tail_probe_span(&self, flow: &Flow) -> Nanos {
        let rtt = self.round_trips(flow);
        let Some(srtt) = rtt.smoothed() else { return self.rto(flow) };
        let span = srtt.saturating_mul(2) + rtt.variance().saturating_mul(2) + flow.hosts_max();
        span.max(TAIL_PROBE_MIN)
    }

    /// How long nothing may be acknowledged here: the SLA tick, but longer where round trips are.
    fn tick(&self, flow: &Flow, sla_tick: Nanos) -> Nanos {
        let rtt = self.round_trips(flow);
        let srtt = rtt.smoothed().unwrap_or(Nanos::ZERO);
        let span = srtt.saturating_mul(2) + rtt.variance().saturating_mul(4) + flow.hosts_max();
        span.max(sla_tick)
    }

    /// When the SLA timer expires; `NEVER` while nothing is outstanding.
    pub(crate) fn tick_due(&self, flow: &Flow, sla_tick: Nanos) -> Time {
        let oldest = self.tx.oldest_sent_at();
        if oldest == Time::NEVER {
            return Time::NEVER;
        }
        oldest.max(self.tick_from) + self.tick(flow, sla_tick)
    }
}

/// Numbers of a path that chunks may use: all but one.
fn chunks_max(numbers_max: u64) -> u64 {
    numbers_max.saturating_sub(1).max(1)
}
