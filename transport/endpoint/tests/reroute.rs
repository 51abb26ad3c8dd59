//! Links over real sockets, as many as there are by default, on which packets vanish by source
//! port, by one NIC and by two.

use std::net::{Ipv4Addr, SocketAddr};
use towpath_base::Nanos;
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{Bundle, RoceConfig, RoceDevice};
use towpath_proto::{ChannelId, LinkStats, Outcome, PathState};
use towpath_sim::{FaultControl, FaultLink, FaultPlan};
use towpath_transport::{Endpoint, EndpointConfig, Event, Fallback, LinkId, SendOptions};

type Device = RoceDevice<FaultLink<Bundle<UdpLink>>>;

/// Source ports of a NIC.
const PORTS: u16 = 16;

/// Turns in which nothing happens before a run counts as stuck, each of 100 us or more.
const IDLE_TURNS_MAX: u64 = 200_000;

struct Host {
    endpoint: Endpoint<Device>,
    faults: FaultControl,
    link: Option<LinkId>,
    channel: Option<ChannelId>,
    delivered: usize,
    received: usize,
}

impl Host {
    fn new(seed: u64, paths: usize, nics: u8) -> Self {
        let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into()).force_buffers(false);
        let udp = (2..=nics).fold(udp, |udp, nic| udp.nic(Ipv4Addr::new(127, 0, 0, nic).into()));
        let link = Bundle::<UdpLink>::bind_one(&udp).expect("loopback UDP");
        let faults = FaultControl::new(FaultPlan::none());
        let link = FaultLink::new(link, seed, faults.clone());
        let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
        let config = EndpointConfig::new().paths(paths).fallback(Fallback::None);
        let config = config.links_max(1).seed(seed);
        let endpoint = Endpoint::new(device, config).expect("an endpoint");
        Self { endpoint, faults, link: None, channel: None, delivered: 0, received: 0 }
    }

    /// What it sends from these ports vanishes.
    fn swallow(&self, ports: std::ops::Range<u16>) {
        self.faults.set_transmit(FaultPlan::none().black_hole_ports(ports));
    }

    fn turn(&mut self) -> bool {
        let Self { endpoint, link: own, channel: open, delivered, received, .. } = self;
        endpoint.turn(|endpoint, event| match event {
            Event::Connected { link, .. } => {
                endpoint.open_channel(link, true).expect("room");
            }
            Event::ChannelOpened { link, channel, .. } => {
                (*own, *open) = (Some(link), Some(channel));
            }
            Event::Sent { outcome, .. } => {
                assert_eq!(outcome, Outcome::Delivered);
                *delivered += 1;
            }
            Event::Message(message) => {
                *received += 1;
                endpoint.release(message);
            }
            Event::LinkDown { .. } => panic!("the link goes on"),
            _ => {}
        })
    }

    fn stats(&self) -> LinkStats {
        self.endpoint.stats(self.link.expect("it is up")).expect("it is up")
    }

    /// How many of its paths are good.
    fn good(&self) -> usize {
        let link = self.link.expect("it is up");
        self.endpoint.paths(link).filter(|path| path.facts.state == PathState::Good).count()
    }

    /// The source ports that its paths leave from.
    fn ports(&self) -> Vec<u16> {
        let link = self.link.expect("it is up");
        self.endpoint.paths(link).map(|path| path.source_port).collect()
    }
}

/// A client and a server.
struct Rig([Host; 2]);

impl Rig {
    fn new(seed: u64, paths: usize) -> Self {
        Self::with_nics(seed, paths, [1, 1])
    }

    fn with_nics(seed: u64, paths: usize, [near, far]: [u8; 2]) -> Self {
        println!("seed {seed}, {paths} paths");
        let hosts = [(seed << 1, near), (seed << 1 | 1, far)];
        let mut rig = Self(hosts.map(|(seed, nics)| Host::new(seed, paths, nics)));
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let addr = rig.0[1].endpoint.listen(any_port).expect("a free port");
        rig.0[0].endpoint.connect(addr).expect("room");
        rig.run(|[client, server]| client.channel.is_some() && server.channel.is_some());
        rig
    }

