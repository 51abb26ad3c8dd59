//! Clients over raw queue pairs: RC, UC and UD, with and without loss, and hostile ones.

mod common;

use common::clients::{IMPATIENT, SOON, assert_linear, histories, use_all};
use common::seeds;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use towpath_base::serial::Psn;
use towpath_base::{Prng, Time};
use towpath_clock::Clock;
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_kv::client::{
    Client, ClientConfig, ClientError, RawClientConfig, RawTransport, Waiting,
};
use towpath_kv::limits::{RAW_HALF_OPEN_MAX, VALUE_BYTES_MAX};
use towpath_kv::raw::{
    End, HELLO_BYTES, HelloError, MakeDevice, RawConfig, RawCounted, RawKind, RawServer, Refusal,
};
use towpath_kv::serve::Counters;
use towpath_kv::wire::Failure;
use towpath_kv::{Evict, Service, Table};
use towpath_sim::{FaultControl, FaultLink, FaultPlan};
use towpath_transport::{SharedMemory, UdpConfig};
use towpath_verbs::{
    Access, Connect, Device as _, Mtu, PdNum, QpInit, QpNum, QpType, RcAttr, SendOp, SendWr,
    SgList, Sge, UdAddress,
};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The NIC in userspace, behind a link that loses packets.
type Faulty = RoceDevice<FaultLink<UdpLink>>;

fn device(control: &FaultControl, seed: u64) -> Faulty {
    let link = UdpLink::bind(UdpConfig::new(LOCAL)).expect("a free port");
    let link = FaultLink::new(link, seed, control.clone());
    RoceDevice::new(link, RoceConfig::default().seed(seed))
}

fn make(control: &FaultControl, seed: u64) -> MakeDevice<Faulty> {
    let (control, mut prng) = (control.clone(), Prng::new(seed));
    Box::new(move || Ok(device(&control, prng.next_u64())))
}

struct Served {
    server: RawServer,
    counters: Arc<Counters>,
    service: Service,
    addr: SocketAddr,
    /// What becomes of packets, of the server and of clients.
    faults: FaultControl,
}

impl Served {
    fn on(addr: SocketAddr, config: RawConfig, clients_max: usize) -> Self {
        let listener = TcpListener::bind(addr).expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let service = Service::new(Arc::new(Table::new(1 << 30, Evict::Never)));
        let (counters, faults) =
            (Arc::new(Counters::new(clients_max)), FaultControl::new(FaultPlan::none()));
        let all = (&service, &counters, &Clock::start());
        let server = RawServer::start(listener, make(&faults, 1), config, all);
        Self { server: server.expect("it starts"), counters, service, addr, faults }
    }

    fn new(config: RawConfig) -> Self {
        Self::on((LOCAL, 0).into(), config, 1_000)
    }

    fn connect(&self, kind: RawKind, waiting: Waiting, seed: u64) -> RawTransport<Faulty> {
        let config = RawClientConfig::new(kind, waiting);
        let device = device(&self.faults, seed);
        RawTransport::connect(device, self.addr, config, SOON).expect("it listens")
    }

    fn raw(&self) -> RawCounted {
        self.server.counters().counted()
    }

    /// Waits until no client is there.
    fn until_nobody_is_there(&self) {
        until(|| self.counters.counted().connected == 0);
    }
}

/// Waits until that is so.
fn until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "it never came");
        thread::sleep(Duration::from_millis(1));
    }
}

fn waiting(polls: bool) -> Waiting {
    if polls { Waiting::Polling } else { Waiting::Blocking }
}

#[test]
fn every_call_is_answered_on_each_kind_asleep_or_polling() {
    for kind in RawKind::ALL {
        for polls in [false, true] {
            let value_bytes_max = VALUE_BYTES_MAX;
            let config = RawConfig { polls, value_bytes_max, ..RawConfig::new(kind) };
            let served = Served::new(config);
            let value_bytes = if kind == RawKind::Ud { 500 } else { VALUE_BYTES_MAX };
            use_all(served.connect(kind, waiting(polls), 2), value_bytes);
            served.until_nobody_is_there();
            served.server.stop().expect("no thread failed");
        }
    }
}

