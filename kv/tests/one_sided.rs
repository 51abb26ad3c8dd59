//! GETs by reading published memory: what they find, that they wake nobody, and that they agree
//! with everything else that happens to a key.

mod common;

use common::clients::{IMPATIENT, SOON, assert_linear};
use common::linear::{Deed, Op};
use common::{keys_of_one_bucket, seeds};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use towpath_base::{Prng, Time};
use towpath_clock::Clock;
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::{EngineOptions, RoceConfig, RoceDevice, SharedDevice};
use towpath_kv::client::{
    ChannelTransport, Client, ClientConfig, OneSided, OneSidedStats, RawClientConfig, RawTransport,
    Reads, Waiting,
};
use towpath_kv::published::{Found, Published, find};
use towpath_kv::raw::{RawConfig, RawKind, RawServer};
use towpath_kv::serve::{Counters, LinkServer};
use towpath_kv::{Evict, Put, Service, Store, Table, When, client_config, server_config};
use towpath_sim::{FaultControl, FaultLink, FaultPlan};
use towpath_transport::{CarrierChoice, Endpoint, UdpConfig};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

type Faulty = RoceDevice<FaultLink<UdpLink>>;

fn device(control: &FaultControl, seed: u64) -> Faulty {
    let link = UdpLink::bind(UdpConfig::new(LOCAL)).expect("a free port");
    RoceDevice::new(FaultLink::new(link, seed, control.clone()), RoceConfig::default().seed(seed))
}

fn published(slot_bytes: usize) -> Arc<Published> {
    Arc::new(Published::new(8 << 20, slot_bytes).expect("memory"))
}

fn table(published: &Arc<Published>) -> Arc<dyn Store> {
    Arc::new(Table::publishing(1 << 30, Evict::Never, Arc::clone(published)))
}

/// A server of each kind, whose memory is read while its threads sleep.
struct Served {
    service: Service,
    counters: Arc<Counters>,
    faults: FaultControl,
    raw: (RawServer, SocketAddr),
    _links: LinkServer,
    links_addr: SocketAddr,
}

impl Served {
    fn new(published: &Arc<Published>) -> Self {
        let service = Service::new(table(published));
        let (counters, clock) = (Arc::new(Counters::new(1_000)), Clock::start());
        let faults = FaultControl::new(FaultPlan::none());
        let listener = TcpListener::bind((LOCAL, 0)).expect("a free port");
        let raw_addr = listener.local_addr().expect("bound");
        let make = || {
            let link = UdpLink::bind(UdpConfig::new(LOCAL))?;
            let device = RoceDevice::new(link, RoceConfig::default());
            Ok(SharedDevice::spawn(device, EngineOptions::new())?)
        };
        let config = RawConfig::new(RawKind::Rc);
        let all = (&service, &counters, &clock);
        let raw = RawServer::start(listener, Box::new(make), config, all).expect("it starts");
        let config = server_config(64).carrier(CarrierChoice::Uc);
        let udp = UdpConfig::new(LOCAL);
        let mut endpoint =
            Endpoint::udp_with_engine(udp, config, EngineOptions::new()).expect("an endpoint");
        let links_addr = endpoint.listen((LOCAL, 0).into()).expect("a free port");
        let links = LinkServer::start(vec![endpoint], &service, &counters, &clock, false);
        let _links = links.expect("a thread");
        Self { service, counters, faults, raw: (raw, raw_addr), _links, links_addr }
    }

    fn raw(&self, seed: u64) -> RawTransport<Faulty> {
        let config = RawClientConfig::new(RawKind::Rc, Waiting::Blocking);
        let device = device(&self.faults, seed);
        RawTransport::connect(device, self.raw.1, config, SOON).expect("it listens")
    }

    fn channel(&self, seed: u64) -> ChannelTransport<Faulty> {
        let config = client_config().carrier(CarrierChoice::Uc);
        let endpoint = Endpoint::new(device(&self.faults, seed), config).expect("an endpoint");
        ChannelTransport::on(endpoint, self.links_addr, Waiting::Blocking, SOON)
            .expect("it listens")
    }
}

