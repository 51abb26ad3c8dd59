//! One server and its clients, in turns on one thread, over sockets with faults and holes in them.

use crate::hole::{Hole, HoleControl};
use crate::store::{Asker, Shelf};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use towpath_base::Nanos;
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::{ChannelId, Outcome};
use towpath_sim::{FaultControl, FaultLink, FaultPlan};
use towpath_transport::{Carrier, Endpoint, EndpointConfig, Event, Fallback, LinkId, SendOptions};

type Device = RoceDevice<Hole<FaultLink<UdpLink>>>;

/// An operation that takes longer than this hangs.
const DEADLINE: Nanos = Nanos::from_secs(20);

/// Operations under way of each client.
const DEPTH: usize = 8;

/// Turns in which nothing happens before a run counts as stuck, each of 100 us or more.
const IDLE_TURNS_MAX: u64 = 600_000;

pub const BYTES_MAX: u64 = 12_000;

fn endpoint(seed: u64, number: u64, hole: &HoleControl, faults: &FaultControl) -> Endpoint<Device> {
    let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into()).force_buffers(false);
    let link = UdpLink::bind(udp).expect("loopback UDP");
    let link = FaultLink::new(link, seed ^ number, faults.clone());
    let link = Hole::new(link, hole.clone());
    let device = RoceDevice::new(link, RoceConfig::default().seed(seed << 8 | number));
    let config = EndpointConfig::new()
        .fallback(Fallback::RcThenTcp)
        .tune_links(|link| {
            link.fallback(Nanos::from_millis(30), Nanos::from_millis(30)).peer_timeout(DEADLINE)
        })
        .quota_chunks(16)
        .credit_total(16)
        .links_max(if number == 0 { 16 } else { 1 })
        .send_pools(&[(64, 1024), (16 << 10, 512)])
        .seed(seed << 16 | number);
    Endpoint::new(device, config).expect("an endpoint")
}

/// A client and its link.
pub struct Client {
    endpoint: Endpoint<Device>,
    pub hole: HoleControl,
    pub faults: FaultControl,
    at: Option<(LinkId, ChannelId)>,
    pub asker: Asker,
    /// What its link rode on, one after the other.
    pub rides: Vec<Carrier>,
}

impl Client {
    pub fn carrier(&self) -> Option<Carrier> {
        self.endpoint.carrier_of(self.at?.0)
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { link, .. } => {
                self.endpoint.open_channel(link, true).expect("room");
            }
            Event::ChannelOpened { link, channel, .. } => self.at = Some((link, channel)),
            Event::Message(message) => {
                self.asker.take_in(&message.to_vec());
                self.endpoint.release(message);
            }
            Event::Sent { outcome, .. } => assert_eq!(outcome, Outcome::Delivered, "no hang"),
            Event::CarrierChanged { to, .. } => self.rides.push(to),
            Event::PathChanged { .. } | Event::Device { .. } => {}
            other => panic!("nothing else happens: {other:?}"),
        }
    }

    fn turn(&mut self) -> bool {
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            self.on_event(event);
        }
        busy
    }

    /// Asks on while there is room.
    fn ask(&mut self, next: impl Fn(&mut Asker) -> Option<crate::store::Request>) {
        let Some((link, channel)) = self.at else { return };
        while self.asker.under_way() < DEPTH {
            let Some(request) = next(&mut self.asker) else { return };
            let options = SendOptions::new().deadline(self.endpoint.now() + DEADLINE);
            let buf = self.endpoint.copy(&request.emit()).expect("a free buffer");
            self.endpoint.send(link, channel, buf, options).expect("an open channel");
        }
    }
}

pub struct Rig {
    server: Endpoint<Device>,
    shelves: BTreeMap<usize, Shelf>,
    pub clients: Vec<Client>,
    /// What links of the server rode on, all of them.
    pub server_rides: Vec<Carrier>,
}

impl Rig {
    pub fn new(seed: u64, clients: u64) -> Self {
        let none = || FaultControl::new(FaultPlan::none());
        let mut server = endpoint(seed, 0, &HoleControl::default(), &none());
        let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let client = |number| {
            let (hole, faults) = (HoleControl::default(), none());
            let mut endpoint = endpoint(seed, number, &hole, &faults);
            endpoint.connect(addr).expect("room");
            let asker = Asker::new(seed << 8 ^ number);
            Client { endpoint, hole, faults, at: None, asker, rides: Vec::new() }
        };
        let clients = (1..=clients).map(client).collect();
        Self { server, shelves: BTreeMap::new(), clients, server_rides: Vec::new() }
    }

    fn serve(&mut self) -> bool {
        let mut busy = self.server.poll() > 0;
        while let Some(event) = self.server.next_event() {
            busy = true;
            match event {
                Event::Message(message) => {
                    let (link, channel) = (message.link(), message.channel());
                    let shelf = self.shelves.entry(link.index()).or_default();
                    let reply = shelf.answer(&message.to_vec());
                    self.server.release(message);
                    let options = SendOptions::new().deadline(self.server.now() + DEADLINE);
                    let buf = self.server.copy(&reply).expect("a free buffer");
                    self.server.send(link, channel, buf, options).expect("an open channel");
                }
                Event::Sent { outcome, .. } => assert_eq!(outcome, Outcome::Delivered, "no hang"),
                Event::CarrierChanged { to, .. } => self.server_rides.push(to),
                Event::PathChanged { .. } | Event::Device { .. } | Event::Accepted { .. } => {}
                Event::ChannelOpened { .. } => {}
                other => panic!("nothing else happens: {other:?}"),
            }
        }
        self.server.flush();
        busy
    }

    /// Turns everybody until `done`; clients ask for what `next` says meanwhile.
    pub fn run(
        &mut self,
        next: impl Fn(&mut Asker) -> Option<crate::store::Request>,
        mut done: impl FnMut(&mut Vec<Client>) -> bool,
    ) {
        let mut idle_turns = 0;
        while !done(&mut self.clients) {
            let mut busy = self.serve();
            for client in &mut self.clients {
                busy |= client.turn();
                client.ask(&next);
                client.endpoint.flush();
            }
            idle_turns = if busy { 0 } else { idle_turns + 1 };
            assert!(idle_turns < IDLE_TURNS_MAX, "stuck");
            if !busy {
                self.server.wait(Nanos::from_micros(100));
            }
        }
    }

    /// Nothing is under way any more, and every acknowledged value is there.
    pub fn check(&mut self) {
        self.run(|_| None, |clients| clients.iter().all(|client| client.asker.under_way() == 0));
        for key in 0..crate::store::KEYS {
            for client in &mut self.clients {
                let already = client.asker.asked();
                client.ask(|asker| (asker.asked() == already).then(|| asker.read(key)));
            }
            self.run(
                |_| None,
                |clients| clients.iter().all(|client| client.asker.under_way() == 0),
            );
        }
        for client in &mut self.clients {
            client.turn();
            client.endpoint.flush();
            let census = client.endpoint.buffers();
            assert_eq!(census.recv_free + census.recv_posted, census.recv_all);
            let (link, _) = client.at.expect("it is up");
            let stats = client.endpoint.stats(link).expect("it is up");
            assert_eq!((stats.violations, stats.chunks_stale), (0, 0), "{stats:?}");
            assert_eq!(client.endpoint.endpoint_stats().tcp_breaches, 0);
        }
    }
}
