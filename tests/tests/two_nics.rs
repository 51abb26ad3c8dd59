//! Hosts with two wires between them: one goes down under load and comes back, and both carry
//! more than one.
//!
//! The hosts are network namespaces, which not everybody may make: see `towpath_tests::wires`.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use towpath_device_roce::udp::UdpConfig;
use towpath_tests::namespace::within;
use towpath_tests::wires::{End, Host, skipped, wire};
use towpath_transport::{
    ChannelId, Endpoint, EndpointConfig, Event, LinkId, Nanos, Outcome, PathState, RoceUdp,
    SendOptions,
};

/// Longer than anything here takes, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

const MESSAGE_BYTES: usize = 64 << 10;

/// Messages under way at a time.
const DEPTH: usize = 32;

/// Two hosts with two wires between them.
fn pair() -> Option<[Host; 2]> {
    let made = || {
        let hosts = [Host::new()?, Host::new()?];
        for (name, number) in [("wire0", 0), ("wire1", 1)] {
            let addrs = [1, 2].map(|host| format!("10.76.{number}.{host}/24"));
            let [near, far] = [0, 1].map(|at| [addrs[at].as_str()]);
            let end = |at: usize, addrs| End { host: &hosts[at], name, addrs, mtu: 9000 };
            wire(&end(0, &near), &end(1, &far))?;
        }
        Ok(hosts)
    };
    skipped(made())
}

/// Both ends in one thread, each with sockets in its namespace.
struct Rig {
    near: Endpoint<RoceUdp>,
    far: Endpoint<RoceUdp>,
    open: Option<(LinkId, ChannelId)>,
    under_way: usize,
    delivered: u64,
    last_at: Instant,
    longest_gap: Duration,
}

impl Rig {
    fn new(hosts: &[Host; 2], nics: u8) -> Self {
        let endpoint = |at: usize| {
            let ip = |nic: u8| [10, 76, nic, at as u8 + 1].into();
            let udp = (1..nics).fold(UdpConfig::new(ip(0)), |udp, nic| udp.nic(ip(nic)));
            let config = EndpointConfig::new().send_pools(&[(MESSAGE_BYTES, DEPTH)]);
            within(&hosts[at].file(), || Endpoint::udp(udp, config).expect("an endpoint"))
        };
        let (mut near, mut far) = (endpoint(0).expect("entered"), endpoint(1).expect("entered"));
        let listen = || far.listen(([10, 76, 0, 2], 0).into()).expect("a free port");
        let addr = within(&hosts[1].file(), listen).expect("entered");
        let connect = || near.connect(addr).map(|_| ()).expect("room");
        within(&hosts[0].file(), connect).expect("entered");
        let (delivered, longest_gap) = (0, Duration::ZERO);
        let last_at = Instant::now();
        let mut rig = Self { near, far, open: None, under_way: 0, delivered, last_at, longest_gap };
        rig.run_until(Self::is_whole);
        rig
    }

    /// Whether its link is up and all paths are good.
    fn is_whole(&self) -> bool {
        let Some((link, _)) = self.open else { return false };
        self.near.paths(link).all(|path| path.facts.state == PathState::Good)
    }

    fn turn(&mut self) -> bool {
        let Self { near, far, open, under_way, delivered, last_at, longest_gap } = self;
        let busy = near.turn(|endpoint, event| match event {
            Event::Connected { link, .. } => {
                endpoint.open_channel(link, false).expect("room");
            }
            Event::ChannelOpened { link, channel, .. } => *open = Some((link, channel)),
            Event::Sent { outcome, .. } => {
                assert_eq!(outcome, Outcome::Delivered);
                *longest_gap = last_at.elapsed().max(*longest_gap);
                *last_at = Instant::now();
                (*under_way, *delivered) = (*under_way - 1, *delivered + 1);
            }
            Event::LinkDown { reason, .. } => panic!("the link goes on: {reason:?}"),
            Event::ConnectFailed { error, .. } => panic!("{error}"),
            _ => {}
        });
        busy | far.turn(|endpoint, event| match event {
            Event::Message(message) => endpoint.release(message),
            Event::LinkDown { reason, .. } => panic!("the link goes on: {reason:?}"),
            _ => {}
        })
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "it does not happen");
            if !self.turn() {
                self.far.wait(Nanos::from_micros(50));
            }
        }
    }

    /// Sends as fast as it goes until `done`, and waits for the rest; messages a second.
    fn stream(&mut self, mut done: impl FnMut() -> bool) -> f64 {
        let (link, channel) = self.open.expect("it is up");
        let (start, before) = (Instant::now(), self.delivered);
        (self.last_at, self.longest_gap) = (start, Duration::ZERO);
        while !done() {
            assert!(start.elapsed() < PATIENCE, "it does not happen");
            while self.under_way < DEPTH
                && let Ok(buf) = self.near.copy(&[7; MESSAGE_BYTES])
            {
                self.near.send(link, channel, buf, SendOptions::new()).expect("room");
                self.under_way += 1;
            }
            self.turn();
        }
        self.run_until(|rig| rig.under_way == 0);
        (self.delivered - before) as f64 / start.elapsed().as_secs_f64()
    }
}

/// Takes a wire of the first host down and brings it back, and tells when it is over.
fn flap(host: &Host, name: &str, over: &Sender<()>) {
    for state in ["down", "up"] {
        std::thread::sleep(Duration::from_millis(700));
        host.ip(&format!("link set {name} {state}")).expect("it obeys");
    }
    std::thread::sleep(Duration::from_millis(700));
    over.send(()).expect("somebody waits");
}

fn is_over(over: &Receiver<()>) -> bool {
    over.try_recv().is_ok()
}

#[test]
fn a_wire_that_goes_down_under_load_and_comes_back_stops_nothing_for_a_tenth_of_a_second() {
    for name in ["wire0", "wire1"] {
        let Some(hosts) = pair() else { return };
        let mut rig = Rig::new(&hosts, 2);
        let (tell, over) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| flap(&hosts[0], name, &tell));
            rig.stream(|| is_over(&over));
        });
        println!("{name}: {} messages, longest gap {:?}", rig.delivered, rig.longest_gap);
        assert!(rig.longest_gap < Duration::from_millis(100), "{name}: {:?}", rig.longest_gap);
        rig.run_until(Rig::is_whole);
    }
}

#[test]
fn two_wires_of_one_gigabit_carry_more_than_one() {
    let Some(hosts) = pair() else { return };
    for host in &hosts {
        for name in ["wire0", "wire1"] {
            let shape = "root tbf rate 1gbit burst 128kb latency 10ms";
            let shaped = host.run(&format!("tc qdisc add dev {name} {shape}"));
            if skipped(shaped).is_none() {
                return;
            }
        }
    }
    let rates = [1, 2].map(|nics| {
        let mut rig = Rig::new(&hosts, nics);
        let start = Instant::now();
        rig.stream(|| start.elapsed() > Duration::from_secs(2))
    });
    let gbps = rates.map(|rate| rate * MESSAGE_BYTES as f64 * 8.0 / 1e9);
    println!("one wire {:.2} Gb/s, two {:.2} Gb/s", gbps[0], gbps[1]);
    assert!(gbps[1] > 1.6 * gbps[0], "{gbps:?}");
}
