//! One server and its clients, in turns on one thread, over sockets with faults and holes in them.

use crate::client::Client;
use crate::dice::Weather;
use crate::model::Broken;
use crate::server::Server;
use crate::soak;
use std::net::{Ipv4Addr, SocketAddr};
use towpath_base::{Nanos, Time};
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::Carrier;
use towpath_sim::{FaultLink, Hole};
use towpath_transport::{Endpoint, EndpointConfig, Fallback};

type Device = RoceDevice<Hole<FaultLink<UdpLink>>>;

/// An operation that takes longer than this hangs.
pub const DEADLINE: Nanos = Nanos::from_secs(120);

/// A carrier that is silent for so long is left, and a worse one is kept for so long at least.
const CARRIER_SPAN: Nanos = Nanos::from_millis(30);

fn endpoint(seed: u64, number: u64, weather: &Weather) -> Endpoint<Device> {
    let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into()).force_buffers(false);
    let link = UdpLink::bind(udp).expect("loopback UDP");
    let link = FaultLink::new(link, seed ^ number, weather.faults.clone());
    let link = Hole::new(link, weather.hole.clone());
    let device = RoceDevice::new(link, RoceConfig::default().seed(seed << 8 | number));
    let config = EndpointConfig::new()
        .fallback(Fallback::RcThenTcp)
        .tune_links(|link| link.fallback(CARRIER_SPAN, CARRIER_SPAN).peer_timeout(DEADLINE))
        .quota_chunks(16)
        .credit_total(16)
        .connect_timeout(DEADLINE)
        .links_max(if number == 0 { 16 } else { 1 })
        .send_pools(&[(64, 1024), (16 << 10, 512)])
        .seed(seed << 16 | number);
    Endpoint::new(device, config).expect("an endpoint")
}

/// The server and its clients.
pub struct Rig {
    server: Server<Device>,
    clients: Vec<Client<Device>>,
}

impl Rig {
    pub fn new(seed: u64, clients: u64) -> Self {
        let mut server = endpoint(seed, 0, &Weather::default());
        let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let client = |number| {
            let weather = Weather::default();
            let mut endpoint = endpoint(seed, number, &weather);
            endpoint.connect(addr).expect("room");
            Client::new(endpoint, weather, (seed << 8 ^ number, DEADLINE))
        };
        let clients = (1..=clients).map(client).collect();
        Self { server: Server::new(server, DEADLINE), clients }
    }

    pub fn clients(&self) -> &[Client<Device>] {
        &self.clients
    }

    /// How often links of the server came to a carrier.
    pub fn server_rides_to(&self, to: Carrier) -> u64 {
        self.server.rides.to(to)
    }

    /// Lets clients work until each has had so many more answers and rides on `carrier`. Who is
    /// there rests: if all went on, they could be through with what they do by turns for ever.
    pub fn work(&mut self, operations: u64, carrier: Carrier) -> Result<(), Broken> {
        for client in &mut self.clients {
            client.work_to(client.answered() + operations);
        }
        let until = self.now() + DEADLINE;
        let is_there = |client: &Client<Device>| client.carrier() == Some(carrier);
        while !self.clients.iter().all(|client| client.is_done() && is_there(client)) {
            for client in self.clients.iter_mut().filter(|c| c.is_done() && !is_there(c)) {
                client.work_to(client.answered() + 1);
            }
            assert!(self.now() < until, "all links on {carrier}: {}", self.standing());
            soak::Rig::step(self)?;
        }
        Ok(())
    }

    /// How each client and the server's links stand, for who looks into a failure.
    fn standing(&self) -> String {
        let mut text = String::new();
        let server = &self.server.endpoint;
        let server = server.links().map(|link| (server, link));
        let clients = self.clients.iter().filter_map(|c| Some((&c.endpoint, c.at()?.0)));
        for (endpoint, link) in clients.chain(server) {
            let (carrier, stats) = (endpoint.carrier_of(link), endpoint.stats(link));
            text += &format!("\n{carrier:?} {stats:?} {:?}", endpoint.link_census(link));
            for path in endpoint.paths(link) {
                text += &format!("\n  {path:?}");
            }
        }
        text
    }

    fn now(&self) -> Time {
        self.server.endpoint.now()
    }
}

impl soak::Rig for Rig {
    type Device = Device;

    fn count(&self) -> usize {
        self.clients.len()
    }

    fn client(&mut self, number: usize) -> &mut Client<Device> {
        &mut self.clients[number]
    }

    fn server(&mut self) -> &mut Server<Device> {
        &mut self.server
    }

    fn step(&mut self) -> Result<(), Broken> {
        let mut busy = self.server.turn()?;
        for client in &mut self.clients {
            busy |= client.turn()?;
        }
        if !busy {
            self.server.endpoint.wait(Nanos::from_micros(100));
        }
        Ok(())
    }
}
