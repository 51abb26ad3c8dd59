//! The same promises over real UDP sockets on loopback, with the buffers of a fresh machine.
//!
//! Bounded by turns, never by the clock: how fast it goes is not judged here.

use std::net::Ipv4Addr;
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_lab::app::{App, Planned};
use towpath_lab::oracle::{Ending, Oracle};
use towpath_proto::Side;
use towpath_sim::{FaultControl, FaultCounters, FaultLink, FaultPlan};
use towpath_transport::{Endpoint, EndpointConfig, LinkId};

type Device = RoceDevice<FaultLink<UdpLink>>;

/// Turns in which nothing at all moves after which the test gives up: minutes of waiting.
const IDLE_TURNS_MAX: u32 = 2_000_000;

struct Host {
    endpoint: Endpoint<Device>,
    app: App,
    control: FaultControl,
    link: Option<LinkId>,
}

impl Host {
    fn new(number: u8, seed: u64, plan: FaultPlan) -> Self {
        // Without the privilege to pass the system's limits: the stock buffers.
        let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into()).force_buffers(false);
        let control = FaultControl::new(plan);
        let link = UdpLink::bind(udp).expect("loopback UDP");
        let link = FaultLink::new(link, seed ^ u64::from(number), control.clone());
        let own = seed << 1 | u64::from(number);
        let device = RoceDevice::new(link, RoceConfig::default().seed(own));
        let config =
            EndpointConfig::new().seed(own).quota_chunks(32).credit_total(128).links_max(1);
        let endpoint = Endpoint::new(device, config).expect("an endpoint");
        Self { endpoint, app: App::new(number, seed), control, link: None }
    }

    /// True when something happened.
    fn turn(&mut self, oracle: &mut Oracle) -> bool {
        let Self { endpoint, app, .. } = self;
        let mut busy = endpoint.poll() > 0;
        while let Some(event) = endpoint.next_event() {
            busy = true;
            app.on_event(endpoint, event, oracle);
        }
        app.act(endpoint, oracle);
        endpoint.flush();
        busy
    }
}

struct Hosts {
    hosts: [Host; 2],
    oracle: Oracle,
    seed: u64,
}

impl Hosts {
    fn new(seed: u64, plan: &FaultPlan) -> Self {
        let mut hosts = [0, 1].map(|number| Host::new(number, seed, plan.clone()));
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
        Self { hosts, oracle: Oracle::new(), seed }
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let mut idle = 0;
        while !done(self) {
            let [near, far] = &mut self.hosts;
            let busy = near.turn(&mut self.oracle) | far.turn(&mut self.oracle);
            let found = self.oracle.violations();
            assert!(found.is_empty(), "seed {}: {found:?}", self.seed);
            idle = if busy { 0 } else { idle + 1 };
            let stats = || self.hosts.each_ref().map(|h| h.link.and_then(|l| h.endpoint.stats(l)));
            assert!(idle < IDLE_TURNS_MAX, "seed {}: stuck until {what}: {:?}", self.seed, stats());
            if !busy {
                // Both ends live on this thread, so neither may sleep for long.
                self.hosts[idle as usize % 2].endpoint.wait(Nanos::from_micros(50));
            }
        }
    }

    fn faults(&self) -> FaultCounters {
        let [near, far] = &self.hosts;
        near.control.counters().plus(far.control.counters())
    }
}

fn plan(loss: f64) -> FaultPlan {
    let us = Nanos::from_micros;
    FaultPlan::none()
        .drop(loss)
        .duplicate(0.01, us(500))
        .reorder(0.01, 8, us(200))
        .corrupt(0.005)
        .late(0.005, us(100), us(20_000))
}

/// Sizes from one byte to what is streamed, most of them small; now and then one is given up.
fn script(prng: &mut Prng, count: u64) -> Vec<Planned> {
    let mut one = || {
        let most = [100, 5_000, 70_000, 400_000][prng.below(4) as usize];
        Planned {
            at: Time::ZERO,
            channel: prng.below(2) as usize,
            len: prng.between(1, most) as u32,
            segments: prng.between(1, 4) as u32,
            cancel_after: prng.chance(0.05).then(|| Nanos(prng.below(2_000_000))),
            deadline_after: None,
        }
    };
    (0..count).map(|_| one()).collect()
}

fn exchange(seed: u64, loss: f64) {
    println!("seed {seed}");
    let mut hosts = Hosts::new(seed, &plan(loss));
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
        host.app.perform(script(&mut prng, 300), 32);
    }
    hosts.run_until("all messages have ended and come", |hosts| {
        hosts.hosts.iter().all(|host| host.app.is_done()) && hosts.oracle.is_settled(0)
    });
    hosts.oracle.end_life(0, [Ending::Orderly; 2]);
    assert_eq!(hosts.oracle.violations(), []);
    for host in &hosts.hosts {
        let stats = host.link.and_then(|link| host.endpoint.stats(link)).expect("still up");
        assert_eq!(stats.violations, 0, "{stats:?}");
        assert_eq!(host.endpoint.device().counters().no_recv_wqe, 0);
        let census = host.endpoint.buffers();
        assert_eq!(census.send_free, census.send_all, "all send buffers are back");
    }
    let faults = hosts.faults();
    let each = [faults.dropped_random, faults.duplicated, faults.reordered, faults.corrupted];
    assert!(each.iter().all(|&count| count > 0), "{faults:?}");
    println!("{} messages, {faults:?}", hosts.oracle.messages_delivered());
}

#[test]
fn messages_over_sockets_that_lose_one_in_a_hundred_come_once_and_intact() {
    exchange(1, 0.01);
}

#[test]
fn messages_over_sockets_that_lose_one_in_twenty_come_once_and_intact() {
    exchange(2, 0.05);
}
