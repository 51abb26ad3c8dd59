//! What can be chosen for an endpoint.

mod carriers;
mod profiles;
mod sizes;

pub(crate) use carriers::Carriers;
pub(crate) use sizes::{Receiving, Sizes};

use crate::class::ClassConfig;
use crate::icrc::Icrc;
use crate::limits::{SPARE_ONE_IN, WHOLE_BYTES_MAX};
use crate::secure::{Secure, sealed_bytes};
use crate::workers::{Worker, Workers};
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use towpath_base::Nanos;
use towpath_cc::ControllerConfig;
use towpath_proto::limits::{CREDIT_OUTSTANDING_MAX, NUMBER_WINDOW, QUOTA_CHUNKS_MIN};
use towpath_proto::wire::AppProtocol;
use towpath_proto::{Class, ClassOrder, LinkConfig, Side};
use towpath_verbs::DeviceCaps;

type Tune = Arc<dyn Fn(LinkConfig) -> LinkConfig + Send + Sync>;

/// Settings of an [`Endpoint`](crate::Endpoint) or an `EndpointHandle`.
///
/// Start with [`new`](Self::new), or with [`throughput`](Self::throughput),
/// [`latency`](Self::latency), [`many_links`](Self::many_links) or
/// [`small_memory`](Self::small_memory), and change what you need. The defaults are tuned for a
/// few peers in one datacentre and for loopback, with messages from 64 bytes to some MiB.
///
/// Memory: the receive buffers of one link take about (`receives_ready` + `progress_budget`) x
/// `chunk_bytes_max` (34 MiB by default and a few buffers more, mapped when first used), and those
/// of each further link `receives_ready` x `chunk_bytes_max` (30 MiB). Links and applications hold
/// further buffers: at most `credit_total` x `chunk_bytes_max` for each link, and `quota_chunks` x
/// `chunk_bytes_max` (7.5 MiB) for each channel whose reader stalls. Memory that is no longer
/// needed returns to the system after [`memory_quiet`](Self::memory_quiet). The send pools take 57
/// MiB together. Messages that share a chunk share its receive buffer, which is free when all of
/// them were given back; each link has 1 MiB in which to copy short ones together before they are
/// sent, and a [sealed](Self::secure) one 64 x `chunk_bytes_max` (3.8 MiB).
#[derive(Clone)]
pub struct EndpointConfig {
    pub(crate) sizes: Sizes,
    pub(crate) carriers: Carriers,
    pub(crate) class: ClassConfig,
    messages: Messages,
    pub(crate) timing: Timing,
    pub(crate) send_pools: Vec<(usize, usize)>,
    pub(crate) ahead_bytes: Option<u64>,
    pub(crate) shared_receiving: bool,
    pub(crate) lanes_by_messages: bool,
    pub(crate) seed: u64,
    pub(crate) icrc: Icrc,
    pub(crate) app: AppProtocol,
    pub(crate) worker: Option<Worker>,
    pub(crate) secure: Option<Secure>,
    controller: ControllerConfig,
    tune: Option<Tune>,
}

/// How messages are taken and sent.
#[derive(Clone, Debug)]
struct Messages {
    whole_bytes_max: u32,
    streams: Option<bool>,
    pieces_as_they_come: bool,
    payload_crc: Option<bool>,
}

/// How long things may take.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    pub(crate) memory_quiet: Nanos,
    pub(crate) connect_timeout: Nanos,
    pub(crate) spin: Nanos,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            sizes: Sizes::default(),
            carriers: Carriers::default(),
            class: ClassConfig::default(),
            messages: Messages {
                whole_bytes_max: WHOLE_BYTES_MAX,
                streams: None,
                pieces_as_they_come: false,
                payload_crc: None,
            },
            timing: Timing {
                memory_quiet: Nanos::from_secs(1),
                connect_timeout: Nanos::from_secs(5),
                spin: Nanos::from_micros(50),
            },
            send_pools: vec![(256, 4096), (4096, 2048), (64 << 10, 256), (1 << 20, 32)],
            ahead_bytes: None,
            shared_receiving: true,
            lanes_by_messages: false,
            // std keys each RandomState from the system's randomness: a source of it without a
            // dependency. These ids guard against accidents, not against attackers.
            seed: RandomState::new().hash_one(0u64),
            icrc: Icrc::default(),
            app: AppProtocol::default(),
            worker: None,
            secure: None,
            controller: ControllerConfig::default(),
            tune: None,
        }
    }
}

