//! Why set-up and commands fail, and what to do about it.

use std::io;
use std::net::SocketAddr;
use towpath_base::Nanos;
use towpath_memory::MemoryError;
use towpath_proto::wire::{AppProtocol, HelloError, Refusal};
use towpath_proto::{Carrier, Class};
use towpath_verbs::{Mtu, PathMtu, VerbError};

/// Why an endpoint could not be made, or memory not be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The device lacks the queue pairs that were chosen to carry links, or both kinds.
    #[error(
        "the device has no {wanted} queue pairs, which links were to ride on; choose another \
             device, or another carrier"
    )]
    NoCarrier {
        /// What was to carry them.
        wanted: Carrier,
    },
    /// Memory for buffers.
    #[error("cannot get buffers")]
    Memory(#[from] MemoryError),
    /// The device refused.
    #[error("the device refused")]
    Verb(#[from] VerbError),
    /// The port carries no packets as long as were asked for.
    #[error(
        "the port carries {port}, and {asked} bytes were asked for: lower the MTU setting (--mtu, \
         -m, mtu_bytes) to {} or leave it out, or raise the MTU of the interface",
        .port.mtu
    )]
    Mtu {
        /// What was asked for.
        asked: Mtu,
        /// What the port carries.
        port: PathMtu,
    },
    /// A limit of the configuration does not fit the device.
    #[error(
        "{what} of {wanted} is more than the device's {limit}; lower links_max, credit_total or \
         the progress budget"
    )]
    TooLarge {
        /// What does not fit.
        what: &'static str,
        /// What the configuration adds up to.
        wanted: usize,
        /// What the device has.
        limit: usize,
    },
    /// As many regions as an endpoint knows.
    #[error("{max} regions are registered already; deregister one, or carve larger ones")]
    TooManyRegions {
        /// How many.
        max: usize,
    },
    /// The UDP sockets could not be set up.
    #[error("cannot set up the UDP device")]
    Udp(#[from] towpath_device_roce::udp::UdpError),
    /// The RDMA device could not be opened.
    #[error(transparent)]
    Open(#[from] towpath_device_verbs::OpenError),
    /// The system gave no thread.
    #[error("cannot start the worker thread")]
    Thread(#[source] io::Error),
}

/// Why listening failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process has the port.
    #[error(
        "TCP port {} on {} is in use: stop its owner (`ss -tlnp` names it) or choose another port",
        .0.port(),
        .0.ip()
    )]
    PortInUse(SocketAddr),
    /// No interface has the address.
    #[error("{0} is no address of this host: `ip addr` lists those that are")]
    AddressNotLocal(SocketAddr),
    /// Not allowed.
    #[error("not permitted to listen on {0}: ports below 1024 need CAP_NET_BIND_SERVICE")]
    Permission(SocketAddr),
    /// Too many listeners.
    #[error("the endpoint listens on {max} addresses already; use one of them")]
    TooMany {
        /// How many.
        max: usize,
    },
    /// The endpoint's worker has ended.
    #[error("the endpoint has shut down; spawn another")]
    ShutDown,
    /// Anything else.
    #[error("cannot listen on {addr}")]
    System {
        /// Where.
        addr: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl ListenError {
    pub(crate) fn at(addr: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::PortInUse(addr),
            io::ErrorKind::AddrNotAvailable => Self::AddressNotLocal(addr),
            io::ErrorKind::PermissionDenied => Self::Permission(addr),
            _ => Self::System { addr, source },
        }
    }
}

