//! Online requests beside a background, in a traffic class of their own and in one class with it.
//!
//! Every host sends both to every other, so that a request meets the background at each port that
//! it crosses, and so does its acknowledgement on the way back. With classes, each has links of its
//! own, and a queue of its own in network cards and switch; without, they share all of it.

mod report;

pub use report::STUDY;

use crate::cluster::{Answer, Cluster, FlowPlan, Samples};
use crate::failure::Cause;
use crate::studies::RunEnd;
use crate::studies::wire::devices;
use towpath_base::{Nanos, Time};
use towpath_cc::ControllerConfig;
use towpath_device_roce::RoceDevice;
use towpath_proto::Class;
use towpath_sim::limits::CLASSES;
use towpath_sim::world::{HostConfig, QueueConfig, SwitchConfig, Turn, VirtualLink};
use towpath_sim::{Star, World};
use towpath_transport::EndpointConfig;

/// Messages of a Gold flow that may wait: more than ever do while it gets on.
const GOLD_BACKLOG_MAX: u32 = 64;

/// Messages of a Copper flow that may wait. Beyond them a background offers no more: where it
/// offers all that the link has, what does not get through would wait for ever.
const COPPER_BACKLOG_MAX: u32 = 16;

/// What each queue of a network card holds. One that is full would make the device stop sending of
/// every class; those of hardware lie in the memory of the host, and are as long as need be.
const NIC_QUEUE_BYTES: u64 = 16 << 20;

/// What is under way at the end has so long to come.
const SETTLE_MAX: Nanos = Nanos::from_millis(200);

/// How the two meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Links and queues of their own; Gold's goes before Copper's.
    Strict,
    /// Links and queues of their own, which take turns: eight bytes of Gold for one of Copper.
    Weighted,
    /// The same links, the same queue.
    OneClass,
}

impl Meeting {
    fn queues(self) -> [QueueConfig; CLASSES] {
        let mut queues = [QueueConfig::default(); CLASSES];
        if self == Self::Weighted {
            queues[Class::Gold.index()].turn = Turn::Weight(8);
            queues[Class::Copper.index()].turn = Turn::Weight(1);
        }
        queues
    }

    /// The class that flows of a class are in.
    fn class(self, class: Class) -> Class {
        if self == Self::OneClass { Class::default() } else { class }
    }
}

/// Hosts of which each sends both to every other.
#[derive(Clone, Debug)]
pub struct Classes {
    /// Where everything random comes from.
    pub seed: u64,
    /// The congestion controller of each link.
    pub controller: ControllerConfig,
    /// How Gold and Copper meet.
    pub meeting: Meeting,
    /// How many hosts.
    pub hosts: usize,
    /// Bytes of the messages of Gold; of each length as many are sent.
    pub gold_bytes: Vec<u32>,
    /// What Gold offers of each link, both ways.
    pub gold_load: f64,
    /// Bytes of the messages of Copper.
    pub copper_bytes: u32,
    /// What Copper offers of each link, both ways.
    pub copper_load: f64,
    /// Of every wire, in bits a second.
    pub rate_bits_per_s: u64,
    /// There and back with nothing in the way.
    pub base_rtt: Nanos,
    /// What is left out at the start.
    pub warm_up: Nanos,
    /// What is measured.
    pub span: Nanos,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct ClassesResult {
    /// How long each message of Gold took that was sent in the measured time, in microseconds.
    pub gold_us: Samples,
    /// The same by length, in the order of [`Classes::gold_bytes`].
    pub gold_us_by_bytes: Vec<Samples>,
    /// What Copper had to send, of the rate of all links, headers counted in: as chance would have
    /// it, about what was asked for.
    pub copper_offered: f64,
    /// What of it came to its readers.
    pub copper_carried: f64,
    /// Messages of Gold that were not sent for that reason.
    pub gold_skipped: u64,
    /// Packets that ports dropped.
    pub packets_dropped: u64,
    /// What it ended with.
    pub end: RunEnd,
}

impl Classes {
    /// Runs it.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<ClassesResult, Cause> {
        let (world, devices) = self.lay();
        let bytes_max = self.gold_bytes.iter().copied().fold(self.copper_bytes, u32::max);
        let mut cluster =
            Cluster::new(world, devices, bytes_max, |_| self.endpoint())?.with_record();
        // Gold first: it is the same whatever Copper offers.
        for (from, to) in self.pairs() {
            for &bytes in &self.gold_bytes {
                cluster.add_flow(self.gold(from, to, bytes))?;
            }
        }
        let gold_flows = cluster.flows().len();
        if self.copper_load > 0.0 {
            for (from, to) in self.pairs() {
                cluster.add_flow(self.copper(from, to))?;
            }
        }
        cluster.run_for(self.warm_up);
        let begin = cluster.moment();
        cluster.run_for(self.span);
        let window = cluster.since(&begin);
        cluster.settle(SETTLE_MAX);
        let (gold_us, gold_us_by_bytes) = self.latencies(&cluster.record().answers, gold_flows);
        let (gold, copper) = window.flows.split_at(gold_flows);
        let wished: u64 = copper.iter().map(|flow| flow.sent + flow.skipped).sum();
        let carried: u64 = copper.iter().map(|flow| flow.bytes).sum();
        let carried = carried as f64 / f64::from(self.copper_bytes);
        let bits = |messages: f64| messages * wire_bytes(self.copper_bytes) * 8.0;
        let all_bits = self.hosts as f64 * self.rate_bits_per_s as f64 * window.span.as_secs_f64();
        Ok(ClassesResult {
            gold_us,
            gold_us_by_bytes,
            copper_offered: bits(wished as f64) / all_bits,
            copper_carried: bits(carried) / all_bits,
            gold_skipped: gold.iter().map(|flow| flow.skipped).sum(),
            packets_dropped: cluster.world().counters().dropped_queue,
            end: cluster.end(),
        })
    }

