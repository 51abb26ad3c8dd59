//! What may happen to a packet.

use crate::limits::REORDER_PACKETS_MAX;
use std::collections::BTreeSet;
use towpath_base::Nanos;

/// Loss in bursts (Gilbert and Elliott): a channel that is now good, now bad, and loses packets
/// only while it is bad. Each is a probability.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Burst {
    /// That a good channel turns bad, per packet.
    pub enter: f64,
    /// That a bad channel turns good, per packet; the mean burst is `1 / leave` packets long.
    pub leave: f64,
    /// That a packet is lost while the channel is bad.
    pub loss: f64,
}

impl Burst {
    /// The share of packets that is lost in the long run.
    #[must_use]
    pub fn mean_loss(&self) -> f64 {
        if self.enter <= 0.0 { 0.0 } else { self.loss * self.enter / (self.enter + self.leave) }
    }
}

/// What may happen to the packets of one direction. The default is nothing.
///
/// Faults are independent, so a packet may suffer several. Probabilities are clamped to 0..=1,
/// and one that is not a number is 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    pub(super) drop: f64,
    pub(super) burst: Burst,
    pub(super) duplicate: Chance,
    pub(super) reorder: Reorder,
    pub(super) corrupt: f64,
    pub(super) scribble: f64,
    pub(super) delay: Nanos,
    pub(super) jitter: Nanos,
    pub(super) late: Chance,
    pub(super) black_hole: bool,
    pub(super) black_holed_ports: BTreeSet<u16>,
    pub(super) longest_bytes: Option<usize>,
}

/// Something that happens with probability `p` and takes a time drawn from a range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Chance {
    pub(super) p: f64,
    pub(super) low: Nanos,
    pub(super) high: Nanos,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reorder {
    pub(super) p: f64,
    pub(super) packets_max: u32,
    pub(super) delay_max: Nanos,
}

impl FaultPlan {
    /// A plan of no faults.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Loses each packet with probability `p`, independently.
    #[must_use]
    pub fn drop(mut self, p: f64) -> Self {
        self.drop = probability(p);
        self
    }

    /// Loses packets in bursts.
    #[must_use]
    pub fn burst(mut self, burst: Burst) -> Self {
        self.burst = Burst {
            enter: probability(burst.enter),
            leave: probability(burst.leave),
            loss: probability(burst.loss),
        };
        self
    }

    /// With probability `p` a packet arrives twice, the copy up to `delay_max` after it.
    #[must_use]
    pub fn duplicate(mut self, p: f64, delay_max: Nanos) -> Self {
        self.duplicate = Chance { p: probability(p), low: Nanos::ZERO, high: delay_max };
        self
    }

    /// With probability `p` a packet is held until 1 to `packets_max` later ones of its direction
    /// have been taken (lost ones count), or `delay_max` has passed, whichever comes first. Zero
    /// packets means by time alone, and so does a plan that delays every packet.
    /// `packets_max` is at most [`REORDER_PACKETS_MAX`].
    #[must_use]
    pub fn reorder(mut self, p: f64, packets_max: u32, delay_max: Nanos) -> Self {
        let packets_max = packets_max.min(REORDER_PACKETS_MAX);
        self.reorder = Reorder { p: probability(p), packets_max, delay_max };
        self
    }

    /// With probability `p` a packet has a bit flipped anywhere (headers and ICRC too), or loses
    /// its end, or gains a false one.
    #[must_use]
    pub fn corrupt(mut self, p: f64) -> Self {
        self.corrupt = probability(p);
        self
    }

    /// With probability `p` a byte of a packet takes another value: half of the time one of the
    /// first 16, where the headers are, else any.
    #[must_use]
    pub fn scribble(mut self, p: f64) -> Self {
        self.scribble = probability(p);
        self
    }

    /// Delays each packet by `delay` and up to `jitter` more. Jitter alone reorders.
    #[must_use]
    pub fn delay(mut self, delay: Nanos, jitter: Nanos) -> Self {
        (self.delay, self.jitter) = (delay, jitter);
        self
    }

    /// With probability `p` a packet is held for a time between `low` and `high`, long enough to
    /// arrive after the buffers that it was meant for have been used again.
    #[must_use]
    pub fn late(mut self, p: f64, low: Nanos, high: Nanos) -> Self {
        self.late = Chance { p: probability(p), low: low.min(high), high };
        self
    }

    /// Loses every packet, or no longer does.
    #[must_use]
    pub fn black_hole(mut self, on: bool) -> Self {
        self.black_hole = on;
        self
    }

    /// Loses every packet of these source ports; replaces the set from before. Where packets are
    /// sent a port is an index below [`LinkCaps::source_ports`](towpath_verbs::LinkCaps); where
    /// they are received it is the UDP port that they come from, for the index is not on the wire.
    #[must_use]
    pub fn black_hole_ports(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.black_holed_ports = ports.into_iter().collect();
        self
    }

    /// Loses every packet of more than `bytes` bytes, BTH to ICRC, as a way does that carries less
    /// and does not say so. `None` loses none for its length.
    #[must_use]
    pub fn drop_longer_than(mut self, bytes: Option<usize>) -> Self {
        self.longest_bytes = bytes;
        self
    }

    /// Whether it leaves every packet alone.
    #[must_use]
    pub fn is_none(&self) -> bool {
        let chances = [self.drop, self.burst.enter, self.duplicate.p, self.reorder.p];
        chances.into_iter().chain([self.corrupt, self.scribble, self.late.p]).all(|p| p == 0.0)
            && !self.delays_all()
            && !self.black_hole
            && self.black_holed_ports.is_empty()
            && self.longest_bytes.is_none()
    }

    /// Whether every packet is held for a while.
    pub(super) fn delays_all(&self) -> bool {
        self.delay > Nanos::ZERO || self.jitter > Nanos::ZERO
    }
}

fn probability(p: f64) -> f64 {
    if p.is_nan() { 0.0 } else { p.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_clamped_and_not_a_number_is_zero() {
        assert_eq!(FaultPlan::none().drop(7.0).drop, 1.0);
        assert_eq!(FaultPlan::none().drop(-1.0), FaultPlan::none());
        assert_eq!(FaultPlan::none().corrupt(f64::NAN), FaultPlan::none());
    }

    #[test]
    fn each_fault_makes_a_plan_that_is_not_none() {
        let none = FaultPlan::none;
        let us = Nanos::from_micros(1);
        let burst = Burst { enter: 0.1, leave: 0.1, loss: 1.0 };
        let plans = [
            none().drop(0.1),
            none().burst(burst),
            none().duplicate(0.1, us),
            none().reorder(0.1, 3, us),
            none().corrupt(0.1),
            none().scribble(0.1),
            none().delay(us, Nanos::ZERO),
            none().delay(Nanos::ZERO, us),
            none().late(0.1, us, us),
            none().black_hole(true),
            none().black_hole_ports([1]),
            none().drop_longer_than(Some(1500)),
        ];
        assert!(none().is_none());
        assert!(plans.iter().all(|plan| !plan.is_none()));
    }
}
