//! Where the times of packets come from, and what a busy host makes of them: how far round trips
//! are off, how long queues get, and what is carried.

mod report;

pub use report::STUDY;

use crate::cluster::{Cluster, FlowPlan, Samples};
use crate::failure::Cause;
use crate::studies::RunEnd;
use crate::studies::incast::{Detail, Incast, IncastResult};
use crate::studies::wire::devices;
use towpath_base::{Nanos, Prng, Time};
use towpath_cc::ControllerConfig;
use towpath_proto::Class;
use towpath_sim::world::{HostConfig, HostDelay, SwitchConfig, Timestamps};
use towpath_sim::{Star, World};
use towpath_transport::EndpointConfig;

/// Who stamps what is sent and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The network card.
    Wire,
    /// The kernel.
    Kernel,
    /// Nobody: software reads its clock before and after its calls.
    Call,
}

impl Source {
    /// All, the best first.
    pub const ALL: [Self; 3] = [Self::Wire, Self::Kernel, Self::Call];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Kernel => "kernel",
            Self::Call => "call",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == word)
    }
}

/// How long a host without jitter takes from a call to the wire, and from the wire to the program
/// that looks: a short send and a short receipt through sockets.
const CALL_SPAN: Nanos = Nanos::from_micros(2);

/// Of the jitter of a host what lies on the way out, as a part: a call is seldom interrupted, while
/// who is to receive is often not there.
const OUTWARD_PART: u64 = 10;

/// Of a host's delays what lies between the wire and the kernel's stamp, in hundredths: interrupts
/// that are held back, and work of the kernel that is before this.
const KERNEL_PERCENT: u8 = 10;

/// What a sender has under way may take so long: where delays are far off it sends a packet in
/// each 10 ms.
const SETTLE_MAX: Nanos = Nanos::from_secs(20);

/// A ping of so many bytes is one packet.
const PING_BYTES: u32 = 64;

/// A host that stamps packets in this way and is late by up to `jitter`.
fn host(source: Source, jitter: Nanos, rate_bits_per_s: u64, base_rtt: Nanos) -> HostConfig {
    let delay_of = |jitter| HostDelay { fixed: CALL_SPAN, jitter };
    let timestamps = match source {
        Source::Wire => Timestamps::Wire,
        Source::Kernel => Timestamps::Kernel { percent: KERNEL_PERCENT },
        Source::Call => Timestamps::Software,
    };
    HostConfig {
        rate_bits_per_s,
        delay: Nanos(base_rtt.0 / 4),
        tx_delay: delay_of(Nanos(jitter.0 / OUTWARD_PART)),
        rx_delay: delay_of(jitter),
        timestamps,
        send_times: timestamps,
        ..HostConfig::default()
    }
}

/// One message after another between two hosts on an idle network, whose round trip is known.
#[derive(Clone, Copy, Debug)]
pub struct Pings {
    /// Where everything random comes from.
    pub seed: u64,
    /// Who stamps packets.
    pub source: Source,
    /// How late hosts are at most.
    pub jitter: Nanos,
    /// Of every wire, in bits a second.
    pub rate_bits_per_s: u64,
    /// There and back with nothing in the way.
    pub base_rtt: Nanos,
    /// How many are measured, after a tenth as many.
    pub count: u64,
}

/// What pings came to.
#[derive(Clone, Debug)]
pub struct PingResult {
    /// Samples of the round trip as the controller was fed with them, in microseconds.
    pub rtt_us: Samples,
    /// What it ended with.
    pub end: RunEnd,
}

impl Pings {
    /// What samples are where hosts take no time, and so nothing but the network does.
    fn on_idle_hosts(self) -> Self {
        Self { source: Source::Wire, jitter: Nanos::ZERO, count: 32, ..self }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`Cause`] when the hosts cannot be made or joined.
    pub fn run(&self) -> Result<PingResult, Cause> {
        let host = host(self.source, self.jitter, self.rate_bits_per_s, self.base_rtt);
        self.run_on(host)
    }

