//! A short message beside long ones between two hosts: on a channel of its own, in one queue with
//! them, on a link of another class, and over queue pairs of RC without Towpath.
//!
//! The wire is kept busy by messages of one length, some of which are under way all the time. The
//! short ones go one at a time: the next is sent when the word comes that the one before is
//! delivered.

mod report;

pub use report::{Point, STUDY, depth, fill};

use crate::cluster::{Answer, Cluster, FlowPlan, RcCluster, Samples};
use crate::failure::Cause;
use crate::studies::RunEnd;
use crate::studies::wire::devices;
use towpath_base::{Nanos, Prng, Time};
use towpath_cc::ControllerConfig;
use towpath_device_roce::RoceDevice;
use towpath_proto::Class;
use towpath_sim::limits::CLASSES;
use towpath_sim::world::{HostConfig, QueueConfig, SwitchConfig, Turn, VirtualLink};
use towpath_sim::{Star, World};
use towpath_transport::EndpointConfig;
use towpath_verbs::{Mtu, RcAttr};

/// What the network card takes out of its send queues before the wire is free. It cannot be
/// overtaken either, and comes on top of what a link has posted; hardware reads a few packets
/// ahead.
const NIC_QUEUE_BYTES: u64 = 32 << 10;

/// What each queue of the network card holds where classes have queues of their own: one that is
/// full would make the device stop sending of every class.
const CLASS_QUEUE_BYTES: u64 = 16 << 20;

/// The first short message is sent at random within this span behind the warm-up: with the same
/// start for all, all seeds would give one run.
const START_SPREAD: Nanos = Nanos::from_micros(20);

/// The fewest short messages of a measurement.
const SAMPLES_MIN: usize = 2;

/// What is under way at the end may take so long beyond the time that the wire takes for it.
const SETTLE_MAX: Nanos = Nanos::from_millis(200);

/// Where the short messages go, on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// To a channel of their own: in turn with the background's chunks.
    Own,
    /// To the background's channel: first come, first served.
    Shared,
}

/// How the short messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over the link of the background.
    Link(Lane),
    /// Over a link of another class, whose queues take turns with the background's at every port
    /// (enhanced transmission selection, IEEE 802.1Qaz).
    Class,
    /// Over RC without Towpath, a queue pair for each.
    Raw,
    /// The same, each queue pair in a class with queues of its own as above.
    RawClass,
}

impl Way {
    fn has_classes(self) -> bool {
        matches!(self, Self::Class | Self::RawClass)
    }
}

/// Two hosts, and a link from one to the other.
#[derive(Clone, Copy, Debug)]
pub struct Foreground {
    /// Where everything random comes from.
    pub seed: u64,
    /// The congestion controller of the link.
    pub controller: ControllerConfig,
    /// What the link may have posted and not sent.
    pub ahead_bytes: u64,
    /// How the short messages travel.
    pub way: Way,
    /// What the short messages' class may send for each byte of the background's, where classes
    /// have queues of their own.
    pub weight: u16,
    /// Bytes of a short message.
    pub bytes: u32,
    /// Bytes of a message of the background.
    pub background_bytes: u32,
    /// Messages of the background under way.
    pub depth: u32,
    /// Of every wire, in bits a second.
    pub rate_bits_per_s: u64,
    /// There and back with nothing in the way.
    pub base_rtt: Nanos,
    /// The background is alone so long.
    pub warm_up: Nanos,
    /// What is measured, and longer where that are too few messages.
    pub span: Nanos,
}

/// What the short messages took on one lane, and what came beside them.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// From the sending of each to the word that it is delivered, in microseconds.
    pub times_us: Samples,
    /// Goodput of the background meanwhile: times beside unlike ones say nothing about lanes.
    pub background_gbps: f64,
}

