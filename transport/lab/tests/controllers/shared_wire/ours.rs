//! A sender with a controller of `towpath-cc`, chunks of several packets, and a noisy host.

use std::collections::VecDeque;

use towpath_base::{Nanos, Prng, Time};

use super::wire::Wire;
use super::{Agenda, Event, Plan};
use towpath_cc::limits::OFFLOADED_SEND_BYTES;
use towpath_cc::{
    AckSample, AnyController, Controller, ControllerConfig, LossSample, Pacer, PathFacts,
};

/// A chunk is no more than this part of the window.
const CHUNKS_PER_WINDOW: u64 = 4;

/// Packets of the largest chunk.
const PACKETS_MAX: u64 = 14;

const PROBE_MIN: Nanos = Nanos::from_micros(500);
const RTO_MIN: Nanos = Nanos::from_millis(1);

/// When a host is away: a tenth of the time, up to `most` at a time.
struct Host {
    prng: Prng,
    most: Nanos,
    away: (Time, Time),
}

impl Host {
    fn new(seed: u64, most: Nanos) -> Self {
        Self { prng: Prng::new(seed), most, away: (Time::ZERO, Time::ZERO) }
    }

    /// When it looks at what comes at `at`; times never go back by more than an absence.
    fn looks_at(&mut self, at: Time) -> Time {
        if self.most == Nanos::ZERO {
            return at;
        }
        while self.away.1 <= at {
            let span = Nanos(self.prng.between(200_000.min(self.most.0), self.most.0));
            let from = self.away.1 + Nanos(span.0 * self.prng.between(4, 14));
            self.away = (from, from + span);
        }
        if at >= self.away.0 { self.away.1 } else { at }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Outstanding,
    Acked,
    Lost,
}

struct Chunk {
    sent_at: Time,
    bytes: u64,
    state: State,
    /// What the receiver's host added.
    hold: Nanos,
}

pub(super) struct Ours {
    controller: AnyController,
    pacer: Pacer,
    packet_bytes: u32,
    base_rtt: Nanos,
    is_stamped: bool,
    host: Host,
    peer: Host,
    chunks: VecDeque<Chunk>,
    first: u64,
    in_flight_bytes: u64,
    window_limited: bool,
    window_full: bool,
    /// Acknowledgements that have come and not been looked at.
    inbox: Vec<(Time, u64)>,
    srtt: Nanos,
    progress_at: Time,
    timeouts: u32,
    has_probed: bool,
    turn_at: Time,
    pub(super) delivered_bytes: u64,
    pub(super) sent: u64,
    pub(super) lost: u64,
}

impl Ours {
    pub(super) fn new(plan: &Plan, seed: u64) -> Self {
        let config: ControllerConfig = plan.controller.parse().unwrap();
        let packet_bytes = plan.packet_bytes.0;
        let facts = PathFacts { packet_bytes, delay_noise: Nanos::from_millis(5) };
        Self {
            controller: config.build(Time::ZERO, &facts),
            pacer: Pacer::new(Time::ZERO, OFFLOADED_SEND_BYTES),
            packet_bytes,
            base_rtt: plan.base_rtt,
            is_stamped: plan.is_stamped,
            host: Host::new(seed, plan.away),
            peer: Host::new(seed + 1, plan.away),
            chunks: VecDeque::new(),
            first: 0,
            in_flight_bytes: 0,
            window_limited: false,
            window_full: false,
            inbox: Vec::new(),
            srtt: Nanos::ZERO,
            progress_at: Time::ZERO,
            timeouts: 0,
            has_probed: false,
            turn_at: Time::NEVER,
            delivered_bytes: 0,
            sent: 0,
            lost: 0,
        }
    }

    /// An ack reaches the host, which looks at it when it is there.
    pub(super) fn on_ack_arrives(&mut self, now: Time, number: u64, agenda: &mut Agenda) {
        self.inbox.push((now, number));
        let at = self.host.looks_at(now);
        self.look_at(at, agenda);
    }

    pub(super) fn look_at(&mut self, at: Time, agenda: &mut Agenda) {
        if at < self.turn_at {
            self.turn_at = at;
            agenda.add(at, Event::OurTurn);
        }
    }

    pub(super) fn turn(&mut self, now: Time, wire: &mut Wire, agenda: &mut Agenda) {
        if now != self.turn_at {
            return;
        }
        let here = self.host.looks_at(now);
        if here > now {
            self.turn_at = Time::NEVER;
            return self.look_at(here, agenda);
        }
        self.turn_at = Time::NEVER;
        for (arrived_at, number) in std::mem::take(&mut self.inbox) {
            self.acknowledge(now, arrived_at, number);
        }
        self.look_at_timer(now, wire, agenda);
        let next = self.send(now, wire, agenda);
        let timer = self.progress_at + self.timer();
        self.look_at(next.min(timer.max(now + Nanos(1_000))), agenda);
    }