/// Why an outgoing connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// As many connections as an endpoint sets up at a time.
    #[error("{max} connections are being set up already; try again when one is done")]
    TooMany {
        /// How many.
        max: usize,
    },
    /// The TCP connection could not be made.
    #[error("cannot connect to {addr}: is the peer listening there?")]
    Dial {
        /// Where to.
        addr: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The TCP connection broke during set-up.
    #[error("the set-up connection to {addr} broke; the peer may have crashed, try again")]
    Broken {
        /// Where to.
        addr: SocketAddr,
        /// What the system said, if it was not an end of file.
        #[source]
        source: Option<io::Error>,
    },
    /// No answer in time.
    #[error("{addr} did not answer within {after}; check that it is a Towpath endpoint and alive")]
    Timeout {
        /// Where to.
        addr: SocketAddr,
        /// How long was waited.
        after: Nanos,
    },
    /// The peer has no room: all its links are in use, or it lacks memory for another.
    #[error(
        "the server at {addr} is full: all its links are in use; try again later, or raise its \
         limit of links"
    )]
    Full {
        /// Where to.
        addr: SocketAddr,
    },
    /// The peer answered no, for another reason than [`Full`](Self::Full) or
    /// [`Class`](Self::Class).
    #[error("{addr} refused: {refusal}")]
    Refused {
        /// Where to.
        addr: SocketAddr,
        /// Its reason.
        refusal: Refusal,
    },
    /// The application at the peer speaks another protocol than ours.
    #[error(
        "the application at {addr} speaks {theirs} and ours speaks {ours}: is this the right \
         address and port?"
    )]
    App {
        /// Where to.
        addr: SocketAddr,
        /// The peer's protocol.
        theirs: AppProtocol,
        /// Ours.
        ours: AppProtocol,
    },
    /// The peer takes no links of the class.
    #[error("{addr} takes no {class} links: it is configured without that class")]
    Class {
        /// Where to.
        addr: SocketAddr,
        /// The class that was asked for.
        class: Class,
    },
    /// The peer answered something else than a set-up message of this version.
    #[error("{addr} cannot be talked to: {error}")]
    Hello {
        /// Where to.
        addr: SocketAddr,
        /// What was wrong.
        #[source]
        error: HelloError,
    },
    /// This side could not set up its half.
    #[error("cannot set up a link to {addr}")]
    Local {
        /// Where to.
        addr: SocketAddr,
        /// Why.
        #[source]
        error: LinkError,
    },
    /// The endpoint's worker has ended.
    #[error("the endpoint has shut down; spawn another")]
    ShutDown,
}

