//! Finding a server, and joining a link and a channel with it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use towpath_fastpath::cap::Grant;
use towpath_fastpath::{ChunkClient, ChunkId, HedgeConfig, HedgedClient};
use towpath_transport::{
    ChannelId, Device, Endpoint, EndpointConfig, Event, LinkId, Nanos, Region, Time,
};

use super::again::Way;
use super::{Pace, Session, SessionError};

/// Where chunk servers listen unless told otherwise.
const PORT_DEFAULT: u16 = 7400;

/// The variable that names a server.
const SERVER_VARIABLE: &str = "TOWPATH_SERVER";

/// The address of a chunk server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server(pub SocketAddr);

impl Server {
    /// The server that `named` names: `HOST` or `HOST:PORT`; else the one of `$TOWPATH_SERVER`;
    /// else the one on this host.
    ///
    /// # Errors
    /// [`SessionError::Resolve`].
    pub(crate) fn find(named: Option<&str>) -> Result<Self, SessionError> {
        let variable = std::env::var(SERVER_VARIABLE).ok().filter(|name| !name.is_empty());
        let name = named.or(variable.as_deref()).unwrap_or("127.0.0.1");
        let failed = |source| SessionError::Resolve { name: name.into(), source };
        let address = resolve(name).map_err(|source| failed(Some(source)))?;
        address.map(Self).ok_or_else(|| failed(None))
    }
}

fn resolve(name: &str) -> io::Result<Option<SocketAddr>> {
    Ok(towpath_transport::resolve(name, Some(PORT_DEFAULT))?.first().copied())
}

/// The local address that packets to `server` leave from.
///
/// # Errors
/// [`SessionError::NoRoute`].
pub(crate) fn device_ip(server: Server) -> Result<IpAddr, SessionError> {
    let Server(server) = server;
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    // Connecting a UDP socket sends nothing; it only asks the routing table.
    let ip = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(server)?;
        Ok(socket.local_addr()?.ip())
    });
    ip.map_err(|source| SessionError::NoRoute { server: server.ip(), source })
}

impl<D: Device<Memory = Region>, P: Pace<D>> Session<D, P> {
    /// Connects to a server over TCP and joins a link with it.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn connect(
        device: D,
        config: EndpointConfig,
        mut pace: P,
        server: Server,
        timeout: Nanos,
    ) -> Result<Self, SessionError> {
        let mut endpoint = Endpoint::new(device, config)?;
        let link = join(&mut endpoint, &mut pace, server)?;
        Self::on_link(endpoint, link, pace, server.0, timeout)
    }

    /// From now on reads that are late are asked for at `replica` as well, which must hold `chunk`
    /// as the first server does.
    ///
    /// # Errors
    /// [`SessionError`]; [`SessionError::ReplicaDiffers`] when the lengths of the chunk differ.
    pub(crate) fn hedge(
        mut self,
        replica: Server,
        config: HedgeConfig,
        chunk: ChunkId,
    ) -> Result<Self, SessionError> {
        let wanted = self.stat(chunk)?.byte_len;
        let Self { mut endpoint, client, mut pace, way } = self;
        let timeout = client.primary().op_timeout();
        let link = join(&mut endpoint, &mut pace, replica)?;
        let channel = open(&mut endpoint, &mut pace, link, replica.0)?;
        let mut second = ChunkClient::new(link, channel).timeout(timeout);
        if let Some(grant) = client.primary().shown() {
            second = second.capability(*grant);
        }
        let client = HedgedClient::new(client.into_primary(), second, config);
        let mut session = Self { endpoint, client, pace, way };
        let found = session.stat_replica(chunk)?.map_or(0, |info| info.byte_len);
        if found != wanted {
            return Err(SessionError::ReplicaDiffers { replica: replica.0, wanted, found });
        }
        Ok(session)
    }

    /// Says by which capability requests come, and whose they are, before the first of them. From
    /// now on the link to `server` is made again where it breaks.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn begin(
        self,
        server: Server,
        patience: Nanos,
        grant: Option<Grant>,
        tenant: Option<&str>,
    ) -> Result<Self, SessionError> {
        let Self { endpoint, client, pace, .. } = self;
        let way = Way::new(server, (client.primary().op_timeout(), patience), grant, tenant);
        let client = match grant {
            Some(grant) => HedgedClient::alone(client.into_primary().capability(grant)),
            None => client,
        };
        let mut session = Self { endpoint, client, pace, way: Some(way) };
        session.enter()?;
        Ok(session)
    }

    /// Opens a channel on a link that is up.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn on_link(
        mut endpoint: Endpoint<D>,
        link: LinkId,
        mut pace: P,
        server: SocketAddr,
        timeout: Nanos,
    ) -> Result<Self, SessionError> {
        let channel = open(&mut endpoint, &mut pace, link, server)?;
        let client = HedgedClient::alone(ChunkClient::new(link, channel).timeout(timeout));
        Ok(Self { endpoint, client, pace, way: None })
    }
}

