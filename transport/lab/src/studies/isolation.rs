//! What is left to applications on one link beside one whose reader stalls, one after another that
//! dies, and one that floods: on channels of their own, and in one queue with it.
//!
//! The handles are those of programs: egress queues, the doorbell and the worker, in virtual time.

mod report;

pub use report::{STUDY, Seen, fill};

use crate::failure::Cause;
use crate::solo::{Beside, Crowd, Lives, Passing, Queues, Solo};
use crate::studies::RunEnd;
use towpath_base::Nanos;
use towpath_cc::ControllerConfig;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::world::{HostConfig, SwitchConfig};
use towpath_sim::{Star, World};
use towpath_transport::EndpointConfig;

/// Chunks that each channel may have under way: the least there is, so that many fit.
const QUOTA_CHUNKS: u32 = 8;

/// All that applications posted is delivered within this span when they stop, and readers go on.
const SETTLE_MAX: Nanos = Nanos::from_millis(100);

/// A case on a link between two hosts.
#[derive(Clone, Copy, Debug)]
pub struct Isolation {
    /// The applications.
    pub lives: Lives,
    /// What happens on the one channel more.
    pub beside: Beside,
    /// The congestion controller of the link.
    pub controller: ControllerConfig,
    /// Of every wire, in bits a second.
    pub rate_bits_per_s: u64,
    /// There and back with nothing in the way.
    pub base_rtt: Nanos,
    /// What is measured; a fifth as long goes before.
    pub span: Nanos,
}

/// A run.
#[derive(Clone, Debug)]
pub struct IsolationResult {
    /// Goodput of the channels that count.
    pub gbps: f64,
    /// What it ended with.
    pub end: RunEnd,
}

impl Isolation {
    /// Runs it.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined, or an application cannot go on.
    pub fn run(&self) -> Result<IsolationResult, Cause> {
        let world = World::new(self.lives.seed);
        let host = HostConfig {
            rate_bits_per_s: self.rate_bits_per_s,
            delay: Nanos(self.base_rtt.0 / 4),
            ..HostConfig::default()
        };
        let hosts = Star { hosts: 2, host, switch: SwitchConfig::default() }.build(&world).hosts;
        let device = |place: usize| RoceDevice::new(world.end(hosts[place]), RoceConfig::default());
        let config = || endpoint(&self.lives).controller(self.controller).seed(world.next_seed());
        let configs = [config(), config()];
        let devices = [device(0), device(1)];
        let mut solo = Solo::new(devices, configs, Passing::Virtual(world))?;
        let mut crowd = Crowd::gather(&mut solo, &self.lives, self.beside)?;
        let (bits, span) = crowd.deliver(&mut solo, Nanos(self.span.0 / 5), self.span)?;
        let mut troubles = Vec::new();
        if !crowd.settle(&mut solo, SETTLE_MAX)? {
            troubles.push("what was posted is not delivered".to_owned());
        }
        for stats in solo.stats() {
            if stats.posts_refused + stats.send_errors + stats.recv_errors + stats.strays > 0 {
                troubles.push(format!("{stats:?}"));
            }
        }
        let traces = solo.trace_hash().map(|hash| ("", hash)).into_iter().collect();
        Ok(IsolationResult { gbps: bits as f64 / span.0 as f64, end: RunEnd { traces, troubles } })
    }
}

/// How an end is set up for them, in virtual time or real.
#[must_use]
pub fn endpoint(lives: &Lives) -> EndpointConfig {
    let most = lives.channels_max() as u32;
    let quota = match lives.queues {
        Queues::Own => QUOTA_CHUNKS,
        // What the channels would have together.
        Queues::One => QUOTA_CHUNKS * (lives.channels as u32 + 1),
    };
    EndpointConfig::new()
        .links_max(1)
        .quota_chunks(quota)
        .credit_total(QUOTA_CHUNKS * most.max(64))
        .tune_links(move |link| link.channels_max(most))
        .send_pools(&[(lives.bytes, lives.buffers())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gbps(beside: Beside, queues: Queues) -> f64 {
        let lives = Lives {
            seed: 5,
            channels: 16,
            applications: 4,
            bytes: 4096,
            depth: 64,
            flood: 1024,
            life: Nanos::from_micros(100),
            queues,
        };
        let isolation = Isolation {
            lives,
            beside,
            controller: ControllerConfig::default(),
            rate_bits_per_s: 100_000_000_000,
            base_rtt: Nanos::from_micros(10),
            span: Nanos::from_millis(1),
        };
        let result = isolation.run().expect("it runs");
        assert_eq!(result.end.troubles, [""; 0], "{beside:?}");
        result.gbps
    }

    #[test]
    fn on_channels_of_their_own_nobody_feels_who_stalls_dies_or_floods() {
        let same = gbps(Beside::Same, Queues::Own);
        assert!(same > 70.0, "{same} Gb/s");
        for beside in [Beside::Stall, Beside::Death, Beside::Flood] {
            let kept = gbps(beside, Queues::Own) / same;
            assert!(kept > 0.95, "{beside:?}: {kept}");
        }
    }

    /// With the safeguard away: one queue, one credit, one reader.
    #[test]
    fn in_one_queue_a_reader_that_stalls_stops_all_and_who_floods_has_most() {
        let same = gbps(Beside::Same, Queues::One);
        assert!(same > 40.0, "{same} Gb/s");
        assert_eq!(gbps(Beside::Stall, Queues::One), 0.0);
        let kept = gbps(Beside::Flood, Queues::One) / same;
        assert!(kept < 0.2, "{kept}");
    }
}