    fn lay(&self) -> (World, Vec<RoceDevice<VirtualLink>>) {
        let world = World::new(self.seed);
        let queues = self.meeting.queues();
        let host = HostConfig {
            rate_bits_per_s: self.rate_bits_per_s,
            delay: Nanos(self.base_rtt.0 / 4),
            nic_queue_bytes: NIC_QUEUE_BYTES,
            nic_queues: queues,
            ..HostConfig::default()
        };
        let switch = SwitchConfig { queues, ..SwitchConfig::default() };
        let hosts = Star { hosts: self.hosts, host, switch }.build(&world).hosts;
        for class in Class::ALL {
            world.set_class(class.dscp_default(), class.index() as u8);
        }
        let devices = devices(&world, &hosts);
        (world, devices)
    }

    /// How long messages of Gold took that were sent in the measured time: all, and by length.
    fn latencies(&self, answers: &[Answer], gold_flows: usize) -> (Samples, Vec<Samples>) {
        let (mut all, mut by_bytes) = (Samples::new(), vec![Samples::new(); self.gold_bytes.len()]);
        let first = Time::ZERO + self.warm_up;
        let measured = first..first + self.span;
        let of_gold =
            |answer: &&Answer| answer.flow < gold_flows && measured.contains(&answer.sent_at);
        for answer in answers.iter().filter(of_gold) {
            let us = answer.latency().0 as f64 / 1e3;
            all.add(us);
            by_bytes[answer.flow % self.gold_bytes.len()].add(us);
        }
        (all, by_bytes)
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let hosts = self.hosts;
        (0..hosts).flat_map(move |from| (1..hosts).map(move |next| (from, (from + next) % hosts)))
    }

    fn gold(&self, from: usize, to: usize, bytes: u32) -> FlowPlan {
        let all: f64 = self.gold_bytes.iter().map(|&bytes| wire_bytes(bytes)).sum();
        let every = self.every(all, self.gold_load);
        let plan = FlowPlan::closed(from, to, bytes).open(every, GOLD_BACKLOG_MAX);
        plan.class(self.meeting.class(Class::Gold))
    }

    fn copper(&self, from: usize, to: usize) -> FlowPlan {
        let every = self.every(wire_bytes(self.copper_bytes), self.copper_load);
        let plan = FlowPlan::closed(from, to, self.copper_bytes).open(every, COPPER_BACKLOG_MAX);
        plan.class(self.meeting.class(Class::Copper))
    }

    /// How far apart messages to one host are that take so many bytes of the wire, when those to
    /// all hosts are to make up a share of the link.
    fn every(&self, wire_bytes: f64, load: f64) -> Nanos {
        let bytes_per_ns = load * self.rate_bits_per_s as f64 / 8e9 / (self.hosts - 1) as f64;
        Nanos((wire_bytes / bytes_per_ns) as u64)
    }

