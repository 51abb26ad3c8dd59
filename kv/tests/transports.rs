//! Clients over each transport: what they are answered, and that it is done once.

mod common;

use common::clients::{IMPATIENT, SOON, assert_linear, histories, use_all};
use common::lossy::Lossy;
use common::seeds;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use towpath_clock::Clock;
use towpath_kv::client::{
    ChannelTransport, Client, ClientConfig, SharedLink, SharedTransport, TcpTransport, Transport,
    TransportError, Waiting,
};
use towpath_kv::limits::VALUE_BYTES_MAX;
use towpath_kv::serve::{
    Counters, Dialogue, Front, LinkServer, RequestDialogue, Server, ServerConfig,
};
use towpath_kv::wire::{Failure, Reply};
use towpath_kv::{
    Evict, SHARED_VALUE_BYTES_MAX, Service, Table, client_config, server_config, shared_config,
};
use towpath_transport::{
    CarrierChoice, Endpoint, EndpointConfig, EndpointHandle, Placing, UdpConfig, Workers,
    roce_udp_group,
};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn service() -> Service {
    Service::new(Arc::new(Table::new(1 << 30, Evict::Never)))
}

/// A server over kernel TCP.
fn serve_tcp(service: &Service, addr: SocketAddr) -> (Server, SocketAddr) {
    serve_tcp_by(service, addr, ServerConfig { workers: 2, ..ServerConfig::default() })
}

fn serve_tcp_by(service: &Service, addr: SocketAddr, config: ServerConfig) -> (Server, SocketAddr) {
    let listener = TcpListener::bind(addr).expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let service = service.clone();
    let make = move || Box::new(RequestDialogue::new(service.clone())) as Box<dyn Dialogue>;
    let front = Front { listener, dialogue: Box::new(make), turned_away: b"" };
    let counters = Arc::new(Counters::new(1_000));
    (Server::start(vec![front], config, counters, &Clock::start()).expect("it starts"), addr)
}

/// A server over Towpath channels, with two threads.
fn serve_links(service: &Service, carrier: CarrierChoice, polls: bool) -> (LinkServer, SocketAddr) {
    serve_links_as(server_config(64).carrier(carrier), service, polls, (LOCAL, 0).into())
}