/// Asks until the memory is granted.
fn granted<T: Reads>(transport: T) -> OneSided<T> {
    let mut client = OneSided::new(transport, ClientConfig::default());
    let begin = Instant::now();
    while client.client().transport().granted().is_none() {
        assert!(begin.elapsed() < SOON, "nothing was granted");
        client.client().ping().expect("in time");
    }
    client
}

fn what_is_there_is_read<T: Reads>(transport: T, service: &Service) {
    let shown = format!("{transport:?}");
    let mut client = granted(transport);
    let mut wanted = OneSidedStats::default();
    service.store().clear();
    assert_eq!(client.get(b"k").expect("in time"), None);
    wanted.absent += 1;
    client.client().set(b"k", b"v").expect("in time");
    assert_eq!(client.get(b"k").expect("in time"), Some(b"v".to_vec()));
    wanted.found += 1;
    client.client().incr(b"n", 41).expect("in time");
    client.client().incr(b"n", 1).expect("in time");
    assert_eq!(client.get(b"n").expect("in time"), Some(b"42".to_vec()));
    wanted.found += 1;
    // What expires is the server's to tell, and what is long as well.
    client.client().set_if(b"k", b"w", When::Always, 3_600_000).expect("in time");
    assert_eq!(client.get(b"k").expect("in time"), Some(b"w".to_vec()));
    client.client().set(b"k", &[7; 2000]).expect("in time");
    assert_eq!(client.get(b"k").expect("in time"), Some(vec![7; 2000]));
    client.client().set(b"k", b"x").expect("in time");
    client.client().del(b"k").expect("in time");
    assert_eq!(client.get(b"k").expect("in time"), None);
    client.client().reset().expect("in time");
    assert_eq!(client.get(b"n").expect("in time"), None);
    wanted.absent += 4;
    assert_eq!(client.stats(), wanted, "{shown}");
}

#[test]
fn what_is_there_is_read_and_what_is_gone_is_not_over_queue_pairs_and_lanes() {
    let served = Served::new(&published(320));
    what_is_there_is_read(served.raw(2), &served.service);
    what_is_there_is_read(served.channel(3), &served.service);
}

#[test]
fn the_servers_threads_sleep_while_their_memory_is_read() {
    let served = Served::new(&published(320));
    let mut client = granted(served.raw(2));
    client.client().set(b"k", b"v").expect("in time");
    client.get(b"k").expect("in time");
    // The thread goes to sleep after the reply; what woke it last was no READ.
    let counts = || (served.raw.0.counters().counted().wakes, served.counters.counted().requests);
    let begin = Instant::now();
    let mut before = counts();
    loop {
        thread::sleep(Duration::from_millis(20));
        let now = counts();
        if now == before {
            break;
        }
        assert!(begin.elapsed() < SOON, "it does not sleep");
        before = now;
    }
    for _ in 0..500 {
        assert_eq!(client.get(b"k").expect("in time"), Some(b"v".to_vec()));
    }
    assert_eq!(client.stats().found, 501);
    assert_eq!(counts(), before, "a READ woke a thread");
    client.client().ping().expect("in time");
    let after = counts();
    assert!(after.0 > before.0 && after.1 == before.1 + 1, "{before:?} {after:?}");
}

/// Tells a thread that it is over when this goes.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_read_that_meets_a_change_is_seen_and_made_again() {
    // Buckets of many packets, of which one is lost now and then: those behind it are of later.
    let published = published(32 << 10);
    let served = Served::new(&published);
    let store = Arc::clone(served.service.store());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0u8;
            while !is_over.load(SeqCst) {
                number = number.wrapping_add(1);
                let value = [number; 32_000];
                store.set(b"k", &value, Put::ALWAYS, Time::ZERO).expect("room");
                thread::sleep(Duration::from_micros(50));
            }
        });
        // The writer ends however this does.
        let _over = Over(&is_over);
        let mut client = granted(served.raw(2));
        served.faults.set_receive(FaultPlan::none().drop(0.02));
        let begin = Instant::now();
        while client.stats().torn == 0 || client.stats().closed == 0 || client.stats().found == 0 {
            if let Some(value) = client.get(b"k").expect("in time") {
                assert!(value.iter().all(|&byte| byte == value[0]), "of two values");
            }
            assert!(begin.elapsed() < SOON, "no change came between: {:?}", client.stats());
        }
    });
}