impl EndpointConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of a receive buffer, which is the longest body of a chunk that is taken or sent.
    /// Default 61,376: with its header that is 15 packets of 4,096 bytes, what one offloaded socket
    /// send holds.
    #[must_use]
    pub fn chunk_bytes_max(mut self, bytes: u32) -> Self {
        self.sizes.chunk_bytes_max = bytes.clamp(64, 1 << 24);
        self
    }

    /// Pieces of messages that a peer may send on one channel before some are given back: a message
    /// takes one for each 60 KiB or so. Default 128, at least 8.
    #[must_use]
    pub fn quota_chunks(mut self, chunks: u32) -> Self {
        self.sizes.quota_chunks = chunks.clamp(QUOTA_CHUNKS_MIN, CREDIT_OUTSTANDING_MAX - 1);
        self
    }

    /// The longest message that comes whole, in bytes: 258,048 (252 KiB) by default, on each
    /// device and with packets of any size. No more counts than half the
    /// [quota](Self::quota_chunks) of a channel holds in pieces of 16 KiB (1 MiB by default), or of
    /// [`chunk_bytes_max`](Self::chunk_bytes_max) of either end if that is less: pieces may be as
    /// short as that.
    #[must_use]
    pub fn whole_bytes_max(mut self, bytes: u32) -> Self {
        self.messages.whole_bytes_max = bytes.max(1);
        self
    }

    /// Whether messages that are longer than [`whole_bytes_max`](Self::whole_bytes_max) are taken,
    /// in pieces. Where they are not the peer is told so when a channel is opened, and its send is
    /// refused with [`SubmitError::TooLong`](crate::SubmitError::TooLong): nothing is lost unseen.
    /// Default: an [`Endpoint`](crate::Endpoint) takes them, as
    /// [`Event::StreamChunk`](crate::Event::StreamChunk); an
    /// `EndpointHandle` does not.
    #[must_use]
    pub fn streams(mut self, on: bool) -> Self {
        self.messages.streams = Some(on);
        self
    }

    /// Whether the pieces of messages of unordered channels are told as they come, in any order
    /// ([`Event::StreamChunk`](crate::Event::StreamChunk)), so that a reader begins before the last
    /// one is here. A message that is whole when the application looks comes as
    /// [`Event::Message`](crate::Event::Message) all the same: a reader needs both. Default no.
    #[must_use]
    pub fn pieces_as_they_come(mut self, on: bool) -> Self {
        self.messages.pieces_as_they_come = on;
        self
    }

    /// How long whoever drives handles may spin before it sleeps: see [`spin`](Self::spin).
    #[doc(hidden)]
    #[must_use]
    pub fn spin_span(&self) -> Nanos {
        self.timing.spin
    }

    /// For handles, whose users must ask for streams.
    #[doc(hidden)]
    #[must_use]
    pub fn without_streams_unless_asked(mut self) -> Self {
        self.messages.streams.get_or_insert(false);
        self
    }

    /// Pieces that all channels of a link together may be granted: what a link can hold when all
    /// of its readers stall. Default 4,096, so that a link carries 32 channels of the default
    /// quota, or 512 of the smallest. A channel that would exceed it is refused. It costs no memory
    /// until that much is held; see [`receives_ready`](Self::receives_ready).
    #[must_use]
    pub fn credit_total(mut self, chunks: u32) -> Self {
        self.sizes.credit_total = chunks.max(2);
        self
    }

    /// Receive buffers that are posted for a link, and so the most chunks that its peer may have
    /// under way, on devices where what arrives takes one at once. Buffers that the link or the
    /// application holds are replaced by others. Default 512; no more than `credit_total` counts.
    #[must_use]
    pub fn receives_ready(mut self, chunks: u32) -> Self {
        self.sizes.receives_ready = chunks.clamp(2, NUMBER_WINDOW as u32);
        self
    }

    /// The most receive buffers that all links and applications together hold, beside those that
    /// are posted. Default 131,072, which is 7.5 GiB at 60 KiB each; at least two for each of
    /// [`links_max`](Self::links_max).
    ///
    /// Where links could hold more (`links_max` x `credit_total`) on a device whose receives are
    /// shared and replaced, the first half is for whoever comes first. Once that is held, a link
    /// takes in chunks of data only while it holds fewer than its share: the other half, divided
    /// by `links_max`. Of what else comes, parts of pieces that have their buffers are taken; the
    /// rest is dropped, counted in [`over_share`](crate::EndpointStats::over_share), and sent
    /// again. So that a link can always take in a message, its share should be as many as its
    /// longest message has pieces.
    #[must_use]
    pub fn receive_buffers_max(mut self, buffers: usize) -> Self {
        self.sizes.receive_buffers_max = buffers;
        self
    }

    /// Receive buffers beyond what must be there. Default 16.
    #[must_use]
    pub fn receive_slack(mut self, buffers: usize) -> Self {
        self.sizes.slack = buffers;
        self
    }

    /// How long a receive buffer must not have been needed before its memory goes back to the
    /// system, on a device that does not [pin](DeviceCaps::pins_memory) it: what a burst took is
    /// free again soon after. Default 1 s, so that a load that comes and goes many times a second
    /// pays for its pages once. 64 free buffers keep theirs.
    #[must_use]
    pub fn memory_quiet(mut self, span: impl Into<Nanos>) -> Self {
        self.timing.memory_quiet = span.into().max(Nanos::from_millis(1));
        self
    }

    /// The most links; fewer where the device's queues hold fewer ([`Plan`](crate::Plan)). Default
    /// 32.
    #[must_use]
    pub fn links_max(mut self, links: usize) -> Self {
        self.sizes.links_max = links.clamp(1, 1 << 14);
        self
    }

    /// Work requests in the send queue of a path. Default 512.
    #[must_use]
    pub fn send_queue_depth(mut self, wrs: u32) -> Self {
        self.sizes.send_queue_depth = wrs.clamp(1, 1 << 15);
        self
    }

    /// How much of a link may be posted and not sent yet. A message that is sent next waits for so
    /// much at most, whatever else the link has to send; too little lets the device run dry between
    /// two turns of the loop. Default 256 KiB, 21 us at 100 Gb/s. While it rides on RC, whose sends
    /// are over when the peer has them, at least 1 MiB may be under way. Where a send is
    /// [carried out at once](DeviceCaps::sends_at_once) nothing waits, and a turn may send eight of
    /// the longest chunks if that is more, up to 512 KiB.
    #[must_use]
    pub fn ahead_bytes(mut self, bytes: u64) -> Self {
        self.ahead_bytes = Some(bytes.max(1));
        self
    }

    /// The pools that [`Endpoint::alloc`](crate::Endpoint::alloc) takes from: (bytes of a buffer,
    /// how many). Default 4,096 of 256 bytes, 2,048 of 4 KiB, 256 of 64 KiB, 32 of 1 MiB.
    #[must_use]
    pub fn send_pools(mut self, pools: &[(usize, usize)]) -> Self {
        self.send_pools = pools.iter().copied().filter(|&(b, n)| b > 0 && n > 0).collect();
        self.send_pools.sort_unstable();
        self
    }

    /// Packets taken in by one poll. Default 64: acks go out once in each turn, so a smaller turn
    /// lets the sender go on while the rest is taken in. Each packet needs a receive buffer in
    /// reserve.
    #[must_use]
    pub fn progress_budget(mut self, packets: usize) -> Self {
        self.sizes.progress_budget = packets.clamp(1, 1 << 14);
        self
    }

    /// How long a connection may take to be set up, either way. Default 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, span: impl Into<Nanos>) -> Self {
        self.timing.connect_timeout = span.into();
        self
    }

    /// The name of the protocol that the application speaks over its channels. Both ends refuse a
    /// link to an application with another protocol, with an error that names both protocols
    /// ([`ConnectError::App`](crate::ConnectError::App)). Default: no name; then links are possible
    /// only to applications that have no name either.
    ///
    /// ```
    /// # use towpath_transport::{AppProtocol, EndpointConfig};
    /// let config = EndpointConfig::new().app_protocol(AppProtocol::named("echo/1"));
    /// ```
    #[must_use]
    pub fn app_protocol(mut self, app: AppProtocol) -> Self {
        self.app = app;
        self
    }

    /// How long the worker of a handle polls without work before it blocks. Default 50 us.
    #[must_use]
    pub fn spin(mut self, span: impl Into<Nanos>) -> Self {
        self.timing.spin = span.into();
        self
    }

    /// The class of links that are made without naming one. Default: Silver.
    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.class.own = class;
        self
    }

    /// The classes of links that peers may make; others are refused. Default: all.
    #[must_use]
    pub fn take_classes(mut self, classes: &[Class]) -> Self {
        self.class.take_only(classes);
        self
    }

    /// The order in which links of several classes post work to the device. Default: strict
    /// priority, under which Copper gets what Gold and Silver leave, and may starve.
    #[must_use]
    pub fn class_order(mut self, order: ClassOrder) -> Self {
        self.class.order = order;
        self
    }

    /// The DSCP of packets of a class, 0 to 63 (held to that). The peer is told of it, so that both
    /// ends need not be set alike. Default: see [`Class::dscp_default`].
    #[must_use]
    pub fn dscp(mut self, class: Class, dscp: u8) -> Self {
        self.class.set_dscp(class, dscp);
        self
    }

    /// Whether the links of a class share one receive queue, where the device can do so soundly.
    /// Default yes.
    #[must_use]
    pub fn shared_receiving(mut self, yes: bool) -> Self {
        self.shared_receiving = yes;
        self
    }

    /// Where instance id, PSNs and generations come from. Default: the system's randomness. Fix it
    /// only for a run that must replay, and give each life of an endpoint another.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The congestion controller of each path. Default: see [`ControllerConfig`].
    #[must_use]
    pub fn controller(mut self, controller: ControllerConfig) -> Self {
        self.controller = controller;
        self
    }

    /// Whether payloads carry a CRC32C. Default on, but for a device that
    /// [delivers what was sent](DeviceCaps::delivers_intact); off, a corruption that a device's own
    /// check misses goes unseen unless the application checks.
    #[must_use]
    pub fn payload_crc(mut self, on: bool) -> Self {
        self.messages.payload_crc = Some(on);
        self
    }

    /// When packets carry an ICRC beside the checksums of chunks. Default: [`Icrc::Auto`].
    #[must_use]
    pub fn icrc(mut self, icrc: Icrc) -> Self {
        self.icrc = icrc;
        self
    }

    /// Seals all links: nobody else can read, forge or end them, and only who is trusted has any
    /// (`docs/secure-links.md`). Give all endpoints of a process the same keys. Peers must have
    /// keys and the same mode; others are refused, and told what to do. One-sided operations go by
    /// messages, and the seal takes the place of all checksums. Default: links are open.
    #[must_use]
    pub fn secure(mut self, keys: Secure) -> Self {
        self.secure = Some(keys);
        self
    }

    /// What protects its links, if anything does.
    #[must_use]
    pub fn keys(&self) -> Option<&Secure> {
        self.secure.as_ref()
    }

    /// Whether payloads carry a CRC32C on a device with these capabilities.
    pub(crate) fn checks_payloads(&self, caps: &DeviceCaps) -> bool {
        let is_asked = self.messages.payload_crc.unwrap_or(!caps.delivers_intact);
        is_asked && self.secure.is_none()
    }

    /// Whether something finds out what a device has damaged.
    pub(crate) fn notices_damage(&self, caps: &DeviceCaps) -> bool {
        self.secure.is_some() || self.checks_payloads(caps)
    }

    /// The longest body of a chunk: what a receive buffer holds, but for a tag.
    pub(crate) fn body_bytes_max(&self) -> u32 {
        self.sizes.chunk_bytes_max - sealed_bytes(self.secure.as_ref())
    }

    /// Makes the endpoint number `index` of several that are one to their peers. Its own random
    /// numbers differ from those of the others that got the same seed.
    #[must_use]
    pub fn of_worker(mut self, workers: &Workers, index: usize) -> Self {
        self.worker = Some(Worker::new(workers, index));
        self
    }

    /// Sets whatever else [`LinkConfig`] offers (timeouts, bounds on sends), for each link that is
    /// made. What the setters here decide stays decided.
    #[must_use]
    pub fn tune_links(
        mut self,
        tune: impl Fn(LinkConfig) -> LinkConfig + Send + Sync + 'static,
    ) -> Self {
        self.tune = Some(Arc::new(tune));
        self
    }

    /// For a link with so many paths on its first carrier, from so many source ports.
    pub(crate) fn link_config(
        &self,
        side: Side,
        caps: &DeviceCaps,
        (paths, source_ports): (usize, u16),
    ) -> LinkConfig {
        let is_pinned = caps.source_ports > 1 && !caps.source_port_live;
        let config = LinkConfig::new(side)
            .spare_paths(if is_pinned { paths / SPARE_ONE_IN } else { 0 })
            // The header is an entry of its own.
            .gather_max(caps.send_sge_max as usize - 1)
            .delay_noise(caps.delay_noise)
            .source_ports(source_ports)
            .keeps_ports(!caps.source_port_live)
            .spreading(self.spreading_on(caps));
        let config = match &self.tune {
            Some(tune) => tune(config),
            None => config,
        };
        let config = config
            .controller(self.controller)
            .payload_crc(self.checks_payloads(caps))
            .quota_chunks(self.sizes.quota_chunks)
            .credit_total(self.sizes.credit_total)
            .chunk_bytes_max(self.body_bytes_max())
            .trailer_bytes(sealed_bytes(self.secure.as_ref()))
            .whole_bytes_max(self.messages.whole_bytes_max);
        config
            .streams(self.messages.streams != Some(false))
            .pieces_as_they_come(self.messages.pieces_as_they_come)
    }
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("chunk_bytes_max", &self.sizes.chunk_bytes_max)
            .field("quota_chunks", &self.sizes.quota_chunks)
            .field("credit_total", &self.sizes.credit_total)
            .field("links_max", &self.sizes.links_max)
            .field("paths", &self.sizes.paths)
            .finish_non_exhaustive()
    }
}
