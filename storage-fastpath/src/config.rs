//! The settings of a client, and what follows from them.

use crate::client::ChunkClient;
use crate::error::OpenError;
use crate::hedge::HedgeConfig;
use crate::resident::{SLOT_BYTES, slots_bytes};
use crate::session::{ClientSession, random};
use crate::slice::SLICE_BYTES;
use crate::wire::PROTOCOL;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use towpath_cap::Grant;
use towpath_rpc::limits::OUTCOME_GRACE;
use towpath_transport::{
    CarrierRule, ChannelId, EndpointConfig, Fallback, LinkId, Nanos, Ride, Secure, UdpConfig,
};

/// Operations to have under way unless set: at 128 KiB each, 2 MiB.
const DEPTH_DEFAULT: usize = 16;

/// Bytes of each operation of a put unless set: a third chunk more costs less per byte than a
/// second request, and with its headers it is still held whole at the default settings.
const OP_BYTES_DEFAULT: usize = 128 << 10;

/// How long a server may be out of reach unless set: as long as switches and servers take to start
/// again.
const PATIENCE_DEFAULT: Nanos = Nanos::from_secs(300);

/// Links of a client at most: more than the workers of a server.
const LINKS_MAX: usize = 16;

/// Buffers for headers and control bodies, beyond two for each operation of the depth.
const HEADS_SPARE: usize = 64;

/// Settings of a [`Client`](crate::Client).
/// `ClientConfig::new()` has the defaults, which are tuned for one server in the same datacentre.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub(crate) depth: usize,
    pub(crate) op_bytes: usize,
    pub(crate) timeout: Nanos,
    pub(crate) outcome_grace: Nanos,
    pub(crate) spin: Nanos,
    paths: Option<usize>,
    fallback: Option<Fallback>,
    carrier_rules: Vec<CarrierRule>,
    pub(crate) patience: Patience,
    local_ip: Option<IpAddr>,
    endpoint: Option<EndpointConfig>,
    udp: Option<UdpConfig>,
    pub(crate) hedge: Option<(SocketAddr, HedgeConfig)>,
    session: Option<ClientSession>,
    seed: Option<u64>,
    pub(crate) links: usize,
    pub(crate) tenant: Option<String>,
    pub(crate) on_ride: Option<OnRide>,
    capability: Option<Grant>,
    secure: Option<Secure>,
}

/// How long what was asked for waits for a server that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    pub(crate) span: Nanos,
    /// It is given up then, even before its timeout.
    pub(crate) is_limit: bool,
}

/// Called with the server of a link and the change of its carrier.
type RideListener = dyn Fn(SocketAddr, &Ride) + Send + Sync;

/// The listener for changes of carrier.
#[derive(Clone)]
pub(crate) struct OnRide(pub(crate) Arc<RideListener>);

impl fmt::Debug for OnRide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnRide").finish_non_exhaustive()
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            depth: DEPTH_DEFAULT,
            op_bytes: OP_BYTES_DEFAULT,
            timeout: crate::client::TIMEOUT_DEFAULT,
            outcome_grace: OUTCOME_GRACE,
            spin: Nanos::from_micros(50),
            paths: None,
            fallback: None,
            carrier_rules: Vec::new(),
            patience: Patience { span: PATIENCE_DEFAULT, is_limit: false },
            local_ip: None,
            endpoint: None,
            udp: None,
            hedge: None,
            session: None,
            seed: None,
            links: 1,
            tenant: None,
            on_ride: None,
            capability: None,
            secure: None,
        }
    }
}