fn serve_links_as(
    config: EndpointConfig,
    service: &Service,
    polls: bool,
    addr: SocketAddr,
) -> (LinkServer, SocketAddr) {
    const THREADS: usize = 2;
    let workers = Workers::new(THREADS, Placing::InTurn, 7);
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

fn tcp(addr: SocketAddr, waiting: Waiting) -> TcpTransport {
    TcpTransport::connect(addr, waiting, SOON).expect("it listens")
}

fn channel(addr: SocketAddr, carrier: CarrierChoice, waiting: Waiting) -> ChannelTransport {
    ChannelTransport::connect(LOCAL, addr, carrier, waiting, SOON).expect("it listens")
}

/// Clients that share a link.
const SHARING: u16 = 300;

/// A server for clients that share links.
fn serve_shared(service: &Service, addr: SocketAddr) -> (LinkServer, SocketAddr) {
    let config = shared_config(server_config(64), SHARING).carrier(CarrierChoice::Uc);
    serve_links_as(config, service, false, addr)
}

/// A link that clients share, driven by a thread of its own.
fn shared(addr: SocketAddr) -> Arc<SharedLink> {
    let config = shared_config(client_config(), SHARING).carrier(CarrierChoice::Uc);
    let endpoint = EndpointHandle::spawn_udp(UdpConfig::new(LOCAL), config).expect("memory");
    SharedLink::new(endpoint, addr)
}

#[test]
fn every_call_is_answered_over_tcp_asleep_or_polling() {
    let (_server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
    for waiting in [Waiting::Blocking, Waiting::Polling] {
        use_all(tcp(addr, waiting), VALUE_BYTES_MAX);
    }
}

/// Threads that serve one connection each.
fn threads_alone() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process");
    let names = tasks.filter_map(|task| std::fs::read(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(b"kv-own")).count()
}

#[test]
fn each_client_has_a_thread_of_its_own_which_ends_with_it() {
    let config = ServerConfig { worker_per_client: true, ..ServerConfig::default() };
    let (server, addr) = serve_tcp_by(&service(), (LOCAL, 0).into(), config);
    let mut clients: Vec<_> = (0..20)
        .map(|_| Client::new(tcp(addr, Waiting::Blocking), ClientConfig::default()))
        .collect();
    for (client, sum) in clients.iter_mut().zip(1..) {
        assert_eq!(client.incr(b"n", 1).expect("in time"), sum);
    }
    assert_eq!(threads_alone(), 20);
    let until = |count| {
        let begin = Instant::now();
        while threads_alone() != count {
            assert!(begin.elapsed() < SOON, "{} are there", threads_alone());
            thread::sleep(Duration::from_millis(1));
        }
    };
    clients.truncate(5);
    until(5);
    assert_eq!(server.counters().counted().connected, 5);
    assert_eq!(clients[0].incr(b"n", 1).expect("in time"), 21);
    server.stop().expect("no thread failed");
    until(0);
}

#[test]
fn every_call_is_answered_over_channels_on_each_carrier_asleep_or_polling() {
    for carrier in [CarrierChoice::Uc, CarrierChoice::Rc, CarrierChoice::Tcp] {
        for (polls, waiting) in [(false, Waiting::Blocking), (true, Waiting::Polling)] {
            let (server, addr) = serve_links(&service(), carrier, polls);
            use_all(channel(addr, carrier, waiting), VALUE_BYTES_MAX);
            server.stop().expect("no thread failed");
        }
    }
}

#[test]
fn every_call_is_answered_over_a_link_that_clients_share() {
    let (_server, addr) = serve_shared(&service(), (LOCAL, 0).into());
    for waiting in [Waiting::Blocking, Waiting::Polling] {
        let link = shared(addr);
        let open = || SharedTransport::open(&link, waiting);
        let _others: Vec<_> = (1..SHARING).map(|_| open().expect("room")).collect();
        let last = open().expect("room");
        let error = open().expect_err("there is no room for one more");
        assert!(matches!(error, TransportError::Connect(_)), "{error}");
        use_all(last, SHARED_VALUE_BYTES_MAX);
    }
}

#[test]
fn clients_that_share_a_link_find_a_server_that_was_away() {
    let service = service();
    let (server, addr) = serve_shared(&service, (LOCAL, 0).into());
    let link = shared(addr);
    let open = || SharedTransport::open(&link, Waiting::Blocking).expect("it listens");
    let mut clients = [(); 3].map(|()| Client::new(open(), IMPATIENT));
    for client in &mut clients {
        client.incr(b"n", 1).expect("in time");
    }
    server.stop().expect("no thread failed");
    let (_server, _) = serve_shared(&service, addr);
    for (client, sum) in clients.iter_mut().zip(4..) {
        assert_eq!(client.incr(b"n", 1).expect("in time"), sum);
        assert!(client.stats().renewed > 0);
    }
}

#[test]
fn what_is_repeated_over_transports_that_lose_it_is_done_once() {
    fn count(transport: impl Transport, seed: u64) -> u64 {
        const TIMES: i64 = 100;
        let mut client = Client::new(Lossy::new(transport, 0.1, seed), IMPATIENT);
        for sum in 1..=TIMES {
            assert_eq!(client.incr(b"n", 1).expect("in time"), sum);
        }
        let stats = client.stats();
        assert!(stats.repeated > 0, "nothing was lost: {stats:?}");
        stats.renewed
    }
    let mut renewed = [0, 0];
    for seed in seeds(3) {
        let (_server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
        renewed[0] += count(tcp(addr, Waiting::Blocking), seed);
        let (_server, addr) = serve_links(&service(), CarrierChoice::Uc, false);
        renewed[1] += count(channel(addr, CarrierChoice::Uc, Waiting::Blocking), seed);
    }
    assert!(!renewed.contains(&0), "no connection was lost");
}

#[test]
fn a_client_finds_a_server_that_was_away() {
    let service = service();
    let (server, addr) = serve_tcp(&service, (LOCAL, 0).into());
    let mut client = Client::new(tcp(addr, Waiting::Blocking), IMPATIENT);
    assert_eq!(client.incr(b"n", 1).expect("in time"), 1);
    server.stop().expect("no thread failed");
    let back = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        serve_tcp(&service, addr)
    });
    assert_eq!(client.incr(b"n", 1).expect("in time"), 2);
    assert!(client.stats().renewed > 0);
    drop(back.join().expect("no panic"));
}

#[test]
fn eight_clients_with_losses_see_one_order_of_what_happened_to_each_key() {
    for seed in seeds(2) {
        let (_server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
        assert_linear(histories(|_| tcp(addr, Waiting::Blocking), (0.02, seed)), "TCP");
        let (_server, addr) = serve_links(&service(), CarrierChoice::Uc, false);
        let connect = |_| channel(addr, CarrierChoice::Uc, Waiting::Blocking);
        assert_linear(histories(connect, (0.02, seed)), "UC");
        let (_server, addr) = serve_shared(&service(), (LOCAL, 0).into());
        let link = shared(addr);
        let open = |_| SharedTransport::open(&link, Waiting::Blocking).expect("it listens");
        assert_linear(histories(open, (0.02, seed)), "a shared link");
    }
}

#[test]
fn what_is_no_request_is_told_and_ends_the_connection() {
    let (server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a socket");
    stream.write_all(&[1, 77].into_iter().chain([0; 30]).collect::<Vec<_>>()).expect("it reads");
    let mut told = Vec::new();
    stream.read_to_end(&mut told).expect("it ends");
    let (reply, len) = Reply::parse(&told).expect("a reply");
    assert_eq!((reply.answer, len), (Err(Failure::UnknownMethod), told.len()));
    assert_eq!(server.counters().counted().malformed, 1);
}