#[test]
fn what_does_not_fit_is_told_at_both_ends_and_the_client_goes_on() {
    for (kind, most) in [(RawKind::Rc, 4096), (RawKind::Uc, 4096), (RawKind::Ud, 0)] {
        let served = Served::new(RawConfig { value_bytes_max: 4096, ..RawConfig::new(kind) });
        let transport = served.connect(kind, Waiting::Blocking, 2);
        let max = transport.message_bytes_max().expect("it is connected");
        // 32 bytes are in front of a request, and a key of 512.
        assert!(if kind == RawKind::Ud { max <= 4096 } else { max == most + 544 }, "{max}");
        let mut client = Client::new(transport, ClientConfig::default());
        let longest = vec![7; max - 33];
        client.set(b"k", &longest).expect("it fits");
        assert_eq!(client.get(b"k").expect("it fits").as_deref(), Some(&longest[..]));
        let error = client.set(b"k", &vec![7; max - 32]).expect_err("it does not fit");
        let bytes = max + 1;
        let is_told =
            matches!(error, ClientError::TooLong { bytes: b, max: m } if (b, m) == (bytes, max));
        assert!(is_told, "{error}");
        // Another front takes what this one does not carry back.
        let put = towpath_kv::Put::ALWAYS;
        let long = vec![8; max + 1];
        served.service.store().set(b"l", &long, put, Time::ZERO).expect("room");
        let told = client.get(b"l");
        assert!(matches!(told, Err(ClientError::Refused(Failure::TooLong))), "{told:?}");
        client.ping().expect("it is there still");
        assert_eq!((client.stats().repeated, served.raw().too_long), (0, 1));
    }
}

#[test]
fn a_client_that_takes_short_messages_alone_is_served() {
    for kind in RawKind::ALL {
        let served = Served::new(RawConfig::new(kind));
        let config =
            RawClientConfig { value_bytes_max: 0, ..RawClientConfig::new(kind, Waiting::Blocking) };
        let device = device(&served.faults, 2);
        let made = RawTransport::connect(device, served.addr, config, SOON);
        let mut client = Client::new(made.expect("it listens"), ClientConfig::default());
        assert_eq!(client.incr(b"n", 1).expect("in time"), 1, "{kind:?}");
    }
}

#[test]
fn many_clients_are_served_by_shared_threads_and_by_one_each() {
    for kind in RawKind::ALL {
        for worker_per_client in [false, true] {
            let config = RawConfig { workers: 2, worker_per_client, ..RawConfig::new(kind) };
            let served = Served::new(config);
            thread::scope(|scope| {
                for number in 0..20 {
                    let transport = served.connect(kind, Waiting::Blocking, 10 + number);
                    scope.spawn(move || {
                        let mut client = Client::new(transport, ClientConfig::default());
                        for _ in 0..50 {
                            client.incr(b"n", 1).expect("in time");
                        }
                    });
                }
            });
            let mut client =
                Client::new(served.connect(kind, Waiting::Blocking, 9), ClientConfig::default());
            let sum = client.get(b"n").expect("in time");
            assert_eq!(sum.as_deref(), Some(&b"1000"[..]), "{kind:?} {worker_per_client}");
            drop(client);
            served.until_nobody_is_there();
            assert_eq!(served.raw().failed, 0);
            served.server.stop().expect("no thread failed");
        }
    }
}

#[test]
fn a_thread_that_ends_with_its_client_leaves_no_request_of_another_unanswered() {
    let config = RawConfig { worker_per_client: true, ..RawConfig::new(RawKind::Ud) };
    let served = Served::new(config);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let steady: Vec<_> = (0..6)
            .map(|number| {
                let transport = served.connect(RawKind::Ud, Waiting::Blocking, 10 + number);
                scope.spawn(|| {
                    let mut client = Client::new(transport, ClientConfig::default());
                    while !is_over.load(Relaxed) {
                        client.incr(b"n", 1).expect("in time");
                    }
                    client.stats().repeated
                })
            })
            .collect();
        for number in 0..200 {
            drop(served.connect(RawKind::Ud, Waiting::Blocking, 100 + number));
        }
        until(|| served.counters.counted().connected == 6);
        is_over.store(true, Relaxed);
        for client in steady {
            assert_eq!(client.join().expect("no panic"), 0, "a request was lost");
        }
    });
    served.server.stop().expect("no thread failed");
}

#[test]
fn with_loss_each_change_is_made_once_and_repeats_are_counted() {
    for seed in seeds(1) {
        for kind in RawKind::ALL {
            for loss in [0.001, 0.01, 0.1] {
                let served = Served::new(RawConfig::new(kind));
                let transport = served.connect(kind, Waiting::Blocking, seed << 8 | 2);
                served.faults.set_transmit(FaultPlan::none().drop(loss));
                let mut client = Client::new(transport, IMPATIENT);
                for sum in 1..=300 {
                    assert_eq!(client.incr(b"n", 1).expect("in time"), sum, "{kind:?} {loss}");
                }
                let (stats, again) = (client.stats(), served.service.sessions().repeated());
                assert!(again <= stats.repeated, "{again} of {stats:?}");
                if kind != RawKind::Rc && loss == 0.1 {
                    assert!(again > 0 && stats.renewed == 0, "{kind:?}: {again}, {stats:?}");
                    assert!(stats.repeated > again, "no request was lost: {stats:?}");
                }
            }
        }
    }
}