    fn acknowledge(&mut self, now: Time, arrived_at: Time, number: u64) {
        let Some(index) = number.checked_sub(self.first) else { return };
        let chunk = &mut self.chunks[index as usize];
        if chunk.state != State::Outstanding {
            return;
        }
        chunk.state = State::Acked;
        let (bytes, hold, sent_at) = (chunk.bytes, chunk.hold, chunk.sent_at);
        let (rtt, endpoint) = if self.is_stamped {
            (arrived_at.since(sent_at) - hold, hold + now.since(arrived_at))
        } else {
            (now.since(sent_at), Nanos::ZERO)
        };
        self.srtt = if self.srtt == Nanos::ZERO {
            rtt
        } else {
            Nanos(self.srtt.0 - self.srtt.0 / 8 + rtt.0 / 8)
        };
        (self.progress_at, self.timeouts, self.has_probed) = (now, 0, false);
        let packets = bytes / (u64::from(self.packet_bytes));
        self.delivered_bytes += packets * u64::from(self.packet_bytes);
        self.controller.on_ack(&AckSample {
            now,
            rtt: Some(rtt),
            endpoint,
            acked_bytes: bytes,
            acked_chunks: 1,
            in_flight_bytes: self.in_flight_bytes,
            window_limited: self.window_limited,
            chunk_bytes: self.packet_bytes,
        });
        self.in_flight_bytes -= bytes;
        // The wire keeps the order: what is missing below is lost.
        let lost = self.lose_below(index as usize);
        if lost.1 > 0 {
            let (lost_bytes, lost_chunks) = lost;
            let in_flight_bytes = self.in_flight_bytes;
            self.controller.on_loss(&LossSample { now, lost_bytes, lost_chunks, in_flight_bytes });
        }
        while self.chunks.front().is_some_and(|chunk| chunk.state != State::Outstanding) {
            self.chunks.pop_front();
            self.first += 1;
        }
    }

    fn lose_below(&mut self, end: usize) -> (u64, u32) {
        let mut lost = (0, 0);
        for chunk in self.chunks.iter_mut().take(end) {
            if chunk.state == State::Outstanding {
                chunk.state = State::Lost;
                lost = (lost.0 + chunk.bytes, lost.1 + 1);
            }
        }
        self.in_flight_bytes -= lost.0;
        self.lost += u64::from(lost.1);
        lost
    }

    fn timer(&self) -> Nanos {
        let away = if self.host.most > Nanos::ZERO { self.host.most } else { Nanos::ZERO };
        if self.srtt == Nanos::ZERO {
            return self.base_rtt.saturating_mul(3).max(Nanos::from_millis(20));
        }
        let probe = (self.srtt.saturating_mul(2) + away).max(PROBE_MIN);
        if !self.has_probed {
            return probe;
        }
        (self.srtt.saturating_mul(3) + away).max(RTO_MIN).saturating_mul(1 << self.timeouts.min(8))
    }

    fn look_at_timer(&mut self, now: Time, wire: &mut Wire, agenda: &mut Agenda) {
        let is_due = self.in_flight_bytes > 0 && now >= self.progress_at + self.timer();
        if !is_due {
            return;
        }
        self.progress_at = now;
        if !self.has_probed {
            self.has_probed = true;
            self.send_chunk(now, 1, wire, agenda);
            return;
        }
        self.timeouts += 1;
        self.pacer.on_sent(now, 0, self.controller.pacing_rate());
        self.controller.on_rto(now);
        self.lose_below(self.chunks.len());
        self.first += self.chunks.len() as u64;
        self.chunks.clear();
    }

    /// Sends what windows and pacer let go; gives when the pacer lets go the next.
    fn send(&mut self, now: Time, wire: &mut Wire, agenda: &mut Agenda) -> Time {
        loop {
            let window = self.controller.window_bytes();
            let packet = u64::from(self.packet_bytes);
            let packets = (window / CHUNKS_PER_WINDOW / packet).clamp(1, PACKETS_MAX);
            let charge = packets * packet;
            let burst = OFFLOADED_SEND_BYTES.min(window / 4);
            let wanted = if self.window_full { charge.max(burst) } else { charge };
            let in_flight = self.in_flight_bytes;
            self.window_full = in_flight > 0 && in_flight + wanted > window;
            self.window_limited = self.window_full || in_flight + charge > window;
            if self.window_full {
                return Time::NEVER;
            }
            let rate = self.controller.pacing_rate();
            let ready_at = self.pacer.ready_at(now, charge, rate);
            if ready_at > now {
                self.window_limited = true;
                return ready_at;
            }
            self.pacer.on_sent(now, charge, rate);
            self.send_chunk(now, packets, wire, agenda);
        }
    }

    fn send_chunk(&mut self, now: Time, packets: u64, wire: &mut Wire, agenda: &mut Agenda) {
        let number = self.first + self.chunks.len() as u64;
        let mut left_at = Some(now);
        for _ in 0..packets {
            let left = wire.send(now, self.packet_bytes);
            left_at = left_at.and(left);
        }
        let mut hold = Nanos::ZERO;
        if let Some(left_at) = left_at {
            let arrives_at = left_at + Nanos(self.base_rtt.0 / 2);
            hold = self.peer.looks_at(arrives_at).since(arrives_at);
            agenda.add(left_at + self.base_rtt + hold, Event::OurAck(number));
        }
        let bytes = packets * u64::from(self.packet_bytes);
        let state = State::Outstanding;
        self.chunks.push_back(Chunk { sent_at: now, bytes, state, hold });
        if self.in_flight_bytes == 0 {
            self.progress_at = now;
        }
        self.in_flight_bytes += bytes;
        self.sent += 1;
    }
}
