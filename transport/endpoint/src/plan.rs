//! What an endpoint does on a device: decided by capabilities alone, never by a name.

use crate::carrier::{CarrierChoice, Fallback};
use crate::config::{Carriers, EndpointConfig, Receiving, Sizes};
use crate::error::EndpointError;
use crate::limits::{AHEAD_BYTES, SENT_AT_ONCE_BYTES, TURN_CHUNKS};
use crate::secure::sealed_bytes;
use towpath_base::Nanos;
use towpath_proto::limits::HEADER_BYTES;
use towpath_proto::{Carrier, Spreading};
use towpath_verbs::{DeviceCaps, Mtu, PathMtu, QueueLimits};

/// Where the times come from that round trips are told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// Completions carry the device's time of them.
    Device,
    /// The host's clock is read when a completion is polled.
    Software,
}

/// How packets of a link find several ways through a network that chooses by UDP source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourcePorts {
    /// They do not: there is one source port.
    One,
    /// A queue pair has one of so many for its life: another way is another queue pair.
    PerQueuePair(u16),
    /// A queue pair can move between so many while it runs.
    Live(u16),
}

/// What an [`Endpoint`](crate::Endpoint) will do on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// What carries the paths of links, unless a peer has only the other.
    pub carrier: Carrier,
    /// The most links: as many as were asked for, or as the device's queues hold.
    pub links_max: usize,
    /// Paths of a link to ask for; a peer that allows fewer gets fewer.
    pub paths: usize,
    /// What links fall back to where the peer does as well.
    pub fallback: Fallback,
    /// The links of a class share one receive queue; otherwise each path has its own.
    pub shared_receiving: bool,
    /// The same, and how many receives are posted there.
    pub(crate) receiving: Receiving,
    /// Payload bytes of a packet, at most; a peer, or the way to it, may take less.
    pub mtu: Mtu,
    /// Bytes behind the header of a chunk that fills one packet: where much is lost no chunk is
    /// longer.
    pub chunk_bytes_min: u32,
    /// Bytes behind the header of the longest chunk; loss decides in between.
    pub chunk_bytes_max: u32,
    /// Where times come from.
    pub clock: Clock,
    /// By how much a delay may grow before congestion control takes it for a queue.
    pub delay_noise: Nanos,
    /// Whether payloads carry a CRC32C.
    pub payload_crc: bool,
    /// Whether packets over UC go without an ICRC where the peer does so as well.
    pub omits_icrc: bool,
    /// What a link may have posted and not sent, in bytes.
    pub ahead_bytes: u64,
    /// How several ways are found.
    pub source_ports: SourcePorts,
    /// What all peers together may have under way to us, in bytes; none where the device does not
    /// bound it.
    pub window_bytes: Option<u64>,
    /// How long the worker of a handle polls without work before it sleeps until the device wakes
    /// it.
    pub spin: Nanos,
}

impl Plan {
    /// What an endpoint with this configuration will do on a device with these capabilities.
    ///
    /// # Errors
    /// [`EndpointError::NoCarrier`]; [`EndpointError::Mtu`]: the port carries less than is asked
    /// for; [`EndpointError::TooLarge`]: not even one link fits.
    pub fn new(
        caps: &DeviceCaps,
        limits: QueueLimits,
        config: &EndpointConfig,
    ) -> Result<Self, EndpointError> {
        let verbs = caps.verbs;
        let settle = |choice: CarrierChoice| {
            choice.settle(&verbs).map_err(|wanted| EndpointError::NoCarrier { wanted })
        };
        let carrier = settle(config.carriers.choice)?;
        let rules = config.carriers.rules.iter().map(|rule| settle(rule.carrier));
        let others = rules.collect::<Result<Vec<_>, _>>()?;
        let has_uc = carrier == Carrier::Uc || others.contains(&Carrier::Uc);
        let sound = !has_uc || verbs.uc_srq_survives_loss;
        let shared_receiving = config.shared_receiving && verbs.srq && sound;
        let receiving = match shared_receiving {
            false => Receiving::PerPath,
            true if caps.arrives_in_progress => Receiving::Replenished,
            true => Receiving::Shared,
        };
        let fitting = fit(caps, limits, config, receiving)?;
        let mtu = config.carriers.mtu_max.unwrap_or(caps.mtu_max);
        if mtu > caps.mtu_max {
            return Err(EndpointError::Mtu {
                asked: mtu,
                port: PathMtu { mtu: caps.mtu_max, ip: None },
            });
        }
        let packet = mtu.bytes() - HEADER_BYTES as u32 - sealed_bytes(config.secure.as_ref());
        let source_ports = match caps.source_ports {
            0 | 1 => SourcePorts::One,
            count if caps.source_port_live => SourcePorts::Live(count),
            count => SourcePorts::PerQueuePair(count),
        };
        Ok(Self {
            carrier,
            links_max: fitting.links_max,
            paths: fitting.paths,
            fallback: fitting.fallback,
            shared_receiving,
            receiving,
            mtu,
            chunk_bytes_min: packet.min(config.body_bytes_max()),
            chunk_bytes_max: config.body_bytes_max(),
            clock: if caps.timestamps { Clock::Device } else { Clock::Software },
            delay_noise: caps.delay_noise,
            payload_crc: config.checks_payloads(caps),
            omits_icrc: config.icrc.may_omit(caps, config.notices_damage(caps)),
            ahead_bytes: config.ahead_bytes_on(caps),
            source_ports,
            window_bytes: caps.rx_buffer_bytes,
            spin: config.timing.spin,
        })
    }
}

