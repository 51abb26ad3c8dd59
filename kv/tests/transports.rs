//! Clients over each transport: what they are answered, and that it is done once.

mod common;

use common::linear::{Deed, Op, check};
use common::lossy::Lossy;
use common::seeds;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use towpath_base::Prng;
use towpath_clock::Clock;
use towpath_kv::client::{
    ChannelTransport, Client, ClientConfig, ClientError, TcpTransport, Transport, Waiting,
};
use towpath_kv::limits::VALUE_BYTES_MAX;
use towpath_kv::serve::{
    Counters, Dialogue, Front, LinkServer, RequestDialogue, Server, ServerConfig,
};
use towpath_kv::wire::{Failure, Listing, Reply};
use towpath_kv::{Evict, Service, Table, When, server_config};
use towpath_transport::{CarrierChoice, Endpoint, Placing, UdpConfig, Workers, roce_udp_group};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SOON: Duration = Duration::from_secs(60);

fn service() -> Service {
    Service::new(Arc::new(Table::new(1 << 30, Evict::Never)))
}

/// A server over kernel TCP.
fn serve_tcp(service: &Service, addr: SocketAddr) -> (Server, SocketAddr) {
    let listener = TcpListener::bind(addr).expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let service = service.clone();
    let make = move || Box::new(RequestDialogue::new(service.clone())) as Box<dyn Dialogue>;
    let front = Front { listener, dialogue: Box::new(make), turned_away: b"" };
    let config = ServerConfig { workers: 2, ..ServerConfig::default() };
    let counters = Arc::new(Counters::new(1_000));
    (Server::start(vec![front], config, counters, &Clock::start()).expect("it starts"), addr)
}

/// A server over Towpath channels, with two threads.
fn serve_links(service: &Service, carrier: CarrierChoice, polls: bool) -> (LinkServer, SocketAddr) {
    const THREADS: usize = 2;
    let config = server_config(64).carrier(carrier);
    let workers = Workers::new(THREADS, Placing::InTurn, 7);
    let devices = roce_udp_group(UdpConfig::new(LOCAL), &config, THREADS).expect("a free port");
    let endpoints = devices.into_iter().enumerate().map(|(number, device)| {
        Endpoint::new(device, config.clone().of_worker(&workers, number)).expect("memory")
    });
    let mut endpoints: Vec<_> = endpoints.collect();
    let addr = endpoints[0].listen((LOCAL, 0).into()).expect("a free port");
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

/// Each call, and what comes of it.
fn use_all(transport: impl Transport) {
    let shown = format!("{transport:?}");
    let mut client = Client::new(transport, ClientConfig::default());
    let mut run = || -> Result<(), ClientError> {
        client.ping()?;
        client.reset()?;
        assert_eq!(client.get(b"k")?, None);
        client.set(b"k", b"v")?;
        assert_eq!(client.get(b"k")?, Some(b"v".to_vec()));
        assert!(!client.set_if(b"k", b"w", When::Absent, 0)?);
        let long = vec![7; VALUE_BYTES_MAX];
        client.set(b"long", &long)?;
        assert_eq!(client.get(b"long")?.as_deref(), Some(&long[..]));
        assert!(client.del(b"long")? && !client.del(b"long")?);
        assert_eq!(client.incr(b"n", 5)?, 5);
        assert!(matches!(client.incr(b"k", 1), Err(ClientError::Refused(Failure::NotANumber))));
        let dumped = client.dump()?;
        let listing = Listing::parse(&dumped)?;
        assert_eq!((listing.keys, listing.entries().count()), (2, 2));
        let option = client.set_option(b"colour", b"red");
        assert!(matches!(option, Err(ClientError::Refused(Failure::BadOption))));
        Ok(())
    };
    run().unwrap_or_else(|error| panic!("{error} over {shown}"));
    assert_eq!(client.stats().repeated, 0, "{shown}");
    client.exit().expect("a farewell");
}

#[test]
fn every_call_is_answered_over_tcp_asleep_or_polling() {
    let (_server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
    for waiting in [Waiting::Blocking, Waiting::Polling] {
        use_all(tcp(addr, waiting));
    }
}

#[test]
fn every_call_is_answered_over_channels_on_each_carrier_asleep_or_polling() {
    for carrier in [CarrierChoice::Uc, CarrierChoice::Rc, CarrierChoice::Tcp] {
        for (polls, waiting) in [(false, Waiting::Blocking), (true, Waiting::Polling)] {
            let (server, addr) = serve_links(&service(), carrier, polls);
            use_all(channel(addr, carrier, waiting));
            server.stop().expect("no thread failed");
        }
    }
}

/// Repeats soon, since requests and replies are lost.
const IMPATIENT: ClientConfig =
    ClientConfig { repeat_after: Duration::from_millis(20), timeout: SOON };

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

/// A deed of a client, done for certain.
fn deed<T: Transport>(client: &mut Client<T>, key: &[u8], prng: &mut Prng, fresh: i64) -> Deed {
    let text = fresh.to_string();
    let number = |value: Vec<u8>| String::from_utf8(value).expect("text").parse().expect("number");
    let mut run = || -> Result<Deed, ClientError> {
        Ok(match prng.below(5) {
            0 => {
                client.set(key, text.as_bytes())?;
                Deed::Set(fresh)
            }
            1 => {
                let is_put = client.set_if(key, text.as_bytes(), When::Absent, 0)?;
                Deed::SetAbsent(fresh, is_put)
            }
            2 => Deed::Del(client.del(key)?),
            3 => Deed::Incr(client.incr(key, 1)?),
            _ => Deed::Get(client.get(key)?.map(number)),
        })
    };
    run().expect("in time")
}

/// Eight clients at a time; what each saw of each key.
fn histories<T: Transport + 'static>(
    connect: impl Fn(u64) -> T + Sync,
    (loss, seed): (f64, u64),
) -> BTreeMap<u64, Vec<Op>> {
    const OPS: u64 = 150;
    let clock = AtomicU64::new(0);
    let work = |number: u64| {
        let mut prng = Prng::new(seed << 8 | number);
        let lossy = Lossy::new(connect(number), loss, prng.next_u64());
        let mut client = Client::new(lossy, IMPATIENT);
        let ops = (0..OPS).map(|op| {
            let key = prng.below(3);
            let fresh = ((number * OPS + op + 1) * 1_000_000) as i64;
            let begin = clock.fetch_add(1, SeqCst);
            let deed = deed(&mut client, &key.to_le_bytes(), &mut prng, fresh);
            (key, Op { deed, begin, end: Some(clock.fetch_add(1, SeqCst)) })
        });
        ops.collect::<Vec<_>>()
    };
    let mut found: BTreeMap<u64, Vec<Op>> = BTreeMap::new();
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || work(n))).collect();
        for (key, op) in threads.into_iter().flat_map(|t| t.join().expect("no panic")) {
            found.entry(key).or_default().push(op);
        }
    });
    found
}

fn assert_linear(found: BTreeMap<u64, Vec<Op>>, shown: impl Debug) {
    for (key, history) in found {
        assert_eq!(check(history), Ok(()), "key {key} over {shown:?}");
    }
}

#[test]
fn eight_clients_with_losses_see_one_order_of_what_happened_to_each_key() {
    for seed in seeds(2) {
        let (_server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
        assert_linear(histories(|_| tcp(addr, Waiting::Blocking), (0.02, seed)), "TCP");
        let (_server, addr) = serve_links(&service(), CarrierChoice::Uc, false);
        let connect = |_| channel(addr, CarrierChoice::Uc, Waiting::Blocking);
        assert_linear(histories(connect, (0.02, seed)), "UC");
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
