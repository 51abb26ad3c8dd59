//! Links that ask and never take an answer in: everybody else is served all the same.

#[path = "hogs/asks.rs"]
mod asks;
mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use asks::{ALL, Ask, CHUNK, CHUNK_BYTES, HOGS, HONEST, LONG_BYTES, SHORT, Showing, Shows};
use common::{Client, LONG, Running, config, loopback_udp, pattern};
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::cap::KeyRing;
use towpath_fastpath::qos::wire::JoinRequest;
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{Output, StorageRequest};
use towpath_transport::{
    ChannelId, Class, Endpoint, EndpointConfig, Event, LinkId, Nanos, RoceUdp, SendOptions,
};

/// Requests of all hogs of a class together at least: three times the small buffers of a server.
const REQUESTS_MIN: usize = 20_000;

/// Requests of each hog at least: it may have no more than 256 under way.
const REQUESTS_OF_ONE: usize = 600;

/// Turns in which nothing could be sent: the server takes no more of these links.
const TURNS_IN_VAIN: usize = 500;

/// How often each hog asks for one thing more afterwards.
const ASKS_AGAIN: Duration = Duration::from_millis(10);

/// Operations of an honest client of each kind and size.
const OPERATIONS: u64 = 20;

/// What an honest operation may take: half of the 60 s after which answers that nobody takes in are
/// given up.
const PATIENCE: Nanos = Nanos::from_secs(30);

/// The same where hogs are stopped: less than the 10 s after which their links end.
const PATIENCE_OF_STOPPED: Nanos = Nanos::from_secs(8);

/// Sources that the hogs of a class name at least before others are served: those of all classes
/// name more than a server remembers.
const SOURCES_OF_CLASS: usize = 25_000;

/// Requests that each of them has under way: fewer than the server takes.
const FLOOD_OF_ONE: usize = 64;

/// Tokens a second: they are never what is missing.
const PLENTY: u32 = 10_000_000;

/// A server that does what capabilities allow, of both tenants.
fn with_keys(folder: &Path, config: DaemonConfig) -> DaemonConfig {
    let (keys, tenants) = (folder.join("keys"), folder.join("tenants.toml"));
    std::fs::write(&keys, KeyRing::line(1, &[1; 32])).expect("written");
    let text = [HOGS, HONEST].map(|name| format!("[tenant.{name}]\nweight = 1\n")).concat();
    std::fs::write(&tenants, text).expect("written");
    let (key_file, tenants_file) = (Some(keys), Some(tenants));
    config.with(|config| {
        config.service.key_file = key_file;
        config.qos.tenants_file = tenants_file;
        config.qos.qos_iops = PLENTY;
    })
}

/// Links of one class that keep all that comes, unless they are to name sources: for that they must
/// be answered.
struct Hogs {
    endpoint: Endpoint<RoceUdp>,
    ways: Vec<(LinkId, ChannelId)>,
    showing: Vec<Showing>,
    /// Never given back, so that it gives no credit either.
    kept: Vec<Event>,
    is_flood: bool,
    /// Requests of each link.
    sent: Vec<usize>,
    asked: usize,
    answers: usize,
}

impl Hogs {
    fn connect(addr: SocketAddr, class: Class, (links, shows): (usize, &[Shows])) -> Self {
        let fixed = "fixed".parse().expect("a word of congestion control");
        let config = EndpointConfig::new()
            .app_protocol(PROTOCOL)
            .links_max(links)
            // What the server has for them stays with the server.
            .quota_chunks(8)
            .credit_total(8)
            .controller(fixed)
            .connect_timeout(LONG)
            .class(class);
        let mut endpoint = Endpoint::udp(loopback_udp(), config).expect("loopback UDP");
        for _ in 0..links {
            endpoint.connect(addr).expect("room for a connection");
        }
        let showing = shows.iter().cycle().take(links).map(|shows| Showing::new(*shows)).collect();
        let (ways, kept, is_flood) = (Vec::new(), Vec::new(), shows == [Shows::Sources]);
        let (sent, asked, answers) = (vec![0; links], 0, 0);
        let mut hogs = Self { endpoint, ways, showing, kept, is_flood, sent, asked, answers };
        while hogs.ways.len() < links {
            hogs.turn();
        }
        for at in 0..links {
            let join = hogs.showing[at].join();
            while !hogs.send(at, &join) {
                hogs.turn();
            }
        }
        hogs
    }