/// A link with a server.
pub(super) fn join<D: Device<Memory = Region>, P: Pace<D>>(
    endpoint: &mut Endpoint<D>,
    pace: &mut P,
    Server(server): Server,
) -> Result<LinkId, SessionError> {
    let failed = |error| SessionError::connecting(server, error);
    let connecting = endpoint.connect(server).map_err(failed)?;
    wait_for(endpoint, pace, |event| match event {
        Event::Connected { connect, link, .. } if connect == connecting => Some(Ok(link)),
        Event::ConnectFailed { connect, error } if connect == connecting => {
            Some(Err(failed(error)))
        }
        _ => None,
    })?
}

/// A channel on a link that is up.
pub(super) fn open<D: Device<Memory = Region>, P: Pace<D>>(
    endpoint: &mut Endpoint<D>,
    pace: &mut P,
    of: LinkId,
    server: SocketAddr,
) -> Result<ChannelId, SessionError> {
    let asked = endpoint.open_channel(of, false);
    let wanted = asked.map_err(|source| SessionError::Channel { server, source })?;
    wait_for(endpoint, pace, |event| match event {
        Event::ChannelOpened { link, channel, .. } if (link, channel) == (of, wanted) => {
            Some(Ok(channel))
        }
        Event::ChannelClosed { link, channel, reason } if (link, channel) == (of, wanted) => {
            Some(Err(SessionError::ChannelClosed { server, reason }))
        }
        Event::LinkDown { link, reason } if link == of => {
            Some(Err(SessionError::Down { server, reason }))
        }
        _ => None,
    })?
}

fn wait_for<D: Device<Memory = Region>, P: Pace<D>, T>(
    endpoint: &mut Endpoint<D>,
    pace: &mut P,
    mut pick: impl FnMut(Event) -> Option<T>,
) -> Result<T, SessionError> {
    let mut found = None;
    loop {
        let busy = endpoint.turn(|_, event| {
            if found.is_none() {
                found = pick(event);
            }
        });
        if let Some(found) = found {
            return Ok(found);
        }
        if !busy {
            pace.idle(endpoint, Time::NEVER)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_with_and_without_port() {
        for (name, address) in [
            ("127.0.0.1", "127.0.0.1:7400"),
            ("127.0.0.1:99", "127.0.0.1:99"),
            ("::1", "[::1]:7400"),
            ("[::1]", "[::1]:7400"),
            ("[::1]:99", "[::1]:99"),
            ("[fe80::1%lo]:99", "[fe80::1%1]:99"),
        ] {
            let Server(found) = Server::find(Some(name)).expect("an address");
            assert_eq!(found.to_string(), address, "{name}");
        }
        let error = Server::find(Some("no such host")).expect_err("spaces").to_string();
        assert!(error.contains("HOST:PORT"), "{error}");
    }

    #[test]
    fn loopback_is_reached_from_loopback() {
        let server = Server("127.0.0.1:9".parse().expect("an address"));
        assert_eq!(device_ip(server).expect("a route"), server.0.ip());
    }
}
