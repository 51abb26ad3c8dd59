//! Errors of set-up and commands: what failed, and what to do about it.

use crate::carrier::Fallback;
use std::io;
use std::net::SocketAddr;
use towpath_base::Nanos;
use towpath_memory::MemoryError;
use towpath_proto::wire::{AppProtocol, HelloError, Refusal};
use towpath_proto::{Carrier, Class};
use towpath_secure::{HandshakeError, Mode, RandomError};
use towpath_verbs::{Mtu, PathMtu, VerbError};

/// Why an endpoint could not be made, or why memory could not be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The device lacks the queue pairs that were chosen to carry links, or has no usable kind.
    #[error(
        "the device has no {wanted} queue pairs, which links are set to use; choose another device \
         or another carrier"
    )]
    NoCarrier {
        /// The kind that links are set to use.
        wanted: Carrier,
    },
    /// There is no memory for buffers.
    #[error("cannot allocate buffers")]
    Memory(#[from] MemoryError),
    /// A call to the device failed.
    #[error("the device refused a call")]
    Verb(#[from] VerbError),
    /// The MTU that was asked for is larger than the port carries.
    #[error(
        "an MTU of {asked} bytes is too large: the port carries {port}; lower the MTU setting \
         (--mtu, -m, mtu_bytes) to {} or leave it out, or raise the MTU of the interface",
        .port.mtu
    )]
    Mtu {
        /// The MTU that was asked for.
        asked: Mtu,
        /// What the port carries.
        port: PathMtu,
    },
    /// A limit of the configuration does not fit the device.
    #[error(
        "{what} is {wanted}, but the device allows at most {limit}; lower links_max, credit_total \
         or progress_budget"
    )]
    TooLarge {
        /// The limit that does not fit.
        what: &'static str,
        /// What the configuration adds up to.
        wanted: usize,
        /// What the device has.
        limit: usize,
    },
    /// The endpoint has its maximum number of regions.
    #[error("all {max} regions are in use; deregister one, or register fewer, larger regions")]
    TooManyRegions {
        /// The limit.
        max: usize,
    },
    /// The UDP sockets could not be set up.
    #[error("cannot set up the UDP device")]
    Udp(#[from] towpath_device_roce::udp::UdpError),
    /// The RDMA device could not be opened.
    #[error(transparent)]
    Open(#[from] towpath_device_verbs::OpenError),
    /// The system could not start a thread.
    #[error("cannot start the worker thread")]
    Thread(#[source] io::Error),
}

/// Why listening failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process uses the port.
    #[error(
        "TCP port {} on {} is in use: stop its owner (`ss -tlnp` names it) or choose another port",
        .0.port(),
        .0.ip()
    )]
    PortInUse(SocketAddr),
    /// No interface has the address.
    #[error("{0} is not an address of this host: `ip addr` lists its addresses")]
    AddressNotLocal(SocketAddr),
    /// Not allowed.
    #[error("not permitted to listen on {0}: ports below 1024 need CAP_NET_BIND_SERVICE")]
    Permission(SocketAddr),
    /// Too many listeners.
    #[error("the endpoint already listens on {max} addresses, its maximum; use one of them")]
    TooMany {
        /// How many.
        max: usize,
    },
    /// The endpoint's worker has ended.
    #[error("the endpoint has shut down; start another one")]
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
    /// Too many connections are being set up at the same time.
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
        /// How long this side waited.
        after: Nanos,
    },
    /// The peer is full: all its links are in use, or it has no memory for another one.
    #[error(
        "the server at {addr} is full: all its links are in use; try again later, or raise its \
         limit of links"
    )]
    Full {
        /// Where to.
        addr: SocketAddr,
    },
    /// The peer refused, for another reason than [`Full`](Self::Full) or [`Class`](Self::Class).
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
    /// The peer accepts no links of the class.
    #[error("{addr} accepts no {class} links: use another class, or configure that class there")]
    Class {
        /// Where to.
        addr: SocketAddr,
        /// The class that was asked for.
        class: Class,
    },
    /// The peer's answer is not a set-up message of this version.
    #[error("{addr} did not answer as a Towpath endpoint of this version: {error}")]
    Hello {
        /// Where to.
        addr: SocketAddr,
        /// What was wrong.
        #[source]
        error: HelloError,
    },
    /// The hosts did not come to trust each other.
    #[error("{addr}: {error}")]
    Handshake {
        /// Where to.
        addr: SocketAddr,
        /// Why, and what to do.
        error: HandshakeError,
    },
    /// This side could not set up its end.
    #[error("cannot set up a link to {addr}")]
    Local {
        /// Where to.
        addr: SocketAddr,
        /// Why.
        #[source]
        error: LinkError,
    },
    /// The endpoint's worker has ended.
    #[error("the endpoint has shut down; start another one")]
    ShutDown,
}

