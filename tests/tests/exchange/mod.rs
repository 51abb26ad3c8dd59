//! Two hosts on one thread, on devices that need real time: each sends a script, an oracle judges.
//!
//! How fast it goes is not judged here, only that it goes on.

#![allow(dead_code, reason = "each program of tests uses its part")]

use std::rc::Rc;
use std::time::{Duration, Instant};
use towpath_base::{Nanos, Prng, Time};
use towpath_lab::app::{App, Planned};
use towpath_lab::oracle::{Ending, Oracle};
use towpath_memory::Region;
use towpath_proto::{LinkStats, Side};
use towpath_sim::World;
use towpath_transport::{Endpoint, EndpointConfig, LinkId};
use towpath_verbs::{Device, Mtu};

/// Turns in which nothing at all moves after which the test gives up: minutes of waiting.
const IDLE_TURNS_MAX: u32 = 2_000_000;

/// How long no application has heard anything when the test gives up, where time is real: ends that
/// keep each other busy for nothing are stuck too.
const SILENCE_MAX: Duration = Duration::from_secs(100);

/// What each host sends.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Messages.
    messages: u64,
    /// How many of them are under way at a time.
    depth: usize,
    /// The longest of each of four kinds, bytes.
    longest: [u64; 4],
    /// Buffers to send from: bytes, and how many. A message has up to four.
    pool: (usize, usize),
    /// Whether some are given up on the way.
    cancels: bool,
    /// Payload bytes of a packet, at most.
    mtu_max: Mtu,
}

impl Load {
    /// Many, most of them small.
    pub(crate) fn small() -> Self {
        Self {
            messages: 300,
            depth: 32,
            longest: [100, 5_000, 70_000, 400_000],
            pool: (1 << 20, 40),
            cancels: true,
            mtu_max: Mtu::Mtu4096,
        }
    }

    /// A few, of which some are as long as files.
    pub(crate) fn large() -> Self {
        Self {
            messages: 8,
            depth: 2,
            longest: [1, 70_000, 4 << 20, 16 << 20],
            pool: (16 << 20, 8),
            cancels: false,
            mtu_max: Mtu::Mtu4096,
        }
    }

    /// The same in smaller packets.
    pub(crate) fn mtu_max(self, mtu_max: Mtu) -> Self {
        Self { mtu_max, ..self }
    }
}

pub(crate) struct Host<D: Device<Memory = Region>> {
    endpoint: Endpoint<D>,
    app: App,
    link: Option<LinkId>,
}

impl<D: Device<Memory = Region>> Host<D> {
    fn new(number: u8, seed: u64, device: D, load: &Load) -> Self {
        let own = seed << 1 | u64::from(number);
        let config = EndpointConfig::new()
            .seed(own)
            .quota_chunks(32)
            .credit_total(128)
            .links_max(1)
            .mtu_max(load.mtu_max)
            .send_pools(&[(256, 512), (4096, 512), (64 << 10, 64), load.pool]);
        let endpoint = Endpoint::new(device, config).expect("an endpoint");
        Self { endpoint, app: App::new(number, seed), link: None }
    }

    pub(crate) fn device(&self) -> &D {
        self.endpoint.device()
    }

    /// What its link has counted.
    pub(crate) fn stats(&self) -> LinkStats {
        self.link.and_then(|link| self.endpoint.stats(link)).expect("the link is up")
    }

    fn turn(&mut self, oracle: &mut Oracle) -> Happened {
        let Self { endpoint, app, .. } = self;
        let mut happened = Happened { something: endpoint.poll() > 0, an_event: false };
        while let Some(event) = endpoint.next_event() {
            happened = Happened { something: true, an_event: true };
            app.on_event(endpoint, event, oracle);
        }
        app.act(endpoint, oracle);
        endpoint.flush();
        happened
    }

    /// All that tells why it is stuck.
    fn state(&self) -> String {
        let Some(link) = self.link else { return "no link".to_owned() };
        let Self { endpoint, .. } = self;
        let paths: Vec<_> = endpoint.paths(link).collect();
        let (stats, census) = (endpoint.stats(link), endpoint.link_census(link));
        let (now, due) = (endpoint.now(), endpoint.next_timeout());
        format!("at {now:?}, due at {due:?}: {stats:?}\n{census:?}\n{paths:?}")
    }
}

/// In a turn of a host.
#[derive(Clone, Copy)]
struct Happened {
    something: bool,
    an_event: bool,
}

struct Hosts<D: Device<Memory = Region>> {
    hosts: [Host<D>; 2],
    oracle: Oracle,
    seed: u64,
    /// Where time is virtual.
    world: Option<Rc<World>>,
}

