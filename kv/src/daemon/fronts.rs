//! Where the program listens, and what is said there.

use super::args::Args;
use super::run::DaemonError;
use crate::channel::{server_config, shared_config};
use crate::execute::Service;
use crate::raw::{DeviceError, RawServer};
use crate::resp::{RespDialogue, TOO_MANY_CONNECTIONS};
use crate::serve::{Counters, Dialogue, Front, LinkServer, RequestDialogue};
use crate::store::Store;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use towpath_clock::Clock;
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_secure::front::Front as Tls;
use towpath_transport::{
    Device, DeviceChoice, Endpoint, EngineOptions, Fallback, Placing, Region, SharedDevice,
    UdpConfig, VerbsDevice, Workers, roce_udp_group,
};

/// Links of one thread: each takes memory for its paths and receives.
const LINKS_MAX: usize = 256;

/// A front, and where it listens.
type Placed<T> = Result<(T, String), DaemonError>;

fn listen(flag: &'static str, address: SocketAddr) -> Result<(TcpListener, String), DaemonError> {
    let listen =
        |error: std::io::Error| DaemonError::Listen { flag, address, why: error.to_string() };
    let listener = TcpListener::bind(address).map_err(listen)?;
    let at = listener.local_addr()?.to_string();
    Ok((listener, at))
}

/// For clients that speak RESP2 or RESP3.
pub(super) fn resp(
    address: SocketAddr,
    tls: Option<Tls>,
    store: &Arc<dyn Store>,
    counters: &Arc<Counters>,
) -> Placed<Front> {
    let (listener, at) = listen("resp", address)?;
    let (store, counters) = (Arc::clone(store), Arc::clone(counters));
    let dialogue = move || {
        Box::new(RespDialogue::new(Arc::clone(&store), Arc::clone(&counters))) as Box<dyn Dialogue>
    };
    let dialogue = Box::new(dialogue);
    // It would be no TLS.
    let turned_away = if tls.is_some() { b"" } else { TOO_MANY_CONNECTIONS };
    Ok((Front { listener, dialogue, turned_away, tls }, at))
}

/// For clients that speak the store's own form over TCP.
pub(super) fn requests(address: SocketAddr, service: &Service) -> Placed<Front> {
    let (listener, at) = listen("requests", address)?;
    let service = service.clone();
    let dialogue = move || Box::new(RequestDialogue::new(service.clone())) as Box<dyn Dialogue>;
    let dialogue = Box::new(dialogue);
    Ok((Front { listener, dialogue, turned_away: b"", tls: None }, at))
}

/// For clients over Towpath links.
pub(super) fn links(
    address: SocketAddr,
    args: &Args,
    service: &Service,
    counters: &Arc<Counters>,
    clock: &Clock,
) -> Placed<LinkServer> {
    let own = server_config(LINKS_MAX);
    let config = match args.links_shared {
        0 => own,
        clients => shared_config(own, clients),
    };
    let config = config.carrier(args.carrier.into());
    // The default gives way where the device's queues would hold fewer clients.
    let config = match args.fallback {
        Fallback::RcThenTcp => config,
        fewer => config.fallback(fewer),
    };
    // Another for each life of the program.
    let seed = RandomState::new().hash_one(0u64);
    let workers = Workers::new(args.worker_count(), Placing::LeastLinks, seed);
    let devices = roce_udp_group(UdpConfig::new(address.ip()), &config, args.worker_count())?;
    let of_worker = |number| config.clone().of_worker(&workers, number);
    let shared = (service, counters, clock);
    if args.publish_mib == 0 {
        let mut endpoints = Vec::new();
        for (number, device) in devices.into_iter().enumerate() {
            endpoints.push(Endpoint::new(device, of_worker(number))?);
        }
        return serve_links(address, endpoints, shared, args.poll);
    }
    // Memory is read while the threads of the endpoints sleep.
    let mut endpoints = Vec::new();
    for (number, device) in devices.into_iter().enumerate() {
        let device = SharedDevice::spawn(device, EngineOptions::new())?;
        endpoints.push(Endpoint::new(device, of_worker(number))?);
    }
    serve_links(address, endpoints, shared, args.poll)
}

fn serve_links<D: Device<Memory = Region> + Send + 'static>(
    address: SocketAddr,
    mut endpoints: Vec<Endpoint<D>>,
    (service, counters, clock): (&Service, &Arc<Counters>, &Clock),
    polls: bool,
) -> Placed<LinkServer> {
    let at = endpoints[0].listen(address).map_err(|error| DaemonError::Listen {
        flag: "links",
        address,
        why: error.to_string(),
    })?;
    let server = LinkServer::start(endpoints, service, counters, clock, polls)?;
    Ok((server, at.to_string()))
}

/// For clients over raw queue pairs.
pub(super) fn raw(
    address: SocketAddr,
    args: &Args,
    shared: (&Service, &Arc<Counters>, &Clock),
) -> Placed<RawServer> {
    let (listener, at) = listen("raw", address)?;
    let config = args.raw_config();
    let choice = DeviceChoice { name: args.raw_device.clone(), ..DeviceChoice::default() };
    let server = match choice.target() {
        Some(target) => {
            let make = move || Ok(VerbsDevice::open(&target)?);
            RawServer::start(listener, Box::new(make), config, shared)?
        }
        None => {
            let (ip, mut begun) = (address.ip(), 0);
            let mut make = move || -> Result<_, DeviceError> {
                begun += 1;
                let link = UdpLink::bind(UdpConfig::new(ip))?;
                // Other numbers for each device, and for each life of the program.
                let seed = RandomState::new().hash_one(begun);
                Ok(RoceDevice::new(link, RoceConfig::default().seed(seed)))
            };
            match args.publish_mib {
                0 => RawServer::start(listener, Box::new(make), config, shared)?,
                // Memory is read while the threads sleep.
                _ => {
                    let make = move || Ok(SharedDevice::spawn(make()?, EngineOptions::new())?);
                    RawServer::start(listener, Box::new(make), config, shared)?
                }
            }
        }
    };
    Ok((server, at))
}