impl EndpointConfig {
    /// See [`ahead_bytes`](Self::ahead_bytes).
    fn ahead_bytes_on(&self, caps: &DeviceCaps) -> u64 {
        let bytes_max = if caps.sends_at_once { SENT_AT_ONCE_BYTES } else { AHEAD_BYTES };
        let turn_bytes = TURN_CHUNKS * u64::from(self.sizes.chunk_bytes_max);
        self.ahead_bytes.unwrap_or(turn_bytes.clamp(AHEAD_BYTES, bytes_max))
    }

    /// A path is kept for what the default says, but for a whole turn of the link where that is
    /// more and nothing waits behind it: a turn over two paths takes two acks.
    pub(crate) fn spreading_on(&self, caps: &DeviceCaps) -> Spreading {
        match Spreading::default() {
            Spreading::Bytes(bytes) if caps.sends_at_once => {
                let turn_bytes = u32::try_from(self.ahead_bytes_on(caps)).unwrap_or(u32::MAX);
                Spreading::Bytes(bytes.max(turn_bytes))
            }
            spreading => spreading,
        }
    }
}

impl Plan {
    /// Puts into a configuration what the device makes of what was left open.
    pub(crate) fn settle(&self, config: &mut EndpointConfig) {
        let sizes = &mut config.sizes;
        (sizes.links_max, sizes.paths, sizes.fallback) =
            (self.links_max, self.paths, self.fallback);
    }
}

/// The sizes with as many links as were asked for, or as fit. What the owner has not chosen gives
/// way first: RC to fall back to, then paths.
fn fit(
    caps: &DeviceCaps,
    limits: QueueLimits,
    config: &EndpointConfig,
    receiving: Receiving,
) -> Result<Sizes, EndpointError> {
    let Carriers { has_paths, has_fallback, .. } = config.carriers;
    let mut less = config.sizes;
    if !has_paths {
        less.paths = less.paths.min(usize::from(caps.source_ports.max(1)));
    }
    if !has_fallback && caps.delivers_intact {
        less.fallback = Fallback::None;
    }
    less.fallback = less.fallback.on(&caps.verbs);
    loop {
        match check_depths(caps, limits, &less, receiving) {
            Ok(()) => return Ok(less),
            Err(_) if !has_fallback && less.fallback > Fallback::Tcp => {
                less.fallback = Fallback::Tcp;
            }
            Err(_) if !has_paths && less.paths > 1 => less.paths /= 2,
            Err(error) if less.links_max <= 1 => return Err(error),
            Err(_) => less.links_max -= 1,
        }
    }
}

