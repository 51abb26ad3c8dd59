//! Connecting what carries the messages, once both ends have agreed.

use super::args::values::Connection;
use super::carrier::lane::{Lane, Role};
use super::carrier::tcp::Tcp;
use super::carrier::towpath::{PacketsLost, Towpath};
use super::control::{Control, Note, is_pause, uninterrupted};
use super::error::RunError;
use super::limits::{PEER_TIMEOUT, SPARE_PAYLOADS};
use super::session::row_depth;
use super::settings::Settings;
use crate::faults::swallow_after;
use crate::random::random;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::{Bundle, RoceConfig, RoceDevice};
use towpath_memory::Region;
use towpath_sim::{FaultControl, FaultLink, FaultPlan};
use towpath_status::StatusSocket;
use towpath_transport::{
    AppProtocol, CarrierChoice, ChannelError, ChannelId, Class, Endpoint, EndpointConfig,
    EndpointError, Event, LinkId, Nanos, Rights, SharedMemory,
};
use towpath_verbs::{Device, Mtu, PacketLink, dscp_of};

/// What the two ends of a measurement call what they speak.
const PROTOCOL: AppProtocol = AppProtocol::named("towpath-perftest/1");

/// The smallest class of send buffers: smaller messages share it.
const CLASS_BYTES_MIN: usize = 256;

/// What an unprivileged process gets from a kernel that nobody has tuned (`net.core.rmem_default`).
const STOCK_BUFFER_BYTES: u32 = 212_992;

/// How long an end that sets up waits at a time before it looks at the set-up connection, too.
const SETUP_WAIT: Nanos = Nanos::from_micros(100);

/// Packets that a reordered one may be overtaken by, and how long it waits for them at most.
const REORDER_PACKETS: u32 = 8;
const REORDER_DELAY: Nanos = Nanos::from_millis(1);

/// A link with its channels, and where each end is.
pub(crate) struct Connected<C> {
    pub(crate) carrier: C,
    pub(crate) local: String,
    pub(crate) remote: String,
    /// Of packets; none of TCP.
    pub(crate) mtu: Option<Mtu>,
}

/// The socket, with the faults that the settings ask for left aside.
pub(crate) fn udp_link(settings: &Settings, ip: IpAddr) -> Result<Bundle<UdpLink>, RunError> {
    let mut config = settings.device.name.udp(ip).foreign_peers(settings.device.foreign_peers);
    if settings.ours.stock_buffers {
        config = config
            .force_buffers(false)
            .rx_buffer_bytes(STOCK_BUFFER_BYTES)
            .tx_buffer_bytes(STOCK_BUFFER_BYTES);
    }
    Bundle::<UdpLink>::bind_one(&config).map_err(|error| EndpointError::from(error).into())
}

/// The faults of this end, on what it sends.
pub(crate) fn with_faults<L: PacketLink>(
    settings: &Settings,
    link: L,
) -> (FaultLink<L>, FaultControl) {
    let ours = &settings.ours;
    let plan = FaultPlan::none()
        .drop(ours.loss)
        .duplicate(ours.duplicate, REORDER_DELAY)
        .reorder(ours.reorder, REORDER_PACKETS, REORDER_DELAY)
        .corrupt(ours.corrupt)
        .delay(Nanos::from_micros(ours.delay), Nanos::ZERO);
    let faults = FaultControl::new(plan.clone());
    if !ours.black_hole.is_empty() {
        let holed = plan.black_hole_ports(ours.black_hole.iter().copied());
        swallow_after(ours.black_hole_after, faults.clone(), holed);
    }
    // Ends that are given the same seed must not lose the same packets.
    let seed = ours.seed.wrapping_mul(2).wrapping_add(u64::from(settings.is_client()));
    (FaultLink::new(link, seed, faults.clone()), faults)
}

/// The userspace NIC over `link`; another life, other queue pair numbers.
pub(crate) fn roce<L: PacketLink>(link: L) -> RoceDevice<L> {
    RoceDevice::new(link, RoceConfig::default().seed(random()))
}

/// Towpath over `device`.
pub(crate) fn towpath<D: Device<Memory = Region>>(
    settings: &Settings,
    device: D,
    lost: PacketsLost<D>,
    control: &mut Control,
) -> Result<Connected<Towpath<D>>, RunError> {
    let status = status_socket(settings)?;
    let mut endpoint = meet(settings, device, control)?;
    let (link, channels) = open_channels(&mut endpoint, settings)?;
    let local = address_of(&endpoint);
    let remote = exchange_addresses(control, &local)?;
    let mtu = endpoint.mtu_of(link);
    let mut carrier = Towpath::new(endpoint, link, channels, lost, settings.idle_polls_max());
    if let Some(socket) = status {
        carrier.answer_at(socket, settings.plan.tool.name());
    }
    Ok(Connected { carrier, local, remote, mtu })
}

