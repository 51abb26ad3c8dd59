//! Several workers on one port at both ends: every message arrives once, at the worker that its
//! link was placed with.

mod common;

use common::{LOOPBACK, UdpEndpoint, any_port, pattern};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use towpath_base::{Nanos, Prng};
use towpath_device_roce::udp::Steering;
use towpath_handle::{EndpointHandle, Incoming, LinkHandle};
use towpath_proto::Outcome;
use towpath_transport::{
    ChannelId, Class, Endpoint, EndpointConfig, Event, LinkId, Placing, SendOptions, UdpConfig,
    Workers, roce_udp_group,
};

const V4: IpAddr = IpAddr::V4(LOOPBACK);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Long enough for a loaded machine; nothing here waits for it to pass.
const LONG: Duration = Duration::from_secs(60);

/// Turns without success after which a test fails: no clock is asked.
const TURNS_MAX: usize = 300_000;

/// Messages on each channel; each link has an ordered one and an unordered one.
const MESSAGES: u64 = 40;

/// Send buffers, each for any message: one worker may have all of a trip's at a time.
const BUFFERS: (usize, usize) = (16 << 10, 2 * 8 * MESSAGES as usize);

fn config(seed: u64) -> EndpointConfig {
    EndpointConfig::new()
        .links_max(16)
        .receives_ready(64)
        .send_pools(&[BUFFERS])
        .connect_timeout(LONG)
        .tune_links(|link| link.peer_timeout(LONG.into()))
        .seed(seed)
}

/// What a message says: whose it is, and bytes that follow from that.
fn message_of(link: u64, ordered: bool, number: u64) -> Vec<u8> {
    let name = link << 32 | u64::from(ordered) << 31 | number;
    let len = Prng::new(name).between(1, 9_000) as usize;
    [&name.to_le_bytes()[..], &pattern(len, name)].concat()
}

fn name_of(bytes: &[u8]) -> (u64, bool, u64) {
    let name = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    (name >> 32, name >> 31 & 1 == 1, name & 0x7fff_ffff)
}

/// Endpoints of several workers, all driven by the test.
struct Side {
    workers: Workers,
    endpoints: Vec<UdpEndpoint>,
    /// How often each message came, by its name.
    came: HashMap<(u64, bool, u64), u32>,
    /// The last message of each ordered channel.
    last: HashMap<u64, u64>,
    sent: u64,
    accepted: Vec<Vec<LinkId>>,
    /// The number of a link that this side connected: what its messages are named by.
    names: HashMap<(usize, LinkId), u64>,
}

impl Side {
    fn new(udp: UdpConfig, count: usize, placing: Placing, seed: u64) -> Self {
        let config = config(seed);
        let workers = Workers::new(count, placing, seed);
        let devices = roce_udp_group(udp, &config, count).expect("loopback UDP");
        let endpoint = |(index, device)| {
            Endpoint::new(device, config.clone().of_worker(&workers, index)).expect("room")
        };
        Self {
            endpoints: devices.into_iter().enumerate().map(endpoint).collect(),
            workers,
            came: HashMap::new(),
            last: HashMap::new(),
            sent: 0,
            accepted: vec![Vec::new(); count],
            names: HashMap::new(),
        }
    }

    fn turn(&mut self) -> bool {
        let mut busy = false;
        for index in 0..self.endpoints.len() {
            let mut told = Vec::new();
            busy |= self.endpoints[index].turn(|_, event| told.push(event));
            for event in told {
                self.on_event(index, event);
            }
            self.endpoints[index].flush();
        }
        busy
    }

    fn on_event(&mut self, index: usize, event: Event) {
        let endpoint = &mut self.endpoints[index];
        match event {
            Event::Accepted { link, .. } => self.accepted[index].push(link),
            Event::Connected { link, .. } => {
                for ordered in [true, false] {
                    endpoint.open_channel(link, ordered).expect("a fresh link has room");
                }
            }
            Event::ChannelOpened { link, channel, ordered, by_peer: false } => {
                let name = self.names.len() as u64;
                let name = *self.names.entry((index, link)).or_insert(name);
                for number in 0..MESSAGES {
                    let bytes = message_of(name, ordered, number);
                    self.send(index, link, channel, &bytes);
                }
            }
            Event::Message(message) => {
                let bytes = message.to_vec();
                let (link, channel) = (message.link(), message.channel());
                endpoint.release(message);
                let (name, ordered, number) = name_of(&bytes);
                assert!(bytes == message_of(name, ordered, number), "{name} {number}");
                *self.came.entry((name, ordered, number)).or_default() += 1;
                if ordered {
                    let before = self.last.insert(name, number);
                    assert_eq!(before.map_or(0, |before| before + 1), number, "in order");
                }
                if !self.names.contains_key(&(index, link)) {
                    self.send(index, link, channel, &bytes);
                }
            }
            Event::Sent { outcome, .. } => {
                assert_eq!(outcome, Outcome::Delivered);
                self.sent += 1;
            }
            Event::ConnectFailed { error, .. } => panic!("{error}"),
            Event::LinkDown { reason, .. } => panic!("{reason:?}"),
            _ => {}
        }
    }

