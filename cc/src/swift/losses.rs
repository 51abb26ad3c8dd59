//! Which losses are congestion: those that become fewer when less is sent.

use towpath_base::{Nanos, Time};

use crate::limits::{
    SHARED_LOSS_PACKETS, SHARED_LOSS_SHARE_MAX, SHARED_LOSS_SLACK, SHARED_RANDOM_GOODPUT,
    SHARED_RANDOM_LEFT, SHARED_RANDOM_MAX, SHARED_RANDOM_SPANS,
};

/// The share of packets that are lost, in spans of [`SHARED_LOSS_PACKETS`], and how much of it is
/// random: what stays when the sender has reduced its window.
///
/// A queue that overflows loses less, and delivers as much as before, when less is sent. Random
/// loss keeps its share, and what is delivered falls with what is sent.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    packets: f64,
    lost: f64,
    /// What is counted was sent after the last decrease from this time on.
    counts_from: Time,
    /// The share of losses that led to the last decrease, while it is to be compared.
    before: Option<f64>,
    /// The share that is random, as far as that has shown.
    random: f64,
}

impl Losses {
    pub(super) fn new(now: Time) -> Self {
        Self { packets: 0.0, lost: 0.0, counts_from: now, before: None, random: 0.0 }
    }

    /// Counts packets that were acknowledged or belong to lost chunks; `lost` of them are lost.
    /// Returns whether so many losses are congestion.
    pub(super) fn note(&mut self, now: Time, packets: f64, lost: f64) -> bool {
        if now < self.counts_from {
            return false;
        }
        self.packets += packets;
        self.lost += lost;
        let is_whole = self.packets >= SHARED_LOSS_PACKETS;
        let share = self.lost / self.packets.max(SHARED_LOSS_PACKETS);
        let is_much = self.lost > self.bearable();
        if !is_whole && !is_much {
            return false;
        }
        let share = if is_whole { self.lost / self.packets } else { share };
        if let Some(before) = self.before.take()
            && share > before * SHARED_RANDOM_LEFT
            && 1.0 - share < (1.0 - before) * SHARED_RANDOM_GOODPUT
        {
            self.random = self.random.max(share).min(SHARED_RANDOM_MAX);
            self.restart(now);
            return false;
        }
        if is_whole {
            // What is not seen again is forgotten, and so has to show again.
            let lower = share.min(self.random);
            self.random += (lower - self.random) / 4.0;
            self.random -= self.random / SHARED_RANDOM_SPANS;
        }
        if !is_much {
            self.restart(now);
        }
        is_much
    }

    /// The window was reduced because of what [`note`](Self::note) said: what is found lost within
    /// `rtt` is still of the window before.
    pub(super) fn on_decrease(&mut self, now: Time, rtt: Nanos) {
        self.before = Some(self.lost / self.packets.max(SHARED_LOSS_PACKETS));
        self.restart(now + rtt + Nanos(rtt.0 / 2));
    }

    fn restart(&mut self, from: Time) {
        (self.packets, self.lost, self.counts_from) = (0.0, 0.0, from);
    }

    /// Losses in a span that are no reason to send less.
    fn bearable(&self) -> f64 {
        let share = SHARED_LOSS_SHARE_MAX + self.random * 1.25;
        SHARED_LOSS_PACKETS.max(self.packets) * share + SHARED_LOSS_SLACK
    }
}