/// What readers by READs and those who change keys see of each other.
fn histories<T: Reads + 'static>(
    connect: impl Fn(u64) -> T + Sync,
    keys: &[u64],
    seed: u64,
) -> (BTreeMap<u64, Vec<Op>>, u64) {
    const OPS: u64 = 200;
    let (clock, found) = (AtomicU64::new(0), AtomicU64::new(0));
    let number = |value: Vec<u8>| String::from_utf8(value).expect("text").parse().expect("number");
    let work = |me: u64| {
        let mut prng = Prng::new(seed << 8 | me);
        let mut client = OneSided::over(Client::new(connect(me), IMPATIENT));
        let ops = (0..OPS).map(|op| {
            let key = keys[prng.below(keys.len() as u64) as usize];
            let name = key.to_le_bytes();
            let fresh = ((me * OPS + op + 1) * 1_000_000) as i64;
            let begin = clock.fetch_add(1, SeqCst);
            // Of eight clients four read alone.
            let deed = match if me.is_multiple_of(2) { 9 } else { prng.below(6) } {
                0 | 1 => {
                    let value = fresh.to_string();
                    client.client().set(&name, value.as_bytes()).expect("in time");
                    Deed::Set(fresh)
                }
                2 => Deed::Del(client.client().del(&name).expect("in time")),
                3 => Deed::Incr(client.client().incr(&name, 1).expect("in time")),
                4 => Deed::Get(client.client().get(&name).expect("in time").map(number)),
                _ => Deed::Get(client.get(&name).expect("in time").map(number)),
            };
            (key, Op { deed, begin, end: Some(clock.fetch_add(1, SeqCst)) })
        });
        let ops = ops.collect::<Vec<_>>();
        found.fetch_add(client.stats().found, SeqCst);
        ops
    };
    let mut all: BTreeMap<u64, Vec<Op>> = BTreeMap::new();
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || work(n))).collect();
        for (key, op) in threads.into_iter().flat_map(|t| t.join().expect("no panic")) {
            all.entry(key).or_default().push(op);
        }
    });
    (all, found.load(SeqCst))
}

#[test]
fn readers_by_reads_and_writers_see_one_order_of_what_happened_to_each_key() {
    for seed in seeds(2) {
        // More than a bucket has slots for: they take each other's.
        let memory = published(320);
        let keys = keys_of_one_bucket(&memory, 3);
        let served = Served::new(&memory);
        served.faults.set_transmit(FaultPlan::none().drop(0.002));
        let (raw, found) = histories(|number| served.raw(seed << 8 | number), &keys, seed);
        assert!(found > 0, "nothing was read");
        assert_linear(raw, "queue pairs");
        let served = Served::new(&published(320));
        served.faults.set_transmit(FaultPlan::none().drop(0.002));
        let (links, found) = histories(|number| served.channel(seed << 8 | number), &keys, seed);
        assert!(found > 0, "nothing was read");
        assert_linear(links, "lanes");
    }
}

/// The value of a key in published memory, by tries without end.
fn look(published: &Published, key: &[u8]) -> Option<Vec<u8>> {
    let shape = published.shape();
    let mut bytes = vec![0; shape.bucket_bytes()];
    loop {
        published.memory().read(shape.place(shape.bucket_of(key)), &mut bytes).expect("within");
        match find(&bytes, shape.slot_bytes, key) {
            Found::Value(value) => return Some(value.to_vec()),
            Found::Absent => return None,
            Found::Closed | Found::Torn => thread::yield_now(),
        }
    }
}

