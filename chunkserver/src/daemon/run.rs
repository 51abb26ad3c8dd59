//! From settings to a serving chunk server, and back to nothing.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::thread::scope;

use serde::Serialize;
use towpath_fastpath::HealthConfig;
use towpath_fastpath::wire::PROTOCOL;
use towpath_qos::InterferenceConfig;
use towpath_status::{StatusDesk, StatusSocket};
use towpath_transport::{
    Device, Either, Endpoint, EndpointConfig, EndpointError, Fallback, Nanos, Placing, PortChoice,
    Region, RoceUdp, UdpConfig, VerbsDevice, Workers, roce_udp_group,
};

use super::beside::{Asked, metrics_tls};
use super::config::{DaemonConfig, PlaceBy, StatusPlace};
use super::crew::{Crew, Post};
use super::descriptors;
use super::disks::{OpenDisks, ToOpen, open_disks};
use super::error::DaemonError;
use super::log::log_filter;
use super::shards::store_dirs;
use super::stop::StopFlag;
use super::store::{check_sizes, random};
use super::{peers, secure, tenants};
use crate::guard::Guard;
use crate::metrics::Worker;
use crate::service::{ChunkServer, InterferenceControl, ServerStats, ServiceConfig};

/// A server that takes clients.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Ready {
    /// The TCP address that clients connect to, with its port.
    pub listening: SocketAddr,
    /// The address of its device: IP and UDP port.
    pub device: SocketAddr,
    /// The process.
    pub pid: u32,
    /// Where metrics are told, if anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

/// How the server ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Served {
    /// What it counted.
    pub stats: ServerStats,
    /// What each worker counted.
    pub workers: Vec<ServerStats>,
    /// Everything that was taken was answered before the links were closed.
    pub drained: bool,
}

/// The devices that the settings name, one for each worker.
///
/// # Errors
/// [`EndpointError`]: they cannot be opened; in builds without the feature `verbs`, how to get
/// them.
pub fn devices(
    config: &DaemonConfig,
    endpoint: &EndpointConfig,
) -> Result<Vec<Either<RoceUdp, VerbsDevice>>, EndpointError> {
    match config.device.choice().target() {
        None => Ok(udp_devices(config, endpoint)?.into_iter().map(Either::Left).collect()),
        Some(target) => (0..config.effective_workers())
            .map(|_| Ok(Either::Right(VerbsDevice::open(&target)?)))
            .collect(),
    }
}

/// The userspace NIC of each worker as the settings want it: RoCEv2 over UDP sockets, on one port.
///
/// # Errors
/// [`EndpointError::Udp`] when the sockets cannot be had.
pub fn udp_devices(
    config: &DaemonConfig,
    endpoint: &EndpointConfig,
) -> Result<Vec<RoceUdp>, EndpointError> {
    roce_udp_group(udp_config(config), endpoint, config.effective_workers() as usize)
}

/// How the sockets of the device are set up, for callers that put a link of their own around them.
#[must_use]
pub fn udp_config(config: &DaemonConfig) -> UdpConfig {
    let port = match config.device.device_port {
        0 => PortChoice::Ephemeral,
        port => PortChoice::Exact(port),
    };
    let udp = config.device.device.udp(config.effective_device_ip()).port(port);
    udp.foreign_peers(config.device.device_foreign_peers)
}

/// How the endpoint of a server with these settings is set up.
#[must_use]
pub fn endpoint_config(config: &DaemonConfig) -> EndpointConfig {
    let endpoint = match config.device.mtu_bytes {
        Some(mtu) => EndpointConfig::new().mtu_max(mtu),
        None => EndpointConfig::new(),
    };
    // The default gives way where the device's queues would hold fewer clients.
    let endpoint = match config.network.fallback {
        Fallback::RcThenTcp => endpoint,
        fewer => endpoint.fallback(fewer),
    };
    endpoint
        .app_protocol(PROTOCOL)
        .icrc(config.device.device_icrc)
        // Data is checked, and that of long writes stored, while it arrives.
        .pieces_as_they_come(true)
        .links_max(config.effective_links_max() as usize)
        .paths(config.network.paths_max as usize)
        .carrier_rules(&config.network.carrier)
        .quota_chunks(config.network.quota_chunks)
        .credit_total(config.network.credit_chunks_max.max(config.network.quota_chunks))
        .send_pools(&[
            (256, 4096),
            (4096, 2048),
            (64 << 10, config.network.read_buffers_small as usize),
            (1 << 20, config.network.read_buffers_large as usize),
        ])
}

