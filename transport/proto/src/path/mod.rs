//! What one path has sent and received: numbers, acks, loss, timers; and which path is next.

mod ack_way;
mod choice;
mod condition;
mod frames;
mod ladder;
mod loss;
mod mtu;
mod order;
mod ports;
mod rx;
mod state;
mod table;
mod timing;
mod tx;

pub(crate) use condition::Condition;
pub(crate) use mtu::MtuSearch;
pub use mtu::{MtuPhase, MtuReason};
pub(crate) use rx::ReceiveWindow;
pub use state::{MOVES, Move, PathSignal, PathState};
pub(crate) use table::{PathTable, bit, places};
pub(crate) use timing::{PROBE_INTERVAL_MIN, TailProbe, Timing};
pub(crate) use tx::{AckDigest, Lost, SendWindow, What};

use crate::carrier::Carrier;
use crate::config::{LinkConfig, PacketSizes, PeerParams};
use crate::flow::Flow;
use crate::limits::NUMBER_WINDOW;
use crate::rails::Rail;
use crate::remake::{Backoff, QpHalf, Remake};
use crate::wire::HOLD_UNKNOWN;
use towpath_base::{Nanos, Time};

/// One path: a queue pair, a source port, and the NICs that it joins.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) carrier: Carrier,
    pub(crate) rail: Rail,
    /// Which of the device's source ports it leaves from, and how often that was changed.
    pub(crate) source_port: u16,
    pub(crate) moves: u64,
    pub(crate) condition: Condition,
    pub(crate) remake: Remake<QpHalf>,
    pub(crate) generation_in: u32,
    pub(crate) generation_out: u32,
    pub(crate) tx: SendWindow,
    pub(crate) rx: ReceiveWindow,
    pub(crate) timing: Timing,
    pub(crate) ack_number_seen: u64,
    /// Chunks that the peer says came behind later ones, low bits.
    pub(crate) disordered_seen: u16,
    /// When the newest was sent that was acknowledged here since its source port is this one.
    pub(crate) answered_at: Time,
    pub(crate) lost_chunks: u64,
    /// How long its packets may be.
    pub(crate) mtu: MtuSearch,
    /// Numbers that may be outstanding: the peer has receives for so many, and an ack tells of no
    /// more.
    numbers_max: u64,
}

impl Path {
    pub(crate) fn new(
        config: &LinkConfig,
        peer: &PeerParams,
        (carrier, rail, source_port): (Carrier, Rail, u16),
        (generation_in, generation_out): (u32, u32),
        now: Time,
    ) -> Self {
        let numbers_max = u64::from(peer.path_chunks).min(NUMBER_WINDOW);
        // A carrier that repeats by itself would repeat a probe, and all behind it would wait.
        let sizes =
            if carrier.is_reliable() { PacketSizes::Fixed } else { config.ways.packet_sizes };
        Self {
            carrier,
            rail,
            source_port,
            moves: 0,
            condition: Condition::new(now),
            remake: Remake::joined(&Backoff::PATH, now),
            generation_in,
            generation_out,
            tx: SendWindow::new(),
            rx: ReceiveWindow::new(),
            timing: Timing::new(config, now),
            ack_number_seen: 0,
            disordered_seen: 0,
            answered_at: Time::ZERO,
            lost_chunks: 0,
            mtu: MtuSearch::new(peer.mtu, sizes, now),
            numbers_max,
        }
    }

    /// As if the peer had receives for fewer numbers.
    #[cfg(test)]
    pub(crate) fn limit_numbers(&mut self, numbers_max: u64) {
        self.numbers_max = numbers_max;
    }

    /// Whether a chunk may use another number here. The last one is left for a probe: when the
    /// peer has refused all that is outstanding, nothing else shows it.
    pub(crate) fn has_number(&self) -> bool {
        let for_chunks = self.numbers_max.saturating_sub(1).max(1);
        self.tx.span() < for_chunks && self.tx.has_number()
    }

    /// Whether a chunk of frames may be sent here; see [`has_number`](Self::has_number).
    pub(crate) fn has_room_for_chunk(&mut self) -> bool {
        self.has_number() && self.tx.has_room_for_frames()
    }

    /// Whether a probe may use another number here.
    pub(crate) fn has_number_for_probe(&self) -> bool {
        self.tx.span() < self.numbers_max && self.tx.has_number()
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
            self.timing.on_sample(rtt);
        }
        // What comes back on a carrier that we do not ride on says nothing of the one we do.
        if let Some(flow) = flow {
            let acked = (digest.acked_chunks, digest.acked_bytes, digest.landed_bytes);
            flow.on_ack(now, self.mtu.reckoned(), (rtt, endpoint), acked);
        }
        if digest.acked_chunks > 0 {
            self.timing.on_progress(now);
        }
    }

    /// When the last acknowledgement is overdue, or what was overtaken is lost; `NEVER` while
    /// nothing is outstanding.
    pub(crate) fn timer(&self, flow: &Flow) -> Time {
        if !self.tx.any_outstanding() {
            return Time::NEVER;
        }
        self.timing.overdue_at(flow).min(self.tx.overtaken_due())
    }

    /// Whether something was overtaken for so long that it is lost, although no ack says so.
    pub(crate) fn is_overtaken(&self, now: Time) -> bool {
        self.tx.overtaken_due() <= now
    }

    /// When the SLA timer expires: nothing may be unacknowledged here for longer than an SLA tick,
    /// or than round trips are. `NEVER` while nothing is outstanding.
    pub(crate) fn tick_due(&self, flow: &Flow, sla_tick: Nanos) -> Time {
        match self.tx.oldest_sent_at() {
            Time::NEVER => Time::NEVER,
            sent_at => self.timing.tick_due(flow, sla_tick, sent_at),
        }
    }
}