/// One-sided operations over `device`.
pub(crate) fn lane<D: Device<Memory = Region>>(
    settings: &Settings,
    device: D,
    lost: PacketsLost<D>,
    control: &mut Control,
) -> Result<Connected<Lane<D>>, RunError> {
    let status = status_socket(settings)?;
    let (plan, is_client) = (&settings.plan, settings.is_client());
    let mut endpoint = meet(settings, device, control)?;
    let (ours, acts) = (target(settings)?, plan.sends(is_client));
    let (mut link, mut theirs) = (None, None);
    drive(&mut endpoint, |endpoint, event| {
        match *event {
            Event::Connected { link: up, .. } | Event::Accepted { link: up, .. } => {
                link = Some(up);
                if let Some(memory) = &ours {
                    endpoint.grant(up, memory, memory.whole(), Rights::ALL)?;
                }
            }
            Event::Granted { grant, .. } => theirs = Some(grant),
            _ => {}
        }
        Ok(link.filter(|_| theirs.is_some() || !acts).map(|_| ()))
    })?;
    let Some(link) = link else { return Err(RunError::PeerSilent(PEER_TIMEOUT)) };
    let local = address_of(&endpoint);
    control.send(&Note::Address { text: local.clone() })?;
    // What the peer waits for may have to be sent again.
    let start = Instant::now();
    let remote = loop {
        if !endpoint.turn(|_, _| {}) {
            endpoint.wait(SETUP_WAIT);
        }
        match control.try_recv()? {
            Some(Note::Address { text }) => break text,
            Some(note) => {
                return Err(RunError::OutOfTurn { wanted: "Address", got: note.name() });
            }
            None if start.elapsed() > PEER_TIMEOUT => {
                return Err(RunError::PeerSilent(PEER_TIMEOUT));
            }
            None => {}
        }
    };
    let (op, apart, mtu) = (plan.tool.op(), settings.apart(), endpoint.mtu_of(link));
    let role = Role { op, atomic: plan.atomic, apart, theirs };
    let mut carrier = Lane::new(endpoint, link, (role, ours), lost, settings.idle_polls_max());
    if !acts {
        carrier.sleep_on(control.file_to_keep()?)?;
    }
    if let Some(socket) = status {
        carrier.answer_at(socket, plan.tool.name());
    }
    Ok(Connected { carrier, local, remote, mtu })
}

/// What the peer reads or works on, if it does.
fn target(settings: &Settings) -> Result<Option<SharedMemory>, RunError> {
    let plan = &settings.plan;
    if !plan.sends(!settings.is_client()) {
        return Ok(None);
    }
    let bytes = |size| Role::target_bytes(settings.apart(), row_depth(plan, size), size);
    let most = plan.sizes().into_iter().map(bytes).max().unwrap_or(0);
    Ok(Some(SharedMemory::new(most)?))
}

fn status_socket(settings: &Settings) -> Result<Option<StatusSocket>, RunError> {
    Ok(settings.ours.status.as_deref().map(StatusSocket::bind).transpose()?)
}

/// An endpoint that the peer's connects to, or is about to.
fn meet<D: Device<Memory = Region>>(
    settings: &Settings,
    device: D,
    control: &mut Control,
) -> Result<Endpoint<D>, RunError> {
    let mut endpoint = Endpoint::new(device, endpoint_config(settings))?;
    let (ip, _) = control.addrs()?;
    if settings.is_client() {
        endpoint.connect(listening(control)?)?;
    } else {
        let addr = endpoint.listen(SocketAddr::from((ip, 0)))?;
        control.send(&Note::Listening { addr })?;
    }
    Ok(endpoint)
}

fn address_of<D: Device<Memory = Region>>(endpoint: &Endpoint<D>) -> String {
    let (at, instance) = (endpoint.device().local_addr(), endpoint.instance());
    format!("IP {} UDP port {} instance {instance:#018x}", at.ip(), at.port())
}

fn endpoint_config(settings: &Settings) -> EndpointConfig {
    let (plan, ours) = (&settings.plan, &settings.ours);
    let mut classes = BTreeMap::new();
    for size in plan.sizes() {
        let class = (size as usize).next_power_of_two().max(CLASS_BYTES_MIN);
        let count = classes.entry(class).or_insert(0);
        *count = (row_depth(plan, size) + SPARE_PAYLOADS).max(*count);
    }
    let pools: Vec<(usize, usize)> =
        classes.into_iter().map(|(class, count)| (class, count as usize)).collect();
    // Who does not insist on RC gets it where the device has nothing else.
    let carrier = match plan.connection {
        Connection::Rc => CarrierChoice::Rc,
        _ => CarrierChoice::Auto,
    };
    // A server answers with the class of its client.
    let config = EndpointConfig::new().class(ours.class).app_protocol(PROTOCOL);
    let config = match settings.tclass {
        Some(tclass) => {
            Class::ALL.into_iter().fold(config, |all, of| all.dscp(of, dscp_of(tclass)))
        }
        None => config,
    };
    let config = plan.mtu.into_iter().fold(config, EndpointConfig::mtu_max);
    let config = settings.qp_timeout.iter().fold(config, |all, &power| all.rc_timeout(power));
    let config = plan.paths.map(usize::from).into_iter().fold(config, EndpointConfig::paths);
    let config = ours.fallback.into_iter().fold(config, EndpointConfig::fallback);
    config
        .carrier(carrier)
        .links_max(1)
        .chunk_bytes_max(ours.chunk_bytes)
        .quota_chunks(settings.rx_depth)
        .credit_total(settings.rx_depth * plan.qps)
        .send_pools(&pools)
        .controller(ours.window.unwrap_or(ours.cc))
        .payload_crc(!ours.no_payload_crc)
        .icrc(settings.device.icrc)
}