/// Serves until `stop` is raised, then stops cleanly: takes no more clients and requests, finishes
/// what was taken, closes the links, seals the store.
///
/// `make_devices` makes a device for each worker; [`devices`](devices()) is the usual one. The
/// first worker runs on the caller's thread, each other on one of its own; a client's link goes to
/// a worker as [`place_by`](super::NetworkConfig::place_by) says. `on_ready` is called once, when
/// clients can connect. However it ends, `stop` is raised then.
///
/// # Errors
/// [`DaemonError`]; what was acknowledged is on stable media whatever happens.
pub fn run<D: Device<Memory = Region> + Send>(
    config: &DaemonConfig,
    stop: &StopFlag,
    make_devices: impl FnOnce(&DaemonConfig, &EndpointConfig) -> Result<Vec<D>, EndpointError>,
    on_ready: impl FnOnce(&Ready) -> io::Result<()>,
) -> Result<Served, DaemonError> {
    check(config)?;
    descriptors::raise(config);
    // The port first: it is soon found to be taken, while a store may take a while to open.
    let keys = secure::keys(&config.secure)?;
    let endpoint_config =
        keys.iter().cloned().fold(endpoint_config(config), EndpointConfig::secure);
    let mut devices = make_devices(config, &endpoint_config)?;
    let workers = Workers::new(devices.len(), placing(config), random());
    let of_worker = |index| endpoint_config.clone().of_worker(&workers, index);
    let others = devices.split_off(devices.len().min(1));
    let Some(device) = devices.pop() else { return Err(DaemonError::NoDevice) };
    let mut endpoint = Endpoint::new(device, of_worker(0))?;
    say_fewer_links(config, endpoint.plan().links_max);
    let device = endpoint.device().local_addr();
    let listening = endpoint.listen(config.network.listen)?;
    let dirs = store_dirs(&config.store)?;
    let beside = Asked::of(config, &dirs)?;
    let metrics_at = beside.metrics_at();
    let askers = workers.count() + beside.count();
    let service = service_config(config);
    let tenants_stamp = config.qos.tenants_file.as_deref().and_then(tenants::stamp);
    let mut qos = tenants::start(&config.qos, workers.count())?.into_iter();
    let to_open = ToOpen::new(config, &dirs, askers);
    let crew = Crew { config, stop, service: &service, tenants_stamp };
    let served = scope(|scope| {
        let seat = |number| crew.seat(scope, (number, workers.count()), to_open.clone());
        let seats = (1..workers.count()).map(seat).collect::<Result<Vec<_>, _>>()?;
        let opened = seats.iter().flat_map(|seat| &seat.opened);
        let OpenDisks { holds: mut stores, drivers, resident } =
            open_disks(&to_open, workers.count(), opened)?;
        let beside = beside.with(&mut stores, &dirs);
        let mut stores = stores.into_iter();
        let Some(store) = stores.next() else { return Err(DaemonError::NoDevice) };
        let mut status = status_socket(config, workers.count())?;
        let (first_qos, control) = (qos.next(), interference(config));
        let guard = guard(config)?;
        let mut posts = Vec::new();
        for (((index, device), store), seat) in
            others.into_iter().enumerate().zip(stores).zip(seats)
        {
            let post = Post {
                device,
                endpoint: of_worker(index + 1),
                store,
                desk: status.as_mut().map(|(_, desks)| desks.remove(0)),
                qos: qos.next(),
                worker: Worker::default(),
                control: control.clone(),
                guard: guard.clone(),
                resident: resident.clone(),
                boards: beside.boards(),
            };
            posts.push((seat, post));
        }
        let server = ChunkServer::new(endpoint, store, &service).driving(drivers);
        let server = server.resident_memory(resident).qos(first_qos);
        let server = server.scrubbing(beside.boards()).interference(control);
        let server = server.guard(guard.clone()).peers(config.service.peers.clone());
        guard.iter().for_each(Guard::wait_for_start);
        let status = status.map(|(socket, _)| socket);
        crew.serve(scope, server, status, beside, posts, || {
            let ready = Ready { listening, device, pid: std::process::id(), metrics: metrics_at };
            on_ready(&ready).map_err(DaemonError::Ready)?;
            tracing::info!(%listening, %device, workers = workers.count(), "serving");
            secure::say_what_is_open(keys.as_ref(), listening.ip().is_loopback());
            say_who_may_do_what(config, listening);
            Ok(())
        })
    })?;
    log_end(&served);
    Ok(served)
}

/// Says where the device allows fewer clients than are wanted.
fn say_fewer_links(config: &DaemonConfig, links_max: usize) {
    let wanted = config.effective_links_max() as usize;
    if links_max < wanted {
        tracing::warn!(
            links_max,
            wanted,
            "the device's queues hold fewer clients; each takes less of them with fewer `paths_max`"
        );
    }
}

/// What requests are checked by, where there are keys.
fn guard(config: &DaemonConfig) -> Result<Option<Guard>, DaemonError> {
    let Some(keys) = &config.service.key_file else { return Ok(None) };
    let mode = std::fs::metadata(keys).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        tracing::warn!(
            keys = %keys.display(),
            "others than the server may read its keys, and then do everything: chmod 600"
        );
    }
    Ok(Some(Guard::open(keys, &config.store.data_dir.join("revoked"))?))
}