    fn run(&mut self, done: impl Fn(&[Host; 2]) -> bool) {
        let mut idle_turns = 0;
        while !done(&self.0) {
            let busy = self.0[0].turn() | self.0[1].turn();
            idle_turns = if busy { 0 } else { idle_turns + 1 };
            assert!(idle_turns < IDLE_TURNS_MAX, "stuck");
            if !busy {
                self.0[1].endpoint.wait(Nanos::from_micros(100));
            }
        }
    }

    /// Sends messages and waits until they are delivered.
    fn exchange(&mut self, messages: usize) {
        let wanted = self.0[0].delivered + messages;
        let client = &mut self.0[0];
        let (link, channel) = (client.link.expect("it is up"), client.channel.expect("it is open"));
        for _ in 0..messages {
            let buf = client.endpoint.copy(&[7; 3_000]).expect("a free buffer");
            client.endpoint.send(link, channel, buf, SendOptions::new()).expect("room");
        }
        self.run(|[client, server]| client.delivered == wanted && server.received == wanted);
    }
}

#[test]
fn an_only_path_whose_source_port_swallows_goes_on_from_another() {
    let mut rig = Rig::new(1, 1);
    rig.exchange(100);
    assert_eq!(rig.0[0].ports(), [0]);
    rig.0[0].swallow(0..1);
    rig.exchange(100);
    assert_ne!(rig.0[0].ports(), [0]);
    assert!(rig.0[0].stats().path_moves >= 1);
}

#[test]
fn acks_whose_source_port_swallows_leave_from_another() {
    let mut rig = Rig::new(2, 1);
    rig.exchange(100);
    rig.0[1].swallow(0..1);
    rig.exchange(100);
    assert_ne!(rig.0[1].ports(), [0]);
    assert!(rig.0[1].stats().ack_reroutes >= 1);
}

#[test]
fn paths_whose_source_ports_all_swallow_at_both_ends_go_on_from_others() {
    let mut rig = Rig::new(3, 4);
    rig.exchange(100);
    assert_eq!(rig.0[0].ports(), [0, 1, 2, 3]);
    rig.0.iter().for_each(|host| host.swallow(0..4));
    rig.exchange(100);
    assert!(rig.0.iter().all(|host| host.ports().iter().any(|&port| port >= 4)));
    assert!(rig.0.iter().all(|host| host.faults.counters().black_holed > 0));
}

#[test]
fn paths_of_all_nics_are_good_once_probes_say_so_whatever_the_peer_has() {
    for (seed, nics) in [(4, [2, 2]), (5, [2, 1]), (6, [3, 2]), (7, [4, 4])] {
        let mut rig = Rig::with_nics(seed, 4, nics);
        rig.run(|hosts| hosts.iter().all(|host| host.good() == 4));
        let ports = rig.0[0].ports();
        for (path, port) in (0..).zip(ports) {
            assert_eq!(port / PORTS, path % u16::from(nics[0]), "path {path}");
        }
        rig.exchange(100);
    }
}

#[test]
fn a_client_of_one_nic_gets_one_of_the_servers() {
    let mut rig = Rig::with_nics(8, 4, [1, 2]);
    rig.exchange(100);
    assert_eq!(rig.0[1].ports(), [0, 1, 2, 3]);
    assert_eq!(rig.0[1].good(), 4, "none of them is of another NIC");
}

#[test]
fn messages_go_on_by_one_nic_when_the_other_swallows_at_either_end() {
    for gone in [0..PORTS, PORTS..2 * PORTS] {
        let mut rig = Rig::with_nics(9, 4, [2, 2]);
        rig.run(|hosts| hosts.iter().all(|host| host.good() == 4));
        rig.exchange(100);
        rig.0.iter().for_each(|host| host.swallow(gone.clone()));
        rig.exchange(200);
        assert!(rig.0[0].stats().path_doubts >= 1);
        rig.0.iter().for_each(|host| host.faults.set_transmit(FaultPlan::none()));
        rig.run(|hosts| hosts.iter().all(|host| host.good() >= 3));
        rig.exchange(100);
    }
}