/// Whether the device's queues are deep enough for everything that may be posted at a time.
fn check_depths(
    caps: &DeviceCaps,
    limits: QueueLimits,
    sizes: &Sizes,
    receiving: Receiving,
) -> Result<(), EndpointError> {
    let receives = match receiving {
        Receiving::PerPath => sizes.receives_of_path_max(),
        shared => sizes.receives_of_class(shared),
    };
    let (completions, control_completions) = sizes.completions_max(receiving);
    let message = sizes.chunk_bytes_max as usize + HEADER_BYTES;
    for (what, wanted, limit) in [
        ("the receive queue", receives, limits.wr_max as usize),
        ("the send queue", sizes.path_sends(), limits.wr_max as usize),
        ("the completion queue", completions, limits.cqe_max as usize),
        ("the completion queue of acks", control_completions, limits.cqe_max as usize),
        ("the number of queue pairs", sizes.qps_max(), caps.qp_max as usize),
        ("a chunk with its header", message, caps.message_bytes_max as usize),
    ] {
        if wanted > limit {
            return Err(EndpointError::TooLarge { what, wanted, limit });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icrc::Icrc;
    use towpath_verbs::VerbSet;

    const LIMITS: QueueLimits = QueueLimits { wr_max: 1 << 15, cqe_max: 1 << 20 };

    /// A plain NIC: everything, without extras.
    fn caps() -> DeviceCaps {
        DeviceCaps {
            verbs: VerbSet { rc: true, uc: true, ud: true, srq: true, ..VerbSet::default() },
            mtu_max: Mtu::Mtu1024,
            message_bytes_max: 1 << 30,
            send_sge_max: 30,
            qp_max: 1 << 16,
            timestamps: false,
            source_ports: 1 << 14,
            source_port_live: false,
            rx_buffer_bytes: None,
            rx_charge_bytes: 0,
            delay_noise: Nanos::from_micros(200),
            delivers_intact: false,
            sends_at_once: false,
            arrives_in_progress: false,
            pins_memory: false,
            cuts_each_send: false,
            omits_icrc: false,
        }
    }

    fn plan(caps: &DeviceCaps) -> Plan {
        Plan::new(caps, LIMITS, &EndpointConfig::new()).expect("it fits")
    }

    #[test]
    fn a_device_without_extras_gets_software_in_their_place() {
        let plan = plan(&caps());
        assert_eq!((plan.carrier, plan.clock), (Carrier::Uc, Clock::Software));
        assert_eq!(plan.delay_noise, Nanos::from_micros(200));
        assert_eq!(plan.source_ports, SourcePorts::PerQueuePair(1 << 14));
        assert!(!plan.shared_receiving, "its UC does not survive loss on a shared queue");
        assert_eq!((plan.mtu, plan.chunk_bytes_min), (Mtu::Mtu1024, 960));
    }

    #[test]
    fn what_a_device_has_is_used() {
        let mut caps = caps();
        caps.timestamps = true;
        caps.source_port_live = true;
        caps.verbs.uc_srq_survives_loss = true;
        let mut found = plan(&caps);
        assert_eq!((found.clock, found.shared_receiving), (Clock::Device, true));
        assert_eq!(found.source_ports, SourcePorts::Live(1 << 14));
        caps.source_ports = 1;
        caps.mtu_max = Mtu::Mtu4096;
        found = plan(&caps);
        assert_eq!((found.source_ports, found.mtu), (SourcePorts::One, Mtu::Mtu4096));
        let small = EndpointConfig::new().mtu_max(Mtu::Mtu512).chunk_bytes_max(100);
        let found = Plan::new(&caps, LIMITS, &small).expect("it fits");
        assert_eq!((found.mtu, found.chunk_bytes_min), (Mtu::Mtu512, 100));
    }

    #[test]
    fn an_mtu_that_the_port_does_not_carry_is_refused_and_a_smaller_one_is_taken() {
        let of = |mtu| Plan::new(&caps(), LIMITS, &EndpointConfig::new().mtu_max(mtu));
        assert_eq!(of(Mtu::Mtu1024).expect("it fits").mtu, Mtu::Mtu1024);
        assert_eq!(of(Mtu::Mtu256).expect("it fits").mtu, Mtu::Mtu256);
        let error = of(Mtu::Mtu2048).expect_err("the port has 1,024");
        let EndpointError::Mtu { asked, port } = &error else { panic!("{error:?}") };
        assert_eq!((*asked, port.mtu), (Mtu::Mtu2048, Mtu::Mtu1024));
        assert!(error.to_string().contains("lower the MTU setting"), "{error}");
    }

    #[test]
    fn what_was_not_chosen_gives_way_to_the_links_that_were() {
        let of = |caps: &DeviceCaps, limits, config: &EndpointConfig| {
            let plan = Plan::new(caps, limits, config).expect("it fits");
            (plan.links_max, plan.paths, plan.fallback)
        };
        let (config, links) = (EndpointConfig::new(), EndpointConfig::new().sizes.links_max);
        assert_eq!(of(&caps(), LIMITS, &config), (links, 4, Fallback::RcThenTcp));
        let pairs = |count: usize| DeviceCaps { qp_max: (links * count) as u32, ..caps() };
        assert_eq!(of(&pairs(5), LIMITS, &config), (links, 4, Fallback::Tcp));
        assert_eq!(of(&pairs(2), LIMITS, &config), (links, 1, Fallback::Tcp));
        let chosen = config.clone().paths(4).fallback(Fallback::RcThenTcp);
        assert_eq!(of(&pairs(3), LIMITS, &chosen), (links / 2, 4, Fallback::RcThenTcp));
        let one_port = DeviceCaps { source_ports: 1, ..caps() };
        assert_eq!(of(&one_port, LIMITS, &config).1, 1, "two paths would take the same way");
        let mut without_rc = caps();
        without_rc.verbs.rc = false;
        assert_eq!(of(&without_rc, LIMITS, &config).2, Fallback::Tcp);
        let copies = DeviceCaps { delivers_intact: true, ..caps() };
        assert_eq!(of(&copies, LIMITS, &config).2, Fallback::None);
    }

    #[test]
    fn as_many_links_are_there_as_the_queues_hold() {
        let config = EndpointConfig::new().paths(1).fallback(Fallback::None);
        let of = |limits| Plan::new(&caps(), limits, &config).expect("some fit").links_max;
        assert_eq!(of(LIMITS), config.sizes.links_max);
        let shallow = QueueLimits { cqe_max: 32_767, ..LIMITS };
        let fewer = of(shallow);
        assert!((2..config.sizes.links_max).contains(&fewer), "{fewer}");
        let (completions, _) =
            config.clone().links_max(fewer).sizes.completions_max(Receiving::PerPath);
        let (more, _) = config.links_max(fewer + 1).sizes.completions_max(Receiving::PerPath);
        assert!(completions <= 32_767 && more > 32_767);
    }

    #[test]
    fn a_device_on_which_no_link_fits_is_refused_with_the_number() {
        let config = EndpointConfig::new();
        let refusal = |caps: DeviceCaps, limits| match Plan::new(&caps, limits, &config) {
            Err(EndpointError::TooLarge { what, limit, .. }) => (what, limit),
            other => panic!("{other:?}"),
        };
        let short = DeviceCaps { message_bytes_max: 4096, ..caps() };
        assert_eq!(refusal(short, LIMITS), ("a chunk with its header", 4096));
        let shallow = QueueLimits { wr_max: 100, ..LIMITS };
        assert_eq!(refusal(caps(), shallow), ("the receive queue", 100));
    }

    #[test]
    fn payloads_are_summed_where_that_may_find_something_or_where_it_is_asked_for() {
        let (wire, copies) = (caps(), DeviceCaps { delivers_intact: true, ..caps() });
        let sums = |caps: &DeviceCaps, config: EndpointConfig| {
            Plan::new(caps, LIMITS, &config).expect("it fits").payload_crc
        };
        let config = EndpointConfig::new;
        assert_eq!([&wire, &copies].map(|caps| sums(caps, config())), [true, false]);
        assert_eq!([&wire, &copies].map(|caps| sums(caps, config().payload_crc(true))), [true; 2]);
        assert_eq!(
            [&wire, &copies].map(|caps| sums(caps, config().payload_crc(false))),
            [false; 2]
        );
    }

    #[test]
    fn icrcs_are_left_out_where_the_device_can_and_payloads_are_summed() {
        let can = DeviceCaps { omits_icrc: true, ..caps() };
        let omits = |caps: &DeviceCaps, config: EndpointConfig| {
            Plan::new(caps, LIMITS, &config).expect("it fits").omits_icrc
        };
        let config = EndpointConfig::new;
        assert!(omits(&can, config()));
        assert!(!omits(&caps(), config()));
        assert!(!omits(&can, config().icrc(Icrc::Always)));
        assert!(!omits(&can, config().payload_crc(false)));
    }

    #[test]
    fn where_posting_is_sending_a_turn_is_eight_of_the_longest_chunks_unless_one_says_otherwise() {
        let (waits, sends) = (caps(), DeviceCaps { sends_at_once: true, ..caps() });
        let ahead = |caps: &DeviceCaps, config: &EndpointConfig| {
            let plan = Plan::new(caps, LIMITS, config).expect("it fits");
            (plan.ahead_bytes, config.spreading_on(caps))
        };
        let (config, kept) = (EndpointConfig::new(), 256 << 10);
        assert_eq!(ahead(&waits, &config), (kept, Spreading::default()));
        let turn = 8 * towpath_proto::limits::CHUNK_BYTES_MAX;
        assert_eq!(ahead(&sends, &config), (u64::from(turn), Spreading::Bytes(turn)));
        let short = config.clone().chunk_bytes_max(4_032);
        assert_eq!(ahead(&sends, &short), (kept, Spreading::default()));
        let long = config.clone().chunk_bytes_max(1 << 20);
        assert_eq!(ahead(&sends, &long).0, 512 << 10);
        let asked = config.ahead_bytes(100);
        assert_eq!(ahead(&sends, &asked), (100, Spreading::default()));
    }

    #[test]
    fn a_device_without_uc_gets_rc() {
        let mut caps = caps();
        caps.verbs.uc = false;
        assert_eq!(plan(&caps).carrier, Carrier::Rc);
        assert!(plan(&caps).shared_receiving, "RC survives loss on any queue");
        caps.verbs.rc = false;
        let refused = Plan::new(&caps, LIMITS, &EndpointConfig::new());
        assert!(matches!(refused, Err(EndpointError::NoCarrier { .. })));
    }
}