/// What the server did, in the words of its log.
fn log_end(served: &Served) {
    let ServerStats { links_accepted, done, failed, write_bytes, read_bytes, .. } = served.stats;
    tracing::info!(
        clients = links_accepted,
        requests_done = done,
        requests_failed = failed,
        write_bytes,
        read_bytes,
        all_answered = served.drained,
        "stopped"
    );
}

/// Whether the configuration is valid and its addresses are of this host. Sockets are bound to them
/// for a moment, on any free port; nothing else is touched.
///
/// # Errors
/// [`DaemonError::DeviceIp`], [`DaemonError::NotOurs`], [`DaemonError::LogLevel`],
/// [`DaemonError::Sizes`], [`DaemonError::Secure`].
pub fn check(config: &DaemonConfig) -> Result<(), DaemonError> {
    let ip: IpAddr = config.effective_device_ip();
    let is_ours = config.device.choice().target().is_none();
    if is_ours && (ip.is_unspecified() || ip.is_multicast()) {
        return Err(DaemonError::DeviceIp { ip, likely: likely_ip(ip) });
    }
    log_filter(&config.telemetry.log)?;
    check_sizes(&config.store)?;
    store_dirs(&config.store)?;
    tenants::start(&config.qos, 1)?;
    metrics_tls(&config.telemetry)?;
    secure::keys(&config.secure)?;
    let ours = |setting: &'static str, ip: IpAddr| {
        let bound = TcpListener::bind((ip, 0)).map(drop);
        bound.map_err(|source| DaemonError::NotOurs { setting, ip, source })
    };
    ours("listen", config.network.listen.ip())?;
    config.telemetry.metrics.map_or(Ok(()), |address| ours("metrics", address.ip()))?;
    if is_ours { ours("device_ip", ip) } else { Ok(()) }
}

/// The address that packets to other networks leave from, for advice.
fn likely_ip(of_family: IpAddr) -> Option<IpAddr> {
    // Connecting a UDP socket sends nothing; it only asks the routing table.
    let (any, far) = match of_family {
        IpAddr::V4(_) => ("0.0.0.0:0", "192.0.2.1:9"),
        IpAddr::V6(_) => ("[::]:0", "[2001:db8::1]:9"),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Requests are not authenticated, which whoever opens the server to a network must know.
fn say_who_may_do_what(config: &DaemonConfig, listening: SocketAddr) {
    peers::say_who(&config.service.peers);
    if let Some(path) = &config.service.key_file {
        tracing::info!(keys = %path.display(), "requests need capabilities");
    } else if config.secure.host_key.is_some() {
        tracing::info!("every host in authorized_peers may read and delete every chunk");
    } else if listening.ip().is_loopback() {
        tracing::info!("every program on this host may read and delete every chunk");
    } else {
        tracing::warn!(
            %listening,
            "everyone who can reach this address may read and delete every chunk: nothing is \
             authenticated; set `key_file`"
        );
    }
}

/// Prints the ready line: the address for people, or an object for programs.
///
/// # Errors
/// What the system says when stdout cannot be written.
pub fn print_ready(ready: &Ready, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, ready)?;
        writeln!(out)?;
    } else {
        writeln!(out, "listening on {}", ready.listening)?;
    }
    out.flush()
}

/// None where there is to be none, or where nobody asked for one and there can be none.
fn status_socket(
    config: &DaemonConfig,
    workers: usize,
) -> Result<Option<(StatusSocket, Vec<StatusDesk>)>, DaemonError> {
    let Some(path) = config.status_path() else { return Ok(None) };
    match StatusSocket::bind_for(&path, workers) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if config.telemetry.status_socket == StatusPlace::DataDir => {
            tracing::warn!(%error, "there is no status socket");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// None where no latency of reads matters.
fn interference(config: &DaemonConfig) -> Option<InterferenceControl> {
    let micros = |us: u32| Nanos::from_micros(us.into());
    let (mean, p99) = (config.qos.interference_mean_us, config.qos.interference_p99_us);
    let settings = InterferenceConfig {
        mean: micros(mean),
        p99: micros(p99),
        window: Nanos::from_millis(config.qos.interference_window_ms.into()),
        least_share: config.qos.interference_least_percent * 10,
    };
    (mean > 0 || p99 > 0).then(|| InterferenceControl::new(settings))
}

fn placing(config: &DaemonConfig) -> Placing {
    match config.network.place_by {
        PlaceBy::Auto if config.store.shards > 1 => Placing::LeastLinks,
        PlaceBy::Auto | PlaceBy::Class => Placing::ByClass,
        PlaceBy::Links => Placing::LeastLinks,
    }
}

fn service_config(config: &DaemonConfig) -> ServiceConfig {
    ServiceConfig::new()
        .link_requests_max(config.service.link_requests_max as usize)
        .busy_poll(Nanos::from_micros(config.service.busy_poll_us))
        .idle_wait(Nanos::from_micros(config.service.idle_wait_us))
        .time_handlers(config.telemetry.time_handlers)
        .health(HealthConfig::new().slow_after(Nanos::from_millis(config.service.slow_after_ms)))
}