    fn send(&mut self, index: usize, link: LinkId, channel: ChannelId, bytes: &[u8]) {
        let endpoint = &mut self.endpoints[index];
        let buf = endpoint.copy(bytes).expect("a free buffer");
        endpoint.send(link, channel, buf, SendOptions::new()).expect("room");
    }

    fn links(&self) -> Vec<usize> {
        self.workers.links().collect()
    }

    fn handed_over(&self) -> u64 {
        let counters = self.endpoints.iter().map(|e| e.device().link().first().udp_counters());
        counters.map(|counters| counters.handed_over + counters.handed_over_lost).sum()
    }
}

fn until(sides: &mut [&mut Side], mut done: impl FnMut(&[&mut Side]) -> bool) {
    for _ in 0..TURNS_MAX {
        let mut busy = false;
        for side in sides.iter_mut() {
            busy |= side.turn();
        }
        if done(sides) {
            return;
        }
        if !busy {
            sides[0].endpoints[0].wait(Nanos::from_micros(100));
        }
    }
    let missing: Vec<_> = sides.iter().map(|side| (side.came.len(), side.sent)).collect();
    panic!("not done: {missing:?}");
}

/// Connects each of the clients' workers `each` times and sends messages there and back; returns
/// how many packets were handed over.
fn trip(ip: IpAddr, servers: usize, clients: usize, each: usize, kernel_steering: bool) -> u64 {
    let what = format!("{ip}, {servers} servers, {clients} clients, steering {kernel_steering}");
    let udp = || UdpConfig::new(ip).kernel_steering(kernel_steering).source_ports(2);
    let mut server = Side::new(udp(), servers, Placing::LeastLinks, 11);
    let mut client = Side::new(udp(), clients, Placing::LeastLinks, 12);
    let addr = server.endpoints[0].listen(SocketAddr::new(ip, 0)).expect("a free port");
    for endpoint in &mut client.endpoints {
        for _ in 0..each {
            endpoint.connect(addr).expect("room for a connection");
        }
    }
    let links = clients * each;
    let messages = links as u64 * 2 * MESSAGES;
    until(&mut [&mut server, &mut client], |sides| sides.iter().all(|side| side.sent == messages));
    for side in [&server, &client] {
        assert_eq!(side.came.len() as u64, messages, "{what}");
        assert!(side.came.values().all(|&times| times == 1), "{what}");
    }
    // Expect: the links are spread evenly, and each is with the worker that counts it.
    let even = (0..servers).map(|index| (links + servers - 1 - index) / servers);
    assert_eq!(server.links(), even.collect::<Vec<_>>(), "{what}");
    let placed: Vec<_> = server.accepted.iter().map(Vec::len).collect();
    assert_eq!(server.links(), placed, "{what}");
    assert_eq!(client.links(), vec![each; clients], "{what}");
    let instances = |side: &Side| {
        let mut all: Vec<_> = side.endpoints.iter().map(Endpoint::instance).collect();
        all.dedup();
        all.len()
    };
    assert_eq!((instances(&server), instances(&client)), (1, 1), "{what}");
    server.handed_over() + client.handed_over()
}

#[test]
fn every_message_arrives_once_and_every_packet_at_its_worker() {
    for (ip, servers) in [(V4, 1), (V4, 2), (V6, 3), (V4, 8)] {
        assert_eq!(trip(ip, servers, 2, 4, true), 0);
    }
    assert_eq!(trip(V4, 3, 3, 3, true), 0);
}

#[test]
fn every_message_arrives_once_where_the_kernel_does_not_steer() {
    for (ip, servers) in [(V4, 2), (V6, 3), (V4, 8)] {
        assert!(trip(ip, servers, 2, 4, false) > 0);
    }
}

