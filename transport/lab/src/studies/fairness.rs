//! Flows that come and go, and flows with unlike round trips: goodput over time, and its shares.

mod report;

pub use report::STUDY;

use crate::cluster::{Cluster, FlowPlan, jain};
use crate::failure::Cause;
use crate::studies::RunEnd;
use crate::studies::wire::devices;
use towpath_base::{Nanos, Time};
use towpath_cc::ControllerConfig;
use towpath_sim::World;
use towpath_sim::world::{HostConfig, SwitchConfig};
use towpath_transport::EndpointConfig;

/// Bytes of a message, and how many each sender keeps under way: more than any window.
const MESSAGE_BYTES: u32 = 64 << 10;
const DEPTH: u32 = 16;

/// Points of the goodputs over time in each phase.
const STEPS_PER_PHASE: usize = 20;

/// What is under way at the end has so long to come.
const SETTLE_MAX: Nanos = Nanos::from_millis(100);

/// Some senders to one receiver at 100 Gb/s.
#[derive(Clone, Debug)]
pub struct Fairness {
    /// Where everything random comes from.
    pub seed: u64,
    /// The congestion controller of each.
    pub controller: ControllerConfig,
    /// Each sender: its base round trip, when it starts and when it stops.
    pub senders: Vec<(Nanos, Time, Time)>,
    /// How long each point of the goodputs over time is.
    pub step: Nanos,
    /// How many points there are.
    pub steps: usize,
}

impl Fairness {
    /// Four senders with 10 us round trips that start one `phase` after the other, and leave in
    /// the same order: each phase has another set of senders.
    #[must_use]
    pub fn joining(seed: u64, controller: ControllerConfig, phase: Nanos) -> Self {
        let at = |number: u64| Time::ZERO + phase.saturating_mul(number);
        let senders = (0..4).map(|n| (Nanos::from_micros(10), at(n), at(n + 4))).collect();
        let steps = 7 * STEPS_PER_PHASE;
        Self { seed, controller, senders, step: Nanos(phase.0 / STEPS_PER_PHASE as u64), steps }
    }

    /// Four senders at the same time, with round trips of 10, 20, 40 and 80 us.
    #[must_use]
    pub fn unlike(seed: u64, controller: ControllerConfig, span: Nanos) -> Self {
        let sender = |us| (Nanos::from_micros(us), Time::ZERO, Time::NEVER);
        let senders = [10, 20, 40, 80].map(sender).to_vec();
        Self { seed, controller, senders, step: Nanos(span.0 / 60), steps: 60 }
    }
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct FairnessResult {
    /// Goodput of each sender in each step, in bits a second.
    pub goodput: Vec<Vec<f64>>,
    /// How long a step is.
    pub step: Nanos,
    /// What it ended with.
    pub end: RunEnd,
}

impl FairnessResult {
    /// How many steps there are.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.goodput.first().map_or(0, Vec::len)
    }

    /// The goodput of each sender over some of the steps, in bits a second.
    #[must_use]
    pub fn over(&self, steps: core::ops::Range<usize>) -> Vec<f64> {
        let mean = |points: &Vec<f64>| {
            points[steps.clone()].iter().sum::<f64>() / steps.len().max(1) as f64
        };
        self.goodput.iter().map(mean).collect()
    }

    /// Jain's index over some of the steps, of the senders that sent then.
    #[must_use]
    pub fn fairness(&self, steps: core::ops::Range<usize>) -> f64 {
        jain(self.over(steps).into_iter().filter(|goodput| *goodput > 0.0))
    }
}

impl Fairness {
    /// Runs it.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<FairnessResult, Cause> {
        let world = World::new(self.seed);
        let switch = world
            .add_switch(&SwitchConfig { port_buffer_bytes: 16 << 20, ..SwitchConfig::default() });
        // The receiver's cable is short; each sender's makes up its round trip.
        let short = Nanos(500);
        let delays = self.senders.iter().map(|&(rtt, ..)| Nanos(rtt.0 / 2) - short);
        let hosts: Vec<_> = core::iter::once(short)
            .chain(delays)
            .map(|delay| world.add_host(switch, &HostConfig { delay, ..HostConfig::default() }))
            .collect();
        let devices = devices(&world, &hosts);
        let endpoint = |_| {
            EndpointConfig::new()
                .quota_chunks(512)
                .credit_total(512)
                .links_max(self.senders.len())
                .controller(self.controller)
                .send_pools(&[(MESSAGE_BYTES as usize, DEPTH as usize)])
        };
        let mut cluster = Cluster::new(world, devices, MESSAGE_BYTES, endpoint)?;
        for (sender, &(_, start, stop)) in self.senders.iter().enumerate() {
            let plan = FlowPlan::closed(sender + 1, 0, MESSAGE_BYTES).depth(DEPTH);
            cluster.add_flow(plan.between(start, stop))?;
        }
        let mut goodput = vec![Vec::with_capacity(self.steps); self.senders.len()];
        for _ in 0..self.steps {
            let begin = cluster.moment();
            cluster.run_for(self.step);
            let window = cluster.since(&begin);
            goodput.iter_mut().zip(window.goodputs()).for_each(|(all, one)| all.push(one));
        }
        cluster.settle(SETTLE_MAX);
        Ok(FairnessResult { goodput, step: self.step, end: cluster.end() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_have_started_and_not_stopped_send() {
        let controller = "fixed:64KiB".parse().unwrap();
        let result = Fairness::joining(3, controller, Nanos::from_millis(1)).run().unwrap();
        assert_eq!(result.end.troubles, [""; 0]);
        // In the middle of a phase, away from what is still under way at its edges.
        let active = |phase: usize| {
            let goodputs = result.over(phase * 20 + 5..phase * 20 + 15);
            goodputs.iter().map(|goodput| *goodput > 0.0).collect::<Vec<_>>()
        };
        assert_eq!(active(0), [true, false, false, false]);
        assert_eq!(active(3), [true; 4]);
        assert_eq!(active(6), [false, false, false, true]);
        assert!(result.fairness(65..75) > 0.95, "{:?}", result.over(65..75));
    }
}