    fn send(&mut self, at: usize, bytes: &[u8]) -> bool {
        let (link, channel) = self.ways[at];
        let buf = self.endpoint.copy(bytes);
        buf.is_ok_and(|buf| self.endpoint.send(link, channel, buf, SendOptions::new()).is_ok())
    }

    fn turn(&mut self) {
        let Self { endpoint, ways, kept, is_flood, answers, .. } = self;
        let busy = endpoint.turn(|endpoint, event| match event {
            Event::Message(message) if *is_flood => {
                *answers += 1;
                endpoint.release(message);
            }
            Event::Connected { link, .. } => {
                endpoint.open_channel(link, false).expect("a fresh link has room");
            }
            Event::ChannelOpened { link, channel, .. } => ways.push((link, channel)),
            Event::Message(_) | Event::StreamChunk { .. } => kept.push(event),
            Event::ConnectFailed { error, .. } => panic!("{error}"),
            _ => {}
        });
        if !busy {
            endpoint.wait(Nanos::from_millis(1));
        }
    }

    /// Asks until the server takes no more, or for long enough.
    fn ask(&mut self, asks: &[Ask]) {
        let wanted = REQUESTS_OF_ONE.max(REQUESTS_MIN / self.ways.len());
        let mut in_vain = 0;
        while in_vain < TURNS_IN_VAIN && self.sent.iter().any(|&sent| sent < wanted) {
            in_vain = if self.ask_once(asks, wanted) { 0 } else { in_vain + 1 };
            self.turn();
        }
        // What is queued here gets there, as far as the server takes it.
        (0..TURNS_IN_VAIN).for_each(|_| self.turn());
    }

    /// Asks for one thing more on each link that has asked for fewer than are wanted; whether any
    /// could.
    fn ask_once(&mut self, asks: &[Ask], wanted: usize) -> bool {
        let mut could = false;
        for at in 0..self.ways.len() {
            let sent = self.sent[at];
            if sent < wanted {
                let bytes = asks[at % asks.len()].bytes(sent as u64, &mut self.showing[at]);
                let is_sent = self.send(at, &bytes);
                self.sent[at] += usize::from(is_sent);
                could |= is_sent;
            }
        }
        could
    }

    /// Asks for one byte under another source with each request, some at a time on each link.
    fn flood(&mut self) {
        for at in 0..self.ways.len() {
            if self.asked >= self.answers + FLOOD_OF_ONE * self.ways.len() {
                break;
            }
            let bytes = Ask::Read(1).bytes(self.asked as u64, &mut self.showing[at]);
            self.asked += usize::from(self.send(at, &bytes));
        }
        self.turn();
    }
}

/// Hogs of all classes on threads of their own, until they are dropped.
struct Attack {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    /// With so many links of each class. Returns when the server takes no more of them.
    fn begin(
        addr: SocketAddr,
        (links, shows): (usize, &[Shows]),
        asks: &[Ask],
        then_stops: bool,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let one = |class| {
            let (is_over, tell) = (Arc::clone(&is_over), tell.clone());
            let (asks, shows) = (asks.to_vec(), shows.to_vec());
            thread::spawn(move || {
                let hogs = Hogs::connect(addr, class, (links, &shows));
                attack(hogs, (&asks, then_stops), &is_over, &tell);
            })
        };
        let threads = Class::ALL.into_iter().map(one).collect();
        Class::ALL.iter().for_each(|_| told.recv().expect("no hog has panicked"));
        Self { is_over, threads }
    }
}

fn attack(
    mut hogs: Hogs,
    (asks, then_stops): (&[Ask], bool),
    is_over: &AtomicBool,
    tell: &Sender<()>,
) {
    match hogs.is_flood {
        true => {
            while hogs.answers < SOURCES_OF_CLASS {
                hogs.flood();
            }
        }
        false => hogs.ask(asks),
    }
    tell.send(()).expect("the test waits");
    let mut asked_at = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        if hogs.is_flood {
            hogs.flood();
        } else if then_stops {
            // As a process that is stopped: it does not even acknowledge.
            thread::sleep(Duration::from_millis(10));
        } else {
            // Where the machine is busy, the server had not taken all that was asked when the hogs
            // believed that it takes no more.
            if asked_at.elapsed() > ASKS_AGAIN {
                asked_at = Instant::now();
                hogs.ask_once(asks, usize::MAX);
            }
            hogs.turn();
        }
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok() || thread::panicking(), "a hog has panicked");
        }
    }
}