impl ConnectError {
    /// Our half and that of the peer at `addr` do not join.
    pub(crate) fn of(addr: SocketAddr, error: LinkError) -> Self {
        match error {
            LinkError::App { theirs, ours } => Self::App { addr, theirs, ours },
            error => Self::Local { addr, error },
        }
    }
}

/// Why a link that a peer asked for was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The peer sent something else than a set-up message of this version.
    #[error("{0}")]
    Hello(#[from] HelloError),
    /// The peer sent a refusal in place of a HELLO.
    #[error("the peer sent a refusal ({0}) in place of a HELLO")]
    Unasked(Refusal),
    /// The peer did not complete its HELLO in time.
    #[error("the peer sent no complete HELLO within {0}")]
    Timeout(Nanos),
    /// The connection broke before the HELLO was complete.
    #[error("the set-up connection broke before the peer's HELLO was complete")]
    Broken(#[source] Option<io::Error>),
    /// Too many peers already wait for the worker that was to serve this one.
    #[error("{max} peers already wait for the same worker; the peer may try again")]
    Busy {
        /// The limit.
        max: usize,
    },
    /// Too many set-ups were under way, and this one was dropped for a newer one.
    #[error("{max} set-ups were under way already, and this one was dropped for a newer one")]
    GaveWay {
        /// The limit.
        max: usize,
    },
    /// The hosts did not come to trust each other.
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    /// A link could not be made.
    #[error("{0}")]
    Link(#[from] LinkError),
}

/// Why a link could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// All links are in use, or there is no memory for the buffers of another one.
    #[error("all {links_max} links are in use; raise links_max or close one")]
    Full {
        /// The limit.
        links_max: usize,
    },
    /// There is no memory for the receive buffers of the link.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// A call to the device failed.
    #[error("{0}")]
    Verb(#[from] VerbError),
    /// The peer asks for more paths than this side allows.
    #[error(
        "the peer asks for {wanted} paths, {most} at most are allowed here; change one of them"
    )]
    TooManyPaths {
        /// The number that the peer asks for.
        wanted: usize,
        /// The number that this side allows.
        most: usize,
    },
    /// The peer offers another number of paths than this side.
    #[error("the peer has {theirs} paths and this side {ours}; set the same number at both ends")]
    Paths {
        /// The peer's.
        theirs: usize,
        /// Ours.
        ours: usize,
    },
    /// The peer's links use another carrier than ours.
    #[error("the peer's links use {theirs} and ours {ours}; set the same carrier at both ends")]
    Carrier {
        /// The peer's.
        theirs: Carrier,
        /// Ours.
        ours: Carrier,
    },
    /// The peer's application speaks another protocol than ours.
    #[error(
        "the peer's application speaks {theirs}, ours speaks {ours}; check the address and port"
    )]
    App {
        /// The peer's.
        theirs: AppProtocol,
        /// Ours.
        ours: AppProtocol,
    },
    /// No packets can be sent to the peer's device address, or they would reach several hosts.
    #[error(
        "the peer's device address {theirs} cannot be used: it is broadcast, multicast, \
         unspecified, or has port 0; set the address of the device at the peer"
    )]
    Address {
        /// The address that the peer named.
        theirs: SocketAddr,
    },
    /// The peer asks for a class that this side does not accept, or answered with another class
    /// than this side asked for.
    #[error("the peer asks for a {theirs} link; accept that class here, or use another one there")]
    Class {
        /// The peer's.
        theirs: Class,
    },
    /// The peer's links fall back to more than ours; the peer may ask again for less.
    #[error(
        "the peer's links fall back to {theirs} and ours to {ours}; set the same fallback at both \
         ends"
    )]
    Fallback {
        /// The peer's.
        theirs: Fallback,
        /// Ours.
        ours: Fallback,
    },
    /// The devices have addresses of different families.
    #[error(
        "the peer's device has the address {theirs} and ours {ours}; use addresses of one family \
         at both ends"
    )]
    Family {
        /// The peer's.
        theirs: SocketAddr,
        /// Ours.
        ours: SocketAddr,
    },
    /// A link over TCP needs the connection on which it was set up.
    #[error(
        "a link over TCP needs its set-up connection: use `connect` and `listen`, or another \
         carrier"
    )]
    NoStream,
    /// The MTU that was asked for is larger than the path to the peer carries.
    #[error(
        "an MTU of {asked} bytes is too large: the path to {} carries {way}; lower the MTU setting \
         (--mtu, -m, mtu_bytes) to {}",
        .dest.ip(),
        .way.mtu
    )]
    PathMtu {
        /// Where the peer is.
        dest: SocketAddr,
        /// The MTU that was asked for.
        asked: Mtu,
        /// What the path carries, as far as this host knows.
        way: PathMtu,
    },
    /// The peer's receive buffers are smaller than a packet needs.
    #[error("the peer accepts chunks of {theirs} bytes, but {needed} are needed; raise its limit")]
    ChunkBytes {
        /// The peer's limit.
        theirs: u32,
        /// The least that is needed.
        needed: u32,
    },
    /// The peer's HELLO is of a link that is not sealed, and ours are.
    #[error(
        "the peer's links are open and those of this host in mode `{ours}`: give the peer a key \
         (`towpath keygen`) and trust it here; nothing is negotiated"
    )]
    NotSealed {
        /// Our mode.
        ours: Mode,
    },
    /// The peer's HELLO is of a sealed link, and ours are open.
    #[error(
        "the peer's links are sealed and those of this host are open: give this host a key \
         (`towpath keygen`); nothing is negotiated"
    )]
    Sealed,
    /// The peer's HELLO names a secret that this host lacks; the peer shakes hands again.
    #[error(
        "the peer names a secret that is not known here: this process or the peer was started \
         anew, the secret is a day old, or the peer was revoked; it shakes hands again by itself"
    )]
    UnknownSecret,
    /// The tag of the peer's HELLO is wrong.
    #[error(
        "the HELLO was not made by the peer whose secret it names, or was changed on its way: if \
         this comes again, somebody between the hosts changes it"
    )]
    HelloForged,
    /// There is no secret to seal the link with.
    #[error("HELLOs of sealed links that do not go over TCP need a secret that both ends know")]
    NoSecret,
    /// The system has no random bytes.
    #[error("{0}")]
    Random(#[from] RandomError),
    /// The pending end belongs to another endpoint, or was withdrawn.
    #[error("this end of a link belongs to another endpoint or is gone; make a new offer")]
    NotPending,
}