/// Why a peer that connected was turned away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// It sent something else than a set-up message of this version.
    #[error("{0}")]
    Hello(#[from] HelloError),
    /// It sent a refusal where a HELLO was due.
    #[error("it sent a refusal ({0}) without being asked")]
    Unasked(Refusal),
    /// It did not finish its HELLO in time.
    #[error("no whole HELLO within {0}")]
    Timeout(Nanos),
    /// The connection broke before its HELLO was whole.
    #[error("the set-up connection broke")]
    Broken(#[source] Option<io::Error>),
    /// Too many peers wait for the worker that this one was placed with.
    #[error("{max} peers wait for the same worker already")]
    Busy {
        /// How many.
        max: usize,
    },
    /// As many set-ups were under way as there may be, and this one gave way to a newer one.
    #[error("{max} set-ups were under way, and this one gave way to a newer one")]
    GaveWay {
        /// How many there may be.
        max: usize,
    },
    /// A link could not be made.
    #[error("{0}")]
    Link(#[from] LinkError),
}

/// Why a link could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// As many links as are configured, or their buffers cannot be had.
    #[error("all {links_max} links are in use; raise links_max or close one")]
    Full {
        /// The limit.
        links_max: usize,
    },
    /// Memory for its receive buffers.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// The device refused.
    #[error("{0}")]
    Verb(#[from] VerbError),
    /// The peer asks for more paths than links have here.
    #[error("the peer wants {wanted} paths, and links have {most} at most here; allow it more")]
    TooManyPaths {
        /// How many it asks for.
        wanted: usize,
        /// How many it can have.
        most: usize,
    },
    /// The peer offers another number of paths than this side.
    #[error("the peer has {theirs} paths and this side {ours}; configure both alike")]
    Paths {
        /// The peer's.
        theirs: usize,
        /// Ours.
        ours: usize,
    },
    /// The peer's paths ride on something else than ours.
    #[error("the peer's links ride on {theirs} and ours on {ours}; configure both alike")]
    Carrier {
        /// The peer's.
        theirs: Carrier,
        /// Ours.
        ours: Carrier,
    },
    /// The peer's application speaks another protocol than ours.
    #[error("the peer's application speaks {theirs} and ours {ours}")]
    App {
        /// The peer's.
        theirs: AppProtocol,
        /// Ours.
        ours: AppProtocol,
    },
    /// The peer's device address is none that packets could be sent to, or not to one host alone.
    #[error(
        "nothing can be sent to the peer's device address {theirs}: it is broadcast, multicast, \
         unspecified, or has port 0; set the address of the device there"
    )]
    Address {
        /// What it named.
        theirs: SocketAddr,
    },
    /// The peer wants a link of a class that this side does not take, or answered with another
    /// class than it was asked for.
    #[error("the peer wants a {theirs} link, which is not taken here; configure both alike")]
    Class {
        /// The peer's.
        theirs: Class,
    },
    /// The peer wants to fall back to RC, for which this side has made no provision.
    #[error("the peer's links fall back to RC and ours do not; configure both alike")]
    Fallback,
    /// A link over TCP needs the connection on which it was set up.
    #[error(
        "a link over TCP rides on its set-up connection: use `connect` and `listen`, or another \
         carrier"
    )]
    NoStream,
    /// The way to the peer carries no packets as long as this side, or both, wanted to send.
    #[error(
        "the way to {} carries {way}, and one of {asked} bytes was wanted: lower the MTU setting \
         (--mtu, -m, mtu_bytes) to {}",
        .dest.ip(),
        .way.mtu
    )]
    PathMtu {
        /// Where the peer is.
        dest: SocketAddr,
        /// What was wanted.
        asked: Mtu,
        /// What the way carries, as far as this host knows.
        way: PathMtu,
    },
    /// The peer's receive buffers are smaller than a packet needs.
    #[error("the peer takes chunks of {theirs} bytes at most, {needed} are needed")]
    ChunkBytes {
        /// The peer's limit.
        theirs: u32,
        /// What is needed at least.
        needed: u32,
    },
    /// The pending half is none of this endpoint's, or was withdrawn.
    #[error("this half of a link belongs to another endpoint or is gone; make a new offer")]
    NotPending,
}

impl LinkError {
    /// What a peer is told.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::TooManyPaths { most, .. } => Refusal::Paths { most: *most as u8 },
            Self::Paths { .. }
            | Self::Carrier { .. }
            | Self::Fallback
            | Self::PathMtu { .. }
            | Self::ChunkBytes { .. } => Refusal::Limits,
            Self::Class { .. } => Refusal::Class,
            Self::App { ours, .. } => Refusal::App { served: *ours },
            Self::Address { .. } => Refusal::Address,
            _ => Refusal::Full,
        }
    }
}

/// Why a command on a link or channel failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// No such link, or not any more.
    #[error("the link is gone; connect again")]
    NoSuchLink,
    /// The link refused: see the reason.
    #[error("{0}")]
    Link(#[from] towpath_proto::OpenError),
    /// The peer refused, or the channel was closed while it was opened.
    #[error("the channel was not opened ({0:?}); the peer may have reached its limits")]
    Closed(towpath_proto::CloseReason),
    /// The link went down meanwhile.
    #[error("the link went down ({0:?}); connect again")]
    Down(towpath_proto::DownReason),
    /// No answer in time.
    #[error("no answer in time; the peer may be busy or gone")]
    Timeout,
    /// Too many commands wait for the endpoint's worker.
    #[error("the endpoint's worker has too much to do; try again when it has had its turns")]
    Busy,
    /// The endpoint's worker has ended.
    #[error("the endpoint has shut down; spawn another")]
    ShutDown,
}