#[test]
fn threads_that_read_the_memory_agree_with_those_that_use_the_store() {
    const OPS: u64 = 3_000;
    let number = |value: &[u8]| str::from_utf8(value).expect("text").parse().expect("a number");
    for seed in seeds(4) {
        let published = published(320);
        let keys = keys_of_one_bucket(&published, 3);
        let store = table(&published);
        let clock = AtomicU64::new(0);
        let work = |me: u64| {
            let mut prng = Prng::new(seed << 8 | me);
            let ops = (0..OPS).filter_map(|op| {
                let key = keys[prng.below(3) as usize].to_le_bytes();
                let fresh = ((me * OPS + op + 1) * 1_000_000) as i64;
                let begin = clock.fetch_add(1, SeqCst);
                let deed = match if me.is_multiple_of(2) { 9 } else { prng.below(5) } {
                    0 => {
                        let text = fresh.to_string();
                        let put = Put::ALWAYS;
                        store.set(&key, text.as_bytes(), put, Time::ZERO).expect("room");
                        Deed::Set(fresh)
                    }
                    1 => Deed::Del(store.del(&key, Time::ZERO)),
                    2 => Deed::Incr(store.incr(&key, 1, Time::ZERO).expect("a number")),
                    3 => {
                        let mut has = None;
                        store.get(&key, Time::ZERO, &mut |value| has = Some(number(value)));
                        Deed::Get(has)
                    }
                    // What is not there is not said to be nowhere.
                    _ => Deed::Get(Some(number(&look(&published, &key)?))),
                };
                Some((key, Op { deed, begin, end: Some(clock.fetch_add(1, SeqCst)) }))
            });
            ops.collect::<Vec<_>>()
        };
        let mut all: BTreeMap<u64, Vec<Op>> = BTreeMap::new();
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..6).map(|n| scope.spawn(move || work(n))).collect();
            for (key, op) in threads.into_iter().flat_map(|t| t.join().expect("no panic")) {
                all.entry(u64::from_le_bytes(key)).or_default().push(op);
            }
        });
        assert!(published.counts().displaced > 0, "no two keys met");
        assert_linear(all, seed);
    }
}

#[test]
fn a_key_that_was_evicted_is_not_read_as_there() {
    let published = published(320);
    let bytes_max = 64 * 256;
    let evict = Evict::LeastRecentlyUsed;
    let store = Arc::new(Table::publishing(bytes_max, evict, Arc::clone(&published)));
    let next = AtomicU64::new(0);
    const KEYS: u64 = 60_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..KEYS {
                // Each is put once, so that one that is gone stays so.
                let name = key.to_le_bytes();
                store.set(&name, b"v", Put::ALWAYS, Time::ZERO).expect("others go");
                next.store(key + 1, SeqCst);
            }
        });
        scope.spawn(|| {
            let mut other = u64::MAX;
            while next.load(SeqCst) < KEYS {
                // Of this thread's and of the other's some go each time.
                other -= 1;
                let name = other.to_le_bytes();
                store.set(&name, b"v", Put::ALWAYS, Time::ZERO).expect("others go");
            }
        });
        scope.spawn(|| {
            let mut gone = 0u64;
            while next.load(SeqCst) < KEYS {
                let newest = next.load(SeqCst);
                for key in newest.saturating_sub(200)..newest {
                    let name = key.to_le_bytes();
                    if !store.get(&name, Time::ZERO, &mut |_| ()) {
                        gone += 1;
                        assert_eq!(look(&published, &name), None, "{key} is gone");
                    }
                }
            }
            assert!(gone > 0, "none was evicted");
        });
    });
    assert!(store.figures().evicted > 0);
    for key in 0..KEYS {
        let name = key.to_le_bytes();
        let is_there = store.get(&name, Time::ZERO, &mut |_| ());
        assert!(is_there || look(&published, &name).is_none(), "{key}");
    }
}