impl LinkError {
    /// What a peer is told.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::TooManyPaths { most, .. } => Refusal::Paths { most: *most as u8 },
            Self::Fallback { ours, .. } => {
                Refusal::Fallback { rc: *ours > Fallback::Tcp, tcp: *ours > Fallback::None }
            }
            Self::Carrier { ours, .. } => Refusal::Carrier { wanted: *ours },
            Self::Paths { .. }
            | Self::PathMtu { .. }
            | Self::NoStream
            | Self::ChunkBytes { .. } => Refusal::Limits,
            Self::Class { .. } => Refusal::Class,
            Self::App { ours, .. } => Refusal::App { served: *ours },
            Self::Address { .. } => Refusal::Address,
            Self::Family { .. } => Refusal::Family,
            Self::NotSealed { ours } => Refusal::Sealed { encrypts: *ours == Mode::Encrypt },
            Self::Sealed => Refusal::Open,
            Self::UnknownSecret | Self::NoSecret => Refusal::UnknownSecret,
            Self::HelloForged => Refusal::Forged,
            Self::Memory(_) | Self::Verb(_) | Self::Random(_) => Refusal::Resources,
            Self::Full { .. } | Self::NotPending => Refusal::Full,
        }
    }
}

/// Why a command on a link or channel failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The link does not exist, or no longer exists.
    #[error("the link is gone; connect again")]
    NoSuchLink,
    /// The link refused.
    #[error("{0}")]
    Link(#[from] towpath_proto::OpenError),
    /// The peer refused, or the channel was closed while it was opened.
    #[error("the channel was not opened ({0:?}); the peer may have reached its limits")]
    Closed(towpath_proto::CloseReason),
    /// The link went down meanwhile.
    #[error("the link went down ({0:?}); connect again")]
    Down(towpath_proto::DownReason),
    /// No answer in time.
    #[error("the peer did not answer in time; it may be busy or gone: try again")]
    Timeout,
    /// Too many commands wait for the endpoint's worker.
    #[error("too many commands wait for the endpoint's worker; try again later")]
    Busy,
    /// The endpoint's worker has ended.
    #[error("the endpoint has shut down; start another one")]
    ShutDown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_verbs::Verb;

    #[test]
    fn a_peer_is_told_why_it_was_refused_and_full_is_full() {
        let [theirs, ours] = ["10.0.0.1:1", "[fd00::1]:1"].map(|addr| addr.parse().expect(addr));
        let memory = MemoryError::OutOfMemory { bytes: 1, errno: 12 };
        for (error, refusal) in [
            (LinkError::Full { links_max: 1 }, Refusal::Full),
            (LinkError::Memory(memory), Refusal::Resources),
            (LinkError::Verb(VerbError::OutOfResources(Verb::CreateQp)), Refusal::Resources),
            (LinkError::Family { theirs, ours }, Refusal::Family),
            (
                LinkError::Carrier { theirs: Carrier::Uc, ours: Carrier::Rc },
                Refusal::Carrier { wanted: Carrier::Rc },
            ),
            (
                LinkError::Fallback { theirs: Fallback::RcThenTcp, ours: Fallback::Tcp },
                Refusal::Fallback { rc: false, tcp: true },
            ),
        ] {
            assert_eq!(error.refusal(), refusal, "{error}");
        }
    }
}