impl ClientConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Operations of each link that are under way at a time. Default 16, at most 256.
    #[must_use]
    pub fn depth(mut self, operations: usize) -> Self {
        self.depth = operations.clamp(1, towpath_rpc::limits::REQUESTS_MAX_DEFAULT);
        self
    }

    /// Bytes of each operation of a [`put`](crate::Client::put), rounded down to whole slices and
    /// to what the link and the server hold whole. Default 128 KiB.
    #[must_use]
    pub fn op_bytes(mut self, bytes: usize) -> Self {
        self.op_bytes = (bytes / SLICE_BYTES).max(1) * SLICE_BYTES;
        self
    }

    /// How long each operation may take. Default 10 s. One that changes something and is given up
    /// may take a grace more, to learn what became of it.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Nanos>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// How long an operation that was given up waits to learn what became of it. Default 100 ms;
    /// longer where the host of the server may be busy for longer.
    #[must_use]
    pub fn outcome_grace(mut self, span: impl Into<Nanos>) -> Self {
        self.outcome_grace = span.into();
        self
    }

    /// How long to poll without work before blocking. Default 50 us.
    #[must_use]
    pub fn spin(mut self, span: impl Into<Nanos>) -> Self {
        self.spin = span.into();
        self
    }

    /// Paths of the link, 1 to 16, each a queue pair with its own source port. Several paths spread
    /// load over the routes of a network, and a dead path is detected because the other paths still
    /// get replies. The server accepts up to its `paths_max`, 4 by default. Default 4, or as many
    /// as the server accepts ([`EndpointConfig::paths`]).
    #[must_use]
    pub fn paths(mut self, paths: usize) -> Self {
        self.paths = Some(paths);
        self
    }

    /// What links fall back to when no packet gets through over UDP. Default: all that the device
    /// and the server have ([`EndpointConfig::fallback`]).
    #[must_use]
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = Some(fallback);
        self
    }

    /// What carries links to servers in these ranges of addresses. Default: what the endpoint says
    /// ([`EndpointConfig::carrier_rules`]).
    #[must_use]
    pub fn carrier_rules(mut self, rules: &[CarrierRule]) -> Self {
        self.carrier_rules = rules.to_vec();
        self
    }

    /// How long the server may be out of reach before a [`Client`](crate::Client) gives up what was
    /// asked of it: while no link is up, the time of operations stands still. A link that is made
    /// again within this span goes on with them, each with its whole [`timeout`](Self::timeout).
    /// Default 5 min. 0 gives operations up by their timeouts alone.
    #[must_use]
    pub fn patience(mut self, span: impl Into<Nanos>) -> Self {
        self.patience.span = span.into();
        self
    }

    /// What waits for a server that is out of reach is given up as soon as the
    /// [`patience`](Self::patience) is over, whatever is left of its timeout; and the time of
    /// operations stands still only while no link is up. For programs that somebody waits for.
    #[must_use]
    pub fn patience_is_limit(mut self) -> Self {
        self.patience.is_limit = true;
        self
    }

    /// [`patience`](Self::patience), as it is set.
    #[must_use]
    pub fn patience_span(&self) -> Nanos {
        self.patience.span
    }

    /// [`timeout`](Self::timeout), as it is set.
    #[must_use]
    pub fn timeout_span(&self) -> Nanos {
        self.timeout
    }

    /// Has `listener` told what a link of a [`Client`](crate::Client) rides on from now on, and
    /// why: a [`Ride`] is shown as a line. It is called on the client's thread, and must not block.
    /// Default: nobody is told. Who drives an endpoint has them in its
    /// [`rides`](towpath_transport::Endpoint::rides).
    #[must_use]
    pub fn on_ride(mut self, listener: impl Fn(SocketAddr, &Ride) + Send + Sync + 'static) -> Self {
        self.on_ride = Some(OnRide(Arc::new(listener)));
        self
    }

    /// The local address from which to reach the server. Default: the one that the system's routing
    /// table chooses.
    #[must_use]
    pub fn local_ip(mut self, ip: IpAddr) -> Self {
        self.local_ip = Some(ip);
        self
    }

    /// The endpoint's settings. Default: those of [`EndpointConfig`], with send pools for the depth
    /// and size of operations. One that is set must have send buffers for them. Paths, fallback and
    /// rules for carriers that are set here replace those of the endpoint.
    #[must_use]
    pub fn endpoint(mut self, config: EndpointConfig) -> Self {
        self.endpoint = Some(config);
        self
    }

    /// The device's settings, its address included. Default: those of [`UdpConfig`].
    #[must_use]
    pub fn udp(mut self, config: UdpConfig) -> Self {
        self.udp = Some(config);
        self
    }

    /// Hedged reads: when a read is late, the client also asks `replica`, a server that holds the
    /// same bytes under the same names. Default none.
    #[must_use]
    pub fn hedge(mut self, replica: SocketAddr, config: HedgeConfig) -> Self {
        self.hedge = Some((replica, config));
        self
    }

    /// The session that the link to the server enters when it is up. A client that connects again
    /// in the same session may repeat changes of which it does not know whether they were done:
    /// the server refuses what is left of the older link, and opening the client waits for what
    /// it has already begun. Default none: then a change of an older link may still come.
    ///
    /// ```
    /// # use towpath_fastpath::{ClientConfig, ClientSession};
    /// let session = ClientSession::new();
    /// // For the first connection, and for each that follows after its link went down.
    /// let config = ClientConfig::new().session(&session);
    /// ```
    #[must_use]
    pub fn session(mut self, session: &ClientSession) -> Self {
        self.session = Some(session.clone());
        self
    }

    /// Draws the numbers of sessions and changes from a seed, for a run in virtual time that shall
    /// repeat. No two clients of a server have the same seed. Default: they are random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The session of a link. One link of a session is in use at a time, so each has its own.
    pub(crate) fn session_of(&self, index: usize) -> ClientSession {
        let seeded = |seed| ClientSession::with_id(u128::from(seed) << 64 | index as u128);
        let own = || self.seed.map_or_else(ClientSession::new, seeded);
        self.session.clone().filter(|_| index == 0).unwrap_or_else(own)
    }

    /// The stamp of the first change that has one.
    pub(crate) fn first_stamp(&self) -> u64 {
        self.seed.unwrap_or_else(|| random() as u64)
    }

    /// Links of a [`Client`](crate::Client), 1 to 16, each with [`depth`](Self::depth) operations
    /// under way. Several use several threads of the server. Default 1.
    #[must_use]
    pub fn links(mut self, links: usize) -> Self {
        self.links = links.clamp(1, LINKS_MAX);
        self
    }

    /// Whose requests those of a [`Client`](crate::Client) are, where the server keeps
    /// reservations. Default nobody's.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Shows a capability with each request, as servers with keys want it. Default none.
    #[must_use]
    pub fn capability(mut self, grant: Grant) -> Self {
        self.capability = Some(grant);
        self
    }

    /// Seals its links ([`EndpointConfig::secure`]). Default: they are open.
    #[must_use]
    pub fn secure(mut self, keys: Secure) -> Self {
        self.secure = Some(keys);
        self
    }

    /// A client on an open channel, with these settings.
    pub(crate) fn chunk_client(&self, link: LinkId, channel: ChannelId) -> ChunkClient {
        let client = ChunkClient::new(link, channel);
        let client = client.timeout(self.timeout).outcome_grace(self.outcome_grace);
        match self.capability {
            Some(grant) => client.capability(grant),
            None => client,
        }
    }

    pub(crate) fn endpoint_config(&self) -> EndpointConfig {
        let config = self.endpoint.clone().unwrap_or_else(|| {
            let heads = 2 * self.depth * self.links + HEADS_SPARE;
            let data = self.depth * self.links + 2;
            let links = self.links * (1 + usize::from(self.hedge.is_some()));
            EndpointConfig::new().links_max(links).send_pools(&[
                // A header, the checksum of a slice, and a proof.
                (384, heads),
                (4 << 10, heads),
                // A slot that is read.
                (SLOT_BYTES, heads),
                (256 << 10, 4),
                // With room for the trailers of slots that are read.
                (slots_bytes(self.op_bytes), data),
            ])
        });
        let config = self.paths.into_iter().fold(config, EndpointConfig::paths);
        let config = self.fallback.into_iter().fold(config, EndpointConfig::fallback);
        let config = match self.carrier_rules.is_empty() {
            true => config,
            false => config.carrier_rules(&self.carrier_rules),
        };
        let config = self.secure.iter().cloned().fold(config, EndpointConfig::secure);
        config.app_protocol(PROTOCOL)
    }

    pub(crate) fn udp_config(&self, addr: SocketAddr) -> Result<UdpConfig, OpenError> {
        if let Some(udp) = &self.udp {
            return Ok(udp.clone());
        }
        let routed = || local_ip(addr).map_err(|source| OpenError::NoRoute { addr, source });
        Ok(UdpConfig::new(self.local_ip.map_or_else(routed, Ok)?))
    }
}

/// The address that the system would send from: connecting a UDP socket sends nothing.
fn local_ip(addr: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match addr {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(addr)?;
    Ok(socket.local_addr()?.ip())
}