#[test]
fn eight_clients_with_losses_see_one_order_of_what_happened_to_each_key() {
    for seed in seeds(1) {
        for kind in RawKind::ALL {
            let served = Served::new(RawConfig { workers: 2, ..RawConfig::new(kind) });
            served.faults.set_transmit(FaultPlan::none().drop(0.01));
            let connect = |number| served.connect(kind, Waiting::Blocking, seed << 8 | number);
            assert_linear(histories(connect, (0.01, seed)), kind);
        }
    }
}

#[test]
fn a_client_finds_a_server_that_was_away() {
    for kind in RawKind::ALL {
        for waiting in [Waiting::Blocking, Waiting::Polling] {
            let served = Served::new(RawConfig::new(kind));
            let addr = served.addr;
            let mut client = Client::new(served.connect(kind, waiting, 2), ClientConfig::default());
            assert_eq!(client.incr(b"n", 1).expect("in time"), 1);
            served.server.stop().expect("no thread failed");
            let back = thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                Served::on(addr, RawConfig::new(kind), 10)
            });
            // The store is in memory alone, and what it knew of its clients.
            let sum = match client.incr(b"n", 1) {
                Err(ClientError::Refused(Failure::Stale)) => client.incr(b"n", 1),
                told => told,
            };
            assert_eq!(sum.expect("in time"), 1, "{kind:?}");
            assert!(client.stats().renewed > 0);
            drop(back.join().expect("no panic"));
        }
    }
}

#[test]
fn a_queue_pair_that_fails_is_replaced_by_its_client() {
    let served = Served::new(RawConfig::new(RawKind::Rc));
    let transport = served.connect(RawKind::Rc, Waiting::Blocking, 2);
    let mut client = Client::new(transport, ClientConfig::default());
    assert_eq!(client.incr(b"n", 1).expect("in time"), 1);
    // Nothing passes for longer than RC insists.
    served.faults.set_transmit(FaultPlan::none().black_hole(true));
    let faults = served.faults.clone();
    let mend = thread::spawn(move || {
        thread::sleep(Duration::from_secs(2));
        faults.set_transmit(FaultPlan::none());
    });
    assert_eq!(client.incr(b"n", 1).expect("in time"), 2);
    assert!(client.stats().renewed > 0, "{:?}", client.stats());
    mend.join().expect("no panic");
}

/// Passes on what a client and a server tell each other; the connections to both.
fn pass(listener: &TcpListener, addr: SocketAddr) -> (TcpStream, TcpStream) {
    let (mut client, _) = listener.accept().expect("a client");
    let mut server = TcpStream::connect(addr).expect("it listens");
    let mut told = [0; HELLO_BYTES];
    client.read_exact(&mut told).expect("a hello");
    server.write_all(&told).expect("it reads");
    server.read_exact(&mut told).expect("a welcome");
    client.write_all(&told).expect("it reads");
    (client, server)
}

#[test]
fn a_client_whose_server_forgot_it_without_a_word_connects_anew() {
    // Within a call, and where that is too short for it, with the next one.
    let brief = ClientConfig { timeout: Duration::from_secs(1), ..IMPATIENT };
    for (kind, config) in [(RawKind::Uc, IMPATIENT), (RawKind::Ud, IMPATIENT), (RawKind::Ud, brief)]
    {
        let served = Served::new(RawConfig::new(kind));
        let between = TcpListener::bind((LOCAL, 0)).expect("a free port");
        let (addr, to) = (between.local_addr().expect("bound"), served.addr);
        let again = between.try_clone().expect("a socket");
        let first = thread::spawn(move || pass(&between, to));
        let way = RawClientConfig::new(kind, Waiting::Blocking);
        let transport = RawTransport::connect(device(&served.faults, 2), addr, way, SOON);
        let mut client = Client::new(transport.expect("it listens"), config);
        let (_still_open, to_server) = first.join().expect("no panic");
        assert_eq!(client.incr(b"n", 1).expect("in time"), 1);
        drop(to_server);
        served.until_nobody_is_there();
        if config == brief {
            let told = client.incr(b"n", 1);
            assert!(matches!(told, Err(ClientError::TimedOut(None))), "{told:?}");
        }
        let second = thread::spawn(move || pass(&again, to));
        assert_eq!(client.incr(b"n", 1).expect("in time"), 2, "{kind:?}");
        assert_eq!(client.stats().renewed, 1);
        drop(second.join().expect("no panic"));
    }
}

