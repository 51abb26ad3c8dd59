//! The ways in which requests can go, and what is asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_kv::client::{
    ChannelTransport, ClientConfig, TcpTransport, Transport, TransportError, Waiting,
};
use towpath_kv::client_config;
use towpath_kv::workload::Mix;
use towpath_sim::{FaultControl, FaultLink};
use towpath_transport::{CarrierChoice, Endpoint};

use crate::random::random;

/// How long a connection may take to be made: many are made at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// What carries requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Kernel TCP.
    Tcp,
    /// A Towpath channel on UC, whose losses are mended in software.
    TowpathUc,
    /// A Towpath channel on RC.
    TowpathRc,
    /// A Towpath channel on kernel TCP.
    TowpathTcp,
}

impl Way {
    /// All.
    pub(super) const ALL: [Self; 4] =
        [Self::Tcp, Self::TowpathUc, Self::TowpathRc, Self::TowpathTcp];

    /// Its name.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::TowpathUc => "towpath-uc",
            Self::TowpathRc => "towpath-rc",
            Self::TowpathTcp => "towpath-tcp",
        }
    }

    /// That of a name.
    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.word() == word)
    }

    /// Flags by which the server listens for it, beside its front for TCP.
    pub(super) const fn server_words(self) -> &'static [&'static str] {
        match self {
            Self::Tcp => &[],
            Self::TowpathUc => &["--links=127.0.0.1:0", "--carrier=uc"],
            Self::TowpathRc => &["--links=127.0.0.1:0", "--carrier=rc"],
            Self::TowpathTcp => &["--links=127.0.0.1:0", "--carrier=tcp"],
        }
    }

    /// How its clients ask.
    pub(super) fn client_config(self) -> ClientConfig {
        ClientConfig::default()
    }

    /// One client's connection, whose random choices come from a seed.
    pub(super) fn connect(
        self,
        server: SocketAddr,
        waiting: Waiting,
        (seed, faults): (u64, &FaultControl),
    ) -> Result<Box<dyn Transport>, TransportError> {
        let carrier = match self {
            Self::Tcp => {
                let transport = TcpTransport::connect(server, waiting, CONNECT_TIMEOUT)?;
                return Ok(Box::new(transport));
            }
            Self::TowpathUc => CarrierChoice::Uc,
            Self::TowpathRc => CarrierChoice::Rc,
            Self::TowpathTcp => CarrierChoice::Tcp,
        };
        let failed =
            |error: Box<dyn std::error::Error + Send + Sync>| TransportError::Connect(error);
        let link = UdpLink::bind(UdpConfig::new(Ipv4Addr::LOCALHOST.into()));
        let link =
            FaultLink::new(link.map_err(|error| failed(error.into()))?, seed, faults.clone());
        // The losses replay from the seed; queue pair numbers must differ from life to life.
        let device = RoceDevice::new(link, RoceConfig::default().seed(random()));
        let endpoint = Endpoint::new(device, client_config().carrier(carrier));
        let endpoint = endpoint.map_err(|error| failed(error.into()))?;
        Ok(Box::new(ChannelTransport::on(endpoint, server, waiting, CONNECT_TIMEOUT)?))
    }

    /// Whether its packets are those of a device, and can be lost on purpose.
    pub(super) const fn has_packets(self) -> bool {
        !matches!(self, Self::Tcp | Self::TowpathTcp)
    }
}

/// What clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Reads and changes of records.
    Mix(Mix),
    /// Each operation adds one to a number: what is done twice, or not at all, shows at the end.
    Count,
}

impl Load {
    /// Its name.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Mix(mix) => mix.word(),
            Self::Count => "count",
        }
    }

    /// That of a name.
    pub(super) fn of(word: &str) -> Option<Self> {
        if word == Self::Count.word() { Some(Self::Count) } else { Mix::of(word).map(Self::Mix) }
    }
}
