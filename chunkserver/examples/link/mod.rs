//! A client's link, for examples that measure a chunk server.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use towpath_fastpath::ChunkClient;
use towpath_fastpath::wire::PROTOCOL;
use towpath_transport::{Endpoint, EndpointConfig, Event, RoceUdp, UdpConfig};

/// A link to a server, with a channel.
pub(crate) fn connect(
    addr: SocketAddr,
) -> Result<(Endpoint<RoceUdp>, ChunkClient), Box<dyn Error>> {
    let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    let mut endpoint = Endpoint::udp(udp, EndpointConfig::new().app_protocol(PROTOCOL))?;
    endpoint.connect(addr)?;
    let mut found = None;
    while found.is_none() {
        endpoint.turn(|endpoint, event| match event {
            Event::Connected { link, .. } => {
                found = endpoint.open_channel(link, false).err().map(|_| None);
            }
            Event::ChannelOpened { link, channel, .. } => found = Some(Some((link, channel))),
            Event::ConnectFailed { .. } => found = Some(None),
            _ => {}
        });
    }
    let (link, channel) = found.flatten().ok_or("no channel to the server")?;
    Ok((endpoint, ChunkClient::new(link, channel)))
}
