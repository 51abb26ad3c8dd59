//! Messages one way between two hosts as fast as they go, over a wire that loses packets.
//!
//! The same question to Towpath over UC and to RC with Go-Back-N: with a number of messages under
//! way all the time, how many bytes come in a span that begins when the start is over?

use super::StudyError;
use crate::app::Planned;
use crate::cluster::{FlowPlan, RcCluster};
use crate::failure::{Cause, Failure};
use crate::pair::{Pair, PairConfig};
use towpath_base::{Nanos, Time};
use towpath_cc::ControllerConfig;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::{LinkConfig as ProtoConfig, LinkStats};
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, World};
use towpath_transport::EndpointConfig;
use towpath_verbs::{Mtu, RcAttr, VerbError};

/// What a chunk has in front of it: the header that the protocol puts before each payload.
const HEADER_BYTES: f64 = 64.0;

/// What a packet takes on the wire beside its share of a chunk: BTH 12, ICRC 4, and the 66 that
/// [`LinkConfig::overhead_bytes`] says of the layers below.
const PACKET_OVERHEAD_BYTES: f64 = 12.0 + 4.0 + 66.0;

/// Room for everything that is under way, so that nothing but the drawn losses loses packets.
const QUEUE_BYTES: u64 = 64 << 20;

/// A weight of chunks against packets at which loss up to 5 % leaves chunks as they are.
const CHUNK_COST_FIXED: f64 = 100.0;

/// A retransmission timeout of RC as an operator would set it here: 2^5 x 4.096 us is 131 us.
/// perftest sets 67 ms, with which a lost last packet would cost as much.
const RC_TIMEOUT: u8 = 5;

/// The question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Where everything random comes from.
    pub seed: u64,
    /// Of the wire, in bits a second.
    pub rate_bits_per_s: u64,
    /// There and back with nothing in the way.
    pub base_rtt: Nanos,
    /// The path MTU.
    pub mtu: Mtu,
    /// The probability that a packet is lost, each way.
    pub loss: f64,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Messages under way at a time.
    pub depth: usize,
    /// Messages that are measured; a quarter as many go before them.
    pub messages: u64,
    /// Towpath: its congestion controller.
    pub controller: ControllerConfig,
    /// Towpath: chunks of this many packets, or as it adapts them.
    pub chunk_packets: Option<u32>,
}

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streamed {
    /// Bytes of messages that came, in bits a second of virtual time.
    pub goodput_bits_per_s: f64,
    /// What perfect repair would reach with chunks of this size: each sent until it comes, the
    /// wire always full.
    pub bound_bits_per_s: f64,
    /// Payload of a chunk, on average.
    pub chunk_bytes: f64,
    /// Chunks that were sent again, of all that were sent.
    pub retransmitted: f64,
    /// Chunks sent again that had not been lost, of those sent again.
    pub spurious: f64,
    /// Tail-loss probes and retransmission timeouts.
    pub timeouts: u64,
    /// Over every packet on the wire.
    pub trace_hash: u64,
}

/// What RC reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RcStreamed {
    /// Bytes of messages that were acknowledged, in bits a second of virtual time.
    pub goodput_bits_per_s: f64,
    /// The queue pair gave up: its retry counter ran out.
    pub is_broken: bool,
    /// Over every packet on the wire.
    pub trace_hash: u64,
}

impl Stream {
    fn wire(&self) -> LinkConfig {
        LinkConfig {
            rate_bits_per_s: self.rate_bits_per_s,
            delay: Nanos(self.base_rtt.0 / 2),
            queue_bytes: QUEUE_BYTES,
            rx_buffer_bytes: QUEUE_BYTES,
            ..LinkConfig::default()
        }
    }

    fn warm_up(&self) -> u64 {
        self.messages.div_ceil(4).max(self.depth as u64)
    }

