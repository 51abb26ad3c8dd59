//! Finding a server, and connecting to it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use towpath_fastpath::{Client, ClientConfig, Driver};
use towpath_transport::{Device, Endpoint, EndpointConfig, LinkId, Region};

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
    /// Connects to a server over TCP.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn connect(
        device: D,
        config: EndpointConfig,
        pace: P,
        Server(server): Server,
        client: &ClientConfig,
    ) -> Result<Self, SessionError> {
        let endpoint = Endpoint::new(device, config)?;
        Self::open(driven(endpoint, server, client), pace, server, client)
    }

    /// Goes on with a link that was made otherwise.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn on_link(
        endpoint: Endpoint<D>,
        link: LinkId,
        pace: P,
        server: SocketAddr,
        config: &ClientConfig,
    ) -> Result<Self, SessionError> {
        let (client, mut driver) = driven(endpoint, server, config);
        driver.join(link);
        Self::open((client, driver), pace, server, config)
    }

    fn open(
        (client, driver): (Client, Driver<D>),
        pace: P,
        server: SocketAddr,
        config: &ClientConfig,
    ) -> Result<Self, SessionError> {
        let (client, patience) = (client.sole_writer(), config.patience_span());
        let mut session = Self { client, driver, pace, server, patience, is_away: false };
        loop {
            if let Some(outcome) = session.driver.take_opened() {
                outcome.map_err(|error| SessionError::opening(server, error))?;
                return Ok(session);
            }
            session.step()?;
        }
    }
}

/// Whoever uses the session keeps to a depth of its own.
fn driven<D: Device<Memory = Region>>(
    endpoint: Endpoint<D>,
    server: SocketAddr,
    config: &ClientConfig,
) -> (Client, Driver<D>) {
    Client::driven(endpoint, server, &config.clone().depth(usize::MAX))
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