fn hello(kind: RawKind) -> End {
    End {
        kind,
        mtu: Mtu::Mtu1024,
        qp_num: QpNum(77),
        psn: Psn::new(5),
        qkey: 3,
        message_bytes_max: 4096,
        under_way: 4,
        addr: (LOCAL, 9).into(),
        number: 0,
        grant: None,
    }
}

/// What the server answers to these bytes, to the end of the connection.
fn answer(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a socket");
    // It may have heard enough, and closed.
    let _ = stream.write_all(bytes);
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told);
    told
}

#[test]
fn what_is_no_hello_is_refused_with_the_reason() {
    let served = Served::on((LOCAL, 0).into(), RawConfig::new(RawKind::Uc), 1);
    let with = |change: &dyn Fn(&mut End)| {
        let (mut end, mut bytes) = (hello(RawKind::Uc), Vec::new());
        change(&mut end);
        end.emit(&mut bytes);
        bytes
    };
    let sound = with(&|_| {});
    let mut version = sound.clone();
    version[4] = 9;
    let mut field = sound.clone();
    field[7] = 0;
    for (bytes, refusal) in [
        (version, Refusal::Version),
        (field, Refusal::Malformed),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), Refusal::Malformed),
        (with(&|end| end.kind = RawKind::Rc), Refusal::Kind),
        (with(&|end| end.message_bytes_max = 255), Refusal::Malformed),
        (with(&|end| end.addr = "[::1]:9".parse().expect("an address")), Refusal::Malformed),
    ] {
        let told = answer(served.addr, &bytes);
        assert_eq!(End::parse(&told), Err(HelloError::Refused(refusal)));
    }
    assert_eq!(served.raw().refused, 6);
    served.until_nobody_is_there();
    let mut client = Client::new(served.connect(RawKind::Uc, Waiting::Blocking, 2), IMPATIENT);
    client.ping().expect("it serves on");
    let told = answer(served.addr, &sound);
    assert_eq!(End::parse(&told), Err(HelloError::Refused(Refusal::TooManyClients)));
    client.ping().expect("it serves on");
}

#[test]
fn clients_that_say_nothing_make_room_for_others_and_go_unheard_when_they_go_on() {
    let served = Served::new(RawConfig::new(RawKind::Ud));
    let connect = || TcpStream::connect(served.addr).expect("it listens");
    let mut silent: Vec<_> = (0..RAW_HALF_OPEN_MAX + 20).map(|_| connect()).collect();
    let mut client = Client::new(served.connect(RawKind::Ud, Waiting::Blocking, 2), IMPATIENT);
    client.ping().expect("it is served");
    assert!(served.raw().refused >= 20, "the first had to go");
    silent[0].set_read_timeout(Some(SOON)).expect("a socket");
    let closed = silent[0].read(&mut [0; 1]).map_err(|error| error.kind());
    assert!(matches!(closed, Ok(0) | Err(ErrorKind::ConnectionReset)), "{closed:?}");
    let last = silent.last_mut().expect("many");
    let mut bytes = Vec::new();
    hello(RawKind::Ud).emit(&mut bytes);
    // In pieces, as it pleases.
    for piece in bytes.chunks(7) {
        last.write_all(piece).expect("it reads");
        thread::sleep(Duration::from_millis(1));
    }
    let mut told = [0; HELLO_BYTES];
    last.read_exact(&mut told).expect("a welcome");
    assert!(End::parse(&told).is_ok());
    last.write_all(b"more").expect("it reads");
    last.set_read_timeout(Some(SOON)).expect("a socket");
    let closed = last.read(&mut told).map_err(|error| error.kind());
    assert!(matches!(closed, Ok(0) | Err(ErrorKind::ConnectionReset)), "{closed:?}");
}