    /// What the network takes, in microseconds: the same where hosts take no time.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn truth_us(&self) -> Result<f64, Cause> {
        let pings = self.on_idle_hosts();
        let at_once = HostDelay::default();
        let host = host(pings.source, pings.jitter, pings.rate_bits_per_s, pings.base_rtt);
        let host = HostConfig { tx_delay: at_once, rx_delay: at_once, ..host };
        Ok(pings.run_on(host)?.rtt_us.median())
    }

    fn run_on(&self, host: HostConfig) -> Result<PingResult, Cause> {
        let world = World::new(self.seed);
        let hosts = Star { hosts: 2, host, switch: SwitchConfig::default() }.build(&world).hosts;
        let devices = devices(&world, &hosts);
        let endpoint = |_| EndpointConfig::new().links_max(1).send_pools(&[(64, 4)]);
        let mut cluster = Cluster::new(world, devices, PING_BYTES, endpoint)?;
        let start = Time(Prng::new(cluster.world().next_seed()).below(self.base_rtt.0));
        let plan = FlowPlan::closed(0, 1, PING_BYTES);
        let flow = cluster.add_flow(plan.between(start, Time::NEVER))?;
        let (link, _) = cluster.link(0, 1, Class::default()).expect("the flow has one");
        let step = Nanos(self.base_rtt.0 / 4);
        let (mut rtt_us, mut seen) = (Samples::new(), 0);
        let warm_up = self.count / 10;
        // As many steps as a ping takes between hosts that are as late as they can be, and more.
        let steps = 16 + 8 * (self.base_rtt + self.jitter + CALL_SPAN).0 / step.0;
        for _ in 0..steps * (warm_up + self.count) {
            cluster.run_for(step);
            let answered = cluster.flows().nth(flow).map_or(0, |(_, count)| count.delivered);
            if answered == seen {
                continue;
            }
            seen = answered;
            let latest = cluster.endpoint(0).rtt_latest(link);
            if let Some(rtt) = latest.filter(|_| seen > warm_up) {
                rtt_us.add(rtt.0 as f64 / 1e3);
            }
            if seen >= warm_up + self.count {
                break;
            }
        }
        cluster.settle(Nanos::from_millis(100));
        Ok(PingResult { rtt_us, end: cluster.end() })
    }
}

/// Senders of one port whose hosts are late.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Who stamps packets, and how late hosts are; of the rest the same.
    pub pings: Pings,
    /// How many.
    pub senders: usize,
    /// Bytes of a message; each sender sends one after another.
    pub message_bytes: u32,
    /// What is measured, after half as long.
    pub span: Nanos,
    /// What devices declare of the noise of delays: by that the controller is chosen.
    pub delay_noise: Nanos,
    /// The congestion controller of each.
    pub controller: ControllerConfig,
}

impl Crowd {
    /// Runs it.
    ///
    /// # Errors
    /// As [`Pings::run`].
    pub fn run(&self) -> Result<IncastResult, Cause> {
        let Pings { seed, source, jitter, rate_bits_per_s, base_rtt, .. } = self.pings;
        let host = host(source, jitter, rate_bits_per_s, base_rtt);
        let incast = Incast {
            message_bytes: self.message_bytes,
            rate_bits_per_s,
            base_rtt,
            warm_up: Nanos(self.span.0 / 2),
            span: self.span,
            settle: SETTLE_MAX,
            host: HostConfig { delay_noise: self.delay_noise, ..host },
            ..Incast::new(seed, Detail::Packets, self.senders, self.controller)
        };
        incast.run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pings(source: Source, jitter: Nanos) -> Pings {
        let base_rtt = Nanos::from_micros(20);
        Pings { seed: 3, source, jitter, rate_bits_per_s: 10_000_000_000, base_rtt, count: 200 }
    }

    fn errors_us(source: Source, jitter: Nanos) -> Samples {
        let pings = pings(source, jitter);
        let truth = pings.truth_us().unwrap();
        let result = pings.run().unwrap();
        assert_eq!(result.end.troubles, [""; 0]);
        assert_eq!(result.rtt_us.len(), 200, "{source:?}");
        result.rtt_us.values().iter().map(|rtt| rtt - truth).collect()
    }

    #[test]
    fn stamps_of_the_wire_take_all_that_hosts_always_take_out_of_round_trips() {
        let errors = errors_us(Source::Wire, Nanos::ZERO);
        assert!(errors.values().iter().all(|error| error.abs() < 0.1), "{:?}", errors.values());
        // From the call to the wire and from there to who looks, both ways, and two packets that go
        // out.
        let errors = errors_us(Source::Call, Nanos::ZERO);
        assert!((8.0..8.5).contains(&errors.median()), "{} us", errors.median());
    }

    #[test]
    fn the_nearer_to_the_wire_the_less_do_late_hosts_show() {
        let jitter = Nanos::from_micros(100);
        let [wire, kernel, call] = Source::ALL.map(|source| errors_us(source, jitter).median());
        assert!(wire < kernel && kernel < call / 2.0, "{wire}, {kernel}, {call} us");
        assert!((0.0..10.0).contains(&wire) && call > 60.0, "{wire}, {call} us");
    }
}
