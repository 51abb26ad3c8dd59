//! Servers of each kind, and connections to them.

use super::clients::SOON;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use towpath_clock::Clock;
use towpath_handle::EndpointHandle;
use towpath_kv::client::{ChannelTransport, SharedLink, TcpTransport, Waiting};
use towpath_kv::serve::{
    Counters, Dialogue, Front, LinkServer, RequestDialogue, Server, ServerConfig,
};
use towpath_kv::{Evict, Service, Table, client_config, server_config, shared_config};
use towpath_transport::{
    CarrierChoice, Endpoint, EndpointConfig, Placing, UdpConfig, Workers, roce_udp_group,
};

pub const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub fn service() -> Service {
    Service::new(Arc::new(Table::new(1 << 30, Evict::Never)))
}

/// A server over kernel TCP.
pub fn serve_tcp(service: &Service, addr: SocketAddr) -> (Server, SocketAddr) {
    serve_tcp_by(service, addr, ServerConfig { workers: 2, ..ServerConfig::default() })
}

pub fn serve_tcp_by(
    service: &Service,
    addr: SocketAddr,
    config: ServerConfig,
) -> (Server, SocketAddr) {
    let listener = TcpListener::bind(addr).expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let service = service.clone();
    let make = move || Box::new(RequestDialogue::new(service.clone())) as Box<dyn Dialogue>;
    let front = Front { listener, dialogue: Box::new(make), turned_away: b"", tls: None };
    let counters = Arc::new(Counters::new(1_000));
    (Server::start(vec![front], config, counters, &Clock::start()).expect("it starts"), addr)
}

/// A server over Towpath channels, with two threads.
pub fn serve_links(
    service: &Service,
    carrier: CarrierChoice,
    polls: bool,
) -> (LinkServer, SocketAddr) {
    serve_links_as(server_config(64).carrier(carrier), service, polls, (LOCAL, 0).into())
}

pub fn serve_links_as(
    config: EndpointConfig,
    service: &Service,
    polls: bool,
    addr: SocketAddr,
) -> (LinkServer, SocketAddr) {
    const THREADS: usize = 2;
    let next = AtomicUsize::new(0);
    let in_turn = Placing::By(Arc::new(move |_, _| next.fetch_add(1, Ordering::Relaxed)));
    let workers = Workers::new(THREADS, in_turn, 7);
    let devices = roce_udp_group(UdpConfig::new(LOCAL), &config, THREADS).expect("a free port");
    let endpoints = devices.into_iter().enumerate().map(|(number, device)| {
        Endpoint::new(device, config.clone().of_worker(&workers, number)).expect("memory")
    });
    let mut endpoints: Vec<_> = endpoints.collect();
    let addr = endpoints[0].listen(addr).expect("a free port");
    let counters = Arc::new(Counters::new(1_000));
    let server = LinkServer::start(endpoints, service, &counters, &Clock::start(), polls);
    (server.expect("threads"), addr)
}

pub fn tcp(addr: SocketAddr, waiting: Waiting) -> TcpTransport {
    TcpTransport::connect(addr, waiting, SOON).expect("it listens")
}

pub fn channel(addr: SocketAddr, carrier: CarrierChoice, waiting: Waiting) -> ChannelTransport {
    ChannelTransport::connect(LOCAL, addr, carrier, waiting, SOON).expect("it listens")
}

/// Clients that share a link.
pub const SHARING: u16 = 300;

/// A server for clients that share links.
pub fn serve_shared(service: &Service, addr: SocketAddr) -> (LinkServer, SocketAddr) {
    let config = shared_config(server_config(64), SHARING).carrier(CarrierChoice::Uc);
    serve_links_as(config, service, false, addr)
}

/// A link that clients share, driven by a thread of its own.
pub fn shared(addr: SocketAddr) -> Arc<SharedLink> {
    let config = shared_config(client_config(), SHARING).carrier(CarrierChoice::Uc);
    let endpoint = EndpointHandle::spawn_udp(UdpConfig::new(LOCAL), config).expect("memory");
    SharedLink::new(endpoint, addr)
}
