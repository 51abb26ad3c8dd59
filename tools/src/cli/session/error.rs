//! What can go wrong between a client and its server, and what to do next.

use std::io;
use std::net::{IpAddr, SocketAddr};

use towpath_fastpath::leg::LegError;
use towpath_fastpath::{ClientError, OpenError};
use towpath_transport::{
    ChannelError, CloseReason, ConnectError, DownReason, EndpointError, LinkError,
};

use crate::cli::interrupt::Interrupted;

/// What can go wrong between a client and its server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SessionError {
    /// The channel was refused.
    #[error(
        "the server at {server} opened no channel{}: it may be full, try again later",
        match reason {
            CloseReason::Refused(code) => format!(" (code {code})"),
            _ => String::new(),
        }
    )]
    ChannelClosed {
        /// Where.
        server: SocketAddr,
        /// Why.
        reason: CloseReason,
    },
    /// The channel cannot be asked for.
    #[error("cannot open a channel to the server at {server}")]
    Channel {
        /// Where.
        server: SocketAddr,
        /// Why.
        #[source]
        source: ChannelError,
    },
    /// An operation failed.
    #[error(transparent)]
    Client(Box<ClientError>),
    /// The server has no room for another client.
    #[error(
        "server full: the chunk server at {server} has its maximum number of clients; try again \
         later, or start it with a higher --links-max"
    )]
    Full {
        /// Where.
        server: SocketAddr,
    },
    /// Nobody listens there.
    #[error(
        "no chunk server at {server}: is it running? \
         `towpath-chunkserver --listen {server} --data-dir DIR` starts one"
    )]
    NotThere {
        /// Where.
        server: SocketAddr,
        /// Why.
        #[source]
        source: Box<ConnectError>,
    },
    /// Somebody is there, but no link with them can be set up.
    #[error("cannot connect to the chunk server at {server}")]
    Connect {
        /// Where.
        server: SocketAddr,
        /// Why.
        #[source]
        source: Box<OpenError>,
    },
    /// The link went down while it was set up.
    #[error(
        "{}",
        match reason {
            DownReason::Silent(span) => format!(
                "no packet of the server at {server} came over UDP within {span}: is UDP blocked \
                 on the way? Allow it, or let both ends fall back to TCP (--fallback rc,tcp, and \
                 `fallback` at the server)"
            ),
            _ => format!(
                "the server at {server} closed the link during set-up, as it does where no packet \
                 over UDP reaches it: allow UDP on the way, let both ends fall back to TCP \
                 (--fallback rc,tcp), or try again"
            ),
        }
    )]
    Down {
        /// Where.
        server: SocketAddr,
        /// Why.
        reason: DownReason,
    },
    /// The device or its memory cannot be had.
    #[error("cannot set up the network device")]
    Endpoint(#[from] EndpointError),
    /// Somebody asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// Two endpoints in one process could not be joined.
    #[error("cannot connect two endpoints")]
    Link(#[source] LinkError),
    /// No local address leads to the server.
    #[error("no local address has a route to {server}: name one with --device-ip")]
    NoRoute {
        /// Where.
        server: IpAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The client ended an operation with the output of another.
    #[error("the client mixed up two operations; this is a bug, please report it")]
    OtherOutput,
    /// The second server holds something else under that name.
    #[error(
        "the chunk has {found} bytes at the replica {replica}, but {wanted} bytes at the server: \
         name a replica with the same data"
    )]
    ReplicaDiffers {
        /// Where.
        replica: SocketAddr,
        /// Bytes at the server.
        wanted: u64,
        /// Bytes at the replica.
        found: u64,
    },
    /// What was asked for cannot be had on the way to the server.
    #[error("cannot set up a link to the server at {server}")]
    Unfit {
        /// Where.
        server: SocketAddr,
        /// Why.
        #[source]
        source: LinkError,
    },
    /// The name of the server leads nowhere.
    #[error("cannot resolve the server name `{name}`: give HOST or HOST:PORT")]
    Resolve {
        /// What was given.
        name: String,
        /// What the system said; none when it found no address.
        #[source]
        source: Option<io::Error>,
    },
}

impl SessionError {
    /// Why `server` cannot be asked for anything.
    pub(super) fn opening(server: SocketAddr, error: OpenError) -> Self {
        match error {
            OpenError::Connect(ConnectError::Full { .. }) => Self::Full { server },
            OpenError::Connect(ConnectError::Local {
                error: source @ LinkError::PathMtu { .. },
                ..
            }) => Self::Unfit { server, source },
            OpenError::Connect(error @ ConnectError::Dial { .. }) => {
                Self::NotThere { server, source: Box::new(error) }
            }
            OpenError::Session(error) => error.into(),
            OpenError::NoChannel { addr, source } => match *source {
                LegError::Channel(source) => Self::Channel { server, source },
                LegError::Closed(reason) => Self::ChannelClosed { server, reason },
                LegError::Down(reason) => Self::Down { server, reason },
                LegError::Connect(error) => Self::opening(addr, error.into()),
            },
            error => Self::Connect { server, source: Box::new(error) },
        }
    }
}

impl From<ClientError> for SessionError {
    fn from(error: ClientError) -> Self {
        Self::Client(error.into())
    }
}
