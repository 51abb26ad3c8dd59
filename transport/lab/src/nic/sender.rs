//! The sending half of a flow: the window, the rate, and what is sent again.

use super::dcqcn::DcqcnRate;
use super::{MTU_BYTES, NicConfig, Repair};
use crate::cluster::FlowPlan;
use std::collections::BTreeSet;
use towpath_base::{Nanos, Time};

/// The sending half of a queue pair.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) plan: FlowPlan,
    config: NicConfig,
    /// Packets of a message.
    message_packets: u64,
    /// One behind the last packet of all messages that were posted.
    posted: u64,
    /// The oldest packet that is not acknowledged.
    una: u64,
    /// The packet that goes next, where nothing is sent again.
    next: u64,
    /// One behind the last packet that was ever sent.
    sent: u64,
    /// Packets from `una` on that have come, as the receiver said.
    came: BTreeSet<u64>,
    /// Packets that go before `next`.
    again: BTreeSet<u64>,
    /// Of the packets below this number, those that are missing were sent again already.
    repaired: u64,
    rate: Option<DcqcnRate>,
    /// When the last packet was sent, and its bits.
    paced: (Time, u64),
    /// When it gives up waiting for an acknowledgement.
    retry_at: Time,
    /// Packets that were sent again.
    pub(super) resent: u64,
}

impl Sender {
    pub(super) fn new(plan: FlowPlan, config: NicConfig, line_bits_per_s: u64) -> Self {
        Self {
            plan,
            config,
            message_packets: u64::from(plan.message_bytes).div_ceil(MTU_BYTES).max(1),
            posted: 0,
            una: 0,
            next: 0,
            sent: 0,
            came: BTreeSet::new(),
            again: BTreeSet::new(),
            repaired: 0,
            rate: config.dcqcn.map(|dcqcn| DcqcnRate::new(dcqcn, line_bits_per_s)),
            paced: (Time::ZERO, 0),
            retry_at: Time::NEVER,
            resent: 0,
        }
    }

    /// Posts one message more.
    pub(super) fn post(&mut self) {
        self.posted += self.message_packets;
    }

    /// Messages that are acknowledged whole.
    pub(super) fn delivered(&self) -> u64 {
        self.una / self.message_packets
    }

    /// Bytes of a packet's payload.
    pub(super) fn payload_bytes(&self, number: u64) -> u64 {
        let offset = number % self.message_packets * MTU_BYTES;
        (u64::from(self.plan.message_bytes) - offset).min(MTU_BYTES)
    }

    /// The packet that goes next, and whether it asks for an acknowledgement; `None` where the
    /// window is full or nothing is posted.
    pub(super) fn candidate(&self) -> Option<(u64, bool)> {
        let end = self.una + u64::from(self.config.window_packets);
        let number = self.again.first().copied().unwrap_or(self.next);
        if number >= self.posted.min(end) {
            return None;
        }
        let is_last = (number + 1).is_multiple_of(self.message_packets);
        let is_due = (number + 1).is_multiple_of(self.config.ack_interval());
        Some((number, is_last || is_due || number + 1 == end))
    }

    /// When the rate lets the next packet go.
    pub(super) fn paced_until(&mut self, now: Time) -> Time {
        if let Some(rate) = &mut self.rate {
            rate.advance(now);
        }
        self.rate.as_ref().map_or(Time::ZERO, |rate| self.paced.0 + self.pause(rate))
    }

    /// What the last packet takes at this rate.
    fn pause(&self, rate: &DcqcnRate) -> Nanos {
        Nanos((self.paced.1 as f64 * 1e9 / rate.bits_per_s()) as u64)
    }

    /// When the next packet goes at the rate that there is now, or the rate changes before.
    pub(super) fn sends_at(&self) -> Time {
        let Some(rate) = &self.rate else { return Time::ZERO };
        (self.paced.0 + self.pause(rate)).min(rate.next_time())
    }

    /// When it acts though nothing comes in.
    pub(super) fn retry_at(&self) -> Time {
        self.retry_at
    }

    /// The network took this packet, of so many bytes on the wire.
    pub(super) fn on_sent(&mut self, number: u64, wire_bytes: u64, now: Time) {
        self.resent += u64::from(number < self.sent);
        if self.una == self.sent || self.retry_at == Time::NEVER {
            self.retry_at = now + self.config.timeout;
        }
        if !self.again.remove(&number) {
            self.next = number + 1;
        }
        self.sent = self.sent.max(number + 1);
        if let Some(rate) = &mut self.rate {
            // A queue pair that had nothing to send has nothing saved up.
            self.paced = (now, wire_bytes * 8);
            rate.on_sent(wire_bytes);
        }
    }

    /// All packets before `expected` have come.
    pub(super) fn on_ack(&mut self, expected: u64, now: Time) {
        if expected <= self.una {
            return;
        }
        self.una = expected;
        self.next = self.next.max(expected);
        self.came = self.came.split_off(&expected);
        self.again = self.again.split_off(&expected);
        self.retry_at = if self.una < self.sent { now + self.config.timeout } else { Time::NEVER };
    }

    /// `came` has come, and `expected` is missing.
    pub(super) fn on_gap(&mut self, expected: u64, came: u64, now: Time) {
        self.on_ack(expected, now);
        match self.config.repair {
            Repair::Packet => {
                self.came.insert(came);
                let missing = self.una.max(self.repaired)..came;
                self.again.extend(missing.filter(|number| !self.came.contains(number)));
                self.repaired = self.repaired.max(came);
            }
            Repair::Window | Repair::Message => self.go_back(),
        }
    }

    /// A switch was congested.
    pub(super) fn on_congested(&mut self, now: Time) {
        if let Some(rate) = &mut self.rate {
            rate.on_notification(now);
        }
    }

    /// No acknowledgement came in time.
    pub(super) fn on_timeout(&mut self, now: Time) {
        match self.config.repair {
            Repair::Packet => {
                let missing = self.una..self.sent;
                self.again.extend(missing.filter(|number| !self.came.contains(number)));
            }
            Repair::Window | Repair::Message => self.go_back(),
        }
        self.retry_at = now + self.config.timeout;
    }

    fn go_back(&mut self) {
        self.next = match self.config.repair {
            Repair::Message => self.una - self.una % self.message_packets,
            Repair::Window | Repair::Packet => self.una,
        };
    }
}
