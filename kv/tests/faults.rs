//! Histories with faults, over each transport: packets that are lost, clients that are killed while
//! a request of theirs is under way, and a server that starts again with an empty store.

mod common;

use common::clients::{IMPATIENT, SOON, assert_linear};
use common::linear::{Deed, Op};
use common::lossy::Lossy;
use common::{keys_of_one_bucket, seeds};
use std::any::Any;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use towpath_base::{Prng, Time};
use towpath_clock::Clock;
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::{EngineOptions, RoceConfig, RoceDevice, SharedDevice};
use towpath_kv::client::{
    ChannelTransport, Client, ClientError, Granted, OneSided, RawClientConfig, RawTransport, Reads,
    TcpTransport, Transport, TransportError, Waiting,
};
use towpath_kv::published::Published;
use towpath_kv::raw::{RawConfig, RawKind, RawServer};
use towpath_kv::serve::{
    Counters, Dialogue, Front, LinkServer, RequestDialogue, Server, ServerConfig,
};
use towpath_kv::wire::{Ask, Failure, Request};
use towpath_kv::{Evict, Service, Table, client_config, server_config};
use towpath_sim::{FaultControl, FaultLink, FaultPlan};
use towpath_transport::{CarrierChoice, Endpoint, UdpConfig};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The share of packets that are lost; of requests and replies over TCP.
const LOSS: f64 = 0.01;

const KEYS: u64 = 3;
const CLIENTS: u64 = 6;
/// Operations of each client before the server starts again, and after that.
const OPS: u64 = 60;
/// Each client that is killed has a second request under way, to put a key that begins so: where
/// it is there, the server has carried that out.
const MARK: &[u8] = b"mark";
/// Clients that are killed, and the operations of each before.
const MORTALS: u64 = 6;

/// A transport, and whether GETs are READs where they can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Tcp,
    Channel { reads: bool },
    Raw(RawKind, bool),
}

/// TCP, where nothing can be read.
#[derive(Debug)]
struct Blind<T>(T);

impl<T: Transport> Transport for Blind<T> {
    fn send(&mut self, request: &[u8]) -> Result<(), TransportError> {
        self.0.send(request)
    }

    fn receive(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        self.0.receive(timeout, take)
    }

    fn renew(&mut self, timeout: Duration) -> Result<(), TransportError> {
        self.0.renew(timeout)
    }
}

impl<T: Transport> Reads for Blind<T> {
    fn granted(&mut self) -> Option<Granted> {
        None
    }

    fn read(&mut self, _: u64, _: &mut [u8], _: Duration) -> Result<bool, TransportError> {
        Ok(false)
    }
}

type Faulty = RoceDevice<FaultLink<UdpLink>>;

fn device(control: &FaultControl, seed: u64) -> Faulty {
    let link = UdpLink::bind(UdpConfig::new(LOCAL)).expect("a free port");
    let link = FaultLink::new(link, seed, control.clone());
    RoceDevice::new(link, RoceConfig::default().seed(seed))
}

fn published() -> Published {
    Published::new(1 << 20, 320).expect("memory")
}

/// A server, and what it serves.
type Serving = (Box<dyn Any + Send>, Service);

impl Way {
    /// A server with an empty store, and where it is.
    fn serve(self, addr: SocketAddr) -> (Serving, SocketAddr) {
        let published = Arc::new(published());
        let table = match self {
            Self::Channel { reads: true } | Self::Raw(_, true) => {
                Table::publishing(1 << 30, Evict::Never, published)
            }
            _ => Table::new(1 << 30, Evict::Never),
        };
        let service = Service::new(Arc::new(table));
        let (counters, clock) = (Arc::new(Counters::new(1_000)), Clock::start());
        let faults = FaultControl::new(FaultPlan::none().drop(LOSS));
        let serves = service.clone();
        let (server, addr): (Box<dyn Any + Send>, _) = match self {
            Self::Tcp => {
                let listener = TcpListener::bind(addr).expect("a free port");
                let addr = listener.local_addr().expect("bound");
                let make =
                    move || Box::new(RequestDialogue::new(service.clone())) as Box<dyn Dialogue>;
                let front =
                    Front { listener, dialogue: Box::new(make), turned_away: b"", tls: None };
                let config = ServerConfig { worker_per_client: true, ..ServerConfig::default() };
                let server = Server::start(vec![front], config, counters, &clock);
                (Box::new(server.expect("it starts")), addr)
            }
            Self::Channel { .. } => {
                let config = server_config(64).carrier(CarrierChoice::Uc);
                let device = SharedDevice::spawn(device(&faults, 1), EngineOptions::new());
                let mut endpoint =
                    Endpoint::new(device.expect("a thread"), config).expect("memory");
                let addr = endpoint.listen(addr).expect("a free port");
                let server = LinkServer::start(vec![endpoint], &service, &counters, &clock, false);
                (Box::new(server.expect("a thread")), addr)
            }
            Self::Raw(kind, _) => {
                let listener = TcpListener::bind(addr).expect("a free port");
                let addr = listener.local_addr().expect("bound");
                let mut prng = Prng::new(1);
                let make = move || {
                    let device = device(&faults, prng.next_u64());
                    Ok(SharedDevice::spawn(device, EngineOptions::new())?)
                };
                let all = (&service, &counters, &clock);
                let server = RawServer::start(listener, Box::new(make), RawConfig::new(kind), all);
                (Box::new(server.expect("it starts")), addr)
            }
        };
        ((server, serves), addr)
    }