#[test]
fn links_are_placed_as_the_caller_says_and_their_places_are_given_back() {
    let by_window = Placing::By(Arc::new(|hello, links| {
        assert_eq!(links.len(), 3);
        // Each client's HELLO says another limit; what is over is taken modulo three.
        (hello.chunk_bytes_max / 1024) as usize
    }));
    let next = AtomicUsize::new(0);
    let in_turn = Placing::By(Arc::new(move |_, _| next.fetch_add(1, Ordering::Relaxed)));
    for (placing, expected) in [(by_window, [1, 3, 1]), (in_turn, [2, 2, 1])] {
        let mut server = Side::new(UdpConfig::new(V4), 3, placing, 21);
        let addr = server.endpoints[1].listen(any_port()).expect("a free port");
        let mut clients: Vec<_> = [9, 10, 7, 13, 8]
            .into_iter()
            .map(|chunk_kib| {
                let config = config(u64::from(chunk_kib)).chunk_bytes_max(chunk_kib << 10);
                let mut endpoint = common::endpoint(config);
                endpoint.connect(addr).expect("room for a connection");
                endpoint
            })
            .collect();
        let turn = |server: &mut Side, clients: &mut Vec<UdpEndpoint>| {
            let mut busy = server.turn();
            for client in &mut *clients {
                busy |= client.turn(|_, _| {});
            }
            if !busy {
                clients[0].wait(Nanos::from_micros(100));
            }
        };
        let mut turns = 0;
        while server.accepted.iter().map(Vec::len).sum::<usize>() < 5 {
            turn(&mut server, &mut clients);
            turns += 1;
            assert!(turns < TURNS_MAX, "{:?}", server.accepted);
        }
        assert_eq!(server.links(), expected);
        for (endpoint, links) in server.endpoints.iter_mut().zip(&server.accepted) {
            links.iter().for_each(|&link| endpoint.close(link));
        }
        let mut turns = 0;
        while server.links() != [0, 0, 0] {
            let mut busy = false;
            for endpoint in server.endpoints.iter_mut().chain(&mut clients) {
                busy |= endpoint.turn(|_, _| {});
            }
            if !busy {
                clients[0].wait(Nanos::from_micros(100));
            }
            turns += 1;
            assert!(turns < TURNS_MAX, "{:?}", server.workers);
        }
    }
}

#[test]
fn each_class_has_a_worker_of_its_own() {
    let mut server = Side::new(UdpConfig::new(V4), 3, Placing::ByClass, 61);
    let mut client = Side::new(UdpConfig::new(V4), 1, Placing::LeastLinks, 62);
    let addr = server.endpoints[0].listen(any_port()).expect("a free port");
    for class in [Class::Copper, Class::Silver, Class::Gold, Class::Silver] {
        client.endpoints[0].connect_as(addr, class).expect("room for a connection");
    }
    until(&mut [&mut server, &mut client], |sides| {
        sides.iter().all(|side| side.sent == 4 * 2 * MESSAGES)
    });
    assert_eq!(server.links(), [1, 2, 1]);
    for (index, class) in Class::ALL.into_iter().enumerate() {
        for &link in &server.accepted[index] {
            let found = server.endpoints[index].class_of(link).map(|report| report.class);
            assert_eq!(found, Some(class));
        }
    }
}

#[test]
fn a_peer_for_a_worker_that_is_gone_is_taken_by_the_one_that_listens() {
    let to_second = Placing::By(Arc::new(|_, _| 1));
    let mut server = Side::new(UdpConfig::new(V4), 2, to_second, 31);
    let addr = server.endpoints[0].listen(any_port()).expect("a free port");
    drop(server.endpoints.pop());
    let mut client = Side::new(UdpConfig::new(V4), 1, Placing::LeastLinks, 32);
    client.endpoints[0].connect(addr).expect("room for a connection");
    until(&mut [&mut server, &mut client], |sides| {
        sides.iter().all(|side| side.sent == 2 * MESSAGES)
    });
    assert_eq!(server.links(), [1, 0]);
}

/// Answers everything on every channel of a link.
fn echo(link: &LinkHandle) {
    while let Ok(channel) = link.accept_channel(LONG) {
        std::thread::spawn(move || {
            while let Ok(Incoming::Message(message)) = channel.recv(LONG) {
                let reply = channel.copy(&message.to_vec()).expect("a free buffer");
                drop(message);
                drop(channel.send(reply, SendOptions::new()));
            }
        });
    }
}

/// Workers with a thread each, that are one to their peers.
struct Group {
    workers: Workers,
    handles: Vec<EndpointHandle>,
}

