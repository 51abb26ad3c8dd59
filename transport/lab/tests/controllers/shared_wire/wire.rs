//! The wire: a rate, a queue that drops what does not fit, random loss.

use towpath_base::{Nanos, Prng, Time};

use super::Plan;

/// Headers of all layers around the payload of a packet, without preamble and checksum.
pub(super) const HEADERS_BYTES: u64 = 60;

pub(super) struct Wire {
    rate_bits_per_s: u64,
    queue_bytes: u64,
    loss: f64,
    prng: Prng,
    free_at: Time,
}

impl Wire {
    pub(super) fn new(plan: &Plan, seed: u64) -> Self {
        let (rate_bits_per_s, queue_bytes) = (plan.rate_bits_per_s, plan.queue_bytes);
        let (prng, free_at) = (Prng::new(seed), Time::ZERO);
        Self { rate_bits_per_s, queue_bytes, loss: plan.loss, prng, free_at }
    }

    /// How long a packet that comes now waits.
    pub(super) fn wait(&self, now: Time) -> Nanos {
        self.free_at.since(now)
    }

    /// A packet with this payload comes; gives when it has left, if it is neither dropped nor lost.
    pub(super) fn send(&mut self, now: Time, payload_bytes: u32) -> Option<Time> {
        let bytes = u64::from(payload_bytes) + HEADERS_BYTES;
        let waiting = self.wait(now).0 * self.rate_bits_per_s / 8_000_000_000;
        if waiting + bytes > self.queue_bytes {
            return None;
        }
        let takes = Nanos(bytes * 8_000_000_000 / self.rate_bits_per_s);
        self.free_at = self.free_at.max(now) + takes;
        (!self.prng.chance(self.loss)).then_some(self.free_at)
    }
}
