//! The ways in which requests can go, and what is asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_kv::client::{
    ChannelTransport, ClientConfig, RawClientConfig, RawTransport, TcpTransport, Transport,
    TransportError, Waiting,
};
use towpath_kv::client_config;
use towpath_kv::raw::RawKind;
use towpath_kv::workload::Mix;
use towpath_sim::{FaultControl, FaultLink};
use towpath_transport::{CarrierChoice, Endpoint};

use crate::random::random;

/// What requests over a device's packets are carried by.
enum Carried {
    Raw(RawClientConfig),
    Channel(CarrierChoice),
}

/// The longest value of queue pairs without Towpath: those that are measured are shorter, and each
/// client has buffers of this length.
const RAW_VALUES: &str = "--raw-value-kib=4";

/// How long a connection may take to be made: many are made at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// What carries requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Kernel TCP.
    Tcp,
    /// Reliable connections without Towpath: the device sends again what is lost.
    Rc,
    /// Unreliable connections without Towpath: clients repeat what is lost.
    Uc,
    /// Datagrams: one queue pair of the server for all clients, which repeat what is lost.
    Ud,
    /// A Towpath channel on UC, whose losses are mended in software.
    TowpathUc,
    /// A Towpath channel on RC.
    TowpathRc,
    /// A Towpath channel on kernel TCP.
    TowpathTcp,
}

impl Way {
    /// All.
    pub(super) const ALL: [Self; 7] = [
        Self::Tcp,
        Self::Rc,
        Self::Uc,
        Self::Ud,
        Self::TowpathUc,
        Self::TowpathRc,
        Self::TowpathTcp,
    ];

    /// Its name.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
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
            Self::Rc => &["--raw=127.0.0.1:0", "--raw-transport=rc", RAW_VALUES],
            Self::Uc => &["--raw=127.0.0.1:0", "--raw-transport=uc", RAW_VALUES],
            Self::Ud => &["--raw=127.0.0.1:0", "--raw-transport=ud", RAW_VALUES],
            Self::TowpathUc => &["--links=127.0.0.1:0", "--carrier=uc"],
            Self::TowpathRc => &["--links=127.0.0.1:0", "--carrier=rc"],
            Self::TowpathTcp => &["--links=127.0.0.1:0", "--carrier=tcp"],
        }
    }

    /// How its clients ask.
    pub(super) fn client_config(self) -> ClientConfig {
        match self {
            Self::Uc | Self::Ud => ClientConfig::for_losses(),
            _ => ClientConfig::default(),
        }
    }

    /// One client's connection, whose random choices come from a seed.
    pub(super) fn connect(
        self,
        server: SocketAddr,
        waiting: Waiting,
        (seed, faults): (u64, &FaultControl),
    ) -> Result<Box<dyn Transport>, TransportError> {
        let raw = |kind| RawClientConfig { under_way: 1, ..RawClientConfig::new(kind, waiting) };
        let carried = match self {
            Self::Tcp => {
                let transport = TcpTransport::connect(server, waiting, CONNECT_TIMEOUT)?;
                return Ok(Box::new(transport));
            }
            Self::Rc => Carried::Raw(raw(RawKind::Rc)),
            Self::Uc => Carried::Raw(raw(RawKind::Uc)),
            Self::Ud => Carried::Raw(raw(RawKind::Ud)),
            Self::TowpathUc => Carried::Channel(CarrierChoice::Uc),
            Self::TowpathRc => Carried::Channel(CarrierChoice::Rc),
            Self::TowpathTcp => Carried::Channel(CarrierChoice::Tcp),
        };
        let failed =
            |error: Box<dyn std::error::Error + Send + Sync>| TransportError::Connect(error);
        let link = UdpLink::bind(UdpConfig::new(Ipv4Addr::LOCALHOST.into()));
        let link =
            FaultLink::new(link.map_err(|error| failed(error.into()))?, seed, faults.clone());
        // The losses replay from the seed; queue pair numbers must differ from life to life.
        let device = RoceDevice::new(link, RoceConfig::default().seed(random()));
        Ok(match carried {
            Carried::Raw(config) => {
                Box::new(RawTransport::connect(device, server, config, CONNECT_TIMEOUT)?)
            }
            Carried::Channel(carrier) => {
                let endpoint = Endpoint::new(device, client_config().carrier(carrier));
                let endpoint = endpoint.map_err(|error| failed(error.into()))?;
                Box::new(ChannelTransport::on(endpoint, server, waiting, CONNECT_TIMEOUT)?)
            }
        })
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