impl Seen {
    /// Rounds together: all messages, and the goodput of the one in the middle.
    fn together(rounds: &[Self]) -> Self {
        let gbps: Samples = rounds.iter().map(|round| round.background_gbps).collect();
        let times_us = rounds.iter().map(|round| &round.times_us);
        Self {
            times_us: times_us.flat_map(Samples::values).copied().collect(),
            background_gbps: gbps.median(),
        }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct ForegroundResult {
    /// What was seen.
    pub seen: Seen,
    /// What it ended with.
    pub end: RunEnd,
}

impl Foreground {
    /// Runs it.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<ForegroundResult, Cause> {
        match self.way {
            Way::Raw | Way::RawClass => self.run_raw(),
            Way::Link(_) | Way::Class => self.run_towpath(),
        }
    }

    fn run_towpath(&self) -> Result<ForegroundResult, Cause> {
        let world = World::new(self.seed);
        let start = self.start(&world);
        let devices = self.lay(&world);
        let bytes_max = self.bytes.max(self.background_bytes);
        let mut cluster =
            Cluster::new(world, devices, bytes_max, |_| self.endpoint())?.with_record();
        let background = cluster.add_flow(self.background())?;
        let plan = self.foreground(start);
        match self.way {
            Way::Link(Lane::Shared) => cluster.add_flow_beside(background, plan),
            _ => cluster.add_flow(plan)?,
        };
        cluster.run_until(start);
        let begin = cluster.moment();
        let times = |cluster: &Cluster<_>| -> Samples {
            let answers = cluster.record().answers.iter();
            answers.filter(|answer| answer.flow != background).map(us).collect()
        };
        let end = start + self.patience();
        cluster.run_for(self.span);
        while times(&cluster).len() < SAMPLES_MIN && cluster.now() < end {
            cluster.run_for(self.span);
        }
        let times_us = times(&cluster);
        let goodput = cluster.since(&begin).goodputs().nth(background).unwrap_or_default();
        cluster.settle(SETTLE_MAX + self.under_way().saturating_mul(2));
        let seen = Seen { times_us, background_gbps: goodput / 1e9 };
        Ok(ForegroundResult { seen, end: cluster.end() })
    }

    fn run_raw(&self) -> Result<ForegroundResult, Cause> {
        let world = World::new(self.seed);
        let start = self.start(&world);
        let devices = self.lay(&world);
        let bytes_max = self.bytes.max(self.background_bytes);
        let mut cluster = RcCluster::new(world, devices, bytes_max)?;
        let background = cluster.add_flow(self.background(), Mtu::Mtu4096, RcAttr::default())?;
        let plan = self.foreground(start);
        let foreground = cluster.add_flow(plan, Mtu::Mtu4096, RcAttr::default())?;
        cluster.record(foreground);
        cluster.run_for(start.since(cluster.now()));
        let begin = cluster.moment();
        let end = start + self.patience();
        cluster.run_for(self.span);
        while cluster.answers(foreground).len() < SAMPLES_MIN && cluster.now() < end {
            cluster.run_for(self.span);
        }
        let times_us = cluster.answers(foreground).iter().map(us).collect();
        let goodput = cluster.since(&begin).goodputs().nth(background).unwrap_or_default();
        let broken = (cluster.broken() > 0).then(|| "a queue pair of RC has given up".to_owned());
        let end = RunEnd {
            traces: vec![("", cluster.world().trace_hash())],
            troubles: broken.into_iter().collect(),
        };
        Ok(ForegroundResult { seen: Seen { times_us, background_gbps: goodput / 1e9 }, end })
    }

    /// When the first short message is sent.
    fn start(&self, world: &World) -> Time {
        Time::ZERO + self.warm_up + self.start_offset(world.next_seed())
    }

    fn background(&self) -> FlowPlan {
        let plan = FlowPlan::closed(0, 1, self.background_bytes).depth(self.depth);
        if self.way.has_classes() { plan.class(Class::Copper) } else { plan }
    }

    fn foreground(&self, start: Time) -> FlowPlan {
        let plan = FlowPlan::closed(0, 1, self.bytes).between(start, Time::NEVER);
        if self.way.has_classes() { plan.class(Class::Gold) } else { plan }
    }

    /// How long it waits for the fewest messages.
    fn patience(&self) -> Nanos {
        self.span + self.under_way().saturating_mul(2 * SAMPLES_MIN as u64)
    }

    fn start_offset(&self, seed: u64) -> Nanos {
        Nanos(Prng::new(seed).below(START_SPREAD.0))
    }

    /// What the wire takes for all that the background has under way.
    fn under_way(&self) -> Nanos {
        let bits = u64::from(self.depth) * u64::from(self.background_bytes) * 8;
        Nanos((bits as f64 * 1e9 / self.rate_bits_per_s as f64) as u64)
    }

    fn lay(&self, world: &World) -> Vec<RoceDevice<VirtualLink>> {
        let mut queues = [QueueConfig::default(); CLASSES];
        if self.way.has_classes() {
            queues[Class::Gold.index()].turn = Turn::Weight(self.weight);
            queues[Class::Copper.index()].turn = Turn::Weight(1);
            for class in Class::ALL {
                world.set_class(class.dscp_default(), class.index() as u8);
            }
        }
        let host = HostConfig {
            rate_bits_per_s: self.rate_bits_per_s,
            delay: Nanos(self.base_rtt.0 / 4),
            nic_queue_bytes: if self.way.has_classes() {
                CLASS_QUEUE_BYTES
            } else {
                NIC_QUEUE_BYTES
            },
            nic_queues: queues,
            ..HostConfig::default()
        };
        let switch = SwitchConfig { queues, ..SwitchConfig::default() };
        let hosts = Star { hosts: 2, host, switch }.build(world).hosts;
        devices(world, &hosts)
    }

    fn endpoint(&self) -> EndpointConfig {
        let (bytes, background) = (self.bytes as usize, self.background_bytes as usize);
        EndpointConfig::new()
            .quota_chunks(128)
            .credit_total(512)
            .links_max(if self.way.has_classes() { 4 } else { 2 })
            .controller(self.controller)
            .ahead_bytes(self.ahead_bytes)
            .send_pools(&[(bytes, 2), (background, self.depth as usize + 1)])
    }
}

/// How long a message took, in microseconds.
fn us(answer: &Answer) -> f64 {
    answer.latency().0 as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_us(way: Way, ahead_bytes: u64, controller: &str) -> f64 {
        let foreground = Foreground {
            seed: 7,
            controller: controller.parse().expect("a controller"),
            ahead_bytes,
            way,
            weight: 1,
            bytes: 16 << 10,
            background_bytes: 128 << 10,
            depth: 16,
            rate_bits_per_s: 100_000_000_000,
            base_rtt: Nanos::from_micros(10),
            warm_up: Nanos::from_millis(1),
            span: Nanos::from_millis(4),
        };
        let result = foreground.run().expect("it runs");
        assert_eq!(result.end.troubles, [""; 0], "{way:?}");
        let Seen { times_us, background_gbps } = result.seen;
        assert!(times_us.len() > 10 && background_gbps > 80.0, "{way:?}: {background_gbps} Gb/s");
        times_us.mean()
    }

    /// 2 MiB wait, which take 171 us; 256 KiB take 21.
    #[test]
    fn a_message_waits_for_all_that_is_in_its_queue_and_on_its_own_channel_for_what_is_ahead() {
        for controller in ["swift", "fixed:4MiB"] {
            let shared = mean_us(Way::Link(Lane::Shared), 256 << 10, controller);
            let own = mean_us(Way::Link(Lane::Own), 256 << 10, controller);
            assert!((170.0..190.0).contains(&shared), "{controller}: {shared} us");
            assert!((20.0..40.0).contains(&own), "{controller}: {own} us");
        }
    }

    /// Of more than the background has under way nothing is left for the channels to share.
    #[test]
    fn what_is_posted_cannot_be_overtaken() {
        let shared = mean_us(Way::Link(Lane::Shared), 4 << 20, "fixed:4MiB");
        let own = mean_us(Way::Link(Lane::Own), 4 << 20, "fixed:4MiB");
        assert!((own / shared - 1.0).abs() < 0.01, "{own} and {shared} us");
    }

    /// In hardware nobody has to wait for what is posted before: the card takes packets of queue
    /// pairs in turn, and ports those of classes.
    #[test]
    fn a_queue_pair_of_its_own_waits_for_its_turn_alone() {
        let [raw, raw_class, class] =
            [Way::Raw, Way::RawClass, Way::Class].map(|way| mean_us(way, 256 << 10, "swift"));
        for time in [raw, raw_class, class] {
            assert!((11.0..20.0).contains(&time), "{raw} {raw_class} {class} us");
        }
    }

    /// The window of the link bounds what is posted, too.
    #[test]
    fn congestion_control_keeps_what_is_posted_short_by_itself() {
        let own = mean_us(Way::Link(Lane::Own), 4 << 20, "swift");
        assert!((20.0..45.0).contains(&own), "{own} us");
    }
}