impl<D: Device<Memory = Region>> Hosts<D> {
    fn join(seed: u64, devices: [D; 2], load: &Load) -> Self {
        let [near, far] = devices;
        let mut hosts = [Host::new(0, seed, near, load), Host::new(1, seed, far, load)];
        let [near, far] = &mut hosts;
        let (near_hello, near_half) = near.endpoint.offer().expect("room");
        let (far_hello, far_half) = far.endpoint.offer().expect("room");
        let joined = near.endpoint.establish(near_half, &far_hello, Side::Client);
        near.link = Some(joined.expect("they fit"));
        let joined = far.endpoint.establish(far_half, &near_hello, Side::Server);
        far.link = Some(joined.expect("they fit"));
        for host in &mut hosts {
            host.app.begin_life(host.link.expect("just joined"), 0);
        }
        Self { hosts, oracle: Oracle::new(), seed, world: None }
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let (mut idle, mut heard_at) = (0, Instant::now());
        while !done(self) {
            let turns = self.hosts.each_mut().map(|host| host.turn(&mut self.oracle));
            let found = self.oracle.violations();
            assert!(found.is_empty(), "seed {}: {found:?}", self.seed);
            let busy = turns.iter().any(|happened| happened.something);
            idle = if busy { 0 } else { idle + 1 };
            if turns.iter().any(|happened| happened.an_event) {
                heard_at = Instant::now();
            }
            let is_silent = self.world.is_none() && heard_at.elapsed() > SILENCE_MAX;
            if idle >= IDLE_TURNS_MAX || is_silent {
                let [near, far] = self.hosts.each_ref().map(Host::state);
                panic!("seed {}: stuck until {what}:\n{near}\n{far}", self.seed);
            }
            if !busy {
                self.rest(idle);
            }
        }
    }

    /// Lets time pass.
    fn rest(&mut self, idle: u32) {
        let Some(world) = &self.world else {
            // Both ends live on this thread, so neither may sleep for long.
            self.hosts[idle as usize % 2].endpoint.wait(Nanos::from_micros(50));
            return;
        };
        let now = world.now();
        let due = |host: &Host<D>| host.endpoint.next_timeout().min(host.app.next_time(now));
        let due = self.hosts.iter().map(due).min().unwrap_or(Time::NEVER);
        let next = world.next_event_time().unwrap_or(Time::NEVER).min(due);
        world.advance_to(next.min(now + Nanos::from_millis(1)).max(now));
    }
}

/// Sizes from one byte to what is streamed, the longest of all among them.
fn script(prng: &mut Prng, load: &Load) -> Vec<Planned> {
    let mut one = |number| {
        let kind = prng.below(4) as usize;
        let cancelled = load.cancels && prng.chance(0.05);
        Planned {
            at: Time::ZERO,
            channel: prng.below(2) as usize,
            len: if number == 0 { load.longest[3] } else { prng.between(1, load.longest[kind]) }
                as u32,
            segments: prng.between(1, 4) as u32,
            cancel_after: cancelled.then(|| Nanos(prng.below(2_000_000))),
            deadline_after: None,
        }
    };
    (0..load.messages).map(&mut one).collect()
}

/// Joins two endpoints on the devices, lets both send, and returns them when every message has
/// come once and intact, or has been given up, and every send buffer is back.
pub(crate) fn exchange<D: Device<Memory = Region>>(seed: u64, devices: [D; 2]) -> [Host<D>; 2] {
    exchange_of(seed, devices, &Load::small())
}

/// The same with messages of another kind.
pub(crate) fn exchange_of<D: Device<Memory = Region>>(
    seed: u64,
    devices: [D; 2],
    load: &Load,
) -> [Host<D>; 2] {
    exchange_in(seed, devices, load, None)
}

/// The same in a world of its own time.
pub(crate) fn exchange_in<D: Device<Memory = Region>>(
    seed: u64,
    devices: [D; 2],
    load: &Load,
    world: Option<Rc<World>>,
) -> [Host<D>; 2] {
    println!("seed {seed}");
    let mut hosts = Hosts::join(seed, devices, load);
    hosts.world = world;
    for (number, ordered) in [true, false].into_iter().enumerate() {
        let host = &mut hosts.hosts[number];
        let link = host.link.expect("joined");
        host.endpoint.open_channel(link, ordered).expect("room for a channel");
    }
    hosts.run_until("both channels are open", |hosts| {
        hosts.hosts.iter().all(|host| host.app.channels().len() == 2)
    });
    let mut prng = Prng::new(seed);
    for host in &mut hosts.hosts {
        host.app.perform(script(&mut prng, load), load.depth);
    }
    hosts.run_until("all messages have ended and come", |hosts| {
        hosts.hosts.iter().all(|host| host.app.is_done()) && hosts.oracle.is_settled(0)
    });
    hosts.oracle.end_life(0, [Ending::Orderly; 2]);
    assert_eq!(hosts.oracle.violations(), []);
    for host in &hosts.hosts {
        let stats = host.stats();
        assert_eq!(stats.violations, 0, "{stats:?}");
        let census = host.endpoint.buffers();
        assert_eq!(census.send_free, census.send_all, "all send buffers are back");
    }
    println!("{} messages delivered", hosts.oracle.messages_delivered());
    hosts.hosts
}