impl Group {
    fn spawn(udp: UdpConfig, count: usize, seed: u64) -> Self {
        let (workers, config) = (Workers::new(count, Placing::LeastLinks, seed), config(seed));
        let devices = roce_udp_group(udp, &config, count).expect("loopback UDP");
        let spawn = |(index, device)| {
            let config = config.clone().of_worker(&workers, index);
            EndpointHandle::spawn(move || Ok(device), config).expect("loopback UDP")
        };
        let handles = devices.into_iter().enumerate().map(spawn).collect();
        Self { workers, handles }
    }

    /// Connects the worker that has the fewest links.
    fn connect(&self, addr: SocketAddr) -> LinkHandle {
        self.handles[self.workers.least_loaded()].connect(addr).expect("it listens")
    }

    /// Serves each link of each worker.
    fn serve(&self) {
        for handle in self.handles.clone() {
            std::thread::spawn(move || {
                while let Ok(link) = handle.accept(LONG) {
                    std::thread::spawn(move || echo(&link));
                }
            });
        }
    }

    fn links(&self) -> Vec<usize> {
        self.workers.links().collect()
    }
}

/// Sends messages on a channel of each link from a thread of its own, and takes the answers.
fn ask(links: &[LinkHandle]) {
    std::thread::scope(|scope| {
        for (name, link) in links.iter().enumerate() {
            scope.spawn(move || {
                let channel = link.open_channel(true).expect("room for a channel");
                for number in 0..MESSAGES {
                    let bytes = message_of(name as u64, true, number);
                    let buf = channel.copy(&bytes).expect("a free buffer");
                    drop(channel.send(buf, SendOptions::new()));
                    match channel.recv(LONG) {
                        Ok(Incoming::Message(message)) => assert!(message.to_vec() == bytes),
                        other => panic!("an answer was due, not {other:?}"),
                    }
                }
            });
        }
    });
}

#[test]
fn groups_of_threads_serve_each_other() {
    for (ip, kernel_steering) in [(V4, true), (V6, true), (V4, false)] {
        let udp = || UdpConfig::new(ip).kernel_steering(kernel_steering);
        let (server, client) = (Group::spawn(udp(), 3, 41), Group::spawn(udp(), 2, 42));
        let addr = server.handles[0].listen(SocketAddr::new(ip, 0)).expect("a free port");
        let links: Vec<_> = (0..6).map(|_| client.connect(addr)).collect();
        server.serve();
        assert_eq!(server.links(), [2, 2, 2]);
        assert_eq!(client.links(), [3, 3]);
        ask(&links);
        drop(links);
        client.handles.into_iter().for_each(EndpointHandle::shutdown);
        server.handles.into_iter().for_each(EndpointHandle::shutdown);
    }
}

/// Set in the process that serves in [`two_processes_of_several_workers_each`].
const SERVE: &str = "TOWPATH_TEST_SERVE";

#[test]
fn two_processes_of_several_workers_each() {
    let spawn = |count, seed| Group::spawn(UdpConfig::new(V4), count, seed);
    if std::env::var_os(SERVE).is_some() {
        let group = spawn(3, 51);
        let addr = group.handles[0].listen(any_port()).expect("a free port");
        println!("\nlistening on {addr}");
        group.serve();
        // Until the other one has what it wanted, and closes our stdin.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "two_processes_of_several_workers_each", "--nocapture"])
        .env(SERVE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs once more");
    // It stays open until the end: the other process says how its test went.
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let addr: SocketAddr = said
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening on ")?.parse().ok())
        .expect("the server says where it is");
    let client = spawn(2, 52);
    let links: Vec<_> = (0..4).map(|_| client.connect(addr)).collect();
    ask(&links);
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"\n").expect("it reads");
    drop(stdin);
    let end = child.wait().expect("it ends");
    assert!(end.success(), "{:?}", said.map_while(Result::ok).collect::<Vec<_>>());
}

#[test]
fn a_group_says_who_brings_its_packets() {
    let config = config(1);
    let alone = roce_udp_group(UdpConfig::new(V4), &config, 1).expect("loopback UDP");
    assert_eq!(alone[0].link().first().steering(), Steering::Alone);
    let two = roce_udp_group(UdpConfig::new(V4).kernel_steering(false), &config, 2);
    let steering = two.expect("loopback UDP")[1].link().first().steering();
    assert_eq!(steering, Steering::HandedOver { refused: None });
}