#[test]
fn datagrams_of_nobody_who_connected_are_dropped_and_counted() {
    let served = Served::new(RawConfig::new(RawKind::Ud));
    let mut client = Client::new(served.connect(RawKind::Ud, Waiting::Blocking, 3), IMPATIENT);
    client.set(b"k", b"v").expect("in time");
    // A client that says it has another queue pair than it sends from.
    let (mut stream, mut bytes) =
        (TcpStream::connect(served.addr).expect("it listens"), Vec::new());
    hello(RawKind::Ud).emit(&mut bytes);
    stream.write_all(&bytes).expect("it reads");
    let mut told = [0; HELLO_BYTES];
    stream.read_exact(&mut told).expect("a welcome");
    let server = End::parse(&told).expect("a welcome");
    let mut stranger = Stranger::new();
    let (mut request, ask) = (Vec::new(), towpath_kv::wire::Ask::Reset);
    towpath_kv::wire::Request { client: 0, sequence: 1, ask }.emit(&mut request);
    for number in [server.number, 0, 7, u32::MAX] {
        stranger.send(&server, number, &request);
    }
    until(|| served.raw().strangers == 4);
    assert_eq!(client.get(b"k").expect("in time"), Some(b"v".to_vec()));
}

/// Somebody with a queue pair for datagrams that no server was told of.
struct Stranger {
    device: Faulty,
    qp: QpNum,
    memory: SharedMemory,
    lkey: u32,
}

impl Stranger {
    fn new() -> Self {
        let mut device = device(&FaultControl::new(FaultPlan::none()), 99);
        let memory = SharedMemory::new(4096).expect("memory");
        let keys = device.reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::LOCAL);
        let cq = device.create_cq(64).expect("room");
        let qp = device.create_qp(&QpInit::new(QpType::Ud, cq)).expect("room");
        let connect = Connect {
            dest: device.local_addr(),
            dest_qp_num: qp,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            path_mtu: Mtu::Mtu1024,
            source_port: 0,
            tclass: 0,
            rc: RcAttr::default(),
        };
        device.connect_qp(qp, &connect).expect("it is in INIT");
        let lkey = keys.expect("room").lkey;
        Self { device, qp, memory, lkey }
    }

    fn send(&mut self, server: &End, imm_data: u32, message: &[u8]) {
        self.memory.write(0, message).expect("room");
        let (addr, length) = (self.memory.addr(), message.len() as u32);
        let list = SgList::one(Sge { addr, length, lkey: self.lkey });
        let (remote_qpn, remote_qkey) = (server.qp_num, server.qkey);
        let to = UdAddress { dest: server.addr, remote_qpn, remote_qkey };
        let wr = SendWr::new(1, SendOp::SendWithImm { imm_data }, list).to(to);
        self.device.post_send(self.qp, &[wr]).expect("room");
        self.device.progress(0);
    }
}

/// Devices that can be waited for with other files, as those with faults cannot.
#[test]
fn threads_that_share_a_device_sleep_until_a_message_comes_or_a_client() {
    for worker_per_client in [false, true] {
        let listener = TcpListener::bind((LOCAL, 0)).expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let service = Service::new(Arc::new(Table::new(1 << 30, Evict::Never)));
        let counters = Arc::new(Counters::new(1_000));
        let make = || {
            let link = UdpLink::bind(UdpConfig::new(LOCAL))?;
            Ok(RoceDevice::new(link, RoceConfig::default()))
        };
        let config = RawConfig { workers: 3, worker_per_client, ..RawConfig::new(RawKind::Ud) };
        let all = (&service, &counters, &Clock::start());
        let server = RawServer::start(listener, Box::new(make), config, all).expect("it starts");
        let connect = || {
            let config = RawClientConfig::new(RawKind::Ud, Waiting::Blocking);
            let raw = RawTransport::udp(LOCAL, addr, config, SOON).expect("it listens");
            Client::new(raw, ClientConfig::default())
        };
        let mut clients: Vec<_> = (0..8).map(|_| connect()).collect();
        thread::scope(|scope| {
            for client in &mut clients {
                scope.spawn(|| {
                    for _ in 0..100 {
                        client.incr(b"n", 1).expect("in time");
                    }
                    assert_eq!(client.stats().repeated, 0);
                });
            }
        });
        let sum = clients[0].get(b"n").expect("in time");
        assert_eq!(sum.as_deref(), Some(&b"800"[..]));
        // Nothing wakes them when nothing comes.
        let wakes = || server.counters().counted().wakes;
        let (begin, mut before) = (Instant::now(), wakes());
        loop {
            thread::sleep(Duration::from_millis(20));
            let now = wakes();
            if now == before {
                break;
            }
            assert!(begin.elapsed() < SOON, "they do not sleep");
            before = now;
        }
        clients[0].ping().expect("in time");
        assert!(wakes() > before, "they did not sleep");
        clients.truncate(3);
        until(|| counters.counted().connected == 3);
        clients[2].ping().expect("in time");
        server.stop().expect("no thread failed");
    }
}