    /// Its name among the runs of a study.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} bytes, loss {}", self.message_bytes, self.loss)
    }

    /// Asks Towpath.
    ///
    /// # Errors
    /// [`StudyError::Run`] when a message does not come once and intact.
    pub fn towpath(&self) -> Result<Streamed, StudyError> {
        self.run_pair().map_err(|failure| StudyError::run(self.label(), failure))
    }

    fn run_pair(&self) -> Result<Streamed, Failure> {
        let mut pair = self.open_pair()?;
        for host in 0..2 {
            pair.host(host).control.set_receive(FaultPlan::none().drop(self.loss));
        }
        let planned = Planned {
            at: Time::ZERO,
            channel: 0,
            len: self.message_bytes,
            segments: 1,
            cancel_after: None,
            deadline_after: None,
        };
        // The last ones only keep the wire busy while those before them are measured.
        let all = self.warm_up() + self.messages + self.depth as u64;
        let script = core::iter::repeat_n(planned, all as usize);
        pair.host_mut(0).app.perform(script, self.depth);
        let warm = self.warm_up();
        pair.run_until("the start is over", |pair| pair.oracle.messages_delivered() >= warm)?;
        let begin = Snapshot::of(&pair);
        let end = warm + self.messages;
        pair.run_until("all messages have come", |pair| pair.oracle.messages_delivered() >= end)?;
        Ok(self.judge(&begin, &Snapshot::of(&pair), pair.world().trace_hash()))
    }

    /// Two hosts with one channel open, and no faults yet.
    fn open_pair(&self) -> Result<Pair, Failure> {
        let mut endpoint = EndpointConfig::new()
            .mtu_max(self.mtu)
            .links_max(1)
            .controller(self.controller)
            .send_pools(&[(self.message_bytes as usize, self.depth + 1)]);
        if let Some(packets) = self.chunk_packets {
            let bytes = packets * self.mtu.bytes() - HEADER_BYTES as u32;
            let tune = |link: ProtoConfig| link.chunk_cost_packets(CHUNK_COST_FIXED);
            endpoint = endpoint.chunk_bytes_max(bytes).tune_links(tune);
        }
        let (seed, wire, pause) = (self.seed, self.wire(), Nanos::ZERO);
        let config = PairConfig { seed, wire, spines: 0, endpoint, pause };
        let mut pair = Pair::new(config)?;
        pair.join()?;
        let opened = pair.link(0).map(|link| pair.host_mut(0).endpoint.open_channel(link, false));
        opened.transpose().map_err(|error| pair.failure(error))?;
        pair.run_until("the channel is open", |pair| {
            (0..2).all(|host| pair.host(host).app.channels().len() == 1)
        })?;
        Ok(pair)
    }

    fn judge(&self, begin: &Snapshot, end: &Snapshot, trace_hash: u64) -> Streamed {
        let span = end.at.since(begin.at).as_secs_f64();
        let sent = (end.link.chunks_sent - begin.link.chunks_sent) as f64;
        let again = (end.link.chunks_retransmitted - begin.link.chunks_retransmitted) as f64;
        let spurious = (end.link.losses_spurious - begin.link.losses_spurious) as f64;
        let bytes_sent = (end.link.bytes_sent - begin.link.bytes_sent) as f64;
        let bytes = (end.bytes - begin.bytes) as f64;
        let timeouts = |link: &LinkStats| link.tail_probes + link.rtos;
        // Messages differ from those that were begun in the span by what was under way.
        let first_bytes =
            bytes_sent - (end.link.bytes_retransmitted - begin.link.bytes_retransmitted) as f64;
        let chunks_per_message =
            (sent - again) * f64::from(self.message_bytes) / first_bytes.max(1.0);
        Streamed {
            goodput_bits_per_s: bytes * 8.0 / span,
            bound_bits_per_s: self.bound(chunks_per_message),
            chunk_bytes: bytes_sent / sent,
            retransmitted: again / sent,
            spurious: if again > 0.0 { spurious / again } else { 0.0 },
            timeouts: timeouts(&end.link) - timeouts(&begin.link),
            trace_hash,
        }
    }

    /// The wire's rate times the share of what is on it that is of use, when each chunk of a
    /// message is sent until it comes whole, which takes 1 / (1-p)^N tries for N packets.
    fn bound(&self, chunks_per_message: f64) -> f64 {
        let message = f64::from(self.message_bytes);
        let mtu = f64::from(self.mtu.bytes());
        // Chunks are full packets: the size that makes about as many chunks as were seen.
        let most = (message / mtu).ceil() as u32 + 1;
        let payload = |packets: u32| f64::from(packets) * mtu - HEADER_BYTES;
        let distance =
            |packets: u32| ((message / payload(packets)).ceil() - chunks_per_message).abs();
        let packets = (1..=most).min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap_or(1);
        let on_wire = |length: f64| {
            let packets = ((length + HEADER_BYTES) / mtu).ceil();
            let bytes = length + HEADER_BYTES + packets * PACKET_OVERHEAD_BYTES;
            bytes / (1.0 - self.loss).powf(packets)
        };
        let whole = (message / payload(packets)).floor();
        let rest = message - whole * payload(packets);
        let tail = if rest > 0.0 { on_wire(rest) } else { 0.0 };
        self.rate_bits_per_s as f64 * message / (whole * on_wire(payload(packets)) + tail)
    }

    /// Asks RC with Go-Back-N, as the device does it: one queue pair, as many SENDs under way.
    /// `None` where the device has no RC.
    ///
    /// # Errors
    /// [`StudyError::Run`] when the hosts cannot be made.
    pub fn rc(&self) -> Result<Option<RcStreamed>, StudyError> {
        match self.run_rc() {
            Ok(seen) => Ok(Some(seen)),
            Err(Cause::Verb(VerbError::Unsupported(_))) => Ok(None),
            Err(cause) => Err(StudyError::run(format!("RC, {}", self.label()), cause)),
        }
    }

    fn run_rc(&self) -> Result<RcStreamed, Cause> {
        let world = World::new(self.seed);
        let (near, far) = world.link(&self.wire());
        let faulty = |end| {
            let control = FaultControl::new(FaultPlan::none());
            control.set_receive(FaultPlan::none().drop(self.loss));
            let link = FaultLink::new(end, world.next_seed(), control);
            RoceDevice::new(link, RoceConfig::default().seed(world.next_seed()))
        };
        let devices = vec![faulty(near), faulty(far)];
        let mut hosts = RcCluster::new(world, devices, self.message_bytes)?;
        let plan = FlowPlan::closed(0, 1, self.message_bytes).depth(self.depth as u32);
        let rc = RcAttr { timeout: RC_TIMEOUT, ..RcAttr::default() };
        hosts.add_flow(plan, self.mtu, rc)?;
        // As long as the wire takes for a quarter of the messages, and then for all of them.
        let bits = self.messages as f64 * f64::from(self.message_bytes) * 8.0;
        let span = Nanos((bits * 1e9 / self.rate_bits_per_s as f64) as u64);
        hosts.run_for(Nanos(span.0 / 4));
        let begin = hosts.moment();
        hosts.run_for(span);
        let window = hosts.since(&begin);
        Ok(RcStreamed {
            goodput_bits_per_s: window.goodput(),
            is_broken: hosts.broken() > 0,
            trace_hash: hosts.world().trace_hash(),
        })
    }
}

/// Where a run stood.
struct Snapshot {
    at: Time,
    bytes: u64,
    link: LinkStats,
}

impl Snapshot {
    fn of(pair: &Pair) -> Self {
        let link = pair.link(0).and_then(|link| pair.host(0).endpoint.stats(link));
        let (at, bytes) = (pair.world().now(), pair.oracle.bytes_delivered());
        Self { at, bytes, link: link.unwrap_or_default() }
    }
}