    /// A connection; none while the server is away.
    fn connect(self, addr: SocketAddr, seed: u64) -> Option<Box<dyn Reads>> {
        let faults = FaultControl::new(FaultPlan::none().drop(LOSS));
        Some(match self {
            Self::Tcp => {
                let tcp = TcpTransport::connect(addr, Waiting::Blocking, SOON).ok()?;
                Box::new(Blind(Lossy::new(tcp, LOSS, seed)))
            }
            Self::Channel { .. } => {
                let config = client_config().carrier(CarrierChoice::Uc);
                let endpoint = Endpoint::new(device(&faults, seed), config).expect("memory");
                Box::new(ChannelTransport::on(endpoint, addr, Waiting::Blocking, SOON).ok()?)
            }
            Self::Raw(kind, _) => {
                let config = RawClientConfig::new(kind, Waiting::Blocking);
                Box::new(RawTransport::connect(device(&faults, seed), addr, config, SOON).ok()?)
            }
        })
    }

    /// The same, however long the server is away.
    fn client(self, addr: SocketAddr, seed: u64) -> OneSided<Box<dyn Reads>> {
        loop {
            if let Some(transport) = self.connect(addr, seed) {
                return OneSided::over(Client::new(transport, IMPATIENT));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What clients did to each key, by one clock.
struct World {
    way: Way,
    addr: SocketAddr,
    seed: u64,
    /// All of one bucket, where they are published.
    keys: Vec<u64>,
    clock: AtomicU64,
    /// The server has started again.
    is_again: AtomicBool,
    /// Connections that clients made anew.
    renewed: AtomicU64,
}

impl World {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    fn key(&self, prng: &mut Prng) -> u64 {
        self.keys[prng.below(KEYS) as usize]
    }

    fn fresh(number: u64, op: u64) -> i64 {
        // No two are alike, and their sums are not either.
        ((number << 20 | (op + 1)) * 1_000_000) as i64
    }

    fn op(
        &self,
        client: &mut OneSided<Box<dyn Reads>>,
        prng: &mut Prng,
        (number, op): (u64, u64),
    ) -> (u64, Op) {
        let (key, fresh) = (self.key(prng), Self::fresh(number, op));
        let (name, value) = (key.to_le_bytes(), fresh.to_string());
        let read = |value: Vec<u8>| {
            String::from_utf8(value).expect("text").parse::<i64>().expect("a number")
        };
        let begin = self.tick();
        let (told, unseen) = match prng.below(6) {
            0 => {
                let set = client.client().set(&name, value.as_bytes());
                (set.map(|()| Deed::Set(fresh)), Deed::Set(fresh))
            }
            1 => (client.client().del(&name).map(Deed::Del), Deed::DelUnseen),
            2 => (client.client().incr(&name, 1).map(Deed::Incr), Deed::IncrUnseen),
            _ => (Ok(Deed::Get(client.get(&name).expect("in time").map(read))), Deed::Lost),
        };
        let deed = match told {
            Ok(deed) => deed,
            // It came again, to a server that has started again: nobody knows whether it was done.
            Err(ClientError::Refused(Failure::Stale)) => {
                return (key, Op { deed: unseen, begin, end: None });
            }
            Err(error) => panic!("in time: {error}"),
        };
        (key, Op { deed, begin, end: Some(self.tick()) })
    }

    /// Works until it is done.
    fn live(&self, number: u64) -> Vec<(u64, Op)> {
        let mut prng = Prng::new(self.seed << 8 | number);
        let mut client = self.way.client(self.addr, prng.next_u64());
        let (mut ops, mut left) = (Vec::new(), OPS);
        while left > 0 {
            // Those before the server starts again do not count as those after.
            if ops.len() as u64 >= OPS && self.is_again.load(SeqCst) {
                left -= 1;
            }
            ops.push(self.op(&mut client, &mut prng, (number, ops.len() as u64)));
        }
        self.renewed.fetch_add(client.client().stats().renewed, SeqCst);
        ops
    }

    /// Works for a while, and is gone with a request under way.
    fn die(&self, number: u64) -> Vec<(u64, Op)> {
        let mut prng = Prng::new(self.seed << 8 | number);
        let mut client = self.way.client(self.addr, prng.next_u64());
        let ops = 3 + prng.below(10);
        let mut done: Vec<_> =
            (0..ops).map(|op| self.op(&mut client, &mut prng, (number, op))).collect();
        let (key, fresh) = (self.key(&mut prng), Self::fresh(number, ops));
        let (name, value) = (key.to_le_bytes(), fresh.to_string());
        let set = Ask::Set {
            key: &name,
            value: value.as_bytes(),
            when: towpath_kv::When::Always,
            expire_ms: 0,
        };
        let (ask, deed) = match prng.below(3) {
            0 => (set, Deed::Set(fresh)),
            1 => (Ask::Del { key: &name }, Deed::DelUnseen),
            _ => (Ask::Incr { key: &name, by: 1 }, Deed::IncrUnseen),
        };
        let mark = [MARK, &number.to_le_bytes()].concat();
        let (when, expire_ms) = (towpath_kv::When::Always, 0);
        let marking = Ask::Set { key: &mark, value: b"", when, expire_ms };
        let client_number = prng.next_u64() | 1;
        let begin = self.tick();
        for (sequence, ask) in [(1, Ask::Ping), (2, ask), (3, marking)] {
            let mut request = Vec::new();
            Request { client: client_number, sequence, ask }.emit(&mut request);
            // It may have been done, or may still be; or never.
            let _ = client.client().transport().send(&request);
        }
        drop(client);
        done.push((key, Op { deed, begin, end: None }));
        done
    }
}

/// How many were killed with a request under way that this server carried out.
fn carried_out(service: &Service) -> u64 {
    let mut count = 0;
    service.store().each(Time::ZERO, &mut |key, _| {
        count += u64::from(key.starts_with(MARK));
        true
    });
    count
}

/// What may have been done by the server before it was killed, to no one's knowledge: its client
/// asked again, and was answered by the server after it.
fn unseen(op: &Op, restart: &Op) -> Option<Op> {
    let is_across = op.begin < restart.end? && op.end? > restart.begin;
    let deed = match op.deed {
        Deed::Set(value) => Deed::Set(value),
        Deed::Incr(_) => Deed::IncrUnseen,
        Deed::Del(_) => Deed::DelUnseen,
        _ => return None,
    };
    is_across.then_some(Op { deed, begin: op.begin, end: None })
}

/// What was done to each key, and how many requests of those who were killed were carried out.
fn histories(way: Way, seed: u64) -> (BTreeMap<u64, Vec<Op>>, u64) {
    let (server, addr) = way.serve((LOCAL, 0).into());
    let world = &World {
        way,
        addr,
        seed,
        keys: keys_of_one_bucket(&published(), KEYS as usize),
        clock: AtomicU64::new(0),
        is_again: AtomicBool::new(false),
        renewed: AtomicU64::new(0),
    };
    let (mut all, mut carried) = (BTreeMap::<u64, Vec<Op>>::new(), 0);
    thread::scope(|scope| {
        let living = (0..CLIENTS).map(|n| scope.spawn(move || world.live(n)));
        let mortal = (CLIENTS..CLIENTS + MORTALS).map(|n| scope.spawn(move || world.die(n)));
        let threads: Vec<_> = living.chain(mortal).collect();
        let restart = scope.spawn(move || {
            // Each operation has two ticks.
            while world.clock.load(SeqCst) < CLIENTS * OPS {
                thread::sleep(Duration::from_millis(1));
            }
            let begin = world.tick();
            let (server, before) = server;
            drop(server);
            let (serving, _) = way.serve(addr);
            world.is_again.store(true, SeqCst);
            (serving, before, Op { deed: Deed::Lost, begin, end: Some(world.tick()) })
        });
        let ops: Vec<_> =
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        let ((_server, service), before, restart) = restart.join().expect("no panic");
        carried = carried_out(&before) + carried_out(&service);
        for (key, op) in ops {
            let history = all.entry(key).or_insert_with(|| vec![restart]);
            history.extend(unseen(&op, &restart));
            history.push(op);
        }
    });
    assert!(world.renewed.load(SeqCst) > 0, "nobody noticed anything");
    (all, carried)
}

fn check(way: Way) {
    let mut all = 0;
    for seed in seeds(1) {
        let (found, carried) = histories(way, seed);
        assert_linear(found, (way, seed));
        all += carried;
    }
    assert!(all > 0, "{way:?}: no request came of those who were killed");
}

#[test]
fn over_tcp_with_a_thread_for_each_client() {
    check(Way::Tcp);
}

#[test]
fn over_channels_on_uc_with_reads_and_without() {
    for reads in [false, true] {
        check(Way::Channel { reads });
    }
}

#[test]
fn over_raw_rc_with_reads_and_without() {
    for reads in [false, true] {
        check(Way::Raw(RawKind::Rc, reads));
    }
}

#[test]
fn over_raw_uc() {
    check(Way::Raw(RawKind::Uc, false));
}

#[test]
fn over_raw_ud() {
    check(Way::Raw(RawKind::Ud, false));
}
