//! Clients over each transport: what they are answered, and that it is done once.

mod common;

use common::clients::{IMPATIENT, SOON, assert_linear, histories, use_all};
use common::lossy::Lossy;
use common::seeds;
use common::serving::{
    LOCAL, SHARING, channel, serve_links, serve_shared, serve_tcp, serve_tcp_by, service, shared,
    tcp,
};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};
use towpath_kv::SHARED_VALUE_BYTES_MAX;
use towpath_kv::client::{
    Client, ClientConfig, SharedTransport, Transport, TransportError, Waiting,
};
use towpath_kv::limits::VALUE_BYTES_MAX;
use towpath_kv::serve::ServerConfig;
use towpath_kv::wire::{Failure, Reply};
use towpath_transport::CarrierChoice;

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