/// An honest client, which takes long answers whole. Where the server has keys, it shows what is
/// right.
fn connect(addr: SocketAddr, class: Class, patience: Nanos, has_keys: bool) -> Client<RoceUdp> {
    let fixed = "fixed".parse().expect("a word of congestion control");
    let config = EndpointConfig::new()
        .app_protocol(PROTOCOL)
        .links_max(1)
        .whole_bytes_max(2 * LONG_BYTES as u32)
        .controller(fixed)
        .connect_timeout(LONG)
        .class(class);
    let endpoint = Endpoint::udp(loopback_udp(), config).expect("loopback UDP");
    let Client { endpoint, chunks } = Client::on(endpoint, addr);
    let mut client = Client { endpoint, chunks: chunks.timeout(patience) };
    // A server takes pieces as they come.
    client.chunks.set_longest_request(CHUNK_BYTES);
    if !has_keys {
        return client;
    }
    let Client { endpoint, chunks } = client;
    let mut client =
        Client { endpoint, chunks: chunks.capability(asks::grant(asks::of_tenant(HONEST))) };
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Join(JoinRequest { tenant: HONEST.into(), runs_engine: false }),
    );
    client.wait(op).expect("it may join its tenant");
    client
}

/// An honest client's operations; the time of the slowest one.
fn serves(client: &mut Client<RoceUdp>, chunk: ChunkId) -> Duration {
    let mut slowest = Duration::ZERO;
    for bytes in [SHORT, LONG_BYTES] {
        for round in 0..OPERATIONS {
            let data = pattern(bytes, round);
            let begun = Instant::now();
            client.write(chunk, 0, &data).expect("the write is answered");
            let read = client.read(chunk, 0, bytes).expect("the read is answered");
            slowest = slowest.max(begun.elapsed());
            assert!(read == data, "round {round} of {bytes} bytes came back changed");
        }
    }
    slowest
}

/// Waits until a server says which peer holds most of its buffers, and to whom it sends no
/// refusals. Hogs need a while until they hold more than they may.
fn names_a_hog(client: &mut Client<RoceUdp>, asks: &[Ask]) {
    let until = Instant::now() + Duration::from(LONG);
    while !says_who_holds_most(client, asks) {
        assert!(Instant::now() < until, "the server says who holds most");
        thread::sleep(Duration::from_millis(1));
    }
}

fn says_who_holds_most(client: &mut Client<RoceUdp>, asks: &[Ask]) -> bool {
    let op =
        client.chunks.start_request(&mut client.endpoint, &StorageRequest::Health { times: false });
    let Ok(Output::Health(health)) = client.wait(op) else { panic!("no answer") };
    let send = health.pools.iter().filter(|pool| pool.name.starts_with("send"));
    let most = send.max_by_key(|pool| pool.most_held).expect("there are some");
    println!("{} of {} of {} are held by {}", most.most_held, most.max, most.name, most.most_peer);
    let refused = asks.contains(&Ask::UnknownMethod);
    let dropped = health.notes_dropped > 0 && !health.most_dropped_peer.is_empty();
    let is_named = most.most_held > 1 && !most.most_peer.is_empty();
    // Links of stopped peers end after a while, and with them what they held.
    (is_named || asks == [Ask::Read(CHUNK_BYTES), Ask::Read(LONG_BYTES)]) && (dropped || !refused)
}

/// By a server without keys.
fn others_are_served(links: usize, asks: &[Ask], then_stops: bool) {
    others_are_served_by(None, links, asks, then_stops);
}