    fn endpoint(&self) -> EndpointConfig {
        let peers = self.hosts - 1;
        let gold = self.gold_bytes.iter().map(|&bytes| (bytes as usize, 4 * peers));
        let copper = (self.copper_bytes as usize, peers * COPPER_BACKLOG_MAX as usize);
        let pools: Vec<(usize, usize)> = gold.chain([copper]).collect();
        EndpointConfig::new()
            .quota_chunks(128)
            .credit_total(512)
            // To and from each, in two classes.
            .links_max(4 * peers)
            .controller(self.controller)
            .send_pools(&pools)
    }
}

/// What a message takes of a wire: its chunks with their headers, in packets with theirs.
fn wire_bytes(message_bytes: u32) -> f64 {
    const CHUNK_BYTES: u32 = 56 << 10;
    let chunks = message_bytes.div_ceil(CHUNK_BYTES);
    let whole = message_bytes / CHUNK_BYTES;
    let packets = |bytes: u32| (bytes + HEADER_BYTES).div_ceil(PACKET_PAYLOAD_BYTES);
    let last = message_bytes % CHUNK_BYTES;
    let last_packets = if last > 0 { packets(last) } else { 0 };
    let all = whole * packets(CHUNK_BYTES) + last_packets;
    f64::from(message_bytes + chunks * HEADER_BYTES + all * PACKET_OVERHEAD_BYTES)
}

/// Of a chunk; of a packet at the MTU; of a packet, Ethernet with preamble and gap to ICRC.
const HEADER_BYTES: u32 = 64;
const PACKET_PAYLOAD_BYTES: u32 = 4_096;
const PACKET_OVERHEAD_BYTES: u32 = 66 + 12 + 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn small(meeting: Meeting, copper_load: f64) -> ClassesResult {
        let classes = Classes {
            seed: 7,
            controller: ControllerConfig::default(),
            meeting,
            hosts: 3,
            gold_bytes: vec![4 << 10, 16 << 10],
            gold_load: 0.05,
            copper_bytes: 128 << 10,
            copper_load,
            rate_bits_per_s: 100_000_000_000,
            base_rtt: Nanos::from_micros(10),
            warm_up: Nanos::from_millis(1),
            span: Nanos::from_millis(4),
        };
        let result = classes.run().expect("it runs");
        assert_eq!((result.gold_skipped, &result.end.troubles[..]), (0, &[][..]), "{meeting:?}");
        result
    }

    #[test]
    fn gold_waits_for_copper_only_where_they_share_a_class() {
        let mean = |meeting, load| small(meeting, load).gold_us.mean();
        let alone = mean(Meeting::Strict, 0.0);
        assert!(alone > 10.0, "a round trip: {alone} us");
        // Most that a packet meets is one of Copper, at each of four ports: 0.34 us.
        for meeting in [Meeting::Strict, Meeting::Weighted] {
            let beside = mean(meeting, 0.7);
            assert!(beside > alone && beside < alone + 1.4, "{meeting:?}: {alone}, {beside} us");
        }
        let one = mean(Meeting::OneClass, 0.7);
        assert!(one > alone + 5.0, "{alone}, {one} us");
    }

    #[test]
    fn copper_carries_what_it_offers_and_gold_is_the_same_beside_it() {
        let (alone, beside) = (small(Meeting::Strict, 0.0), small(Meeting::Strict, 0.39));
        assert_eq!(alone.copper_carried, 0.0);
        assert!((0.33..0.45).contains(&beside.copper_carried), "{}", beside.copper_carried);
        assert_eq!(alone.gold_us.count(), beside.gold_us.count());
        let by_bytes = &beside.gold_us_by_bytes;
        assert_eq!(by_bytes.iter().map(Samples::count).sum::<usize>(), beside.gold_us.count());
        assert!(by_bytes[0].mean() < by_bytes[1].mean());
    }

    #[test]
    fn a_message_takes_its_packets_of_the_wire() {
        // One packet of 4,096 and one of 64 bytes; two chunks of 15 packets and one of 5.
        assert_eq!(wire_bytes(4_096), 4_096.0 + 64.0 + 2.0 * 82.0);
        assert_eq!(wire_bytes(128 << 10), 131_072.0 + 3.0 * 64.0 + 35.0 * 82.0);
    }
}
