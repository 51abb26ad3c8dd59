//! A TCP flow that always has something to send: the window of CUBIC (RFC 9438), losses found by
//! selective acknowledgements, one decrease in a round trip.

use std::collections::VecDeque;

use towpath_base::{Nanos, Time};

use super::wire::Wire;
use super::{Agenda, Event, Plan};

const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// Segments that must be acknowledged above one for it to count as lost.
const DUPLICATES: u64 = 3;

const RTO_MIN: Nanos = Nanos::from_millis(200);

pub(super) struct Tcp {
    segment_bytes: u32,
    base_rtt: Nanos,
    window: f64,
    threshold: f64,
    /// The window at the last decrease, and when that was.
    most: f64,
    decreased_at: Option<Time>,
    /// The window that Reno would have.
    reno: f64,
    srtt: Nanos,
    next: u64,
    /// Segments in flight: number, when sent, acknowledged.
    flight: VecDeque<(u64, Time, bool)>,
    /// Until this number is acknowledged the loss is the same.
    recovers: u64,
    timer_at: Time,
    pub(super) delivered_bytes: u64,
}

impl Tcp {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            segment_bytes: plan.packet_bytes.1,
            base_rtt: plan.base_rtt,
            window: 10.0,
            threshold: f64::INFINITY,
            most: 0.0,
            decreased_at: None,
            reno: 0.0,
            srtt: plan.base_rtt,
            next: 0,
            flight: VecDeque::new(),
            recovers: 0,
            timer_at: Time::ZERO,
            delivered_bytes: 0,
        }
    }

    fn send(&mut self, now: Time, wire: &mut Wire, agenda: &mut Agenda) {
        let mut under_way = self.flight.iter().filter(|segment| !segment.2).count();
        while under_way < (self.window as usize).max(1) {
            if let Some(left_at) = wire.send(now, self.segment_bytes) {
                agenda.add(left_at + self.base_rtt, Event::TcpAck(self.next));
            }
            self.flight.push_back((self.next, now, false));
            self.next += 1;
            under_way += 1;
        }
        self.timer_at = now + RTO_MIN;
        agenda.add(self.timer_at, Event::TcpTimer);
    }

    pub(super) fn on_ack(&mut self, now: Time, number: u64, wire: &mut Wire, agenda: &mut Agenda) {
        let Some(first) = self.flight.front().map(|segment| segment.0) else { return };
        let Some(segment) = number.checked_sub(first).and_then(|n| self.flight.get_mut(n as usize))
        else {
            return;
        };
        segment.2 = true;
        let rtt = now.since(segment.1);
        self.srtt = Nanos(self.srtt.0 - self.srtt.0 / 8 + rtt.0 / 8);
        self.delivered_bytes += u64::from(self.segment_bytes);
        self.grow(now);
        while let Some(&(oldest, _, acked)) = self.flight.front() {
            let is_lost = !acked && number >= oldest + DUPLICATES;
            if !acked && !is_lost {
                break;
            }
            if is_lost && oldest >= self.recovers {
                self.recovers = self.next;
                self.decrease(now);
            }
            self.flight.pop_front();
        }
        self.send(now, wire, agenda);
    }

    fn grow(&mut self, now: Time) {
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let since = self.decreased_at.map_or(0.0, |at| (now.since(at) + self.srtt).0 as f64 / 1e9);
        let k = (self.most * (1.0 - BETA) / C).cbrt();
        let wanted = C * (since - k).powi(3) + self.most;
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.window;
        let step = ((wanted - self.window) / self.window).clamp(0.0, 0.5);
        self.window = (self.window + step).max(self.reno);
    }

    fn decrease(&mut self, now: Time) {
        self.most =
            if self.window < self.most { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(2.0);
        (self.threshold, self.reno) = (self.window, self.window);
        self.decreased_at = Some(now);
    }

    pub(super) fn on_timer(&mut self, now: Time, wire: &mut Wire, agenda: &mut Agenda) {
        if now < self.timer_at {
            return;
        }
        if !self.flight.is_empty() {
            self.decrease(now);
            self.window = 1.0;
            self.flight.clear();
        }
        self.send(now, wire, agenda);
    }
}
