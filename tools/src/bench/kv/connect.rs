//! How clients connect to the server of a run.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_handle::EndpointHandle;
use towpath_kv::client::{
    ChannelTransport, Client, OneSided, RawClientConfig, RawTransport, Reads, SharedLink,
    SharedTransport, TcpTransport, Transport, TransportError, Waiting, Watched,
};
use towpath_kv::raw::RawKind;
use towpath_kv::{client_config, shared_config, shared_pools};
use towpath_sim::{FaultControl, FaultLink};
use towpath_transport::{CarrierChoice, Endpoint, EndpointError};

use super::way::{SHARING, Way};
use super::worker::Asker;
use crate::random::random;

/// How long a connection may take to be made: many are made at once.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How often it is looked whether something was granted.
const TURN: Duration = Duration::from_millis(1);

/// A NIC in userspace that loses packets on purpose.
type Device = RoceDevice<FaultLink<UdpLink>>;

/// Makes connections to one server.
pub(super) struct Connector {
    pub(super) way: Way,
    pub(super) server: SocketAddr,
    pub(super) waiting: Waiting,
    /// What the devices of all clients lose.
    pub(super) faults: FaultControl,
    /// In all.
    clients: usize,
    shared: Option<(EndpointHandle, Arc<SharedLink>)>,
    /// Clients on the last of the links that clients share.
    sharing: u16,
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TransportError {
    TransportError::Connect(error.into())
}

fn device(seed: u64, faults: &FaultControl) -> Result<Device, EndpointError> {
    let link = UdpLink::bind(UdpConfig::new(Ipv4Addr::LOCALHOST.into()))?;
    let link = FaultLink::new(link, seed, faults.clone());
    // The losses replay from the seed; queue pair numbers must differ from life to life.
    Ok(RoceDevice::new(link, RoceConfig::default().seed(random())))
}

impl Connector {
    pub(super) fn new(
        way: Way,
        server: SocketAddr,
        waiting: Waiting,
        faults: &FaultControl,
        clients: usize,
    ) -> Self {
        Self { clients, way, server, waiting, faults: faults.clone(), shared: None, sharing: 0 }
    }

    /// A client that has a thread of its own; what is random of it comes from the seed.
    pub(super) fn asker(&mut self, seed: u64) -> Result<Asker, TransportError> {
        let config = self.way.client_config();
        let transport: Box<dyn Transport> = match self.way {
            Way::Tcp | Way::TowpathShared => self.watched(seed, self.waiting)?,
            Way::Rc => Box::new(self.raw(RawKind::Rc, seed)?),
            Way::Uc => Box::new(self.raw(RawKind::Uc, seed)?),
            Way::Ud => Box::new(self.raw(RawKind::Ud, seed)?),
            Way::TowpathUc => Box::new(self.channel(CarrierChoice::Uc, seed)?),
            Way::TowpathRc => Box::new(self.channel(CarrierChoice::Rc, seed)?),
            Way::TowpathTcp => Box::new(self.channel(CarrierChoice::Tcp, seed)?),
            Way::OneSided => {
                let granted = Box::new(self.granted(seed)?);
                return Ok(Asker::OneSided(OneSided::new(granted, config)));
            }
        };
        Ok(Asker::Plain(Client::new(transport, config)))
    }

    /// A connection of a client that shares its thread with others, where that may be.
    pub(super) fn watched(
        &mut self,
        seed: u64,
        waiting: Waiting,
    ) -> Result<Box<dyn Watched>, TransportError> {
        match self.way {
            Way::Tcp => Ok(Box::new(TcpTransport::connect(self.server, waiting, CONNECT_TIMEOUT)?)),
            Way::TowpathShared => Ok(Box::new(self.share(seed, waiting)?)),
            _ => Err(failed(format!("a client over {} has a thread", self.way.word()))),
        }
    }

    fn raw(&self, kind: RawKind, seed: u64) -> Result<RawTransport<Device>, TransportError> {
        let config = RawClientConfig { under_way: 1, ..RawClientConfig::new(kind, self.waiting) };
        let device = device(seed, &self.faults).map_err(failed)?;
        RawTransport::connect(device, self.server, config, CONNECT_TIMEOUT)
    }

    fn channel(
        &self,
        carrier: CarrierChoice,
        seed: u64,
    ) -> Result<ChannelTransport<Device>, TransportError> {
        let device = device(seed, &self.faults).map_err(failed)?;
        let endpoint = Endpoint::new(device, client_config().carrier(carrier)).map_err(failed)?;
        ChannelTransport::on(endpoint, self.server, self.waiting, CONNECT_TIMEOUT)
    }

    /// A channel to a server that has granted its memory: a link that nobody drives is not set up
    /// to the end, and there are only so many of these at a time.
    fn granted(&self, seed: u64) -> Result<ChannelTransport<Device>, TransportError> {
        let mut transport = self.channel(CarrierChoice::Uc, seed)?;
        let until = Instant::now() + CONNECT_TIMEOUT;
        while transport.granted().is_none() {
            // Nothing was asked, so nothing comes.
            transport.receive(TURN, &mut |_| {})?;
            if Instant::now() >= until {
                return Err(TransportError::Gone(String::from("the server grants nothing")));
            }
        }
        Ok(transport)
    }

    fn share(&mut self, seed: u64, waiting: Waiting) -> Result<SharedTransport, TransportError> {
        let (endpoint, link) = match self.shared.take() {
            Some((endpoint, link)) if self.sharing < SHARING => (endpoint, link),
            before => {
                let endpoint = match before {
                    Some((endpoint, _)) => endpoint,
                    None => {
                        let pools = shared_pools(self.clients.max(SHARING.into()));
                        let config = shared_config(client_config(), SHARING).send_pools(&pools);
                        let faults = self.faults.clone();
                        let make = move || device(seed, &faults);
                        EndpointHandle::spawn(make, config.carrier(CarrierChoice::Uc))
                            .map_err(failed)?
                    }
                };
                self.sharing = 0;
                let link = SharedLink::new(endpoint.clone(), self.server);
                (endpoint, link)
            }
        };
        self.sharing += 1;
        let opened = SharedTransport::open(&link, waiting);
        self.shared = Some((endpoint, link));
        opened
    }
}