/// By one with keys, where it is said what hogs show, one after the other.
fn others_are_served_by(keyed: Option<&[Shows]>, links: usize, asks: &[Ask], then_stops: bool) {
    let dir = tempfile::tempdir().expect("room for a directory");
    let mut config = config(&dir.path().join("store"));
    config.network.workers = Some(3);
    config.network.links_max = 200;
    config.service.stop_wait_ms = 100;
    let has_keys = keyed.is_some();
    if has_keys {
        config = with_keys(dir.path(), config);
    }
    let of = (links, keyed.unwrap_or(&[Shows::Nothing]));
    let server = Running::start(&config);
    let mut writer = connect(server.addr, Class::default(), PATIENCE, has_keys);
    writer.create(CHUNK, None).expect("a fresh name");
    for offset in (0..CHUNK_BYTES).step_by(LONG_BYTES) {
        writer.write(CHUNK, offset as u64, &pattern(LONG_BYTES, 1)).expect("it is served");
    }
    drop(writer);
    let attack = Attack::begin(server.addr, of, asks, then_stops);
    let patience = if then_stops { PATIENCE_OF_STOPPED } else { PATIENCE };
    for (class, number) in Class::ALL.into_iter().zip(0u64..) {
        // Not before: its link would end, since nobody turns it while others are served.
        let mut client = connect(server.addr, class, patience, has_keys);
        let chunk = ChunkId(u128::from(100 + number));
        client.create(chunk, None).expect("the create is answered");
        let slowest = serves(&mut client, chunk);
        println!("{links} hogs of each class that show {keyed:?}, {asks:?}: {slowest:?}");
        if of.1 != [Shows::Sources] {
            names_a_hog(&mut client, asks);
        }
    }
    drop(attack);
    let stats = server.stop().stats;
    println!("{} requests were denied, {} done", stats.denied.iter().sum::<u64>(), stats.done);
}

#[test]
fn links_that_take_no_refusals_in_keep_no_buffers_from_others() {
    others_are_served(2, &[Ask::UnknownMethod, Ask::Malformed], false);
}

#[test]
fn links_that_take_no_fates_in_keep_no_buffers_from_others() {
    others_are_served(2, &[Ask::Cancel], false);
}

#[test]
fn a_link_that_takes_no_data_in_keeps_no_buffers_from_others() {
    others_are_served(1, &[Ask::Read(CHUNK_BYTES)], false);
}

#[test]
fn readers_that_are_stopped_keep_no_buffers_from_others() {
    others_are_served(2, &[Ask::Read(CHUNK_BYTES), Ask::Read(LONG_BYTES)], true);
}

#[test]
fn four_links_that_ask_for_everything_keep_no_buffers_from_others() {
    others_are_served(4, &ALL, false);
}

#[test]
fn thirty_two_links_that_ask_for_everything_keep_no_buffers_from_others() {
    others_are_served(32, &ALL, false);
}

#[test]
fn thirty_two_links_that_ask_for_one_thing_keep_no_buffers_from_others() {
    for ask in [Ask::UnknownMethod, Ask::Read(CHUNK_BYTES)] {
        others_are_served(32, &[ask], false);
    }
}

const EACH_KIND: [Shows; 3] = [Shows::Nothing, Shows::Forged, Shows::Valid];

#[test]
fn links_that_need_a_capability_keep_no_buffers_from_others() {
    others_are_served_by(Some(&EACH_KIND), 3, &ALL, false);
}

const EACH_NUMBER: [usize; 4] = [1, 2, 4, 32];

#[test]
#[ignore = "minutes: 1, 2, 4 and 32 links of each class"]
fn no_number_of_links_keeps_buffers_from_others() {
    for links in EACH_NUMBER {
        others_are_served(links, &ALL, false);
        others_are_served(links, &[Ask::Read(CHUNK_BYTES)], false);
    }
}

#[test]
#[ignore = "minutes: 1, 2, 4 and 32 links of each class"]
fn no_number_of_links_that_need_a_capability_keeps_buffers_from_others() {
    for links in EACH_NUMBER {
        for shows in EACH_KIND {
            others_are_served_by(Some(&[shows]), links, &ALL, false);
        }
        others_are_served_by(Some(&EACH_KIND), links, &ALL, false);
        others_are_served_by(Some(&[Shows::Valid]), links, &[Ask::Read(CHUNK_BYTES)], false);
    }
}

/// Capabilities that are good for something are used to make the server forget whose numbers it has
/// seen.
#[test]
#[ignore = "a minute: as many sources as a server remembers"]
fn links_that_make_up_sources_bar_no_others() {
    for links in [1, 32] {
        others_are_served_by(Some(&[Shows::Sources]), links, &[], false);
    }
}