/// Drives the endpoint until its link and all channels are there. The client opens them.
fn open_channels<D: Device<Memory = Region>>(
    endpoint: &mut Endpoint<D>,
    settings: &Settings,
) -> Result<(LinkId, Vec<ChannelId>), RunError> {
    let (wanted, opens) = (settings.plan.qps as usize, settings.is_client());
    let mut channels = Vec::new();
    let link = drive(endpoint, |endpoint, event| match *event {
        Event::Connected { link, .. } if opens => {
            for _ in 0..wanted {
                endpoint.open_channel(link, settings.ours.ordered)?;
            }
            Ok(None)
        }
        Event::ChannelOpened { link, channel, .. } => {
            channels.push(channel);
            Ok(Some(link).filter(|_| channels.len() == wanted))
        }
        Event::ChannelClosed { reason, .. } => Err(ChannelError::Closed(reason).into()),
        _ => Ok(None),
    })?;
    Ok((link, channels))
}

/// Drives the endpoint until `on_event` has found what it looks for.
fn drive<D: Device<Memory = Region>, T>(
    endpoint: &mut Endpoint<D>,
    mut on_event: impl FnMut(&mut Endpoint<D>, &Event) -> Result<Option<T>, RunError>,
) -> Result<T, RunError> {
    let start = Instant::now();
    loop {
        let mut outcome = Ok(None);
        let busy = endpoint.turn(|endpoint, event| {
            let found = match event {
                Event::ConnectFailed { error, .. } => Err(error.into()),
                Event::LinkDown { reason, .. } => {
                    let status = endpoint.endpoint_stats().last_error;
                    Err(RunError::LinkDown { reason, status })
                }
                event => on_event(endpoint, &event),
            };
            if !matches!(found, Ok(None)) && matches!(outcome, Ok(None)) {
                outcome = found;
            }
        });
        if let Some(found) = outcome? {
            return Ok(found);
        }
        if start.elapsed() > PEER_TIMEOUT {
            return Err(RunError::PeerSilent(PEER_TIMEOUT));
        }
        if !busy {
            endpoint.wait(SETUP_WAIT);
        }
    }
}

/// Kernel TCP.
pub(crate) fn tcp(settings: &Settings, control: &mut Control) -> Result<Connected<Tcp>, RunError> {
    let (plan, (ip, _)) = (&settings.plan, control.addrs()?);
    let socket = |source| RunError::Socket { what: "connecting TCP", source };
    let mut streams = Vec::new();
    if settings.is_client() {
        let addr = listening(control)?;
        for _ in 0..plan.qps {
            streams.push(TcpStream::connect(addr).map_err(socket)?);
        }
    } else {
        let listener = TcpListener::bind((ip, 0)).map_err(socket)?;
        listener.set_nonblocking(true).map_err(socket)?;
        control.send(&Note::Listening { addr: listener.local_addr().map_err(socket)? })?;
        let start = Instant::now();
        while streams.len() < plan.qps as usize {
            match uninterrupted(|| listener.accept()) {
                Ok((stream, _)) => streams.push(stream),
                Err(error) if is_pause(&error) => {
                    if start.elapsed() > PEER_TIMEOUT {
                        return Err(RunError::PeerSilent(PEER_TIMEOUT));
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(source) => return Err(socket(source)),
            }
        }
    }
    let port = match streams.first().map(TcpStream::local_addr) {
        Some(addr) => addr.map_err(socket)?.port(),
        None => 0,
    };
    let local = format!("IP {ip} TCP port {port}");
    let remote = exchange_addresses(control, &local)?;
    let blocking = !plan.tool.is_latency() && plan.qps == 1 && !plan.bidirectional;
    let carrier = Tcp::new(streams, blocking, settings.ours.tcp_read_bytes)?;
    Ok(Connected { carrier, local, remote, mtu: None })
}

fn listening(control: &mut Control) -> Result<SocketAddr, RunError> {
    control.expect("Listening", |note| match note {
        Note::Listening { addr } => Some(*addr),
        _ => None,
    })
}

fn exchange_addresses(control: &mut Control, local: &str) -> Result<String, RunError> {
    control.send(&Note::Address { text: local.to_owned() })?;
    control.expect("Address", |note| match note {
        Note::Address { text } => Some(text.clone()),
        _ => None,
    })
}
